"""A Delta table as a source: its log, and the table at a version.

The log is read without `deltalake` (docs/decisions), whose Python interface does not return the deletion
vectors of files, and refuses tables with type widening.
"""

import base64
import dataclasses
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import (
    ObjectMissingError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    UnsupportedSourceError,
)
from indextables.records import dataclass
from indextables.schema.calendar import parse_date, parse_timestamp
from indextables.schema.spark import to_arrow
from indextables.schema.type_info import TypeKind, child_fields, kind_of, replace_children, spark_metadata
from indextables.source.columns import char_type, columns_by_name
from indextables.source.locations import Locations
from indextables.source.partition_values import parse_value
from indextables.source.snapshot import ColumnStatistics, SourceFile, SourceSnapshot, read_bitmap, read_framed
from indextables.split.parquet.pages import Ints
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
    adds: dict[tuple[str, str], Add] = dataclasses.field(default_factory=dict)
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


_READER_VERSION = 3
_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_MAPPING = "delta.columnMapping."
_MAX_VECTOR = 1 << 30
# Statistics truncate times to milliseconds: the maximum may be almost one millisecond greater.
_CUT_MICROS = 999


class _Records(msgspec.Struct):
    numRecords: int | None = None  # noqa: N815 - the protocol's name


_records = msgspec.json.Decoder(_Records).decode


def open_delta(
    locations: Locations, version: int | datetime | None = None, *, time_zone: str = "UTC"
) -> SourceSnapshot:
    """The Delta table at a location.

    Args:
        locations: the table's folder.
        version: a version's number, or a time; the newest version without it.
        time_zone: Spark's session time zone, for partition values without a zone.
    """
    log = DeltaLog(locations.store)
    if isinstance(version, datetime):
        version = log.version_at(int(version.timestamp() * 1000))
    state = log.state(version)
    _check_protocol(locations.url, state)
    metadata = state.metadata
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    if mode not in ("none", "name", "id"):
        raise UnsupportedSourceError(f"column mapping by {mode}", f"{locations.url} uses it")
    internal = to_arrow(metadata.schemaString)
    schema = pa.schema([_public(field) for field in internal])
    for field in schema:
        char_type(field)
    partition = tuple(metadata.partitionColumns)
    if unknown := [name for name in partition if internal.get_field_index(name) < 0]:
        raise SourceError(f"{locations.url} is partitioned by {unknown[0]!r}, which is no column of it")
    columns = tuple(
        _replace_fields(column, field)
        for column, field in zip(columns_by_name(internal, _column_key(mode)), schema, strict=True)
    )
    physical = {field.name: _physical(field, mode) for field in internal}
    zone = time_zone

    def file(add: Add) -> SourceFile:
        url = locations.resolve(add.path, encoded=True).url
        values = {name: _partition_value(add, physical[name], schema.field(name), zone) for name in partition}
        vector = add.deletionVector
        return SourceFile(
            url,
            add.size,
            url,
            _record_count(add),
            values,
            statistics=_Statistics(add.stats, schema, physical),
            deletes=None if vector is None else VectorDeletes(vector),
        )

    return SourceSnapshot(
        "delta",
        locations.url,
        state.version,
        metadata.id,
        schema,
        partition,
        [file(add) for add in state.adds],
        columns,
        locations,
        state.timestamp_ms,
        metadata.name,
        metadata.description,
        metadata.configuration,
    )


def _check_protocol(url: str, state: LogState) -> None:
    protocol = state.protocol
    if protocol.minReaderVersion > _READER_VERSION:
        raise UnsupportedSourceError(
            f"reader version {protocol.minReaderVersion} of Delta", f"{url} needs a newer reader"
        )
    unknown = sorted(set(protocol.readerFeatures or ()) - _FEATURES)
    if unknown:
        raise UnsupportedSourceError(f"the table feature {unknown[0]!r} of Delta", f"{url} uses it")


def _column_key(mode: str) -> Any:  # noqa: ANN401 - a function of a field
    if mode == "id":
        return lambda field: _column_mapping(field, "id", int)
    if mode == "name":
        return lambda field: _column_mapping(field, "physicalName", str)
    return lambda field: str(field.name)


def _column_mapping(field: pa.Field, key: str, kind: type) -> Any:  # noqa: ANN401 - of the kind
    value = spark_metadata(field).get(_MAPPING + key)
    if not isinstance(value, kind):
        raise SourceError(
            f"column {field.name} has no {_MAPPING}{key} in the table's schema, which maps its columns; "
            "the schema is damaged"
        )
    return value


def _physical(field: pa.Field, mode: str) -> str:
    """The column's name in partition values and statistics."""
    return str(field.name if mode == "none" else _column_mapping(field, "physicalName", str))


def _public(field: pa.Field) -> pa.Field:
    """A field without Delta's own metadata, as in Spark's schema."""
    own = {k: v for k, v in spark_metadata(field).items() if not k.startswith("delta.")}
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != b"SPARK::metadata::json"}
    if own:
        metadata[b"SPARK::metadata::json"] = json.dumps(
            own, separators=(",", ":"), ensure_ascii=False
        ).encode()
    type_ = replace_children(field.type, _public)
    return pa.field(field.name, type_, field.nullable, metadata or None)


def _replace_fields(column: Any, field: pa.Field) -> Any:  # noqa: ANN401 - a Column
    """Replace the fields of a column by those of an Arrow field with the same structure."""
    inner = child_fields(field.type)
    children = tuple(_replace_fields(c, f) for c, f in zip(column.children, inner, strict=True))
    return type(column)(field, column.key, column.default, children, column.required, column.uuid)


