"""What Spark pushes into a scan is answered exactly as Spark answers it over Parquet."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.table_pairs import Pair, event_rows

CONDITIONS = [
    "num = 3", "num <> 3", "num > 3", "num >= 3", "num < -3", "num <= -3", "3 < num", "num = 3.0", "num > 2.5",
    "num = 2.5", "num <=> 3", "num <=> NULL", "NOT (num <=> 3)", "num = NULL", "num IS NULL", "num IS NOT NULL",
    "num IN (1, 2, NULL)", "NOT num IN (1, 2, NULL)", "num NOT IN (1, 2)", "num IN (1.0, 2.5)", "num BETWEEN -2 AND 2",
    "num > 5 AND num > 3", "num < 5 OR num IS NULL", "NOT (num > 3 AND x > 0)", "NOT (num > 3 OR level = 'INFO')",
    "tiny < 300", "tiny = 300", "tiny > -129", "small = 32767", "small >= 32768", "big = 9223372036854775807",
    "big > 9223372036854775806", "big < -9223372036854775807", "big > 1e18", "big = 0", "big > 3000000000",
    "real = 0.1", "real > 0.1", "real = CAST(0.1 AS FLOAT)", "real = 0", "real = CAST('NaN' AS FLOAT)",
    "x = 0", "x = -0.0D", "x > 0", "x < 0", "x >= CAST('NaN' AS DOUBLE)", "x < CAST('NaN' AS DOUBLE)", "isnan(x)",
    "x = CAST('Infinity' AS DOUBLE)", "x IN (0, CAST('NaN' AS DOUBLE))", "x <=> CAST('NaN' AS DOUBLE)", "x > 3",
    "price = 1.5", "price > 100", "price >= 99.999", "price < -3.14159", "price IN (1, 2.25)", "wide > 0", "wide < 1e10",
    "flag", "NOT flag", "flag = true", "flag = false", "flag IS NULL", "flag <=> true", "flag OR num > 10",
    "day = '2024-02-29'", "day > DATE '2024-02-28'", "day < '2024-02-28'", "day = DATE '2024-02-28'", "day IN (DATE '2024-02-29', NULL)",
    "ts > '2024-02-29 10:00:00'", "ts >= TIMESTAMP '2024-02-29 00:00:00.000001'", "ts < DATE '2024-02-29'", "ts = TIMESTAMP '2024-02-28 22:00:00'",
    "day = ts", "CAST(ts AS DATE) = '2024-02-29'", "local > TIMESTAMP_NTZ '2024-02-29 10:00:00'", "local = '2024-02-29 03:00:00'",
    "level = 'ERROR'", "level = 'error'", "level <> 'ERROR'", "level > 'INFO'", "level >= 'WARN'", "level < 'F'", "level IN ('INFO', 'x')",
    "lower(level) = 'error'", "level LIKE 'E%'", "level LIKE '%R'", "level LIKE '%RR%'", "level LIKE 'E_R%'", "level NOT LIKE 'E%'", "level ILIKE 'err%'",
    "text = ''", "text = ' '", "text = 'a '", "text = 'A'", "text = 'a_b%c'", "text = 'it\\'s'", "text = 'say \"x\"'", "text = 'C:\\\\temp\\\\x'",
    "text LIKE 'a\\\\_b%'", "text LIKE '%*%'", "text LIKE '%?%'", "startswith(text, 'C:')", "contains(text, ':')", "endswith(text, 'x\"')",
    "text > 'a'", "text >= 'zz'", "length(text) > 3", "text = repeat('zz', 40)", "text LIKE ''", "text IN ('ß', 'ä')",
    "msg = 'alpha'", "msg > 'm'", "msg LIKE 'alpha%'", "msg LIKE '%timeout%'", "msg IS NULL", "msg LIKE '%alpha%beta%'",
    "raw = X'00'", "raw > X'80'", "raw = X''", "raw IS NULL",
    "user.id = 3", "user.id > 5", "user.id IS NULL", "user IS NULL", "user IS NOT NULL AND user.id IS NULL", "user.name = 'alpha'",
    "user.name LIKE 'a%'", "NOT (user.name = 'alpha')", "user.geo.lat > 100", "user.geo.lat IS NULL", "user.id IN (1, 2)",
    "tags IS NULL", "size(tags) = 2", "array_contains(tags, 'alpha')", "get(tags, 0) = 'alpha'", "counts['alpha'] > 0", "counts IS NOT NULL",
    "id % 7 = 0 OR num = 3", "coalesce(num, 99) = 99", "CASE WHEN num > 0 THEN flag ELSE level = 'INFO' END", "num = id", "true", "false", "CAST(NULL AS BOOLEAN)",
    "(num > 0) = flag", "num > 0 AND (level = 'INFO' OR NOT flag) AND day IS NOT NULL", "NOT (NOT (num > 0))", "rand() >= 0",
]  # fmt: skip


@pytest.fixture(scope="module")
def pair(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(spark, tmp_path_factory.mktemp("pushdown"), event_rows())


@pytest.fixture(scope="module")
def in_tasks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same rows, read by tasks and not by the planner."""
    made = Pair(spark, tmp_path_factory.mktemp("tasks"), event_rows(), name="tasks")
    frame = spark.read.format("indextables").option("read.inline.maxRows", "0").load(made.path)
    frame.createOrReplaceTempView(made.ours)
    return made


