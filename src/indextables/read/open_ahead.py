"""Opens splits of an object store ahead of their readers, many at once: a request takes long, but waits only.

Footers, term filters and the parts of indexes that a condition needs are fetched; splits that cannot have a
matching row are left out.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from indextables.options import reading
from indextables.predicate import Always, Predicate
from indextables.read.parallel import each, parallelism
from indextables.read.split_reader import SplitReader, split_errors
from indextables.read.split_source import is_open, max_open_splits
from indextables.read.table_context import SplitRef, TableContext
from indextables.store import Store

# The most bytes of indexes that are fetched at once, by an estimate: this share of a split.
_MAX_BYTES = 128 << 20
_INDEX_SHARE = 0.3
# If a limit may be reached early, so many splits are opened at once.
_FEW = 4


class _ByteLimit:
    """Lets work begin while the bytes of all running work are below a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Start anew, as in a forked child: threads of the parent may have reserved bytes."""
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Wait until there is room for so many bytes; more than the limit wait until nothing else runs."""
        size = min(size, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._used + size <= self._limit)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


_limit = _ByteLimit(_MAX_BYTES)
os.register_at_fork(after_in_child=_limit.reset)


def splits_at_once(store: Store, splits: Sequence[SplitRef], table: TableContext) -> int:
    """The number of splits to open at once; 1 if all of them are open."""
    if len(splits) < 2 or all(is_open(store, ref) for ref in splits):
        return 1
    if store.is_local:
        return min(parallelism(table.options), len(splits))
    # A split that is open holds files, and twice as many wait for their reader.
    most = min(table.options.get(reading.CONCURRENT_OPENS), max_open_splits() // 4)
    return max(1, min(most, len(splits)))


def open_readers(
    store: Store,
    splits: Sequence[SplitRef],
    table: TableContext,
    where: Predicate | None,
    *,
    limited: bool = False,
    scans: int = 1,
    check: Callable[[], None] = lambda: None,
) -> Iterator[SplitReader]:
    """The splits in order, open; those of an object store that cannot have a matching row are left out.

    Args:
        store: The table's store.
        splits: The splits.
        table: The table.
        where: The condition that rows will be read with.
        limited: Whether the first splits may suffice.
        scans: How many parts of one scan open splits at the same time.
        check: Called before a split is opened; an error that it raises ends the opening.
    """
    at_once = splits_at_once(store, splits, table)
    if store.is_local or at_once == 1:
        yield from each([partial(_open, store, ref, table, check) for ref in splits], at_once)
        return
    works = [partial(_open_and_fetch, store, ref, table, where, check) for ref in splits]
    own = max(1, at_once // scans)
    for reader in each(works, min(own, _FEW) if limited else own):
        if reader is not None:
            yield reader


def _open(store: Store, ref: SplitRef, table: TableContext, check: Callable[[], None]) -> SplitReader:
    check()
    with split_errors(table, ref):
        return SplitReader(store, ref, table)


def _open_and_fetch(
    store: Store,
    ref: SplitRef,
    table: TableContext,
    where: Predicate | None,
    check: Callable[[], None],
) -> SplitReader | None:
    reader = _open(store, ref, table, check)
    with split_errors(table, ref):
        condition = reader.fold(where)
        if isinstance(condition, Always):
            return reader if condition.value is True else None
        if ref.is_parquet and ref.source_file is None:
            with _limit.reserve(int(ref.size * _INDEX_SHARE)):
                reader.fetch_index(condition)
        return reader
