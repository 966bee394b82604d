"""Companion indexes of tables of a lake connector: built, searched by the source's own name, and kept exact."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.connectors.conftest import Connector

SEARCH = "SELECT id FROM {} WHERE message INDEXQUERY 'disk' ORDER BY id"
WORDS = ["disk full", "all well", "Disk slow", "login failed", None]


def having(*numbers: int) -> list[tuple[int]]:
    return [(number,) for number in numbers if number % 5 in (0, 2)]


@pytest.fixture
def source(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, tmp_path: Path
) -> Iterator[Any]:
    """A table of the connector with 20 rows, whose property names its index; its name, and where both are."""
    name = connector.table.replace("owners", "searched")
    index = tmp_path / "index"
    property_ = f"'indextables.companion.indexroot' = '{index}'"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, message STRING, day STRING) USING {connector.format} "
        f"PARTITIONED BY (day) TBLPROPERTIES ({property_})"
    )
    insert(spark, name, range(20))
    details = {row[0]: row[1] for row in rows(f"DESCRIBE EXTENDED {name}")}
    location = details["Location"].removeprefix("file:")
    yield name, location, index
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def insert(spark: SparkSession, name: str, numbers: range) -> None:
    values = [(number, WORDS[number % 5], f"d{number % 2}") for number in numbers]
    frame = spark.createDataFrame(values, "id long, message string, day string")
    frame.coalesce(1).write.insertInto(name)


def build(
    rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, location: str, index: object
) -> str:
    ((_, _, status, *_),) = rows(
        f"BUILD INDEXTABLES COMPANION FOR {connector.format.upper()} '{location}' "
        f"INDEXING MODES ('message':'text') AT LOCATION '{index}'"
    )
    return str(status)


def test_the_index_has_the_rows_and_types_of_the_source(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    assert build(rows, connector, location, index) == "success"
    companion, table = spark.read.format("indextables").load(str(index)), spark.table(name)
    assert companion.dtypes == table.dtypes
    for condition in ("true", "id > 7", "day = 'd1'", "message IS NULL", "message LIKE '%full'"):
        found, expected = companion.where(condition), table.where(condition)
        assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect())), condition
        assert found.count() == expected.count()
    assert build(rows, connector, location, index) == "no_action"


def test_a_table_is_searched_by_its_own_name(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    with pytest.raises(PySparkException, match="no table"):
        rows(SEARCH.format(name))
    build(rows, connector, location, index)
    assert rows(SEARCH.format(name)) == having(*range(20))
    plan = spark.sql(SEARCH.format(name))._jdf.queryExecution().optimizedPlan().toString()
    assert f"indextables {index}" in plan or "indextables" in plan
    assert rows(f"SELECT count(*) FROM {name} WHERE * INDEXQUERY 'slow' AND day = 'd0'") == [(2,)]
    found = rows(
        f"SELECT s.id, o.owner FROM {name} s JOIN {connector.table} o ON o.service = 'db' "
        "WHERE s.message INDEXQUERY 'failed' AND s.id < 9 ORDER BY 1"
    )
    assert found == [(3, "bob"), (8, "bob")]
    frame = spark.table(name).where("message INDEXQUERY 'disk'").groupBy("day").count()
    assert sorted(map(tuple, frame.collect())) == [("d0", 4), ("d1", 4)]
    # A write of the connector is seen at once, whether or not the index was synced.
    insert(spark, name, range(20, 25))
    assert rows(SEARCH.format(name)) == having(*range(25))
    spark.sql(f"DELETE FROM {name} WHERE id < 10")
    assert rows(SEARCH.format(name)) == having(*range(10, 25))
    spark.sql(f"UPDATE {name} SET message = 'disk again' WHERE id = 13")
    expected = sorted([*having(*range(10, 25)), (13,)])
    assert rows(SEARCH.format(name)) == expected
    assert build(rows, connector, location, index) == "success"
    assert rows(SEARCH.format(name)) == expected
    assert rows(f"SELECT id FROM indextables.`{index}` WHERE message INDEXQUERY 'again'") == [(13,)]


def test_a_query_that_searches_a_table_reads_one_version_of_it(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    build(rows, connector, location, index)
    queries = [
        f"SELECT id FROM {name} a LEFT ANTI JOIN {name} b ON a.id = b.id WHERE a.message INDEXQUERY 'disk'",
        f"SELECT id FROM {name} WHERE message INDEXQUERY 'disk' AND id > (SELECT max(id) FROM {name})",
    ]
    frames = [spark.sql(query) for query in queries]
    insert(spark, name, range(20, 25))
    assert [frame.collect() for frame in frames] == [[], []]
    for frame in frames:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "indextables" in plan
        assert name.split(".")[-1] not in plan


def test_statements_that_change_a_table_search_it(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    build(rows, connector, location, index)
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT a.id FROM {name} a JOIN {name} b ON a.id = b.id "
        f"WHERE a.message INDEXQUERY 'slow' AND b.day = 'd0') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET message = 'disk fast'"
    )
    assert rows(SEARCH.format(name).replace("disk", "fast")) == [(2,), (12,)]
    assert rows(SEARCH.format(name)) == having(*range(20))
    spark.sql(
        f"INSERT INTO {name} SELECT a.id + 100, a.message, b.day FROM {name} a JOIN {name} b ON a.id = b.id "
        "WHERE a.message INDEXQUERY 'fast'"
    )
    assert rows(SEARCH.format(name).replace("disk", "fast")) == [(2,), (12,), (102,), (112,)]
    if connector.format == "iceberg":  # Delta takes no subquery there
        spark.sql(
            f"DELETE FROM {name} WHERE id IN (SELECT a.id FROM {name} a JOIN {name} b ON a.id = b.id "
            "WHERE a.message INDEXQUERY 'fast')"
        )
        assert rows(SEARCH.format(name).replace("disk", "fast")) == []
        assert rows(f"SELECT count(*) FROM {name}") == [(18,)]


def test_earlier_versions_and_other_tables_are_not_answered_by_the_index(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    build(rows, connector, location, index)
    first = 1
    if connector.format == "iceberg":
        ((first,),) = rows(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at LIMIT 1")
    insert(spark, name, range(20, 25))
    assert rows(f"SELECT count(*) FROM {name} VERSION AS OF {first}") == [(20,)]
    with pytest.raises(PySparkException, match="cannot be answered here"):
        rows(f"SELECT id FROM {name} VERSION AS OF {first} WHERE message INDEXQUERY 'disk'")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN level STRING")
    # A column that the query does not use may be missing.
    assert rows(SEARCH.format(name)) == having(*range(25))
    with pytest.raises(PySparkException, match="has no column level of the type string"):
        rows(f"SELECT * FROM {name} WHERE message INDEXQUERY 'disk'")
    assert build(rows, connector, location, index) == "success"
    assert rows(SEARCH.format(name)) == having(*range(25))
    # A table with the properties of another one, as a clone has them.
    other = connector.table.replace("owners", "cloned")
    spark.sql(
        f"CREATE TABLE {other} USING {connector.format} "
        f"TBLPROPERTIES ('indextables.companion.indexroot' = '{index}') AS SELECT * FROM {name} WHERE id < 5"
    )
    try:
        with pytest.raises(PySparkException, match="cannot be searched by the companion index at"):
            rows(SEARCH.format(other))
    finally:
        spark.sql(f"DROP TABLE {other}")


def test_the_catalog_of_indexes_finds_it_by_the_name_of_the_source(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, source: Any
) -> None:
    name, location, index = source
    build(rows, connector, location, index)
    spark.conf.set("spark.sql.catalog.companions", "io.indextables.catalog.IndexTablesCatalog")
    qualified = name if "." in name else f"spark_catalog.default.{name}"
    assert rows(SEARCH.format(f"companions.{qualified}")) == having(*range(20))


def test_a_table_whose_newest_version_only_its_catalog_knows_is_searched(
    spark: SparkSession, rows: Callable[..., list[tuple[Any, ...]]], connector: Connector, tmp_path: Path
) -> None:
    if connector.format != "iceberg":
        pytest.skip("only Iceberg has catalogs that know the newest version")
    name, index = "jdbc.db.searched", tmp_path / "index"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, message STRING, day STRING) USING iceberg")
    try:
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('indextables.companion.indexroot' = '{index}')")
        insert(spark, name, range(20))
        files = f"SELECT file FROM {name}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"
        ((newest,),) = rows(files)
        assert build(rows, connector, newest.removeprefix("file:"), index) == "success"
        assert rows(SEARCH.format(name)) == having(*range(20))
        insert(spark, name, range(20, 25))
        spark.sql(f"DELETE FROM {name} WHERE id < 10")
        assert rows(SEARCH.format(name)) == having(*range(10, 25))
        # The index itself is as of its last sync.
        assert rows(SEARCH.format(f"indextables.`{index}`")) == having(*range(20))
    finally:
        spark.sql(f"DROP TABLE {name}")
