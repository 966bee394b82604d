"""A session with both extensions: their statements reach them, ours reach us, and tables are joined.

Arguments: connector, order of the extensions, folder. Fails with an AssertionError.
"""

import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import indextables

_SPARK = ".".join(pyspark.__version__.split(".")[:2])

CONNECTORS = {
    "delta": {
        "spark.jars.packages": f"io.delta:delta-spark_{_SPARK}_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.jars.packages": f"org.apache.iceberg:iceberg-spark-runtime-{_SPARK}_2.13:1.12.0",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def start(connector: str, order: str, home: str) -> SparkSession:
    settings = dict(CONNECTORS[connector])
    if connector == "iceberg":
        settings["spark.sql.catalog.lake.warehouse"] = f"{home}/lake"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.warehouse.dir", f"{home}/warehouse")
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
    theirs = settings.pop("spark.sql.extensions")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if order == "connector first":
        return indextables.configure(builder.config("spark.sql.extensions", theirs)).getOrCreate()
    builder = indextables.configure(builder)
    ours = builder._options["spark.sql.extensions"]
    return builder.config("spark.sql.extensions", f"{ours},{theirs}").getOrCreate()


def rows(spark: SparkSession, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def main(connector: str, order: str, home: str) -> None:
    spark = start(connector, order, home)
    spark.sparkContext.setLogLevel("ERROR")
    other = "owners" if connector == "delta" else "lake.db.owners"
    if connector == "iceberg":
        spark.sql("CREATE NAMESPACE lake.db")
    spark.sql(f"CREATE TABLE {other} (service STRING, owner STRING) USING {connector}")
    spark.sql(f"INSERT INTO {other} VALUES ('web', 'ann'), ('db', 'bob')")
    spark.sql("CREATE TABLE logs (id BIGINT, service STRING, message STRING) USING indextables")
    spark.sql(
        "INSERT INTO logs VALUES (1, 'web', 'connection refused'), (2, 'db', 'disk full'), "
        "(3, 'web', 'connection closed')"
    )

    # Ours: search, command, time travel. Both: a join.
    found = rows(spark, "SELECT id FROM logs WHERE message INDEXQUERY 'connection' ORDER BY id")
    assert found == [(1,), (3,)], found
    joined = rows(
        spark,
        f"SELECT l.id, o.owner FROM logs l JOIN {other} o ON l.service = o.service "
        "WHERE l.message INDEXQUERY 'refused OR full' ORDER BY l.id",
    )
    assert joined == [(1, "ann"), (2, "bob")], joined
    every_field = rows(
        spark, f"SELECT count(*) FROM {other} o JOIN logs l USING (service) WHERE * INDEXQUERY 'closed'"
    )
    assert every_field == [(1,)], every_field
    spark.sql("INSERT INTO logs VALUES (4, 'db', 'connection lost')")
    assert rows(spark, "SELECT count(*) FROM logs VERSION AS OF 1") == [(3,)]
    assert rows(spark, "MERGE SPLITS logs"), "a command of ours"

    # Theirs: MERGE INTO with our table as its source, maintenance, time travel.
    spark.sql(
        f"MERGE INTO {other} o USING (SELECT DISTINCT service FROM logs WHERE message INDEXQUERY 'disk') l "
        "ON o.service = l.service WHEN MATCHED THEN UPDATE SET o.owner = 'eve'"
    )
    assert rows(spark, f"SELECT owner FROM {other} ORDER BY service") == [("eve",), ("ann",)]
    if connector == "delta":
        assert rows(spark, f"OPTIMIZE {other}"), "a statement of Delta"
        assert len(rows(spark, f"DESCRIBE HISTORY {other}")) >= 3
        old = rows(spark, f"SELECT owner FROM {other} VERSION AS OF 1 ORDER BY service")
    else:
        spark.sql(f"ALTER TABLE {other} ADD PARTITION FIELD bucket(4, service)")
        assert rows(spark, "CALL lake.system.rewrite_data_files(table => 'db.owners')"), (
            "a statement of Iceberg"
        )
        (first,) = rows(spark, f"SELECT snapshot_id FROM {other}.snapshots ORDER BY committed_at LIMIT 1")
        old = rows(spark, f"SELECT owner FROM {other} VERSION AS OF {first[0]} ORDER BY service")
    assert old == [("bob",), ("ann",)], old
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
