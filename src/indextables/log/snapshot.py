"""The table at one version: its schema, its settings and its live splits.

```
manifests of the state  -  tombstones  -  removed since  +  added since  =  live splits
```

The file list is an Arrow table that is loaded lazily; with a filter, only manifests and blocks that may have
a matching entry are read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Protocol as Protocol_
from typing import TypeAlias, TypeVar, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import metrics
from indextables.errors import CorruptLogError
from indextables.log.format import files
from indextables.log.format.actions import (
    Action,
    Add,
    CommitInfo,
    MergeSkip,
    Metadata,
    Protocol,
    Remove,
    Txn,
    companion_error,
    is_companion,
    registry_of,
)
from indextables.log.format.files import unescaped_bounds, with_unescaped_partitions
from indextables.log.format.manifest import (
    BLOCK_ENTRIES,
    BlockSelection,
    ManifestStart,
    read_blocks,
    read_start,
)
from indextables.log.format.state_manifest import (
    Bounds,
    FilterBundle,
    ManifestInfo,
    StateHeader,
    StateManifest,
    resolve_manifest_path,
)
from indextables.log.pruning import bounds_may_match, prune
from indextables.predicate import Predicate
from indextables.records import dataclass
from indextables.schema.spark import to_arrow
from indextables.store import Store

T = TypeVar("T")
M = TypeVar("M", ManifestInfo, "_Part")

# How many tokens of the last versions a snapshot and a state keep.
LINEAGE_LENGTH = 100


@dataclass(slots=True)
class Delta:
    """The net effect of some versions, in order: what they added, removed and changed.

    `added` are splits that are live at the end, with their version and commit time. `removed` are paths that
    were removed at some point; those in `fresh` were first added by these versions, so the base does not list
    them. A path can be in `added` and `removed`, when it was added again. `foreign` are the fresh paths of
    commits of other engines, which may add a path that is live in the base. `lineage` holds the tokens of the
    last versions, the newest last.
    """

    added: dict[str, tuple[Add, int, int]] = field(default_factory=dict)
    removed: dict[str, Remove] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    skips: dict[str, MergeSkip] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    timestamp: int | None = None
    # The unique token of the last version's commit; None if another engine wrote it.
    token: str | None = None
    lineage: tuple[str | None, ...] = ()

    def then(self, versions: Iterable[tuple[int, Sequence[Action]]]) -> "Delta":
        """Return the delta extended by later versions; `self` is unchanged."""
        longer = Delta(
            dict(self.added),
            dict(self.removed),
            set(self.fresh),
            set(self.foreign),
            self.protocol,
            self.metadata,
            dict(self.skips),
            dict(self.txns),
            self.timestamp,
            self.token,
            self.lineage,
        )
        for version, actions in versions:
            longer._take(version, actions)
        return longer

    def _take(self, version: int, actions: Sequence[Action]) -> None:
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        self.token = info.token if info else None
        self.lineage = (*self.lineage, self.token)[-LINEAGE_LENGTH:]
        if info is not None:
            self.timestamp = info.timestamp
        for action in actions:
            match action:
                case Add():
                    stamp = info.timestamp if info else action.modification_time
                    if action.path not in self.removed and action.path not in self.added:
                        self.fresh.add(action.path)
                        if info is None:
                            self.foreign.add(action.path)
                    self.added[action.path] = (action, version, stamp)
                case Remove():
                    self.added.pop(action.path, None)
                    self.skips.pop(action.path, None)
                    self.removed[action.path] = action
                case MergeSkip():
                    self.skips[action.path] = action
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case Txn():
                    self.txns[action.app_id] = action
                case CommitInfo():
                    pass
                case _:
                    assert_never(action)

    def files(self) -> pa.Table:
        """The added splits as a file list."""
        if not self.added:
            return files.FILES.empty_table()
        adds, versions, stamps = zip(*self.added.values(), strict=True)
        file_list = files.from_adds(adds, version=0, timestamp=0)
        for name, values in (("addedAtVersion", versions), ("addedAtTimestamp", stamps)):
            place = file_list.schema.get_field_index(name)
            file_list = file_list.set_column(
                place, file_list.schema.field(place), pa.array(values, pa.int64())
            )
        return with_unescaped_partitions(file_list)


# The length of the ids of our manifests, whose bounds follow the order of the columns' types.
MANIFEST_ID_LENGTH = 32

# A list with more chunks is combined, since each chunk slows down every later step.
_MAX_CHUNKS = 32
# A list of fewer splits is always combined from its parts.
_SMALL_LIST = 10_000

# Manifests of fewer entries, on a local disk, are read one after the other: threads would cost more.
_FEW_ENTRIES = 1000

# A version, and what distinguishes its commit from others that had this number.
SnapshotKey: TypeAlias = tuple[int, str]
# Some manifests by their paths, with the blocks that are read of each: what a file list is made from.
Selection: TypeAlias = tuple[tuple[str, BlockSelection], ...]


@dataclass(frozen=True, slots=True)
class BaseState:
    """The base of a snapshot: a state whose manifests are read on demand, or a list in memory."""

    version: int = -1
    folder: str = ""
    state: StateManifest | None = None
    file_list: pa.Table | None = None


class FileLists(Protocol_):
    """The cache of file lists of this table's versions."""

    def get(self, key: SnapshotKey) -> pa.Table | None:
        """The live splits of a snapshot; None if they are not cached."""

    def has(self, key: SnapshotKey) -> bool:
        """Whether the live splits of a snapshot are cached; counts as neither hit nor miss."""

    def put(self, key: SnapshotKey, file_list: pa.Table) -> None:
        """Cache the live splits of a snapshot."""

    def get_selection(self, selection: Selection) -> pa.Table | None:
        """The entries of some blocks; None if they are not cached."""

    def put_selection(self, selection: Selection, file_list: pa.Table) -> None:
        """Cache the entries of some blocks."""

    def get_start(self, path: str) -> ManifestStart | None:
        """The start of a manifest; None if it is not cached."""

    def put_start(self, path: str, start: ManifestStart) -> None:
        """Cache the start of a manifest."""


