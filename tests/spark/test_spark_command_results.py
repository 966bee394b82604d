"""Every command through Spark SQL gives the columns and the figures that it gives without Spark."""

import json
import operator
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import Row

import indextables as it
from indextables.commands.execute import implementation_of
from indextables.maintain import jobs
from indextables.options import Options
from indextables.schema.spark import from_arrow
from indextables.spark.planner.commands import COMMAND_RESULT
from indextables.spark.tasks import CommandFunction
from indextables.store import open_store
from tests import command_uses
from tests.servers.fixtures import StoreUrl

# These tell of processes and of Spark's own cache folder: there is nothing to compare but their columns.
OF_PROCESSES = {
    "DESCRIBE INDEXTABLES DISK CACHE",
    "FLUSH INDEXTABLES DISK CACHE",
    "FLUSH INDEXTABLES SEARCHER CACHE",
    "DESCRIBE INDEXTABLES STORAGE STATS",
    "DESCRIBE INDEXTABLES ENVIRONMENT",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return command_uses.worn(tmp_path_factory.mktemp("doors") / "t")


@pytest.mark.parametrize("opening", command_uses.USES)
def test_spark_does_what_plain_python_does(
    spark: SparkSession, opening: str, template: Path, tmp_path: Path
) -> None:
    use, options = command_uses.USES[opening], {"cache.disk.path": str(tmp_path / "cache")}
    by_spark = command_uses.prepared(template, opening, tmp_path / "by_spark", options)
    found = spark.sql(use.sql.format(by_spark))
    assert json.loads(found.schema.json()) == json.loads(
        from_arrow(implementation_of(command_uses.command(opening)).result)
    )
    rows = [row.asDict(recursive=True) for row in found.collect()]
    assert rows
    if opening in OF_PROCESSES:
        return
    by_sql = command_uses.prepared(template, opening, tmp_path / "by_sql", options)
    expected = it.sql(use.sql.format(by_sql), options=options).to_pylist()
    assert command_uses.comparable(rows, by_spark) == [
        _maps(row) for row in command_uses.comparable(expected, by_sql)
    ]


def _maps(row: dict[str, Any]) -> dict[str, Any]:
    pairs = {k for k, v in row.items() if isinstance(v, list) and all(isinstance(p, tuple) for p in v)}
    return {k: dict(v) if k in pairs else v for k, v in row.items()}


def test_a_prewarm_in_the_background_runs_on_executors_and_can_be_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    command_uses.worn(tmp_path / "t")
    spark.sql("FLUSH INDEXTABLES DISK CACHE").collect()
    tasks = _tasks(spark)
    started = spark.sql(f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' ASYNC MODE").collect()[0]
    assert (started.status, started.async_mode) == ("started", True)
    waiting = f"WAIT FOR INDEXTABLES PREWARM JOBS '{tmp_path}/t' JOB '{started.job_id}' TIMEOUT 120"
    ended = spark.sql(waiting).collect()[0]
    assert (ended.status, ended.total_splits, ended.splits_prewarmed) == ("COMPLETED", 8, 8)
    assert _tasks(spark) - tasks == 4, "two splits a task"
    listed = {job.job_id: job for job in spark.sql("DESCRIBE INDEXTABLES PREWARM JOBS").collect()}
    assert listed[started.job_id].progress_pct == 100.0
    assert sum(row.splits_cached for row in spark.sql("DESCRIBE INDEXTABLES DISK CACHE").collect()) == 8


def test_a_prewarm_that_fails_in_the_background_says_why(spark: SparkSession, tmp_path: Path) -> None:
    command_uses.worn(tmp_path / "t")
    gone = it.open(tmp_path / "t").files()["path"][0].as_py()
    (tmp_path / "t" / gone).unlink()
    spark.conf.set("spark.indextables.prewarm.maxRetries", "0")
    try:
        started = spark.sql(f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' ASYNC MODE").collect()[0]
        ended = spark.sql(f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{started.job_id}'").collect()[0]
    finally:
        spark.conf.unset("spark.indextables.prewarm.maxRetries")
    assert ended.status == "FAILED"
    assert f"1 splits could not be warmed, one is {gone}" in ended.error_message


def test_later_passes_of_a_merge_run_on_executors_too(spark: SparkSession, tmp_path: Path) -> None:
    """Two splits at a time make 8 become 4, 4 become 2, 2 become 1."""
    for number in range(8):
        it.write(tmp_path / "t", [{"id": number}])
    tasks = _tasks(spark)
    done = spark.sql(f"MERGE SPLITS '{tmp_path}/t' MAX SOURCE SPLITS PER MERGE 2").collect()[0].metrics
    assert (done.merged_files, done.merge_groups) == (14, 7)
    assert _tasks(spark) - tasks == 7
    assert it.open(tmp_path / "t").files().num_rows == 1
    jobs = spark.sql("DESCRIBE INDEXTABLES MERGE JOBS").collect()
    mine = next(job for job in jobs if job.table_path.endswith(f"{tmp_path}/t"))
    assert (mine.status, mine.total_groups, mine.completed_groups) == ("COMPLETED", 7, 7)
    assert (mine.total_batches, mine.completed_batches) == (3, 3)


def _tasks(spark: SparkSession) -> int:
    """How many tasks executors have ended so far."""
    tracker = spark.sparkContext._jsc.sc().statusStore()
    return sum(executor.totalTasks() for executor in _listed(tracker.executorList(False)))


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


@pytest.mark.server
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_commands_of_spark_reach_object_stores(
    spark: SparkSession, make_store_url: StoreUrl, kind: str
) -> None:
    """The work is done by tasks, which open the store with what the driver gives them."""
    url, given = make_store_url(kind)
    options = {**given, "purge.retentionCheckEnabled": "false"}
    for number in range(4):
        it.write(url, [{"id": number, "day": number % 2}], partition_by=["day"], options=options)

    def only(statement: str) -> Row:
        return spark.sql(statement.format(url)).collect()[0]

    for key, value in options.items():
        spark.conf.set(f"spark.indextables.{key}", value)
    try:
        assert only("MERGE SPLITS '{}'").metrics.merged_files == 4
        started = only("PREWARM INDEXTABLES CACHE '{}' ASYNC MODE")
        waited = only(f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{started.job_id}' TIMEOUT 120")
        assert (waited.status, waited.splits_prewarmed, waited.error_message) == ("COMPLETED", 2, None)
        assert only("DROP INDEXTABLES PARTITIONS FROM '{}' WHERE day = 1").splits_removed == 1
        assert only("RESTORE INDEXTABLES '{}' TO VERSION 5").splits_restored == 1
        assert only("CHECKPOINT INDEXTABLES '{}'").num_files == 2
        assert only("TRUNCATE INDEXTABLES TIME TRAVEL '{}'").versions_deleted == 7
        assert only("PURGE INDEXTABLE '{}' OLDER THAN 0 HOURS").metrics.orphaned_files_deleted == 4
        elsewhere = f"REPAIR INDEXFILES TRANSACTION LOG '{{}}/_transaction_log' AT LOCATION '{url}-new/_transaction_log'"
        assert only(elsewhere).valid_splits == 2
        store = open_store(url, Options.parse(options))
        store.delete([info.path for info in store.list("_transaction_log")])
        assert only("REPAIR INDEXFILES TRANSACTION LOG '{}'").valid_splits == 2
        assert sorted(it.open(url, options=options).scan(["id"])["id"].to_pylist()) == [0, 1, 2, 3]
    finally:
        for key in options:
            spark.conf.unset(f"spark.indextables.{key}")


def test_statements_that_wait_for_a_job_leave_the_planner_to_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = jobs.begin(jobs.JobKind.PREWARM, f"file://{tmp_path}/t", Options(), total=1)
    statement = f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{job.id}' TIMEOUT 600"
    with ThreadPoolExecutor(6) as pool:
        try:
            waiting = [pool.submit(lambda: spark.sql(statement).collect()) for _ in range(6)]
            time.sleep(2)
            spark.range(3).write.format("indextables").save(str(tmp_path / "t"))
            assert not any(each.done() for each in waiting)
        finally:
            jobs.end(job.id)
        assert {each.result()[0].status for each in waiting} == {"COMPLETED"}


def test_tasks_finish_though_their_progress_cannot_be_recorded(spark: SparkSession) -> None:
    java = spark._jvm
    tasks = java.org.apache.spark.api.python.PythonUtils.toSeq([pickle.dumps(n) for n in range(3)])
    function = pickle.dumps((CommandFunction(None, operator.is_), COMMAND_RESULT))
    nowhere = java.org.apache.spark.api.python.PythonUtils.toSeq([])
    no_job = java.scala.Some(None)  # no id of a job: the planner fails
    run = java.org.apache.spark.sql.indextables.Tasks.run
    assert run(spark._jsparkSession, function, tasks, nowhere, no_job).size() == 3
