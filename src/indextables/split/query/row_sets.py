"""Sets of rows that an index returns for a condition: where it is true, false, or needs a recheck.

A condition is true, false or unknown for a row. A `RowSet` is a superset of rows together with the rows of
which the index is not sure; a `IndexAnswer` has a side for *true* and one for *false*, and a row on neither
is unknown. So NOT swaps the sides, AND and OR combine them, and three-valued logic needs no case of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import tantivy
from tantivy import Occur, Query

# Told apart by identity: combining with them costs nothing.
ALL_ROWS: Query = Query.all_query()
NO_ROWS: Query = Query.empty_query()


def intersect(queries: Iterable[Query]) -> Query:
    """Rows that all of the queries match."""
    parts: dict[int, Query] = {}
    for query in queries:
        if query is NO_ROWS:
            return NO_ROWS
        if query is not ALL_ROWS:
            parts[id(query)] = query
    if len(parts) < 2:
        return next(iter(parts.values()), ALL_ROWS)
    return Query.boolean_query([(Occur.Must, part) for part in parts.values()])


def union(queries: Iterable[Query]) -> Query:
    """Rows that at least one of the queries matches."""
    parts: dict[int, Query] = {}
    for query in queries:
        if query is ALL_ROWS:
            return ALL_ROWS
        if query is not NO_ROWS:
            parts[id(query)] = query
    if len(parts) < 2:
        return next(iter(parts.values()), NO_ROWS)
    return Query.boolean_query([(Occur.Should, part) for part in parts.values()])


def subtract(query: Query, other: Query) -> Query:
    """Rows that the query matches and the other does not."""
    if other is NO_ROWS or query is NO_ROWS:
        return query
    if other is ALL_ROWS or other is query:
        return NO_ROWS
    return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, other)])


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """Rows that may be on this side: no row of it is missing; those in `recheck` may not belong to it."""

    rows: tantivy.Query
    recheck: tantivy.Query = NO_ROWS

    @property
    def exact(self) -> bool:
        """Whether the index is sure of every row."""
        return self.recheck is NO_ROWS or self.rows is NO_ROWS

    @property
    def all_uncertain(self) -> bool:
        """Whether every row has to be looked at."""
        return self.recheck is ALL_ROWS or self.recheck is self.rows

    @property
    def certain(self) -> tantivy.Query:
        """The rows that surely are on this side."""
        return subtract(self.rows, self.recheck)

    @property
    def uncertain(self) -> tantivy.Query:
        """The rows that have to be looked at."""
        return intersect((self.rows, self.recheck))


@dataclass(frozen=True, slots=True, eq=False)
class IndexAnswer:
    """What the index says about a condition."""

    true: RowSet
    false: RowSet


UNKNOWN = IndexAnswer(RowSet(NO_ROWS), RowSet(NO_ROWS))
TRUE = IndexAnswer(RowSet(ALL_ROWS), RowSet(NO_ROWS))
FALSE = IndexAnswer(RowSet(NO_ROWS), RowSet(ALL_ROWS))
# The index cannot tell: every row has to be looked at.
UNDECIDED = IndexAnswer(RowSet(ALL_ROWS, ALL_ROWS), RowSet(ALL_ROWS, ALL_ROWS))


def two_valued(rows: tantivy.Query, recheck: tantivy.Query = NO_ROWS) -> IndexAnswer:
    """A condition that is never unknown: what it does not match, it fails for."""
    return IndexAnswer(RowSet(rows, recheck), RowSet(subtract(ALL_ROWS, subtract(rows, recheck)), recheck))


def and_(verdicts: Iterable[IndexAnswer]) -> IndexAnswer:
    """AND."""
    listed = list(verdicts)
    return IndexAnswer(_intersect_sets(v.true for v in listed), _union_sets(v.false for v in listed))


def or_(verdicts: Iterable[IndexAnswer]) -> IndexAnswer:
    """OR."""
    listed = list(verdicts)
    return IndexAnswer(_union_sets(v.true for v in listed), _intersect_sets(v.false for v in listed))


def not_(verdict: IndexAnswer) -> IndexAnswer:
    """NOT."""
    return IndexAnswer(verdict.false, verdict.true)


def _intersect_sets(sides: Iterable[RowSet]) -> RowSet:
    listed = list(sides)
    return RowSet(intersect(s.rows for s in listed), union(s.recheck for s in listed))


def _union_sets(sides: Iterable[RowSet]) -> RowSet:
    # A side without rows has no doubt to add.
    listed = [s for s in sides if s.rows is not NO_ROWS]
    return RowSet(union(s.rows for s in listed), union(s.recheck for s in listed))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredQueries:
    """Rows that are found for certain, and rows that have to be looked at; both with scores."""

    certain: tantivy.Query
    uncertain: tantivy.Query


def scored_queries(search: RowSet, condition: RowSet) -> ScoredQueries:
    """Score rows by a search, among those that a condition lets pass."""
    recheck = union((search.recheck, condition.recheck))
    certain = _filter(search.rows, condition.rows, outside=recheck)
    uncertain = NO_ROWS if recheck is NO_ROWS else _filter(search.rows, condition.rows, recheck)
    return ScoredQueries(certain, uncertain)


def _filter(scored: Query, *passing: Query, outside: Query = NO_ROWS) -> Query:
    if scored is NO_ROWS or any(query is NO_ROWS for query in passing) or outside is ALL_ROWS:
        return NO_ROWS
    parts = [(Occur.Must, scored)]
    parts += [(Occur.Must, Query.const_score_query(query, 0.0)) for query in passing if query is not ALL_ROWS]
    if outside is not NO_ROWS:
        parts.append((Occur.MustNot, outside))
    return Query.boolean_query(parts) if len(parts) > 1 else scored
