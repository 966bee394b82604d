"""The record of a source in its companion index: columns, and files with their rows.

It suffices to read indexed rows without reading the source's log again. It comes from a table's metadata and
splits, which may be damaged or malicious, so it is validated when it is decoded.
"""

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from indextables.cache import Cache
from indextables.errors import SourceError
from indextables.records import dataclass
from indextables.schema.conversion import cast_batch
from indextables.schema.type_info import TypeKind, child_fields, storage_kind_of
from indextables.source.columns import Column, char_type
from indextables.source.locations import Locations
from indextables.source.reader import SourceReader
from indextables.source.snapshot import SourceFile, SourceSnapshot
from indextables.split.footer import POSITION_COLUMN, POSITIONS, IndexedFile
from indextables.split.parquet.pages import Ints
from indextables.split.parquet.reader import BATCH_ROWS, RowReader, slice_batch
from indextables.store import CacheScope, Store

# The maximum number of cached readers, each of which has some open files.
_MAX_READERS = 8


class _ColumnJson(Struct, rename="camel", omit_defaults=True):
    """A column's key in files, without its type; `default` is an Arrow stream of one value in base 64."""

    key: str | int | None = None
    default: str = ""
    children: list["_ColumnJson"] = []
    required: bool = False
    uuid: bool = False


class _ColumnsJson(Struct, rename="camel", omit_defaults=True):
    schema: str
    columns: list[_ColumnJson]
    name_mapping: dict[str, int] | None = None


def encode_columns(snapshot: SourceSnapshot) -> str:
    """The columns of a source as text for a table's metadata."""
    schema = base64.b64encode(snapshot.schema.serialize().to_pybytes()).decode()
    mapping = None if snapshot.name_mapping is None else dict(snapshot.name_mapping)
    encoded = _ColumnsJson(schema, [_column_json(each) for each in snapshot.columns], mapping)
    return msgspec.json.encode(encoded, order="deterministic").decode()


def _column_json(column: Column) -> _ColumnJson:
    default = (
        "" if column.default is None else encode_values({"": _scalar(column.default, column.field.type)})
    )
    children = [_column_json(child) for child in column.children]
    return _ColumnJson(column.key, default, children, column.required, column.uuid)


def _decode_columns(text: str) -> tuple[pa.Schema, tuple[Column, ...], dict[str, int] | None]:
    description = msgspec.json.decode(text, type=_ColumnsJson)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description.schema, validate=True)))
    return schema, _columns(description.columns, list(schema)), description.name_mapping


def _columns(columns: Sequence[_ColumnJson], fields: Sequence[pa.Field]) -> tuple[Column, ...]:
    return tuple(_column(each, field) for each, field in zip(columns, fields, strict=True))


def _column(column: _ColumnJson, field: pa.Field) -> Column:
    inner = child_fields(field.type)
    default = decode_values(column.default)[""].as_py() if column.default else None
    return Column(field, column.key, default, _columns(column.children, inner), column.required, column.uuid)


def column_identities(snapshot: SourceSnapshot) -> dict[str, str]:
    """An identity of each column: columns with equal identities have the same values in the same files."""
    return {each.field.name: _identity(each) for each in snapshot.columns}


def _identity(column: Column) -> str:
    text = msgspec.json.encode(_without_required(_column_json(column)), order="deterministic").decode()
    return f"{_type_text(column.field.type)} {char_type(column.field) or ''} {text}"


def _without_required(column: _ColumnJson) -> _ColumnJson:
    children = [_without_required(child) for child in column.children]
    return msgspec.structs.replace(column, required=False, children=children)


def _type_text(kind: pa.DataType) -> str:
    """A type without nullability, which does not affect values."""
    match storage_kind_of(kind):
        case TypeKind.STRUCT:
            return "struct<" + ", ".join(f"{field.name!r}: {_type_text(field.type)}" for field in kind) + ">"
        case TypeKind.LIST:
            return f"list<{_type_text(kind.value_type)}>"
        case TypeKind.MAP:
            return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
        case _:
            return str(kind)


# --- values ----------------------------------------------------------------------------------------


