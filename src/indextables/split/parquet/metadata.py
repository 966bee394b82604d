"""Parquet's metadata: Thrift's compact protocol, and typed access to the fields that are used here.

A Thrift struct is a dict from field number to `(kind, value)`, a list is `(kind of its elements, values)`: a
struct can be changed and written again without a schema. Each class wraps a struct; fields without an
accessor are kept when the metadata are written again.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from indextables.limits import MAX_THRIFT_DEPTH, MAX_THRIFT_VALUES
from indextables.records import dataclass
from indextables.varint import read_varint, unzigzag, varint_bytes, zigzag

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct: TypeAlias = dict[int, tuple[int, Any]]


def read_struct(data: bytes | memoryview, position: int = 0) -> tuple[Struct, int]:
    """Read one struct; returns it and the position after it.

    Raises:
        ValueError: The bytes are not a struct, or exceed the limits of values and depth.
    """
    try:
        return _Reader(data).struct(position, 0)
    except (IndexError, struct.error) as error:
        raise ValueError("thrift data are truncated") from error


class _Reader:
    """Reads values, and limits their number: a byte of input may become a hundred bytes of memory."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._left = MAX_THRIFT_VALUES

    def struct(self, position: int, depth: int) -> tuple[Struct, int]:
        if depth > MAX_THRIFT_DEPTH:
            raise ValueError(f"thrift structs are nested more than {MAX_THRIFT_DEPTH} deep")
        fields: Struct = {}
        number = 0
        while True:
            head = self._data[position]
            position += 1
            if head == 0:
                return fields, position
            kind = head & 15
            if head >> 4:
                number += head >> 4
            else:
                raw, position = read_varint(self._data, position)
                number = unzigzag(raw)
            if not 0 < number < 1 << 15:
                raise ValueError(f"thrift field {number} cannot be: fields have numbers of 15 bits")
            if kind in (TRUE, FALSE):
                fields[number] = (kind, None)
            else:
                value, position = self._value(position, kind, depth)
                fields[number] = (kind, value)

    def _value(self, position: int, kind: int, depth: int) -> tuple[Any, int]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"thrift data have more than {MAX_THRIFT_VALUES} values")
        if kind in (I16, I32, I64):
            raw, position = read_varint(self._data, position)
            return unzigzag(raw), position
        if kind == BINARY:
            length, position = read_varint(self._data, position)
            if length > len(self._data) - position:
                raise ValueError("thrift data are truncated")
            return bytes(self._data[position : position + length]), position + length
        if kind == STRUCT:
            return self.struct(position, depth + 1)
        if kind in (LIST, SET):
            return self._list(position, depth + 1)
        if kind in (BYTE, TRUE, FALSE):
            return self._data[position], position + 1
        if kind == DOUBLE:
            return struct.unpack_from("<d", self._data, position)[0], position + 8
        raise ValueError(f"thrift kind {kind} does not occur in Parquet metadata")

    def _list(self, position: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
        if depth > MAX_THRIFT_DEPTH:
            raise ValueError(f"thrift lists are nested more than {MAX_THRIFT_DEPTH} deep")
        head = self._data[position]
        position += 1
        size, kind = head >> 4, head & 15
        if size == 15:
            size, position = read_varint(self._data, position)
        # Every element takes a byte at least.
        if size > len(self._data) - position:
            raise ValueError("thrift data are truncated")
        values: list[Any] = []
        for _ in range(size):
            value, position = self._value(position, kind, depth)
            values.append(value)
        return (kind, values), position


def write_struct(values: Struct) -> bytes:
    """Encode one struct.

    >>> read_struct(write_struct({1: (I32, -7), 20: (BINARY, b"x")}))[0]
    {1: (5, -7), 20: (8, b'x')}
    """
    out = bytearray()
    _write_struct(out, values)
    return bytes(out)


def _write_struct(out: bytearray, values: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(values.items()):
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += varint_bytes(zigzag(number))
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401 - as read
    if kind in (I16, I32, I64):
        out += varint_bytes(zigzag(value))
    elif kind == BINARY:
        out += varint_bytes(len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    elif kind in (LIST, SET):
        inner, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | inner)
        else:
            out.append(0xF0 | inner)
            out += varint_bytes(len(items))
        for item in items:
            _write_value(out, inner, item)
    else:
        out.append(value)


Bytes: TypeAlias = bytes | memoryview
# The first byte of a part of a file, and the byte after the last.
ByteRange: TypeAlias = tuple[int, int]

# Numbers of fields. FileMetaData
_VERSION, _SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 1, 2, 3, 4, 5
# KeyValue
_KEY, _VALUE = 1, 2
# SchemaElement
_NAME, _NUM_CHILDREN = 4, 5
# RowGroup
_COLUMNS, _TOTAL_BYTE_SIZE, _GROUP_NUM_ROWS, _FILE_OFFSET, _TOTAL_COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 5, 6, 7
# ColumnChunk
_CHUNK_FILE_OFFSET, _META_DATA = 2, 3
_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 4, 5, 6, 7
_PAGE_INDEX_FIELDS = (_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
# ColumnMetaData
_TYPE, _BYTE_ARRAY = 1, 6
_CHUNK_CONSTANTS = (_TYPE, 2, 3, 4)
_NUM_VALUES, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 5, 6, 7
_DATA_PAGE_OFFSET, _INDEX_PAGE_OFFSET, _DICTIONARY_PAGE_OFFSET = 9, 10, 11
_PAGE_OFFSETS = (_DATA_PAGE_OFFSET, _INDEX_PAGE_OFFSET, _DICTIONARY_PAGE_OFFSET)
# Statistics, encoding statistics, bloom filter, sizes: they describe all pages of a chunk.
_CHUNK_STATISTICS = (8, 12, 13, 14, 15, 16, 17)

_MAX_ORDINAL = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """A column of the schema, or a field within one; parents come before their children."""

    struct: Struct

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.struct[_NAME][1].decode())

    @property
    def num_children(self) -> int:
        """How many fields it has."""
        return int(self.struct.get(_NUM_CHILDREN, (I32, 0))[1])

    @property
    def is_leaf(self) -> bool:
        """Whether it has values of its own."""
        return self.num_children == 0

    @property
    def is_odd_leaf(self) -> bool:
        """Whether it is a leaf with an explicit number of children, 0, which Arrow does not read."""
        return self.is_leaf and _NUM_CHILDREN in self.struct


@dataclass(frozen=True)
class ColumnChunk:
    """The pages of a leaf column in a row group."""

    struct: Struct

    @property
    def _meta(self) -> Struct:
        meta: Struct = self.struct[_META_DATA][1]
        return meta

    @property
    def byte_range(self) -> ByteRange:
        """Where its pages are in the file, including the dictionary page."""
        meta = self._meta
        start = min(meta[field][1] for field in _PAGE_OFFSETS if field in meta)
        return start, start + meta[_COMPRESSED_SIZE][1]

    @property
    def compressed_size(self) -> int:
        """How many bytes its pages have in the file."""
        return int(self._meta[_COMPRESSED_SIZE][1])

    @property
    def uncompressed_size(self) -> int:
        """How many bytes its pages have before compression."""
        return int(self._meta[_UNCOMPRESSED_SIZE][1])

    @property
    def dictionary_page_offset(self) -> int | None:
        """Where its dictionary page begins, if it has one."""
        offset = self._meta.get(_DICTIONARY_PAGE_OFFSET)
        return None if offset is None else int(offset[1])

    @property
    def column_index_range(self) -> ByteRange | None:
        """Where its column index (statistics by page) is, if it has one."""
        return self._range(_COLUMN_INDEX, _COLUMN_INDEX_LENGTH)

    @property
    def offset_index_range(self) -> ByteRange | None:
        """Where its offset index (locations of pages) is, if it has one."""
        return self._range(_OFFSET_INDEX, _OFFSET_INDEX_LENGTH)

    def _range(self, offset: int, length: int) -> ByteRange | None:
        if offset not in self.struct or length not in self.struct:
            return None
        start = self.struct[offset][1]
        return start, start + self.struct[length][1]

    def shift(self, by: int) -> "ColumnChunk":
        """The chunk with its pages `by` bytes further on, and without page indexes."""
        meta = dict(self._meta)
        for field in _PAGE_OFFSETS:
            if field in meta:
                meta[field] = (I64, meta[field][1] + by)
        struct = self._without_page_indexes()
        return ColumnChunk({**struct, _META_DATA: (STRUCT, meta), _CHUNK_FILE_OFFSET: (I64, 0)})

    def of_pages(self, rows: int, offset: int, dictionary_size: int, size: int) -> "ColumnChunk":
        """A chunk of some of its pages, without statistics and page indexes.

        Args:
            rows: The rows of the pages.
            offset: Where the pages begin in their file.
            dictionary_size: The bytes of the dictionary page before them; 0 if there is none.
            size: The bytes of all pages.
        """
        meta = {number: field for number, field in self._meta.items() if number not in _CHUNK_STATISTICS}
        meta.pop(_DICTIONARY_PAGE_OFFSET, None)
        if dictionary_size:
            meta[_DICTIONARY_PAGE_OFFSET] = (I64, offset)
        meta[_DATA_PAGE_OFFSET] = (I64, offset + dictionary_size)
        meta[_NUM_VALUES] = (I64, rows)
        meta[_COMPRESSED_SIZE] = (I64, size)
        meta[_UNCOMPRESSED_SIZE] = (I64, max(size, self.uncompressed_size))
        return ColumnChunk({**self._without_page_indexes(), _META_DATA: (STRUCT, meta)})

    @cached_property
    def constant_fields(self) -> bytes:
        """Type, encodings, path and codec, as they are written at the beginning of the chunk's metadata."""
        return write_struct({number: self._meta[number] for number in _CHUNK_CONSTANTS})[:-1]

    @property
    def is_bytes(self) -> bool:
        """Whether its values are byte arrays of any length, as texts are."""
        return bool(self._meta[_TYPE][1] == _BYTE_ARRAY)

    def with_page_indexes(
        self, column_index: ByteRange | None, offset_index: ByteRange | None
    ) -> "ColumnChunk":
        """The chunk with the places of its page indexes."""
        struct = self._without_page_indexes()
        for index, offset, length in (
            (column_index, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH),
            (offset_index, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH),
        ):
            if index is not None:
                struct[offset] = (I64, index[0])
                struct[length] = (I32, index[1] - index[0])
        return ColumnChunk(struct)

    def _without_page_indexes(self) -> Struct:
        return {number: field for number, field in self.struct.items() if number not in _PAGE_INDEX_FIELDS}


@dataclass(frozen=True, slots=True)
class RowGroupMetadata:
    """A row group: its rows, and a chunk for every leaf column."""

    struct: Struct

    @classmethod
    def of(
        cls, columns: Sequence[ColumnChunk], rows: int, offset: int | None = None, ordinal: int | None = None
    ) -> "RowGroupMetadata":
        """The metadata of a row group; with its place in the file if that is given."""
        struct: Struct = {
            _COLUMNS: _structs([column.struct for column in columns]),
            _TOTAL_BYTE_SIZE: (I64, sum(column.uncompressed_size for column in columns)),
            _GROUP_NUM_ROWS: (I64, rows),
        }
        if offset is not None:
            struct[_FILE_OFFSET] = (I64, offset)
            struct[_TOTAL_COMPRESSED_SIZE] = (I64, sum(column.compressed_size for column in columns))
        if ordinal is not None and ordinal <= _MAX_ORDINAL:
            struct[_ORDINAL] = (I16, ordinal)
        return cls(struct)

    @property
    def columns(self) -> list[ColumnChunk]:
        """Its column chunks, in the order of the leaf columns."""
        return [ColumnChunk(struct) for struct in self.struct[_COLUMNS][1][1]]

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.struct[_GROUP_NUM_ROWS][1])

    @property
    def uncompressed_size(self) -> int:
        """How many bytes its pages have before compression."""
        return int(self.struct[_TOTAL_BYTE_SIZE][1])


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The footer of a Parquet file, without its length and the magic bytes."""

    struct: Struct

    @classmethod
    def parse(cls, footer: Bytes) -> "FileMetadata":
        """Read a footer; ValueError if it is malformed."""
        return cls(read_struct(footer)[0])

    @classmethod
    def of_file(cls, parquet: Bytes) -> "FileMetadata":
        """Read the footer at the end of a file in memory."""
        length = int.from_bytes(parquet[-8:-4], "little")
        return cls.parse(parquet[len(parquet) - 8 - length :])

    @property
    def schema_elements(self) -> list[SchemaElement]:
        """The elements of the schema; the first is the root."""
        return [SchemaElement(struct) for struct in self.struct[_SCHEMA][1][1]]

    @property
    def row_groups(self) -> list[RowGroupMetadata]:
        """The row groups, in order."""
        return [RowGroupMetadata(struct) for struct in self.struct[_ROW_GROUPS][1][1]]

    @property
    def key_values(self) -> dict[str, str]:
        """The key-values of the footer; malformed ones are left out."""
        entries = self.struct[_KEY_VALUES][1][1] if _KEY_VALUES in self.struct else []
        return {
            entry[_KEY][1].decode(errors="replace"): entry[_VALUE][1].decode(errors="replace")
            for entry in entries
            if _KEY in entry and _VALUE in entry
        }

    def without_extras(self) -> "FileMetadata":
        """The metadata without key-values, and with leaves as Arrow reads them."""
        elements = [
            {number: field for number, field in element.struct.items() if number != _NUM_CHILDREN}
            if element.is_odd_leaf
            else element.struct
            for element in self.schema_elements
        ]
        struct = {number: field for number, field in self.struct.items() if number != _KEY_VALUES}
        return FileMetadata({**struct, _SCHEMA: _structs(elements)})

    def has_schema_of(self, other: "FileMetadata") -> bool:
        """Whether another file has the same columns, with the same types."""
        return bool(self.struct[_SCHEMA] == other.struct[_SCHEMA])

    def with_rows(self, groups: Sequence[RowGroupMetadata], key_values: Mapping[str, str]) -> "FileMetadata":
        """The metadata of a file with the same columns and other row groups; key-values are added."""
        existing = self.struct.get(_KEY_VALUES, (LIST, (STRUCT, [])))[1][1]
        added = [
            {_KEY: (BINARY, key.encode()), _VALUE: (BINARY, value.encode())}
            for key, value in key_values.items()
        ]
        return FileMetadata(
            {
                **self.struct,
                _NUM_ROWS: (I64, sum(group.num_rows for group in groups)),
                _ROW_GROUPS: _structs([group.struct for group in groups]),
                _KEY_VALUES: _structs([*existing, *added]),
            }
        )

    def of_column(self, leaf: SchemaElement, groups: Sequence[RowGroupMetadata]) -> "FileMetadata":
        """The metadata of a file with one of the columns alone."""
        root = {**self.schema_elements[0].struct, _NUM_CHILDREN: (I32, 1)}
        return FileMetadata(
            {
                _VERSION: self.struct[_VERSION],
                _SCHEMA: _structs([root, leaf.struct]),
                _NUM_ROWS: (I64, sum(group.num_rows for group in groups)),
                _ROW_GROUPS: _structs([group.struct for group in groups]),
            }
        )

    def schema_of(self, leaves: Sequence[SchemaElement]) -> bytes:
        """The list of schema elements of a file with some of the columns alone."""
        root = {**self.schema_elements[0].struct, _NUM_CHILDREN: (I32, len(leaves))}
        return _list_header(len(leaves) + 1) + b"".join(
            write_struct(struct) for struct in (root, *(leaf.struct for leaf in leaves))
        )

    def to_bytes(self) -> bytes:
        """The footer as it is written."""
        return write_struct(self.struct)


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """Some pages of a column chunk, in a file of their own: their rows, offset and sizes there."""

    chunk: ColumnChunk
    rows: int
    offset: int
    dictionary_size: int
    size: int

    def to_bytes(self) -> bytes:
        """The struct of the chunk, without statistics and page indexes."""
        out = bytearray(b"\x26\x00\x1c")  # the file's offset, 0; the metadata
        out += self.chunk.constant_fields
        uncompressed = max(self.size, self.chunk.uncompressed_size)
        for number in (self.rows, uncompressed, self.size):
            out.append(1 << 4 | I64)
            out += varint_bytes(number << 1)
        out.append(2 << 4 | I64)
        out += varint_bytes((self.offset + self.dictionary_size) << 1)
        if self.dictionary_size:
            out.append(2 << 4 | I64)
            out += varint_bytes(self.offset << 1)
        out += b"\x00\x00"
        return bytes(out)


def pages_footer(schema: bytes, groups: Sequence[tuple[int, Sequence[ChunkPages]]]) -> bytes:
    """The footer of a file of single pages.

    Args:
        schema: The list of schema elements, as `schema_of` returns it.
        groups: For each row group the number of its rows, and a chunk for every column. Columns may have
            different numbers of rows; then they have to be read one by one.
    """
    out = bytearray(b"\x15\x04\x19")  # version 2; the schema
    out += schema
    out.append(1 << 4 | I64)
    out += varint_bytes(sum(rows for rows, _ in groups) << 1)
    out.append(1 << 4 | LIST)
    out += _list_header(len(groups))
    for rows, chunks in groups:
        out.append(1 << 4 | LIST)
        out += _list_header(len(chunks))
        for chunk in chunks:
            out += chunk.to_bytes()
        for number in (sum(chunk.size for chunk in chunks), rows):
            out.append(1 << 4 | I64)
            out += varint_bytes(number << 1)
        out.append(0)
    out.append(0)
    return bytes(out)


def _list_header(size: int) -> bytes:
    return bytes([size << 4 | STRUCT]) if size < 15 else bytes([0xF0 | STRUCT]) + varint_bytes(size)


def _structs(structs: list[Struct]) -> tuple[int, tuple[int, list[Struct]]]:
    return LIST, (STRUCT, structs)
