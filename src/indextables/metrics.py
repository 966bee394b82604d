"""Metrics of this process: for each name the last value, the total and the number of observations.

Names are those of IndexTables for Scala (`indextables.state.read.duration_ms`).
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from indextables.records import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric: its last value, the sum of all values, and their number."""

    last: float
    total: float
    count: int


_lock = threading.Lock()
_figures: dict[str, Figure] = {}
# The metrics since the last call of `take`.
_new: dict[str, Figure] = {}


def record(name: str, value: float) -> None:
    """Add one observation of a metric."""
    with _lock:
        for figures_ in (_figures, _new):
            old = figures_.get(name)
            total, count = (old.total, old.count) if old else (0.0, 0)
            figures_[name] = Figure(last=value, total=total + value, count=count + 1)


@contextmanager
def measure(name: str) -> Iterator[None]:
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


def take() -> dict[str, Figure]:
    """Return the metrics since the last call, for a process that adds up the metrics of several."""
    with _lock:
        new = dict(_new)
        _new.clear()
        return new


def replace_all(totals: Mapping[str, Figure]) -> None:
    """Replace the metrics of this process by the totals of several processes, its own included."""
    with _lock:
        _figures.clear()
        _figures.update(totals)


def reset() -> None:
    """Delete all metrics of this process."""
    with _lock:
        _figures.clear()
        _new.clear()


def _after_fork() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
