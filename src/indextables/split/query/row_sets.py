"""Sets of rows that an index returns for a condition: where it is true, false, or needs a recheck.

A condition is true, false or unknown for a row. A `Side` is a superset of rows together with the rows of
which the index is not sure; a `Verdict` has a side for *true* and one for *false*, and a row on neither is
unknown. So NOT swaps the sides, AND and OR combine them, and three-valued logic needs no case of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import tantivy
from tantivy import Occur, Query

# Told apart by identity: combining with them costs nothing.
ALL: Query = Query.all_query()
NOTHING: Query = Query.empty_query()


def every(queries: Iterable[Query]) -> Query:
    """Rows that all of the queries match."""
    parts: dict[int, Query] = {}
    for query in queries:
        if query is NOTHING:
            return NOTHING
        if query is not ALL:
            parts[id(query)] = query
    if len(parts) < 2:
        return next(iter(parts.values()), ALL)
    return Query.boolean_query([(Occur.Must, part) for part in parts.values()])


def either(queries: Iterable[Query]) -> Query:
    """Rows that at least one of the queries matches."""
    parts: dict[int, Query] = {}
    for query in queries:
        if query is ALL:
            return ALL
        if query is not NOTHING:
            parts[id(query)] = query
    if len(parts) < 2:
        return next(iter(parts.values()), NOTHING)
    return Query.boolean_query([(Occur.Should, part) for part in parts.values()])


def without(query: Query, other: Query) -> Query:
    """Rows that the query matches and the other does not."""
    if other is NOTHING or query is NOTHING:
        return query
    if other is ALL or other is query:
        return NOTHING
    return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, other)])


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Rows that may be on this side: no row of it is missing; those in `doubt` may not belong to it."""

    rows: tantivy.Query
    doubt: tantivy.Query = NOTHING

    @property
    def exact(self) -> bool:
        """Whether the index is sure of every row."""
        return self.doubt is NOTHING or self.rows is NOTHING

    @property
    def all_unsure(self) -> bool:
        """Whether every row has to be looked at."""
        return self.doubt is ALL or self.doubt is self.rows

    @property
    def sure(self) -> tantivy.Query:
        """The rows that surely are on this side."""
        return without(self.rows, self.doubt)

    @property
    def unsure(self) -> tantivy.Query:
        """The rows that have to be looked at."""
        return every((self.rows, self.doubt))


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What the index says about a condition."""

    true: Side
    false: Side


UNKNOWN = Verdict(Side(NOTHING), Side(NOTHING))
TRUE = Verdict(Side(ALL), Side(NOTHING))
FALSE = Verdict(Side(NOTHING), Side(ALL))
# The index cannot tell: every row has to be looked at.
ANYTHING = Verdict(Side(ALL, ALL), Side(ALL, ALL))


def plain(rows: tantivy.Query, doubt: tantivy.Query = NOTHING) -> Verdict:
    """A condition that is never unknown: what it does not match, it fails for."""
    return Verdict(Side(rows, doubt), Side(without(ALL, without(rows, doubt)), doubt))


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """AND."""
    listed = list(verdicts)
    return Verdict(_both(v.true for v in listed), _any(v.false for v in listed))


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """OR."""
    listed = list(verdicts)
    return Verdict(_any(v.true for v in listed), _both(v.false for v in listed))


def negate(verdict: Verdict) -> Verdict:
    """NOT."""
    return Verdict(verdict.false, verdict.true)


def _both(sides: Iterable[Side]) -> Side:
    listed = list(sides)
    return Side(every(s.rows for s in listed), either(s.doubt for s in listed))


def _any(sides: Iterable[Side]) -> Side:
    # A side without rows has no doubt to add.
    listed = [s for s in sides if s.rows is not NOTHING]
    return Side(either(s.rows for s in listed), either(s.doubt for s in listed))


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Rows that are found for certain, and rows that have to be looked at; both with scores."""

    sure: tantivy.Query
    unsure: tantivy.Query


def ranking(search: Side, condition: Side) -> Ranking:
    """Score rows by a search, among those that a condition lets pass."""
    doubt = either((search.doubt, condition.doubt))
    sure = _filtered(search.rows, condition.rows, outside=doubt)
    return Ranking(sure, NOTHING if doubt is NOTHING else _filtered(search.rows, condition.rows, doubt))


def _filtered(scored: Query, *passing: Query, outside: Query = NOTHING) -> Query:
    if scored is NOTHING or any(query is NOTHING for query in passing) or outside is ALL:
        return NOTHING
    parts = [(Occur.Must, scored)]
    parts += [(Occur.Must, Query.const_score_query(query, 0.0)) for query in passing if query is not ALL]
    if outside is not NOTHING:
        parts.append((Occur.MustNot, outside))
    return Query.boolean_query(parts) if len(parts) > 1 else scored