def encode_values(values: Mapping[str, pa.Scalar]) -> str:
    """Typed values by name as an Arrow stream of one row in base 64; empty if there are none."""
    if not values:
        return ""
    arrays = [pa.repeat(value, 1) if value.is_valid else pa.nulls(1, value.type) for value in values.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(values))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def decode_values(text: str) -> dict[str, pa.Scalar]:
    """Typed values by name."""
    if not text:
        return {}
    table = pa.ipc.open_stream(base64.b64decode(text, validate=True)).read_all()
    if table.num_rows != 1:
        raise ValueError(f"one row of values is expected, not {table.num_rows}")
    table.validate(full=True)
    return {name: table.column(name)[0] for name in table.column_names}


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:  # noqa: ANN401 - of the type
    return value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)


# --- files -----------------------------------------------------------------------------------------


def indexed_file(file: SourceFile, source_url: str, *, records: int, rows: int) -> IndexedFile:
    """The record of a source file in a split."""
    return IndexedFile(
        path=relative_path(file.url, source_url),
        size=file.size,
        records=records,
        rows=rows,
        values=encode_values(file.partition),
        etag=file.etag,
        modified_ms=file.modified_ms,
        deletes="" if file.deletes is None else file.deletes.identity,
    )


def source_file(file: IndexedFile, source_url: str) -> SourceFile:
    """A source file from its record, which does not include deleted rows."""
    url = file.path if _is_url(file.path) else f"{source_url}/{file.path}"
    return SourceFile(
        url,
        file.size,
        f"{file.path}#{file.size}-{file.etag}",
        file.records,
        partition=decode_values(file.values),
        etag=file.etag,
        modified_ms=file.modified_ms,
    )


def relative_path(url: str, source_url: str) -> str:
    """A file's path relative to its source, if it is below the source and does not look like a URL."""
    path = url.removeprefix(f"{source_url}/")
    return url if path == url or _is_url(path) else path


def _is_url(path: str) -> bool:
    return ":/" in path or path.startswith("/")


def content_name(file: SourceFile, source_url: str) -> str:
    """The identity of a file and its deleted rows, for the log's `companionSourceFiles`."""
    identity, deletes = file.content
    name = relative_path(identity, source_url)
    return f"{name}\n{deletes}" if deletes else name


@dataclass(frozen=True, slots=True)
class UnindexedFile:
    """A source file that no split indexes, and the positions of its deleted rows."""

    file: IndexedFile
    deleted: Ints

    def to_text(self) -> str:
        """Encode as text, for an entry of a file list."""
        packed = base64.b64encode(zlib.compress(np.asarray(self.deleted, np.int64).tobytes())).decode()
        return msgspec.json.encode([self.file, packed]).decode()

    @classmethod
    def from_text(cls, text: str) -> "UnindexedFile":
        """Decode the text."""
        file, packed = msgspec.json.decode(text, type=tuple[IndexedFile, str])
        return cls(file, np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.int64))


# --- the source ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceDescription:
    """The source of a companion index; picklable, without secrets.

    Attributes:
        format: "delta", "iceberg" or "parquet".
        url: where the source was indexed.
        columns: its columns (`encode_columns`).
        relocate: prefixes of recorded paths, with the places where those files are now.
        allowed: other locations that recorded paths may refer to.
        root: where the source's files are read, if not at `url`.
    """

    format: str
    url: str
    columns: str
    relocate: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    root: str | None = None

    @cached_property
    def _column_record(self) -> tuple[pa.Schema, tuple[Column, ...], dict[str, int] | None]:
        try:
            return _decode_columns(self.columns)
        except (ValueError, TypeError, LookupError, OSError, RecursionError, pa.ArrowException) as error:
            raise SourceError(
                f"the record of the source {self.url} in its companion index cannot be decoded ({error}); "
                "build the index again"
            ) from error

    @property
    def place(self) -> str:
        """The location from which the files of the source are read."""
        return self.root or self.url

    def open(self, open_base: Callable[[str], Store]) -> SourceSnapshot:
        """Open the source for reading rows of recorded files; no files are listed."""
        schema, columns, name_mapping = self._column_record
        relocate = dict(self.relocate)
        if self.root is not None:
            relocate[self.url] = self.root
        locations = Locations(self.place, open_base, relocate=relocate, allowed=self.allowed)
        return SourceSnapshot(
            format=self.format,
            url=self.url,
            version=None,
            identity="",
            schema=schema,
            partition_columns=(),
            files=(),
            columns=columns,
            locations=locations,
            name_mapping=name_mapping,
        )


