"""The layout of Tantivy's index files: components, and the byte ranges of fields.

Files with the suffixes `.term`, `.idx`, `.pos` and `.fieldnorm` have one range for each field. A directory
at their end has the offsets:

```
ranges | count, then for each: bytes since the one before, field (u32), 0 | u32 length of that | footer
```

Counts and distances have seven bits a byte, the last byte with the high bit set. A file `.fast` has
columns, one or more for each field, and their names in a table of sorted keys:

```
columns | table: blocks, an empty one, more | u64 length of the table | 12 bytes | footer
block     u32 length of the rest | 1 if packed by zstd | count of edges, their distances | keys
key       how many bytes of the one before it keeps and adds | those it adds
name      the field (and, of JSON, a path after a byte 1) | 0 | a letter for the type
```

Numbers in blocks have seven bits a byte, all bytes but the last with the high bit set. How many bytes a key
keeps and adds stands in four bits each, or, after a byte 1, in two numbers. A file `.store` has stored
documents, their offsets, and their length. The footer is Tantivy's: JSON, its length (u32) and a
magic number (u32).
"""

import json
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa

from indextables.errors import SplitError
from indextables.varint import read_varint

# The components of an index by their names in commands, with the suffixes of their files.
INDEX_COMPONENTS = {
    "TERM": (".term",),
    "FASTFIELD": (".fast",),
    "POSTINGS": (".idx",),
    "POSITIONS": (".pos",),
    "FIELDNORM": (".fieldnorm",),
    "STORE": (".store",),
}
# The field name for stored documents, which no search reads.
DOC_STORE_FIELD = "_documents"
# Files with a range for each field.
FILES_BY_FIELD = (".term", ".idx", ".pos", ".fieldnorm", ".fast")
DICTIONARY_SUFFIX = ".term"
POSTINGS_SUFFIX = ".idx"
POSITIONS_SUFFIX = ".pos"
FAST_SUFFIX = ".fast"
FIELD_LENGTHS_SUFFIX = ".fieldnorm"
# The bytes of a field in a file `.idx` begin with its number of tokens (u64), which scores need.
TOKENS_BYTES = 8
STORE_SUFFIX = ".store"
# The longest directory: some thousand fields.
MAX_DIRECTORY_BYTES = 256 << 10
_TAIL = 8
# After the table of a `.fast` file: its length, the number of rows, the version and a magic number.
_FAST_TAIL = 20
# At the end of a `.store` file: a version (u32), the length of the documents (u64), how they are packed.
_STORE_TAIL = 28
# The longest uncompressed block of keys; a key may have 65,530 bytes.
_KEYS_BYTES = 1 << 20
_LONGEST_KEY = 1 << 17

Bytes: TypeAlias = bytes | mmap.mmap


@dataclass(frozen=True, slots=True)
class FieldRange:
    """The bytes of one field in a file of the index."""

    field: str
    start: int
    end: int


def field_names(meta: bytes) -> list[str]:
    """The names of an index's fields, by the field's number."""
    try:
        return [str(field["name"]) for field in json.loads(meta)["schema"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SplitError(f"an index has no list of its fields ({error!r}); it is damaged") from error


def column_of(field: str) -> str:
    """The column of a field; system fields are returned as they are."""
    return field.partition(":")[2] or field


def field_ranges(suffix: str, end: Bytes, size: int, fields: Sequence[str]) -> list[FieldRange]:
    """The byte ranges of fields in a file.

    Args:
        suffix: The suffix of the file.
        end: The last bytes of the file.
        size: The size of the file.
        fields: The names of fields by number.

    Returns:
        The ranges in order; a field may have several. Empty if fields cannot be distinguished.

    Raises:
        SplitError: The file has no valid directory.
    """
    try:
        below = len(end) - _TAIL - int.from_bytes(end[-_TAIL:-4], "little")
        match suffix:
            case ".fast":
                ranges = _columns(end, below, size, fields)
            case ".store":
                ranges = [_documents(end, below, size)]
            case _:
                ranges = _by_number(end, below, size, fields)
    except (ValueError, IndexError, OSError, pa.ArrowException) as error:
        raise SplitError(f"an index file has no directory of its fields ({error}); it is damaged") from None
    return ranges


def _by_number(end: Bytes, below: int, size: int, fields: Sequence[str]) -> list[FieldRange]:
    length = int.from_bytes(end[below - 4 : below], "little")
    at = _check_offset(below - 4 - length)
    last = size - len(end) + at
    count, at = read_varint(end, at, high_bit_ends=True)
    starts: list[tuple[int, int]] = []
    place = 0
    for _ in range(count):
        step, at = read_varint(end, at, high_bit_ends=True)
        place += step
        starts.append((int.from_bytes(end[at : at + 4], "little"), place))
        _, at = read_varint(end, at + 4, high_bit_ends=True)
    edges = [*(start for _, start in starts), last]
    named = zip(starts, pairwise(edges), strict=True)
    return [FieldRange(fields[field], start, stop) for (field, _), (start, stop) in named]


def _columns(end: Bytes, below: int, size: int, fields: Sequence[str]) -> list[FieldRange]:
    if any(mark in field for field in fields for mark in "\x00\x01"):
        return []  # field names cannot be distinguished from paths
    table = _check_offset(below - _FAST_TAIL - int.from_bytes(end[below - _FAST_TAIL : below - 12], "little"))
    last = size - len(end) + table
    # Keys may be long and many, so they are not collected.
    names = {field.encode(): field for field in fields}
    ranges: list[FieldRange] = []
    reached = 0
    for block in _blocks(end, table):
        for key, start, stop in _keys(block):
            name = names.get(key[:-2].partition(b"\x01")[0])
            if name is None:
                raise ValueError("it has columns of no field")
            if start != reached:
                raise ValueError("its columns do not fill it")
            ranges.append(FieldRange(name, start, stop))
            reached = stop
    if reached != last:
        raise ValueError("its columns do not fill it")
    return ranges


def _documents(end: Bytes, below: int, size: int) -> FieldRange:
    stop = int.from_bytes(end[below - _STORE_TAIL + 4 : below - _STORE_TAIL + 12], "little")
    if not 0 <= stop <= size - len(end) + below - _STORE_TAIL:
        raise ValueError("its documents are longer than it is")
    return FieldRange(DOC_STORE_FIELD, 0, stop)


def _blocks(data: Bytes, at: int) -> Iterator[bytes]:
    while length := int.from_bytes(data[at : at + 4], "little"):
        packed, block = data[at + 4], data[at + 5 : at + 4 + length]
        at += 4 + length
        yield _decompress(block) if packed else block


def _decompress(block: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        data: bytes = stream.read(_KEYS_BYTES)
    return data


def _keys(block: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The keys of a block, each with its byte range."""
    count, at = read_varint(block, 0)
    edges = []
    place = 0
    for _ in range(count):
        step, at = read_varint(block, at)
        place += step
        edges.append(place)
    key = b""
    for start, stop in pairwise(edges):
        shared, suffix_length = block[at] & 15, block[at] >> 4
        at += 1
        if (shared, suffix_length) == (1, 0):
            shared, at = read_varint(block, at)
            suffix_length, at = read_varint(block, at)
        key = key[:shared] + block[at : at + suffix_length]
        at += suffix_length
        if len(key) > _LONGEST_KEY:
            raise ValueError("a key is longer than keys are")
        yield key, start, stop


def _check_offset(at: int) -> int:
    if at < 0:
        raise ValueError("its directory is longer than expected")
    return at
