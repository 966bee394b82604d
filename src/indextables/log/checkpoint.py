"""Writes a snapshot as a state, so that readers need not replay all versions.

Incremental: the manifests of the base state are referred to again, one new manifest holds the new
entries, removed paths become tombstones; the cost is that of the change. Compacted: the live entries are
sorted by partition, cut into manifests with tight bounds, and no tombstone is left. Creating the state's
`_manifest.avro` makes it visible; what was written before is invisible until then.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol as Protocol_

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables import metrics
from indextables.errors import (
    CorruptLogError,
    CredentialsError,
    ObjectMissingError,
    StateExpiredError,
    StoreError,
    UnsafeStoreError,
)
from indextables.limits import MAX_UNPACKED
from indextables.log.conflict import without_registry
from indextables.log.environment import Environment
from indextables.log.format.actions import (
    REGISTRY_PREFIX,
    STATES,
    Action,
    CommitInfo,
    MergeSkip,
    Metadata,
    Protocol,
    deduplicate_files,
    renormalize,
)
from indextables.log.format.checkpoint_files import (
    AVRO_STATE,
    Pointer,
    advance_pointer,
    checkpoint_file,
    encode_checkpoint,
)
from indextables.log.format.files import to_adds
from indextables.log.format.manifest import bounds_of, encode_manifest, sorted_by_partition
from indextables.log.format.names import (
    MANIFEST_FOLDER,
    STATE_FILE,
    STATE_FILE_JSON,
    state_file,
    state_folder,
    version_file,
)
from indextables.log.format.state_manifest import (
    FilterBundle,
    ManifestInfo,
    StateHeader,
    StateManifest,
    decode_header,
    encode_header,
    encode_state,
    resolve_manifest_path,
)
from indextables.log.load import Loader
from indextables.log.segment import listing_from
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options import log as opt
from indextables.records import dataclass
from indextables.store import Store
from indextables.store.backend import Backoff

# Errors of storage that a retry cannot fix.
_HOPELESS = (CredentialsError, ObjectMissingError, UnsafeStoreError)

# How many manifests are encoded and sent at the same time; few, since their bytes are in memory.
_WRITERS = 4

# The size of entries in memory at which a manifest is cut: readers refuse one that is too large.
MAX_MANIFEST_BYTES = MAX_UNPACKED // 2

# A state must be visible within this time after its first manifest was written: half the age at which
# manifests that no state refers to may be deleted (`retention.MIN_MANIFEST_AGE_HOURS`).
MAX_CHECKPOINT_MS = 1_800_000

_CODECS = {"zstd": "zstandard", "snappy": "snappy", "none": "null"}


class FilterBundler(Protocol_):
    """Writes the term filters of splits into bundles. The log records their paths, not their content."""

    def __call__(
        self,
        log: Store,
        bundles: Sequence[FilterBundle],
        entries: pa.Table,
        *,
        whole: bool,
        after_commit: bool,
        token: Callable[[], str],
    ) -> Sequence[FilterBundle]:
        """The bundles of a new state.

        Args:
            log: the log folder.
            bundles: the bundles of the state before.
            entries: the splits that were added since; if `whole`, all live splits.
            whole: whether splits that are not among the entries have been removed.
            after_commit: whether a commit waits for the state, which then reads few splits.
            token: returns random text for the name of a bundle.
        """


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """The result of a checkpoint."""

    version: int
    format: str
    compacted: bool
    num_files: int
    num_manifests: int
    num_tombstones: int
    written: bool
    # The number of files of a JSON checkpoint in parts.
    parts: int | None = None


def needs_compaction(snapshot: Snapshot, options: Options) -> bool:
    """Whether the state at this snapshot would be compacted rather than extended."""
    base = snapshot.base.state
    if base is None or base.num_files <= 0:
        return True
    removes = removed_from_base(snapshot)
    tombstones = len(base.tombstones) + len(tombstones_of(snapshot))
    new_manifest = 1 if snapshot.delta.added else 0
    return (
        tombstones / base.num_files > options.get(opt.COMPACT_TOMBSTONES)
        or len(base.manifests) + new_manifest > options.get(opt.COMPACT_MANIFESTS)
        or len(removes) > options.get(opt.COMPACT_REMOVES)
        # Another engine may have added a path that was live; then the number of splits is unknown.
        or bool(snapshot.delta.foreign)
        # A tombstone hides its path in every manifest, so a path that was added again needs a clean state.
        or any(path not in snapshot.delta.fresh for path in snapshot.delta.added)
        or not snapshot.delta.added.keys().isdisjoint(base.tombstones)
        # Without its size, the number of removed bytes is unknown.
        or any(snapshot.delta.removed[p].size is None for p in removes)
    )


def tombstones_of(snapshot: Snapshot) -> list[str]:
    """The paths that were removed since the base state, except those that have a tombstone in it.

    A path that was added after the base gets a tombstone too: it may have been live in the base all the same.
    """
    delta = snapshot.delta
    hidden = set(snapshot.base.state.tombstones) if snapshot.base.state else ()
    return [path for path in delta.removed if path not in delta.added and path not in hidden]


def removed_from_base(snapshot: Snapshot) -> list[str]:
    """The removed paths (see `tombstones_of`) that the base state counts among its splits."""
    return [path for path in tombstones_of(snapshot) if path not in snapshot.delta.fresh]


def is_complete(loader: Loader, state: StateManifest, folder: str) -> bool:
    """Whether every manifest that a state refers to exists; most are checked by one listing."""
    paths = {resolve_manifest_path(manifest.path, folder) for manifest in state.manifests}
    there = {info.path for info in loader.log.list(MANIFEST_FOLDER)} if paths else set()
    return all(path in there or loader.log.exists(path) for path in paths)


def checkpoint(
    loader: Loader,
    snapshot: Snapshot,
    env: Environment,
    *,
    compact: bool,
    bundler: FilterBundler | None = None,
    after_commit: bool = False,
) -> CheckpointResult:
    """Write the state of a snapshot, unless there is one at its version already.

    Without a bundler, the new state refers to the filter bundles of the state before. `after_commit` is
    whether a commit waits for the state.
    """
    options = loader.options
    with metrics.measure("indextables.state.write.duration_ms"):
        if options.get(opt.STATE_FORMAT) == "json":
            return _write_json(loader, snapshot, env)
        backoff = Backoff(options.get(opt.STATE_RETRY_BASE_MS), options.get(opt.STATE_RETRY_MAX_MS))
        attempts = options.get(opt.STATE_RETRY_ATTEMPTS)
        created: _CreatedState | None = None
        checked = False
        attempt = 1
        while True:
            try:
                created = created or _create_state(
                    loader, snapshot, env, bundler, compact=compact, after_commit=after_commit
                )
                if created.written and not checked:
                    _check_state(loader, snapshot, created, env)
                # From here on others may rely on the state, so it is never deleted by its writer.
                checked = True
                if created.written:
                    _point_at(loader, created.state)
                return _result(created.state, compacted=created.compacted, written=created.written)
            except _HOPELESS:
                raise
            except StoreError:
                if attempt >= attempts:
                    raise
            env.sleep(backoff.seconds(attempt, env.jitter()))
            attempt += 1


def existing_state(snapshot: Snapshot) -> CheckpointResult | None:
    """The state of a snapshot's version, if there is one."""
    state = snapshot.base.state
    if state is None or snapshot.base.version != snapshot.version:
        return None
    return _result(state, compacted=False, written=False)


