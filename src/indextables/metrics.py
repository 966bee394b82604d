"""Figures that the engine keeps about itself, readable from Python.

A figure is a name and the last value, with how often and how much in total: enough to tell what a read
cost and whether a cache helps. Names are the specification's (`indextables.state.read.duration_ms`).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What is known of one metric: its last value, the sum of all, and how many there were."""

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
    """Record how many milliseconds the body took."""
    start = time.perf_counter()
    try:
        yield
    finally:
        record(name, (time.perf_counter() - start) * 1000)


def figures() -> dict[str, Figure]:
    """All metrics of this process.

    >>> record("example.rows", 3); record("example.rows", 4)
    >>> figures()["example.rows"]
    Figure(last=4, total=7.0, count=2)
    """
    with _lock:
        return dict(sorted(_figures.items()))


def reset() -> None:
    """Forget all metrics of this process."""
    with _lock:
        _figures.clear()


def _after_fork() -> None:
    """In a forked child a thread that it does not have may have held the lock."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
