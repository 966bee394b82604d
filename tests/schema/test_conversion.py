"""Batches become what is stored with every value kept, or are refused by column."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from indextables.errors import SchemaError
from indextables.schema.conversion import cast_batch, cast_stream, storage_schema


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def stored(array: Any) -> Any:
    held = batch(c=array)
    return cast_batch(held, storage_schema(held.schema)).column(0)


@pytest.mark.parametrize(
    ("array", "kept"),
    [
        (pa.array([1, 255, None], pa.uint8()), [1, 255, None]),
        (pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
        (pa.array([1.5, None], pa.float16()), [1.5, None]),
        (pa.array(["é", None], pa.large_string()), ["é", None]),
        (pa.array(["é" * 20, None], pa.string_view()), ["é" * 20, None]),
        (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array(["a"], pa.string_view())),
            ["a", None, "a"],
        ),
        (pa.RunEndEncodedArray.from_arrays([2, 3], [7, None]), [7, 7, None]),
        (pa.array([date(2024, 1, 1)], pa.date64()), [date(2024, 1, 1)]),
        (pa.array([1], pa.timestamp("s")), [datetime(1970, 1, 1, 0, 0, 1)]),  # noqa: DTZ001
        (pa.array([5_000], pa.timestamp("ns")), [datetime(1970, 1, 1, microsecond=5)]),  # noqa: DTZ001
        (pa.array([1], pa.duration("ms")), [timedelta(milliseconds=1)]),
        (pa.array([Decimal("1E+2")], pa.decimal128(3, -2)), [Decimal(100)]),
        (pa.array([[1, None], None, []], pa.large_list(pa.uint8())), [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
        (pa.array([[1], None, [2, 3]], pa.list_view(pa.int8())), [[1], None, [2, 3]]),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.uint8())), [[("k", 1)], None, []]),
        (
            pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.uint8())])),
            [{"a": 1}, None, {"a": None}],
        ),
        (pa.array([None, None]), [None, None]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values_are_kept_in_slices_too(array: Any, kept: Any) -> None:
    assert stored(array).to_pylist() == kept
    padded = pa.concat_arrays([array, array, array]) if not pa.types.is_run_end_encoded(array.type) else array
    assert stored(padded.slice(1)).to_pylist() == padded.slice(1).to_pylist()


def test_nested_slices_keep_their_own_values() -> None:
    array = pa.array(
        [[("a", 1)], [("b", 2), ("c", 3)], None, [("d", None)]], pa.map_(pa.large_string(), pa.uint8())
    )
    assert stored(array.slice(1, 3)).to_pylist() == array.slice(1, 3).to_pylist()
    lists = pa.array([[{"x": 1}], [{"x": 2}, None], None], pa.large_list(pa.struct([("x", pa.uint16())])))
    assert stored(lists.slice(1)).to_pylist() == [[{"x": 2}, None], None]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([2**62], pa.timestamp("s")),
        pa.array([1], pa.time64("ns")),
        pa.array([1], pa.duration("ns")),
        pa.array([1], pa.int64()).cast(pa.timestamp("ms")).cast(pa.int64()).view(pa.date64()),
        pa.array([[1]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns"))),
    ],
    ids=lambda value: str(value.type),
)
def test_what_would_be_rounded_or_overflow_is_refused_by_column(array: Any) -> None:
    with pytest.raises(SchemaError, match="column c"):
        stored(array)


def test_columns_are_found_by_name_in_any_case_and_absent_ones_are_null() -> None:
    schema = pa.schema([("a", pa.int64()), ("B", pa.string()), ("c", pa.float64())])
    made = cast_batch(batch(b=["x"], A=pa.array([1], pa.int8())), schema)
    assert made.schema == schema
    assert made.to_pylist() == [{"a": 1, "B": "x", "c": None}]


def test_a_column_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(SchemaError, match="no column z"):
        cast_batch(batch(z=[1]), pa.schema([("a", pa.int64())]))


@pytest.mark.parametrize(
    ("array", "arrow"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([b"x"]), pa.string()),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1.5]), pa.float32()),
        (pa.array([1], pa.int64()), pa.float64()),
        (pa.array([1], pa.int64()), pa.decimal128(18, 0)),
    ],
    ids=str,
)
def test_a_type_that_does_not_fit_is_refused(array: Any, arrow: Any) -> None:
    with pytest.raises(SchemaError, match="column c"):
        cast_batch(batch(c=array), pa.schema([("c", arrow)]))


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([pa.field("c", pa.struct([pa.field("x", pa.int64())]), nullable=False)]),
        pa.schema([pa.field("c", pa.struct([pa.field("x", pa.int64(), nullable=False)]))]),
    ],
    ids=["outer", "inner"],
)
def test_nulls_are_refused_where_there_must_be_none(schema: Any) -> None:
    rows = pa.array([{"x": 1}, {"x": None}, None], pa.struct([("x", pa.int64())]))
    with pytest.raises(SchemaError, match="must not be null"):
        cast_batch(batch(c=rows), schema)


def test_a_null_struct_is_no_null_of_its_fields() -> None:
    schema = pa.schema([pa.field("c", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])
    rows = pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))
    assert cast_batch(batch(c=rows), schema).to_pylist() == [{"c": {"x": 1}}, {"c": None}]
    listed = pa.schema([("c", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    with pytest.raises(SchemaError, match=r"c\.element"):
        cast_batch(batch(c=pa.array([[None]], pa.list_(pa.int64()))), listed)


def test_a_stream_is_cut_into_batches_of_bounded_size() -> None:
    wide = pa.array(["x" * 1000] * 1000, pa.large_string())
    schema = pa.schema([("c", pa.string())])
    made = list(cast_stream(iter([batch(c=wide), batch(c=wide.slice(0, 0))]), schema, rows=300, size=100_000))
    assert sum(b.num_rows for b in made) == 1000
    assert max(b.num_rows for b in made) <= 300
    assert max(b.nbytes for b in made) <= 4 * 100_000
    uneven = pa.array(["x"] * 999 + ["y" * 1_000_000], pa.large_string())
    made = list(cast_stream(iter([batch(c=uneven)]), schema, size=10_000))
    assert pa.concat_arrays([b.column(0) for b in made]).to_pylist() == uneven.to_pylist()
