"""Searches far above their table: over outer joins behind projections and views, and from within subqueries."""

import pytest
from pyspark.sql import SparkSession

from tests.spark.small_tables import SmallTables


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallTables:
    spark.range(1, 6).selectExpr("cast(id AS int) k").createOrReplaceTempView("keys")
    return SmallTables(spark, tmp_path_factory.mktemp("joins"))


@pytest.fixture(scope="module")
def notes(desk: SmallTables) -> str:
    """Rows 1 to 3; `message` is text, and null in row 3."""
    rows = [(1, "alpha x"), (2, "beta"), (3, None)]
    return desk.save(rows, "id INT, message STRING", indexing__typemap__message="text")


JOINED = "SELECT k, message FROM keys LEFT JOIN {t} ON k = id"
ABOVE = {
    "subquery": "SELECT {what} FROM ({joined}) WHERE {condition}",
    "common table expression": "WITH j AS ({joined}) SELECT {what} FROM j WHERE {condition}",
    "projection": "SELECT {what} FROM (SELECT k, message FROM ({joined})) WHERE {condition}",
    "renamed twice": "SELECT {what} FROM (SELECT k, m AS message FROM (SELECT k, message AS m FROM ({joined}))) WHERE {condition}",
    "filter": "SELECT {what} FROM (SELECT * FROM ({joined}) WHERE k > 0) WHERE {condition}",
    "right join": "SELECT {what} FROM (SELECT k, message FROM {t} RIGHT JOIN keys ON k = id) WHERE {condition}",
    "full join": "SELECT {what} FROM (SELECT k, message FROM {t} FULL JOIN keys ON k = id) WHERE {condition}",
}


def _above(notes: str, shape: str, what: str, condition: str) -> str:
    joined = JOINED.format(t=notes)
    return ABOVE[shape].format(joined=joined, t=notes, what=what, condition=condition)


@pytest.mark.parametrize("shape", ABOVE)
def test_not_search_above_an_outer_join_keeps_rows_that_the_join_made_up(
    desk: SmallTables, notes: str, shape: str
) -> None:
    assert desk.ask(_above(notes, shape, "k", "NOT message INDEXQUERY 'alpha'")) == [2, 3, 4, 5]
    assert desk.ask(_above(notes, shape, "k", "message INDEXQUERY 'alpha'")) == [1]


@pytest.mark.parametrize("shape", ABOVE)
def test_a_search_above_an_outer_join_is_false_for_rows_that_the_join_made_up(
    desk: SmallTables, notes: str, shape: str
) -> None:
    found = desk.ask(_above(notes, shape, "k, message INDEXQUERY 'alpha'", "TRUE"))
    assert found == [(1, True), (2, False), (3, False), (4, False), (5, False)]


@pytest.mark.parametrize("never", ["FALSE", "id NOT IN (1, NULL)", "id > 1 AND id < 1", "id = NULL"])
def test_a_search_is_false_for_rows_that_a_join_made_up_where_no_row_of_the_table_can_match(
    desk: SmallTables, notes: str, never: str
) -> None:
    table = f"(SELECT * FROM {notes} WHERE {never})"
    joined = f"SELECT k, m AS message FROM (SELECT k, message AS m FROM keys FULL JOIN {table} ON k = id)"
    found = desk.ask(f"SELECT k, message INDEXQUERY 'alpha', highlight(message) FROM ({joined})")
    assert found == [(k, False, None) for k in range(1, 6)]
    assert desk.ask(f"SELECT k FROM ({joined}) WHERE NOT message INDEXQUERY 'alpha'") == [1, 2, 3, 4, 5]
    assert desk.ask(f"SELECT k FROM ({joined}) WHERE message INDEXQUERY 'alpha'") == []
    assert desk.ask(f"SELECT id FROM {table} WHERE message INDEXQUERY 'alpha'") == []


def test_not_search_above_an_outer_join_in_a_view_keeps_rows_that_the_join_made_up(
    desk: SmallTables, notes: str, spark: SparkSession
) -> None:
    spark.sql(f"CREATE OR REPLACE TEMP VIEW joined AS {JOINED.format(t=notes)}")
    assert desk.ask("SELECT k FROM joined WHERE NOT message INDEXQUERY 'alpha'") == [2, 3, 4, 5]
    assert desk.ask("SELECT count_if(message INDEXQUERY 'alpha') FROM joined") == [1]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("EXISTS (SELECT 1 FROM keys WHERE k = t.id AND t.message INDEXQUERY 'alpha')", [1]),
        ("NOT EXISTS (SELECT 1 FROM keys WHERE k = t.id AND t.message INDEXQUERY 'alpha')", [2, 3]),
        ("id IN (SELECT k FROM keys WHERE t.message INDEXQUERY 'alpha')", [1]),
        ("id NOT IN (SELECT k FROM keys WHERE t.message INDEXQUERY 'alpha')", [2, 3]),
        ("EXISTS (SELECT 1 FROM keys WHERE k = t.id AND t.message INDEXQUERY 'alpha') OR id = 2", [1, 2]),
        ("EXISTS (SELECT 1 FROM keys WHERE k = t.id AND (t.message INDEXQUERY 'alpha' OR k = 3))", [1, 3]),
        ("EXISTS (SELECT 1 FROM keys WHERE k > t.id AND NOT t.message INDEXQUERY 'alpha')", [2, 3]),
    ],
)
def test_a_search_of_the_outer_table_in_a_subquery_is_answered(
    desk: SmallTables, notes: str, condition: str, expected: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {notes} t WHERE {condition}") == expected


@pytest.mark.parametrize("correlation", ["id = k", "id <= k", "id < k + 1 AND id > 0"])
def test_a_search_within_a_correlated_scalar_subquery_is_answered(
    desk: SmallTables, notes: str, correlation: str
) -> None:
    found = desk.ask(
        f"SELECT k, (SELECT count(*) FROM {notes} WHERE {correlation} AND message INDEXQUERY 'alpha') FROM keys"
    )
    later = 0 if correlation == "id = k" else 1
    assert found == [(1, 1), *((k, later) for k in range(2, 6))]


def test_a_search_of_the_outer_table_in_a_scalar_subquery_is_answered(desk: SmallTables, notes: str) -> None:
    sql = f"SELECT id, (SELECT count(*) FROM keys WHERE k = t.id AND t.message INDEXQUERY 'alpha') FROM {notes} t"
    assert desk.ask(sql) == [(1, 1), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (
            "EXISTS (SELECT 1 FROM {t} i WHERE i.id = o.id AND (o.id = 3 OR i.message INDEXQUERY 'alpha'))",
            [1, 3],
        ),
        (
            "EXISTS (SELECT 1 FROM {t} i WHERE i.id > o.id AND (o.message INDEXQUERY 'alpha' OR i.message INDEXQUERY 'alpha'))",
            [1],
        ),
        (
            "NOT EXISTS (SELECT 1 FROM {t} i WHERE i.id = o.id AND i.message INDEXQUERY 'alpha' = (o.id < 3))",
            [2],
        ),
        ("id IN (SELECT i.id FROM {t} i WHERE o.id = 2 OR i.message INDEXQUERY 'alpha')", [1, 2]),
        ("id NOT IN (SELECT i.id FROM {t} i WHERE o.id = 2 OR i.message INDEXQUERY 'alpha')", [3]),
    ],
)
def test_a_condition_of_a_subquery_mixes_a_search_of_its_table_with_outer_columns(
    desk: SmallTables, notes: str, condition: str, expected: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {notes} o WHERE {condition.format(t=notes)}") == expected
