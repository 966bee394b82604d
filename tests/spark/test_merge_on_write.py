"""Merges and purges that a write through Spark starts by itself."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import indextables
from tests.maintenance_tables import orphan

MERGE: dict[str, Any] = {"mergeOnWrite.enabled": "true"}
AT_ONCE: dict[str, Any] = {**MERGE, "mergeOnWrite.async.enabled": "false"}
PURGE: dict[str, Any] = {"purgeOnWrite.enabled": "true"}


def append(
    spark: SparkSession, path: Path, splits: int = 2, rows: int = 8, by: Sequence[Any] = (), **options: Any
) -> None:
    frame = spark.range(0, rows, 1, splits).selectExpr("id", "id % 2 AS part", "concat('row ', id) AS text")
    frame.write.format("indextables").mode("append").options(**options).partitionBy(*by).save(str(path))


def live(path: Path) -> Any:
    return indextables.open(path).files().num_rows


def operations(path: Path) -> Any:
    return indextables.open(path).history()["operation"].to_pylist()


def jobs(spark: SparkSession, path: Path) -> list[Any]:
    url = indextables.open(path).url
    return [row for row in spark.sql("DESCRIBE INDEXTABLES MERGE JOBS").collect() if row.table_path == url]


def wait_for_jobs(spark: SparkSession, path: Path, count: int) -> Any:
    """The jobs of a table, once there are so many and none runs."""
    end, found = time.monotonic() + 120, []
    while time.monotonic() < end:
        found = jobs(spark, path)
        if len(found) >= count and all(job.status not in ("RUNNING", "WAITING") for job in found):
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def test_a_write_merges_before_it_returns(spark: SparkSession, tmp_path: Path) -> None:
    append(spark, tmp_path / "t", **AT_ONCE)
    assert live(tmp_path / "t") == 1
    assert operations(tmp_path / "t")[0] == "MERGE SPLITS"
    assert spark.read.format("indextables").load(str(tmp_path / "t")).count() == 8
    (job,) = jobs(spark, tmp_path / "t")
    assert (job.status, job.total_groups, job.completed_groups) == ("COMPLETED", 1, 1)


def test_by_default_a_merge_runs_in_the_background_and_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(3):
        append(spark, tmp_path / "t", **MERGE)
    found = wait_for_jobs(spark, tmp_path / "t", 1)
    assert {job.status for job in found} == {"COMPLETED"}
    # The last write may have come after the last look of the merge before it, but never unseen.
    end, found = time.monotonic() + 120, []
    while live(tmp_path / "t") > 1 and time.monotonic() < end:
        time.sleep(0.1)
    assert live(tmp_path / "t") == 1
    assert spark.read.format("indextables").load(str(tmp_path / "t")).count() == 24


def test_a_merge_waits_for_enough_batches_and_goes_round_by_round(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Two processors: a batch is one merged split, and two partitions make two.
    few = {**AT_ONCE, "mergeOnWrite.minBatchesToTrigger": "3"}
    append(spark, tmp_path / "t", by=["part"], **few)
    assert live(tmp_path / "t") == 4
    enough = {**AT_ONCE, "mergeOnWrite.minBatchesToTrigger": "2", "mergeOnWrite.maxConcurrentBatches": "1"}
    append(spark, tmp_path / "t", by=["part"], **enough)
    assert live(tmp_path / "t") == 2
    assert [job.total_groups for job in jobs(spark, tmp_path / "t")] == [1, 1]
    assert operations(tmp_path / "t")[:2] == ["MERGE SPLITS", "MERGE SPLITS"]


def test_options_of_a_table_are_enough(spark: SparkSession, tmp_path: Path) -> None:
    options = ", ".join(f"'{key}' '{value}'" for key, value in AT_ONCE.items())
    spark.sql(f"CREATE TABLE kept (id BIGINT) USING indextables OPTIONS ({options}) LOCATION '{tmp_path}/t'")
    try:
        spark.sql("INSERT INTO kept SELECT /*+ REPARTITION(3) */ id FROM range(9)")
        assert live(tmp_path / "t") == 1
    finally:
        spark.sql("DROP TABLE kept")


@pytest.mark.parametrize(("wanted", "gone"), [("true", True), ("false", False)])
def test_a_purge_follows_a_merge(spark: SparkSession, tmp_path: Path, wanted: str, gone: bool) -> None:
    left = orphan(tmp_path / "t")
    options = {**AT_ONCE, **PURGE, "purgeOnWrite.triggerAfterMerge": wanted}
    append(spark, tmp_path / "t", **options)
    assert live(tmp_path / "t") == 1
    assert left.exists() is not gone


def test_a_purge_follows_each_nth_write_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    every = {**PURGE, "purgeOnWrite.triggerAfterWrites": "2", "purgeOnWrite.splitRetentionHours": "48"}
    old, young = orphan(tmp_path / "t", "old.split", 49), orphan(tmp_path / "t", "young.split", 47)
    append(spark, tmp_path / "t", **every)
    assert old.exists()
    append(spark, tmp_path / "t", **every)
    assert (old.exists(), young.exists()) == (False, True)
    assert live(tmp_path / "t") == 4


def test_what_can_only_fail_later_is_refused_before_the_write(spark: SparkSession, tmp_path: Path) -> None:
    options = {**PURGE, "purgeOnWrite.splitRetentionHours": "1"}
    with pytest.raises(AnalysisException, match="below the minimum of 24"):
        append(spark, tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_what_fails_after_a_write_is_not_raised(spark: SparkSession, tmp_path: Path) -> None:
    append(spark, tmp_path / "t")
    java, gateway = spark._jvm, spark.sparkContext._gateway
    unknown = {"mergeOnWrite.enabled": "perhaps"}
    decided = {"background": False, "shutdown_timeout": 0, "merge": True, "purge": True, "options": unknown}
    package = java.org.apache.spark.sql.indextables
    options = gateway.jvm.java.util.HashMap({"path": str(tmp_path / "t")})
    for wanted in (decided, {"merge": True, "options": {}}, {}):
        package.MergeOnWrite.start(str(tmp_path / "t"), options, 2, package.Json.parse(json.dumps(wanted)))
    assert live(tmp_path / "t") == 2
    assert not java.java.lang.Thread.interrupted()
