"""Sets of rows that an index returns for a condition: where it is true, false, or needs a recheck.

A condition is true, false or unknown for a row. A `RowSet` is a superset of the rows, with those that need a
recheck. An `IndexAnswer` has a row set for *true* and one for *false*; for a row in neither the condition is
unknown. So NOT swaps the two sets, and AND and OR combine them.
"""

from collections.abc import Iterable

import tantivy
from tantivy import Occur, Query

from indextables.records import dataclass

# Compared by identity, so that combinations with them need no query.
ALL_ROWS: Query = Query.all_query()
NO_ROWS: Query = Query.empty_query()


def intersect(queries: Iterable[Query]) -> Query:
    """Rows that all of the queries match."""
    return _combine(queries, Occur.Must, neutral=ALL_ROWS, absorbing=NO_ROWS)


def union(queries: Iterable[Query]) -> Query:
    """Rows that at least one of the queries matches."""
    return _combine(queries, Occur.Should, neutral=NO_ROWS, absorbing=ALL_ROWS)


def _combine(queries: Iterable[Query], occur: Occur, *, neutral: Query, absorbing: Query) -> Query:
    """One query from several: the neutral one changes nothing, the absorbing one is the result."""
    parts: dict[int, Query] = {}
    for query in queries:
        if query is absorbing:
            return absorbing
        if query is not neutral:
            parts[id(query)] = query
    if len(parts) < 2:
        return next(iter(parts.values()), neutral)
    return Query.boolean_query([(occur, part) for part in parts.values()])


def subtract(query: Query, other: Query) -> Query:
    """Rows that the query matches and the other does not."""
    if other is NO_ROWS or query is NO_ROWS:
        return query
    if other is ALL_ROWS or other is query:
        return NO_ROWS
    return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, other)])


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """A superset of some rows. Only rows in `recheck` may be wrong; they are evaluated on their values."""

    rows: tantivy.Query
    recheck: tantivy.Query = NO_ROWS

    @property
    def exact(self) -> bool:
        """Whether no row needs a recheck."""
        return self.recheck is NO_ROWS or self.rows is NO_ROWS

    @property
    def all_uncertain(self) -> bool:
        """Whether every row needs a recheck."""
        return self.recheck is ALL_ROWS or self.recheck is self.rows

    @property
    def certain(self) -> tantivy.Query:
        """The rows that need no recheck."""
        return subtract(self.rows, self.recheck)

    @property
    def uncertain(self) -> tantivy.Query:
        """The rows that need a recheck."""
        return intersect((self.rows, self.recheck))


@dataclass(frozen=True, slots=True, eq=False)
class IndexAnswer:
    """The rows for which a condition is true, and those for which it is false."""

    true: RowSet
    false: RowSet


UNKNOWN = IndexAnswer(RowSet(NO_ROWS), RowSet(NO_ROWS))
TRUE = IndexAnswer(RowSet(ALL_ROWS), RowSet(NO_ROWS))
FALSE = IndexAnswer(RowSet(NO_ROWS), RowSet(ALL_ROWS))
# The index cannot answer: every row needs a recheck.
UNDECIDED = IndexAnswer(RowSet(ALL_ROWS, ALL_ROWS), RowSet(ALL_ROWS, ALL_ROWS))


def two_valued(rows: tantivy.Query, recheck: tantivy.Query = NO_ROWS) -> IndexAnswer:
    """The answer of a condition that is never unknown: it is false for all other rows."""
    return IndexAnswer(RowSet(rows, recheck), RowSet(subtract(ALL_ROWS, subtract(rows, recheck)), recheck))


def and_(verdicts: Iterable[IndexAnswer]) -> IndexAnswer:
    """AND."""
    answers = list(verdicts)
    return IndexAnswer(_intersect_sets(v.true for v in answers), _union_sets(v.false for v in answers))


def or_(verdicts: Iterable[IndexAnswer]) -> IndexAnswer:
    """OR."""
    answers = list(verdicts)
    return IndexAnswer(_union_sets(v.true for v in answers), _intersect_sets(v.false for v in answers))


def not_(verdict: IndexAnswer) -> IndexAnswer:
    """NOT."""
    return IndexAnswer(verdict.false, verdict.true)


def _intersect_sets(sides: Iterable[RowSet]) -> RowSet:
    sets = list(sides)
    return RowSet(intersect(s.rows for s in sets), union(s.recheck for s in sets))


def _union_sets(sides: Iterable[RowSet]) -> RowSet:
    # A set without rows has none to recheck.
    sets = [s for s in sides if s.rows is not NO_ROWS]
    return RowSet(union(s.rows for s in sets), union(s.recheck for s in sets))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredQueries:
    """Scored queries for rows that match, and for rows that need a recheck."""

    certain: tantivy.Query
    uncertain: tantivy.Query


def score_alike(side: RowSet, score: float) -> RowSet:
    """The same rows, all with one score.

    Tantivy's own depends on the split: it leaves out queries that match all rows, ranges among them.
    """
    if side.rows is NO_ROWS:
        return side
    rows = Query.const_score_query(side.rows, score)
    same = side.recheck is side.rows and side.recheck is not ALL_ROWS
    return RowSet(rows, rows if same else side.recheck)


def scored_queries(search: RowSet, condition: RowSet) -> ScoredQueries:
    """Score rows by a search, among those that match a condition."""
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
