"""Runs functions in several threads, in bounded memory; their results come in the order of the functions."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from indextables.options import Options, reading

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
    """The items of the works, in the order of the works, while the next ones already run.

    Closing the iterator stops the works at their next batch.
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
    """The result of each work, in order; closing the iterator leaves out the works that have not begun."""
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
    return options.get(reading.PARALLELISM) or os.cpu_count() or 2
