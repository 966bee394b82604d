"""Single pages of a Parquet file: where they lie, and files made of a few of them.

Parquet's page index says which rows each page of a column holds. To read some rows of a column, their
pages are fetched and put, with a footer that speaks of them alone, into a small Parquet file in memory, which
the ordinary reader decodes.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from indextables.split.footer import MAGIC
from indextables.split.thrift import I32, I64, LIST, STRUCT, Struct, read_struct, write_struct

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Numbers of the fields of Parquet's structs (parquet.thrift).
_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 2, 3, 4, 5
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_PACKED = 1, 2, 3, 5, 6
_META, _OFFSET_INDEX_AT, _OFFSET_INDEX_LENGTH = 3, 4, 5
_NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11
_NAME, _CHILDREN = 4, 5
# A page location as numbers: the headers of its three fields before their values, and the end.
_LOCATION = (1 << 4 | I64, None, 1 << 4 | I32, None, 1 << 4 | I64, None, 0)


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of one column chunk: where each begins, its length, and its first row in the group."""

    offsets: Ints
    lengths: Ints
    first_rows: Ints
    dictionary: tuple[int, int] | None


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
class Layout:
    """A Parquet footer taken apart: enough to make small files of pages. `flat` has the columns by name."""

    file: Struct
    root: Struct
    flat: dict[str, Leaf]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, footer: bytes) -> "Layout":
        """Take a footer (without length and magic) apart."""
        file, _ = read_struct(footer)
        groups, first = [], 0
        for group in file[_ROW_GROUPS][1][1]:
            rows = group[_GROUP_ROWS][1]
            groups.append(Group(first, rows, group[_COLUMNS][1][1]))
            first += rows
        root, *elements = file[_SCHEMA][1][1]
        return cls(file, root, _flat_leaves(elements), tuple(groups))

    def page_index_range(self, group: int, leaf: Leaf) -> tuple[int, int]:
        """Where the page index of a column chunk lies."""
        chunk = self.groups[group].columns[leaf.number]
        start = chunk[_OFFSET_INDEX_AT][1]
        return start, start + chunk[_OFFSET_INDEX_LENGTH][1]

    def pages(self, group: int, leaf: Leaf, page_index: bytes) -> Pages:
        """The pages of a column chunk, from the bytes of its page index."""
        table = _page_locations(page_index)
        meta = self.groups[group].columns[leaf.number][_META][1]
        dictionary = None
        if _DICTIONARY_PAGE in meta and meta[_DICTIONARY_PAGE][1] < table[0, 0]:
            dictionary = (meta[_DICTIONARY_PAGE][1], int(table[0, 0]))
        return Pages(table[:, 0], table[:, 1], table[:, 2], dictionary)

    def small_file(self, leaf: Leaf, parts: list[tuple[int, int, list[bytes], bytes]]) -> bytes:
        """A Parquet file of one column: from each `(group, rows, pages, dictionary page)` a row group."""
        body, groups = [MAGIC], []
        position = len(MAGIC)
        for group, rows, pages, dictionary in parts:
            chunk = dict(self.groups[group].columns[leaf.number])
            for index in (_OFFSET_INDEX_AT, _OFFSET_INDEX_LENGTH, 6, 7):
                chunk.pop(index, None)
            meta = dict(chunk[_META][1])
            length = len(dictionary) + sum(map(len, pages))
            if dictionary:
                meta[_DICTIONARY_PAGE] = (I64, position)
            else:
                meta.pop(_DICTIONARY_PAGE, None)
            meta[_DATA_PAGE] = (I64, position + len(dictionary))
            meta[_NUM_VALUES] = (I64, rows)
            meta[_PACKED] = (I64, length)
            meta[_UNPACKED] = (I64, max(length, meta[_UNPACKED][1]))
            # Statistics, encoding statistics, bloom filter: of the whole chunk, so no longer true.
            for number in (8, 12, 13, 14, 15, 16, 17):
                meta.pop(number, None)
            chunk[_META] = (STRUCT, meta)
            groups.append(
                {
                    _COLUMNS: (LIST, (STRUCT, [chunk])),
                    _GROUP_BYTES: (I64, meta[_UNPACKED][1]),
                    _GROUP_ROWS: (I64, rows),
                }
            )
            body += [dictionary, *pages]
            position += length
        root = {**self.root, _CHILDREN: (I32, 1)}
        footer: Struct = {
            1: self.file[1],
            _SCHEMA: (LIST, (STRUCT, [root, leaf.element])),
            _NUM_ROWS: (I64, sum(rows for _, rows, _, _ in parts)),
            _ROW_GROUPS: (LIST, (STRUCT, groups)),
        }
        tail = write_struct(footer)
        return b"".join([*body, tail, len(tail).to_bytes(4, "little"), MAGIC])


def _flat_leaves(elements: list[Struct]) -> dict[str, Leaf]:
    """The columns that are leaves themselves, by name; the elements come parents first."""
    flat: dict[str, Leaf] = {}
    number = position = 0
    while position < len(elements):
        element = elements[position]
        if _CHILDREN not in element:
            flat[element[_NAME][1].decode()] = Leaf(element, number)
            number += 1
            position += 1
            continue
        left = 1
        while left:
            inner = elements[position]
            left += inner.get(_CHILDREN, (I32, 0))[1] - 1
            number += _CHILDREN not in inner
            position += 1
    return flat


def _page_locations(page_index: bytes) -> Ints:
    """Offset, length and first row of each page.

    The list is a regular run of variable-length numbers (a field header is one byte, and so reads as one
    too), which is decoded at once; anything else is read field by field.
    """
    size, start = page_index[1] >> 4, 2
    if size == 15:
        size = shift = 0
        while True:
            byte = page_index[start]
            size |= (byte & 127) << shift
            start, shift = start + 1, shift + 7
            if byte < 128:
                break
    data = np.frombuffer(page_index, np.uint8)[start:]
    ends = np.flatnonzero(data < 128)[: size * len(_LOCATION)]
    if len(ends) == size * len(_LOCATION) and size:
        table = _varints(data, ends).reshape(size, len(_LOCATION))
        if (table[:, [0, 2, 4, 6]] == [_LOCATION[i] for i in (0, 2, 4, 6)]).all():
            numbers = table[:, [1, 3, 5]]
            return (numbers >> 1) ^ -(numbers & 1)
    places = read_struct(page_index)[0][1][1][1]
    return np.array([(p[1][1], p[2][1], p[3][1]) for p in places], np.int64).reshape(-1, 3)


def _varints(data: np.ndarray[Any, np.dtype[np.uint8]], ends: Ints) -> Ints:
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    values = np.zeros(len(ends), np.int64)
    for i in range(int(lengths.max())):
        more = lengths > i
        values[more] |= (data[starts[more] + i].astype(np.int64) & 127) << (7 * i)
    return values
