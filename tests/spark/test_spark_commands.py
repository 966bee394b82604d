"""Commands through Spark SQL: the same results as without Spark, with the work on executors."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import Row

import indextables as it
from indextables.commands import COMMANDS
from indextables.commands.execute import implementation_of
from indextables.schema.spark import from_arrow
from tests.maintenance_tables import appended, ids, orphan


def only(spark: SparkSession, text: str) -> Row:
    found = spark.sql(text).collect()
    assert len(found) == 1, found
    return found[0]


def test_maintenance_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    for _ in range(2):
        appended(table, 4)
    merged = only(spark, f"MERGE SPLITS '{table}' WHERE day > 1 TARGET SIZE 10M;")
    assert (merged.metrics.status, merged.metrics.merged_files, merged.metrics.merge_groups) == (
        "success",
        4,
        2,
    )
    dropped = only(spark, f"DROP TANTIVY4SPARK PARTITIONS FROM '{table}' WHERE day > 2")
    assert (dropped.status, dropped.splits_removed) == ("success", 1)
    assert only(spark, f"RESTORE INDEXTABLES '{table}' TO VERSION 9").splits_restored == 1
    lost = orphan(table)
    assert only(spark, f"PURGE INDEXTABLE '{table}' DRY RUN").metrics.orphaned_files_found == 1
    assert only(spark, f"PURGE INDEXTABLE '{table}'").metrics.orphaned_files_deleted == 1
    assert not lost.exists()
    assert only(spark, f"CHECKPOINT INDEXTABLES '{table}'").num_files == 6
    assert only(spark, f"TRUNCATE INDEXTABLES TIME TRAVEL '{table}' DRY RUN").status == "DRY_RUN"
    repaired = only(
        spark,
        f"REPAIR INDEXFILES TRANSACTION LOG '{table}/_transaction_log' AT LOCATION '{tmp_path}/new/_transaction_log'",
    )
    assert repaired.valid_splits == 6
    assert len(ids(table)) == 24


def test_looking_into_a_table(spark: SparkSession, tmp_path: Path) -> None:
    appended(tmp_path, 2)
    assert only(spark, f"DESC INDEXTABLES STATE '{tmp_path}'").num_files == 2
    history = spark.sql(f"DESCRIBE INDEXTABLES HISTORY '{tmp_path}' LIMIT 1").collect()
    assert (history[0].operation, history[0].metrics["numAddedRecords"]) == ("WRITE", 3)
    assert (
        spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{tmp_path}'").filter("action_type = 'add'").count()
        == 2
    )
    assert (
        spark.sql(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{tmp_path}' WHERE day = 1")
        .select("split_path")
        .distinct()
        .count()
        == 1
    )
    assert spark.sql(f"DESCRIBE INDEXTABLES DATA SKIPPING STATS '{tmp_path}'").count() == 3


def test_caches_of_the_driver_and_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    appended(tmp_path, 3)
    assert only(spark, f"PREWARM INDEXTABLES CACHE '{tmp_path}' ON FIELDS (message)").splits_prewarmed == 3
    assert only(spark, "DESCRIBE INDEXTABLES DISK CACHE").splits_cached >= 3
    started = only(spark, f"PREWARM INDEXTABLES CACHE '{tmp_path}' ASYNC MODE")
    assert (
        only(spark, f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{started.job_id}' TIMEOUT 60").status
        == "COMPLETED"
    )
    assert started.job_id in {job.job_id for job in spark.sql("DESCRIBE INDEXTABLES PREWARM JOBS").collect()}
    stats = spark.sql("DESCRIBE INDEXTABLES STORAGE STATS").collect()
    assert [row.executor_id for row in stats].count("driver") == 1
    assert any(row.executor_id.startswith("worker-") and row.bytes_fetched > 0 for row in stats)
    roles = {row.role for row in spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").collect()}
    assert roles == {"driver", "worker"}
    assert {row.status for row in spark.sql("FLUSH INDEXTABLES SEARCHER CACHE").collect()} == {"success"}
    assert only(spark, "FLUSH INDEXTABLES DISK CACHE").status == "success"
    assert only(spark, f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{tmp_path}'").table_path.endswith(
        str(tmp_path)
    )
    assert isinstance(spark.sql("DESCRIBE INDEXTABLES MERGE JOBS").collect(), list)


BUNDLES = Path(__file__).parents[1] / "golden" / "tables"
ANSWERS = json.loads((BUNDLES / "expected.json").read_text())


def test_a_table_of_the_original_is_converted_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(BUNDLES / "quickwit-bundles", path)
    before = spark.read.format("indextables").load(str(path)).orderBy("id").collect()
    done = only(spark, f"CONVERT INDEXTABLES '{path}'")
    assert (done.status, done.splits_converted, done.rows_converted) == ("success", 3, len(before))
    assert only(spark, f"CONVERT INDEXTABLES '{path}'").status == "no_action"
    assert spark.read.format("indextables").load(str(path)).orderBy("id").collect() == before
    for version, expected in ANSWERS.items():
        table = spark.read.format("indextables").option("versionAsOf", version).load(str(path))
        assert sorted(row.id for row in table.select("id").collect()) == expected["ids"]
        assert {where: table.where(where).count() for where in expected["counts"]} == expected["counts"]


def test_a_conversion_by_tasks_leaves_a_damaged_split(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(BUNDLES / "quickwit-bundles", path)
    damaged = path / "part-1.split"
    damaged.write_bytes(b"damaged")
    partly = only(spark, f"CONVERT INDEXTABLES '{path}'")
    assert (partly.status, partly.splits_converted, partly.splits_left) == ("partial_success", 2, 1)
    assert damaged.name in partly.message
    assert damaged.name in it.open(path).files()["path"].to_pylist()


def test_names_of_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    appended(tmp_path, 2, partition_by=())
    spark.sql(f"CREATE TABLE upkept USING indextables LOCATION '{tmp_path}'")
    try:
        assert only(spark, "MERGE SPLITS upkept").metrics.merged_files == 2
        assert only(spark, "PURGE INDEXTABLE default.upkept DRY RUN").metrics.status == "DRY_RUN"
        assert only(spark, "DESCRIBE INDEXTABLES STATE spark_catalog.default.upkept").num_files == 1
    finally:
        spark.sql("DROP TABLE upkept")
    assert it.open(tmp_path).count() == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DESCRIBE INDEXTABLES HISTROY '{}'", "did you mean DESCRIBE INDEXTABLES HISTORY"),
        ("PURGE INDEXTABLE '{}' OLDER THAN 1 HOURS", "below the minimum of 24"),
        ("MERGE SPLITS '{}' WHERE id = 1", "id is not decided by a partition"),
        ("MERGE SPLITS '{}' TARGET SIZE 10", "at least 1M is expected"),
        ("RESTORE INDEXTABLES '{}' TO VERSION 99", "versions 0 to 1"),
        ("CHECKPOINT INDEXTABLES '{}/nothing'", "no table at"),
    ],
)
def test_errors_are_raised(spark: SparkSession, tmp_path: Path, text: str, says: str) -> None:
    appended(tmp_path, 1)
    with pytest.raises(PySparkException, match=says):
        spark.sql(text.format(tmp_path)).collect()


def test_every_result_has_a_schema_of_spark() -> None:
    for command in COMMANDS:
        assert isinstance(implementation_of(command).result, pa.Schema)
        assert from_arrow(implementation_of(command).result)
