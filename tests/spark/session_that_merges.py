"""A session that ends while a merge that its last write started runs in the background."""

import sys

from pyspark.sql import SparkSession

import indextables

home = sys.argv[1]
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -XX:TieredStopAtLevel=1")
    .config("spark.indextables.cache.disk.path", f"{home}/cache")
)
spark = indextables.configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
# Two splits in each of twenty partitions, merged one partition after the other.
options = {"mergeOnWrite.enabled": "true", "mergeOnWrite.maxConcurrentBatches": "1"}
rows = spark.range(0, 300, 1, 2).selectExpr("id", "id % 20 AS part", "concat('row ', id) AS text")
rows.write.format("indextables").options(**options).partitionBy("part").save(f"{home}/t")
spark.stop()
