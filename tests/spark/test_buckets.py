"""Bucket functions: pushed into a scan or evaluated row by row, the answer is the same."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from indextables.functions import date_histogram, histogram, range_buckets
from tests.spark.table_pairs import Pair, event_rows

BUCKETS = {
    "indextables_histogram(num, 5)": "num",
    "indextables_histogram(num, 2.5, 1)": "num",
    "indextables_histogram(x, 0.75)": "x",
    "indextables_histogram(big, 1000000000)": "big",
    "indextables_histogram(price, 100)": "price",
    "indextables_date_histogram(ts, '1h')": "ts",
    "indextables_date_histogram(ts, '90m', '10m')": "ts",
    "indextables_date_histogram(day, '2d')": "day",
    "indextables_date_histogram(local, '7h')": "local",
    "indextables_range(num, 'low', NULL, -3, 'mid', -3, 4, 'high', 4, NULL)": "num",
    "indextables_range(x, 'negative', NULL, 0, 'some', 1, 2)": "x",
    "indextables_range(price, 'a', 0, 10.5)": "price",
}


@pytest.fixture(scope="module")
def pair(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(spark, tmp_path_factory.mktemp("buckets"), event_rows(), name="buckets")


def test_buckets_group_alike_pushed_and_row_by_row(pair: Pair) -> None:
    for bucket in BUCKETS:
        groups = pair.same(f"SELECT {bucket} AS b, count(*), min(id), max(num) FROM {{t}} GROUP BY 1")
        assert len(groups) > 1, bucket
        pair.same(f"SELECT {bucket} AS b, level, count(*) FROM {{t}} WHERE flag GROUP BY b, level")


def test_buckets_can_stand_anywhere(pair: Pair) -> None:
    pair.same("SELECT id, indextables_histogram(num, 5) FROM {t}")
    pair.same("SELECT id FROM {t} WHERE indextables_histogram(num, 5) = 5")
    pair.same(
        "SELECT indextables_histogram(num + 1, 5) AS b, count(*) FROM {t} GROUP BY b HAVING count(*) > 20"
    )
    pair.same("SELECT indextables_date_histogram(ts, '1d') AS d, stddev(num) FROM {t} GROUP BY d")
    pair.same("SELECT indextables_histogram(user.id, 3) AS b, count(*) FROM {t} GROUP BY b")
    pair.same(
        "SELECT indextables_range(i, 'few', NULL, 5) AS b, max(i) FROM (SELECT user.id AS i FROM {t}) GROUP BY b"
    )


def test_a_group_by_a_bucket_is_pushed(pair: Pair) -> None:
    plan = pair.plan("SELECT indextables_date_histogram(ts, '1h') AS h, count(*) FROM {t} GROUP BY h")
    assert "PushedAggregate" in plan
    assert "(complete)" in plan


def test_buckets_of_searched_rows_and_then_of_a_partition_do_not_mix(pair: Pair) -> None:
    first = pair.same(
        "SELECT indextables_date_histogram(ts, '1d') AS d, count(*) FROM {t} WHERE num > 0 GROUP BY d"
    )
    pair.same("SELECT level, count(*) FROM {t} WHERE num > 0 GROUP BY level")
    assert (
        pair.same(
            "SELECT indextables_date_histogram(ts, '1d') AS d, count(*) FROM {t} WHERE num > 0 GROUP BY d"
        )
        == first
    )


@pytest.mark.parametrize(
    ("bucket", "reason"),
    [
        ("indextables_histogram(num, 0)", "positive interval"),
        ("indextables_histogram(num, num)", "constant"),
        ("indextables_histogram(level, 5)", "takes numbers"),
        ("indextables_histogram(num, 5, 0, 3)", "HAVING"),
        ("indextables_date_histogram(ts, 'often')", "not a duration"),
        ("indextables_date_histogram(num, '1h')", "a date or a timestamp"),
        ("indextables_range(num, 'a', 0, 5, 'b', 3, 9)", "overlap"),
        ("indextables_range(num, 'a', NULL, NULL)", "no bound"),
        ("indextables_range(num, 'a', 1)", "a start and an end"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(pair: Pair, bucket: str, reason: str) -> None:
    with pytest.raises(AnalysisException, match=reason):
        pair.ask(f"SELECT {bucket}, count(*) FROM {{t}} GROUP BY 1").collect()


def test_the_functions_of_python_are_those_of_sql(pair: Pair) -> None:
    frame = pair.spark.table(pair.ours)
    by_function = [
        frame.groupBy(histogram("num", 5).alias("b")).count(),
        frame.groupBy(date_histogram("ts", "1h").alias("b")).count(),
        frame.groupBy(range_buckets("num", ("low", None, 0), ("high", 0, None)).alias("b")).count(),
    ]
    by_sql = [
        "indextables_histogram(num, 5)",
        "indextables_date_histogram(ts, '1h')",
        "indextables_range(num, 'low', NULL, 0, 'high', 0, NULL)",
    ]
    for made, text in zip(by_function, by_sql, strict=True):
        expected = pair.rows(f"SELECT {text} AS b, count(*) FROM {{t}} GROUP BY b")
        assert sorted(map(repr, map(tuple, made.collect()))) == sorted(map(repr, expected))
