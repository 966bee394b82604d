"""The files of a table as Arrow: from and to actions, and any generation's columns to ours."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import LogError, SchemaError
from indextables.log.format.actions import Add
from indextables.log.format.files import (
    FILE_ENTRY,
    FILES,
    conform,
    empty,
    from_adds,
    partition_values,
    to_adds,
)
from indextables.schema.values import NULL_PARTITION
from tests.log.entries import WHEN, adds, an_add, files_of

OLD_COLUMNS = [
    name
    for name in FILES.names
    if not name.startswith(("companion", "timeRange")) and name not in ("deleteOpstamp", "docMappingJson")
]


def test_arrow_and_avro_have_every_field_of_an_add() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(Add)} | {
        "addedAtVersion",
        "addedAtTimestamp",
    }
    assert set(FILES.names) == names
    assert [field["name"] for field in FILE_ENTRY["fields"]] == FILES.names


@given(st.lists(adds, max_size=5))
def test_any_adds_survive_a_round_trip(actions: Any) -> None:
    assert to_adds(from_adds(actions, version=3, timestamp=WHEN)) == actions


@given(st.lists(adds, min_size=3, max_size=6), st.integers(0, 2), st.integers(0, 3))
def test_slices_and_chunks_keep_their_rows(actions: Any, start: Any, length: Any) -> None:
    whole = from_adds(actions, version=3, timestamp=WHEN)
    chunked = pa.concat_tables([whole.slice(0, 2), whole.slice(2)])
    assert to_adds(chunked) == actions
    assert to_adds(whole.slice(start, length)) == actions[start : start + length]


def test_entries_know_the_version_that_added_them() -> None:
    files = from_adds([an_add(1), an_add(2)], version=7, timestamp=8)
    assert files.column("addedAtVersion").to_pylist() == [7, 7]
    assert files.column("addedAtTimestamp").to_pylist() == [8, 8]
    assert files.schema == FILES


def test_no_adds_make_no_files() -> None:
    assert from_adds([], version=1, timestamp=2) == empty()
    assert to_adds(empty()) == []


def test_what_an_add_leaves_out_gets_its_meaning() -> None:
    (row,) = from_adds([Add(path="p")], version=1, timestamp=2).to_pylist()
    assert row["partitionValues"] == []
    assert row["dataChange"] is True
    assert row["hasFooterOffsets"] is False
    assert row["minValues"] is None


def test_a_footer_whose_place_is_given_is_known_even_without_the_flag() -> None:
    given_offsets = an_add(has_footer_offsets=None)
    zeros = an_add(has_footer_offsets=None, footer_start_offset=0)
    said_no = an_add(has_footer_offsets=False)
    files = from_adds([given_offsets, zeros, said_no], version=1, timestamp=2)
    assert files.column("hasFooterOffsets").to_pylist() == [True, False, False]


def test_a_time_range_given_as_a_number_is_kept_as_its_digits() -> None:
    files = from_adds([an_add(time_range_start=17, time_range_end="2024")], version=1, timestamp=2)
    assert files.column("timeRangeStart").to_pylist() == ["17"]
    assert files.column("timeRangeEnd").to_pylist() == ["2024"]


def test_the_name_of_the_null_partition_is_null() -> None:
    files = from_adds([an_add(partition_values={"date": NULL_PARTITION, "r": "x"})], version=1, timestamp=2)
    assert to_adds(files)[0].partition_values == {"date": None, "r": "x"}


def test_columns_of_an_older_writer_get_their_defaults() -> None:
    files = files_of(3)
    old = files.select(OLD_COLUMNS)
    assert conform(old) == files


def test_columns_of_a_newer_writer_are_dropped() -> None:
    files = files_of(3)
    newer = files.append_column("newField", pa.array([1, 2, 3]))
    assert conform(newer) == files


def test_only_the_columns_asked_for_come_in_their_order() -> None:
    files = conform(files_of(3), ["size", "path", "stats"])
    assert files.column_names == ["size", "path", "stats"]
    assert files == files_of(3).select(["size", "path", "stats"])


def test_narrower_types_are_widened() -> None:
    files = files_of(3)
    narrow = files.set_column(2, "size", files.column("size").cast(pa.int32()))
    narrow = narrow.set_column(0, "path", files.column("path").cast(pa.large_string()))
    assert conform(narrow) == files


def test_a_map_that_says_it_has_no_nulls_is_the_same_map() -> None:
    files = files_of(3)
    kind = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
    strict = files.set_column(6, "minValues", files.column("minValues").cast(kind))
    assert conform(strict) == files


def test_values_that_must_be_there_get_their_default_where_null() -> None:
    files = files_of(2)
    for name, default in [("partitionValues", []), ("size", 0), ("dataChange", True), ("addedAtVersion", 0)]:
        field = FILES.field(name)
        nulls = files.set_column(FILES.get_field_index(name), field, pa.nulls(2, field.type))
        assert conform(nulls, [name]).column(name).to_pylist() == [default, default]


def test_null_maps_that_hide_values_are_null() -> None:
    files = files_of(2)
    visible = files.column("minValues").combine_chunks()
    hiding = pa.MapArray.from_arrays(
        visible.offsets, visible.keys, visible.items, mask=pa.array([True, False])
    )
    hidden = files.set_column(6, FILES.field("minValues"), hiding)
    assert [add.min_values for add in to_adds(hidden)] == [None, {"id": "1", "text": "alpha"}]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (pa.table({"size": [1]}), "no field path"),
        (pa.table({"path": pa.array([None], pa.string())}), "no path"),
        (pa.table({"path": ["p"], "size": ["large"]}), "field size is string, expected int64"),
        (pa.table({"path": ["p"], "minValues": ["x"]}), "field minValues is string"),
    ],
)
def test_entries_that_cannot_be_understood_are_refused(files: Any, problem: str) -> None:
    with pytest.raises(LogError, match=problem):
        conform(files)


def test_partition_values_are_typed_and_a_wrong_one_is_named_with_its_split() -> None:
    days = ["2024-01-02", None, "2024-01-02", "soon"]
    entries = [
        Add(path=f"{number}.split", partition_values={} if day is None else {"day": day})
        for number, day in enumerate(days)
    ]
    files = from_adds(entries, version=1, timestamp=2)
    schema = pa.schema([("day", pa.date32()), ("place", pa.string())])
    values = partition_values(files.slice(0, 3), schema, ["day", "place"], remedy="write it again")
    assert [str(day) for day in values["day"].to_pylist()] == ["2024-01-02", "None", "2024-01-02"]
    assert values["place"].to_pylist() == [None, None, None]
    with pytest.raises(
        SchemaError, match=r"'soon' of the column 'day' in 3\.split .*date32.*; write it again"
    ):
        partition_values(files, schema, ["day"], remedy="write it again")
    assert partition_values(empty(), schema, ["day"], remedy="")["day"].type == pa.date32()
