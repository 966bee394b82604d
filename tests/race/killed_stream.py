"""A driver with three streams, to be killed: files into a table, a search over it into another, and counts.

`python -m tests.race.killed_stream HOME URL OPTIONS [finish]`: it prints a line when the streams run. With `finish` it
reads all that is there and ends.
"""

import json
import sys
from typing import Any

import indextables
from tests.java_options import QUICK_START

SCHEMA = "id long, text string"


def main() -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow to load

    home, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    finish = sys.argv[4:] == ["finish"]
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {QUICK_START}")
    )
    for key, value in options.items():
        builder = builder.config(f"spark.indextables.{key}", value)
    spark = indextables.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def start(frame: Any, name: str, mode: str = "append") -> Any:
        writer = frame.writeStream.format("indextables").outputMode(mode)
        writer = writer.option("checkpointLocation", f"{home}/checkpoint-{name}")
        writer = writer.trigger(availableNow=True) if finish else writer
        query = writer.start(f"{url}/{name}")
        if finish:
            query.awaitTermination()
        return query

    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{home}/input")
    start(files, "lines")
    lines = spark.readStream.format("indextables").option("maxFilesPerTrigger", 2).load(f"{url}/lines")
    start(lines.where("text INDEXQUERY 'red'").select("id"), "red")
    start(lines.groupBy("text").count(), "counts", "complete")
    if not finish:
        print("running", flush=True)  # noqa: T201 - whoever waits for it kills this process
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main()
