"""Whether two answers are the same."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.generated_queries import Answer, GeneratedQuery
from tests.spark.generated_rows import Pair


def differences(
    spark: SparkSession, pair: Pair, queries: Iterable[GeneratedQuery], context: str
) -> list[str]:
    """What differs, each with the query that shows it and with the seed that generates it again."""
    found = ((query, difference(spark, query, pair)) for query in queries)
    return [
        f"INDEXTABLES_QUERY_SEED={context}, table {pair.seed}, partitioned by {pair.partitions}\n"
        f"{query.ours(pair.ours)}\n{text}"
        for query, text in found
        if text is not None
    ]


def difference(spark: SparkSession, query: GeneratedQuery, pair: Pair) -> str | None:
    """What differs between the answers of a table and of its plain twin; None if nothing does.

    Where Spark fails on plain rows (a number that cannot be cast), a table may fail too, or not: it may find out
    that no row is wanted before it looks at that one.
    """
    try:
        expected = spark.sql(query.plain(pair.plain)).toArrow()
    except PySparkException:
        return None
    try:
        found = spark.sql(query.ours(pair.ours)).toArrow()
    except PySparkException as error:
        return f"fails: {str(error)[:1000]}"
    if [f.type for f in found.schema] != [f.type for f in expected.schema]:
        return f"types {found.schema.types} instead of {expected.schema.types}"
    if query.answer is Answer.ANY:
        everyone = spark.sql(query.plain(pair.plain, unlimited=True)).toArrow()
        return _any(_rows(found), _rows(expected), _rows(everyone))
    return _same(_rows(found), _rows(expected), ordered=query.answer is Answer.ORDERED)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _plain(value: Any) -> Any:
    """A value that equals itself and can be counted; numbers that differ by their last digits are one."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return "0.0" if value == 0 else f"{value:.12g}"
        case dict():
            return tuple((key, _plain(each)) for key, each in value.items())
        case list() | tuple():
            return tuple(_plain(each) for each in value)
        case _:
            pass
    return value


def _same(found: list[Any], expected: list[Any], *, ordered: bool) -> str | None:
    if ordered and found != expected:
        place = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), "the end")
        return f"{len(found)} rows for {len(expected)}; at {place}: {found[:3]} instead of {expected[:3]}"
    extra, missing = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
    if extra or missing:
        return (
            f"{len(found)} rows for {len(expected)}; too many: {list(extra)[:3]} ({extra.total()}); "
            f"missing: {list(missing)[:3]} ({missing.total()})"
        )
    return None


def _any(found: list[Any], expected: list[Any], everyone: list[Any]) -> str | None:
    if len(found) != len(expected):
        return f"{len(found)} rows instead of {len(expected)}"
    strangers = Counter(found) - Counter(everyone)
    return f"rows that are not in the table: {list(strangers)[:3]}" if strangers else None