def existing_json(loader: Loader, snapshot: Snapshot) -> CheckpointResult | None:
    """The JSON checkpoint of a snapshot's version, if there is one.

    Raises:
        CorruptLogError: it is damaged, or of another commit. It stays: it may be that of another table.
    """
    if not loader.log.exists(checkpoint_file(snapshot.version)):
        return None
    loader.checkpoint_actions(snapshot.version)
    return _json_result(snapshot, written=False)


def _result(state: StateManifest, *, compacted: bool, written: bool) -> CheckpointResult:
    return CheckpointResult(
        state.state_version,
        AVRO_STATE,
        compacted,
        state.num_files,
        len(state.manifests),
        len(state.tombstones),
        written,
    )


@dataclass(frozen=True, slots=True)
class _CreatedState:
    """A state, and whether this process wrote its file; otherwise another writer did."""

    state: StateManifest
    compacted: bool
    written: bool
    # The time before its first manifest was written, by the wall clock and by the monotonic clock.
    started_ms: tuple[int, int]
    # Whether it refers to manifests or filter bundles of the state before.
    extends: bool
    data: bytes


def _create_state(
    loader: Loader,
    snapshot: Snapshot,
    env: Environment,
    bundler: FilterBundler | None,
    *,
    compact: bool,
    after_commit: bool,
) -> _CreatedState:
    options = loader.options
    codec = _CODECS[options.get(opt.STATE_COMPRESSION)]
    level = options.get(opt.STATE_COMPRESSION_LEVEL)
    base = snapshot.base
    compact = (
        compact
        or needs_compaction(snapshot, options)
        or base.state is None
        or not is_complete(loader, base.state, base.folder)
    )
    started_ms = _clocks_ms(env)
    writer = _StateWriter(loader, snapshot, env, bundler, codec, level, after_commit)
    state = writer.compact_state() if compact else writer.extend_state()
    extends = not compact or not _filter_paths(state).isdisjoint(b.path for b in snapshot.filter_bundles)
    if not _has_version(loader, snapshot) or (extends and not _has_base(loader, snapshot)):
        raise _base_expired(loader, snapshot)
    data = encode_state(state, codec=codec, level=level)
    written = loader.log.create(state_file(snapshot.version), data)
    metrics.record("indextables.state.write.compacted", float(compact))
    metrics.record("indextables.state.tombstone_count", len(state.tombstones))
    metrics.record("indextables.state.tombstone_ratio", len(state.tombstones) / max(state.num_files, 1))
    return _CreatedState(state, compact, written, started_ms, extends, data)


