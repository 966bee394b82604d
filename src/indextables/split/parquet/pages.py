"""Single pages of a Parquet file: their locations, which have some rows, and small files of a few of them.

Parquet's page index has the rows of each page of a column. To read some rows of a column, their pages are
fetched and put, with a footer of their own, into a small Parquet file in memory, which Arrow decodes.
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.records import dataclass
from indextables.split.checksum import add_extension, crc32s, split_extension
from indextables.split.footer import MAGIC
from indextables.split.parquet.metadata import (
    I32,
    I64,
    LIST,
    STRUCT,
    ByteRange,
    Bytes,
    ColumnChunk,
    FileMetadata,
    RowGroupMetadata,
    SchemaElement,
    read_struct,
    write_struct,
)
from indextables.varint import read_varint

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

# A page location as numbers: the headers of its three fields before their values, and the end.
_NUMBERS = 7
_HEADERS = (0, 2, 4, 6)
_HEADER_VALUES = np.array([1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64, 0], np.int64)
_VALUES = (1, 3, 5)
# The bytes of the longest number of 64 bits.
_LONGEST = 10


def page_locations(page_index: Bytes) -> Ints:
    """Offset, length and first row of each page, one page per line."""
    regular = _decode_regular(page_index)
    if regular is not None:
        return regular[0]
    try:
        places = read_struct(page_index)[0][1][1][1]
        return np.array([(p[1][1], p[2][1], p[3][1]) for p in places], np.int64).reshape(-1, 3)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a page index is malformed ({error!r})") from error


def add_page_checksums(page_index: bytes, chunk: Bytes, start: int) -> bytes:
    """The offset index with the checksums of the pages of a chunk, which begins at `start` of its file.

    The first checksum is that of the bytes before the first data page: the dictionary page, or none.
    """
    table = page_locations(page_index)
    inner, _ = split_extension(page_index, len(table) + 1)
    data = memoryview(chunk)
    starts = table[:, 0] - start
    first = int(starts[0]) if len(starts) else len(data)
    places = [(0, first), *zip(starts.tolist(), (starts + table[:, 1]).tolist(), strict=True)]
    return add_extension(inner, crc32s(data[at:end] for at, end in places))


def page_checksums(page_index: Bytes, pages: int) -> list[int]:
    """The checksums in an offset index: of the dictionary page, then of each data page."""
    _, checksums = split_extension(bytes(page_index), pages + 1)
    if checksums is None:
        raise ValueError("a page index has no checksums of its pages")
    return checksums


def shift_pages(page_index: bytes, by: int) -> bytes:
    """The offset index for pages that are `by` bytes further on.

    >>> there = write_struct({1: (LIST, (STRUCT, [{1: (I64, 4), 2: (I32, 90), 3: (I64, 0)}]))})
    >>> page_locations(shift_pages(there, 1000)).tolist()
    [[1004, 90, 0]]
    """
    regular = _decode_regular(page_index)
    if regular is not None:
        table, start, end = regular
        table[:, 0] += by
        numbers = np.empty((len(table), _NUMBERS), np.int64)
        numbers[:, _HEADERS] = _HEADER_VALUES
        numbers[:, _VALUES] = (table << 1) ^ (table >> 63)
        return page_index[:start] + _write_varints(numbers.ravel()) + page_index[end:]
    struct, _ = read_struct(page_index)
    places = [{**place, 1: (I64, place[1][1] + by)} for place in struct[1][1][1]]
    return write_struct({**struct, 1: (LIST, (STRUCT, places))})


def _decode_regular(page_index: Bytes) -> tuple[Ints, int, int] | None:
    """The locations, and the range of their bytes; None if the fields must be read one by one.

    The list is usually a regular sequence of varints (a field header is one byte, and so reads as a varint),
    which is decoded at once.
    """
    if len(page_index) < 3:
        raise ValueError("a page index is truncated")
    size, start = page_index[1] >> 4, 2
    if size == 15:
        try:
            size, start = read_varint(page_index, start)
        except IndexError:
            raise ValueError("a page index is truncated") from None
    if size > len(page_index):
        raise ValueError("a page index announces more pages than it has bytes")
    data = np.frombuffer(page_index, np.uint8)[start:]
    ends = np.flatnonzero(data < 128)[: size * _NUMBERS]
    if len(ends) != size * _NUMBERS or not size:
        return None
    table = _read_varints(data, ends).reshape(size, _NUMBERS)
    if not (table[:, _HEADERS] == _HEADER_VALUES).all():
        return None
    numbers = table[:, _VALUES]
    return (numbers >> 1) ^ -(numbers & 1), start, start + int(ends[-1]) + 1


def _read_varints(data: Octets, ends: Ints) -> Ints:
    """The varints that end at these places."""
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if int(lengths.max()) > _LONGEST:
        raise ValueError("a page index has a number longer than 64 bits")
    values = np.zeros(len(ends), np.int64)
    for i in range(int(lengths.max())):
        more = lengths > i
        values[more] |= (data[starts[more] + i].astype(np.int64) & 127) << (7 * i)
    return values


def _write_varints(values: Ints) -> bytes:
    """Numbers, none negative, as varints."""
    lengths = np.ones(len(values), np.int64)
    for i in range(1, 9):
        lengths += values >> (7 * i) > 0
    ends = np.cumsum(lengths)
    starts = ends - lengths
    data = np.empty(int(ends[-1]), np.uint8)
    for i in range(int(lengths.max())):
        more = lengths > i
        data[starts[more] + i] = (values[more] >> (7 * i)) & 127 | ((lengths[more] > i + 1) << 7)
    return data.tobytes()


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of one column chunk: where each begins, its length, and its first row in the group.

    `checksums` are those of the dictionary page and of each data page; None in formats without them.
    """

    offsets: Ints
    lengths: Ints
    first_rows: Ints
    dictionary: tuple[int, int] | None
    checksums: Ints | None


