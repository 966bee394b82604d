"""Conditions at the edge of what Spark can say: deep, wide, with values that other engines cannot hold."""

import functools
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it
from pyspark.sql.column import Column

import indextables

ROWS = 6000


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table of ours, and the same rows for Spark alone."""
    path = str(tmp_path_factory.mktemp("conditions") / "numbers")
    ids = pa.array(range(ROWS), pa.int64())
    rows = {
        "id": ids,
        "small": pa.array([i % 100 for i in range(ROWS)], pa.int32()),
        "word": [f"w{i}" for i in range(ROWS)],
    }
    indextables.write(path, pa.table(rows))
    ours = spark.read.format("indextables").load(path)
    plain = spark.range(ROWS).selectExpr("id", "cast(id % 100 AS int) small", "concat('w', id) word")
    return ours, plain


@pytest.fixture(params=["0", "4096"], ids=["by tasks", "inline"])
def read_by(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.indextables.read.inline.maxRows", request.param)
    yield
    spark.conf.unset("spark.indextables.read.inline.maxRows")


def _ids(data: Any) -> list[Any]:
    return sorted(row.id for row in data.select("id").collect())


# --- deep and wide ------------------------------------------------------------------------------------


def _left_deep(terms: list[Any], join: Callable[..., Any]) -> Any:
    return functools.reduce(join, terms)


def _nested_not(depth: int) -> Column:
    """NOT (a AND NOT (b AND NOT ...)), which Spark cannot flatten."""
    condition = F.col("id") > 0
    for level in range(depth):
        condition = ~((F.col("id") != level) & condition)
    return condition


DEEP = {
    "or of 500": lambda: _left_deep([F.col("id") == 3 * i for i in range(500)], operator.or_),
    "alternating 200": lambda: functools.reduce(
        lambda made, i: (made | (F.col("id") == i)) if i % 2 else (made & (F.col("small") < 90 + i % 5)),
        range(200),
        F.col("id") < 50,
    ),
    "nested not 250": lambda: _nested_not(250),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_conditions_are_answered_as_spark_answers_them(numbers: Any, name: str) -> None:
    ours, plain = numbers
    assert _ids(ours.where(DEEP[name]())) == _ids(plain.where(DEEP[name]()))


def test_a_wide_or_is_answered_where_spark_itself_can_nest_it(numbers: Any, spark: SparkSession) -> None:
    ours, _ = numbers
    terms = [F.col("id") == 2 * i for i in range(2000)]
    while len(terms) > 1:  # as a balanced tree, which Spark's own stack can hold
        terms = [functools.reduce(operator.or_, terms[i : i + 2]) for i in range(0, len(terms), 2)]
    assert _ids(ours.where(terms[0])) == list(range(0, 4000, 2))


@pytest.mark.parametrize("count", [1, 17, 1000])
@pytest.mark.parametrize("column", ["id", "small", "word"])
def test_lists_of_any_length_are_answered(numbers: Any, column: str, count: int) -> None:
    ours, plain = numbers
    values = [f"w{5 * i}" if column == "word" else 5 * i for i in range(count)]
    for condition in (F.col(column).isin(values), ~F.col(column).isin(values)):
        assert ours.where(condition).count() == plain.where(condition).count()
    condition = F.col(column).isin(values)
    assert _ids(ours.where(condition)) == _ids(plain.where(condition))


def test_a_long_list_with_null_is_never_false(numbers: Any, spark: SparkSession) -> None:
    ours, _ = numbers
    ours.createOrReplaceTempView("conditions_numbers")
    values = ", ".join(str(i) for i in range(100))
    assert (
        spark.sql(f"SELECT count(*) FROM conditions_numbers WHERE id NOT IN ({values}, NULL)").collect()[0][0]
        == 0
    )
    assert (
        spark.sql(f"SELECT count(*) FROM conditions_numbers WHERE id IN ({values}, NULL)").collect()[0][0]
        == 100
    )


def test_a_long_list_is_shortened_in_the_plan(numbers: Any) -> None:
    ours, _ = numbers
    said = ours.where(F.col("id").isin(list(range(5000))))._jdf.queryExecution().toString()
    assert "values the first 100]" in said


# --- texts that are not UTF-8 -------------------------------------------------------------------------


def test_a_text_that_is_not_utf8_equals_no_other_text(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "texts")
    spark.sql("SELECT 1 id, '\ufffd' s UNION ALL SELECT 2, 'a'").coalesce(1).write.format("indextables").save(
        path
    )
    spark.read.format("indextables").load(path).createOrReplaceTempView("texts")

    def ask(condition: str) -> list[Any]:
        return [row.id for row in spark.sql(f"SELECT id FROM texts WHERE {condition} ORDER BY id").collect()]

    assert ask("s = cast(X'FF' AS STRING)") == []
    assert ask("s <> cast(X'FF' AS STRING)") == [1, 2]
    assert ask("s IN (cast(X'FF' AS STRING), 'a')") == [2]
    assert ask("startswith(s, cast(X'FF' AS STRING))") == []
    assert ask("s < cast(X'FF' AS STRING)") == [1, 2]
    values = ", ".join(f"'x{i}'" for i in range(50))
    assert ask(f"s IN ({values}, cast(X'FF' AS STRING))") == []
    with pytest.raises(PySparkException, match="not valid UTF-8"):
        ask("indexquery(s, cast(X'FF' AS STRING))")


# --- timestamps beyond those of Python ----------------------------------------------------------------

SENTINELS = [
    "TIMESTAMP '9999-12-31 23:59:59'",
    "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "TIMESTAMP '0001-01-01 00:00:00'",
    "timestamp_micros(9200000000000000000)",
    "timestamp_micros(-9200000000000000000)",
    "TIMESTAMP '2024-01-01 00:00:00'",
]


@pytest.mark.parametrize("zone", ["America/New_York"])
def test_sentinel_timestamps_are_compared_as_spark_compares_them(
    spark: SparkSession, tmp_path: Path, zone: str, read_by: None
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = " UNION ALL ".join(
            f"SELECT {i} id, 'c{i}' name, {text} at, cast({text} AS TIMESTAMP_NTZ) local"
            for i, text in enumerate(SENTINELS)
        )
        data = spark.sql(f"{rows} UNION ALL SELECT 99, 'c99', NULL, NULL").coalesce(1)
        path = str(tmp_path / "sentinels")
        data.write.format("indextables").save(path)
        spark.read.format("indextables").load(path).createOrReplaceTempView("sentinels")
        data.createOrReplaceTempView("sentinels_plain")
        listed = ", ".join(SENTINELS)
        conditions = [
            f"at = {SENTINELS[0]}",
            f"at < {SENTINELS[3]}",
            f"at >= {SENTINELS[4]}",
            f"at <=> {SENTINELS[1]}",
        ]
        conditions += [
            f"at IN ({listed})",
            f"at NOT IN ({listed})",
            f"at BETWEEN {SENTINELS[2]} AND {SENTINELS[0]}",
        ]
        conditions += [f"local <= cast({SENTINELS[0]} AS TIMESTAMP_NTZ)"]
        conditions += [f"at = {each} OR name = 'c2'" for each in SENTINELS]
        conditions += [f"at IN ({listed}) OR name = 'c99'", f"NOT (at = {SENTINELS[3]} AND name = 'c3')"]
        for condition in conditions:
            found, expected = (
                sorted(r.id for r in spark.sql(f"SELECT id FROM {view} WHERE {condition}").collect())
                for view in ("sentinels", "sentinels_plain")
            )
            assert found == expected, condition
        found, expected = (
            spark.sql(
                f"SELECT max(at), min(at), count(at), count(DISTINCT at) FROM {view} WHERE at > {SENTINELS[2]}"
            )
            .selectExpr("unix_micros(`max(at)`)", "unix_micros(`min(at)`)", "`count(at)`")
            .collect()
            for view in ("sentinels", "sentinels_plain")
        )
        assert found == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
