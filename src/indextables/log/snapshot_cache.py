"""Caches of snapshots and file lists that this process has read, within the limits of the options.

Everything in these caches is immutable on storage (a version file, the entries of a manifest, the files of
one version), and is cached under name, size, time and tag of its files. So a cached value is right even after
a table was deleted and created again. The newest version is looked up on storage each time. Values are cached
per reader, by its credentials, and hold neither credentials nor handles.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from indextables.cache import Cache, CacheStatistics
from indextables.log.format.actions import Action, Metadata
from indextables.log.format.manifest import ManifestStart
from indextables.log.segment import LogSegment, Stamp
from indextables.log.snapshot import Selection, Snapshot, SnapshotKey, SnapshotReader
from indextables.options import Options
from indextables.options import log as opt
from indextables.records import dataclass
from indextables.store import CacheScope

# A value of a table, for one reader of it.
Key: TypeAlias = tuple[CacheScope, Hashable]


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Time to live and capacity of a cache; both are 0 if caching is off."""

    ttl_ms: int
    capacity: int


def cache_limits(options: Options, ttl: opt.Milliseconds, capacity: opt.Count) -> CacheLimits:
    """The limits that the options set for one cache."""
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


SNAPSHOTS: Cache[Key, Snapshot] = Cache()
NEWEST: Cache[Key, tuple[Snapshot, Stamp | None]] = Cache()
# The actions of version files, with the size of their text: objects take two to three times the memory.
VERSIONS: Cache[Key, tuple[list[Action], int]] = Cache(weigh=lambda read: read[1])
METADATA: Cache[Key, Metadata] = Cache()
# By snapshot, or by the blocks that they are from.
FILE_LISTS: Cache[Key, pa.Table] = Cache(weigh=lambda file_list: int(file_list.nbytes))
MANIFEST_STARTS: Cache[Key, ManifestStart] = Cache(weigh=lambda start: start.nbytes)
# The starts of manifests are small, and version files are merged into file lists: what each may take of the
# memory of file lists, besides that.
_STARTS_SHARE = 16
_VERSIONS_SHARE = 16


def most_version_bytes(options: Options) -> int:
    """The maximum size of all cached version files, as text."""
    return options.get(opt.CACHE_FILES_MAX_BYTES) // _VERSIONS_SHARE


class SnapshotCache:
    """The snapshots of one log."""

    def __init__(self, reader: SnapshotReader, options: Options) -> None:
        """`reader` reads on behalf of the snapshots that the cache returns."""
        self._reader = reader
        self._scope = reader.log.cache_scope
        self._limits = cache_limits(options, opt.CACHE_SNAPSHOT_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY)

    def get(self, segment: LogSegment) -> Snapshot | None:
        """The cached snapshot of these files."""
        if not self._limits.capacity:
            return None
        snapshot = SNAPSHOTS.get((self._scope, segment), ttl_ms=self._limits.ttl_ms)
        return None if snapshot is None else replace(snapshot, reader=self._reader)

    def put(self, segment: LogSegment, snapshot: Snapshot) -> Snapshot:
        """Cache the snapshot that was read from these files."""
        if self._limits.capacity:
            SNAPSHOTS.put(
                (self._scope, segment), replace(snapshot, reader=None), capacity=self._limits.capacity
            )
        return snapshot

    def newest(self) -> tuple[Snapshot, Stamp | None] | None:
        """The newest version that this process read or committed, and the stamp of its file, if known."""
        if not self._limits.capacity:
            return None
        newest = NEWEST.get((self._scope, None), ttl_ms=self._limits.ttl_ms)
        return None if newest is None else (replace(newest[0], reader=self._reader), newest[1])

    def put_newest(self, snapshot: Snapshot, stamp: Stamp | None) -> Snapshot:
        """Cache the newest version, from which later snapshots are computed."""
        if self._limits.capacity:
            shared = replace(snapshot, reader=None)
            NEWEST.put((self._scope, None), (shared, stamp), capacity=self._limits.capacity)
        return snapshot


class FileListCache:
    """The file lists of one log's versions."""

    def __init__(self, scope: CacheScope, options: Options) -> None:
        """`scope` is that of the store rooted at the log folder."""
        self._scope = scope
        self._limits = cache_limits(options, opt.CACHE_FILES_TTL_MS, opt.CACHE_FILES_CAPACITY)
        self._max_bytes = options.get(opt.CACHE_FILES_MAX_BYTES)

    def get(self, key: SnapshotKey) -> pa.Table | None:
        """The live splits of a snapshot; None if they are not cached."""
        return self._get(key)

    def has(self, key: SnapshotKey) -> bool:
        """Whether the live splits of a snapshot are cached; counts as neither hit nor miss."""
        return self._limits.capacity > 0 and FILE_LISTS.has((self._scope, key), ttl_ms=self._limits.ttl_ms)

    def put(self, key: SnapshotKey, file_list: pa.Table) -> None:
        """Cache the live splits of a snapshot."""
        self._put(key, file_list)

    def get_selection(self, selection: Selection) -> pa.Table | None:
        """The entries of some blocks; None if they are not cached."""
        return self._get(selection)

    def put_selection(self, selection: Selection, file_list: pa.Table) -> None:
        """Cache the entries of some blocks."""
        self._put(selection, file_list)

    def get_start(self, path: str) -> ManifestStart | None:
        """The start of a manifest; None if it is not cached."""
        if not self._limits.capacity:
            return None
        return MANIFEST_STARTS.get((self._scope, path), ttl_ms=self._limits.ttl_ms)

    def put_start(self, path: str, start: ManifestStart) -> None:
        """Cache the start of a manifest."""
        if self._limits.capacity:
            MANIFEST_STARTS.put((self._scope, path), start, max_weight=self._max_bytes // _STARTS_SHARE)

    def _get(self, key: Hashable) -> pa.Table | None:
        if not self._limits.capacity:
            return None
        return FILE_LISTS.get((self._scope, key), ttl_ms=self._limits.ttl_ms)

    def _put(self, key: Hashable, file_list: pa.Table) -> None:
        if self._limits.capacity:
            FILE_LISTS.put(
                (self._scope, key), file_list, capacity=self._limits.capacity, max_weight=self._max_bytes
            )


def invalidate(url: str | None = None) -> int:
    """Remove the cached values of a log (the URL of its folder) for all readers, or those of all logs.

    Returns their number.
    """
    caches: tuple[Cache[Key, Any], ...] = (
        SNAPSHOTS,
        NEWEST,
        FILE_LISTS,
        MANIFEST_STARTS,
        VERSIONS,
        METADATA,
    )
    return sum(len(cache.discard(lambda key, _: url in (None, key[0].url))) for cache in caches)


def cache_statistics() -> dict[str, CacheStatistics]:
    """The statistics of the caches of this process, by their names in options."""
    caches: dict[str, Cache[Key, Any]] = {
        "newest": NEWEST,
        "snapshot": SNAPSHOTS,
        "fileList": FILE_LISTS,
        "manifest": MANIFEST_STARTS,
        "version": VERSIONS,
        "metadata": METADATA,
    }
    return {name: cache.statistics() for name, cache in caches.items()}
