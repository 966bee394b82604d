"""TPC-H: every query answers over our tables what it answers over the Parquet files that they were loaded from."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from bench.tpch import TABLES, generate
from bench.tpch_queries import Query, queries

SMALL, LARGE = 0.1, 1
NUMBERS = range(1, 23)


class Twins:
    """The tables of one scale, as the generator wrote them and as ours."""

    def __init__(self, spark: SparkSession, folder: Path, scale: float) -> None:
        self.spark = spark
        self.queries = queries(scale)
        generate(folder / "plain", scale)
        self.plain = {name: spark.read.parquet(str(folder / "plain" / name)) for name in TABLES}
        self.ours = {name: self.load(folder / "ours" / name, rows) for name, rows in self.plain.items()}

    def load(self, path: Path, rows: DataFrame) -> DataFrame:
        rows.write.format("indextables").save(str(path))
        return self.spark.read.format("indextables").load(str(path))

    def answer(self, query: Query, tables: dict[str, DataFrame]) -> list[Row]:
        for name, table in tables.items():
            table.createOrReplaceTempView(name)
        try:
            return self.spark.sql(query.sql).collect()
        finally:
            for name in tables:
                self.spark.catalog.dropTempView(name)

    def compare(self, number: int) -> None:
        """Both answers have the same rows, in the order that the query defines.

        Every number of TPC-H is an integer or a decimal, of which sums and averages are exact in any order of
        addition, so nothing is compared with a tolerance.
        """
        query = self.queries[number]
        ours, plain = self.answer(query, self.ours), self.answer(query, self.plain)
        assert plain, "a query without an answer compares nothing"
        assert ours[0].__fields__ == plain[0].__fields__
        assert Counter(ours) == Counter(plain)
        assert columns(ours, query.order) == columns(plain, query.order)


def columns(rows: Sequence[Row], positions: Sequence[int]) -> list[tuple[Any, ...]]:
    return [tuple(row[at] for at in positions) for row in rows]


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return Twins(spark, tmp_path_factory.mktemp("tpch_small"), SMALL)


@pytest.fixture(scope="module")
def large(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return Twins(spark, tmp_path_factory.mktemp("tpch_large"), LARGE)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_holds_the_rows_of_the_specification(small: Twins, name: Any) -> None:
    plain, ours = small.plain[name], small.ours[name]
    assert ours.dtypes == plain.dtypes
    expected = plain.count()
    assert ours.count() == expected
    per_scale = TABLES[name]
    assert per_scale is None or expected == per_scale * SMALL


@pytest.mark.parametrize("number", NUMBERS)
def test_a_query_answers_as_over_parquet(small: Twins, number: int) -> None:
    small.compare(number)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_query_at_scale_1_answers_as_over_parquet(large: Twins, number: int) -> None:
    large.compare(number)
