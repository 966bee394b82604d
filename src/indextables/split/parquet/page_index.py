"""Parquet's offset index of a column chunk: where its pages lie, read and moved as whole arrays."""

from typing import Any, TypeAlias

import numpy as np

from indextables.split.checksum import add_extension, crc32s, split_extension
from indextables.split.parquet.thrift import I32, I64, LIST, STRUCT, read_struct, write_struct

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
    regular = _regular(page_index)
    if regular is not None:
        return regular[0]
    try:
        places = read_struct(page_index)[0][1][1][1]
        return np.array([(p[1][1], p[2][1], p[3][1]) for p in places], np.int64).reshape(-1, 3)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a page index is malformed ({error!r})") from error


def with_checksums(page_index: bytes, chunk: Bytes, start: int) -> bytes:
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


def moved(page_index: bytes, by: int) -> bytes:
    """The same index for pages that all lie `by` bytes further on.

    >>> there = write_struct({1: (LIST, (STRUCT, [{1: (I64, 4), 2: (I32, 90), 3: (I64, 0)}]))})
    >>> page_locations(moved(there, 1000)).tolist()
    [[1004, 90, 0]]
    """
    regular = _regular(page_index)
    if regular is not None:
        table, start, end = regular
        table[:, 0] += by
        numbers = np.empty((len(table), _NUMBERS), np.int64)
        numbers[:, _HEADERS] = _HEADER_VALUES
        numbers[:, _VALUES] = (table << 1) ^ (table >> 63)
        return page_index[:start] + _written(numbers.ravel()) + page_index[end:]
    said, _ = read_struct(page_index)
    places = [{**place, 1: (I64, place[1][1] + by)} for place in said[1][1][1]]
    return write_struct({**said, 1: (LIST, (STRUCT, places))})


def _regular(page_index: Bytes) -> tuple[Ints, int, int] | None:
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
    table = _read(data, ends).reshape(size, _NUMBERS)
    if not (table[:, _HEADERS] == _HEADER_VALUES).all():
        return None
    numbers = table[:, _VALUES]
    return (numbers >> 1) ^ -(numbers & 1), start, start + int(ends[-1]) + 1


def _read(data: Octets, ends: Ints) -> Ints:
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


def _written(values: Ints) -> bytes:
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