# --- rows ------------------------------------------------------------------------------------------

_readers: Cache[tuple[CacheScope, SourceDescription], SourceReader] = Cache(_MAX_READERS)


def source_reader(store: Store, source: SourceDescription) -> SourceReader:
    """The reader of a companion index's source; it caches open files.

    `store` is that of the index. Readers are shared only between handles with the same credentials.
    """
    key = (store.source_store(source.place).cache_scope, source)
    reader = _readers.get(key)
    return reader or _readers.put_if_absent(key, SourceReader(source.open(store.source_store)))


def close_source_readers() -> None:
    """Close all open files of sources in this process."""
    _readers.clear()


class Positions(Protocol):
    """The positions in their file of rows by number: `numbers`, or all from `start` to before `end`."""

    def __call__(self, start: int, end: int, numbers: Ints | None) -> Ints:
        """The positions, ascending."""


class StoredPositions:
    """Positions that a companion split stores; `rows` reads its column of positions."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def __call__(self, start: int, end: int, numbers: Ints | None) -> Ints:
        """The positions, ascending."""
        if numbers is not None:
            column = self._rows.fetch(numbers, [POSITION_COLUMN]).column(0)
        else:
            batches = self._rows.scan([POSITION_COLUMN], start=start, end=end)
            column = pa.Table.from_batches(batches, POSITIONS).column(0)
        positions: Ints = column.combine_chunks().to_numpy(zero_copy_only=False)
        return positions


class RemainingPositions:
    """Positions of the rows of one file that are not deleted."""

    def __init__(self, records: int, deleted: Ints) -> None:
        self._records = records
        self._deleted = deleted

    @cached_property
    def _all(self) -> Ints:
        every = np.arange(self._records, dtype=np.int64)
        return np.setdiff1d(every, self._deleted, assume_unique=True)

    def __call__(self, start: int, end: int, numbers: Ints | None) -> Ints:
        """The positions, ascending."""
        del start, end
        return self._all if numbers is None else self._all[numbers]


class IndexedRows:
    """Rows of recorded source files, one file after the other, with the columns of a schema."""

    def __init__(
        self,
        store: Store,
        source: SourceDescription,
        files: Sequence[IndexedFile],
        schema: pa.Schema,
        positions: Positions,
    ) -> None:
        self._store = store
        self._source = source
        self._schema = schema
        self._files = files
        self._positions = positions
        self._starts: Ints = np.cumsum([0, *(file.rows for file in files)]).astype(np.int64)

    @cached_property
    def _reader(self) -> SourceReader:
        return source_reader(self._store, self._source)

    def read(
        self,
        columns: Sequence[str],
        numbers: Ints | None,
        batch_bytes: int,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows by number, ascending, or all of them.

        Raises:
            SourceChangedError: a file vanished or was replaced.
            SourceError: a file cannot be read as Spark reads it.
        """
        schema = pa.schema([self._schema.field(name) for name in columns])
        for number, file in enumerate(self._files):
            start, end = int(self._starts[number]), int(self._starts[number + 1])
            selection: Ints | None = None
            if numbers is not None:
                low, high = np.searchsorted(numbers, [start, end])
                if low == high:
                    continue
                selection = numbers[low:high] if high - low < end - start else None
            if start == end:
                continue
            opened = self._source_file(file)
            places = None
            if file.rows < file.records:
                places = self._positions(start, end, selection)
            elif selection is not None:
                places = selection - start
            for batch in self._reader.read(opened, columns, places, deleted_rows=True, batch_rows=batch_rows):
                yield from slice_batch(cast_batch(batch, schema), batch_bytes)

    def _source_file(self, file: IndexedFile) -> SourceFile:
        try:
            return source_file(file, self._source.url)
        except (ValueError, TypeError, LookupError, OSError, pa.ArrowException) as error:
            raise SourceError(
                f"the record of the source file {file.path} in its companion index cannot be decoded "
                f"({error}); build the index again"
            ) from error
