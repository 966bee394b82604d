"""Single pages of a Parquet file: where they lie, and files made of a few of them.

Parquet's page index says which rows each page of a column holds. To read some rows of a column, their
pages are fetched and put, with a footer that speaks of them alone, into a small Parquet file in memory, which
the ordinary reader decodes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from indextables.split.checksum import add_extension, crc32s, split_extension
from indextables.split.footer import MAGIC
from indextables.split.parquet import metadata as fields
from indextables.split.parquet.thrift import I32, I64, LIST, STRUCT, Struct, read_struct, write_struct

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bytes: TypeAlias = bytes | memoryview
Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

# A page location as numbers: the headers of its three fields before their values, and the end.
_NUMBERS = 7
_HEADERS = (0, 2, 4, 6)
_HEADER_VALUES = np.array([1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64, 0], np.int64)
_VALUES = (1, 3, 5)
# The bytes of the longest number of 64 bits.
_LONGEST = 10


def page_locations(page_index: Bytes) -> Ints:
    """Offset, length and first row of each page, a line for each."""
    regular = _decode_regular(page_index)
    if regular is not None:
        return regular[0]
    try:
        places = read_struct(page_index)[0][1][1][1]
        return np.array([(p[1][1], p[2][1], p[3][1]) for p in places], np.int64).reshape(-1, 3)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a page index is malformed ({error!r})") from error


def add_page_checksums(page_index: bytes, chunk: Bytes, start: int) -> bytes:
    """The same index with the checksums of what it locates in a chunk, which begins at `start` of its file.

    The first is that of the bytes before the first data page: the dictionary page, or none.
    """
    table = page_locations(page_index)
    inner, _ = split_extension(page_index, len(table) + 1)
    data = memoryview(chunk)
    starts = table[:, 0] - start
    first = int(starts[0]) if len(starts) else len(data)
    places = [(0, first), *zip(starts.tolist(), (starts + table[:, 1]).tolist(), strict=True)]
    return add_extension(inner, crc32s(data[at:end] for at, end in places))


def page_checksums(page_index: Bytes, pages: int) -> list[int]:
    """The checksums of what an index locates: of the dictionary page, then of each data page."""
    _, found = split_extension(bytes(page_index), pages + 1)
    if found is None:
        raise ValueError("a page index has no checksums of its pages")
    return found


def shift_pages(page_index: bytes, by: int) -> bytes:
    """The same index for pages that all lie `by` bytes further on.

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
    said, _ = read_struct(page_index)
    places = [{**place, 1: (I64, place[1][1] + by)} for place in said[1][1][1]]
    return write_struct({**said, 1: (LIST, (STRUCT, places))})


