"""A session that has the bridge by `spark.jars` and `spark.sql.extensions` alone, with an event log."""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from indextables.spark import bridge

home = sys.argv[1]
(Path(home) / "events").mkdir()
results: dict[str, Any] = {}
settings = {"azure.connectionString": "never-shown-1", "gcp.serviceAccountKey": "never-shown-2"}
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", f"{home}/warehouse")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", f"file://{home}/events")
    .config("spark.jars", str(bridge.jar()))
    .config("spark.sql.extensions", bridge.EXTENSIONS)
)
for key, value in settings.items():
    builder = builder.config(f"spark.indextables.{key}", value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
own = {"azure.accountKey": "never-shown-3", "azure.connectionString": "never-shown-4"}
shown = io.StringIO()
with redirect_stdout(shown):
    spark.range(3).write.format("indextables").options(**own).save(f"{home}/t")
    frame = spark.read.format("indextables").options(**own).load(f"{home}/t").where("id > 0")
    results["rows"] = frame.count()
    frame.explain("extended")
session = spark.newSession()
session.conf.set("spark.sql.redaction.options.regex", "mine")
session.sql("SELECT 1").collect()
results["set by the user"] = session.conf.get("spark.sql.redaction.options.regex")
spark.stop()
files = [path for path in (Path(home) / "events").rglob("*") if path.is_file()]
lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
# Spark writes the settings of the start before a session has extensions.
log = "".join(line for line in lines if "SparkListenerEnvironmentUpdate" not in line)
results["written"] = "SQLExecutionStart" in log
results["shown"] = [f"never-shown-{n}" for n in range(1, 5) if f"never-shown-{n}" in log + shown.getvalue()]
sys.stdout.write(json.dumps(results) + "\n")
