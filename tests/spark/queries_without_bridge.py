"""Generated queries in a session without the bridge: tables are read by the data source in plain Python."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.java_options import QUICK_START
from tests.spark.answer_comparison import differences
from tests.spark.generated_queries import QueryGenerator
from tests.spark.generated_rows import make_pair
from tests.spark.user_functions import register

home, seed, tables, queries = Path(sys.argv[1]), *map(int, sys.argv[2:5])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "America/New_York")
    .config("spark.sql.parquet.filterPushdown", "false")
    .config("spark.sql.warehouse.dir", f"{home}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {QUICK_START} -Xss8m")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)
problems = []
for number in range(tables):
    pair = make_pair(spark, home, seed + number, count=90)
    generator = QueryGenerator(seed + number, bridge=False)
    problems += differences(spark, pair, (generator.query() for _ in range(queries)), str(seed))
spark.stop()
print(json.dumps({"problems": problems}))  # noqa: T201 - what the test reads
