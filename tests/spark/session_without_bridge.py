"""A session without the bridge: first as it is, then with the bridge attached."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import indextables
from tests.spark.generated_queries import Asker
from tests.spark.generated_rows import pair
from tests.spark.sameness import differences
from tests.spark.user_functions import register

home, seed = sys.argv[1], int(sys.argv[2])
heard: dict[str, Any] = {}
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{home}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -XX:TieredStopAtLevel=1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text")


def path_of(name):
    return f"{home}/{name}"


def failure(action):
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return str(error)
    return None


rows.write.format("indextables").mode("append").save(path_of("t"))
rows.write.format("indextables").mode("append").save(path_of("t"))
heard["plain_append"] = spark.read.format("indextables").load(path_of("t")).count()
rows.limit(3).write.format("indextables").mode("overwrite").save(path_of("t"))
heard["plain_overwrite"] = spark.read.format("indextables").load(path_of("t")).count()
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
table = spark.read.format("indextables").load(path_of("t"))
heard["plain_filtered"] = [
    sorted(row.id for row in table.where(condition).collect())
    for condition in ("id >= 1 AND text LIKE 'row%'", "id = 0", "TRUE", "id > 100")
]
spark.conf.unset("spark.sql.python.filterPushdown.enabled")
rows.where("id < 0").write.format("indextables").mode("append").save(path_of("empty"))
empty = spark.read.format("indextables").load(path_of("empty"))
heard["plain_empty"] = [empty.count(), len(empty.collect()), len(empty.where("id = 1").collect())]
heard["plain_unknown_option"] = failure(
    lambda: spark.read.format("indextables").option("nonsense", 1).load(path_of("t")).collect()
)
merging = (
    rows.repartition(3).write.format("indextables").mode("append").option("mergeOnWrite.enabled", "true")
)
merging.save(path_of("m"))
heard["plain_merged"] = [
    indextables.open(path_of("m")).files().num_rows,
    indextables.open(path_of("m")).count(),
]
counting = rows.write.format("indextables").mode("append").option("purgeOnWrite.triggerAfterWrites", "2")
heard["plain_counting"] = failure(lambda: counting.save(path_of("c")))
months = spark.sql("SELECT array(INTERVAL '1' MONTH) AS m").write.format("indextables").mode("append")
heard["plain_months"] = failure(lambda: months.save(path_of("i")))
heard["plain_error_mode"] = failure(lambda: rows.write.format("indextables").mode("error").save(path_of("e")))
register(spark)
spark.conf.set("spark.sql.parquet.filterPushdown", "false")
twins = pair(spark, Path(home), seed, count=90)
asker = Asker(seed, bridge=False)
heard["plain_questions"] = differences(spark, twins, (asker.question() for _ in range(8)), str(seed))

assert indextables.attach(spark) is spark
indextables.attach(spark)
rows.write.format("indextables").mode("errorifexists").save(path_of("a"))
heard["attached_error_mode"] = failure(
    lambda: rows.write.format("indextables").mode("errorifexists").save(path_of("a"))
)
heard["attached_read"] = spark.read.format("indextables").load(path_of("a")).count()
spark.sql(f"CREATE TABLE named USING indextables LOCATION '{path_of('a')}'")
heard["attached_sql"] = spark.sql("SELECT max(id) FROM named").collect()[0][0]
found = spark.sql("SELECT id FROM named WHERE text INDEXQUERY '\"row 7\"'").collect()
heard["attached_search"] = [row.id for row in found]
heard["attached_command"] = spark.sql("DESCRIBE INDEXTABLES STATE named").collect()[0].asDict()
younger = spark.newSession()
heard["new_session"] = younger.sql(f"SELECT count(*) FROM indextables.`{path_of('a')}`").collect()[0][0]

# Two splits in each of twenty partitions, merged one partition after the other.
options = {"mergeOnWrite.enabled": "true", "mergeOnWrite.maxConcurrentBatches": "1"}
many = spark.range(0, 300, 1, 2).selectExpr("id", "id % 20 AS part", "concat('row ', id) AS text")
many.write.format("indextables").options(**options).partitionBy("part").save(path_of("last"))
spark.stop()
last = indextables.open(path_of("last"))
heard["merged_at_the_end"] = [last.files().num_rows, last.count()]
print(json.dumps(heard))  # noqa: T201 - what the test reads
