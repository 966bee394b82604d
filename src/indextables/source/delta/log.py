"""A Delta table's log: its versions, and the actions of a version.

This module replaces `deltalake` (docs/decisions), whose Python interface does not return the deletion vectors
of files, and refuses tables with type widening.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import ObjectMissingError, SourceError, SourceNotFoundError
from indextables.records import dataclass
from indextables.store import ObjectInfo, Store

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?\.(?P<format>parquet|json)"
)
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")


class DeletionVector(msgspec.Struct, frozen=True):
    """The reference to a deletion vector: `DeletionVectorDescriptor` of the protocol."""

    storageType: str  # noqa: N815 - the protocol's names
    pathOrInlineDv: str  # noqa: N815
    sizeInBytes: int  # noqa: N815
    cardinality: int
    offset: int | None = None

    @property
    def identity(self) -> str:
        """Unique among the deletion vectors of a file."""
        return f"{self.storageType}{self.pathOrInlineDv}@{self.offset or 0}"


class Add(msgspec.Struct, frozen=True):
    """A data file that is part of the table."""

    path: str
    partitionValues: dict[str, str | None]  # noqa: N815
    size: int
    modificationTime: int = 0  # noqa: N815
    stats: str | None = None
    deletionVector: DeletionVector | None = None  # noqa: N815


class _Remove(msgspec.Struct):
    path: str
    deletionVector: DeletionVector | None = None  # noqa: N815


class Metadata(msgspec.Struct, frozen=True):
    """The table's schema and properties."""

    id: str
    schemaString: str  # noqa: N815
    partitionColumns: list[str] = []  # noqa: N815
    configuration: dict[str, str] = {}
    name: str | None = None
    description: str | None = None


class Protocol(msgspec.Struct, frozen=True):
    """The reader version and features that the table requires."""

    minReaderVersion: int  # noqa: N815
    readerFeatures: list[str] | None = None  # noqa: N815


class _Sidecar(msgspec.Struct):
    path: str


class _CommitInfo(msgspec.Struct):
    inCommitTimestamp: int | None = None  # noqa: N815


class _Action(msgspec.Struct):
    add: Add | None = None
    remove: _Remove | None = None
    metaData: Metadata | None = None  # noqa: N815
    protocol: Protocol | None = None
    sidecar: _Sidecar | None = None
    commitInfo: _CommitInfo | None = None  # noqa: N815


_decode = msgspec.json.Decoder(_Action).decode


@dataclass(slots=True)
class LogState:
    """The actions that apply at a version."""

    version: int
    timestamp_ms: int
    metadata: Metadata
    protocol: Protocol
    adds: list[Add]


@dataclass(slots=True)
class _Replay:
    """Actions applied one after the other, oldest first."""

    metadata: Metadata | None = None
    protocol: Protocol | None = None
    adds: dict[tuple[str, str], Add] = field(default_factory=dict)
    committed_ms: int | None = None

    def apply(self, action: _Action) -> None:
        if action.add is not None:
            self.adds[_key(action.add)] = action.add
        if action.remove is not None:
            self.adds.pop(_key(action.remove), None)
        self.metadata = action.metaData or self.metadata
        self.protocol = action.protocol or self.protocol
        if action.commitInfo is not None:
            self.committed_ms = action.commitInfo.inCommitTimestamp


def _key(action: Add | _Remove) -> tuple[str, str]:
    vector = action.deletionVector
    return unquote(action.path), "" if vector is None else vector.identity


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    version: int
    files: tuple[str, ...]


