"""Snapshots and file lists that this process has read, within the bounds the options set.

They are kept by version, and a version never changes, so they are never wrong. Which version is the
newest is asked of storage each time.
"""

import pyarrow as pa

from indextables.log import cache as caches
from indextables.log.load import METADATA, VERSIONS
from indextables.log.segment import Stamp
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options import log as opt

SNAPSHOTS: caches.Cache[Snapshot] = caches.Cache()
NEWEST: caches.Cache[tuple[Snapshot, Stamp | None]] = caches.Cache()
FILE_LISTS: caches.Cache[pa.Table] = caches.Cache(weigh=lambda listed: int(listed.nbytes))


class KnownSnapshots:
    """The snapshots of one log."""

    def __init__(self, url: str, options: Options) -> None:
        """`url` names the log folder."""
        self._url = url
        self._keep = caches.keeping(options, opt.CACHE_SNAPSHOT_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY)

    def get(self, version: int) -> Snapshot | None:
        """A version that was read before."""
        return SNAPSHOTS.get(self._url, version, ttl_ms=self._keep.ttl_ms) if self._keep.capacity else None

    def put(self, snapshot: Snapshot) -> None:
        """Keep a version."""
        if self._keep.capacity:
            SNAPSHOTS.put(self._url, snapshot.version, snapshot, capacity=self._keep.capacity)

    def newest(self) -> tuple[Snapshot, Stamp | None] | None:
        """The newest version that was read before, and what identifies its file."""
        return NEWEST.get(self._url, None, ttl_ms=self._keep.ttl_ms) if self._keep.capacity else None

    def put_newest(self, snapshot: Snapshot, stamp: Stamp | None) -> Snapshot:
        """Keep a version as the one to go on from."""
        self.put(snapshot)
        if self._keep.capacity:
            NEWEST.put(self._url, None, (snapshot, stamp), capacity=self._keep.capacity)
        return snapshot


class FileLists:
    """The file lists of one log's versions."""

    def __init__(self, url: str, options: Options) -> None:
        """`url` names the log folder."""
        self._url = url
        self._keep = caches.keeping(options, opt.CACHE_FILES_TTL_MS, opt.CACHE_FILES_CAPACITY)
        self._max_bytes = options.get(opt.CACHE_FILES_MAX_BYTES)

    def get(self, version: int) -> pa.Table | None:
        """The live splits of a version, if they are kept."""
        return FILE_LISTS.get(self._url, version, ttl_ms=self._keep.ttl_ms) if self._keep.capacity else None

    def put(self, version: int, listed: pa.Table) -> None:
        """Keep the live splits of a version."""
        if self._keep.capacity:
            FILE_LISTS.put(
                self._url, version, listed, capacity=self._keep.capacity, max_weight=self._max_bytes
            )


def invalidate(url: str | None = None) -> int:
    """Forget what was read of a log (its folder's url), or of all; how many values that were."""
    return sum(cache.invalidate(url) for cache in (SNAPSHOTS, NEWEST, FILE_LISTS, VERSIONS, METADATA))


def cache_statistics() -> dict[str, caches.CacheStatistics]:
    """How the caches of this process did, by the name their options have."""
    named = {"snapshot": NEWEST, "fileList": FILE_LISTS, "version": VERSIONS, "metadata": METADATA}
    return {name: cache.statistics() for name, cache in named.items()}
