"""A Delta table at a version, as a source."""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from indextables.errors import ObjectMissingError, SourceChangedError, SourceError, UnsupportedSourceError
from indextables.records import dataclass
from indextables.schema.calendar import parse_date, parse_timestamp
from indextables.schema.spark import to_arrow
from indextables.schema.type_info import TypeKind, child_fields, kind_of, replace_children, spark_metadata
from indextables.source.columns import char_type, columns_by_name
from indextables.source.deletion_bitmap import read_bitmap, read_framed
from indextables.source.delta.log import Add, DeletionVector, DeltaLog, LogState
from indextables.source.locations import Locations
from indextables.source.partition_values import parse_value
from indextables.source.snapshot import ColumnStatistics, SourceFile, SourceSnapshot
from indextables.split.parquet.pages import Ints

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
        for column, field in zip(columns_by_name(internal, _key(mode)), schema, strict=True)
    )
    physical = {field.name: _physical(field, mode) for field in internal}
    zone = time_zone

    def file(add: Add) -> SourceFile:
        url = locations.resolve(add.path, encoded=True).url
        values = {
            name: _partition_value(add, physical[name], schema.field(name).type, zone) for name in partition
        }
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


def _key(mode: str) -> Any:  # noqa: ANN401 - a function of a field
    if mode == "id":
        return lambda field: _mapped(field, "id", int)
    if mode == "name":
        return lambda field: _mapped(field, "physicalName", str)
    return lambda field: str(field.name)


def _mapped(field: pa.Field, key: str, kind: type) -> Any:  # noqa: ANN401 - of the kind
    value = spark_metadata(field).get(_MAPPING + key)
    if not isinstance(value, kind):
        raise SourceError(
            f"column {field.name} has no {_MAPPING}{key} in the table's schema, which maps its columns; "
            "the schema is damaged"
        )
    return value


def _physical(field: pa.Field, mode: str) -> str:
    """The column's name in partition values and statistics."""
    return str(field.name if mode == "none" else _mapped(field, "physicalName", str))


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


def _partition_value(add: Add, name: str, kind: pa.DataType, zone: str) -> pa.Scalar:
    if name not in add.partitionValues:
        raise SourceError(
            f"the file {add.path} has no value of the partition column {name}; the log is damaged"
        )
    text = add.partitionValues[name]
    is_text = kind_of(kind) in {TypeKind.STRING, TypeKind.BINARY}
    if text is None or (not text and not is_text):
        # As in Spark, which casts the text: an empty text is null, except for strings, unlike the protocol.
        return pa.scalar(None, kind)
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
            positions = read_framed(self._stored(snapshot, where), where, most)
        if len(positions) != vector.cardinality:
            raise SourceError(
                f"{where} names {len(positions)} rows instead of {vector.cardinality}; the table is damaged"
            )
        return positions

    def _stored(self, snapshot: SourceSnapshot, where: str) -> bytes:
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
