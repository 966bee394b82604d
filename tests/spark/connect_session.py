"""A session of Spark Connect, whose server this process starts."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import indextables
from tests.java_options import QUICK_START

home = sys.argv[1]
OTHER_CLIENT = os.environ.get("INDEXTABLES_CONNECT_CLIENT")
results: dict[str, Any] = {}
builder = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.warehouse.dir", f"{home}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {QUICK_START}")
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    spark = indextables.configure(builder).getOrCreate()
results["not set"] = sorted(
    {str(each.message).split()[3] for each in caught if str(each.message).startswith("Failed to set")}
)


def run_client() -> dict[str, Any]:
    """What a client in another process gets, in the environment of its own that `make matrix` made if there is one."""
    script = str(Path(__file__).with_name("connect_client.py"))
    if OTHER_CLIENT:
        client = [OTHER_CLIENT, "-I", "-W", "ignore", script, "[]"]
    else:
        # `-I -S`: neither PYTHONPATH nor the links of an installation that lead to indextables.
        packages = json.dumps([path for path in sys.path if path.endswith("site-packages")])
        client = [sys.executable, "-I", "-S", "-W", "ignore", script, packages]
    # PySpark has left the token of its server in the environment, which a client needs, and more, which is its own.
    own = [name for name in os.environ if "SPARK" in name and name != "SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    environment = {name: value for name, value in os.environ.items() if name not in own}
    run = subprocess.run(
        [*client, f"{home}/client"], capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def run_here() -> None:
    """What the session of this process gets."""
    rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text", "cast(id % 2 AS string) AS day")
    rows.write.format("indextables").partitionBy("day").mode("error").save(f"{home}/t")
    rows.write.format("indextables").mode("append").save(f"{home}/t")
    table = spark.read.format("indextables").load(f"{home}/t")
    results["count"] = table.count()
    results["where"] = sorted(row.id for row in table.where("id = 7").collect())
    results["search"] = sorted(row.id for row in table.where("text INDEXQUERY '\"row 7\"'").collect())
    spark.sql(f"CREATE TABLE named USING indextables LOCATION '{home}/t'")
    spark.sql("INSERT INTO named VALUES (100, 'new', '1')")
    results["max"] = spark.sql("SELECT max(id) FROM named").collect()[0][0]
    results["command"] = spark.sql("DESCRIBE INDEXTABLES STATE named").collect()[0].asDict()
    try:
        rows.write.format("indextables").mode("error").save(f"{home}/t")
    except Exception as error:  # noqa: BLE001 - the test looks at it
        results["error"] = f"{type(error).__name__}: {error}"
    merging = {"mergeOnWrite.enabled": "true", "mergeOnWrite.async.enabled": "false"}
    rows.repartition(3).write.format("indextables").options(**merging).mode("append").save(f"{home}/m")
    results["merged"] = indextables.open(f"{home}/m").files().num_rows
    replacing = rows.write.format("indextables").mode("overwrite").option("replaceWhere", "day = '1'")
    try:
        replacing.save(f"{home}/t")
    except Exception as error:  # noqa: BLE001 - the test looks at it
        results["task_error"] = str(error)
    try:
        indextables.attach(spark)
    except indextables.IndexTablesError as error:
        results["attach"] = str(error)


results["client"] = run_client()
if not OTHER_CLIENT:
    run_here()
spark.stop()
print(json.dumps(results))  # noqa: T201 - what the test reads
