"""Term statistics over the splits of a search, which make their scores comparable."""

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial

from indextables.options import reading
from indextables.predicate import Search
from indextables.read.parallel import each
from indextables.read.split_errors import split_errors
from indextables.read.split_reader import SplitReader
from indextables.read.table_context import SplitRef, TableContext
from indextables.split.query.index_view import FieldTerm, TermStatistics, sum_statistics
from indextables.split.query.query_compiler import compile_query
from indextables.store import Store

# The counts of a search in a split are cached: a split never changes.
_MAX_CACHED = 20_000
_counts: OrderedDict[Hashable, TermStatistics] = OrderedDict()
_lock = threading.Lock()


def term_statistics(
    store: Store,
    splits: Sequence[SplitRef],
    table: TableContext,
    searches: Sequence[Search],
    parallelism: int,
) -> TermStatistics | None:
    """The document frequencies of the searches' terms over the splits; None if there is only one split.

    Of more splits than `search.statisticsSplits` an evenly spread sample is counted, and the counts scaled.
    """
    if len(splits) < 2:
        return None
    most = table.options.get(reading.STATISTICS_SPLITS)
    step = max(1, -(-len(splits) // most)) if most else 1
    counted = splits[::step]
    bound = tuple((search, table.bound_query(search).defaults) for search in dict.fromkeys(searches))
    keys: list[Hashable] = [
        (store.cache_scope, ref.path, ref.size, bound, tuple(table.schema.names)) for ref in counted
    ]
    with _lock:
        found = {key: _counts[key] for key in keys if key in _counts}
    missing = {key: ref for key, ref in zip(keys, counted, strict=True) if key not in found}
    if missing:
        works = [partial(_of_split, store, ref, table, searches) for ref in missing.values()]
        counts = dict(zip(missing, each(works, parallelism), strict=True))
        found |= counts
        with _lock:
            _counts.update(counts)
            while len(_counts) > _MAX_CACHED:
                _counts.popitem(last=False)
    rows = sum(ref.num_records or 0 for ref in splits)
    return sum_statistics((found[key] for key in keys), rows)


def _of_split(store: Store, ref: SplitRef, table: TableContext, searches: Sequence[Search]) -> TermStatistics:
    with split_errors(table, ref):
        reader = SplitReader(store, ref, table)
        words: set[FieldTerm] = set()
        view = replace(reader.view, words=words)
        for search in searches:
            compile_query(reader.bound_query(search), view)
        return reader.index.term_statistics(words)


def _forget() -> None:
    """A forked child starts with an empty cache; the parent's lock may be held forever."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()
    _counts.clear()


os.register_at_fork(after_in_child=_forget)
