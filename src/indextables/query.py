"""Queries as objects: built from values and combined by operators, without quoting and escaping texts.

A query is a text of the query language (docs/query-language.md), so it is given wherever such a text is: to
`Table.search`, to the functions for DataFrames, to standing queries, and to `INDEXQUERY` in SQL.

>>> from indextables import query as q
>>> (q.term("timeout") | q.phrase("connection refused", slop=2)) & ~q.term("debug", field="level")
Query('(timeout OR "connection refused"~2) AND NOT level:debug')
"""

from collections.abc import Iterable
from datetime import date, time
from ipaddress import IPv4Address, IPv6Address
from numbers import Number
from typing import Any, Self
from uuid import UUID

from indextables.errors import QuerySyntaxError
from indextables.predicate.query_language import (
    MAX_DEPTH,
    combine,
    depth_of,
    needs_parentheses,
    parse_query,
    split_path,
    to_text,
)
from indextables.predicate.tree import (
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
from indextables.records import dataclass

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


@dataclass(frozen=True, slots=True)
class _Parse:
    """What a query means: long queries are combined again and again without being parsed again."""

    node: QueryNode
    # With every operator spelled out, and how deep that is nested.
    text: str
    depth: int


class Query(str):
    """A query. `&`, `|` and `~` combine queries, and texts of the query language beside one.

    Raises:
        QuerySyntaxError: the text is not of the query language.

    >>> Query("timeout OR refused") & "-debug"
    Query('(timeout OR refused) AND NOT debug')
    """

    __slots__ = ("_parse",)
    _parse: _Parse

    def __new__(cls, text: str) -> Self:
        """A query of a text of the query language."""
        node = parse_query(text)
        query = super().__new__(cls, text)
        query._parse = _Parse(node, to_text(node), depth_of(node))
        return query

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text alone."""
        return type(self), (str(self),)

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
        return _query(Negation(self._parse.node))

    def boost(self, factor: float) -> "Query":
        """The same rows, with their score for this part multiplied."""
        if not isinstance(factor, int | float):
            raise QuerySyntaxError(f"the factor of a boost is a number, not {_describe(factor)}")
        return _query(Boost(self._parse.node, float(factor)))

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
    return _query(Phrase(_text(words), _whole("slop", slop), prefix, _path(field)))


def prefix(beginning: str, *, field: str | None = None) -> Query:
    """Rows with a word that begins so."""
    return _query(Prefix(_text(beginning), _path(field)))


def fuzzy(word: str, *, distance: int = 1, field: str | None = None) -> Query:
    """Rows with a word that is one or two edits away."""
    return _query(Fuzzy(_text(word), _whole("distance", distance), _path(field)))


def regex(pattern: str, *, field: str | None = None) -> Query:
    """Rows with a word that a regular expression matches as a whole."""
    return _query(Regex(_text(pattern), _path(field)))


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
    if not isinstance(inclusive, tuple | list) or [type(each) for each in inclusive] != [bool, bool]:
        raise QuerySyntaxError(
            "inclusive says for the lower and the upper bound whether it belongs to the range: (True, False)"
        )
    if lower is None and upper is None:
        return everything() if field is None else exists(field)
    bounds = [None if bound is None else _text(bound) for bound in (lower, upper)]
    closed = [bound is None or of for bound, of in zip(bounds, inclusive, strict=True)]
    return _query(Range(bounds[0], bounds[1], closed[0], closed[1], _path(field)))


def one_of(values: Iterable[object], *, field: str | None = None) -> Query:
    """Rows with one of the values."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise QuerySyntaxError(f"one_of takes a list of values, not {_describe(values)}; for one, use term()")
    return _query(InSet(tuple(map(_text, values)), _path(field)))


def exists(field: str) -> Query:
    """Rows with a value in a field."""
    return _query(Exists(_field(field)))


def everything() -> Query:
    """All rows."""
    return _query(AllDocs())


def all_of(*queries: str) -> Query:
    """Rows that all of the queries match."""
    return _combination(AllOf, " AND ", queries)


def any_of(*queries: str) -> Query:
    """Rows that one of the queries matches, at least."""
    return _combination(AnyOf, " OR ", queries)


def _combination(kind: type[AllOf] | type[AnyOf], operator: str, queries: Iterable[str]) -> Query:
    parts = [_parse(query) for query in queries]
    if not parts:
        raise QuerySyntaxError("there is no query to combine; give one at least")
    node = combine(kind, [part.node for part in parts])
    texts, depth = [], 0
    for part in parts:
        inside = len(parts) > 1 and needs_parentheses(part.node, kind)
        texts.append(f"({part.text})" if inside else part.text)
        depth = max(depth, part.depth + inside)
    if depth > MAX_DEPTH:
        raise QuerySyntaxError(f"the query is nested more than {MAX_DEPTH} deep")
    text = operator.join(texts)
    query = str.__new__(Query, text)
    query._parse = _Parse(node, text, depth)  # noqa: SLF001 - the class is of this module
    return query


def _query(node: QueryNode) -> Query:
    text = to_text(node)
    query = Query(text)
    if _parse(query).node != node:
        raise QuerySyntaxError(
            f"{text} would be another query: a word or value is empty, or a pattern; use phrase() for it"
        )
    return query


def _parse(query: str) -> _Parse:
    if not isinstance(query, Query):
        query = Query(query)
    return query._parse  # noqa: SLF001 - the class is of this module


def _path(field: str | None) -> FieldPath | None:
    return None if field is None else _field(field)


def _field(field: str) -> FieldPath:
    if not isinstance(field, str):
        raise QuerySyntaxError(f"a field is the name of a column, not {_describe(field)}")
    return split_path(field)


def _whole(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 0:
        raise QuerySyntaxError(f"{name} is a whole number, not {_describe(value)}")
    return value


def _text(value: object) -> str:
    """A value as queries write it."""
    match value:
        case str():
            return str.__str__(value)  # of an enumeration of texts the text
        case bool():
            return str(value).lower()
        case date() | time():
            return value.isoformat()
        case Number() | UUID() | IPv4Address() | IPv6Address():
            return str(value)
        case _ if getattr(value, "shape", None) == ():  # a value of NumPy
            return str(value).lower() if type(value).__name__.startswith("bool") else str(value)
    missing = "; ~exists(field) finds rows without a value" if value is None else ""
    raise QuerySyntaxError(
        "a value of a query is a text, number, boolean, date, time, UUID or address, "
        f"not {_describe(value)}{missing}"
    )


def _describe(value: object) -> str:
    return (
        "None" if value is None else f"{value!r}" if isinstance(value, int) else f"a {type(value).__name__}"
    )
