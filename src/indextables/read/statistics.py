"""Counting words over the splits that a search may touch, which makes the scores of all comparable."""

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
from indextables.read.tasks import SplitRef, TableFacts
from indextables.split.query.index_view import FieldTerm, TermStatistics, sum_statistics
from indextables.split.query.query_compiler import compile_query
from indextables.store import Store

# The counts of a search in a split are kept: a split never changes.
_KEPT = 20_000
_counts: OrderedDict[Hashable, TermStatistics] = OrderedDict()
_lock = threading.Lock()


def term_statistics(
    store: Store, splits: Sequence[SplitRef], table: TableFacts, searches: Sequence[Search], parallelism: int
) -> TermStatistics | None:
    """How many rows of the splits have each word that the searches score; None if one split counts alone.

    Of more splits than `search.statisticsSplits` some are counted, evenly spread, and the counts scaled.
    """
    if len(splits) < 2:
        return None
    most = table.options.get(reading.STATISTICS_SPLITS)
    step = max(1, -(-len(splits) // most)) if most else 1
    counted = splits[::step]
    asked = tuple((search, table.question(search).defaults) for search in dict.fromkeys(searches))
    keys: list[Hashable] = [
        (store.cache_scope, ref.path, ref.size, asked, tuple(table.schema.names)) for ref in counted
    ]
    with _lock:
        found = {key: _counts[key] for key in keys if key in _counts}
    missing = {key: ref for key, ref in zip(keys, counted, strict=True) if key not in found}
    if missing:
        works = [partial(_of_split, store, ref, table, searches) for ref in missing.values()]
        made = dict(zip(missing, each(works, parallelism), strict=True))
        found |= made
        with _lock:
            _counts.update(made)
            while len(_counts) > _KEPT:
                _counts.popitem(last=False)
    rows = sum(ref.num_records or 0 for ref in splits)
    return sum_statistics((found[key] for key in keys), rows)


def _of_split(store: Store, ref: SplitRef, table: TableFacts, searches: Sequence[Search]) -> TermStatistics:
    with split_errors(table, ref):
        reader = SplitReader(store, ref, table)
        words: set[FieldTerm] = set()
        view = replace(reader.view, words=words)
        for search in searches:
            compile_query(reader.understand(search), view)
        return reader.index.term_statistics(words)


def _forget() -> None:
    """A forked child counts anew; the parent's lock may be held for ever."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()
    _counts.clear()


os.register_at_fork(after_in_child=_forget)
