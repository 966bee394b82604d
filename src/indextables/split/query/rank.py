"""A search and a condition together: the search gives the score, the condition only lets rows pass."""

from dataclasses import dataclass

import tantivy
from tantivy import Occur, Query

from indextables.split.query.verdict import ALL, NOTHING, Side, either


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
