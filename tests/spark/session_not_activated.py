"""A session whose environment is not activated: Spark would start any `python3`, which has no indextables.

Its settings name the bridge, whose jar is not there when it starts; Spark ignores them with a warning.
"""

import json
import os
import sys
from threading import Thread
from typing import Any

import indextables
from indextables.spark import bridge

home = sys.argv[1]
results: dict[str, Any] = {}
del os.environ["PYSPARK_PYTHON"]
os.environ["PATH"] = "/usr/bin:/bin"  # no Python of an environment
os.environ["PYSPARK_DRIVER_PYTHON"] = "jupyter"  # starts notebooks, and is no Python

from pyspark import SparkConf, SparkContext  # noqa: E402 - the environment first
from pyspark.sql import SparkSession  # noqa: E402


def builder() -> SparkSession.Builder:
    settings = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings = settings.config("spark.ui.showConsoleProgress", "false").config(
        "spark.driver.bindAddress", "127.0.0.1"
    )
    return settings.config("spark.sql.warehouse.dir", f"{home}/warehouse")


def refusal() -> str:
    try:
        indextables.configure(builder())
    except indextables.IndexTablesError as error:
        return str(error)
    return ""


settings = {**builder()._options, "spark.app.name": "notebook", "spark.sql.extensions": bridge.EXTENSIONS}
context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
context.setLogLevel("OFF")
results["running without a session"] = refusal()
spark = builder().getOrCreate()
results["running"] = refusal()
thread = Thread(target=lambda: results.update({"running in a thread": refusal()}))
thread.start()
thread.join()

spark.sql("SELECT id FROM range(3) WHERE id > 1").collect()  # its analyzer is built
indextables.attach(spark)
indextables.configure(builder())  # an attached session has the bridge


def ids(query: str) -> list[int]:
    return [row.id for row in spark.sql(query).collect()]


rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text")
rows.repartition(2).write.format("indextables").option("indexing.typemap.text", "text").save(f"{home}/t")
spark.read.format("indextables").load(f"{home}/t").createOrReplaceTempView("t")
results["attached"] = ids("SELECT id FROM t WHERE * INDEXQUERY '7'")
results["by path"] = ids(f"SELECT id FROM indextables.`{home}/t` WHERE text INDEXQUERY '7'")
results["by version"] = ids(f"SELECT count(*) AS id FROM indextables.`{home}/t` VERSION AS OF 0")
results["score above a view"] = ids(
    "WITH c AS (SELECT id, text FROM t) SELECT id FROM c WHERE text INDEXQUERY '7' ORDER BY _score DESC"
)
results["in a subquery"] = ids("SELECT 7 AS id WHERE EXISTS (SELECT 1 FROM t WHERE * INDEXQUERY '7')")
spark.sql(f"CREATE TABLE named USING indextables LOCATION '{home}/t'")
try:
    spark.sql("ALTER TABLE named ADD COLUMN more STRING")
except Exception as error:  # noqa: BLE001 - the test looks at it
    results["checked"] = str(error)
spark.sql("CACHE TABLE t")
results["cached"] = ids("SELECT id FROM t WHERE text INDEXQUERY '7'")
spark.stop()

spark = indextables.configure(builder()).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.read.format("indextables").load(f"{home}/t").createOrReplaceTempView("t")
results["restarted"] = ids("SELECT id FROM t WHERE text INDEXQUERY '7'")
spark.stop()
sys.stdout.write(json.dumps(results) + "\n")
