"""Deleted rows of Iceberg tables: deletion vectors, position deletes, equality deletes.

Sequence numbers, partitions and paths determine which delete files apply to a data file (Iceberg's
specification, "Scan Planning"). Their rows are read when the deleted positions of a file are needed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from indextables.cache import Cache
from indextables.errors import ObjectMissingError, SourceChangedError, SourceError, UnsupportedSourceError
from indextables.records import dataclass
from indextables.schema.type_info import NESTED, TypeKind, kind_of
from indextables.source.columns import Column, Projection, walk
from indextables.source.iceberg.metadata import StoreIO
from indextables.source.parquet_file import FileBytes, ParquetFile
from indextables.source.snapshot import SourceFile, SourceSnapshot, read_framed
from indextables.split.parquet.pages import Ints

_PATH_ID, _POSITION_ID = 2_147_483_546, 2_147_483_545
_POSITIONS = Schema(
    NestedField(_PATH_ID, "file_path", StringType(), required=True),
    NestedField(_POSITION_ID, "pos", LongType(), required=True),
)
_REFERENCED, _OFFSET, _SIZE = 17, 18, 19  # fields of DataFile without a name in pyiceberg
_MAX_VECTOR = 1 << 30
# The maximum number of cached position delete files: one of them may refer to many data files.
_CACHED_FILES = 16


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file that applies to a data file; `offset` and `length` locate a deletion vector in it."""

    path: str
    format: str
    size: int
    equality_ids: tuple[int, ...] = ()
    offset: int | None = None
    length: int | None = None

    @property
    def identity(self) -> str:
        """Unique among the delete files of a table."""
        return f"{self.path}@{self.offset or 0}"


PartitionKey = tuple[int, tuple[Any, ...]]


@dataclass(slots=True)
class DeleteIndex:
    """All delete files of a snapshot, indexed by the data files or partitions that they apply to."""

    vectors: dict[str, tuple[int, DeleteFile]] = field(default_factory=dict)
    by_path: dict[str, list[tuple[int, DeleteFile]]] = field(default_factory=dict)
    by_partition: dict[PartitionKey, list[tuple[int, DeleteFile]]] = field(default_factory=dict)
    equality: dict[PartitionKey | None, list[tuple[int, DeleteFile]]] = field(default_factory=dict)

    def add(self, file: DataFile, sequence: int, partition: PartitionKey, *, partitioned: bool) -> None:
        """Add a delete file of the snapshot."""
        kind = file.file_format
        if file.content is DataFileContent.EQUALITY_DELETES:
            ids = tuple(file.equality_ids or ())
            if not ids:
                raise SourceError(f"the equality delete file {file.file_path} names no columns")
            delete_file = DeleteFile(file.file_path, kind.name, file.file_size_in_bytes, ids)
            self.equality.setdefault(partition if partitioned else None, []).append((sequence, delete_file))
            return
        extra = file._data  # noqa: SLF001 - pyiceberg reads these fields but gives them no name
        referenced = extra[_REFERENCED] if len(extra) > _REFERENCED else None
        if kind is FileFormat.PUFFIN:
            if referenced is None or extra[_OFFSET] is None or extra[_SIZE] is None:
                raise SourceError(
                    f"the deletion vector in {file.file_path} names no data file; it is damaged"
                )
            delete_file = DeleteFile(
                file.file_path, kind.name, file.file_size_in_bytes, (), extra[_OFFSET], extra[_SIZE]
            )
            if referenced in self.vectors:
                raise SourceError(f"{referenced} has two deletion vectors; the table is damaged")
            self.vectors[referenced] = sequence, delete_file
            return
        delete_file = DeleteFile(file.file_path, kind.name, file.file_size_in_bytes)
        path = referenced or _only_path(file)
        if path is not None:
            self.by_path.setdefault(path, []).append((sequence, delete_file))
        else:
            self.by_partition.setdefault(partition, []).append((sequence, delete_file))

    def of(self, path: str, sequence: int, partition: PartitionKey) -> list[DeleteFile]:
        """The delete files that apply to a data file."""
        delete_files = [
            file
            for key in (None, partition)
            for number, file in self.equality.get(key, ())
            if sequence < number
        ]
        vector = self.vectors.get(path)
        if vector is not None and sequence <= vector[0]:
            return [*delete_files, vector[1]]  # replaces all position deletes of the file
        positions = [*self.by_path.get(path, ()), *self.by_partition.get(partition, ())]
        return [*delete_files, *(file for number, file in positions if sequence <= number)]


