"""Runs functions in several threads, and opens splits ahead of their use.

Results are returned in the order of the functions. Many splits of an object store are opened in parallel, to
hide the latency of requests: footers, term filters and the parts of indexes that a condition needs are
fetched, and splits that cannot have a matching row are skipped.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

from indextables.limits import cpu_count
from indextables.options import Options, reading
from indextables.predicate import Always, Predicate
from indextables.read.split_reader import SplitReader, split_errors
from indextables.read.split_source import is_open, max_open_splits
from indextables.read.table_context import SplitRef, TableContext
from indextables.store import Store

T = TypeVar("T")

# How many batches a split may be ahead of the reader.
_AHEAD = 4


class _Job(Generic[T]):
    """A queue of one split's batches."""

    def __init__(self, work: Callable[[], Iterator[T]], stopped: threading.Event) -> None:
        self._work = work
        self._stopped = stopped
        self._ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(_AHEAD)

    def run(self) -> None:
        if self._stopped.is_set():
            return
        try:
            for item in self._work():
                if not self._put((True, item)):
                    return
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            self._put((False, error))
        else:
            self._put((False, None))

    def _put(self, message: tuple[bool, T | BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put(message, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def results(self) -> Iterator[T]:
        while True:
            more, item = self._ready.get()
            if more:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return


def in_order(works: Sequence[Callable[[], Iterator[T]]], parallelism: int) -> Iterator[T]:
    """The items of several iterators, in order, while the next iterators already run.

    Closing the result stops the iterators at their next item.
    """
    if parallelism <= 1 or len(works) <= 1:
        for work in works:
            yield from work()
        return
    stopped = threading.Event()
    pool = ThreadPoolExecutor(parallelism, thread_name_prefix="indextables-read")
    waiting = iter(works)
    running: deque[_Job[T]] = deque()

    def start() -> None:
        if (work := next(waiting, None)) is not None:
            job = _Job(work, stopped)
            running.append(job)
            pool.submit(job.run)

    try:
        for _ in range(parallelism):
            start()
        while running:
            yield from running.popleft().results()
            start()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def each(works: Iterable[Callable[[], T]], parallelism: int) -> Iterator[T]:
    """The results of functions, in order; closing the iterator cancels those that have not begun."""
    if parallelism <= 1 or (isinstance(works, Sequence) and len(works) <= 1):
        for work in works:
            yield work()
        return
    pool = ThreadPoolExecutor(parallelism, thread_name_prefix="indextables-read")
    running: deque[Future[T]] = deque()
    try:
        for work in works:
            running.append(pool.submit(work))
            if len(running) > 2 * parallelism:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def parallelism(options: Options) -> int:
    """How many splits are read at once."""
    return options.get(reading.PARALLELISM) or cpu_count()


# How many splits are opened at once if the first ones may suffice for a LIMIT.
_FEW = 4


def splits_at_once(store: Store, splits: Sequence[SplitRef], table: TableContext) -> int:
    """The number of splits to open at once; 1 if all of them are open."""
    if len(splits) < 2 or all(is_open(store, ref) for ref in splits):
        return 1
    if store.is_local:
        return min(parallelism(table.options), len(splits))
    # An open split holds open files, and up to twice as many splits are waiting to be read.
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
    """Open splits, in order; splits of an object store that cannot have a matching row are skipped.

    Args:
        store: The table's store.
        splits: The splits.
        table: The table.
        where: The condition that rows will be read with.
        limited: Whether the first splits may suffice for a LIMIT.
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
            reader.fetch_index(condition)
        return reader
