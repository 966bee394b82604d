"""Writes the rows of a split as Parquet; encodings and codecs are chosen from a sample.

Arrow encodes row groups but cannot copy them. Here a row group has its column chunks as bytes, from Arrow or
from another split; its metadata and page indexes are adapted to its place in the new file.

Some Arrow types cannot be stored in Parquet. A struct without fields gets one field `_empty`, always null; an
interval of months, days and nanoseconds becomes its 16 bytes. All other types are stored as they are. Below a
null struct, Arrow marks the fields as null even if they are required, and Parquet's writer then rejects them
as nulls of a required field. So the validity of required fields is removed: values below a null struct are
never read.
"""

import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.options import Options
from indextables.options.writing import COMPRESSION_LEVEL, PAGE_BYTES, ROW_GROUP_BYTES
from indextables.records import dataclass
from indextables.schema.type_info import (
    DATETIME,
    NESTED,
    TypeKind,
    child_fields,
    kind_of,
    leaf_count,
    replace_children,
    storage_kind_of,
)
from indextables.split.checksum import ChunkChecksums, crc32, seal
from indextables.split.footer import MAGIC, ROW_COLUMN, Checksums
from indextables.split.parquet.metadata import ByteRange, Bytes, ColumnChunk, FileMetadata, RowGroupMetadata
from indextables.split.parquet.pages import add_page_checksums, shift_pages

_EMPTY = pa.struct([pa.field("_empty", pa.bool_())])
_INTERVAL = pa.month_day_nano_interval()


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type that stores values of this type in Parquet.

    >>> storage_type(pa.struct([]))
    StructType(struct<_empty: bool>)
    """
    if kind == _INTERVAL:
        return pa.binary(16)
    if kind_of(kind) is TypeKind.STRUCT and not kind.num_fields:
        return _EMPTY
    return replace_children(kind, lambda field: field.with_type(storage_type(field.type)))


def to_storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the Parquet part, without `_row`."""
    return pa.schema([f.with_type(storage_type(f.type)) for f in schema], schema.metadata)


def to_storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the type that stores it, without validity bitmaps of required fields."""
    return strip_validity(_convert(column, storage_type(column.type)))


def from_storage(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column that was read, in its own type."""
    return _convert(column, type_)


def _convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type of the same layout."""
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_convert(chunk, kind) for chunk in column.chunks], kind)
    if _INTERVAL in (kind, column.type):
        buffers = column.buffers()
        return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset)
    match storage_kind_of(kind):
        case TypeKind.STRUCT if kind_of(column.type) is TypeKind.STRUCT:
            return _convert_struct(column, kind)
        case TypeKind.MAP | TypeKind.LIST:
            return _convert_lists(column, kind)
        case _:
            return column.cast(kind)


def _convert_struct(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind.num_fields == 0 or column.type.num_fields == 0:
        children = [] if kind.num_fields == 0 else [pa.nulls(len(column), pa.bool_())]
        return _struct(column, children, kind)
    # Fields by position, without the validity of the struct, which is added again below.
    children = [_convert(column.field(i).slice(0, len(column)), field.type) for i, field in enumerate(kind)]
    return _struct(column, children, kind)


def _struct(column: pa.Array, children: list[pa.Array], kind: pa.DataType) -> pa.Array:
    if not children:
        validity = column.is_valid().cast(pa.bool_())
        bits = validity.buffers()[1] if column.null_count else None
        return pa.Array.from_buffers(kind, len(column), [bits], -1, validity.offset)
    missing = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)


def _convert_lists(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return _map_children(column, kind, lambda values, field: _convert(values, field.type))


def _map_children(
    column: pa.Array, kind: pa.DataType, function: Callable[[pa.Array, pa.Field], pa.Array]
) -> pa.Array:
    """The lists or maps as a type with the same layout, with a function applied to their children."""
    missing = column.is_null() if column.null_count else None
    offsets = column.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    shifted = pa.array(offsets.to_numpy() - start, pa.int32())
    if kind_of(kind) is TypeKind.MAP:
        keys = function(column.keys.slice(start, end - start), kind.key_field)
        items = function(column.items.slice(start, end - start), kind.item_field)
        return pa.MapArray.from_arrays(shifted, keys, items, type=kind, mask=missing)
    values = function(column.values.slice(start, end - start), kind.value_field)
    return pa.ListArray.from_arrays(shifted, values, type=kind, mask=missing)


def strip_validity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, without validity bitmaps of required fields."""
    if not _has_required(column.type):
        return column
    return pa.chunked_array([_strip_nested(chunk) for chunk in column.chunks], column.type)


