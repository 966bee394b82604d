"""A client of Spark Connect in an interpreter that has PySpark, or only its client, but not indextables.

Arguments: folders of packages as JSON, the path of a table. The last line of the output is JSON.
"""

import importlib.util
import json
import sys
from typing import Any

sys.path.extend(json.loads(sys.argv[1]))
path = sys.argv[2]

from pyspark.sql import SparkSession  # noqa: E402 - the path first

spark = SparkSession.builder.remote("sc://localhost:15002").getOrCreate()
rows = spark.range(5).selectExpr("id", "concat('line ', id) AS text")
rows.write.format("indextables").option("indexing.typemap.text", "text").mode("error").save(path)
table = spark.read.format("indextables").load(path)
table.createOrReplaceTempView("lines")
pandas: Any = table.where("text INDEXQUERY '2'").toPandas()
results = {
    "python": ".".join(map(str, sys.version_info[:2])),
    "has a JVM": importlib.util.find_spec("py4j") is not None,
    "has indextables": importlib.util.find_spec("indextables") is not None,
    "search": [row.id for row in table.where("text INDEXQUERY '3'").collect()],
    "sql": [
        row.id for row in spark.sql("SELECT id FROM lines WHERE * INDEXQUERY '3 OR 4' ORDER BY id").collect()
    ],
    "command": spark.sql(f"DESCRIBE INDEXTABLES HISTORY '{path}'").count(),
    "pandas": [int(number) for number in pandas["id"]],
}
spark.stop()
print(json.dumps(results))  # noqa: T201 - what the server's script reads