def _only_path(file: DataFile) -> str | None:
    """The single data file that a position delete file refers to, according to its bounds; else None."""
    lower = (file.lower_bounds or {}).get(_PATH_ID)
    upper = (file.upper_bounds or {}).get(_PATH_ID)
    return lower.decode() if lower is not None and lower == upper else None


class DeleteReader:
    """Reads the delete files of one snapshot; shared by its data files."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """`columns` are those of the snapshot, for equality deletes."""
        self._columns = tuple(columns)
        self.fields = {each.key: each for each in columns if isinstance(each.key, int)}
        self.nested = {each.key for each in walk(columns) if isinstance(each.key, int)} - self.fields.keys()
        self._tables: Cache[str, pa.Table] = Cache(_CACHED_FILES)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeleteReader, (self._columns,)

    def check(self, delete: DeleteFile, url: str) -> None:
        """Refuse an equality delete file that cannot be applied exactly."""
        if delete.equality_ids and delete.format != FileFormat.PARQUET.name:
            raise UnsupportedSourceError(
                f"an equality delete file in {delete.format}", f"{delete.path} is one"
            )
        for number in delete.equality_ids:
            column = self.fields.get(number)
            if number in self.nested:
                raise UnsupportedSourceError(
                    "an equality delete on a field of a struct", f"{url} has deletes by the field {number}"
                )
            if column is None:
                raise UnsupportedSourceError(
                    "an equality delete on a column that was dropped",
                    f"{url} has deletes by the field with id {number}",
                    remedy="rewrite the table's data files to apply them",
                )
            if kind_of(column.field.type) in NESTED or kind_of(column.field.type) is TypeKind.FLOAT:
                raise UnsupportedSourceError(
                    f"an equality delete on the type {column.field.type}", f"{url}: {column.field.name}"
                )

    def positions(self, snapshot: SourceSnapshot, delete: DeleteFile) -> pa.Table:
        """The rows of a position delete file: `file_path` and `pos`."""
        table = self._tables.get(delete.path)
        if table is None:
            table = _read_positions(snapshot, delete)
            self._tables.put(delete.path, table)
        return table


@dataclass(frozen=True, slots=True)
class IcebergDeletes:
    """The rows of a data file that delete files remove; `path` is the data file's recorded path."""

    path: str
    files: tuple[DeleteFile, ...]
    reader: DeleteReader = field(compare=False)

    @property
    def identity(self) -> str:
        """A digest of the delete files, which are immutable."""
        names = "\n".join(sorted(each.identity for each in self.files))
        return hashlib.blake2b(names.encode(), digest_size=16).hexdigest()

    def positions(self, snapshot: SourceSnapshot, file: SourceFile) -> Ints:
        """The positions, ascending."""
        parts: list[Ints] = []
        equality: dict[tuple[int, ...], list[DeleteFile]] = {}
        rows = file.records
        assert rows is not None  # manifests always have the number
        for each in self.files:
            if each.equality_ids:
                equality.setdefault(each.equality_ids, []).append(each)
            elif each.offset is not None:
                parts.append(_read_vector(snapshot, each, rows))
            else:
                table = self.reader.positions(snapshot, each)
                own = table.filter(pc.equal(table["file_path"], self.path))
                parts.append(np.asarray(own["pos"].combine_chunks(), np.int64))
        for ids, files in equality.items():
            parts.append(self._equal_rows(snapshot, file, ids, files))
        positions = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        if len(positions) and not 0 <= positions[0] <= positions[-1] < rows:
            raise SourceError(
                f"a delete file of {file.url} deletes row {positions[-1]}, but the file has {rows} rows"
            )
        return positions

    def _equal_rows(
        self, snapshot: SourceSnapshot, file: SourceFile, ids: tuple[int, ...], files: list[DeleteFile]
    ) -> Ints:
        columns = [self.reader.fields[number] for number in ids]
        deleted = [_read_equality(snapshot, each, columns) for each in files]
        place = snapshot.locations.resolve(file.url, encoded=False)
        file_columns = [each for each in columns if each.key not in file.constants]
        opened = ParquetFile(FileBytes(place, file.size))
        rows = _read_columns(opened, file_columns, snapshot.field_ids(opened.schema, opened.url))
        count = file.records or 0
        values = dict(zip((each.key for each in file_columns), rows, strict=True))
        own = [
            values[each.key] if each.key in values else pa.repeat(file.constants[number], count)
            for number, each in zip(ids, columns, strict=True)
        ]
        theirs = [pa.concat_arrays([each[i] for each in deleted]) for i in range(len(columns))]
        return _matching(own, theirs)