class DeltaLog:
    """The log of the table at a store's root, from one listing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._commits: dict[int, ObjectInfo] = {}
        parts: dict[tuple[int, str], dict[int, str]] = {}
        for info in _listing(store):
            name = info.path.rpartition("/")[2]
            if match := _COMMIT.fullmatch(name):
                self._commits[int(match[1])] = info
            elif (match := _CHECKPOINT.fullmatch(name)) and info.size:
                kind = match["parts"] or match["uuid"] or ""
                parts.setdefault((int(match["version"]), kind), {})[int(match["part"] or 0)] = name
        self._checkpoints = [
            _Checkpoint(version, tuple(names[number] for number in sorted(names)))
            for (version, kind), names in parts.items()
            if len(kind) != 10 or sorted(names) == list(range(1, int(kind) + 1))
        ]
        if not self._commits and not self._checkpoints:
            raise SourceNotFoundError(
                f"no Delta table at {store.url}: it has no _delta_log with a version; check the path"
            )

    @property
    def latest(self) -> int:
        """The newest version."""
        return max([*self._commits, *(each.version for each in self._checkpoints)])

    def state(self, version: int | None = None) -> LogState:
        """The actions of a version, by default the newest; SourceNotFoundError if it cannot be read."""
        version = self.latest if version is None else version
        replay = _Replay()
        checkpoint = self._checkpoint(version)
        if checkpoint is not None:
            for action in self._checkpoint_actions(checkpoint):
                replay.apply(action)
        first = 0 if checkpoint is None else checkpoint.version + 1
        for number in range(first, version + 1):
            for action in self._commit(number, version):
                replay.apply(action)
        if replay.metadata is None or replay.protocol is None:
            raise SourceError(
                f"{self._store.url}: the log has no schema or no protocol at version {version}; it is damaged"
            )
        return LogState(
            version, self._time(version, replay), replay.metadata, replay.protocol, list(replay.adds.values())
        )

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version committed at or before a time."""
        times = self._times()
        position = bisect_right([each for _, each in times], timestamp_ms) - 1
        if position < 0 or (position == len(times) - 1 and timestamp_ms > times[-1][1]):
            raise SourceNotFoundError(
                f"{self._store.url} has no version at the time {timestamp_ms} ms: its versions are of "
                f"{times[0][1]} to {times[-1][1]}; give a time between them"
            )
        return times[position][0]

    # --- files of the log ------------------------------------------------------------------------------

    def _checkpoint(self, version: int) -> _Checkpoint | None:
        usable = [each for each in self._checkpoints if each.version <= version]
        if usable:
            return max(usable, key=lambda each: (each.version, len(each.files) == 1))
        if version and 0 not in self._commits:
            raise self._unreachable(version)
        return None

    def _unreachable(self, version: int) -> SourceNotFoundError:
        starts = [each.version for each in self._checkpoints] + ([0] if 0 in self._commits else [])
        return SourceNotFoundError(
            f"version {version} of the Delta table at {self._store.url} cannot be read: versions "
            f"{min(starts, default='none')} to {self.latest} can be read; earlier ones were cleaned up"
        )

    def _commit(self, number: int, version: int) -> Iterator[_Action]:
        info = self._commits.get(number)
        if info is None:
            raise self._unreachable(version)
        yield from self._json(info.path)

    def _json(self, path: str) -> Iterator[_Action]:
        try:
            for line in self._get(path).splitlines():
                if line.strip():
                    yield _decode(line)
        except msgspec.MsgspecError as error:
            raise SourceError(
                f"{self._store.url}/{path} is not a log file of Delta ({error}); the log is damaged"
            ) from None

    def _get(self, path: str) -> bytes:
        try:
            return self._store.get(path)
        except ObjectMissingError as error:
            raise SourceNotFoundError(
                f"{error.url} was cleaned up while the log was read; repeat it"
            ) from None

    def _checkpoint_actions(self, checkpoint: _Checkpoint) -> Iterator[_Action]:
        sidecars: list[str] = []
        for name in checkpoint.files:
            path = f"{_LOG}/{name}"
            for action in self._json(path) if name.endswith(".json") else self._parquet(path):
                action.remove = None  # a tombstone, which is not needed
                if action.sidecar is not None:
                    sidecars.append(action.sidecar.path)
                yield action
        for name in sidecars:
            path = unquote(name)
            if "/" in path:
                raise SourceError(
                    f"{self._store.url}: a checkpoint names the sidecar {path!r}, not a file name"
                )
            for action in self._parquet(f"{_LOG}/_sidecars/{path}"):
                action.remove = None
                yield action

    def _parquet(self, path: str) -> Iterator[_Action]:
        try:
            file = pq.ParquetFile(pa.BufferReader(self._get(path)))
            leaves = [column.path for column in file.schema]
            for name, columns in _checkpoint_columns(leaves).items():
                for batch in file.iter_batches(4096, columns=columns):
                    column = batch.column(0)
                    for value in column.filter(column.is_valid()).to_pylist(maps_as_pydicts="strict"):
                        yield msgspec.convert({name: value}, _Action)
        except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
            raise SourceError(
                f"{self._store.url}/{path} is not a checkpoint of Delta ({error}); the log is damaged"
            ) from error

    # --- times -----------------------------------------------------------------------------------------

    def _time(self, version: int, replay: _Replay) -> int:
        if replay.committed_ms is not None and _has_commit_times(replay.metadata):
            return replay.committed_ms
        return dict(self._times(recorded=False)).get(version, 0)

    def _times(self, *, recorded: bool = True) -> list[tuple[int, int]]:
        """Versions with the times of their commits, which are ascending."""
        times: list[tuple[int, int]] = []
        commits = sorted(self._commits)
        enabled_from = self._commit_times_from() if recorded else None
        for version in commits:
            if enabled_from is not None and version >= enabled_from:
                replay = _Replay()
                for action in self._commit(version, version):
                    replay.apply(action)
                time = replay.committed_ms
                if time is None:
                    raise SourceError(f"{self._store.url}: version {version} has no in-commit timestamp")
            else:
                time = self._commits[version].modified_ms
                if times and time <= times[-1][1]:
                    time = times[-1][1] + 1
            times.append((version, time))
        return times

    def _commit_times_from(self) -> int | None:
        """The first version that records its time itself."""
        metadata = self.state().metadata
        if not _has_commit_times(metadata):
            return None
        return int(metadata.configuration.get("delta.inCommitTimestampEnablementVersion", "0"))


def _has_commit_times(metadata: Metadata | None) -> bool:
    return metadata is not None and metadata.configuration.get("delta.enableInCommitTimestamps") == "true"


def _listing(store: Store) -> Iterator[ObjectInfo]:
    """The files directly in the log whose names begin with a version."""
    for info in store.list(_LOG):
        name = info.path.removeprefix(f"{_LOG}/")
        if name[:1].isdigit():
            yield info
        elif name > ":":
            break  # listings are sorted: only folders such as _sidecars follow


def _checkpoint_columns(leaves: Iterable[str]) -> dict[str, list[str]]:
    """The columns of a checkpoint file that are read, by action."""
    leaves = list(leaves)
    present = {leaf.partition(".")[0] for leaf in leaves}
    columns: dict[str, list[str]] = {
        name: [leaf for leaf in leaves if leaf.startswith(f"{name}.")]
        for name in ("metaData", "protocol", "sidecar")
        if name in present
    }
    if "add" in present:
        columns["add"] = [
            leaf for leaf in leaves if leaf.startswith("add.") and leaf.split(".")[1] in _ADD_FIELDS
        ]
    return columns
