"""A session whose environment is not activated: Spark would start any `python3`, which has no indextables."""

import json
import os
import sys
from typing import Any

import indextables

home = sys.argv[1]
results: dict[str, Any] = {}
del os.environ["PYSPARK_PYTHON"]
os.environ["PATH"] = "/usr/bin:/bin"  # no Python of an environment

from pyspark.sql import SparkSession  # noqa: E402 - the environment first


def builder() -> SparkSession.Builder:
    settings = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings = settings.config("spark.ui.showConsoleProgress", "false").config(
        "spark.driver.bindAddress", "127.0.0.1"
    )
    return settings.config("spark.sql.warehouse.dir", f"{home}/warehouse")


spark = builder().getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    indextables.configure(builder())
except indextables.IndexTablesError as error:
    results["running"] = str(error)

indextables.attach(spark)
indextables.configure(builder())  # an attached session has the bridge
rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text")
rows.repartition(2).write.format("indextables").option("indexing.typemap.text", "text").save(f"{home}/t")
spark.read.format("indextables").load(f"{home}/t").createOrReplaceTempView("t")
results["attached"] = [row.id for row in spark.sql("SELECT id FROM t WHERE * INDEXQUERY '7'").collect()]
spark.sql("CACHE TABLE t")
results["cached"] = [row.id for row in spark.sql("SELECT id FROM t WHERE text INDEXQUERY '7'").collect()]
spark.stop()

spark = indextables.configure(builder()).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.read.format("indextables").load(f"{home}/t").createOrReplaceTempView("t")
results["restarted"] = [row.id for row in spark.sql("SELECT id FROM t WHERE text INDEXQUERY '7'").collect()]
spark.stop()
sys.stdout.write(json.dumps(results) + "\n")
