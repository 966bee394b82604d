"""Search by relevance: finds the best rows of every split, then the best of all splits.

Term statistics over all splits of a search make the scores of different splits comparable.
"""

from collections.abc import Hashable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from indextables.cache import Cache
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import Always, And, Column, Predicate, Search, SearchKind
from indextables.predicate.query_language import split_path
from indextables.read.parallel import each, parallelism, splits_at_once
from indextables.read.spec import FRAGMENT_LENGTH, SCORE, check_limit
from indextables.read.split_reader import SplitReader, split_errors
from indextables.read.table_context import SplitPlan, SplitRef, TableContext, plan_splits, table_context
from indextables.records import dataclass
from indextables.split.mapping import Mapping
from indextables.split.query.index_view import FieldTerm, TermStatistics, sum_statistics
from indextables.split.query.query_compiler import compile_query
from indextables.split.query.required_terms import Bind, any_word, scored_words
from indextables.split.query.row_sets import NO_ROWS, TRUE, scored_queries
from indextables.split.query.searcher import TopRows
from indextables.store import Store

HIGHLIGHT = "_highlight_"


@dataclass(frozen=True, slots=True)
class RankedSearch:
    """The best `limit` rows of a search for which another condition is true."""

    search: Search
    where: Predicate | None
    limit: int | None


def search(  # noqa: PLR0913 - the arguments of Table.search
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    query: str,
    field: str | None = None,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = 10,
    scores: bool = False,
    highlight: Sequence[str] = (),
) -> pa.Table:
    """The rows that match a query, the most relevant first (BM25, with the term statistics of all splits).

    Args:
        snapshot: The table.
        store: The table's store.
        options: Options of the read.
        query: In the query language (docs/query-language.md).
        field: The default field for unqualified terms; by default all text-like columns.
        columns: What to return; by default all columns.
        where: A condition that rows must also match.
        limit: The most rows to return; None returns all.
        scores: Whether to add a column `_score`.
        highlight: Text columns for which `_highlight_<column>` is added: a fragment around the matches,
            which are in `<b>` (the rest is escaped for HTML), or null.
    """
    check_limit(limit)
    operator = Search(SearchKind.INDEXQUERY, None if field is None else _column(field, snapshot), query)
    both: Predicate = operator if where is None else And((operator, where))
    plan = plan_splits(snapshot, both, options, by_terms=False)
    table = plan.table
    ranked = RankedSearch(operator, where, limit)
    # Without columns, a table would have no rows.
    none = columns is not None and not columns and not highlight
    schema = table.select_fields(table.schema.names[:1] if none else columns)
    marked = [table.column(name).name for name in highlight]
    whole_table = table_context(snapshot, options) if marked else table
    for name in marked:
        whole_table.check_text(name)
    statistics = term_statistics(store, plan, [operator])
    splits = plan.without_terms(both).splits
    works = [partial(_best, store, ref, table, ranked, statistics) for ref in splits]
    tops = list(each(works, _at_once(store, splits, table)))
    selection = _select_rows(tops, limit)
    # Splits are opened again, because not all searched splits can stay open.
    parts = [
        _rows(SplitReader(store, ref, table), top.rows[picks], schema.names, marked, operator)
        for ref, top, picks in zip(splits, tops, selection.picks, strict=True)
        if len(picks)
    ]
    whole = pa.concat_tables(parts) if parts else _empty(schema, marked)
    whole = whole.take(pa.array(selection.order))
    whole = whole.select([]) if none and not scores else whole
    if not scores:
        return whole
    scored = whole.append_column(SCORE, pa.array(selection.scores, pa.float32()))
    return scored.select([SCORE]) if none else scored


def _column(field: str, snapshot: Snapshot) -> Column:
    """The column of this name, or a path written with dots, as in queries."""
    is_column = any(name.lower() == field.lower() for name in snapshot.schema.names)
    return Column((field,) if is_column else split_path(field))


@dataclass(frozen=True, slots=True)
class _Selection:
    """The rows to return of each split (ascending by row), and the order in which they are returned."""

    picks: list[np.ndarray]
    order: np.ndarray
    scores: np.ndarray


def _select_rows(tops: Sequence[TopRows], limit: int | None) -> _Selection:
    sizes = [len(top.rows) for top in tops]
    split = np.repeat(np.arange(len(tops)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes]) if sizes else np.zeros(0, np.int64)
    score = np.concatenate([top.scores for top in tops]) if sizes else np.zeros(0, np.float32)
    row = np.concatenate([top.rows for top in tops]) if sizes else np.zeros(0, np.int64)
    best = np.lexsort((row, split, -score))[:limit]
    # Rows are fetched split by split in ascending order; `order` is their position in the result.
    fetched = best[np.lexsort((row[best], split[best]))]
    picks = [place[fetched[split[fetched] == number]] for number in range(len(tops))]
    position = {int(index): where for where, index in enumerate(fetched)}
    order = np.array([position[int(index)] for index in best], np.int64)
    return _Selection(picks, order, score[best])


def _best(
    store: Store, ref: SplitRef, table: TableContext, ranked: RankedSearch, statistics: TermStatistics | None
) -> TopRows:
    with split_errors(table, ref):
        return best_rows(SplitReader(store, ref, table), ranked, statistics)


