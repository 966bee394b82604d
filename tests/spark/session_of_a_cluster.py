"""A cluster on this machine: executors that are killed, and merges."""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

import indextables

home = sys.argv[1]
heard = {}
builder = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -XX:TieredStopAtLevel=1")
    .config("spark.indextables.cache.disk.path", f"{home}/cache")
)
spark = indextables.configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")


def kill_the_executor_once(mark):
    """A function over batches that kills its executor's JVM in the middle of its first run."""

    def run(batches):
        for number, batch in enumerate(batches):
            first = TaskContext.get().partitionId() == 1 and number == 1
            if first and not Path(mark).exists():
                Path(mark).touch()
                os.kill(_jvm(os.getpid()), signal.SIGKILL)
            yield batch

    def _jvm(pid):
        while True:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid

    return run


path = f"{home}/t"
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
rows = spark.range(0, 20_000, 1, 4).selectExpr("id", "concat('row ', id) AS text")
rows = rows.mapInArrow(kill_the_executor_once(f"{home}/killed-writing"), rows.schema)
rows.write.format("indextables").option("indexing.typemap.text", "text").save(path)
table = indextables.open(path)
heard["killed_writing"] = Path(home, "killed-writing").exists()
heard["versions"] = table.version
heard["written"] = [table.count(), len(set(table.scan(columns=["id"])["id"].to_pylist()))]

read = spark.read.format("indextables").load(path)
read = read.mapInArrow(kill_the_executor_once(f"{home}/killed-reading"), read.schema)
heard["read"] = [read.count(), read.selectExpr("count(DISTINCT id)").collect()[0][0]]
heard["killed_reading"] = Path(home, "killed-reading").exists()
found = spark.read.format("indextables").load(path).where("text INDEXQUERY '777'").collect()
heard["search"] = [row.id for row in found]

rows = spark.range(0, 4000, 1, 4).selectExpr("id", "concat('row ', id) AS text")
merging = {"mergeOnWrite.enabled": "true", "mergeOnWrite.async.enabled": "false"}
rows.write.format("indextables").options(**merging).save(f"{home}/merged")
table = indextables.open(f"{home}/merged")
heard["merged"] = [table.count(), table.files().num_rows, table.history()["operation"][0].as_py()]
spark.stop()
print(json.dumps(heard))  # noqa: T201 - what the test reads
