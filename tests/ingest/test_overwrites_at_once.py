"""Of two overwrites of the same rows at the same time one stands; of different rows, both do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import CommitConflictError

DYNAMIC = {"partitionOverwriteMode": "dynamic"}


def rows(day: str, *ids: int) -> pa.Table:
    return pa.table({"day": [day] * len(ids), "id": list(ids)})


def meanwhile(table: pa.Table, act: Callable[[], object]) -> pa.RecordBatchReader:
    """The rows, as a stream in the middle of which something else happens."""

    def batches() -> Iterator[Any]:
        act()
        yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def ids_by_day(path: Path) -> dict[str, list[int]]:
    read: dict[str, list[int]] = {}
    for row in it.open(path).scan().to_pylist():
        read.setdefault(row["day"], []).append(row["id"])
    return {day: sorted(ids) for day, ids in read.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    it.write(tmp_path / "t", rows("mon", 1, 2), partition_by="day")
    return tmp_path / "t"


def where(day: str) -> dict[str, str]:
    return {"replaceWhere": f"day = '{day}'"}


WAYS = [DYNAMIC, where("tue"), {}]


@pytest.mark.parametrize("ours", WAYS, ids=["partitions", "where", "all"])
@pytest.mark.parametrize("theirs", WAYS, ids=["partitions", "where", "all"])
def test_the_second_overwrite_of_an_empty_partition_is_refused(path: Path, ours: Any, theirs: Any) -> None:
    def other() -> None:
        it.write(path, rows("tue", 20), mode="overwrite", options=theirs)

    before = (
        "rows that this operation replaces too"
        if ours
        else "it overwrote rows of this table|it overwrote the table too"
    )
    if theirs == {} and ours != {}:
        before = "it removed .*|rows that this operation replaces too"
    with pytest.raises(CommitConflictError, match=before):
        it.write(path, meanwhile(rows("tue", 10), other), mode="overwrite", options=ours)
    assert ids_by_day(path)["tue"] == [20]


@pytest.mark.parametrize("theirs", [DYNAMIC, {}], ids=["partitions", "all"])
def test_a_table_without_partition_columns_is_one_partition(tmp_path: Path, theirs: Any) -> None:
    path = tmp_path / "t"
    it.write(path, rows("mon", 1).slice(0, 0))

    def other() -> None:
        it.write(path, rows("tue", 20), mode="overwrite", options=theirs)

    with pytest.raises(CommitConflictError, match="rows that this operation replaces too"):
        it.write(path, meanwhile(rows("tue", 10), other), mode="overwrite", options=DYNAMIC)
    assert ids_by_day(path) == {"tue": [20]}


@pytest.mark.parametrize("ours", [DYNAMIC, where("tue")], ids=["partitions", "where"])
@pytest.mark.parametrize("theirs", [DYNAMIC, where("wed")], ids=["partitions", "where"])
def test_overwrites_of_different_partitions_both_stand(path: Path, ours: Any, theirs: Any) -> None:
    def other() -> None:
        it.write(path, rows("wed", 30), mode="overwrite", options=theirs)

    it.write(path, meanwhile(rows("tue", 10), other), mode="overwrite", options=ours)
    assert ids_by_day(path) == {"mon": [1, 2], "tue": [10], "wed": [30]}


@pytest.mark.parametrize("ours", WAYS, ids=["partitions", "where", "all"])
def test_rows_appended_meanwhile_survive_an_overwrite(path: Path, ours: Any) -> None:
    def other() -> None:
        it.write(path, rows("tue", 20), mode="append")

    it.write(path, meanwhile(rows("tue", 10), other), mode="overwrite", options=ours)
    assert ids_by_day(path)["tue"] == [10, 20]


def test_an_overwrite_whose_rivals_were_cleaned_up_is_refused(path: Path) -> None:
    def other() -> None:
        it.write(path, rows("wed", 30), mode="overwrite", options=DYNAMIC)
        it.open(path).truncate()

    with pytest.raises(it.IndexTablesError, match="cleaned up"):
        it.write(path, meanwhile(rows("tue", 10), other), mode="overwrite", options=DYNAMIC)
    assert ids_by_day(path) == {"mon": [1, 2], "wed": [30]}