def _matching(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> Ints:
    """The numbers of the rows that equal one of the keys in all columns; nulls are equal."""
    count = len(rows[0])
    codes = np.zeros(count + len(keys[0]), np.int64)
    for own, theirs in zip(rows, keys, strict=True):
        both = pa.concat_arrays([own, theirs]).dictionary_encode(null_encoding="encode")
        values = np.asarray(both.indices, np.int64)
        _, codes = np.unique(codes * (len(both.dictionary) + 1) + values, return_inverse=True)
    return np.flatnonzero(np.isin(codes[:count], codes[count:]))


def _read_columns(
    file: ParquetFile, columns: Sequence[Column], names: Mapping[str, int] | None = None
) -> list[pa.Array]:
    projection = Projection(file, columns, names=names)
    parts: list[list[pa.Array]] = []
    for _, batch in file.scan(projection.columns, projection.leaves, 1 << 16):
        rows = batch if isinstance(batch, int) else batch.num_rows
        parts.append(projection.build([] if isinstance(batch, int) else batch.columns, rows))
    return [
        pa.concat_arrays([part[i] for part in parts]) if parts else pa.array([], column.field.type)
        for i, column in enumerate(columns)
    ]


def _read_equality(snapshot: SourceSnapshot, delete: DeleteFile, columns: list[Column]) -> list[pa.Array]:
    place = snapshot.locations.resolve(delete.path, encoded=False)
    return _read_columns(ParquetFile(FileBytes(place, delete.size)), columns)


def _read_vector(snapshot: SourceSnapshot, delete: DeleteFile, rows: int) -> Ints:
    offset, length = delete.offset or 0, delete.length or 0
    where = f"the deletion vector at {offset} of {delete.path}"
    if offset < 0 or not 0 <= length <= _MAX_VECTOR:
        raise SourceError(f"{where} has {length} bytes; the manifest is damaged")
    place = snapshot.locations.resolve(delete.path, encoded=False)
    try:
        data = place.store.get_range(place.path, offset, offset + length)
    except ObjectMissingError as error:
        raise SourceChangedError(error.url, "is not there any more") from None
    return read_framed(data, where, rows)


def _read_positions(snapshot: SourceSnapshot, delete: DeleteFile) -> pa.Table:
    source = StoreIO(snapshot.locations).new_input(delete.path)
    try:
        if delete.format == FileFormat.AVRO.name:
            with AvroFile[Any](source, _POSITIONS) as rows:
                return _position_table((row[0], row[1]) for row in rows)
        with source.open() as stream:
            data = pa.BufferReader(stream.read())
        if delete.format == FileFormat.ORC.name:
            return orc.ORCFile(data).read(columns=["file_path", "pos"])
        return pq.ParquetFile(data).read(columns=["file_path", "pos"])
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
        raise SourceError(f"the position delete file {delete.path} cannot be read ({error})") from error


def _position_table(rows: Iterable[tuple[str, int]]) -> pa.Table:
    pairs = list(rows)
    return pa.table(
        {
            "file_path": pa.array([path for path, _ in pairs], pa.string()),
            "pos": pa.array([position for _, position in pairs], pa.int64()),
        }
    )
