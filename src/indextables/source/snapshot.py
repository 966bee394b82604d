"""A source at one version: its schema, its files, and their deleted rows.

Delta and Iceberg write the same bytes for a deletion vector: the length, a magic number, and a list of 32-bit
Roaring bitmaps with the upper halves of their values, then a checksum. Source: "Deletion vector format" of
the Delta protocol, and the blob type `deletion-vector-v1` of Iceberg's Puffin specification.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from indextables.errors import SourceError
from indextables.records import dataclass
from indextables.source.columns import FIELD_ID, Column
from indextables.source.locations import Locations
from indextables.split.parquet.pages import Ints
from indextables.store import ObjectInfo

_MAGIC = (1_681_511_377).to_bytes(4, "little")
_COOKIE_WITH_RUNS = 12_347
_COOKIE = 12_346
_OFFSETS_FROM = 4  # containers; fewer of them with runs have no table of offsets
_ARRAY_MOST = 4096
_BITMAP_BYTES = 8192


def read_framed(data: bytes, where: str, most: int) -> Ints:
    """Decode a bitmap that is framed by its length and its checksum; positions are below `most`.

    Raises SourceError for invalid bytes.
    """
    if len(data) < 12:
        raise SourceError(f"{where} is cut short; restore it")
    length = int.from_bytes(data[:4], "big")
    if length != len(data) - 8:
        raise SourceError(f"{where} has {len(data)} bytes, but its header {length + 8}; restore it")
    body = data[4:-4]
    if zlib.crc32(body) != int.from_bytes(data[-4:], "big"):
        raise SourceError(f"{where} differs from its checksum; restore it")
    return read_bitmap(body, where, most)


def read_bitmap(data: bytes, where: str, most: int) -> Ints:
    """Decode a bitmap that begins with the magic number; positions are below `most`."""
    try:
        positions = _positions(memoryview(data), most)
    except (IndexError, ValueError) as error:
        raise SourceError(f"{where} is no deletion vector ({error}); restore it") from None
    if len(positions) and (positions[-1] >= most or positions[0] < 0 or not (np.diff(positions) > 0).all()):
        raise SourceError(f"{where} names row {positions.max()} of a file with {most} rows; restore it")
    return positions


def _positions(data: memoryview, most: int) -> Ints:
    if bytes(data[:4]) != _MAGIC:
        raise ValueError("it does not begin with the magic number")
    count = int.from_bytes(data[4:12], "little")
    position = 12
    parts = []
    for _ in range(count):
        high = int.from_bytes(_cut(data, position, 4), "little")
        values, position = _bitmap(data, position + 4, most)
        parts.append((high << 32) + values)
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow it")
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _bitmap(data: memoryview, position: int, most: int) -> tuple[Ints, int]:
    """Decode a 32-bit bitmap in Roaring's portable format; returns its positions and its end."""
    cookie = int.from_bytes(_cut(data, position, 4), "little")
    position += 4
    runs = np.zeros(0, bool)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(_cut(data, position, (count + 7) // 8), np.uint8)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        position += len(flags)
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _COOKIE:
        count = int.from_bytes(_cut(data, position, 4), "little")
        position += 4
        has_offsets = True
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    if count > 1 << 16:
        raise ValueError(f"a bitmap has {count} containers")
    heads = np.frombuffer(_cut(data, position, 4 * count), "<u2").reshape(-1, 2).astype(np.int64)
    position += 4 * count + (4 * count if has_offsets else 0)
    if int(heads[:, 1].sum()) + count > most:
        raise ValueError(f"it has more than {most} positions")
    parts = []
    for number in range(count):
        key, size = int(heads[number, 0]), int(heads[number, 1]) + 1
        if len(runs) and runs[number]:
            values, position = _run_container(data, position, size)
        elif size <= _ARRAY_MOST:
            values = np.frombuffer(_cut(data, position, 2 * size), "<u2").astype(np.int64)
            position += 2 * size
        else:
            bits = np.frombuffer(_cut(data, position, _BITMAP_BYTES), np.uint8)
            values = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
            position += _BITMAP_BYTES
        if len(values) != size:
            raise ValueError(f"a container has {len(values)} positions instead of {size}")
        parts.append((key << 16) + values)
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), position


def _run_container(data: memoryview, position: int, size: int) -> tuple[Ints, int]:
    count = int.from_bytes(_cut(data, position, 2), "little")
    pairs = np.frombuffer(_cut(data, position + 2, 4 * count), "<u2").reshape(-1, 2).astype(np.int64)
    if int(pairs[:, 1].sum()) + count != size:
        raise ValueError("the runs of a container differ from its length")
    starts, lengths = pairs[:, 0], pairs[:, 1] + 1
    before = np.cumsum(lengths) - lengths
    values = np.repeat(starts - before, lengths) + np.arange(size)
    return values, position + 2 + 4 * count


def _cut(data: memoryview, start: int, length: int) -> memoryview:
    if start + length > len(data):
        raise ValueError("it is cut short")
    return data[start : start + length]


class ColumnStatistics(NamedTuple):
    """The reliable statistics of a column in a file, deleted rows included.

    `minimum` and `maximum` are bounds, not necessarily values of the column; None if there is no reliable
    bound. `nulls` is None if it is unknown. Floating point columns have no bounds, because bounds ignore NaN.
    """

    minimum: Any
    maximum: Any
    nulls: int | None


class RowDeletes(Protocol):
    """The deleted rows of a file; loaded on demand."""

    @property
    def identity(self) -> str:
        """An identity that differs if other rows are deleted."""
        ...

    def positions(self, snapshot: "SourceSnapshot", file: "SourceFile") -> Ints:
        """The positions of the deleted rows in their file, ascending and distinct."""
        ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file of a source.

    `identity` is the same for the same content in every snapshot of the source, and different for different
    contents, as far as the format guarantees; `deletes` is None if no rows are deleted. `records` is the
    number of physical rows if the log has it. `partition` has the typed values of the partition columns.
    `etag` and `modified_ms` are set for folders, to detect replaced files.
    """

    url: str
    size: int
    identity: str
    records: int | None = None
    partition: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, Any] = field(default_factory=dict)
    statistics: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    deletes: RowDeletes | None = None
    etag: str = ""
    modified_ms: int | None = None

    @property
    def content(self) -> tuple[str, str]:
        """The identity of the file and of its deleted rows."""
        return self.identity, "" if self.deletes is None else self.deletes.identity


def content_tag(info: ObjectInfo) -> str:
    """A tag that differs between contents of an object: its ETag, or its time in stores without ETags.

    Azure lists ETags without quotes, but returns them with quotes for single objects; and times with another
    precision.
    """
    return info.etag.strip('"') or str(info.modified_ms)


class FileChanges(NamedTuple):
    """The differences between the files of two snapshots.

    `redeleted` are files of both snapshots with different deleted rows, from the newer one.
    """

    added: list[SourceFile]
    removed: list[str]
    redeleted: list[SourceFile]


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """A source at one version.

    `schema` is what Spark reads, as Arrow. `version` is the number (Delta), the snapshot's id (Iceberg) or a
    digest of the listing (folders); `identity` also differs after the table was dropped and created again.
    """

    format: str
    url: str
    version: int | str | None
    identity: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: Sequence[SourceFile]
    columns: tuple[Column, ...]
    locations: Locations
    timestamp_ms: int | None = None
    name: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    # Field ids for files without ids, by dotted name (Iceberg).
    name_mapping: Mapping[str, int] | None = None

    def changes_since(self, earlier: Mapping[str, str]) -> FileChanges:
        """The changes since files were indexed; `earlier` maps identities of files to those of deletes."""
        added, redeleted, current = [], [], set()
        for file in self.files:
            identity, deletes = file.content
            current.add(identity)
            if identity not in earlier:
                added.append(file)
            elif earlier[identity] != deletes:
                redeleted.append(file)
        return FileChanges(added, [each for each in earlier if each not in current], redeleted)

    def field_ids(self, file: pa.Schema, url: str) -> Mapping[str, int] | None:
        """The field ids of a file without ids; None if the file has them, or columns are matched by name."""
        if not any(isinstance(each.key, int) for each in self.columns):
            return None
        if any(FIELD_ID in (field.metadata or {}) for field in file):
            return None
        if self.name_mapping is not None:
            return self.name_mapping
        if self.format == "iceberg":
            # As in Iceberg: without ids and without a name mapping, columns have ids by their position.
            return {field.name: number + 1 for number, field in enumerate(file)}
        raise SourceError(f"{url} has no field ids, but the table maps its columns by id; rewrite the file")

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self.files)
