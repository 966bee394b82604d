"""Values become texts and come back, and the original's texts are understood."""

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import SchemaError
from indextables.schema.calendar import (
    civil_from_days,
    days_from_civil,
    format_date,
    parse_date,
    parse_timestamp,
)
from indextables.schema.values import NULL_PARTITION, format_values, parse_values

INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
KINDS = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.decimal128(38, 10): st.decimals(-(10**27), 10**27, places=10),
    pa.decimal128(5, 0): st.integers(-99999, 99999).map(Decimal),
    pa.string(): st.text().filter(lambda text: text != NULL_PARTITION),
    pa.date32(): INT32,
    pa.timestamp("us", "UTC"): INT64,
    pa.timestamp("us"): INT64,
    pa.duration("us"): INT64,
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
}


def array_of(values: Any, arrow: Any) -> pa.Array:
    if pa.types.is_date(arrow):
        return pa.array(values, pa.int32()).cast(arrow)
    if pa.types.is_temporal(arrow):
        return pa.array(values, pa.int64()).cast(arrow)
    return pa.array(values, arrow)


@pytest.mark.parametrize("partition", [False, True])
@pytest.mark.parametrize("arrow", list(KINDS), ids=str)
def test_every_value_comes_back_from_its_text(arrow: Any, partition: bool) -> None:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.one_of(st.none(), KINDS[arrow]), max_size=6))
    def check(values: Any) -> None:
        array = array_of(values, arrow)
        texts = format_values(array, partition=partition)
        back = parse_values(texts, arrow, partition=partition)
        assert back.values.equals(array)
        assert not back.unreadable.any()
        if pa.types.is_floating(arrow):
            assert np.array_equal(np.signbit(back.values.drop_null()), np.signbit(array.drop_null()))

    check()


def test_nan_and_the_infinities_have_one_text_each() -> None:
    texts = format_values(pa.array([math.nan, math.inf, -math.inf, -0.0, 100.0, 1e20]))
    assert texts.to_pylist() == ["NaN", "inf", "-inf", "-0.0", "100.0", "1e+20"]
    assert math.isnan(parse_values(texts, pa.float64()).values[0].as_py())


@pytest.mark.parametrize("text", ["NaN", "nan"])
def test_nan_is_read_in_both_spellings(text: str) -> None:
    assert math.isnan(parse_values(pa.array([text]), pa.float32()).values[0].as_py())


@pytest.mark.parametrize(
    ("text", "number"), [("Infinity", math.inf), ("-Infinity", -math.inf), ("1.0E20", 1e20), ("100", 100.0)]
)
def test_doubles_of_java_and_rust_are_read(text: str, number: Any) -> None:
    assert parse_values(pa.array([text]), pa.float64()).values.to_pylist() == [number]


@pytest.mark.parametrize("text", ["0.1", "0.10000000149011612"])
def test_a_float_is_read_the_same_from_its_own_text_and_from_that_of_its_double(text: str) -> None:
    assert parse_values(pa.array([text]), pa.float32()).values.to_pylist() == [float(np.float32(0.1))]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-01-01", date(2024, 1, 1)),
        ("19723", date(2024, 1, 1)),
        ("1704067200", date(2024, 1, 1)),
        ("1704067200000", date(2024, 1, 1)),
        ("1704067200000000", date(2024, 1, 1)),
        ("0", date(1970, 1, 1)),
        ("-1", date(1969, 12, 31)),
        ("0001-01-01", date(1, 1, 1)),
    ],
)
def test_dates_are_read_as_iso_or_as_a_count_of_any_unit(text: str, day: Any) -> None:
    found = parse_values(pa.array([text, "x"]), pa.date32())
    assert found.values.to_pylist() == [day, None]
    assert found.unreadable.tolist() == [False, True]


