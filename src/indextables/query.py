"""Queries as objects: built from values and combined by operators, without quoting and escaping texts.

A query is a text of the query language (docs/query-language.md), so it is given wherever such a text is: to
`Table.search`, to the functions for DataFrames, to standing queries, and to `INDEXQUERY` in SQL.

>>> from indextables import query as q
>>> (q.term("timeout") | q.phrase("connection refused", slop=2)) & ~q.term("debug", field="level")
Query('(timeout OR "connection refused"~2) AND NOT level:debug')
"""

from collections.abc import Iterable
from datetime import date
from typing import Self

from indextables.errors import QuerySyntaxError
from indextables.predicate.query_language import combined, parse_query, split_path, to_text
from indextables.predicate.query_tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    InSet,
    Negation,
    Phrase,
    Prefix,
    QueryNode,
    Range,
    Regex,
    Term,
)

__all__ = [
    "Query",
    "term",
    "phrase",
    "prefix",
    "fuzzy",
    "regex",
    "between",
    "one_of",
    "exists",
    "everything",
    "all_of",
    "any_of",
]


class Query(str):
    """A query. `&`, `|` and `~` combine queries, and texts of the query language beside one.

    Raises:
        QuerySyntaxError: the text is not of the query language.

    >>> Query("timeout OR refused") & "-debug"
    Query('(timeout OR refused) AND NOT debug')
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """A query of a text of the query language."""
        parse_query(text)
        return super().__new__(cls, text)

    def __and__(self, other: str) -> "Query":
        """Rows that both match."""
        return all_of(self, other)

    def __rand__(self, other: str) -> "Query":
        """Rows that both match."""
        return all_of(other, self)

    def __or__(self, other: str) -> "Query":
        """Rows that one of them matches."""
        return any_of(self, other)

    def __ror__(self, other: str) -> "Query":
        """Rows that one of them matches."""
        return any_of(other, self)

    def __invert__(self) -> "Query":
        """Rows that it does not match."""
        return _query(Negation(parse_query(self)))

    def boost(self, factor: float) -> "Query":
        """The same rows, with their score for this part multiplied."""
        return _query(Boost(parse_query(self), float(factor)))

    def __repr__(self) -> str:
        """The text, as Python writes it."""
        return f"Query({str(self)!r})"


def term(word: object, *, field: str | None = None) -> Query:
    """Rows with a word; in a field of numbers, dates or addresses, with this value.

    A field within a struct is named with a dot: `user.name`; a backslash precedes a dot of a name.
    """
    return _query(Term(_text(word), _path(field)))


def phrase(words: str, *, slop: int = 0, prefix: bool = False, field: str | None = None) -> Query:
    """Rows with words next to each other; in a field that is not tokenized, with exactly this value.

    Args:
        words: the words.
        slop: how many moves between the words are allowed.
        prefix: whether the last word is the beginning of one; not together with `slop`.
        field: the field; by default that of the search.
    """
    return _query(Phrase(words, slop, prefix, _path(field)))


def prefix(beginning: str, *, field: str | None = None) -> Query:
    """Rows with a word that begins so."""
    return _query(Prefix(beginning, _path(field)))


def fuzzy(word: str, *, distance: int = 1, field: str | None = None) -> Query:
    """Rows with a word that is one or two edits away."""
    return _query(Fuzzy(word, distance, _path(field)))


def regex(pattern: str, *, field: str | None = None) -> Query:
    """Rows with a word that a regular expression matches as a whole."""
    return _query(Regex(pattern, _path(field)))


def between(
    lower: object = None,
    upper: object = None,
    *,
    field: str | None = None,
    inclusive: tuple[bool, bool] = (True, True),
) -> Query:
    """Rows with a value from a lower to an upper bound; None for no bound.

    >>> between(500, field="status")
    Query('status:["500" TO *]')
    """
    if lower is None and upper is None:
        return everything() if field is None else exists(field)
    bounds = [None if bound is None else _text(bound) for bound in (lower, upper)]
    closed = [bound is None or of for bound, of in zip(bounds, inclusive, strict=True)]
    return _query(Range(bounds[0], bounds[1], closed[0], closed[1], _path(field)))


def one_of(values: Iterable[object], *, field: str | None = None) -> Query:
    """Rows with one of the values."""
    return _query(InSet(tuple(map(_text, values)), _path(field)))


def exists(field: str) -> Query:
    """Rows with a value in a field."""
    return _query(Exists(split_path(field)))


def everything() -> Query:
    """All rows."""
    return _query(AllDocs())


def all_of(*queries: str) -> Query:
    """Rows that all of the queries match."""
    return _query(combined(AllOf, _parts(queries)))


def any_of(*queries: str) -> Query:
    """Rows that one of the queries matches, at least."""
    return _query(combined(AnyOf, _parts(queries)))


def _parts(queries: Iterable[str]) -> list[QueryNode]:
    parts = [parse_query(query) for query in queries]
    if not parts:
        raise QuerySyntaxError("there is no query to combine; give one at least")
    return parts


def _query(node: QueryNode) -> Query:
    text = to_text(node)
    if parse_query(text) != node:
        raise QuerySyntaxError(
            f"{text} would be another query: a word or value is empty, or a pattern; use phrase() for it"
        )
    return Query(text)


def _path(field: str | None) -> FieldPath | None:
    return None if field is None else split_path(field)


def _text(value: object) -> str:
    """A value as queries write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)