@functools.cache
def _has_required(kind: pa.DataType) -> bool:
    """Whether the type has required fields, besides the keys of maps."""
    match storage_kind_of(kind):
        case TypeKind.STRUCT | TypeKind.LIST:
            return any(not field.nullable or _has_required(field.type) for field in child_fields(kind))
        case TypeKind.MAP:
            item = kind.item_field
            return not item.nullable or _has_required(item.type) or _has_required(kind.key_type)
        case _:
            return False


def _strip_field(values: pa.Array, field: pa.Field) -> pa.Array:
    values = _strip_nested(values) if _has_required(field.type) else values
    return values if field.nullable or not values.null_count else _drop_validity(values)


def _strip_nested(array: pa.Array) -> pa.Array:
    kind = array.type
    if kind_of(kind) is not TypeKind.STRUCT:
        return _map_children(array, kind, _strip_field)
    missing = array.is_null() if array.null_count else None
    children = [_strip_field(array.field(i), field) for i, field in enumerate(kind)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)


def _drop_validity(array: pa.Array) -> pa.Array:
    kind = array.type
    match storage_kind_of(kind):
        case TypeKind.STRUCT if kind.num_fields:
            children = [array.field(i) for i in range(kind.num_fields)]
            return pa.StructArray.from_arrays(children, fields=list(kind))
        case TypeKind.MAP:
            return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
        case TypeKind.LIST:
            return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
        case _:
            return _drop_validity_bitmap(array)


def _drop_validity_bitmap(array: pa.Array) -> pa.Array:
    _, *values = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [None, *values], 0, array.offset)


