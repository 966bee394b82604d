"""Which delete files apply to a data file, and which rows equality deletes remove."""

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DateType, LongType, NestedField, StructType, TimestampType

from indextables.errors import UnsupportedSourceError
from indextables.source.iceberg.deletes import DeleteFile, DeleteIndex, DeleteReader, _matching
from indextables.source.iceberg.metadata import columns_by_id
from indextables.source.iceberg.table import _bound, _is_partitioned

DAY = (1, (19_780,))
OTHER = (1, (19_781,))


def file(name: str) -> DeleteFile:
    return DeleteFile(name, "PARQUET", 1)


def names(index: DeleteIndex, path: str, sequence: int, partition: tuple[int, tuple[int]] = DAY) -> list[str]:
    return sorted(each.path for each in index.of(path, sequence, partition))


def test_sequence_numbers_partitions_and_paths_decide() -> None:
    index = DeleteIndex(
        by_path={"a": [(5, file("path 5"))]},
        by_partition={DAY: [(4, file("day 4"))]},
        equality={None: [(3, file("all 3"))], DAY: [(6, file("equal 6"))]},
    )
    # Positions are deleted in files of the same commit, equal rows only in files of earlier ones.
    assert names(index, "a", 2) == ["all 3", "day 4", "equal 6", "path 5"]
    assert names(index, "a", 3) == ["day 4", "equal 6", "path 5"]
    assert names(index, "a", 5) == ["equal 6", "path 5"]
    assert names(index, "a", 6) == []
    assert names(index, "b", 2, OTHER) == ["all 3"]


def test_a_deletion_vector_replaces_position_deletes() -> None:
    index = DeleteIndex(
        vectors={"a": (7, file("vector"))},
        by_path={"a": [(5, file("path 5"))], "b": [(5, file("path b"))]},
        equality={DAY: [(6, file("equal 6"))]},
    )
    assert names(index, "a", 2) == ["equal 6", "vector"]
    assert names(index, "b", 2) == ["equal 6", "path b"]


def test_rows_are_equal_in_all_columns_and_null_equals_null() -> None:
    rows = [pa.array([1, 1, None, None, 2]), pa.array(["x", "y", "x", None, None])]
    keys = [pa.array([1, None, 2, None]), pa.array(["y", None, "x", "q"])]
    assert _matching(rows, keys).tolist() == [1, 3]
    assert _matching(rows[:1], keys[:1]).tolist() == [0, 1, 2, 3, 4]
    assert _matching(rows, [each.slice(0, 0) for each in keys]).tolist() == []


def test_an_equality_delete_on_a_field_of_a_struct_is_refused() -> None:
    inner = StructType(NestedField(3, "number", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "client", inner))
    reader = DeleteReader(columns_by_id(schema))
    reader.check(DeleteFile("a", "PARQUET", 1, (1,)), "table")
    with pytest.raises(UnsupportedSourceError, match="an equality delete on a field of a struct"):
        reader.check(DeleteFile("a", "PARQUET", 1, (1, 3)), "table")
    with pytest.raises(UnsupportedSourceError, match="on a column that was dropped"):
        reader.check(DeleteFile("a", "PARQUET", 1, (4,)), "table")


def test_a_spec_whose_fields_were_all_removed_has_no_partitions() -> None:
    removed = PartitionField(1, 1000, VoidTransform(), "day")
    assert not _is_partitioned(PartitionSpec())
    assert not _is_partitioned(PartitionSpec(removed))
    assert _is_partitioned(PartitionSpec(removed, PartitionField(1, 1001, IdentityTransform(), "id")))


def test_bounds_of_a_column_that_got_another_type_are_left_out() -> None:
    day = (19_780).to_bytes(4, "little")
    assert _bound(day, DateType(), pa.date32()) is not None
    assert _bound(day, TimestampType(), pa.timestamp("us")) is None
