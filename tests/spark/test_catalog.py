"""Tables that a catalog names, and names that are paths."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import indextables
from indextables.spark.compiler import minor


@pytest.fixture
def name(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a table that is gone after the test."""
    made = f"t_{abs(hash(request.node.name)) % 10**8}"
    spark.sql(f"DROP TABLE IF EXISTS {made}")
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {made}")


@pytest.fixture
def partitioned(spark: SparkSession, name: str) -> str:
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, text STRING, day STRING) USING indextables PARTITIONED BY (day)"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 'one', 'a'), (2, 'two', 'b'), (3, 'three', 'c')")
    return name


def rows(spark: SparkSession, name: str) -> list[Any]:
    return sorted((tuple(row) for row in spark.table(name).collect()), key=str)


def test_a_created_table_is_empty_until_rows_come(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, day STRING) USING indextables PARTITIONED BY (day)")
    assert rows(spark, name) == []
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    assert rows(spark, name) == [(1, "a")]


def test_insert_by_position_by_list_by_name_and_into_a_partition(
    spark: SparkSession, partitioned: str
) -> None:
    spark.sql(f"INSERT INTO {partitioned} (day, text, id) VALUES ('d', 'four', 4)")
    spark.sql(f"INSERT INTO {partitioned} BY NAME SELECT 'e' AS day, 5L AS id, 'five' AS text")
    spark.sql(f"INSERT INTO {partitioned} PARTITION (day = 'f') VALUES (6, 'six')")
    assert [row for row in rows(spark, partitioned) if row[0] > 3] == [
        (4, "four", "d"),
        (5, "five", "e"),
        (6, "six", "f"),
    ]


@pytest.mark.skipif(minor(pyspark.__version__) == "4.0", reason="Spark 4.0 wants all columns of such a table")
def test_insert_by_name_fills_columns_that_are_not_there(spark: SparkSession, partitioned: str) -> None:
    spark.sql(f"INSERT INTO {partitioned} BY NAME SELECT 'e' AS day, 5L AS id")
    assert (5, None, "e") in rows(spark, partitioned)


def test_insert_overwrite_replaces_the_table_or_the_partition_it_names(
    spark: SparkSession, partitioned: str
) -> None:
    spark.sql(f"INSERT OVERWRITE {partitioned} PARTITION (day = 'b') VALUES (20, 'new')")
    assert rows(spark, partitioned) == [(1, "one", "a"), (20, "new", "b"), (3, "three", "c")]
    spark.sql(f"INSERT OVERWRITE {partitioned} VALUES (9, 'all', 'z')")
    assert rows(spark, partitioned) == [(9, "all", "z")]


def test_insert_overwrite_with_dynamic_partitions_replaces_those_that_get_rows(
    spark: SparkSession, partitioned: str
) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(f"INSERT OVERWRITE {partitioned} VALUES (20, 'new', 'b')")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(spark, partitioned) == [(1, "one", "a"), (20, "new", "b"), (3, "three", "c")]


def test_insert_replace_where(spark: SparkSession, partitioned: str) -> None:
    spark.sql(f"INSERT INTO {partitioned} REPLACE WHERE day >= 'b' VALUES (20, 'new', 'b')")
    assert rows(spark, partitioned) == [(1, "one", "a"), (20, "new", "b")]


def test_write_to_overwrites_only_what_its_condition_covers(spark: SparkSession, partitioned: str) -> None:
    new = spark.createDataFrame([(20, "new", "b")], "id long, text string, day string")
    new.writeTo(partitioned).overwrite(F.col("day") == "b")
    assert rows(spark, partitioned) == [(1, "one", "a"), (20, "new", "b"), (3, "three", "c")]
    with pytest.raises(AnalysisException, match="cannot be evaluated with the table's log"):
        new.writeTo(partitioned).overwrite(F.length("text") == 3)
    assert len(rows(spark, partitioned)) == 3


def test_write_to_appends_overwrites_partitions_creates_and_replaces(spark: SparkSession, name: str) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, day string")
    frame.writeTo(name).using("indextables").partitionedBy(F.col("day")).create()
    frame.writeTo(name).append()
    frame.limit(1).writeTo(name).overwritePartitions()
    assert rows(spark, name) == [(1, "a"), (2, "b"), (2, "b")]
    frame.writeTo(name).using("indextables").createOrReplace()
    assert rows(spark, name) == [(1, "a"), (2, "b")]


def test_save_as_table_has_four_modes(spark: SparkSession, name: str) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, day string")
    frame.write.format("indextables").partitionBy("day").saveAsTable(name)
    with pytest.raises(AnalysisException, match="already exists"):
        frame.write.format("indextables").saveAsTable(name)
    frame.write.format("indextables").mode("ignore").saveAsTable(name)
    frame.write.format("indextables").mode("append").saveAsTable(name)
    assert len(rows(spark, name)) == 4
    frame.limit(1).write.format("indextables").mode("overwrite").saveAsTable(name)
    assert rows(spark, name) == [(1, "a")]
    frame.write.insertInto(name, overwrite=True)
    assert len(rows(spark, name)) == 2


def test_create_table_as_select_and_not_over_a_table_that_is_there(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "ctas")
    statement = f"CREATE TABLE {name} USING indextables LOCATION '{place}' AS SELECT 1 AS id, 'x y' AS text"
    spark.sql(statement)
    assert rows(spark, name) == [(1, "x y")]
    spark.sql(f"DROP TABLE {name}")
    assert indextables.open(place).count() == 1, "an external table's data stay"
    with pytest.raises(AnalysisException, match="a table exists at"):
        spark.sql(statement)
    assert indextables.open(place).count() == 1