# Reads parts of a file.
ReadRanges: TypeAlias = Callable[[list[ByteRange]], Sequence[Bytes]]
# The entries of the footer, from the checksums of the rows before it.
KeyValues: TypeAlias = Callable[[Checksums], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A column chunk: its bytes, which began at `start` of their file, its metadata and page indexes."""

    data: Bytes
    start: int
    metadata: ColumnChunk
    column_index: bytes | None
    offset_index: bytes | None

    def checksums(self) -> ChunkChecksums:
        """The checksums of its bytes."""
        indexes = (None if data is None else crc32(data) for data in (self.column_index, self.offset_index))
        return ChunkChecksums(crc32(self.data), *indexes)


@dataclass(frozen=True, slots=True)
class EncodedRowGroup:
    """A row group: its number of rows, and a chunk for every leaf column."""

    rows: int
    chunks: tuple[EncodedChunk, ...]

    @classmethod
    def read(cls, group: RowGroupMetadata, ranges: ReadRanges) -> "EncodedRowGroup":
        """Read a row group of a file; `ranges` gives the bytes of parts of that file."""
        columns = group.columns
        indexes = [(column.column_index_range, column.offset_index_range) for column in columns]
        present = [index for pair in indexes for index in pair if index is not None]
        read = iter(ranges([*(column.byte_range for column in columns), *present]))
        data = [next(read) for _ in columns]
        chunks = []
        for column, body, pair in zip(columns, data, indexes, strict=True):
            column_index, offset_index = (None if index is None else bytes(next(read)) for index in pair)
            chunks.append(EncodedChunk(body, column.byte_range[0], column, column_index, offset_index))
        return cls(group.num_rows, tuple(chunks))

    def with_last(self, other: "EncodedRowGroup") -> "EncodedRowGroup":
        """The same with the last column of another group."""
        return EncodedRowGroup(self.rows, (*self.chunks[:-1], other.chunks[-1]))

    def check(self, checksums: Sequence[ChunkChecksums]) -> None:
        """Raise ValueError if the bytes of a chunk or of a page index differ from their checksum."""
        for number, (chunk, expected) in enumerate(zip(self.chunks, checksums, strict=True)):
            if chunk.checksums() != expected:
                raise ValueError(f"column chunk {number} or its page index differs from its checksum")


@dataclass(frozen=True, slots=True)
class _ChunkRecord:
    """What the footer needs of a chunk once its pages are written."""

    metadata: ColumnChunk
    column_index: bytes | None
    offset_index: bytes | None
    checksums: ChunkChecksums


class RowGroupWriter:
    """Writes row groups to a sink, then bytes of the caller, then the footer.

    `template` is the metadata of a file with the same columns: schema, key-values and the name of the writer.
    """

    def __init__(self, sink: IO[bytes], template: FileMetadata) -> None:
        self._sink = sink
        self._template = template
        # Of every row group: its offset, its rows, and its chunks without their pages.
        self._groups: list[tuple[int, int, list[_ChunkRecord]]] = []
        sink.write(MAGIC)

    def add(self, group: EncodedRowGroup) -> None:
        """Append a row group."""
        start = self._sink.tell()
        self._groups.append((start, group.rows, [self._append(chunk) for chunk in group.chunks]))

    def close(self, key_values: KeyValues) -> int:
        """Write the page indexes and the footer; returns the offset of the footer."""
        chunks = [chunk for _, _, group in self._groups for chunk in group]
        column_indexes = [self._write_index(chunk.column_index) for chunk in chunks]
        offset_indexes = [self._write_index(chunk.offset_index) for chunk in chunks]
        columns = iter(
            chunk.metadata.with_page_indexes(column_index, offset_index)
            for chunk, column_index, offset_index in zip(chunks, column_indexes, offset_indexes, strict=True)
        )
        groups = [
            RowGroupMetadata.of([next(columns) for _ in group], rows, offset, ordinal)
            for ordinal, (offset, rows, group) in enumerate(self._groups)
        ]
        checksums = [[chunk.checksums for chunk in group] for _, _, group in self._groups]
        start = self._sink.tell()
        data = seal(self._template.with_rows(groups, key_values(checksums)).to_bytes())
        self._sink.write(data + len(data).to_bytes(4, "little") + MAGIC)
        return start

    def _append(self, chunk: EncodedChunk) -> _ChunkRecord:
        """Write the pages of a chunk."""
        by = self._sink.tell() - chunk.start
        self._sink.write(chunk.data)
        offset_index = chunk.offset_index
        if offset_index is not None:
            offset_index = shift_pages(add_page_checksums(offset_index, chunk.data, chunk.start), by)
        written = replace(chunk, offset_index=offset_index)
        return _ChunkRecord(chunk.metadata.shift(by), chunk.column_index, offset_index, written.checksums())

    def _write_index(self, index: bytes | None) -> ByteRange | None:
        if index is None:
            return None
        start = self._sink.tell()
        self._sink.write(index)
        return start, start + len(index)


# A row group is copied without encoding it again if it has at least 1/16 of the full size.
_MIN_COPY_FRACTION = 16
# The largest dictionary, which every fetch of a row has to read.
_DICTIONARY_BYTES = 64 << 10
# The maximum rows of a page. Pages of dictionary codes would have tens of thousands, all decoded for one row.
_PAGE_ROWS = 640
# The rows on which codecs are tried, and the share of the file that a codec must save to be used.
_TRIAL_ROWS = 10_000
_MIN_SAVING = 0.005
# zstd decompresses a page in 20 us and more, LZ4 in a few: zstd must be smaller than LZ4 by this factor.
_ZSTD_RATIO = 0.8
# The first level of LZ4's better compression; all levels decompress equally fast.
_LZ4_LEVEL = 3
# Statistics of longer strings skip few pages, but take space for every page.
_STATISTICS_BYTES = 64

# Kinds of types that Parquet stores as integers.
_BYTES = frozenset({TypeKind.STRING, TypeKind.BINARY})
# Decimals of this many digits are stored as integers, which are read faster than bytes.
_INTEGER_DIGITS = 18
_INTEGERS = frozenset({TypeKind.INTEGER, TypeKind.TIME, TypeKind.INTERVAL}) | DATETIME


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The storage types of the table's columns, and `_row`."""
    return to_storage_schema(schema).append(pa.field(ROW_COLUMN, pa.int64(), nullable=False))


class RowWriter:
    """Encodes row groups and writes them to a sink on a thread of its own, at most one row group ahead.

    The sink is left open and in place for what follows the rows; `close` writes the Parquet footer.
    """

    def __init__(self, sink: IO[bytes], schema: pa.Schema, sample: pa.Table, options: Options) -> None:
        self._schema = parquet_schema(schema)
        self._settings = _settings(self._schema, sample, options)
        self._limit = options.get(ROW_GROUP_BYTES)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="indextables-rows")
        self._last: Future[None] | None = None
        self.rows = 0
        self.uncompressed = 0
        self._template = FileMetadata.of_file(self._encode_group(self._schema.empty_table()))
        self._groups = RowGroupWriter(sink, self._template)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; they are written when a row group is full."""
        for part in self._fitting(batch):
            self._pending.append(part)
            self._pending_bytes += part.nbytes
            if self._pending_bytes >= self._limit:
                self._flush()

    def can_copy(self, file: FileMetadata, group: RowGroupMetadata) -> bool:
        """Whether a row group of another file can be copied as it is.

        It must have the same columns and be large enough, and no small row group must be pending.
        """
        least = self._limit // _MIN_COPY_FRACTION
        few = 0 < self._pending_bytes < least
        return not few and group.uncompressed_size >= least and file.has_schema_of(self._template)

    def copy(self, group: EncodedRowGroup, uncompressed: int) -> None:
        """Append a row group without encoding it again, except for its row numbers."""
        self._flush()
        self._wait()
        self.uncompressed += uncompressed
        self._last = self._thread.submit(self._copy_group, group, self.rows)
        self.rows += group.rows

    def flush(self) -> None:
        """Write pending rows and wait until all row groups are in the sink."""
        self._flush()
        self._wait()

    def close(self, footer: KeyValues) -> int:
        """Write the Parquet footer with the key-values of the split; returns its offset."""
        self._thread.shutdown()
        return self._groups.close(footer)

    def abort(self) -> None:
        """Stop; the sink has no valid Parquet file."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _fitting(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Slices of a batch of at most about the size of a row group."""
        if batch.nbytes <= self._limit or batch.num_rows <= 1:
            yield batch
            return
        rows = max(1, batch.num_rows * self._limit // batch.nbytes)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _flush(self) -> None:
        if not self._pending:
            return
        batches, self._pending = self._pending, []
        self.uncompressed += self._pending_bytes
        self._pending_bytes = 0
        self._wait()
        count = sum(batch.num_rows for batch in batches)
        self._last = self._thread.submit(self._write_group, batches, self.rows, count)
        self.rows += count

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _write_group(self, batches: list[pa.RecordBatch], first: int, count: int) -> None:
        table = pa.Table.from_batches(batches)
        columns = [to_storage(table.column(i)) for i in range(table.num_columns)]
        group = pa.Table.from_arrays([*columns, _row_numbers(first, count)], schema=self._schema)
        self._groups.add(_only_group(self._encode_group(group)))

    def _copy_group(self, group: EncodedRowGroup, first: int) -> None:
        last = self._schema.field(len(self._schema) - 1)
        numbers = pa.Table.from_arrays([_row_numbers(first, group.rows)], schema=pa.schema([last]))
        self._groups.add(group.with_last(_only_group(self._encode_group(numbers))))

    def _encode_group(self, rows: pa.Table) -> memoryview:
        """A Parquet file of one row group, or of none."""
        sink = pa.BufferOutputStream()
        settings = _settings_for(self._settings, rows.schema)
        with pq.ParquetWriter(sink, rows.schema, **settings) as writer:
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)
        return memoryview(sink.getvalue()).cast("B")


