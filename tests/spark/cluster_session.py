"""A cluster on this machine: workers that are killed, tasks that are tried twice at once, and merges."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import indextables
from tests import ROOT
from tests.java_options import QUICK_START
from tests.spark.standalone import HOSTS, Cluster

home = sys.argv[1]
results: dict[str, Any] = {}


def session(master: str) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.extraJavaOptions", QUICK_START)
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {QUICK_START}")
        # A task that lags is tried a second time beside the first.
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.minTaskRuntime", "2s")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.indextables.cache.disk.path", f"{home}/cache")
    )
    made = indextables.configure(builder).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    made.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    return made


def kill_the_worker_once(mark: str) -> Callable[..., Any]:
    """A function over batches that kills its executor and the worker over it in the middle of its first run."""

    def run(batches: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            first = TaskContext.get().partitionId() == 1 and number == 1
            if first and not Path(mark).exists():
                executor = _java_over(os.getpid())
                worker = _java_over(executor)
                Path(mark).write_text(Path(f"/proc/{worker}/cmdline").read_text().replace("\0", " "))
                os.kill(worker, signal.SIGKILL)
                os.kill(executor, signal.SIGKILL)
            yield batch

    def _java_over(pid: Any) -> Any:
        while True:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid

    return run


def lag_until_tried_again(mark: str) -> Callable[..., Any]:
    """A function over batches whose first attempt waits for a second one, so that both end together."""

    def run(batches: Any) -> Iterator[Any]:
        context = TaskContext.get()
        lags = context.partitionId() == 1
        if lags and context.attemptNumber():
            Path(mark).touch()
        deadline = time.monotonic() + 300
        while lags and not Path(mark).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield from batches

    return run


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 4).selectExpr("id", "concat('row ', id) AS text")


def counted(path: str) -> list[Any]:
    table = indextables.open(path)
    return [table.version, table.count(), len(set(table.scan(columns=["id"])["id"].to_pylist()))]


def killed(mark: str) -> str:
    """The host of the worker that was killed."""
    return next(host for host in HOSTS if f"--host {host} " in Path(mark).read_text())


def story(cluster: Cluster, spark: SparkSession) -> None:
    path, mark = f"{home}/t", f"{home}/killed-writing"
    rows = rows_of(spark, 20_000)
    rows = rows.mapInArrow(kill_the_worker_once(mark), rows.schema)
    rows.write.format("indextables").option("indexing.typemap.text", "text").save(path)
    results["written"] = counted(path)
    cluster.add_worker(killed(mark))

    rows = rows_of(spark, 8000)
    rows = rows.mapInArrow(lag_until_tried_again(f"{home}/tried-again"), rows.schema)
    rows.write.format("indextables").save(f"{home}/twice")
    results["tried_again"] = Path(home, "tried-again").exists()
    results["written_twice"] = counted(f"{home}/twice")

    merging = {"mergeOnWrite.enabled": "true", "mergeOnWrite.async.enabled": "false"}
    rows_of(spark, 4000).write.format("indextables").options(**merging).save(f"{home}/merged")
    table = indextables.open(f"{home}/merged")
    results["merged"] = [table.count(), table.files().num_rows, table.history()["operation"][0].as_py()]

    shutil.copytree(ROOT / "tests" / "golden" / "tables" / "quickwit-bundles", f"{home}/original")
    converted = spark.sql(f"CONVERT INDEXTABLES '{home}/original'").collect()[0]
    results["converted"] = [converted.status, converted.splits_converted, converted.splits_left]

    read = spark.read.format("indextables").load(path)
    read = read.mapInArrow(kill_the_worker_once(f"{home}/killed-reading"), read.schema)
    results["read"] = [read.count(), read.selectExpr("count(DISTINCT id)").collect()[0][0]]
    results["killed_reading"] = killed(f"{home}/killed-reading")
    found = spark.read.format("indextables").load(path).where("text INDEXQUERY '777'").collect()
    results["search"] = [row.id for row in found]


with Cluster(Path(home)) as cluster:
    spark = session(cluster.url)
    story(cluster, spark)
    spark.stop()
print(json.dumps(results))  # noqa: T201 - what the test reads