def test_a_table_by_location_brings_its_own_columns(spark: SparkSession, name: str, tmp_path: Path) -> None:
    place = str(tmp_path / "there")
    indextables.write(place, [{"id": 1, "day": "a"}], partition_by=["day"])
    spark.sql(f"CREATE TABLE {name} USING indextables LOCATION '{place}'")
    assert spark.table(name).columns == ["id", "day"]
    indextables.write(place, [{"id": 2, "day": "b", "more": 1.5}], options={"mergeSchema": "true"})
    assert spark.table(name).columns == ["id", "day", "more"], (
        "the log is right, not what the catalog remembers"
    )
    spark.sql(f"INSERT INTO {name} VALUES (3, 'c', 2.5)")
    assert indextables.open(place).partition_columns == ("day",)
    assert indextables.open(place).count() == 3


def test_options_of_a_table_are_used_by_every_write(spark: SparkSession, name: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {name} (id INT, text STRING) USING indextables "
        f"OPTIONS ('indexing.typemap.text' 'text') LOCATION '{tmp_path}/o'"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 'hello world')")
    assert indextables.open(tmp_path / "o").search("hello", field="text").num_rows == 1


@pytest.mark.parametrize(
    "clause",
    ["OPTIONS ('aws.secretKey' 'abc123')", "TBLPROPERTIES ('spark.indextables.aws.secretKey' 'abc123')"],
)
def test_a_catalog_is_not_given_secrets(spark: SparkSession, name: str, clause: str) -> None:
    with pytest.raises(AnalysisException, match=r"would store aws.secretkey in clear text") as raised:
        spark.sql(f"CREATE TABLE {name} (id INT) USING indextables {clause}")
    assert "abc123" not in str(raised.value)


def test_merge_schema_widens_a_named_table(spark: SparkSession, name: str) -> None:
    frame = spark.createDataFrame([(1,)], "id long")
    frame.write.format("indextables").saveAsTable(name)
    wider = frame.withColumn("extra", F.lit("x"))
    with pytest.raises(AnalysisException, match="extra"):
        wider.write.format("indextables").mode("append").saveAsTable(name)
    wider.write.format("indextables").mode("append").option("mergeSchema", "true").saveAsTable(name)
    assert rows(spark, name) == [(1, "x"), (1, None)]
    wider.withColumn("more", F.lit(2)).writeTo(name).option("mergeSchema", "true").append()
    assert spark.table(name).columns == ["id", "extra", "more"]


def test_columns_are_not_altered_behind_the_logs_back(spark: SparkSession, partitioned: str) -> None:
    with pytest.raises(AnalysisException, match="mergeSchema"):
        spark.sql(f"ALTER TABLE {partitioned} ADD COLUMNS (z INT)")
    spark.sql(f"ALTER TABLE {partitioned} SET TBLPROPERTIES ('team' = 'search')")
    assert spark.table(partitioned).columns == ["id", "text", "day"]


def test_delete_and_truncate_take_whole_partitions(spark: SparkSession, partitioned: str) -> None:
    spark.sql(f"DELETE FROM {partitioned} WHERE day = 'a' OR day > 'b'")
    assert rows(spark, partitioned) == [(2, "two", "b")]
    spark.sql(
        f"INSERT INTO {partitioned} SELECT /*+ COALESCE(1) */ * FROM VALUES (4, 'four', 'b'), (5, 'five', 'b')"
    )
    with pytest.raises(AnalysisException, match="covers only some rows"):
        spark.sql(f"DELETE FROM {partitioned} WHERE id = 4")
    assert len(rows(spark, partitioned)) == 3
    spark.sql(f"TRUNCATE TABLE {partitioned}")
    assert rows(spark, partitioned) == []


def test_dropping_a_managed_table_deletes_its_data(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} USING indextables AS SELECT 1 AS id")
    path = spark.sql(f"DESCRIBE EXTENDED {name}").where("col_name = 'Location'").collect()[0][1]
    assert indextables.open(path).count() == 1
    spark.sql(f"DROP TABLE {name}")
    with pytest.raises(indextables.IndexTablesError, match="no table at"):
        indextables.open(path)


def test_a_path_is_a_name(spark: SparkSession, tmp_path: Path) -> None:
    named = f"indextables.`{tmp_path}/p`"
    indextables.write(tmp_path / "p", [{"id": 1, "day": "a"}], partition_by=["day"])
    spark.sql(f"INSERT INTO {named} VALUES (2, 'b')")
    spark.createDataFrame([(3, "c")], "id long, day string").writeTo(named).append()
    assert spark.sql(f"WITH x AS (SELECT * FROM {named}) SELECT max(id) FROM x").collect()[0][0] == 3
    spark.sql(f"DELETE FROM {named} WHERE day = 'a'")
    assert sorted(row.id for row in spark.table(named).collect()) == [2, 3]
    with pytest.raises(AnalysisException, match="no table at"):
        spark.sql(f"SELECT * FROM indextables.`{tmp_path}/none`")


def test_a_table_partitioned_by_an_expression_is_refused(spark: SparkSession, name: str) -> None:
    for create in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
        with pytest.raises(
            AnalysisException, match=r"partitioned by columns as they are, not by years\(day\)"
        ):
            spark.sql(f"{create} {name} (id INT, day DATE) USING indextables PARTITIONED BY (years(day))")
    assert not spark.catalog.tableExists(name)
