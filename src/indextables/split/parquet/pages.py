"""Single pages of a Parquet file: their locations, and small files of a few of them.

Parquet's page index has the rows of each page of a column. To read some rows of a column, their pages are
fetched and put, with a footer of their own, into a small Parquet file in memory, which Arrow decodes.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

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

    def single_column_file(self, leaf: Leaf, parts: list[tuple[int, int, list[Bytes], Bytes]]) -> bytes:
        """A Parquet file of one column: from each `(group, rows, pages, dictionary page)` a row group."""
        body: list[Bytes] = [MAGIC]
        groups = []
        position = len(MAGIC)
        for group, rows, pages, dictionary in parts:
            size = len(dictionary) + sum(map(len, pages))
            chunk = self.groups[group].columns[leaf.number]
            column = chunk.of_pages(rows, position, len(dictionary), size)
            groups.append(RowGroupMetadata.of([column], rows))
            body += [dictionary, *pages]
            position += size
        footer = self.metadata.of_column(leaf.element, groups).to_bytes()
        return b"".join([*body, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _leaves(elements: list[SchemaElement]) -> tuple[dict[str, range], dict[str, Leaf]]:
    """The numbers of every column's leaves, and the columns that are leaves; parents come before children."""
    leaves: dict[str, range] = {}
    flat: dict[str, Leaf] = {}
    number = position = 0
    while position < len(elements):
        element, first = elements[position], number
        if element.is_leaf:
            flat[element.name] = Leaf(element, number)
        left = 1
        while left:
            inner = elements[position]
            left += inner.num_children - 1
            number += inner.is_leaf
            position += 1
        leaves[element.name] = range(first, number)
    return leaves, flat