@dataclass(frozen=True, slots=True)
class Group:
    """A row group: its first row in the file, its number of rows, and its column chunks."""

    first_row: int
    rows: int
    columns: list[ColumnChunk]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without fields of its own: its element of the schema, and its number among the chunks."""

    element: SchemaElement
    number: int


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The columns and row groups of a Parquet file, from its footer.

    `leaves` are the numbers of the leaf columns of every column, `flat` the columns that are leaves, by name.
    """

    metadata: FileMetadata
    leaves: dict[str, range]
    flat: dict[str, Leaf]
    groups: tuple[Group, ...]
    _schemas: dict[tuple[str, ...], bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, footer: bytes) -> "FileLayout":
        """The layout that a footer (without length and magic) describes."""
        metadata = FileMetadata.parse(footer)
        groups, first = [], 0
        for group in metadata.row_groups:
            groups.append(Group(first, group.num_rows, group.columns))
            first += group.num_rows
        _, *elements = metadata.schema_elements
        leaves, flat = _leaves(elements)
        return cls(metadata, leaves, flat, tuple(groups))

    def schema_bytes(self, flat: tuple[str, ...]) -> bytes:
        """The schema of a file with some of the columns alone, encoded."""
        if (schema := self._schemas.get(flat)) is None:
            schema = self.metadata.schema_of([self.flat[name].element for name in flat])
            self._schemas[flat] = schema
        return schema

    def chunks(self, names: Iterable[str]) -> list[int]:
        """The numbers of the leaf columns of some columns."""
        return [number for name in names for number in self.leaves[name]]

    def rows_by_group(self, numbers: Ints, num_rows: int) -> list[tuple[int, Ints]]:
        """The row numbers within each row group that has any of the rows, which are ascending."""
        bounds = np.searchsorted(numbers, [group.first_row for group in self.groups] + [num_rows])
        return [
            (i, numbers[bounds[i] : bounds[i + 1]] - self.groups[i].first_row)
            for i in range(len(self.groups))
            if bounds[i + 1] > bounds[i]
        ]

    def page_index_range(self, group: int, leaf: Leaf) -> ByteRange:
        """Where the offset index of a column chunk is; ValueError if it has none."""
        index_range = self.groups[group].columns[leaf.number].offset_index_range
        if index_range is None:
            raise ValueError(f"the column {leaf.element.name} has no page index")
        return index_range

    def pages(self, group: int, leaf: Leaf, page_index: Bytes, *, checked: bool) -> Pages:
        """The pages of a column chunk, from the bytes of its page index."""
        table = page_locations(page_index)
        offset = self.groups[group].columns[leaf.number].dictionary_page_offset
        dictionary = None
        if offset is not None and offset < table[0, 0]:
            dictionary = (offset, int(table[0, 0]))
        checksums = np.array(page_checksums(page_index, len(table)), np.int64) if checked else None
        return Pages(table[:, 0], table[:, 1], table[:, 2], dictionary, checksums)

    def single_column_file(
        self, leaf: Leaf, parts: Sequence[tuple[ColumnChunk, int, list[Bytes], Bytes]]
    ) -> bytes:
        """A Parquet file of one column: from each `(chunk, rows, pages, dictionary page)` a row group."""
        body: list[Bytes] = [MAGIC]
        groups = []
        position = len(MAGIC)
        for chunk, rows, pages, dictionary in parts:
            size = len(dictionary) + sum(map(len, pages))
            column = chunk.of_pages(rows, position, len(dictionary), size)
            groups.append(RowGroupMetadata.of([column], rows))
            body += [dictionary, *pages]
            position += size
        footer = self.metadata.of_column(leaf.element, groups).to_bytes()
        return b"".join([*body, footer, len(footer).to_bytes(4, "little"), MAGIC])


# By row group: the first rows of pages, and the pages that were selected among them.
PageChoices: TypeAlias = dict[int, list[tuple[Ints, tuple[Ints, Ints, int]]]]


