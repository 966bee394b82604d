"""Single pages of a Parquet file: where they lie, and files made of a few of them.

Parquet's page index says which rows each page of a column holds. To read some rows of a column, their
pages are fetched and put, with a footer that speaks of them alone, into a small Parquet file in memory, which
the ordinary reader decodes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from indextables.split.footer import MAGIC
from indextables.split.parquet import fields
from indextables.split.parquet.page_index import Bytes, Ints, page_checksums, page_locations
from indextables.split.parquet.thrift import I32, I64, LIST, STRUCT, Struct, read_struct, write_struct


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
class Layout:
    """A Parquet footer taken apart: enough to make small files of pages.

    `leaves` are the numbers of the leaf columns of every column, `flat` the columns that are leaves, by name.
    """

    file: Struct
    root: Struct
    leaves: dict[str, range]
    flat: dict[str, Leaf]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, footer: bytes) -> "Layout":
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