def _partition_value(add: Add, name: str, field: pa.Field, zone: str) -> pa.Scalar:
    if name not in add.partitionValues:
        raise SourceError(
            f"the file {add.path} has no value of the partition column {name}; the log is damaged"
        )
    text, kind = add.partitionValues[name], field.type
    is_text = kind_of(kind) in {TypeKind.STRING, TypeKind.BINARY}
    if text is None or (not text and not is_text):
        # As in Spark, which casts the text: an empty text is null, except for strings, unlike the protocol.
        return pa.scalar(None, kind)
    # Spark pads texts as it writes them, other writers do not, and Spark pads them as it reads them.
    text = text.ljust(char_type(field) or 0)
    return parse_value(text, kind, zone, f"the partition value {name} of the file {add.path}")


def _record_count(add: Add) -> int | None:
    if not add.stats:
        return None
    try:
        count = _records(add.stats).numRecords
    except msgspec.MsgspecError:
        return None
    return count if count is not None and count >= 0 else None


class _Statistics(Mapping[str, ColumnStatistics]):
    """Statistics of a file's top-level columns; their JSON is parsed on first use."""

    __slots__ = ("_parsed", "_physical", "_schema", "_text")

    def __init__(self, text: str | None, schema: pa.Schema, physical: Mapping[str, str]) -> None:
        self._text = text
        self._schema = schema
        self._physical = physical
        self._parsed: dict[str, ColumnStatistics] | None = None

    def _all(self) -> dict[str, ColumnStatistics]:
        if self._parsed is None:
            self._parsed = dict(self._read())
        return self._parsed

    def _read(self) -> Iterator[tuple[str, ColumnStatistics]]:
        try:
            stats = json.loads(self._text or "{}")
        except ValueError:
            return
        if not isinstance(stats, dict):
            return
        low, high, nulls = (stats.get(key) or {} for key in ("minValues", "maxValues", "nullCount"))
        for field in self._schema:
            name = self._physical[field.name]
            count = nulls.get(name)
            minimum, _ = _bounds(low.get(name), field.type)
            _, maximum = _bounds(high.get(name), field.type)
            if minimum is not None or maximum is not None or isinstance(count, int):
                yield (
                    field.name,
                    ColumnStatistics(minimum, maximum, count if isinstance(count, int) else None),
                )

    def __getitem__(self, name: str) -> ColumnStatistics:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def _bounds(value: object, kind: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """A value of the statistics as lower and as upper bound, for types with reliable bounds."""
    low: object = None
    high: object = None
    match kind_of(kind), value:
        case (TypeKind.INTEGER, int()) if not isinstance(value, bool):
            low = high = value
        case TypeKind.STRING, str():
            low = high = value
        case TypeKind.DATE, str(text):
            low = high = parse_date(text)
        case ((TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ), str(text)):
            micros = parse_timestamp(text, zoned=kind.tz is not None)
            low, high = micros, None if micros is None else micros + _CUT_MICROS
        case _:
            pass
    try:
        return (
            None if low is None else pa.scalar(low, kind),
            None if high is None else pa.scalar(high, kind),
        )
    except (pa.ArrowException, OverflowError, ValueError):
        return None, None


@dataclass(frozen=True, slots=True)
class VectorDeletes:
    """The rows of a file that its Delta deletion vector deletes."""

    vector: DeletionVector

    @property
    def identity(self) -> str:
        """The location of the vector."""
        return self.vector.identity

    def positions(self, snapshot: SourceSnapshot, file: SourceFile) -> Ints:
        """The positions, ascending."""
        most = (1 << 40) if file.records is None else file.records
        vector = self.vector
        where = f"the deletion vector of {file.url}"
        if vector.storageType == "i":
            positions = read_bitmap(_decode85(vector.pathOrInlineDv, vector.sizeInBytes, where), where, most)
        else:
            positions = read_framed(self._read_bytes(snapshot, where), where, most)
        if len(positions) != vector.cardinality:
            raise SourceError(
                f"{where} names {len(positions)} rows instead of {vector.cardinality}; the table is damaged"
            )
        return positions

    def _read_bytes(self, snapshot: SourceSnapshot, where: str) -> bytes:
        vector = self.vector
        if vector.storageType == "p":
            place = snapshot.locations.resolve(vector.pathOrInlineDv, encoded=True)
        elif vector.storageType == "u" and len(vector.pathOrInlineDv) >= 20:
            prefix, encoded = vector.pathOrInlineDv[:-20], vector.pathOrInlineDv[-20:]
            name = f"deletion_vector_{UUID(bytes=_decode85(encoded, 16, where))}.bin"
            place = snapshot.locations.resolve(f"{prefix}/{name}" if prefix else name, encoded=False)
        else:
            raise SourceError(f"{where} has an unknown storage type; use a newer release of indextables")
        if not 0 <= vector.sizeInBytes <= _MAX_VECTOR or (vector.offset or 0) < 0:
            raise SourceError(
                f"{where} has {vector.sizeInBytes} bytes at {vector.offset}; the log is damaged"
            )
        start = vector.offset or 0
        try:
            return place.store.get_range(place.path, start, start + vector.sizeInBytes + 8)
        except ObjectMissingError as error:
            raise SourceChangedError(error.url, "was deleted") from None


def _decode85(text: str, size: int, where: str) -> bytes:
    """Decode Z85, whose characters differ from Python's base 85."""
    try:
        data = base64.b85decode(text.translate(_Z85_TO_PYTHON))
    except ValueError:
        raise SourceError(f"{where} is not in base 85; the log is damaged") from None
    if len(data) < size:
        raise SourceError(f"{where} is cut short; the log is damaged")
    return data[:size]


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85_TO_PYTHON = str.maketrans(_Z85, _B85)
