"""The wrong answers of the original, each by the name of what is right."""

import datetime as dt
import decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from tests.spark.small_tables import SmallTables

D = decimal.Decimal
TEXT: dict[str, Any] = {"indexing__typemap__message": "text"}


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallTables:
    return SmallTables(spark, tmp_path_factory.mktemp("bugs"))


@pytest.fixture(scope="module")
def many(spark: SparkSession, desk: SmallTables) -> str:
    """20,000 rows in two splits; every tenth `grp` is null."""
    data = spark.range(20_000).select(
        "id",
        F.when(F.col("id") % 10 != 0, F.col("id") % 7919).alias("grp"),
        F.concat(F.lit("row number "), F.col("id")).alias("message"),
    )
    return desk.save(data, splits=2, **TEXT)


@pytest.fixture(scope="module")
def events(desk: SmallTables) -> str:
    rows = [
        (1, "alpha", 1, "disk error on server one"),
        (2, "Beta", 2, "timeout while reading"),
        (3, None, 6, "error and timeout"),
        (4, "delta", None, None),
        (5, "echo*x", 10, "all is well"),
        (6, "echo?x", 9, "ERROR: it's broken"),
        (7, "echoax", 4, "nothing"),
    ]
    return desk.save(rows, "id INT, name STRING, x INT, message STRING", **TEXT)


# --- 1: a cap on rows ---------------------------------------------------------------------------------


def test_no_task_stops_at_a_number_of_rows(desk: SmallTables, many: str) -> None:
    assert len(desk.ask(f"SELECT id FROM {many}")) == 20_000
    assert desk.ask(f"SELECT count(DISTINCT message) FROM {many}") == [20_000]
    assert desk.ask(f"SELECT max(length(message)) FROM {many} WHERE id % 2 = 0") == [16]
    assert desk.ask(f"SELECT count(*) FROM {many} a JOIN {many} b ON a.id = b.id") == [20_000]
    assert desk.ask(f"SELECT count(*) FROM {many} WHERE message INDEXQUERY 'row' AND id % 3 = 0") == [6667]


# --- 2: groups that vanish ------------------------------------------------------------------------------


def test_no_group_vanishes(desk: SmallTables, many: str) -> None:
    groups = desk.ask(f"SELECT grp, count(*) FROM {many} GROUP BY grp")
    assert len(groups) == 7920
    assert sum(count for _, count in groups) == 20_000


# --- 3: counts and nulls --------------------------------------------------------------------------------


def test_a_count_of_a_column_leaves_nulls_out_and_a_count_of_rows_does_not(
    desk: SmallTables, many: str
) -> None:
    assert desk.ask(f"SELECT count(*), count(grp), count(1) FROM {many}") == [(20_000, 18_000, 20_000)]


def test_the_null_group_is_there(desk: SmallTables, many: str) -> None:
    assert desk.ask(f"SELECT count(*) FROM {many} GROUP BY grp HAVING grp IS NULL") == [2000]