def _decode_regular(page_index: Bytes) -> tuple[Ints, int, int] | None:
    """The locations, and where their bytes begin and end.

    The list is a regular run of variable-length numbers (a field header is one byte, and so reads as one
    too), which is decoded at once; None if it is not, and must be read field by field.
    """
    if len(page_index) < 3:
        raise ValueError("a page index is cut short")
    size, start = page_index[1] >> 4, 2
    if size == 15:
        size = shift = 0
        while start < len(page_index) and shift <= 63:
            byte = page_index[start]
            size |= (byte & 127) << shift
            start, shift = start + 1, shift + 7
            if byte < 128:
                break
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
    """The variable-length numbers that end at these places."""
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
    """Numbers, none negative, in their variable-length form."""
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
    """A row group: its first row in the file, its number of rows, and its column chunks as read."""

    first_row: int
    rows: int
    columns: list[Struct]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without fields of its own: its element of the schema, and its place among the chunks."""

    element: Struct
    number: int


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A Parquet footer taken apart: enough to make small files of pages.

    `leaves` are the numbers of the leaf columns of every column, `flat` the columns that are leaves, by name.
    """

    file: Struct
    root: Struct
    leaves: dict[str, range]
    flat: dict[str, Leaf]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, footer: bytes) -> "FileLayout":
        """Take a footer (without length and magic) apart."""
        file, _ = read_struct(footer)
        groups, first = [], 0
        for group in file[fields.ROW_GROUPS][1][1]:
            rows = group[fields.GROUP_ROWS][1]
            groups.append(Group(first, rows, group[fields.COLUMNS][1][1]))
            first += rows
        root, *elements = file[fields.SCHEMA][1][1]
        leaves, flat = _leaves(elements)
        return cls(file, root, leaves, flat, tuple(groups))

    def chunks(self, names: Iterable[str]) -> list[int]:
        """The numbers of the leaf columns of some columns."""
        return [number for name in names for number in self.leaves[name]]

    def page_index_range(self, group: int, leaf: Leaf) -> tuple[int, int]:
        """Where the page index of a column chunk lies."""
        chunk = self.groups[group].columns[leaf.number]
        start = chunk[fields.OFFSET_INDEX_AT][1]
        return start, start + chunk[fields.OFFSET_INDEX_LENGTH][1]

    def pages(self, group: int, leaf: Leaf, page_index: Bytes, *, checked: bool) -> Pages:
        """The pages of a column chunk, from the bytes of its page index."""
        table = page_locations(page_index)
        meta = self.groups[group].columns[leaf.number][fields.META_DATA][1]
        dictionary = None
        if fields.DICTIONARY_PAGE in meta and meta[fields.DICTIONARY_PAGE][1] < table[0, 0]:
            dictionary = (meta[fields.DICTIONARY_PAGE][1], int(table[0, 0]))
        checksums = np.array(page_checksums(page_index, len(table)), np.int64) if checked else None
        return Pages(table[:, 0], table[:, 1], table[:, 2], dictionary, checksums)

    def small_file(self, leaf: Leaf, parts: list[tuple[int, int, list[Bytes], Bytes]]) -> bytes:
        """A Parquet file of one column: from each `(group, rows, pages, dictionary page)` a row group."""
        body: list[Bytes] = [MAGIC]
        groups = []
        position = len(MAGIC)
        for group, rows, pages, dictionary in parts:
            chunk = dict(self.groups[group].columns[leaf.number])
            for index in fields.PAGE_INDEXES:
                chunk.pop(index, None)
            meta = dict(chunk[fields.META_DATA][1])
            length = len(dictionary) + sum(map(len, pages))
            if dictionary:
                meta[fields.DICTIONARY_PAGE] = (I64, position)
            else:
                meta.pop(fields.DICTIONARY_PAGE, None)
            meta[fields.DATA_PAGE] = (I64, position + len(dictionary))
            meta[fields.NUM_VALUES] = (I64, rows)
            meta[fields.PACKED] = (I64, length)
            meta[fields.UNPACKED] = (I64, max(length, meta[fields.UNPACKED][1]))
            # Statistics, encoding statistics, bloom filter: of the whole chunk, so no longer true.
            for number in (8, 12, 13, 14, 15, 16, 17):
                meta.pop(number, None)
            chunk[fields.META_DATA] = (STRUCT, meta)
            groups.append(
                {
                    fields.COLUMNS: (LIST, (STRUCT, [chunk])),
                    fields.GROUP_BYTES: (I64, meta[fields.UNPACKED][1]),
                    fields.GROUP_ROWS: (I64, rows),
                }
            )
            body += [dictionary, *pages]
            position += length
        root = {**self.root, fields.CHILDREN: (I32, 1)}
        footer: Struct = {
            1: self.file[1],
            fields.SCHEMA: (LIST, (STRUCT, [root, leaf.element])),
            fields.NUM_ROWS: (I64, sum(rows for _, rows, _, _ in parts)),
            fields.ROW_GROUPS: (LIST, (STRUCT, groups)),
        }
        tail = write_struct(footer)
        return b"".join([*body, tail, len(tail).to_bytes(4, "little"), MAGIC])


def _leaves(elements: list[Struct]) -> tuple[dict[str, range], dict[str, Leaf]]:
    """The numbers of every column's leaves, and the columns that are leaves; parents come before children."""
    leaves: dict[str, range] = {}
    flat: dict[str, Leaf] = {}
    number = position = 0
    while position < len(elements):
        element, first = elements[position], number
        name = element[fields.NAME][1].decode()
        if fields.CHILDREN not in element:
            flat[name] = Leaf(element, number)
        left = 1
        while left:
            inner = elements[position]
            left += inner.get(fields.CHILDREN, (I32, 0))[1] - 1
            number += fields.CHILDREN not in inner
            position += 1
        leaves[name] = range(first, number)
    return leaves, flat
