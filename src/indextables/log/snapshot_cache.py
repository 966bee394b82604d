"""Snapshots and file lists that this process has read, kept within the limits that the options set.

Everything in these caches is immutable on storage (a version file, the entries of a manifest, the files of
one version), and is cached under what identifies its files there (name, size, time, tag). So a cached value
is never wrong, not even when a table is deleted and created again. Which version is the newest is looked up
on storage each time. Values are cached per reader, by its credentials, and hold neither credentials nor
handles.
"""

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from indextables.log.format.actions import Action, Metadata
from indextables.log.segment import Segment, Stamp
from indextables.log.snapshot import Snapshot, SnapshotKey, SnapshotReader
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
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None


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
            entry = self._kept.get((table, key))
            if entry is not None and (time.monotonic() - entry[0]) * 1000 < ttl_ms:
                self._kept.move_to_end((table, key))
                self._hits += 1
                return entry[2]
            if entry is not None:
                self._drop((table, key))
            self._misses += 1
            return None

    def has(self, table: CacheScope, key: Hashable, *, ttl_ms: int) -> bool:
        """Whether `get` would have the value; counts as neither hit nor miss."""
        with self._lock:
            entry = self._kept.get((table, key))
            return entry is not None and (time.monotonic() - entry[0]) * 1000 < ttl_ms

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
class CacheLimits:
    """How long and how many, for one of the caches; nothing is kept when caching is off."""

    ttl_ms: int
    capacity: int


def cache_limits(options: Options, ttl: opt.Milliseconds, capacity: opt.Count) -> CacheLimits:
    """The bounds that the options set for one cache."""
    if not options.get(opt.CACHE_ENABLED):
        return CacheLimits(0, 0)
    if options.is_set(ttl):
        ttl_ms = options.get(ttl)
    elif options.is_set(opt.CACHE_TTL_MS):
        ttl_ms = options.get(opt.CACHE_TTL_MS)
    elif options.is_set(opt.CACHE_TTL_SECONDS):
        ttl_ms = options.get(opt.CACHE_TTL_SECONDS) * 1000
    else:
        ttl_ms = options.get(ttl)
    return CacheLimits(ttl_ms, options.get(capacity))


def _after_fork() -> None:
    for cache in list(_caches):
        cache.after_fork()


os.register_at_fork(after_in_child=_after_fork)


SNAPSHOTS: Cache[Snapshot] = Cache()
NEWEST: Cache[tuple[Snapshot, Stamp | None]] = Cache()
VERSIONS: Cache[list[Action]] = Cache()
METADATA: Cache[Metadata] = Cache()
FILE_LISTS: Cache[pa.Table] = Cache(weigh=lambda listed: int(listed.nbytes))


class SnapshotCache:
    """The snapshots of one log."""

    def __init__(self, reader: SnapshotReader, options: Options) -> None:
        """`reader` reads on behalf of the snapshots that the cache returns."""
        self._reader = reader
        self._scope = reader.log.cache_scope
        self._limits = cache_limits(options, opt.CACHE_SNAPSHOT_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY)

    def get(self, segment: Segment) -> Snapshot | None:
        """What was read of these files before."""
        if not self._limits.capacity:
            return None
        snapshot = SNAPSHOTS.get(self._scope, segment, ttl_ms=self._limits.ttl_ms)
        return None if snapshot is None else replace(snapshot, reader=self._reader)

    def put(self, segment: Segment, snapshot: Snapshot) -> Snapshot:
        """Keep what was read of some files."""
        if self._limits.capacity:
            SNAPSHOTS.put(
                self._scope, segment, replace(snapshot, reader=None), capacity=self._limits.capacity
            )
        return snapshot

    def newest(self) -> tuple[Snapshot, Stamp | None] | None:
        """The newest version that was read or committed here, and what identifies its file, if known."""
        if not self._limits.capacity:
            return None
        newest = NEWEST.get(self._scope, None, ttl_ms=self._limits.ttl_ms)
        return None if newest is None else (replace(newest[0], reader=self._reader), newest[1])

    def put_newest(self, snapshot: Snapshot, stamp: Stamp | None) -> Snapshot:
        """Keep a version as the one to go on from."""
        if self._limits.capacity:
            facts = replace(snapshot, reader=None)
            NEWEST.put(self._scope, None, (facts, stamp), capacity=self._limits.capacity)
        return snapshot


class FileListCache:
    """The file lists of one log's versions."""

    def __init__(self, scope: CacheScope, options: Options) -> None:
        """`scope` is that of the store rooted at the log folder."""
        self._scope = scope
        self._limits = cache_limits(options, opt.CACHE_FILES_TTL_MS, opt.CACHE_FILES_CAPACITY)
        self._max_bytes = options.get(opt.CACHE_FILES_MAX_BYTES)

    def get(self, key: SnapshotKey) -> pa.Table | None:
        """The live splits of a snapshot, if they are kept."""
        return FILE_LISTS.get(self._scope, key, ttl_ms=self._limits.ttl_ms) if self._limits.capacity else None

    def has(self, key: SnapshotKey) -> bool:
        """Whether the live splits of a snapshot are kept; asking counts as neither hit nor miss."""
        return self._limits.capacity > 0 and FILE_LISTS.has(self._scope, key, ttl_ms=self._limits.ttl_ms)

    def put(self, key: SnapshotKey, listed: pa.Table) -> None:
        """Keep the live splits of a snapshot."""
        if self._limits.capacity:
            FILE_LISTS.put(
                self._scope, key, listed, capacity=self._limits.capacity, max_weight=self._max_bytes
            )


def invalidate(url: str | None = None) -> int:
    """Forget what was read of a log (its folder's url), or of all; how many values that were."""
    return sum(cache.invalidate(url) for cache in (SNAPSHOTS, NEWEST, FILE_LISTS, VERSIONS, METADATA))


def cache_statistics() -> dict[str, CacheStatistics]:
    """How the caches of this process did, by the name their options have."""
    named: dict[str, Cache[Any]] = {
        "newest": NEWEST,
        "snapshot": SNAPSHOTS,
        "fileList": FILE_LISTS,
        "version": VERSIONS,
        "metadata": METADATA,
    }
    return {name: cache.statistics() for name, cache in named.items()}