def best_rows(reader: SplitReader, ranked: RankedSearch, statistics: TermStatistics | None) -> TopRows:
    """The rows of one split with the highest scores; may return a few more than the limit."""
    nothing = TopRows(np.zeros(0, np.int64), np.zeros(0, np.float32))
    condition = reader.fold(ranked.where)
    if (isinstance(condition, Always) and condition.value is not True) or not reader.may_match(ranked.search):
        return nothing
    rows = reader.source.num_records
    ranked_rows = reader.score_search(ranked.search, statistics)
    passing = TRUE.true if isinstance(condition, Always) else reader.filter_plan(condition).candidates
    scored = scored_queries(ranked_rows, passing)
    limit = rows if ranked.limit is None else ranked.limit
    top = reader.index.top(scored.certain, limit)
    if scored.uncertain is NO_ROWS:
        return top
    more = reader.index.top(scored.uncertain, rows)
    order = np.argsort(more.rows)
    holds = reader.holds(And((ranked.search, condition)), more.rows[order])
    matching = order[holds]
    return TopRows(
        np.concatenate([top.rows, more.rows[matching]]), np.concatenate([top.scores, more.scores[matching]])
    )


def _rows(
    reader: SplitReader, numbers: np.ndarray, columns: Sequence[str], marked: Sequence[str], operator: Search
) -> pa.Table:
    """Rows by number, with highlighted fragments."""
    read = list(dict.fromkeys([*columns, *marked]))
    table = reader.rows(numbers, read)
    query = compile_query(reader.bound_query(operator), reader.view).true.rows if marked else NO_ROWS
    added = []
    for name in marked:
        texts = table.column(name).to_pylist()
        highlights = reader.index.highlight(query, name, texts, FRAGMENT_LENGTH)
        added.append(pa.array(highlights, pa.string()))
    table = table.select(list(columns))
    for name, fragments in zip(marked, added, strict=True):
        table = table.append_column(HIGHLIGHT + name, fragments)
    return table


def _empty(schema: pa.Schema, marked: Sequence[str]) -> pa.Table:
    fields = [*schema, *(pa.field(HIGHLIGHT + name, pa.string()) for name in marked)]
    return pa.schema(fields).empty_table()


# The counts of a search in a split are cached, since splits are immutable.
_MAX_CACHED = 20_000
_counts: Cache[Hashable, TermStatistics] = Cache(_MAX_CACHED)


def term_statistics(store: Store, plan: SplitPlan, searches: Sequence[Search]) -> TermStatistics | None:
    """The document frequencies of the searches' terms over the splits; None if there is only one split.

    If there are more splits than `search.statisticsSplits`, an evenly spread sample is counted, and the
    counts are scaled.
    """
    splits, table = plan.splits, plan.table
    if len(splits) < 2:
        return None
    most = table.options.get(reading.STATISTICS_SPLITS)
    step = max(1, -(-len(splits) // most)) if most else 1
    counted = splits[::step]
    bound = tuple((search, table.bound_query(search).defaults) for search in dict.fromkeys(searches))
    keys: list[Hashable] = [
        (store.cache_scope, ref.path, ref.size, bound, tuple(table.schema.names)) for ref in counted
    ]
    cached = {key: _counts.get(key) for key in keys}
    counts_by_split = {key: counts for key, counts in cached.items() if counts is not None}
    missing = {key: ref for key, ref in zip(keys, counted, strict=True) if key not in counts_by_split}
    if missing:
        counts_by_split.update(_bundled_counts(plan, searches, missing))
        missing = {key: ref for key, ref in missing.items() if key not in counts_by_split}
    works = [partial(_of_split, store, ref, table, searches) for ref in missing.values()]
    at_once = _at_once(store, list(missing.values()), table)
    for key, counts in zip(missing, each(works, at_once), strict=True):
        counts_by_split[key] = counts
        _counts.put(key, counts)
    rows = sum(ref.num_records or 0 for ref in splits)
    return sum_statistics((counts_by_split[key] for key in keys), rows)


def _at_once(store: Store, splits: Sequence[SplitRef], table: TableContext) -> int:
    return max(parallelism(table.options), splits_at_once(store, splits, table))


def _bundled_counts(
    plan: SplitPlan, searches: Sequence[Search], counted: Dictionary[Hashable, SplitRef]
) -> dict[Hashable, TermStatistics]:
    """The counts of splits that have no word of the searches according to filter bundles."""
    table = plan.table
    words = {mapping: _scored_words(searches, mapping, table.bound_query) for mapping in table.mappings}
    mask = plan.may_hold(lambda mapping: any_word(words[mapping] or ()))
    if mask is None:
        return {}
    absent = {id(ref) for ref, may in zip(plan.splits, mask.tolist(), strict=True) if not may}
    return {
        key: TermStatistics(ref.num_records, dict.fromkeys(words[table.mappings[ref.mapping]] or (), 0))
        for key, ref in counted.items()
        if id(ref) in absent and ref.num_records is not None
    }


def _scored_words(searches: Sequence[Search], mapping: Mapping, bind: Bind) -> list[FieldTerm] | None:
    """The words of all searches in the fields of a split; None if its index is needed to determine them."""
    words: list[FieldTerm] = []
    for search in searches:
        own = scored_words(search, mapping, bind)
        if own is None:
            return None
        words += own
    return words


def _of_split(store: Store, ref: SplitRef, table: TableContext, searches: Sequence[Search]) -> TermStatistics:
    with split_errors(table, ref):
        reader = SplitReader(store, ref, table)
        absent = _absent_words(reader, searches)
        if absent is not None:
            return TermStatistics(reader.source.num_records, dict.fromkeys(absent, 0))
        words: set[FieldTerm] = set()
        view = replace(reader.view, words=words)
        for search in searches:
            compile_query(reader.bound_query(search), view)
        return reader.index.term_statistics(words)


def _absent_words(reader: SplitReader, searches: Sequence[Search]) -> list[FieldTerm] | None:
    """The words of the searches, if the split has none of them according to its term filters; else None."""
    filters = reader.source.term_filters
    if filters is None:
        return None
    words = _scored_words(searches, filters.mapping, reader.bound_query)
    required = None if words is None else any_word(words)
    if required is None or reader.may_hold(required):
        return None
    return words