@pytest.mark.parametrize(
    "text",
    ["20260322", "86400000000", "2024-02-30", "2024-1-1", "", "1704067200000001", "99999999999999999999"],
)
def test_a_date_that_could_mean_two_things_or_nothing_is_not_read(text: str) -> None:
    found = parse_values(pa.array([text]), pa.date32())
    assert found.values.to_pylist() == [None]
    assert found.unreadable.tolist() == [True]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1704103200500000", 1_704_103_200_500_000),
        ("5", 5),
        ("2024-01-01 10:00:00.5", 1_704_103_200_500_000),
        ("2024-01-01T10:00:00.500000Z", 1_704_103_200_500_000),
        ("2024-01-01 12:00:00.5+02:00", 1_704_103_200_500_000),
        ("2024-01-01 12:00:00.5+0200", 1_704_103_200_500_000),
        ("2024-01-01 10:00", 1_704_103_200_000_000),
        ("2024-01-01", 1_704_067_200_000_000),
        ("+10000-01-01T00:00:00.000001Z", 253_402_300_800_000_001),
        ("-0001-01-01", -62_198_755_200_000_000),
    ],
)
def test_timestamps_are_read_as_microseconds_or_iso(text: str, micros: int) -> None:
    found = parse_values(pa.array([text, "noon"]), pa.timestamp("us", "UTC"))
    assert found.values.cast(pa.int64()).to_pylist() == [micros, None]
    assert found.unreadable.tolist() == [False, True]


def test_a_zone_is_not_read_where_the_type_has_none() -> None:
    found = parse_values(pa.array(["2024-01-01T10:00:00Z", "+10000-01-01T10:00:00Z"]), pa.timestamp("us"))
    assert found.unreadable.all()


def test_the_null_partition_is_null_only_in_partitions() -> None:
    texts = pa.array([NULL_PARTITION, None])
    assert parse_values(texts, pa.int32(), partition=True).unreadable.tolist() == [False, False]
    assert parse_values(texts, pa.string(), partition=True).values.to_pylist() == [None, None]
    assert parse_values(texts, pa.string()).values.to_pylist() == [NULL_PARTITION, None]
    with pytest.raises(SchemaError, match="means null"):
        format_values(pa.array([NULL_PARTITION]), partition=True)


@pytest.mark.parametrize(
    ("text", "arrow"),
    [("ten", pa.int64()), ("300", pa.int8()), ("1.5", pa.int32()), ("yes", pa.bool_()), ("1.234", pa.decimal128(5, 2)),
     ("25:00:00", pa.time64("us")), ("99999999999999999999", pa.int64()), ("x", pa.duration("us")), ("x", pa.binary())],
)  # fmt: skip
def test_an_unreadable_text_is_reported_and_spoils_no_other(text: str, arrow: Any) -> None:
    good = {pa.bool_(): "true", pa.time64("us"): "10:00:00", pa.binary(): None}.get(arrow, "1")
    found = parse_values(pa.array([good, text, None, good] * 3), arrow)
    assert found.unreadable.tolist() == [False, True, False, False] * 3
    assert found.values.null_count == (12 if good is None else 6)


def test_texts_of_partition_times_sort_as_times() -> None:
    times = pa.array([0, 1, 500_000, 1_000_000, 1_700_000_000_000_000]).cast(pa.timestamp("us", "UTC"))
    texts = format_values(times, partition=True).to_pylist()
    assert texts == sorted(texts)
    assert texts[1] == "1970-01-01T00:00:00.000001Z"


@given(st.dates())
def test_the_calendar_agrees_with_python(day: Any) -> None:
    days = day.toordinal() - 719_163
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)
    assert format_date(days) == day.isoformat()
    assert parse_date(day.isoformat()) == days


@given(st.datetimes())
def test_times_agree_with_python(time: Any) -> None:
    micros = (time - datetime(1970, 1, 1)) // datetime.resolution  # noqa: DTZ001
    assert parse_timestamp(time.isoformat(), zoned=False) == micros
    assert parse_timestamp(time.isoformat(" ") + "-00:30", zoned=True) == micros + 1_800_000_000


@pytest.mark.parametrize("text", ["2024-13-01", "2024-02-30", "1900-02-29", "24-01-01", "2024-01-01x"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_date(text) is None


@pytest.mark.parametrize(
    "text", ["2024-01-01 24:00:00", "2024-01-01 10:60", "2024-01-01 1:00", "2024-02-30 10:00"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_timestamp(text, zoned=True) is None
