"""Search in the DataFrame API: the SQL operators and functions as functions of columns.

They work in a session set up by `indextables.configure` or `indextables.attach`.

>>> from indextables.functions import indexquery, score  # doctest: +SKIP
>>> df.where(indexquery("message", "timeout OR refused")).orderBy(score().desc()).limit(10)  # doctest: +SKIP
"""

from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

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
]


def indexquery(column: ColumnOrName, query: str) -> Column:
    """Whether the row matches a query; the column is the default field for unqualified terms."""
    return F.call_function("indexquery", _column(column), F.lit(query))


def textsearch(column: ColumnOrName, query: str) -> Column:
    """As `indexquery`, for a column that is indexed as text; other columns are rejected."""
    return F.call_function("textsearch", _column(column), F.lit(query))


def fieldmatch(column: ColumnOrName, query: str) -> Column:
    """As `indexquery`, for a column whose values are indexed untokenized; other columns are rejected."""
    return F.call_function("fieldmatch", _column(column), F.lit(query))


def indexqueryall(query: str) -> Column:
    """Whether the row matches a query over all text-like columns."""
    return F.call_function("indexqueryall", F.lit(query))


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