def answers(pair: Pair, conditions: list[str]) -> Iterator[Any]:
    """The rows that each condition keeps of ours, and of Parquet: there it is evaluated for every row, unpushed."""
    selected = ", ".join(f"({condition}) AS c{i}" for i, condition in enumerate(conditions))
    everything = pair.rows(f"SELECT id, {selected} FROM {{t}}", pair.plain)
    for i, condition in enumerate(conditions):
        found = sorted(pair.rows(f"SELECT id FROM {{t}} WHERE {condition}"))
        yield condition, found, sorted((row[0],) for row in everything if row[i + 1])


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_conditions_keep_the_rows_that_they_keep_of_parquet(pair: Pair, ansi: str) -> None:
    pair.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for condition, ours, theirs in answers(pair, CONDITIONS if ansi == "true" else CONDITIONS[::3]):
            assert ours == theirs, condition
    finally:
        pair.spark.conf.unset("spark.sql.ansi.enabled")


def test_conditions_keep_the_same_rows_in_tasks(in_tasks: Pair) -> None:
    for condition, ours, theirs in answers(in_tasks, CONDITIONS[::6]):
        assert ours == theirs, condition


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_times_are_compared_in_the_sessions_time_zone(pair: Pair, zone: str) -> None:
    pair.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        times = [c for c in CONDITIONS if any(name in c for name in ("ts ", "day", "local", "= ts"))]
        for condition, ours, theirs in answers(pair, times):
            assert ours == theirs, condition
        pair.same("SELECT day, count(*), min(ts), max(local) FROM {t} GROUP BY day")
    finally:
        pair.spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("num = 3", "num = 3"),
        ("level IN ('a', 'b')", "level IN ('a', 'b')"),
        ("NOT (num > 3 OR flag)", "NOT"),
        ("user.id = 3", "user.id = 3"),
        ("level LIKE 'E%'", "startswith(level, 'E')"),
        ("day = '2024-02-29'", "day = DATE '2024-02-29'"),
        ("tiny > 5", "tiny > 5"),
    ],
)
def test_what_is_pushed_is_shown_and_not_evaluated_again(pair: Pair, condition: str, shown: str) -> None:
    plan = pair.plan(f"SELECT id FROM {{t}} WHERE {condition}")
    assert shown in plan
    assert "Filter" not in plan.replace("PushedFilters", "").replace("RuntimeFilters", "")


@pytest.mark.parametrize(
    "condition", ["length(text) > 3", "num + 1 = 3", "lower(level) = 'x'", "array_contains(tags, 'a')"]
)
def test_what_only_spark_can_evaluate_stays_with_spark(pair: Pair, condition: str) -> None:
    plan = pair.plan(f"SELECT id FROM {{t}} WHERE {condition}")
    assert "Filter " in plan


