"""Deletion vectors: sets of row positions as Delta and Iceberg write them.

Both write the same bytes: the length, a magic number, and a list of 32-bit Roaring bitmaps with the upper
halves of their values, then a checksum. Source: "Deletion vector format" of the Delta protocol, and the blob
type `deletion-vector-v1` of Iceberg's Puffin specification.
"""

import zlib

import numpy as np

from indextables.errors import SourceError
from indextables.split.parquet.pages import Ints

_MAGIC = (1_681_511_377).to_bytes(4, "little")
_COOKIE_WITH_RUNS = 12_347
_COOKIE = 12_346
_OFFSETS_FROM = 4  # containers; fewer of them with runs have no table of offsets
_ARRAY_MOST = 4096
_BITMAP_BYTES = 8192


def read_framed(data: bytes, where: str, most: int) -> Ints:
    """Decode a bitmap that is framed by its length and its checksum; positions are below `most`.

    Raises SourceError for invalid bytes.
    """
    if len(data) < 12:
        raise SourceError(f"{where} is cut short; restore it")
    length = int.from_bytes(data[:4], "big")
    if length != len(data) - 8:
        raise SourceError(f"{where} has {len(data)} bytes, but its header {length + 8}; restore it")
    body = data[4:-4]
    if zlib.crc32(body) != int.from_bytes(data[-4:], "big"):
        raise SourceError(f"{where} differs from its checksum; restore it")
    return read_bitmap(body, where, most)


def read_bitmap(data: bytes, where: str, most: int) -> Ints:
    """Decode a bitmap that begins with the magic number; positions are below `most`."""
    try:
        positions = _positions(memoryview(data), most)
    except (IndexError, ValueError) as error:
        raise SourceError(f"{where} is no deletion vector ({error}); restore it") from None
    if len(positions) and (positions[-1] >= most or positions[0] < 0 or not (np.diff(positions) > 0).all()):
        raise SourceError(f"{where} names row {positions.max()} of a file with {most} rows; restore it")
    return positions


def _positions(data: memoryview, most: int) -> Ints:
    if bytes(data[:4]) != _MAGIC:
        raise ValueError("it does not begin with the magic number")
    count = int.from_bytes(data[4:12], "little")
    position = 12
    parts = []
    for _ in range(count):
        high = int.from_bytes(_cut(data, position, 4), "little")
        values, position = _bitmap(data, position + 4, most)
        parts.append((high << 32) + values)
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow it")
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _bitmap(data: memoryview, position: int, most: int) -> tuple[Ints, int]:
    """Decode a 32-bit bitmap in Roaring's portable format; returns its positions and its end."""
    cookie = int.from_bytes(_cut(data, position, 4), "little")
    position += 4
    runs = np.zeros(0, bool)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(_cut(data, position, (count + 7) // 8), np.uint8)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        position += len(flags)
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _COOKIE:
        count = int.from_bytes(_cut(data, position, 4), "little")
        position += 4
        has_offsets = True
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    if count > 1 << 16:
        raise ValueError(f"a bitmap has {count} containers")
    heads = np.frombuffer(_cut(data, position, 4 * count), "<u2").reshape(-1, 2).astype(np.int64)
    position += 4 * count + (4 * count if has_offsets else 0)
    if int(heads[:, 1].sum()) + count > most:
        raise ValueError(f"it has more than {most} positions")
    parts = []
    for number in range(count):
        key, size = int(heads[number, 0]), int(heads[number, 1]) + 1
        if len(runs) and runs[number]:
            values, position = _run_container(data, position, size)
        elif size <= _ARRAY_MOST:
            values = np.frombuffer(_cut(data, position, 2 * size), "<u2").astype(np.int64)
            position += 2 * size
        else:
            bits = np.frombuffer(_cut(data, position, _BITMAP_BYTES), np.uint8)
            values = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
            position += _BITMAP_BYTES
        if len(values) != size:
            raise ValueError(f"a container has {len(values)} positions instead of {size}")
        parts.append((key << 16) + values)
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), position


def _run_container(data: memoryview, position: int, size: int) -> tuple[Ints, int]:
    count = int.from_bytes(_cut(data, position, 2), "little")
    pairs = np.frombuffer(_cut(data, position + 2, 4 * count), "<u2").reshape(-1, 2).astype(np.int64)
    if int(pairs[:, 1].sum()) + count != size:
        raise ValueError("the runs of a container differ from its length")
    starts, lengths = pairs[:, 0], pairs[:, 1] + 1
    before = np.cumsum(lengths) - lengths
    values = np.repeat(starts - before, lengths) + np.arange(size)
    return values, position + 2 + 4 * count


def _cut(data: memoryview, start: int, length: int) -> memoryview:
    if start + length > len(data):
        raise ValueError("it is cut short")
    return data[start : start + length]
