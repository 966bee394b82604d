"""Writing to tables of a catalog: what they were declared with holds, and rows find their columns by name."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import SparkSession

import indextables

_numbers = itertools.count()


@pytest.fixture
def declared(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Makes tables of a catalog, and forgets them."""
    made = []

    def table(columns: Any) -> str:
        name = f"declared_{next(_numbers)}"
        spark.sql(f"CREATE TABLE {name} ({columns}) USING indextables LOCATION '{tmp_path}/{name}'")
        made.append(name)
        return name

    yield table
    for name in made:
        spark.sql(f"DROP TABLE {name}")


def rows(spark: SparkSession, name: Any) -> list[Any]:
    return sorted((tuple(row) for row in spark.table(name).collect()), key=str)


def test_what_must_not_be_null_is_refused_after_the_first_write_too(
    spark: SparkSession, declared: Callable[..., Any]
) -> None:
    name = declared("a INT NOT NULL, b STRING")
    for number in (1, 2):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, NULL)")
        with pytest.raises(SparkRuntimeException, match="NOT_NULL_ASSERT_VIOLATION"):
            spark.sql(f"INSERT INTO {name} SELECT if(id > 0, NULL, id), 'x' FROM range(2)")
    assert rows(spark, name) == [(1, None), (2, None)]
    assert [field.nullable for field in spark.table(name).schema] == [False, True]


def test_by_path_what_must_not_be_null_is_refused_with_a_sentence(
    spark: SparkSession, declared: Callable[..., Any], tmp_path: Path
) -> None:
    name = declared("a INT NOT NULL, b STRING")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'x')")
    bad = spark.sql("SELECT CAST(if(id > 0, NULL, id) AS INT) AS a, 'y' AS b FROM range(0, 2, 1, 1)")
    with pytest.raises(SparkRuntimeException) as refused:
        bad.write.format("indextables").mode("append").save(f"{tmp_path}/{name}")
    assert str(refused.value) == "column a must not be null, but 1 of 2 rows are"
    assert rows(spark, name) == [(1, "x")]


def test_char_and_varchar_and_comments_outlive_the_first_write(
    spark: SparkSession, declared: Callable[..., Any]
) -> None:
    name = declared("c CHAR(3) COMMENT 'padded', v VARCHAR(4)")
    for _ in range(2):
        spark.sql(f"INSERT INTO {name} VALUES ('a', 'bcde'), (NULL, NULL)")
        with pytest.raises(SparkRuntimeException, match="EXCEED_LIMIT_LENGTH"):
            spark.sql(f"INSERT INTO {name} VALUES ('abcd', 'x')")
    assert rows(spark, name) == [("a  ", "bcde")] * 2 + [(None, None)] * 2
    assert spark.sql(f"DESCRIBE {name}").first().comment == "padded"


def test_defaults_outlive_the_first_write(spark: SparkSession, declared: Callable[..., Any]) -> None:
    name = declared("a INT, b STRING DEFAULT 'none'")
    for number in (1, 2):
        spark.sql(f"INSERT INTO {name} (a) VALUES ({number})")
    assert rows(spark, name) == [(1, "none"), (2, "none")]


def test_rows_find_their_columns_by_name(spark: SparkSession, declared: Callable[..., Any]) -> None:
    name = declared("a INT, b STRING, s STRUCT<x: INT, y: STRING>")
    spark.sql(f"INSERT INTO {name} BY NAME SELECT named_struct('y', 'q', 'x', 1) AS s, 'b' AS b, 1 AS a")
    spark.sql(f"INSERT INTO {name} BY NAME SELECT 'c' AS B, 2 AS A")
    spark.sql(f"INSERT INTO {name} (b, a) SELECT 'd', 3")
    spark.sql("SELECT 'e' AS b, named_struct('y', 'r', 'x', 2) AS s, 4 AS a").writeTo(name).append()
    assert rows(spark, name) == [(1, "b", (1, "q")), (2, "c", None), (3, "d", None), (4, "e", (2, "r"))]
    with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
        spark.sql(f"INSERT INTO {name} BY NAME SELECT 1 AS a, 2 AS other")


def test_merge_schema_adds_fields_within_columns(
    spark: SparkSession, declared: Callable[..., Any], tmp_path: Path
) -> None:
    name = declared("id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<v: INT>>")
    spark.sql(f"INSERT INTO {name} VALUES (1, struct(1), array(struct(1)), map('k', struct(1)))")
    wider = spark.sql(
        "SELECT 2 AS id, named_struct('a', 2, 'b', named_struct('c', 'new')) AS s, "
        "array(named_struct('x', 2, 'y', 3)) AS l, map('k', named_struct('v', 4, 'w', 5)) AS m, 6 AS more"
    )
    with pytest.raises(AnalysisException, match="TOO_MANY_DATA_COLUMNS"):
        wider.writeTo(name).append()
    with pytest.raises(AnalysisException, match="EXTRA_STRUCT_FIELDS"):
        wider.drop("more").writeTo(name).append()
    wider.writeTo(name).option("mergeSchema", "true").append()
    wider.write.format("indextables").mode("append").option("mergeSchema", "true").save(f"{tmp_path}/{name}")
    new = (2, (2, ("new",)), [(2, 3)], {"k": (4, 5)}, 6)
    assert rows(spark, name) == [(1, (1, None), [(1, None)], {"k": (1, None)}, None), new, new]
    assert indextables.open(f"{tmp_path}/{name}").count("s.b.c = 'new'") == 2


def test_merge_schema_applies_in_all_places_and_spellings(
    spark: SparkSession, declared: Callable[..., Any]
) -> None:
    """By name as by path: the option of a call, the property of a table, the conf of a session."""
    name = declared("a INT")
    spark.sql("SELECT 1 AS a, 'b' AS b").writeTo(name).option("mergeSchema", "1").append()
    spark.sql("SELECT 2 AS a, 'c' AS c").writeTo(name).option(
        "spark.indextables.MERGESCHEMA", "TRUE"
    ).append()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('spark.indextables.mergeSchema' = 'true')")
    spark.sql("SELECT 3 AS a, 'd' AS d").writeTo(name).append()
    with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
        spark.sql("SELECT 4 AS a, 'x' AS x").writeTo(name).option("mergeSchema", "0").append()
    assert rows(spark, name) == [(1, "b", None, None), (2, None, "c", None), (3, None, None, "d")]


def test_merge_schema_of_the_session_applies_to_tables_by_name(
    spark: SparkSession, declared: Callable[..., Any], tmp_path: Path
) -> None:
    name = declared("a INT")
    spark.sql(f"INSERT INTO {name} VALUES (0)")
    spark.conf.set("spark.indextables.mergeSchema", "true")
    try:
        spark.sql("SELECT 1 AS a, 'b' AS b").writeTo(name).append()
        spark.sql(f"INSERT INTO {name} BY NAME SELECT 'c' AS c, 2 AS a")
        spark.sql("SELECT 3 AS a, 'd' AS d").write.format("indextables").mode("append").saveAsTable(name)
        spark.sql("SELECT 4 AS a, 'e' AS e").writeTo(f"indextables.`{tmp_path}/{name}`").append()
    finally:
        spark.conf.unset("spark.indextables.mergeSchema")
    with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
        spark.sql(f"INSERT INTO {name} BY NAME SELECT 5 AS a, 'x' AS x")
    assert spark.table(name).columns == ["a", "b", "c", "d", "e"]
    assert [row[0] for row in rows(spark, name)] == [0, 1, 2, 3, 4]