AGGREGATES = [
    "SELECT count(*) FROM {t}", "SELECT count(num), count(*), count(user), count(msg) FROM {t}",
    "SELECT min(num), max(num), sum(num), avg(num) FROM {t}", "SELECT min(x), max(x), min(real), max(real) FROM {t}",
    "SELECT sum(price), avg(price), min(price), max(wide) FROM {t}", "SELECT min(text), max(text), min(level), max(msg) FROM {t}",
    "SELECT min(day), max(ts), min(local), max(flag) FROM {t}", "SELECT sum(tiny), avg(small), sum(small) FROM {t}",
    "SELECT sum(x) FROM {t} WHERE x < 100 AND x > -100", "SELECT avg(x) FROM {t} WHERE x BETWEEN -9 AND 9", "SELECT sum(wide) FROM {t}",
    "SELECT count(DISTINCT level), count(DISTINCT num) FROM {t}", "SELECT count(DISTINCT num, level) FROM {t}",
    "SELECT level, count(*) FROM {t} GROUP BY level", "SELECT level, flag, count(*), sum(num) FROM {t} GROUP BY level, flag",
    "SELECT x, count(*) FROM {t} GROUP BY x", "SELECT real, min(id) FROM {t} GROUP BY real", "SELECT day, max(ts) FROM {t} GROUP BY day",
    "SELECT price, count(*) FROM {t} WHERE price > 500 GROUP BY price", "SELECT raw, count(*) FROM {t} GROUP BY raw", "SELECT text, count(*) FROM {t} GROUP BY text",
    "SELECT user.id, count(*) FROM {t} GROUP BY user.id", "SELECT user, count(*) FROM {t} GROUP BY user", "SELECT tags, count(*) FROM {t} GROUP BY tags",
    "SELECT level, count(*) AS n FROM {t} GROUP BY level HAVING n > 100", "SELECT count(*) FROM {t} WHERE num > 1000", "SELECT sum(num), max(num) FROM {t} WHERE num > 1000",
    "SELECT level, sum(num) FROM {t} WHERE num > 1000 GROUP BY level", "SELECT DISTINCT level FROM {t}", "SELECT num % 3, count(*) FROM {t} GROUP BY num % 3",
    "SELECT count(*) FROM {t} WHERE length(text) > 3", "SELECT count(*) FILTER (WHERE num > 3), count(*) FROM {t}", "SELECT level, avg(num), avg(price) FROM {t} GROUP BY level",
    "SELECT grouping(level), level, count(*) FROM {t} GROUP BY ROLLUP(level)", "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 7)",
    "SELECT max(num) - min(num), count(*) + 1 FROM {t}", "SELECT first(level) IS NOT NULL OR true FROM {t}", "SELECT stddev(num) FROM {t}",
    "SELECT local, count(*) FROM {t} WHERE flag GROUP BY local", "SELECT max(id) FROM {t} WHERE NOT (flag AND num > 0)",
]  # fmt: skip