def _only_group(parquet: memoryview) -> EncodedRowGroup:
    (group,) = FileMetadata.of_file(parquet).row_groups
    return EncodedRowGroup.read(group, lambda ranges: [parquet[start:end] for start, end in ranges])


def _row_numbers(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _settings_for(settings: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The settings of some columns: Arrow rejects settings of columns that a file does not have."""
    names = set(schema.names)

    def is_present(path: str) -> bool:
        return path in names or path.split(".", maxsplit=1)[0] in names

    restricted = dict(settings)
    for key in ("use_dictionary", "write_statistics"):
        if isinstance(restricted.get(key), list):
            restricted[key] = [path for path in restricted[key] if is_present(path)] or False
    for key in ("column_encoding", "compression", "compression_level"):
        if isinstance(restricted.get(key), dict):
            restricted[key] = {
                path: value for path, value in restricted[key].items() if is_present(path)
            } or None
    return restricted


def _settings(schema: pa.Schema, sample: pa.Table, options: Options) -> dict[str, Any]:
    level, page = options.get(COMPRESSION_LEVEL), options.get(PAGE_BYTES)
    layout = {
        **_encodings(schema, sample),
        "store_decimal_as_integer": True,
        "data_page_size": page,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "max_rows_per_page": _PAGE_ROWS,
        "write_batch_size": _batch_size(sample, page),
    }
    codecs = _codecs(sample, layout, level)
    leaves = _leaves(schema)
    long = _long_strings(sample)
    return {
        **layout,
        "compression": {path: codecs.get(path, "none") for path, _ in leaves},
        "compression_level": {path: _level(codec, level) for path, codec in codecs.items()} or None,
        "write_page_index": True,
        # For other readers; this engine compares the checksums of the split.
        "write_page_checksum": True,
        "write_statistics": [path for path, top in leaves if top not in long] if long else True,
    }


def _level(codec: str, zstd: int) -> int:
    return zstd if codec == "zstd" else _LZ4_LEVEL


def _long_strings(sample: pa.Table) -> set[int]:
    """The numbers of columns of strings that are long on average."""
    return {
        i
        for i, column in enumerate(sample.columns)
        if storage_kind_of(column.type) in _BYTES and column.nbytes > _STATISTICS_BYTES * len(column)
    }


def _codecs(sample: pa.Table, layout: dict[str, Any], level: int) -> dict[str, str]:
    """The codecs of columns that become notably smaller: LZ4, or zstd where that is much smaller.

    Dictionary codes and deltas are bit-packed already.
    """
    if not sample.num_rows:
        return {}
    some = sample.slice(0, _TRIAL_ROWS)
    some = pa.table(
        [to_storage(column) for column in some.columns],
        to_storage_schema(some.schema),
    )
    layout = _settings_for(layout, some.schema)
    plain = _sizes(some, layout, "none", None)
    lz4 = _sizes(some, layout, "lz4", _LZ4_LEVEL)
    zstd = _sizes(some, layout, "zstd", level)
    least = _MIN_SAVING * sum(zstd.values())
    best = {path: "zstd" if zstd[path] < _ZSTD_RATIO * lz4[path] else "lz4" for path in plain}
    size = {"zstd": zstd, "lz4": lz4}
    return {path: codec for path, codec in best.items() if plain[path] - size[codec][path] > least}


def _sizes(rows: pa.Table, layout: dict[str, Any], codec: str, level: int | None) -> dict[str, int]:
    """The bytes of the data pages of each column, without dictionaries, which are large for few rows."""
    trial = io.BytesIO()
    pq.write_table(rows, trial, compression=codec, compression_level=level, **layout)
    group = pq.ParquetFile(trial).metadata.row_group(0)
    sizes = {}
    for column in map(group.column, range(group.num_columns)):
        first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        dictionary = column.data_page_offset - first
        sizes[column.path_in_schema] = column.total_compressed_size - dictionary
    return sizes


def _batch_size(sample: pa.Table, page: int) -> int:
    """The number of values between two checks of the page size: about a quarter of a page."""
    widest = max((column.nbytes for column in sample.columns), default=0)
    return int(min(1024, max(1, page * max(1, sample.num_rows) // max(1, 4 * widest))))


def _encodings(schema: pa.Schema, sample: pa.Table) -> dict[str, Any]:
    """Dictionaries for repetitive columns, delta encoding for other integers and strings."""
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    for path, top in _leaves(schema):
        field = schema.field(top)
        if kind_of(field.type) in NESTED or (
            top < sample.num_columns and is_repetitive(sample.column(top).combine_chunks())
        ):
            dictionaries.append(path)
        elif (encoding := _plain_encoding(field.type)) is not None:
            encodings[path] = encoding
    # A column `a.b` and a field b of a struct a have the same path, and so the same encoding.
    plain = {path: encoding for path, encoding in encodings.items() if path not in dictionaries}
    return {"use_dictionary": dictionaries or False, "column_encoding": plain or None}


def _leaves(schema: pa.Schema) -> list[tuple[str, int]]:
    """The Parquet paths of all leaf columns, with the number of the column they belong to."""
    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema).close()
    leaves = pq.ParquetFile(empty).schema
    tops = {name: i for i, name in enumerate(schema.names)}
    owners = _owners(schema)
    paths = [leaves.column(i).path for i in range(len(leaves))]
    return [(path, owner if owner >= 0 else tops[path]) for path, owner in zip(paths, owners, strict=True)]


def _owners(schema: pa.Schema) -> list[int]:
    """The column number of each leaf, in order."""
    return [i for i, field in enumerate(schema) for _ in range(leaf_count(field.type))]


def is_repetitive(values: pa.Array) -> bool:
    """Whether the rows have few distinct values."""
    if kind_of(values.type) in {TypeKind.BOOLEAN, TypeKind.NULL} or not len(values):
        return False
    distinct = pc.unique(values)
    return len(distinct) * 8 <= len(values) and distinct.nbytes <= _DICTIONARY_BYTES


def _plain_encoding(kind: pa.DataType) -> str | None:
    if storage_kind_of(kind) in _BYTES:
        return "DELTA_LENGTH_BYTE_ARRAY"
    is_integer = kind_of(kind) in _INTEGERS or (
        kind_of(kind) is TypeKind.DECIMAL and kind.precision <= _INTEGER_DIGITS
    )
    return "DELTA_BINARY_PACKED" if is_integer else None
