"""Writes a Parquet file of encoded row groups.

Arrow encodes row groups but cannot copy them. Here a row group has its column chunks as bytes, from Arrow or
from another split; its metadata and page indexes are adapted to its place in the new file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import IO, TypeAlias

from indextables.records import dataclass
from indextables.split.checksum import ChunkChecksums, crc32, seal
from indextables.split.footer import MAGIC, Checksums
from indextables.split.parquet.metadata import ByteRange, Bytes, ColumnChunk, FileMetadata, RowGroupMetadata
from indextables.split.parquet.pages import add_page_checksums, shift_pages

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
        return _ChunkRecord(chunk.metadata.shifted(by), chunk.column_index, offset_index, written.checksums())

    def _write_index(self, index: bytes | None) -> ByteRange | None:
        if index is None:
            return None
        start = self._sink.tell()
        self._sink.write(index)
        return start, start + len(index)
