"""Snapshots and file lists that this process has read, within the bounds the options set.

They are kept under what identifies their files on storage (names, sizes, times, tags), so they are never
wrong, not even when a table is deleted and made anew. Which files there are is asked of storage each time.
Kept snapshots have no reader, hence no store and no credentials: who takes one out reads on by itself.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from indextables.log import cache as caches
from indextables.log.load import METADATA, VERSIONS, Loader
from indextables.log.segment import Segment, Stamp
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import CacheScope

SNAPSHOTS: caches.Cache[Snapshot] = caches.Cache()
NEWEST: caches.Cache[tuple[Snapshot, Stamp | None]] = caches.Cache()
FILE_LISTS: caches.Cache[pa.Table] = caches.Cache(weigh=lambda listed: int(listed.nbytes))


class KnownSnapshots:
    """The snapshots of one log."""

    def __init__(self, loader: Loader) -> None:
        """`loader` reads for the snapshots that are taken out."""
        self._loader = loader
        self._scope = loader.log.cache_scope
        self._keep = caches.keeping(loader.options, opt.CACHE_SNAPSHOT_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY)

    def get(self, segment: Segment) -> Snapshot | None:
        """What was read of these files before."""
        if not self._keep.capacity:
            return None
        found = SNAPSHOTS.get(self._scope, segment, ttl_ms=self._keep.ttl_ms)
        return None if found is None else replace(found, reader=self._loader)

    def put(self, segment: Segment, snapshot: Snapshot) -> Snapshot:
        """Keep what was read of some files."""
        if self._keep.capacity:
            SNAPSHOTS.put(self._scope, segment, replace(snapshot, reader=None), capacity=self._keep.capacity)
        return snapshot

    def newest(self) -> tuple[Snapshot, Stamp | None] | None:
        """The newest version that was read or committed here, and what identifies its file, if known."""
        if not self._keep.capacity:
            return None
        found = NEWEST.get(self._scope, None, ttl_ms=self._keep.ttl_ms)
        return None if found is None else (replace(found[0], reader=self._loader), found[1])

    def put_newest(self, snapshot: Snapshot, stamp: Stamp | None) -> Snapshot:
        """Keep a version as the one to go on from."""
        if self._keep.capacity:
            facts = replace(snapshot, reader=None)
            NEWEST.put(self._scope, None, (facts, stamp), capacity=self._keep.capacity)
        return snapshot


class FileLists:
    """The file lists of one log's versions."""

    def __init__(self, scope: CacheScope, options: Options) -> None:
        """`scope` is that of the store rooted at the log folder."""
        self._scope = scope
        self._keep = caches.keeping(options, opt.CACHE_FILES_TTL_MS, opt.CACHE_FILES_CAPACITY)
        self._max_bytes = options.get(opt.CACHE_FILES_MAX_BYTES)

    def get(self, key: SnapshotKey) -> pa.Table | None:
        """The live splits of a snapshot, if they are kept."""
        return FILE_LISTS.get(self._scope, key, ttl_ms=self._keep.ttl_ms) if self._keep.capacity else None

    def has(self, key: SnapshotKey) -> bool:
        """Whether the live splits of a snapshot are kept; asking counts as neither hit nor miss."""
        return self._keep.capacity > 0 and FILE_LISTS.has(self._scope, key, ttl_ms=self._keep.ttl_ms)

    def put(self, key: SnapshotKey, listed: pa.Table) -> None:
        """Keep the live splits of a snapshot."""
        if self._keep.capacity:
            FILE_LISTS.put(self._scope, key, listed, capacity=self._keep.capacity, max_weight=self._max_bytes)


def invalidate(url: str | None = None) -> int:
    """Forget what was read of a log (its folder's url), or of all; how many values that were."""
    return sum(cache.invalidate(url) for cache in (SNAPSHOTS, NEWEST, FILE_LISTS, VERSIONS, METADATA))


def cache_statistics() -> dict[str, caches.CacheStatistics]:
    """How the caches of this process did, by the name their options have."""
    named: dict[str, caches.Cache[Any]] = {
        "newest": NEWEST,
        "snapshot": SNAPSHOTS,
        "fileList": FILE_LISTS,
        "version": VERSIONS,
        "metadata": METADATA,
    }
    return {name: cache.statistics() for name, cache in named.items()}
