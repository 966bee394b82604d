"""A session without the bridge: first as it is, then with the bridge attached."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import indextables
from tests.java_options import QUICK_START
from tests.spark.answer_comparison import differences
from tests.spark.generated_queries import QueryGenerator
from tests.spark.generated_rows import PARTITIONS, make_pair
from tests.spark.user_functions import register

home, seed = sys.argv[1], int(sys.argv[2])
results: dict[str, Any] = {}
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{home}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {QUICK_START}")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text")


def path_of(name: str) -> str:
    return f"{home}/{name}"


def failure(action: Any) -> str | None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return str(error)
    return None


rows.write.format("indextables").mode("append").save(path_of("t"))
rows.write.format("indextables").mode("append").save(path_of("t"))
results["plain_append"] = spark.read.format("indextables").load(path_of("t")).count()
rows.limit(3).write.format("indextables").mode("overwrite").save(path_of("t"))
results["plain_overwrite"] = spark.read.format("indextables").load(path_of("t")).count()
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
table = spark.read.format("indextables").load(path_of("t"))
results["plain_filtered"] = [
    sorted(row.id for row in table.where(condition).collect())
    for condition in ("id >= 1 AND text LIKE 'row%'", "id = 0", "TRUE", "id > 100")
]
spark.conf.unset("spark.sql.python.filterPushdown.enabled")
rows.where("id < 0").write.format("indextables").mode("append").save(path_of("empty"))
empty = spark.read.format("indextables").load(path_of("empty"))
results["plain_empty"] = [empty.count(), len(empty.collect()), len(empty.where("id = 1").collect())]
results["plain_unknown_option"] = failure(
    lambda: spark.read.format("indextables").option("nonsense", 1).load(path_of("t")).collect()
)
merging = (
    rows.repartition(3).write.format("indextables").mode("append").option("mergeOnWrite.enabled", "true")
)
merging.save(path_of("m"))
results["plain_merged"] = [
    indextables.open(path_of("m")).files().num_rows,
    indextables.open(path_of("m")).count(),
]
counting = rows.write.format("indextables").mode("append").option("purgeOnWrite.triggerAfterWrites", "2")
results["plain_counting"] = failure(lambda: counting.save(path_of("c")))
months = spark.sql("SELECT array(INTERVAL '1' MONTH) AS m").write.format("indextables").mode("append")
results["plain_months"] = failure(lambda: months.save(path_of("i")))
results["plain_error_mode"] = failure(
    lambda: rows.write.format("indextables").mode("error").save(path_of("e"))
)
replaced = spark.read.format("indextables").load(path_of("t"))
changed = spark.sql("SELECT CAST(id AS string) AS id, 'x' AS text FROM range(2)")
changed.write.format("indextables").mode("overwrite").option("overwriteSchema", "true").save(path_of("t"))
results["plain_replaced"] = failure(replaced.collect)

# Streams, started twice: the last micro-batch comes again.
rows.coalesce(1).write.json(path_of("arriving"))


def stream(frame: DataFrame, form: str, target: str, **options: Any) -> None:
    writer = frame.writeStream.format(form).options(**options).trigger(availableNow=True)
    writer.option("checkpointLocation", path_of(f"checkpoint-{target}")).start(
        path_of(target)
    ).awaitTermination()


def sink() -> None:
    for _ in range(2):
        stream(arriving, "indextables", "streamed", **{"txn.appId": "rows"})
        for commit in Path(path_of("checkpoint-streamed"), "commits").glob("*0*"):
            commit.unlink()
    streamed = indextables.open(path_of("streamed"))
    results["plain_sink"] = [streamed.version, streamed.count()]


def source() -> None:
    changes = (
        spark.readStream.format("indextables").option("maxFilesPerTrigger", "1").load(path_of("growing"))
    )
    stream(changes.where("id > 6"), "parquet", "read")
    results["plain_source_batches"] = len(list(Path(path_of("checkpoint-read"), "commits").glob("[0-9]*")))
    indextables.write(path_of("growing"), [{"id": 77, "text": "later"}])
    stream(changes.where("id > 6"), "parquet", "read")
    results["plain_source"] = sorted(row.id for row in spark.read.parquet(path_of("read")).collect())


arriving = spark.readStream.schema("id long, text string").json(path_of("arriving"))
results["plain_sink_failure"] = failure(sink)
results["plain_sink_unnamed"] = failure(lambda: stream(arriving, "indextables", "unnamed"))
for n in range(2):
    indextables.write(path_of("growing"), [{"id": 5 * n + i, "text": "early"} for i in range(5)])
results["plain_source_failure"] = failure(source)

register(spark)
spark.conf.set("spark.sql.parquet.filterPushdown", "false")
seed -= seed % len(PARTITIONS)  # a table without partitions, which takes less time to write
pair = make_pair(spark, Path(home), seed, count=60, writes=1)
generator = QueryGenerator(seed, bridge=False)
results["plain_queries"] = differences(spark, pair, (generator.query() for _ in range(5)), str(seed))

assert indextables.attach(spark) is spark
indextables.attach(spark)
rows.write.format("indextables").mode("errorifexists").save(path_of("a"))
results["attached_error_mode"] = failure(
    lambda: rows.write.format("indextables").mode("errorifexists").save(path_of("a"))
)
results["attached_read"] = spark.read.format("indextables").load(path_of("a")).count()
spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path_of('a')}'")
results["attached_sql"] = spark.sql("SELECT max(id) FROM named").collect()[0][0]
found = spark.sql("SELECT id FROM named WHERE text INDEXQUERY '\"row 7\"'").collect()
results["attached_search"] = [row.id for row in found]
results["attached_command"] = spark.sql("DESCRIBE INDEXTABLES STATE named").collect()[0].asDict()
younger = spark.newSession()
results["new_session"] = younger.sql(f"SELECT count(*) FROM indextables.`{path_of('a')}`").collect()[0][0]

# Two splits in each of twenty partitions, merged one partition after the other.
options = {"mergeOnWrite.enabled": "true", "mergeOnWrite.maxConcurrentBatches": "1"}
many = spark.range(0, 300, 1, 2).selectExpr("id", "id % 20 AS part", "concat('row ', id) AS text")
many.write.format("indextables").options(**options).partitionBy("part").save(path_of("last"))
spark.stop()
last = indextables.open(path_of("last"))
results["merged_at_the_end"] = [last.files().num_rows, last.count()]
print(json.dumps(results))  # noqa: T201 - what the test reads
