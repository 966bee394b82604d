"""indextables and a lake connector in one session, whose catalog is the connector's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.connectors.conftest import Connector


def test_a_named_table_is_searched_filtered_and_counted(rows: Callable[..., list[tuple[Any, ...]]]) -> None:
    assert rows("SELECT id FROM logs WHERE message INDEXQUERY 'connection' ORDER BY id") == [(1,), (3,)]
    assert rows("SELECT id FROM logs WHERE * INDEXQUERY 'disk' AND service = 'db'") == [(2,)]
    assert rows("SELECT service, count(*) FROM logs GROUP BY service ORDER BY 1") == [("db", 1), ("web", 2)]
    found = rows("SELECT id FROM default.logs WHERE message INDEXQUERY 'closed OR full' ORDER BY id LIMIT 1")
    assert found == [(2,)]


def test_tables_of_both_are_joined_in_one_query(
    rows: Callable[..., list[tuple[Any, ...]]], connector: Connector
) -> None:
    assert rows(
        f"SELECT l.id, o.owner FROM logs l JOIN {connector.table} o ON l.service = o.service "
        "WHERE l.message INDEXQUERY 'refused OR full' ORDER BY l.id"
    ) == [(1, "ann"), (2, "bob")]
    assert rows(
        f"SELECT l.id, o.owner FROM {connector.table} o JOIN logs l USING (service) WHERE * INDEXQUERY 'closed'"
    ) == [(3, "ann")]
    assert rows(
        f"SELECT owner FROM {connector.table} WHERE service IN "
        "(SELECT service FROM logs WHERE message INDEXQUERY 'disk')"
    ) == [("bob",)]


def test_rows_go_from_one_format_to_the_other(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector
) -> None:
    copy = connector.table.replace("owners", "messages")
    spark.sql(
        f"CREATE TABLE {copy} USING {connector.format} AS SELECT * FROM logs WHERE message INDEXQUERY 'connection'"
    )
    try:
        options = "OPTIONS ('indexing.typemap.message' 'text')"
        spark.sql(f"CREATE TABLE again USING indextables {options} AS SELECT * FROM {copy}")
        spark.sql(f"INSERT INTO again SELECT id + 10, service, message FROM {copy} WHERE id = 3")
        assert rows("SELECT id FROM again WHERE message INDEXQUERY 'closed' ORDER BY id") == [(3,), (13,)]
    finally:
        spark.sql("DROP TABLE IF EXISTS again")
        spark.sql(f"DROP TABLE {copy}")


def test_named_tables_are_written_in_every_way(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE w (id BIGINT, day STRING) USING indextables PARTITIONED BY (day) LOCATION '{tmp_path}/w'"
    )
    try:
        spark.sql("INSERT INTO w VALUES (1, 'a'), (2, 'b')")
        spark.sql("INSERT INTO w (day, id) VALUES ('a', 3)")
        frame = spark.createDataFrame([(4, "b")], "id long, day string")
        frame.write.insertInto("w")
        frame.writeTo("w").append()
        frame.write.format("indextables").mode("append").saveAsTable("w")
        assert rows("SELECT id, count(*) FROM w GROUP BY id ORDER BY id") == [(1, 1), (2, 1), (3, 1), (4, 3)]
        spark.sql("DELETE FROM w WHERE day = 'b'")
        assert rows("SELECT id FROM w ORDER BY id") == [(1,), (3,)]
        spark.sql("INSERT OVERWRITE w VALUES (5, 'c')")
        assert rows("SELECT id, day FROM w") == [(5, "c")]
        assert [row[0] for row in rows("DESCRIBE w")][:2] == ["id", "day"]
    finally:
        spark.sql("DROP TABLE w")
    # The catalog forgets an external table; its files are still there.
    spark.sql(f"CREATE TABLE w USING indextables LOCATION '{tmp_path}/w'")
    assert rows("SELECT id, day FROM w") == [(5, "c")]
    spark.sql("DROP TABLE w")


def test_save_as_table_and_replace(spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
    frame = spark.createDataFrame([(1, "one word")], "id long, message string")
    try:
        frame.write.format("indextables").option("indexing.typemap.message", "text").saveAsTable("s")
        assert rows("SELECT id FROM s WHERE message INDEXQUERY 'word'") == [(1,)]
        frame.write.format("indextables").mode("overwrite").saveAsTable("s")
        assert rows("SELECT count(*) FROM s") == [(1,)]
        with pytest.raises(PySparkException, match=r"(?i)already exists"):
            frame.write.format("indextables").saveAsTable("s")
    finally:
        spark.sql("DROP TABLE IF EXISTS s")


def test_commands_and_versions_of_a_named_table(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]]
) -> None:
    spark.sql("CREATE TABLE v (id BIGINT) USING indextables")
    try:
        spark.sql("INSERT INTO v VALUES (1)")
        spark.sql("INSERT INTO v VALUES (2)")
        assert rows("SELECT count(*) FROM v VERSION AS OF 1") == [(1,)]
        assert rows("SELECT count(*) FROM v VERSION AS OF 0") == [(0,)], "version 0 creates the table"
        assert rows("MERGE SPLITS v")
        assert len(rows("DESCRIBE INDEXTABLES HISTORY v")) >= 3
        assert rows("SELECT count(*) FROM v") == [(2,)]
    finally:
        spark.sql("DROP TABLE v")


def test_statements_that_delta_has_too_reach_tables_of_indextables(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    path = f"{tmp_path}/d"
    spark.sql(f"CREATE TABLE d (id BIGINT) USING indextables LOCATION '{path}'")
    try:
        for number in (1, 2):
            spark.sql(f"INSERT INTO d VALUES ({number})")
        assert rows("OPTIMIZE d")[0][1]["status"] == "success"
        versions = len(rows("DESCRIBE HISTORY d"))
        for table in (f"'{path}'", f"indextables.`{path}`", "default.d"):
            assert rows(f"OPTIMIZE {table}")[0][1]["status"] == "no_action"
            assert len(rows(f"DESCRIBE HISTORY {table}")) == versions
            assert rows(f"VACUUM {table} RETAIN 200 HOURS DRY RUN")
        spark.sql("RESTORE TABLE d TO VERSION AS OF 1")
        assert rows("SELECT id FROM d") == [(1,)]
    finally:
        spark.sql("DROP TABLE d")


def test_statements_of_the_connector_reach_it(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector
) -> None:
    table = connector.table.replace("owners", "changed")
    spark.sql(f"CREATE TABLE {table} (service STRING, owner STRING) USING {connector.format}")
    try:
        spark.sql(f"INSERT INTO {table} VALUES ('web', 'ann'), ('db', 'bob')")
        spark.sql(
            f"MERGE INTO {table} o USING (SELECT DISTINCT service FROM logs WHERE message INDEXQUERY 'disk') l "
            "ON o.service = l.service WHEN MATCHED THEN UPDATE SET o.owner = 'eve'"
        )
        assert rows(f"SELECT owner FROM {table} ORDER BY service") == [("eve",), ("ann",)]
        if connector.format == "delta":
            assert len(rows(f"DESCRIBE HISTORY {table}")) == 3
            assert rows(f"OPTIMIZE {table}")
            first = 1
            spark.sql(f"VACUUM {table}")
        else:
            spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, service)")
            assert rows("CALL lake.system.rewrite_data_files(table => 'db.changed')")
            ((first,),) = rows(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at LIMIT 1")
        assert rows(f"SELECT owner FROM {table} VERSION AS OF {first} ORDER BY service") == [
            ("bob",),
            ("ann",),
        ]
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_tables_of_spark_itself_are_not_touched(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]]
) -> None:
    spark.sql("CREATE TABLE plain (id BIGINT) USING parquet")
    try:
        spark.sql("INSERT INTO plain VALUES (1)")
        assert rows("SELECT id FROM plain JOIN logs USING (id)") == [(1,)]
    finally:
        spark.sql("DROP TABLE plain")
