"""From the files of the log to a snapshot: history in, table out."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from indextables import metrics
from indextables.errors import CorruptLogError, ObjectMissingError
from indextables.log import cache as caches
from indextables.log import files, version_file
from indextables.log.actions import Action, Metadata, Protocol
from indextables.log.carried import Carried, decode_carried
from indextables.log.json_checkpoint import read_checkpoint
from indextables.log.names import version_file as version_path
from indextables.log.protocol import check_readable
from indextables.log.replay import Delta
from indextables.log.segment import Base, Segment
from indextables.log.snapshot import BaseState, FileLists, Snapshot
from indextables.log.state_manifest import StateManifest, decode_state
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import Store

T = TypeVar("T")
R = TypeVar("R")

VERSIONS: caches.Cache[list[Action]] = caches.Cache()
METADATA: caches.Cache[Metadata] = caches.Cache()


class Loader:
    """Reads versions and states of one log, with the reader's options."""

    def __init__(self, log: Store, options: Options, lists: FileLists | None = None) -> None:
        """`log` is the store rooted at the log folder; `lists` keeps file lists of snapshots."""
        self.log = log
        self.options = options
        self.lists = lists

    def load(self, segment: Segment) -> Snapshot:
        """The snapshot that a segment describes."""
        base, carried, metadata, protocol = self._base(segment)
        delta = Delta().then(self.versions(segment.versions))
        protocol = delta.protocol or protocol
        metadata = delta.metadata or metadata
        if metadata is None:
            metadata = self._find_metadata(segment)
        snapshot = Snapshot(
            log=self.log,
            version=segment.version,
            protocol=protocol or Protocol(),
            metadata=metadata,
            base=base,
            delta=delta,
            timestamp=delta.timestamp if delta.timestamp is not None else carried.timestamp,
            base_skips={s.path: s for s in carried.mergeskips},
            base_txns={t.app_id: t for t in carried.txns},
            parallelism=self.options.get(opt.STATE_READ_PARALLELISM),
            lists=self.lists,
        )
        return self.checked(snapshot)

    def extend(self, snapshot: Snapshot, versions: Sequence[tuple[int, list[Action]]]) -> Snapshot:
        """A snapshot further on, by versions that follow it."""
        return self.checked(snapshot.then(versions)) if versions else snapshot

    def checked(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, if this release may read it."""
        if self.options.get(opt.PROTOCOL_CHECK):
            check_readable(snapshot.protocol, snapshot.url)
        return snapshot

    def versions(self, wanted: Sequence[int]) -> list[tuple[int, list[Action]]]:
        """The actions of some versions, read in parallel."""
        return list(zip(wanted, self._parallel(self.version, wanted), strict=True))

    def version(self, version: int) -> list[Action]:
        """The actions of one version."""
        keep = caches.keeping(self.options, opt.CACHE_VERSION_TTL_MS, opt.CACHE_VERSION_CAPACITY)
        found = VERSIONS.get(self.log.url, version, ttl_ms=keep.ttl_ms) if keep.capacity else None
        if found is not None:
            return found
        path = version_path(version)
        actions = version_file.decode(self.get(path), f"{self.log.url}/{path}")
        if keep.capacity:
            VERSIONS.put(self.log.url, version, actions, capacity=keep.capacity)
        return actions

    def state(self, base: Base) -> StateManifest:
        """The state that stands in a file."""
        return decode_state(self.get(base.path), f"{self.log.url}/{base.path}")

    def carried(self, state: StateManifest) -> Carried:
        """What a state says in its header; empty when another engine wrote it."""
        return decode_carried(state.extra, self.log.url) or Carried()

    def get(self, path: str) -> bytes:
        """A file of the log that must be there."""
        try:
            return self.log.get(path)
        except ObjectMissingError:
            raise CorruptLogError(f"{self.log.url}/{path}", "the file is missing") from None

    def _base(self, segment: Segment) -> tuple[BaseState, Carried, Metadata | None, Protocol | None]:
        base = segment.base
        if base is None:
            return BaseState(), Carried(), None, None
        if not base.is_state:
            return self._checkpoint(base)
        state = self.state(base)
        url = f"{self.log.url}/{base.path}"
        if state.state_version != base.version:
            raise CorruptLogError(
                url, f"it says it is the state of version {state.state_version}, not {base.version}"
            )
        carried = self.carried(state)
        protocol = Protocol(
            min_reader_version=state.protocol_version, min_writer_version=state.protocol_version
        )
        folder = base.path.rsplit("/", 1)[0]
        metrics.record("indextables.state.tombstone_count", len(state.tombstones))
        metrics.record("indextables.state.tombstone_ratio", len(state.tombstones) / max(state.num_files, 1))
        return (
            BaseState(base.version, folder, state),
            carried,
            state.metadata,
            carried.protocol or protocol,
        )

    def _checkpoint(self, base: Base) -> tuple[BaseState, Carried, Metadata | None, Protocol | None]:
        delta = Delta().then([(base.version, read_checkpoint(self.log, base.version))])
        carried = Carried(mergeskips=list(delta.skips.values()), txns=list(delta.txns.values()))
        listed = delta.files() if delta.added else files.FILES.empty_table()
        return BaseState(base.version, "", None, listed), carried, delta.metadata, delta.protocol

    def _find_metadata(self, segment: Segment) -> Metadata:
        """The newest metadata before a state that has none, as older writers left it out."""
        ttl = caches.keeping(self.options, opt.CACHE_METADATA_TTL_MS, opt.CACHE_VERSION_CAPACITY)
        key = segment.base.path if segment.base else ""
        found = METADATA.get(self.log.url, key, ttl_ms=ttl.ttl_ms)
        if found is None:
            found = self._search_metadata(segment)
            METADATA.put(self.log.url, key, found, capacity=ttl.capacity)
        return found

    def _search_metadata(self, segment: Segment) -> Metadata:
        for state in self._parallel(self.state, segment.earlier_states):
            if state.metadata is not None:
                return state.metadata
        try:
            actions = self.version(0)
        except CorruptLogError:
            actions = []
        for action in actions:
            if isinstance(action, Metadata):
                return action
        raise CorruptLogError(self.log.url, "neither its states nor version 0 hold the table's metadata")

    def _parallel(self, read: Callable[[T], R], wanted: Sequence[T]) -> list[R]:
        if len(wanted) < 2:
            return [read(one) for one in wanted]
        workers = min(self.options.get(opt.MAX_CONCURRENT_READS), len(wanted))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(read, wanted))
