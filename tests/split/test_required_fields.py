"""Fields that are never null, below structs, lists and maps that are: written, merged and read again."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.split.parquet.writer import strip_validity


def never(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


INNER = pa.struct(
    [never("x", pa.int32()), never("t", pa.string()), never("deep", pa.struct([never("d", pa.date32())]))]
)
CASES = {
    "struct": (INNER, [{"x": 1, "t": "a", "deep": {"d": 5}}, None, {"x": 2, "t": "", "deep": {"d": 6}}]),
    "list": (pa.list_(INNER), [[{"x": 1, "t": "a", "deep": {"d": 5}}, None], None, []]),
    "strict list": (pa.list_(never("element", pa.int64())), [[1, 2], None, []]),
    "list in struct": (
        pa.struct([never("l", pa.list_(never("element", pa.string())))]),
        [{"l": ["a"]}, None, {"l": []}],
    ),
    "map": (
        pa.map_(pa.string(), INNER),
        [[("k", None), ("l", {"x": 3, "t": "b", "deep": {"d": 1}})], None, []],
    ),
    "map in struct": (
        pa.struct([never("m", pa.map_(pa.string(), never("value", pa.bool_())))]),
        [{"m": [("a", True)]}, None, {"m": []}],
    ),
    "empty struct": (
        pa.struct([never("e", pa.struct([])), ("n", pa.int8())]),
        [{"e": {}, "n": 1}, None, {"e": {}}],
    ),
}


def values(name: str) -> pa.Array:
    kind, rows = CASES[name]
    return pa.array(rows, kind)


# Parquet takes no empty struct; a split carries it otherwise.
@pytest.mark.parametrize("name", [name for name in CASES if name != "empty struct"])
def test_what_is_unmarked_means_the_same_and_parquet_takes_it(name: str, tmp_path: Path) -> None:
    column = pa.chunked_array([values(name), values(name).slice(1), values(name).slice(1, 1)])
    found = strip_validity(column)
    found.validate(full=True)
    assert found.to_pylist() == column.to_pylist()
    table = pa.table([found], pa.schema([pa.field("c", column.type)]))
    pq.write_table(table, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet")["c"].to_pylist() == column.to_pylist()


def test_columns_without_such_fields_are_left_as_they_are() -> None:
    column = pa.chunked_array([pa.array([{"a": 1}, None])])
    assert strip_validity(column) is column


@pytest.mark.parametrize("name", CASES)
def test_a_table_keeps_them_through_a_merge(name: str, tmp_path: Path) -> None:
    rows = pa.table(
        [pa.array(range(3)), values(name)], pa.schema([("id", pa.int64()), ("c", CASES[name][0])])
    )
    for _ in range(2):
        it.write(tmp_path, rows)
    it.open(tmp_path).merge()
    back = it.open(tmp_path).scan()
    assert back.num_rows == 6
    said = back.sort_by("id")["c"].to_pylist()
    assert said == [value for value in rows["c"].to_pylist() for _ in range(2)]
    assert back.schema.field("c").type == it.open(tmp_path).schema.field("c").type


def test_a_real_null_is_still_refused(tmp_path: Path) -> None:
    kind = pa.struct([never("x", pa.int32())])
    wrong = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=list(kind))
    with pytest.raises(it.IndexTablesError, match=r"column c\.x must not be null"):
        it.write(tmp_path, pa.table({"c": wrong}))
