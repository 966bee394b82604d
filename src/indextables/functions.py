"""Search in the DataFrame API: the SQL operators and functions as functions of columns.

They work in a session set up by `indextables.configure` or `indextables.attach`; `match_queries` in any.

>>> from indextables.functions import indexquery, score  # doctest: +SKIP
>>> df.where(indexquery("message", "timeout OR refused")).orderBy(score().desc()).limit(10)  # doctest: +SKIP
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from indextables.errors import SchemaError
from indextables.read.standing import MATCHING_QUERIES, check_new_column
from indextables.schema.spark import to_arrow
from indextables.standing_queries import StandingQueries

ColumnOrName: TypeAlias = Column | str

__all__ = [
    "indexquery",
    "textsearch",
    "fieldmatch",
    "indexqueryall",
    "score",
    "highlight",
    "histogram",
    "date_histogram",
    "range_buckets",
    "match_queries",
]


def indexquery(column: ColumnOrName, query: str) -> Column:
    """Whether the row matches a query; the column is the default field for unqualified terms."""
    return F.call_function("indexquery", _column(column), F.lit(str(query)))


def textsearch(column: ColumnOrName, query: str) -> Column:
    """As `indexquery`, for a column that is indexed as text; other columns are rejected."""
    return F.call_function("textsearch", _column(column), F.lit(str(query)))


def fieldmatch(column: ColumnOrName, query: str) -> Column:
    """As `indexquery`, for a column whose values are indexed untokenized; other columns are rejected."""
    return F.call_function("fieldmatch", _column(column), F.lit(str(query)))


def indexqueryall(query: str) -> Column:
    """Whether the row matches a query over all text-like columns."""
    return F.call_function("indexqueryall", F.lit(str(query)))


def score() -> Column:
    """The relevance of the row for the searches of the query (BM25)."""
    return F.call_function("indextables_score")


def highlight(column: ColumnOrName) -> Column:
    """A fragment of a text column around the matches of the query's searches, marked by `<b>`; or null."""
    return F.call_function("indextables_highlight", _column(column))


def histogram(column: ColumnOrName, interval: float, offset: float = 0.0) -> Column:
    """The start of the interval that a number is in, a double."""
    return F.call_function(
        "indextables_histogram", _column(column), F.lit(float(interval)), F.lit(float(offset))
    )


def date_histogram(column: ColumnOrName, interval: str, offset: str = "0s") -> Column:
    """The start of the interval (`15m`, `1h`, `7d`) that a date or timestamp is in."""
    return F.call_function("indextables_date_histogram", _column(column), F.lit(interval), F.lit(offset))


def range_buckets(column: ColumnOrName, *buckets: tuple[str, float | None, float | None]) -> Column:
    """The name of the range that a number is in; ranges are (name, from, to), None for no bound.

    >>> range_buckets("status", ("ok", None, 400), ("error", 400, None))  # doctest: +SKIP
    """
    arguments = [
        F.lit(value if value is None or place == 0 else float(value))
        for bucket in buckets
        for place, value in enumerate(bucket)
    ]
    return F.call_function("indextables_range", _column(column), *arguments)


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column


def match_queries(
    frame: DataFrame, queries: Mapping[str, object], *, options: Mapping[str, object] | None = None
) -> DataFrame:
    """A DataFrame, streaming or not, with the column `_matching_queries`: the ids of the queries of each row.

    Rows are indexed once, up to 100,000 at a time, and each query is one search on that index. It works
    without the bridge, too.

    Args:
        frame: the rows.
        queries: a query in the query language for each id, or a mapping with `query` and `field`.
        options: how columns are indexed (`indexing.*`); by default all columns of text word by word.

    Raises:
        PredicateError: a query is malformed or names an unknown field.
        SchemaError: the frame has a column `_matching_queries`.
    """
    standing = StandingQueries(queries, options=options)
    check_new_column(frame.columns)
    # Rows come in the types of Arrow, in which there are no user-defined types, for example.
    with suppress(SchemaError):
        standing.check(to_arrow(frame.schema.json()))
    column = StructField(MATCHING_QUERIES, ArrayType(StringType()))
    function = _MatchFunction(standing)
    with warnings.catch_warnings():
        # The warning concerns PySpark's own use of pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, StructType([*frame.schema.fields, column]))


class _MatchFunction:
    """Finds the queries of the rows of a task; Spark pickles it by reference to this module."""

    def __init__(self, queries: StandingQueries) -> None:
        self._queries = queries

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_match_queries"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        with self._queries as queries:
            yield from queries.match_batches(_prepend(first, batches), first.schema)


def _prepend(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