def _filter_paths(state: StateManifest) -> set[str]:
    header = decode_header(state.extra, str(state.state_version))
    return {bundle.path for bundle in header.filters} if header else set()


def _clocks_ms(env: Environment) -> tuple[int, int]:
    return env.now_ms(), int(time.monotonic() * 1000)


def _elapsed_ms(env: Environment, started_ms: tuple[int, int]) -> int:
    """The time since then, by the clock that went faster."""
    return max(now - then for now, then in zip(_clocks_ms(env), started_ms, strict=True))


def _check_state(loader: Loader, snapshot: Snapshot, created: _CreatedState, env: Environment) -> None:
    """Refuse to rely on a state if manifests that it refers to were, or are about to be, deleted.

    Cleaning deletes a state, then lists the remaining states, then deletes manifests that none of them refers
    to. So if the base still exists after our state became visible, the manifests of the base are safe. New
    manifests are protected by their age alone: cleaning may delete them once they are an hour old, so the
    state must be visible well before that.

    A state that fails this check stays, but the pointer never names it: readers fall back to another base if
    its manifests are missing, and the next checkpoint writes one at a new version. It is not deleted, since a
    deletion may arrive late and hit another state of the same version, on which others rely by then. The
    state is deleted only if its version was deleted, or belongs to a table that was created again: there the
    state would describe a version that is not in the log.
    """
    if not _has_version(loader, snapshot):
        path = state_file(snapshot.version)
        # A table that was created again may have a state of this number by now, which must stay.
        with suppress(ObjectMissingError):
            if loader.log.get(path) == created.data:
                loader.log.delete([path])
        raise _base_expired(loader, snapshot)
    state = created.state
    if (
        _elapsed_ms(env, created.started_ms) > MAX_CHECKPOINT_MS
        or (created.extends and not _has_base(loader, snapshot))
        or not is_complete(loader, state, state_folder(state.state_version))
    ):
        raise _base_expired(loader, snapshot)


def _has_version(loader: Loader, snapshot: Snapshot) -> bool:
    """Whether the version that a state describes still exists, in the same table (it may be created again).

    A version that was cleaned up needs no state: its splits may have been deleted.
    """
    listing = listing_from(loader.log, snapshot.version)
    if snapshot.version not in listing.versions:
        return False
    try:
        return loader.identity_at(listing, snapshot.version) == snapshot.identity
    except CorruptLogError:
        if loader.log.exists(version_file(snapshot.version)):
            raise
        return False  # deleted between the listing and the read


def _has_base(loader: Loader, snapshot: Snapshot) -> bool:
    log, folder = loader.log, snapshot.base.folder
    return log.exists(f"{folder}/{STATE_FILE}") or log.exists(f"{folder}/{STATE_FILE_JSON}")


def _base_expired(loader: Loader, snapshot: Snapshot) -> StateExpiredError:
    return StateExpiredError(f"{loader.log.url}/{state_file(snapshot.version)}")


