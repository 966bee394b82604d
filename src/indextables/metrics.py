"""Metrics of this process: for each name the last value, the total and the number of observations.

Names are those of IndexTables for Scala (`indextables.state.read.duration_ms`).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric: its last value, the sum of all values, and their number."""

    last: float
    total: float
    count: int


_lock = threading.Lock()
_figures: dict[str, Figure] = {}


def record(name: str, value: float) -> None:
    """Add one observation of a metric."""
    with _lock:
        old = _figures.get(name)
        total, count = (old.total, old.count) if old else (0.0, 0)
        _figures[name] = Figure(last=value, total=total + value, count=count + 1)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Record the duration of the body in milliseconds."""
    start = time.perf_counter()
    try:
        yield
    finally:
        record(name, (time.perf_counter() - start) * 1000)


def figures() -> dict[str, Figure]:
    """Return all metrics of this process.

    >>> record("example.rows", 3); record("example.rows", 4)
    >>> figures()["example.rows"]
    Figure(last=4, total=7.0, count=2)
    """
    with _lock:
        return dict(sorted(_figures.items()))


def reset() -> None:
    """Delete all metrics of this process."""
    with _lock:
        _figures.clear()


def _after_fork() -> None:
    """Replace the lock in a forked child: a thread that does not exist there may have held it."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