# --- 4: ranges of strings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("name > 'delta'", [5, 6, 7]),
        ("name >= 'delta'", [4, 5, 6, 7]),
        ("name < 'b'", [1, 2]),
        ("NOT name < 'b'", [4, 5, 6, 7]),
        ("name > 'delta' OR x = 1", [1, 5, 6, 7]),
        ("name > 'delta' AND x > 4", [5, 6]),
        ("NOT (name > 'delta' AND x > 4)", [1, 2, 4, 7]),
    ],
)
def test_a_range_of_strings_open_at_one_end_selects(
    desk: SmallTables, events: str, condition: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE {condition}") == ids


# --- 5: two bounds of one side --------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["x > 5 AND x > 3", "x > 3 AND x > 5", "x >= 6 AND x > 0 AND x > 5"])
def test_of_two_bounds_on_one_side_both_hold(desk: SmallTables, events: str, condition: str) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE {condition}") == [3, 5, 6]


# --- 6: null-safe comparison, null in IN, NOT -------------------------------------------------------------


def test_a_null_safe_comparison_with_null_finds_the_nulls(desk: SmallTables, events: str) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE x <=> NULL") == [4]
    assert desk.ask(f"SELECT id FROM {events} WHERE x <=> (SELECT CAST(NULL AS INT))") == [4]
    assert desk.ask(f"SELECT id FROM {events} WHERE NOT (x <=> NULL) AND x < 3") == [1, 2]


def test_a_null_in_a_list_makes_the_answer_unknown(desk: SmallTables, events: str) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE x IN (1, NULL)") == [1]
    assert desk.ask(f"SELECT id FROM {events} WHERE x NOT IN (1, NULL)") == []
    assert desk.ask(f"SELECT id FROM {events} WHERE x NOT IN (1, NULL) OR id = 2") == [2]


def test_not_of_unknown_is_unknown_inside_an_or(desk: SmallTables, events: str) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE NOT (x > 5) OR id = 7") == [1, 2, 7]
    assert desk.ask(f"SELECT id FROM {events} WHERE NOT (x > 5 AND name = 'x') OR id = 4") == [
        1,
        2,
        4,
        5,
        6,
        7,
    ]


# --- 7: signs in LIKE -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "ids"), [("echo*%", [5]), ("echo?x", [6]), ("%*x", [5]), ("%?%", [6]), ("echo_x", [5, 6, 7])]
)
def test_stars_and_question_marks_in_like_are_themselves(
    desk: SmallTables, events: str, pattern: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE name LIKE '{pattern}'") == ids


# --- 8: operators that are not pushed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("message INDEXQUERY 'error' OR length(name) = 4", [1, 2, 3, 6]),
        ("message INDEXQUERY 'error' AND length(name) = 5", [1]),
        ("NOT (message INDEXQUERY 'error' OR length(name) = 4)", [4, 5, 7]),
        ("CASE WHEN message INDEXQUERY 'error' THEN x > 5 ELSE id = 7 END", [3, 6, 7]),
        ("(message INDEXQUERY 'error') = (x > 5)", [2, 3, 6, 7]),
        ("coalesce(message INDEXQUERY 'timeout' AND length(name) > 1, id = 3)", [2, 3]),
    ],
)
def test_a_search_beside_what_only_spark_can_evaluate_keeps_its_meaning(
    desk: SmallTables, events: str, condition: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {events} WHERE {condition}") == ids


def test_a_search_in_the_select_list_is_evaluated(desk: SmallTables, events: str) -> None:
    found = desk.ask(f"SELECT id, message INDEXQUERY 'timeout' AS hit FROM {events}")
    assert [number for number, hit in found if hit] == [2, 3]
    assert desk.ask(f"SELECT count(*) FROM {events} GROUP BY message INDEXQUERY 'error'") == [3, 4]


def test_a_search_over_another_source_fails_and_says_why(desk: SmallTables, spark: SparkSession) -> None:
    spark.createDataFrame([("error",)], "message STRING").createOrReplaceTempView("not_ours")
    assert "indextables" in desk.failure("SELECT * FROM not_ours WHERE message INDEXQUERY 'error'").lower()
    assert "indextables" in desk.failure("SELECT message INDEXQUERY 'error' FROM not_ours").lower()


# --- 9: how SQL is read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [r"it\'s", "it''s"])
def test_a_query_may_hold_quotes(desk: SmallTables, events: str, query: str) -> None:
    sql = f"SELECT id FROM {events} WHERE message INDEXQUERY '{query}'"
    assert desk.ask(sql) == [6]


def test_the_words_of_operators_are_left_alone_in_literals_names_and_comments(
    desk: SmallTables, spark: SparkSession, events: str
) -> None:
    assert desk.ask("SELECT 'message INDEXQUERY \\'error\\''") == ["message INDEXQUERY 'error'"]
    assert desk.ask(f"SELECT id AS `a INDEXQUERY 'b'` FROM {events} WHERE id = 1") == [1]
    assert desk.ask(
        f"SELECT id /* message INDEXQUERY 'x' */ FROM {events} WHERE id = 1 -- x INDEXQUERY 'y'"
    ) == [1]
    assert spark.range(1).selectExpr("'* TEXTSEARCH \"a\"' AS t").collect() == [('* TEXTSEARCH "a"',)]


# --- 10: overwriting by a condition -------------------------------------------------------------------------


def test_overwriting_by_a_condition_keeps_the_rest(desk: SmallTables, spark: SparkSession) -> None:
    name = desk.save([(1, "a"), (2, "b"), (3, "b")], "id INT, part STRING", by=["part"])
    path = desk.path(name)
    spark.sql(f"CREATE TABLE overwritten USING indextables LOCATION '{path}'")
    try:
        more = spark.createDataFrame([(9, "b")], "id INT, part STRING")
        more.writeTo("overwritten").overwrite(F.col("part") == "b")
        assert desk.ask("SELECT id FROM overwritten") == [1, 9]
    finally:
        spark.sql("DROP TABLE overwritten")


# --- 12: values of partitions -------------------------------------------------------------------------------


def test_a_partition_value_survives_its_folder(desk: SmallTables) -> None:
    values = [
        "a/b",
        "a=b",
        "50%",
        "a b",
        "ü",
        "..",
        "a\\b",
        'q"uote',
        "it's",
        "a:b",
        "#?&",
        "null",
        "x\ty",
        "A",
        None,
    ]
    name = desk.save(list(enumerate(values)), "id INT, part STRING", by=["part"])
    assert dict(desk.ask(f"SELECT id, part FROM {name}")) == dict(enumerate(values))
    for number, value in enumerate(values[:-1]):
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        assert desk.ask(f"SELECT id FROM {name} WHERE part = '{quoted}'") == [number]


def test_an_empty_partition_value_is_not_null(desk: SmallTables) -> None:
    name = desk.save([(1, ""), (2, None)], "id INT, part STRING", by=["part"])
    assert desk.ask(f"SELECT id FROM {name} WHERE part = ''") == [1]
    assert desk.ask(f"SELECT id FROM {name} WHERE part IS NULL") == [2]


def test_a_timestamp_partition_keeps_its_fraction(desk: SmallTables) -> None:
    moment = dt.datetime(2024, 3, 10, 7, 0, 0, 123456)  # noqa: DTZ001 - as the session's zone has it
    name = desk.save([(1, moment)], "id INT, part TIMESTAMP", by=["part"])
    assert desk.ask(f"SELECT CAST(part AS STRING) FROM {name}") == [
        desk.spark.createDataFrame([(moment,)], "t TIMESTAMP").selectExpr("CAST(t AS STRING)").first()[0]
    ]
    assert ".123456" in desk.ask(f"SELECT CAST(part AS STRING) FROM {name}")[0]


def test_a_null_partition_is_null_whatever_its_type(desk: SmallTables) -> None:
    values = {
        "INT": 7,
        "DATE": dt.date(2024, 1, 1),
        "DECIMAL(5,2)": D("1.50"),
        "BOOLEAN": True,
        "DOUBLE": 0.5,
    }
    names = [f"p{number}" for number in range(len(values))]
    schema = ", ".join(["id INT", *(f"{name} {kind}" for name, kind in zip(names, values, strict=True))])
    table = desk.save([(1, *values.values()), (2, *[None] * len(values))], schema, by=names)
    assert desk.ask(f"SELECT * FROM {table}") == [(1, *values.values()), (2, *[None] * len(values))]
    for name in names:
        assert desk.ask(f"SELECT id FROM {table} WHERE {name} IS NULL") == [2]
        assert desk.ask(f"SELECT id FROM {table} WHERE {name} IS NOT NULL") == [1]


# --- 19: types that were texts ------------------------------------------------------------------------------


def test_decimals_shorts_and_bytes_are_numbers(desk: SmallTables, spark: SparkSession) -> None:
    rows = [(D("9.00"), 9, 9), (D("10.00"), 10, 10), (D("-1.50"), -1, -1), (None, None, None)]
    name = desk.save(rows, "d DECIMAL(10,2), s SHORT, b BYTE")
    assert spark.table(name).schema.simpleString() == "struct<d:decimal(10,2),s:smallint,b:tinyint>"
    for column in ("d", "s", "b"):
        assert desk.ask(f"SELECT count(*) FROM {name} WHERE {column} > 9") == [1]
        ordered = spark.sql(f"SELECT {column} FROM {name} ORDER BY {column} DESC LIMIT 2").collect()
        assert [int(row[0]) for row in ordered] == [10, 9]
        assert desk.ask(f"SELECT min({column}) < 0 AND max({column}) = 10 FROM {name}") == [True]
    assert desk.ask(f"SELECT sum(d) FROM {name}") == [D("17.50")]


# --- state between queries ----------------------------------------------------------------------------------


def test_a_query_that_failed_leaves_nothing_behind(
    desk: SmallTables, events: str, spark: SparkSession
) -> None:
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT id FROM {events} WHERE message INDEXQUERY 'a AND ('").collect()
    assert desk.ask(f"SELECT count(*) FROM {events}") == [7]
    assert desk.ask(f"SELECT id FROM {events} WHERE message INDEXQUERY 'timeout'") == [2, 3]