@dataclass(frozen=True, slots=True)
class _StateWriter:
    loader: Loader
    snapshot: Snapshot
    env: Environment
    bundler: FilterBundler | None
    codec: str
    level: int
    after_commit: bool

    def extend_state(self) -> StateManifest:
        base = self.snapshot.base.state
        assert base is not None
        delta = self.snapshot.delta
        folder = self.snapshot.base.folder
        base_manifests = tuple(_normalise(m, folder) for m in base.manifests)
        removed = removed_from_base(self.snapshot)
        added = delta.files()
        new = tuple(self._write_manifest(part) for part in _cut(added)) if added.num_rows else ()
        removed_bytes = sum(delta.removed[path].size or 0 for path in removed)
        return self._state(
            manifests=base_manifests + new,
            tombstones=(*base.tombstones, *tombstones_of(self.snapshot)),
            num_files=base.num_files + added.num_rows - len(removed),
            total_bytes=base.total_bytes + _bytes(added) - removed_bytes,
            registry=self.snapshot.registry,
            skips=list(self.snapshot.skips.values()),
            filters=self._bundles(added, whole=False),
        )

    def compact_state(self) -> StateManifest:
        threshold = self.loader.options.get(opt.RENORMALIZE_THRESHOLD)
        file_list, inline = deduplicate_files(self.snapshot.files(), self.snapshot.registry)
        schemas = {**self.snapshot.registry, **inline}
        file_list, registry = renormalize(file_list, schemas, threshold=threshold)
        file_list = sorted_by_partition(file_list, self.snapshot.schema, self.snapshot.partition_columns)
        with ThreadPoolExecutor(_WRITERS) as pool:
            manifests = tuple(pool.map(self._write_manifest, self._chunks(file_list)))
        return self._state(
            manifests=manifests,
            tombstones=(),
            num_files=file_list.num_rows,
            total_bytes=_bytes(file_list),
            registry=registry,
            skips=_live_skips(self.snapshot, file_list),
            filters=self._bundles(file_list, whole=True),
        )

    def _bundles(self, entries: pa.Table, *, whole: bool) -> Sequence[FilterBundle]:
        """The filter bundles of the state; those of the base are protected as its manifests are."""
        bundles = self.snapshot.filter_bundles
        if self.bundler is None:
            return bundles
        return self.bundler(
            self.loader.log,
            bundles,
            entries,
            whole=whole,
            after_commit=self.after_commit,
            token=self.env.token,
        )

    def _chunks(self, file_list: pa.Table) -> Iterator[pa.Table]:
        size = self.loader.options.get(opt.STATE_ENTRIES_PER_MANIFEST)
        for start in range(0, file_list.num_rows, size):
            yield from _cut(file_list.slice(start, size))

    def _write_manifest(self, entries: pa.Table) -> ManifestInfo:
        partition_columns = self.snapshot.partition_columns
        path = f"{MANIFEST_FOLDER}/manifest-{self.env.token()}.avro"
        data = encode_manifest(
            entries, partition_columns=partition_columns, codec=self.codec, level=self.level
        )
        self.loader.log.create(path, data)
        versions = pc.min_max(entries["addedAtVersion"]).as_py()
        return ManifestInfo(
            path=path,
            num_entries=entries.num_rows,
            min_added_at_version=versions["min"],
            max_added_at_version=versions["max"],
            partition_bounds=bounds_of(entries, self.snapshot.schema, partition_columns) or None,
            tombstone_count=0,
            live_entry_count=entries.num_rows,
        )

    def _state(
        self,
        *,
        manifests: tuple[ManifestInfo, ...],
        tombstones: tuple[str, ...],
        num_files: int,
        total_bytes: int,
        registry: dict[str, str],
        skips: list[MergeSkip],
        filters: Sequence[FilterBundle],
    ) -> StateManifest:
        snapshot = self.snapshot
        protocol = _at_least_current(snapshot.protocol)
        header = StateHeader(
            protocol=protocol,
            timestamp=snapshot.timestamp,
            token=snapshot.token,
            lineage=list(snapshot.lineage),
            mergeskips=skips,
            txns=list(snapshot.txns.values()),
            filters=list(filters),
        )
        return StateManifest(
            format_version=1,
            state_version=snapshot.version,
            created_at=self.env.now_ms(),
            num_files=num_files,
            total_bytes=total_bytes,
            manifests=manifests,
            tombstones=tombstones,
            schema_registry=registry,
            protocol_version=max(protocol.min_reader_version, protocol.min_writer_version),
            metadata=_metadata_with(snapshot.metadata, registry),
            extra=encode_header(header),
        )


def _cut(entries: pa.Table) -> Iterator[pa.Table]:
    """The entries in parts that manifests can hold."""
    if entries.num_rows > 1 and entries.nbytes > MAX_MANIFEST_BYTES:
        half = entries.num_rows // 2
        yield from _cut(entries.slice(0, half))
        yield from _cut(entries.slice(half))
    else:
        yield entries


