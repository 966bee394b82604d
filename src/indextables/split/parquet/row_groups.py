"""A Parquet file put together from row groups that are encoded already.

Arrow encodes row groups but cannot copy them. Here a row group comes with its column chunks as bytes, from
Arrow or from another split; its metadata and page indexes are written again for the place where it lands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from indextables.split.checksum import ChunkChecksums, crc32, seal
from indextables.split.footer import MAGIC, Checksums
from indextables.split.parquet import metadata as fields
from indextables.split.parquet.pages import Bytes, add_page_checksums, shift_pages
from indextables.split.parquet.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    read_struct,
    write_struct,
)

Ranges: TypeAlias = Callable[[list[tuple[int, int]]], Sequence[Bytes]]
# The entries of the footer, from the checksums of the rows before it.
KeyValues: TypeAlias = Callable[[Checksums], Mapping[str, str]]

_LARGEST_ORDINAL = (1 << 15) - 1
_PLACES = (fields.DATA_PAGE, fields.INDEX_PAGE, fields.DICTIONARY_PAGE)


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A column chunk: its bytes, which began at `start` of their file, its metadata and page indexes."""

    data: Bytes
    start: int
    described: Struct
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
    def read(cls, group: Struct, ranges: Ranges) -> "EncodedRowGroup":
        """Take a row group out of a file; `ranges` gives the bytes of parts of that file."""
        columns: list[Struct] = group[fields.COLUMNS][1][1]
        places = [chunk_range(column) for column in columns]
        indexes = [
            (column[at][1], column[at][1] + column[length][1])
            for column in columns
            for at, length in _INDEXES
            if at in column
        ]
        read = iter(ranges([*places, *indexes]))
        data = [next(read) for _ in columns]
        chunks = []
        for column, (start, _), body in zip(columns, places, data, strict=True):
            found = [bytes(next(read)) if at in column else None for at, _ in _INDEXES]
            chunks.append(EncodedChunk(body, start, column, found[0], found[1]))
        return cls(group[fields.GROUP_ROWS][1], tuple(chunks))

    def with_last(self, other: "EncodedRowGroup") -> "EncodedRowGroup":
        """The same with the last column of another group."""
        return EncodedRowGroup(self.rows, (*self.chunks[:-1], other.chunks[-1]))

    def check(self, checksums: Sequence[ChunkChecksums]) -> None:
        """Raise ValueError if a chunk or a page index is not what it was when its checksum was taken."""
        for number, (chunk, expected) in enumerate(zip(self.chunks, checksums, strict=True)):
            if chunk.checksums() != expected:
                raise ValueError(f"column chunk {number} or its page index differs from its checksum")


_INDEXES = (
    (fields.COLUMN_INDEX_AT, fields.COLUMN_INDEX_LENGTH),
    (fields.OFFSET_INDEX_AT, fields.OFFSET_INDEX_LENGTH),
)


def chunk_range(column: Struct) -> tuple[int, int]:
    """Where the pages of a column chunk lie, its dictionary among them."""
    meta: Struct = column[fields.META_DATA][1]
    start = min(meta[place][1] for place in _PLACES if place in meta)
    return start, start + meta[fields.PACKED][1]


def unpacked_bytes(column: Struct) -> int:
    """How large the pages of a column chunk are before compression."""
    return int(column[fields.META_DATA][1][fields.UNPACKED][1])


def group_bytes(group: Struct) -> int:
    """How large the pages of a row group are before compression."""
    return int(group[fields.GROUP_BYTES][1])


def file_metadata(parquet: Bytes) -> Struct:
    """The metadata at the end of a Parquet file in memory."""
    length = int.from_bytes(parquet[-8:-4], "little")
    return read_struct(parquet[len(parquet) - 8 - length :])[0]


class RowGroupWriter:
    """Writes row groups one after the other to a sink, then whatever the caller puts there, then the footer.

    `empty` is the metadata of a file with the same columns, which gives the schema, the key-values and the
    name of the maker.
    """

    def __init__(self, sink: IO[bytes], empty: Struct) -> None:
        self._sink = sink
        self._empty = empty
        self._groups: list[Struct] = []
        self._rows = 0
        # Of every chunk: its metadata as written, its column index and its offset index.
        self._chunks: list[tuple[Struct, bytes | None, bytes | None]] = []
        self._checksums: list[list[ChunkChecksums]] = []
        sink.write(MAGIC)

    def add(self, group: EncodedRowGroup) -> None:
        """Append a row group."""
        start = self._sink.tell()
        self._checksums.append([])
        columns = [self._append(chunk) for chunk in group.chunks]
        metas = [column[fields.META_DATA][1] for column in columns]
        packed = sum(meta[fields.PACKED][1] for meta in metas)
        made: Struct = {
            fields.COLUMNS: (LIST, (STRUCT, columns)),
            fields.GROUP_BYTES: (I64, sum(meta[fields.UNPACKED][1] for meta in metas)),
            fields.GROUP_ROWS: (I64, group.rows),
            fields.GROUP_OFFSET: (I64, start),
            fields.GROUP_PACKED: (I64, packed),
        }
        if len(self._groups) <= _LARGEST_ORDINAL:
            made[fields.GROUP_ORDINAL] = (I16, len(self._groups))
        self._groups.append(made)
        self._rows += group.rows

    def close(self, key_values: KeyValues) -> int:
        """Write the page indexes and the footer; says where the footer begins."""
        self._write_indexes(0, *_INDEXES[0])
        self._write_indexes(1, *_INDEXES[1])
        footer = dict(self._empty)
        known = footer.get(fields.KEY_VALUES, (LIST, (STRUCT, [])))[1][1]
        ours = [
            {fields.KEY: (BINARY, key.encode()), fields.VALUE: (BINARY, value.encode())}
            for key, value in key_values(self._checksums).items()
        ]
        footer[fields.NUM_ROWS] = (I64, self._rows)
        footer[fields.ROW_GROUPS] = (LIST, (STRUCT, self._groups))
        footer[fields.KEY_VALUES] = (LIST, (STRUCT, [*known, *ours]))
        start = self._sink.tell()
        data = seal(write_struct(footer))
        self._sink.write(data + len(data).to_bytes(4, "little") + MAGIC)
        return start

    def _append(self, chunk: EncodedChunk) -> Struct:
        by = self._sink.tell() - chunk.start
        self._sink.write(chunk.data)
        meta: Struct = dict(chunk.described[fields.META_DATA][1])
        for place in _PLACES:
            if place in meta:
                meta[place] = (I64, meta[place][1] + by)
        column: Struct = {**chunk.described, fields.META_DATA: (STRUCT, meta)}
        column[fields.CHUNK_OFFSET] = (I64, 0)
        for index in fields.PAGE_INDEXES:
            column.pop(index, None)
        offsets = chunk.offset_index
        if offsets is not None:
            offsets = shift_pages(add_page_checksums(offsets, chunk.data, chunk.start), by)
        self._chunks.append((column, chunk.column_index, offsets))
        self._checksums[-1].append(
            EncodedChunk(chunk.data, 0, column, chunk.column_index, offsets).checksums()
        )
        return column

    def _write_indexes(self, which: int, at: int, length: int) -> None:
        for column, *indexes in self._chunks:
            data: Any = indexes[which]
            if data is not None:
                column[at] = (I64, self._sink.tell())
                column[length] = (I32, len(data))
                self._sink.write(data)