@pytest.mark.parametrize("which", ["pair", "in_tasks"])
def test_aggregates_are_those_of_parquet(which: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(which)
    for query in AGGREGATES:
        made.same(query)


def test_an_aggregate_is_answered_completely_by_the_planner(pair: Pair) -> None:
    plan = pair.plan("SELECT level, count(*), avg(num) FROM {t} WHERE num > 0 GROUP BY level")
    assert "PushedAggregate" in plan
    assert "(complete)" in plan
    assert "HashAggregate" not in plan


def test_an_aggregate_over_many_rows_is_shared_out_to_tasks(in_tasks: Pair) -> None:
    plan = in_tasks.plan("SELECT level, count(*), sum(num) FROM {t} GROUP BY level")
    assert "PushedAggregate" in plan
    assert "(complete)" not in plan
    assert "HashAggregate" in plan


def test_a_sum_that_could_overflow_is_left_to_spark(pair: Pair) -> None:
    assert "PushedAggregate" not in pair.plan("SELECT sum(big) FROM {t}")
    for table in (pair.ours, pair.plain):
        with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
            pair.ask("SELECT sum(big) FROM {t} WHERE big > 0", table).collect()


def test_an_aggregate_is_not_pushed_below_a_filter_that_spark_evaluates(pair: Pair) -> None:
    assert "PushedAggregate" not in pair.plan("SELECT count(*) FROM {t} WHERE length(text) > 3")


ORDERS = [
    "num", "num DESC", "num NULLS LAST", "num DESC NULLS FIRST", "x", "x DESC", "real DESC NULLS LAST", "price DESC", "wide", "flag, num", "day DESC",
    "ts DESC", "local NULLS LAST", "level, text DESC", "text", "raw DESC", "msg NULLS LAST", "flag DESC NULLS LAST, level, day DESC",
]  # fmt: skip


@pytest.mark.parametrize("which", ["pair", "in_tasks"])
def test_the_first_rows_of_an_order_are_those_of_parquet(which: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(which)
    for order in ORDERS:
        keys = (
            order.replace(" DESC", "")
            .replace(" ASC", "")
            .replace(" NULLS LAST", "")
            .replace(" NULLS FIRST", "")
        )
        made.same(f"SELECT id, {keys} FROM {{t}} ORDER BY {order}, id LIMIT 25", ordered=True)
    made.same("SELECT id, x FROM {t} WHERE num > 3 ORDER BY x DESC, id LIMIT 5", ordered=True)
    assert "PushedTopN" in made.plan("SELECT id FROM {t} WHERE num > 3 ORDER BY x DESC, id LIMIT 5")


def test_an_order_by_a_struct_is_left_to_spark(pair: Pair) -> None:
    assert "PushedTopN" not in pair.plan("SELECT id FROM {t} ORDER BY user LIMIT 5")
    pair.same("SELECT id, user FROM {t} ORDER BY user, id LIMIT 5", ordered=True)


def test_a_limit_is_pushed_and_gives_as_many_rows(pair: Pair, in_tasks: Pair) -> None:
    for made in (pair, in_tasks):
        assert len(made.rows("SELECT id FROM {t} LIMIT 7")) == 7
        assert len(made.rows("SELECT id FROM {t} WHERE num > 0 LIMIT 7")) == 7
        assert len(made.rows("SELECT id FROM {t} LIMIT 100000")) == 600
        assert "PushedLimit: 7" in made.plan("SELECT id FROM {t} LIMIT 7")


SHAPES = [
    "SELECT a.id, b.num FROM {t} a JOIN {t} b ON a.id = b.id WHERE a.num > 3 AND b.flag",
    "SELECT a.id FROM {t} a LEFT JOIN {t} b ON a.num = b.id WHERE b.id IS NULL",
    "SELECT a.id FROM {t} a LEFT SEMI JOIN {t} b ON a.id = b.num", "SELECT a.id FROM {t} a LEFT ANTI JOIN {t} b ON a.id = b.num",
    "SELECT count(*) FROM {t} a CROSS JOIN (SELECT 1 FROM {t} LIMIT 3)", "SELECT id FROM {t} WHERE num > 0 UNION ALL SELECT id FROM {t} WHERE flag",
    "SELECT id FROM {t} WHERE num IN (SELECT num FROM {t} WHERE level = 'INFO' AND num > 15)", "SELECT id FROM {t} o WHERE EXISTS (SELECT 1 FROM {t} i WHERE i.id = o.num)",
    "SELECT (SELECT max(num) FROM {t}) - num AS d FROM {t}", "SELECT id, row_number() OVER (PARTITION BY level ORDER BY num, id) AS r FROM {t}",
    "SELECT level, explode(tags) FROM {t}", "WITH a AS (SELECT * FROM {t} WHERE num > 0) SELECT count(*) FROM a x JOIN a y ON x.id = y.id",
    "SELECT user.name, user.geo.lat FROM {t} WHERE user.id > 3", "SELECT counts['alpha'], get(tags, 0), size(tags) FROM {t}", "SELECT upper(level), num + 1 FROM {t} WHERE num IS NOT NULL",
    "SELECT 1 FROM {t}", "SELECT id FROM {t} WHERE num = (SELECT max(num) FROM {t})", "SELECT id FROM {t} EXCEPT SELECT id FROM {t} WHERE num > 0",
    "SELECT * FROM {t}", "SELECT id, id AS again, num FROM {t}", "SELECT ID, Num, LEVEL FROM {t} WHERE LeVeL = 'INFO'",
]  # fmt: skip


@pytest.mark.parametrize("which", ["pair", "in_tasks"])
def test_queries_of_many_shapes_answer_alike(which: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(which)
    for query in SHAPES:
        made.same(query)