def _live_skips(snapshot: Snapshot, file_list: pa.Table) -> list[MergeSkip]:
    """The splits that a merge skipped, except those that a concurrent commit removed."""
    paths = pa.array(snapshot.skips, pa.string())
    live = pc.is_in(paths, value_set=file_list["path"].combine_chunks()).to_pylist()
    return [skip for skip, is_live in zip(snapshot.skips.values(), live, strict=True) if is_live]


def _at_least_current(protocol: Protocol) -> Protocol:
    """The protocol of a table with a state: older readers could not read it."""
    return msgspec.structs.replace(
        protocol,
        min_reader_version=max(protocol.min_reader_version, STATES),
        min_writer_version=max(protocol.min_writer_version, STATES),
    )


def _metadata_with(metadata: Metadata, registry: dict[str, str]) -> Metadata:
    """Metadata with every document mapping: other engines look for them only there."""
    registered = {REGISTRY_PREFIX + name: text for name, text in sorted(registry.items())}
    configuration = {**without_registry(metadata.configuration), **registered}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _normalise(manifest: ManifestInfo, folder: str) -> ManifestInfo:
    """A manifest of an older state by the path that newer states use: a bare file name gets its folder."""
    if "/" in manifest.path:
        return manifest
    return ManifestInfo(
        path=f"{folder}/{manifest.path}",
        num_entries=manifest.num_entries,
        min_added_at_version=manifest.min_added_at_version,
        max_added_at_version=manifest.max_added_at_version,
        partition_bounds=manifest.partition_bounds,
        tombstone_count=manifest.tombstone_count,
        live_entry_count=manifest.live_entry_count,
    )


def _bytes(entries: pa.Table) -> int:
    return pc.sum(entries["size"]).as_py() or 0


def _point_at(loader: Loader, state: StateManifest) -> None:
    advance_pointer(
        loader.log,
        Pointer(
            version=state.state_version,
            size=state.num_files,
            size_in_bytes=state.total_bytes,
            num_files=state.num_files,
            created_time=state.created_at,
            format=AVRO_STATE,
            state_dir=state_folder(state.state_version),
        ),
    )


def _write_json(loader: Loader, snapshot: Snapshot, env: Environment) -> CheckpointResult:
    """Write the older form of a state: a JSON checkpoint, which lists the actions of the whole table."""
    file_list = snapshot.files()
    actions: list[Action] = [
        CommitInfo(
            timestamp=snapshot.timestamp or 0,
            operation="CHECKPOINT",
            token=snapshot.token or "",
            lineage=list(snapshot.lineage),
        ),
        snapshot.protocol,
        _metadata_with(snapshot.metadata, snapshot.registry),
        *snapshot.txns.values(),
        *_live_skips(snapshot, file_list),
        *to_adds(file_list),
    ]
    written = encode_checkpoint(actions, version=snapshot.version, now_ms=env.now_ms())
    if not _has_version(loader, snapshot):
        raise _base_expired(loader, snapshot)
    *parts, (name, data) = written.files.items()
    started_ms = _clocks_ms(env)
    for part, content in parts:
        loader.log.create(part, content)
    # Never overwritten: a table that was created again may rely on a checkpoint of this number by now.
    if not loader.log.create(name, data):
        loader.log.delete(part for part, _ in parts)
        if not _has_version(loader, snapshot):
            raise _base_expired(loader, snapshot)
        return _json_result(snapshot, written=False)
    if not _has_version(loader, snapshot):
        # It would describe a version that is not in the log, or one of a table that was created again.
        with suppress(ObjectMissingError):
            if loader.log.get(name) == data:
                loader.log.delete([name])
        loader.log.delete(part for part, _ in parts)
        raise _base_expired(loader, snapshot)
    # As manifests, parts that no checkpoint names are deleted once they are an hour old.
    if parts and (
        _elapsed_ms(env, started_ms) > MAX_CHECKPOINT_MS
        or not all(loader.log.exists(part) for part, _ in parts)
    ):
        raise _base_expired(loader, snapshot)
    advance_pointer(
        loader.log,
        Pointer(
            version=snapshot.version,
            size=len(actions),
            size_in_bytes=sum(len(data) for data in written.files.values()),
            num_files=file_list.num_rows,
            created_time=env.now_ms(),
            parts=written.parts,
            checkpoint_id=written.checkpoint_id,
        ),
    )
    return _json_result(snapshot, written=True, parts=written.parts)


def _json_result(snapshot: Snapshot, *, written: bool, parts: int | None = None) -> CheckpointResult:
    files = snapshot.files().num_rows
    return CheckpointResult(snapshot.version, "json", True, files, 0, 0, written=written, parts=parts)
