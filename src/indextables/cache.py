"""Caches of this process: bounded, safe for threads, and empty in forked children.

A lock that another thread held at a fork is never released in the child. So every cache gets a new lock
there, and so do cached properties, which in Python 3.11 have one lock for all objects of a class.
"""

import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from indextables.records import dataclass

if TYPE_CHECKING:
    from cachetools import LRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Every cache of this process, for its forked children.
_caches: "weakref.WeakSet[Cache[Any, Any]]" = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """The number of hits and misses of a cache, and of its entries, with their weight."""

    hits: int
    misses: int
    entries: int
    weight: int

    @property
    def hit_rate(self) -> float | None:
        """Hits as a share of all lookups; None before the first one."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    time: float
    weight: int


class Cache(Generic[K, V]):
    """Values by key; the least recently used ones are evicted first."""

    def __init__(
        self,
        capacity: float = math.inf,
        *,
        weigh: Callable[[V], int] | None = None,
        retain_in_child: bool = False,
    ) -> None:
        """Create an empty cache.

        Args:
            capacity: the maximum number of values, unless `put` is called with another one.
            weigh: returns the size of a value in memory, for caches that bound it.
            retain_in_child: never release the parent's values in a forked child, because closing them needs
                threads that the child does not have.
        """
        _caches.add(self)
        self._capacity = capacity
        self._weigh = weigh
        self._retained: list[object] | None = [] if retain_in_child else None
        self._lock = threading.Lock()
        self._entries: LRUCache[K, _Entry[V]] = self._empty()
        self._hits = 0
        self._misses = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self._entries)

    def get(self, key: K, *, ttl_ms: float = math.inf) -> V | None:
        """Return the value of a key; None if there is none, or if it is older than its time to live."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and _age_ms(entry) < ttl_ms:
                self._hits += 1
                return entry.value
            if entry is not None:
                del self._entries[key]
            self._misses += 1
            return None

    def has(self, key: K, *, ttl_ms: float = math.inf) -> bool:
        """Whether `get` would return a value; counts as neither hit nor miss."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and _age_ms(entry) < ttl_ms

    def put(self, key: K, value: V, *, capacity: float | None = None, max_weight: float = math.inf) -> None:
        """Add or replace a value, and evict others until number and weight are within their limits.

        A value that exceeds the limit by itself is not added, and evicts no other one.
        """
        entry = self._entry(value)
        with self._lock:
            if entry.weight > max_weight:
                self._entries.pop(key, None)
                return
            self._entries[key] = entry
            self._evict(self._capacity if capacity is None else capacity, max_weight)

    def put_if_absent(self, key: K, value: V, *, capacity: float | None = None) -> V:
        """Add a value unless another thread was faster; return the one that is in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = self._entry(value)
                self._evict(self._capacity if capacity is None else capacity, math.inf)
            return entry.value

    def pop(self, key: K) -> V | None:
        """Remove and return the value of a key; None if there is none."""
        with self._lock:
            entry = self._entries.pop(key, None)
            return None if entry is None else entry.value

    def evict_over(
        self, sizes: Callable[[V], Sequence[float]], limits: Sequence[float], *, slack: float = 0
    ) -> list[V]:
        """Evict values if the sums of their sizes exceed the limits; the last value is retained.

        Afterwards the sums are below the limits by a share of `slack`, so that the next call may wait.
        Returns the evicted values, so that they are released by the caller, not while the cache is locked.

        >>> cache = Cache[str, int]()
        >>> for number, key in enumerate("abcd"):
        ...     cache.put(key, number)
        >>> cache.get("a")
        0
        >>> cache.evict_over(lambda value: (1, value), (3, 4))
        [1, 2]
        """
        evicted: list[V] = []
        with self._lock:
            own = {key: tuple(sizes(entry.value)) for key, entry in self._peek()}
            sums = [sum(column) for column in zip(*own.values(), strict=True)]
            if not sums or not _exceed(sums, limits):
                return evicted
            least = [limit * (1 - slack) for limit in limits]
            while len(own) > 1 and _exceed(sums, least):
                key, entry = self._entries.popitem()
                sums = [size - less for size, less in zip(sums, own.pop(key), strict=True)]
                evicted.append(entry.value)
        return evicted

    def discard(self, condition: Callable[[K, V], bool]) -> list[V]:
        """Remove and return the values for which a condition holds."""
        with self._lock:
            keys = [key for key, entry in self._peek() if condition(key, entry.value)]
            return [self._entries.pop(key).value for key in keys]

    def clear(self) -> list[V]:
        """Remove and return all values."""
        return self.discard(lambda _key, _value: True)

    def statistics(self) -> CacheStatistics:
        """Return the numbers of hits, misses and entries."""
        with self._lock:
            weight = int(self._entries.currsize) if self._weigh else 0
            return CacheStatistics(self._hits, self._misses, len(self._entries), weight)

    def after_fork(self) -> None:
        """Start empty, with a new lock, in a forked child."""
        self._lock = threading.Lock()
        if self._retained is not None:
            self._retained.append(self._entries)
        self._entries = self._empty()

    def _empty(self) -> "LRUCache[K, _Entry[V]]":
        # Imported here, since `import indextables` must not load a library.
        from cachetools import LRUCache  # noqa: PLC0415

        return LRUCache(math.inf, getsizeof=lambda entry: entry.weight)

    def _peek(self) -> Iterator[tuple[K, _Entry[V]]]:
        """All entries; unlike `items()` of the library, this does not count as a use of them."""
        from cachetools import Cache as Library  # noqa: PLC0415

        return ((key, Library.__getitem__(self._entries, key)) for key in self._entries)

    def _entry(self, value: V) -> _Entry[V]:
        return _Entry(value, time.monotonic(), self._weigh(value) if self._weigh else 0)

    def _evict(self, capacity: float, max_weight: float) -> None:
        while self._entries and (len(self._entries) > capacity or self._entries.currsize > max_weight):
            self._entries.popitem()


def _exceed(sums: Sequence[float], limits: Sequence[float]) -> bool:
    return any(size > limit for size, limit in zip(sums, limits, strict=True))


def _age_ms(entry: _Entry[Any]) -> float:
    return (time.monotonic() - entry.time) * 1000


def _after_fork() -> None:
    for cache in list(_caches):
        cache.after_fork()


def _renew_properties() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "indextables":
            continue
        for owner in vars(module).values():
            if isinstance(owner, type) and owner.__module__ == name:
                for attribute in vars(owner).values():
                    if isinstance(attribute, cached_property):
                        vars(attribute)["lock"] = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
if sys.version_info < (3, 12):
    os.register_at_fork(after_in_child=_renew_properties)
