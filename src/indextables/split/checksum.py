"""Checksums of a split's rows and footer (PROTOCOL.md, "Checksums").

All are CRC-32. Those of pages and of the Parquet footer are in field 32767 of a Thrift struct, which
Parquet reserves for extensions: other readers skip it. An extension is the last field of its struct and
starts with an identifier of this format.
"""

from collections.abc import Iterable, Sequence

from isal import isal_zlib

from indextables.records import dataclass
from indextables.varint import varint_bytes

# The first format of splits whose rows and footer have checksums.
CHECKSUM_FORMAT = 3
# Identifies the extensions of this format.
_IDENTIFIER = bytes.fromhex("6b1f0c8e5d3a4f7b9e2246d08c71a5f3")
# The header of field 32767, binary: type, and the number as Thrift writes it when the field before is far.
_FIELD = b"\x08\xfe\xff\x03"
_STOP = b"\x00"
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class ChunkChecksums:
    """The CRC-32 of a column chunk's bytes, and of its column index and offset index, if it has them."""

    chunk: int
    column_index: int | None
    offset_index: int | None


def crc32(data: bytes | memoryview) -> int:
    """The CRC-32 of some bytes, as zlib and Parquet compute it."""
    checksum: int = isal_zlib.crc32(data)
    return checksum


def crc32s(parts: Iterable[bytes | memoryview]) -> list[int]:
    """The CRC-32 of each of many parts."""
    return list(map(isal_zlib.crc32, parts))


def add_extension(struct: bytes, checksums: Sequence[int]) -> bytes:
    """A Thrift struct with checksums in its extension."""
    payload = _IDENTIFIER + b"".join(crc.to_bytes(_CRC_BYTES, "little") for crc in checksums)
    return struct[:-1] + _FIELD + varint_bytes(len(payload)) + payload + _STOP


def split_extension(struct: bytes, count: int) -> tuple[bytes, list[int] | None]:
    r"""A Thrift struct without its extension of `count` checksums, and these; None if it has none.

    >>> split_extension(add_extension(b"some struct.", [7, 8]), 2)
    (b'some struct\x00', [7, 8])
    """
    size = len(_IDENTIFIER) + count * _CRC_BYTES
    head = _FIELD + varint_bytes(size) + _IDENTIFIER
    start = len(struct) - len(_STOP) - count * _CRC_BYTES - len(head)
    if start < 0 or struct[start : start + len(head)] != head or struct[-1:] != _STOP:
        return struct, None
    numbers = struct[start + len(head) : -1]
    candidates = [
        int.from_bytes(numbers[at : at + _CRC_BYTES], "little") for at in range(0, len(numbers), _CRC_BYTES)
    ]
    return struct[:start] + _STOP, candidates


def seal(footer: bytes) -> bytes:
    """A Parquet footer with its own checksum."""
    return add_extension(footer, [crc32(footer[:-1])])


def is_sealed(footer: bytes) -> bool:
    """Whether a Parquet footer has a checksum; ValueError if the checksum is wrong."""
    inner, extension = split_extension(footer, 1)
    if extension is None:
        return False
    if extension != [crc32(inner[:-1])]:
        raise ValueError("its checksum differs")
    return True
