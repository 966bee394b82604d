"""What was read of logs, kept for a while in this process.

Everything kept here is immutable on storage (a version file, a manifest's entries, the files of one
version), so a cached value is never wrong. Which version is the newest is never cached: it is asked of
storage each time. A time to live and a capacity only bound memory. Values are kept for the reader whose
credentials they were read with, and hold neither credentials nor handles.
"""

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from indextables.options import Options
from indextables.options import log as opt
from indextables.store import CacheScope

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """How often a cache had the answer, and how much it holds."""

    hits: int
    misses: int
    entries: int
    weight: int

    @property
    def hit_rate(self) -> float | None:
        """Hits as a share of all questions; nothing before the first one."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


# Every cache of this process, for its forked children.
_caches: "weakref.WeakSet[Cache[Any]]" = weakref.WeakSet()


class Cache(Generic[V]):
    """Values by key, the least recently used out first."""

    def __init__(self, weigh: Callable[[V], int] | None = None) -> None:
        """`weigh` tells how much memory a value takes, for caches that bound that."""
        _caches.add(self)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[CacheScope, Hashable], tuple[float, int, V]] = OrderedDict()
        self._weigh = weigh or (lambda _: 0)
        self._weight = 0
        self._hits = 0
        self._misses = 0

    def get(self, table: CacheScope, key: Hashable, *, ttl_ms: int) -> V | None:
        """The value, unless it is absent or older than its time to live."""
        with self._lock:
            found = self._kept.get((table, key))
            if found is not None and (time.monotonic() - found[0]) * 1000 < ttl_ms:
                self._kept.move_to_end((table, key))
                self._hits += 1
                return found[2]
            if found is not None:
                self._drop((table, key))
            self._misses += 1
            return None

    def has(self, table: CacheScope, key: Hashable, *, ttl_ms: int) -> bool:
        """Whether `get` would have the value; counts as neither hit nor miss."""
        with self._lock:
            found = self._kept.get((table, key))
            return found is not None and (time.monotonic() - found[0]) * 1000 < ttl_ms

    def put(
        self, table: CacheScope, key: Hashable, value: V, *, capacity: int, max_weight: int | None = None
    ) -> None:
        """Keep a value; the oldest ones make room, by number and by weight."""
        weight = self._weigh(value)
        with self._lock:
            if (table, key) in self._kept:
                self._drop((table, key))
            self._kept[(table, key)] = (time.monotonic(), weight, value)
            self._weight += weight
            heavy = max_weight is not None and self._weight > max_weight
            while self._kept and (len(self._kept) > capacity or heavy):
                self._drop(next(iter(self._kept)))
                heavy = max_weight is not None and self._weight > max_weight

    def invalidate(self, url: str | None = None) -> int:
        """Forget a table, whoever read it, or everything; how many values that were."""
        with self._lock:
            gone = [key for key in self._kept if url is None or key[0].url == url]
            for key in gone:
                self._drop(key)
            return len(gone)

    def statistics(self) -> CacheStatistics:
        """How it did so far."""
        with self._lock:
            return CacheStatistics(self._hits, self._misses, len(self._kept), self._weight)

    def after_fork(self) -> None:
        """Begin empty in a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()
        self._kept = OrderedDict()
        self._weight = 0

    def _drop(self, key: tuple[CacheScope, Hashable]) -> None:
        self._weight -= self._kept.pop(key)[1]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long and how many, for one of the caches; nothing is kept when caching is off."""

    ttl_ms: int
    capacity: int


def keeping(options: Options, ttl: opt.Milliseconds, capacity: opt.Count) -> Keeping:
    """The bounds that the options set for one cache."""
    if not options.get(opt.CACHE_ENABLED):
        return Keeping(0, 0)
    if options.given(ttl):
        ttl_ms = options.get(ttl)
    elif options.given(opt.CACHE_TTL_MS):
        ttl_ms = options.get(opt.CACHE_TTL_MS)
    elif options.given(opt.CACHE_TTL_SECONDS):
        ttl_ms = options.get(opt.CACHE_TTL_SECONDS) * 1000
    else:
        ttl_ms = options.get(ttl)
    return Keeping(ttl_ms, options.get(capacity))


def _after_fork() -> None:
    for cache in list(_caches):
        cache.after_fork()


os.register_at_fork(after_in_child=_after_fork)