class SnapshotReader(Protocol_):
    """Reads the parts of a snapshot that are loaded lazily."""

    @property
    def log(self) -> Store:
        """The log folder."""

    @property
    def lists(self) -> FileLists | None:
        """The cache of file lists; None if there is none."""

    @property
    def parallelism(self) -> int:
        """How many manifests are read at once."""

    def read_missing_header(self, version: int) -> StateHeader:
        """The header of a state of another engine, from earlier files."""

    def reload(self, version: int, token: str | None, unusable: tuple[str, ...]) -> "Snapshot":
        """Read a version from another base than the unusable ones, which are given by path."""


# Versions with their actions, the identity of the last one, and the time of their files.
_Step: TypeAlias = tuple[Sequence[tuple[int, Sequence[Action]]], str, int | None]


@dataclass(frozen=True, slots=True)
class Fallback:
    """The same version from another base, for when a manifest of this one is missing or damaged.

    It is read from a base whose path is not in `unusable`, and extended by `steps`. A version may have
    a state and a JSON checkpoint.
    """

    version: int
    token: str | None
    unusable: tuple[str, ...]
    steps: tuple[_Step, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """One version of a table, as it was read from its log.

    `identity` distinguishes it from the version of the same number of an earlier table at this place.
    Immutable except for `reader`, which is attached when the snapshot is taken from a cache.
    """

    reader: SnapshotReader | None = field(compare=False, repr=False)
    version: int
    protocol: Protocol
    metadata: Metadata
    base: BaseState
    delta: Delta
    identity: str
    timestamp: int | None = None
    # None if the base lacks a part of it: then the reader reads it from earlier files.
    header: StateHeader | None = field(default=StateHeader(), repr=False)
    fallback: Fallback | None = field(default=None, compare=False, repr=False)
    # An earlier snapshot whose file list may be cached, and the changes since.
    since: tuple[SnapshotKey, Delta] | None = field(default=None, compare=False, repr=False)

    @property
    def _source(self) -> SnapshotReader:
        assert self.reader is not None, "a cached snapshot has no reader"
        return self.reader

    @property
    def log(self) -> Store:
        """The log folder."""
        return self._source.log

    @property
    def lists(self) -> FileLists | None:
        """The cache of file lists; None if there is none."""
        return self._source.lists

    @property
    def url(self) -> str:
        """Where the table is."""
        return self.log.url.rsplit("/", 1)[0]

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, partition columns included."""
        return _schema(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns, in order."""
        return tuple(self.metadata.partition_columns or ())

    @cached_property
    def registry(self) -> dict[str, str]:
        """Document mappings by their hash."""
        state = self.base.state
        return registry_of(self.metadata, state.schema_registry if state else {})

    @cached_property
    def skips(self) -> dict[str, MergeSkip]:
        """The live splits that a merge skipped, by path."""
        skips = {s.path: s for s in self._before.mergeskips if s.path not in self.delta.removed}
        return {**skips, **self.delta.skips}

    @cached_property
    def txns(self) -> dict[str, Txn]:
        """The last batch of each application."""
        return {**{t.app_id: t for t in self._before.txns}, **self.delta.txns}

    @cached_property
    def _before(self) -> StateHeader:
        """The header of the base."""
        return self._source.read_missing_header(self.base.version) if self.header is None else self.header

    @cached_property
    def lineage(self) -> tuple[str | None, ...]:
        """The tokens of the last versions, this one last; None for commits of other engines."""
        before = self.header.commits if isinstance(self.header, StateHeader) else ()
        return (*before, *self.delta.lineage)[-LINEAGE_LENGTH:]

    @property
    def token(self) -> str | None:
        """The token of this version's commit; None if another engine committed it."""
        return self.lineage[-1] if self.lineage else None

    def token_at(self, version: int) -> str | None:
        """The token of an earlier version or of this one; None if the lineage lacks it."""
        steps = self.version - version
        return self.lineage[-1 - steps] if 0 <= steps < len(self.lineage) else None

    def is_later_than(self, before: "Snapshot") -> bool:
        """Whether this is the same version, or a later one of the same table as far as tokens show.

        A table may be deleted and created again at the same path, or restored from an older copy.
        """
        token = self.token_at(before.version)
        return (
            self.metadata.id == before.metadata.id
            and self.version >= before.version
            and (token is None or before.token is None or token == before.token)
        )

    @property
    def key(self) -> SnapshotKey:
        """The key of the snapshot's file list in caches."""
        return self.version, self.identity

    def files(self, where: Predicate | None = None) -> pa.Table:
        """The live splits that may have a row for which the filter is true.

        Columns are those of a manifest entry (`log.format.files.FILES`), rows in the order of their addition.
        """
        file_list, mask = self.select(where)
        return file_list if mask is None else file_list.filter(mask)

    def select(self, where: Predicate | None) -> tuple[pa.Table, pa.BooleanArray | None]:
        """Live splits, and which of them can hold a row for which the condition is true; None for all."""
        file_list = self._cached_files()
        if file_list is None:
            file_list, is_whole = self._read(where)
            if is_whole and self.lists:
                self.lists.put(self.key, file_list)
        if where is None or file_list.num_rows == 0:
            return file_list, None
        mask = prune(file_list, where, self.schema, self.partition_columns)
        return file_list, None if mask.true_count == len(mask) else mask

    def is_cached(self, file_list: pa.Table) -> bool:
        """Whether this is the list of all live splits, and is in the cache."""
        return self.lists is not None and self.lists.has(self.key) and self.lists.get(self.key) is file_list

    def then(
        self, versions: Sequence[tuple[int, Sequence[Action]]], identity: str, at_least: int | None = None
    ) -> "Snapshot":
        """The snapshot after further versions; reuses the cached file list.

        `identity` is that of the last version if its commit has no token; `at_least` is the time of the
        version files whose commits have no time.
        """
        delta = self.delta.then(versions)
        times = [time for time in (self.timestamp, delta.timestamp, at_least) if time is not None]
        later = replace(
            self,
            version=versions[-1][0],
            delta=delta,
            identity=delta.token or identity,
            protocol=delta.protocol or self.protocol,
            metadata=delta.metadata or self.metadata,
            timestamp=max(times, default=None),
            fallback=self.fallback
            and replace(self.fallback, steps=(*self.fallback.steps, (versions, identity, at_least))),
        )
        if self.lists is None:
            return later
        for key, between in ((self.key, Delta()), self.since or (self.key, Delta())):
            if self.lists.has(key):
                return replace(later, since=(key, between.then(versions)))
        return replace(later, since=None)

    def _from_other_base(self, fallback: Fallback) -> "Snapshot":
        other = self._source.reload(fallback.version, fallback.token, fallback.unusable)
        for versions, identity, at_least in fallback.steps:
            other = other.then(versions, identity, at_least)
        return other

    @property
    def filter_bundles(self) -> Sequence[FilterBundle]:
        """The filter bundles of the state that the snapshot starts from."""
        return () if self.header is None else self.header.filters

    @property
    def num_files(self) -> int:
        """How many splits are live."""
        return int(self.files().num_rows)

    @property
    def total_bytes(self) -> int:
        """The size of all live splits."""
        return pc.sum(self.files()["size"]).as_py() or 0

    def _cached_files(self) -> pa.Table | None:
        """The file list, if it or that of an earlier snapshot is cached."""
        if self.lists is None:
            return None
        file_list = self.lists.get(self.key)
        if file_list is None and self.since is not None:
            key, delta = self.since
            earlier = self.lists.get(key) if self.lists.has(key) else None
            if earlier is not None:
                file_list = _apply(earlier, delta)
                self.lists.put(self.key, file_list)
        return file_list

    def _read(self, where: Predicate | None) -> tuple[pa.Table, bool]:
        """The live splits that manifests and blocks do not exclude, and whether these are all splits."""
        with metrics.measure("indextables.state.read.duration_ms"):
            tombstones = self.base.state.tombstones if self.base.state else ()
            try:
                base, is_whole = self._base_files(where)
            except CorruptLogError as error:
                if self.fallback is None:
                    raise
                try:
                    other = self._from_other_base(self.fallback)
                except CorruptLogError:
                    raise error from None
                return other.files(where), where is None
            file_list = _apply(base, self.delta, tombstones)
        if file_list["companionSourceFiles"].null_count < file_list.num_rows and not is_companion(
            self.protocol
        ):
            raise companion_error(self.metadata, self.url)
        metrics.record("indextables.state.read.file_count", file_list.num_rows)
        return file_list, is_whole

    def _base_files(self, where: Predicate | None) -> tuple[pa.Table, bool]:
        """The entries of the base, and whether these are all of them."""
        if self.base.file_list is not None:
            return self.base.file_list, True
        state = self.base.state
        manifests = [m for m in state.manifests if self._may_hold(m, where)] if state else []
        metrics.record("indextables.state.read.manifest_count", len(manifests))
        starts = self._each_manifest(lambda m: self._start(m, where), manifests)
        parts = [
            _Part(
                resolve_manifest_path(manifest.path, self.base.folder),
                manifest.num_entries,
                start,
                None if start is None or where is None else self._blocks(start, where),
            )
            for manifest, start in zip(manifests, starts, strict=True)
        ]
        is_whole = all(part.selection is None for part in parts) and (
            state is None or len(parts) == len(state.manifests)
        )
        selection = tuple((part.path, part.selection) for part in parts)
        if not is_whole and self.lists and (cached := self.lists.get_selection(selection)) is not None:
            return cached, False
        tables = self._each_manifest(
            lambda part: read_blocks(
                self.log, part.path, entries=part.num_entries, start=part.start, selection=part.selection
            ),
            [part for part in parts if part.selection != ()],
        )
        if not tables:
            return files.FILES.empty_table(), is_whole
        file_list = with_unescaped_partitions(_last_of_each_path(tables))
        if not is_whole and self.lists:
            self.lists.put_selection(selection, file_list)
        return file_list, is_whole

    def _each_manifest(self, read: Callable[[M], T], manifests: Sequence[M]) -> list[T]:
        """What is read of each manifest, in their order."""
        few = self.log.is_local and all(each.num_entries <= _FEW_ENTRIES for each in manifests)
        if few or len(manifests) < 2:
            return [read(each) for each in manifests]
        with ThreadPoolExecutor(min(self._source.parallelism, len(manifests))) as pool:
            return list(pool.map(read, manifests))

    def _may_hold(self, manifest: ManifestInfo, where: Predicate | None) -> bool:
        if where is None or not manifest.partition_bounds:
            return True
        return self._overlap(where, manifest.partition_bounds, ordered=is_own_manifest(manifest.path))

    def _overlap(self, where: Predicate, bounds: Mapping[str, Bounds], *, ordered: bool) -> bool:
        if not ordered:
            bounds = unescaped_bounds(bounds, self.schema)
        plain = {name: (b.min, b.max) for name, b in bounds.items()}
        return bounds_may_match(where, plain, self.schema, self.partition_columns, ordered=ordered)

    def _start(self, manifest: ManifestInfo, where: Predicate | None) -> ManifestStart | None:
        """The start of a manifest if some of its blocks may be skipped; None if it is read as a whole."""
        if where is None or not self.partition_columns or manifest.num_entries <= BLOCK_ENTRIES:
            return None
        path = resolve_manifest_path(manifest.path, self.base.folder)
        start = self.lists.get_start(path) if self.lists else None
        if start is None:
            start = read_start(self.log, path, entries=manifest.num_entries)
            if start is not None and self.lists:
                self.lists.put_start(path, start)
        return start

    def _blocks(self, start: ManifestStart, where: Predicate) -> BlockSelection:
        return start.select(lambda bounds: self._overlap(where, bounds, ordered=True))


@dataclass(frozen=True, slots=True)
class _Part:
    """The blocks of a manifest that are read."""

    path: str
    num_entries: int
    start: ManifestStart | None
    selection: BlockSelection


@lru_cache(maxsize=64)
def _schema(text: str) -> pa.Schema:
    return to_arrow(text)


def is_own_manifest(manifest_path: str) -> bool:
    """Whether a manifest was written by this engine, by its name."""
    name = manifest_path.rsplit("/", 1)[-1]
    return len(name.removeprefix("manifest-").removesuffix(".avro")) == MANIFEST_ID_LENGTH


def _apply(file_list: pa.Table, delta: Delta, tombstones: Iterable[str] = ()) -> pa.Table:
    """Apply a delta to a file list: drop the paths that it removed or added again, append what it added."""
    hidden = {*tombstones, *delta.removed, *delta.added}
    if hidden and file_list.num_rows:
        paths = pa.array(list(hidden), pa.string())
        is_removed = pc.is_in(file_list["path"], value_set=paths)
        if pc.any(is_removed).as_py():
            file_list = file_list.filter(pc.invert(is_removed))
    if delta.added:
        file_list = pa.concat_tables([file_list, delta.files()])
    chunks = file_list["path"].num_chunks
    few = _MAX_CHUNKS if file_list.num_rows > _SMALL_LIST else 1
    return file_list.combine_chunks() if chunks > few else file_list


def _last_of_each_path(tables: list[pa.Table]) -> pa.Table:
    """One list; if several manifests have a path, the last one counts."""
    whole = pa.concat_tables(tables)
    if len(tables) == 1 or certainly_distinct(whole["path"]):
        return whole
    numbered = whole.select(["path"]).append_column("row", pa.array(np.arange(whole.num_rows)))
    last = numbered.group_by("path").aggregate([("row", "max")])["row_max"]
    return whole if len(last) == whole.num_rows else whole.take(last.sort())


# How many 8-byte words at the end of a path, which is random, are compared.
_WORDS = 4
_WORD_BYTES = 8
_TAIL_BYTES = _WORDS * _WORD_BYTES
# A large odd factor, by which words are multiplied so that every bit affects the hash.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def certainly_distinct(texts: pa.ChunkedArray) -> bool:
    """Whether the ends of the texts are all different; false means that this is unknown.

    Texts with different ends are different, so true is always right. Several times as fast as counting.
    """
    hashes = [_tail_hashes(chunk) for chunk in texts.chunks if len(chunk)]
    if not hashes:
        return True
    ordered = np.sort(np.concatenate(hashes))
    return bool((ordered[1:] != ordered[:-1]).all())


def _tail_hashes(texts: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A number for each text that depends on its last bytes only; nulls and short texts give 0."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    long_enough = np.diff(ends) >= _TAIL_BYTES
    hashes = np.zeros(len(texts), np.uint64)
    if data is None or len(data) < _WORD_BYTES:
        return hashes
    # A view with a word at every byte of the data, aligned or not; no copy.
    words = np.ndarray((len(data) - _WORD_BYTES + 1,), np.uint64, buffer=data, strides=(1,))
    long_ends = ends[1:][long_enough]
    mixed = np.zeros(len(long_ends), np.uint64)
    for word in range(_WORDS):
        mixed = (mixed ^ words[long_ends - _TAIL_BYTES + word * _WORD_BYTES]) * _FACTOR
        mixed ^= mixed >> _HALF
    hashes[long_enough] = mixed
    return hashes
