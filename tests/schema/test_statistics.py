"""Bounds hold every value, cut or not, and only chosen columns have them."""

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import OptionError
from indextables.options import Options
from indextables.schema.values import FileStatistics, Statistics, merge_statistics, parse_values, truncate_up

TEXTS = st.text(
    st.one_of(st.sampled_from("ab\ud7ff\ue000\U0010ffff"), st.characters(exclude_categories=["Cs"]))
)


def of(schema: Any, *batches: dict[Any, Any], partition: Any = (), **options: Any) -> Statistics:
    made = Statistics(schema, Options.parse({k.replace("_", "."): v for k, v in options.items()}), partition)
    for columns in batches:
        made.accumulate(pa.RecordBatch.from_pydict(columns, schema=schema))
    return made


@given(TEXTS, st.integers(1, 5), TEXTS)
def test_a_cut_maximum_stays_an_upper_bound(text: Any, length: Any, tail: Any) -> None:
    upper = truncate_up(text, length)
    if upper is None:
        assert text[:length] == "\U0010ffff" * length
        return
    assert len(upper) <= length or upper == text
    assert upper.encode() >= text.encode()
    if len(text) > length:
        assert upper.encode() > (text[:length] + tail).encode()


@settings(deadline=None)
@given(st.lists(st.lists(st.one_of(st.none(), TEXTS), max_size=4), min_size=1, max_size=3), st.integers(1, 4))
def test_bounds_of_strings_hold_every_value(batches: Any, length: Any) -> None:
    schema = pa.schema([("t", pa.string())])
    low, high, stats = of(schema, *({"t": b} for b in batches), stats_truncation_maxLength=length).texts()
    values = [v for b in batches for v in b if v is not None]
    assert json.loads(stats) == {
        "numRecords": sum(map(len, batches)),
        "nullCount": {"t": sum(b.count(None) for b in batches)},
    }
    assert ("t" in low) == bool(values)
    for value in values:
        assert low["t"].encode() <= value.encode()
        assert "t" not in high or high["t"].encode() >= value.encode()
    assert not values or "t" in high or any(v.startswith("\U0010ffff" * length) for v in values)


def test_each_type_has_its_texts() -> None:
    schema = pa.schema(
        [("i", pa.int8()), ("d", pa.decimal128(38, 2)), ("b", pa.bool_()), ("day", pa.date32()),
         ("ts", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("x", pa.binary()), ("s", pa.struct([("a", pa.int8())]))]
    )  # fmt: skip
    made = of(
        schema,
        {
            "i": [9, 10, None],
            "d": [Decimal("1.10"), Decimal("-2.00"), None],
            "b": [True, False, True],
            "day": [0, 19_000, -1],
            "ts": [0, 2**63 - 1, None],
            "local": [-(2**63), 5, None],
            "x": [b"a", None, None],
            "s": [{"a": 1}, None, {"a": None}],
        },
    ).texts()
    assert made.min_values == {
        "i": "9", "d": "-2.00", "b": "false", "day": "1969-12-31", "ts": "0", "local": "-9223372036854775808"
    }  # fmt: skip
    assert made.max_values == {
        "i": "10", "d": "1.10", "b": "true", "day": "2022-01-08", "ts": "9223372036854775807", "local": "5"
    }  # fmt: skip
    assert json.loads(made.stats)["nullCount"] == {
        "i": 1, "d": 1, "b": 0, "day": 0, "ts": 1, "local": 1, "x": 2, "s": 1
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, math.nan], "1.0", "NaN"),
        ([math.nan], "NaN", "NaN"),
        ([0.0], "-0.0", "0.0"),
        ([-0.0], "-0.0", "0.0"),
        ([-math.inf, math.inf, None], "-inf", "inf"),
    ],
)
@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
def test_nan_is_greatest_and_both_zeros_are_within(values: Any, low: str, high: str, arrow: Any) -> None:
    schema = pa.schema([("f", arrow)])
    whole = of(schema, {"f": values}).texts()
    assert (whole.min_values, whole.max_values) == ({"f": low}, {"f": high})
    one_by_one = of(schema, *({"f": [value]} for value in values)).texts()
    assert one_by_one == whole


def test_columns_that_are_null_throughout_and_no_rows_have_no_bounds() -> None:
    schema = pa.schema([("a", pa.int64()), ("f", pa.float64())])
    assert of(schema, {"a": [None], "f": [None]}).texts() == (
        {},
        {},
        '{"numRecords":1,"nullCount":{"a":1,"f":1}}',
    )
    assert of(schema).texts() == ({}, {}, '{"numRecords":0,"nullCount":{"a":0,"f":0}}')


MANY = pa.schema(
    [
        ("x", pa.binary()),
        ("a", pa.int8()),
        ("p", pa.int8()),
        ("b", pa.string()),
        ("c", pa.int8()),
        ("y", pa.binary()),
    ]
)
ROW = {"x": [b""], "a": [1], "p": [2], "b": ["s"], "c": [3], "y": [b""]}


