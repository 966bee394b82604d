"""A running session whose Python workers have no indextables: `attach` says what to set."""

import json
import sys

from pyspark.sql import SparkSession

import indextables

home = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.warehouse.dir", f"{home}/warehouse").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
results: dict[str, str | int] = {}
try:
    indextables.attach(spark)
except indextables.IndexTablesError as error:
    results["attached"] = str(error)
results["still there"] = spark.range(3).count()
spark.stop()
sys.stdout.write(json.dumps(results) + "\n")
