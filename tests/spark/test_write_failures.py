"""All or nothing: failing tasks and failing commits leave no visible row, and what they know they delete."""

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import indextables
from indextables.spark.planner.dispatch import answer

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


def splits_on_disk(path: str) -> set[Any]:
    return {p.name for p in Path(path).rglob("*.split")}


def live(path: str) -> set[Any]:
    return {name.rsplit("/", 1)[-1] for name in indextables.open(path).files()["path"].to_pylist()}


def table_of(path: str, *rows: int) -> None:
    indextables.write(path, pa.table({"id": list(rows)}))


def test_a_failing_task_leaves_no_version_and_what_finished_is_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    table_of(path, 1)
    before = indextables.open(path).version

    def fail_after_the_others(batches: Any) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if 99 in batch["id"].to_pylist():
                time.sleep(2)
                raise RuntimeError("no luck")

    rows = spark.range(0, 100, 1, 4).mapInArrow(fail_after_the_others, "id long")
    with pytest.raises(Exception, match="no luck"):
        rows.write.format("indextables").mode("append").save(path)
    assert indextables.open(path).version == before
    assert splits_on_disk(path) == live(path)


def test_a_commit_that_lost_to_another_overwrite_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table_of(path, 1)

    def overwrite_meanwhile(batches: Any) -> Iterator[Any]:
        indextables.write(path, pa.table({"id": [2]}), mode="overwrite")
        yield from batches

    rows = spark.range(10, 12, 1, 1).mapInArrow(overwrite_meanwhile, "id long")
    with pytest.raises(Exception, match="conflicts with version"):
        rows.write.format("indextables").mode("overwrite").save(path)
    assert indextables.open(path).scan()["id"].to_pylist() == [2]
    gone = splits_on_disk(path) - live(path)
    assert len(gone) == 1, "the split of the first row, which time travel still needs"


def test_an_append_during_an_append_stands_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table_of(path, 1)

    def append_meanwhile(batches: Any) -> Iterator[Any]:
        indextables.write(path, pa.table({"id": [2]}))
        yield from batches

    rows = spark.range(10, 12, 1, 1).mapInArrow(append_meanwhile, "id long")
    rows.write.format("indextables").mode("append").save(path)
    assert sorted(indextables.open(path).scan()["id"].to_pylist()) == [1, 2, 10, 11]


def test_rows_appended_during_an_overwrite_survive_it(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table_of(path, 1)

    def append_meanwhile(batches: Any) -> Iterator[Any]:
        indextables.write(path, pa.table({"id": [2]}))
        yield from batches

    rows = spark.range(10, 12, 1, 1).mapInArrow(append_meanwhile, "id long")
    rows.write.format("indextables").mode("overwrite").save(path)
    assert sorted(indextables.open(path).scan()["id"].to_pylist()) == [2, 10, 11]


def test_a_table_that_was_made_meanwhile_is_not_overwritten_in_mode_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")

    def create_meanwhile(batches: Any) -> Iterator[Any]:
        indextables.write(path, pa.table({"id": [2]}))
        yield from batches

    rows = spark.range(10, 12, 1, 1).mapInArrow(create_meanwhile, "id long")
    with pytest.raises(Exception, match="a table exists at"):
        rows.write.format("indextables").save(path)
    assert indextables.open(path).scan()["id"].to_pylist() == [2]
    assert splits_on_disk(path) == live(path)


def test_history_that_was_truncated_during_an_append_does_not_hinder_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    table_of(path, 1)

    def forget_meanwhile(batches: Any) -> Iterator[Any]:
        indextables.write(path, pa.table({"id": [2]}))
        indextables.open(path)._log.truncate()
        yield from batches

    rows = spark.range(10, 12, 1, 1).mapInArrow(forget_meanwhile, "id long")
    rows.write.format("indextables").mode("append").save(path)
    assert sorted(indextables.open(path).scan()["id"].to_pylist()) == [1, 2, 10, 11]


def test_of_two_attempts_of_a_task_one_is_committed_and_a_purge_finds_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark lets one attempt of a task commit, a speculative one or not; it never tells the other's message."""
    path = str(tmp_path / "t")
    request = {"options": {"path": path}, "schema": spark.range(1).schema.json(), "mode": "append"}
    _, (function, plan) = answer("write", json.dumps(request), ())
    write, _ = pickle.loads(function)
    batches = [pa.record_batch({"id": pa.array([1, 2], pa.int64())})]
    first, second = (next(write(iter(batches))).column("message")[0].as_py() for _ in range(2))
    assert first != second
    reply, _ = answer("commit", json.dumps({**request, "parallelism": 2, "writes": 1}), (plan, second))
    assert json.loads(reply)["metrics"]["rowsWritten"] == 2
    assert indextables.open(path).scan()["id"].to_pylist() == [1, 2]
    assert len(splits_on_disk(path)) == 2
    safe = {"purge.retentionCheckEnabled": "false"}
    indextables.sql(f"PURGE INDEXTABLE '{path}' OLDER THAN 0 HOURS", options=safe)
    assert splits_on_disk(path) == live(path)