@pytest.mark.parametrize(
    ("options", "bounded", "counted"),
    [
        ({}, "abc", "xabcy"),
        ({"dataSkippingNumIndexedCols": 2}, "ab", "xab"),
        ({"dataSkippingNumIndexedCols": 0}, "", ""),
        ({"dataSkippingNumIndexedCols": -1}, "abc", "xabcy"),
        ({"dataSkippingStatsColumns": "C,y"}, "c", "cy"),
        ({"dataSkippingStatsColumns": "p"}, "p", "p"),
    ],
)
def test_the_options_choose_the_columns(options: Any, bounded: str, counted: str) -> None:
    made = of(MANY, ROW, partition=["p"], **options).texts()
    assert "".join(made.min_values) == bounded == "".join(made.max_values)
    assert "".join(json.loads(made.stats)["nullCount"]) == counted


def test_32_columns_have_bounds_by_default() -> None:
    schema = pa.schema([(f"c{n}", pa.int64()) for n in range(40)])
    assert len(of(schema, {f"c{n}": [n] for n in range(40)}).texts().min_values) == 32


def test_an_unknown_column_in_the_option_is_refused() -> None:
    with pytest.raises(OptionError, match="names the column nope"):
        of(MANY, dataSkippingStatsColumns="a,nope")


def test_partition_columns_are_never_cut_and_cutting_can_be_turned_off() -> None:
    schema = pa.schema([("p", pa.string()), ("t", pa.string())])
    long = {"p": ["p" * 50], "t": ["t" * 50]}
    made = of(schema, long, partition=["p"], dataSkippingStatsColumns="p,t").texts()
    assert made.max_values == {"p": "p" * 50, "t": "t" * 31 + "u"}
    assert made.min_values == {"p": "p" * 50, "t": "t" * 32}
    assert of(schema, long, stats_truncation_enabled="false").texts().max_values["t"] == "t" * 50


def test_strings_with_a_collation_have_no_bounds() -> None:
    collated = pa.field("t", pa.string(), metadata={b"indextables.type": b"string collate UTF8_LCASE"})
    made = of(pa.schema([collated]), {"t": ["a", None]}).texts()
    assert made == ({}, {}, '{"numRecords":2,"nullCount":{"t":1}}')


SMALL = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("t", pa.string())])
rows = st.fixed_dictionaries(
    {
        "i": st.one_of(st.none(), st.integers(-20, 20)),
        "f": st.one_of(st.none(), st.sampled_from([-1.5, -0.0, 0.0, 10.0, 9.0, math.nan, math.inf])),
        "t": st.one_of(st.none(), st.text("ab", max_size=5)),
    }
)


def columns(made: Any) -> dict[Any, Any]:
    return {name: [row[name] for row in made] for name in SMALL.names}


@settings(deadline=None)
@given(st.lists(st.lists(rows, max_size=4), min_size=1, max_size=3))
def test_merging_statistics_or_their_texts_is_as_good_as_taking_all_rows(parts: Any) -> None:
    option = {"stats_truncation_maxLength": 2}
    whole = of(SMALL, *map(columns, parts), **option).texts()
    single = [of(SMALL, columns(part), **option) for part in parts]
    texts = [FileStatistics(*one.texts(), trusted=True) for one in single]
    merged = of(SMALL, **option)
    for one in single:
        merged.merge(one)
    assert merged.texts() == whole
    assert merge_statistics(texts, SMALL) == whole


def test_what_one_file_does_not_say_the_merged_one_does_not_either() -> None:
    said = FileStatistics(*of(SMALL, {"i": [1], "f": [1.0], "t": ["a"]}).texts(), trusted=True)
    silent = FileStatistics({"i": "5"}, {"i": "7"}, '{"numRecords":1,"nullCount":{"i":0}}', trusted=True)
    made = merge_statistics([said, silent], SMALL)
    assert made == ({"i": "1"}, {"i": "7"}, '{"numRecords":2,"nullCount":{"i":0}}')
    foreign = said._replace(trusted=False)
    assert merge_statistics([said, foreign], SMALL) == ({}, {}, None)
    assert merge_statistics([said, said._replace(min_values={"i": "x"}, stats="{}")], SMALL).min_values == {}
    assert merge_statistics([], SMALL) == ({}, {}, None)


def test_a_file_of_nulls_takes_no_bounds_away() -> None:
    said = FileStatistics(*of(SMALL, {"i": [1], "f": [1.0], "t": ["a"]}).texts(), trusted=True)
    nulls = FileStatistics(*of(SMALL, {"i": [None], "f": [None], "t": [None]}).texts(), trusted=True)
    assert merge_statistics([nulls, said], SMALL)[:2] == said[:2]


def test_bounds_read_back_as_values_of_the_column() -> None:
    low, high, _ = of(SMALL, {"i": [10, 9], "f": [math.nan, 2.5], "t": ["b", "a"]}).texts()
    assert parse_values(pa.array([low["i"], high["i"]]), pa.int64()).values.to_pylist() == [9, 10]


def test_a_length_of_zero_leaves_out_the_bounds_of_texts() -> None:
    schema = pa.schema([("t", pa.string()), ("n", pa.int64()), ("p", pa.string())])
    made = of(schema, {"t": ["a"], "n": [1], "p": ["x"]}, partition=["p"], stats_truncation_maxLength=0)
    low, high, stats = made.texts()
    assert (set(low), set(high)) == ({"n"}, {"n"})
    assert json.loads(stats)["nullCount"]["t"] == 0