@dataclass(frozen=True, slots=True)
class PageSelection:
    """The pages of a column that have some rows.

    Attributes:
        groups: for each row group its column chunk, the rows of the selected pages, the number of pages, and
            whether a dictionary page precedes them.
        positions: the requested rows among those of all selected pages.
        rows: the number of rows of all selected pages.
        ranges: the byte ranges to read.
        checksums: those of the ranges; empty if the format has none.
    """

    groups: list[tuple[ColumnChunk, int, int, bool]]
    positions: Ints
    rows: int
    ranges: list[tuple[int, int]]
    checksums: list[int]

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(end - start for start, end in self.ranges)


def select_pages(
    layout: FileLayout,
    leaf: Leaf,
    parts: Sequence[tuple[int, Ints]],
    pages: Mapping[tuple[int, int], Pages],
    choices: PageChoices,
) -> PageSelection:
    """Select the pages of a column that have some rows.

    Args:
        layout: the file.
        leaf: the column.
        parts: the row groups that have any of the rows, and the numbers of the rows within them.
        pages: the pages of column chunks, by row group and number of the leaf.
        choices: what was selected in other columns; it is added to.
    """
    groups: list[tuple[ColumnChunk, int, int, bool]] = []
    positions: list[Ints] = []
    ranges: list[tuple[int, int]] = []
    checksums: list[int] = []
    before = 0
    for group, local in parts:
        own = pages[group, leaf.number]
        selected, within, rows = _pages_with(own.first_rows, layout.groups[group].rows, local, choices, group)
        positions.append(within + before)
        if own.dictionary is not None:
            ranges.append(own.dictionary)
        starts = own.offsets[selected]
        ranges.extend(zip(starts.tolist(), (starts + own.lengths[selected]).tolist(), strict=True))
        if own.checksums is not None:
            checksums += own.checksums[:1].tolist() if own.dictionary is not None else []
            checksums += own.checksums[1 + selected].tolist()
        chunk = layout.groups[group].columns[leaf.number]
        groups.append((chunk, rows, len(selected), own.dictionary is not None))
        before += rows
    together = np.concatenate(positions) if positions else np.empty(0, np.int64)
    return PageSelection(groups, together, before, ranges, checksums)


def _pages_with(
    first_rows: Ints, group_rows: int, local: Ints, choices: PageChoices, group: int
) -> tuple[Ints, Ints, int]:
    """The pages with rows of a row group, the positions of the rows in them, and the rows of these pages.

    Most columns of a row group have page boundaries at the same rows, so the result is reused.
    """
    for cut, choice in choices.setdefault(group, []):
        if cut is first_rows:
            return choice
    which = np.searchsorted(first_rows, local, side="right") - 1
    selected, place = np.unique(which, return_inverse=True)
    following = np.append(first_rows[1:], group_rows)
    counts = following[selected] - first_rows[selected]
    starts = np.cumsum(counts) - counts
    choice = selected, starts[place] + local - first_rows[which], int(counts.sum())
    choices[group].append((first_rows, choice))
    return choice


class SparseFile(io.RawIOBase):
    """A file of which some ranges are in memory; others are fetched, if that is possible."""

    def __init__(
        self, size: int, parts: Mapping[int, Bytes], fetch: Callable[[int, int], Bytes] | None = None
    ) -> None:
        """`parts` are the ranges by their start; `fetch` returns another range by its start and end."""
        self._size = size
        self._parts = parts
        self._starts = sorted(parts)
        self._fetch = fetch
        self._position = 0

    @classmethod
    def open(
        cls, size: int, parts: Mapping[int, Bytes], fetch: Callable[[int, int], Bytes] | None = None
    ) -> Any:  # noqa: ANN401 - untyped library
        """The same as a file of Arrow."""
        return pa.PythonFile(cls(size, parts, fetch), "r")

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; ValueError if they are not in memory and cannot be fetched."""
        start = self._position
        end = self._size if size is None or size < 0 else min(self._size, start + size)
        if start >= end:
            return b""
        data = range_within(self._parts, self._starts, start, end)
        if data is None:
            if self._fetch is None:
                raise ValueError(f"{end - start} bytes at {start} are not within a column chunk")
            data = self._fetch(start, end)
        self._position = end
        return bytes(data)


def range_within(parts: Mapping[int, Bytes], starts: Sequence[int], start: int, end: int) -> Bytes | None:
    """A range of a file from parts by their starts, which are also given in order; None if it is in none."""
    place = bisect_right(starts, start) - 1
    if place < 0:
        return None
    first = starts[place]
    part = parts[first]
    return part[start - first : end - first] if end <= first + len(part) else None


def _leaves(elements: list[SchemaElement]) -> tuple[dict[str, range], dict[str, Leaf]]:
    """The numbers of every column's leaves, and the columns that are leaves; parents come before children."""
    leaves: dict[str, range] = {}
    flat: dict[str, Leaf] = {}
    number = position = 0
    while position < len(elements):
        element, first = elements[position], number
        if element.is_leaf:
            flat[element.name] = Leaf(element, number)
        pending = 1
        while pending:
            inner = elements[position]
            pending += inner.num_children - 1
            number += inner.is_leaf
            position += 1
        leaves[element.name] = range(first, number)
    return leaves, flat
