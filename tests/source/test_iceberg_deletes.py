"""Which delete files apply to a data file, and which rows equality deletes remove."""

import pyarrow as pa

from indextables.source.iceberg.deletes import DeleteFile, DeleteIndex, _matching

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
