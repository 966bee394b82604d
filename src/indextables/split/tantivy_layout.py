"""The layout of Tantivy's index files: components, the byte ranges of fields, and those of terms.

Files with the suffixes `.term`, `.idx`, `.pos` and `.fieldnorm` have one range for each field. A directory
at their end has the offsets:

```
ranges | count, then for each: bytes since the one before, field (u32), 0 | u32 length of that | footer
```

Counts and distances are varints: seven bits per byte, the last byte with the high bit set. A file `.fast` has
columns, one or more for each field, and their names in a table of sorted keys:

```
columns | table: blocks, an empty one, more | u64 length of the table | 12 bytes | footer
block     u32 length of the rest | 1 if packed by zstd | count of edges, their distances | keys
key       how many bytes it shares with the key before, how many it adds | those it adds
name      the field (and, of JSON, a path after a byte 1) | 0 | a letter for the type
```

Numbers in blocks are varints: seven bits per byte, all bytes but the last with the high bit set. The numbers
of bytes that a key shares and adds have four bits each, or, after a byte 1, are two varints. A file `.store`
has stored documents, their offsets, and their length. The footer is Tantivy's: JSON, its length (u32) and a
magic number (u32).

The part of a field in a file `.term` is its term dictionary:

```
automaton | records of terms | u64 length of the records | u32 version | u32 kind
automaton   u64 version | u64 | nodes | u64 number of terms | u64 address of the root
records     u64 length of the block headers | u64 number of terms | block headers | packed records
header      u64 offset of its packed records | the first record | three bit widths (u8)
record      u32 rows | u64 postings, u32 their length | u64 positions, u32 their length
```

The automaton maps each term to its rank. The address of a node is that of its last byte, which has the number
of transitions; the rest of the node is before that byte. A block has 256 records: the first in its header,
the others bit-packed, each as the distances of its postings and positions from those of the first, and its
number of rows.
"""

import json
import mmap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from indextables.errors import SplitError
from indextables.records import dataclass
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

_AUTOMATON_VERSION, _DICTIONARY_VERSION, _KIND = 2, 1, 1
_BLOCK_RECORDS = 256
_RECORD_BYTES = 28
_HEADER_BYTES = 8 + _RECORD_BYTES + 3
# The upper two bits of the state of nodes with one transition; 3 if the next node is just before this one.
_NARROW = 2
# Nodes with more transitions have an index of 256 bytes.
_INDEXED_FROM = 33
_INDEX_BYTES = 256
# The bytes that nodes with one transition have in six bits of their state, from 1 on.
_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"


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
    ranges = zip(starts, pairwise(edges), strict=True)
    return [FieldRange(fields[field], start, stop) for (field, _), (start, stop) in ranges]


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
                raise ValueError("it has columns without a field")
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
            raise ValueError("a key exceeds the maximum length")
        yield key, start, stop


def _check_offset(at: int) -> int:
    if at < 0:
        raise ValueError("its directory is longer than expected")
    return at


class DictionaryFormatError(ValueError):
    """A dictionary that this release cannot decode."""


class ByteSpan(NamedTuple):
    """Bytes of a field in a file of a segment, from `start` to before `end`."""

    start: int
    end: int


class TermSpans(NamedTuple):
    """The bytes of a term, or of adjacent terms, in the postings and positions of a field."""

    postings: ByteSpan
    positions: ByteSpan


class _Node(NamedTuple):
    """A node: whether a term ends here, the output for it, and the transitions in order."""

    is_final: bool
    final_output: int
    transitions: list[tuple[int, int, int]]  # byte, output, address of the next node


class _WideNode(NamedTuple):
    """The ends of the parts of a node, which are stored in reverse order."""

    is_final: bool
    transitions: int
    inputs: int
    addresses: int
    outputs: int
    end: int
    address_bytes: int
    output_bytes: int


class TermDictionary:
    """The terms of one field in one segment: which bytes of the postings and positions a term has."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        if len(data) < 16 or (_number(data, -8, 4), _number(data, -4, 4)) != (_DICTIONARY_VERSION, _KIND):
            raise DictionaryFormatError("a term dictionary has an unknown version")
        end = len(data) - 16
        self._records = end - _number(data, end, 8)
        if not 32 <= self._records <= end - 16 or _number(data, 0, 8) != _AUTOMATON_VERSION:
            raise DictionaryFormatError("a term dictionary has an unknown automaton")
        self._nodes = self._data[: self._records]
        self._root = _number(data, self._records - 8, 8)
        headers = _number(data, self._records, 8)
        self.num_terms = _number(data, self._records + 8, 8)
        self._headers = self._records + 16
        self._packed = self._headers + headers
        blocks = -(-self.num_terms // _BLOCK_RECORDS)
        if headers != blocks * _HEADER_BYTES or self._packed > end or self._root >= self._records:
            raise DictionaryFormatError("a term dictionary has sizes that contradict each other")
        self._end = end

    def find(self, term: bytes) -> TermSpans | None:
        """The bytes of a term; None if no row has it."""
        try:
            rank = self._rank(term)
            return None if rank is None else self._spans(rank, rank)
        except (IndexError, OverflowError) as error:
            raise DictionaryFormatError("a term dictionary cannot be decoded") from error

    def between(self, low: bytes, high: bytes | None) -> TermSpans | None:
        """The bytes of all terms from `low` to before `high` (None: to the last); None if there are none."""
        try:
            first = self._first_from(low)
            last = (self.num_terms if high is None else self._first_from(high)) - 1
            return self._spans(first, last) if first <= last else None
        except (IndexError, OverflowError) as error:
            raise DictionaryFormatError("a term dictionary cannot be decoded") from error

    def _rank(self, term: bytes) -> int | None:
        rank, address = 0, self._root
        for byte in term:
            step = self._follow(address, byte)
            if step is None:
                return None
            output, address = step
            rank += output
        node = self._node(address)
        return rank + node.final_output if node.is_final else None

    def _follow(self, address: int, byte: int) -> tuple[int, int] | None:
        """The output and the next node of the transition with a byte; None if there is none."""
        if not address:
            return None
        if self._nodes[address] >> 6 >= _NARROW:
            ((own, output, next_),) = self._node(address).transitions
            return (output, next_) if own == byte else None
        wide = self._wide(address)
        place = bytes(self._nodes[wide.addresses : wide.inputs]).find(byte)
        return None if place < 0 else self._transition(address, wide, wide.transitions - 1 - place)

    def _first_from(self, term: bytes) -> int:
        """The rank of the first term that is not before this one; the number of terms if all are."""
        rank, node = 0, self._node(self._root)
        later: tuple[int, int] | None = None  # the rank and address of the next larger subtree
        for byte in term:
            larger = next((each for each in node.transitions if each[0] > byte), None)
            if larger is not None:
                later = rank + larger[1], larger[2]
            step = next((each for each in node.transitions if each[0] == byte), None)
            if step is None:
                return self.num_terms if later is None else self._first_below(later[0], self._node(later[1]))
            rank += step[1]
            node = self._node(step[2])
        return self._first_below(rank, node)

    def _first_below(self, rank: int, node: _Node) -> int:
        while not node.is_final:
            _, output, address = node.transitions[0]
            rank += output
            node = self._node(address)
        return rank + node.final_output

    def _node(self, address: int) -> _Node:
        if address == 0:
            return _Node(True, 0, [])
        data = self._nodes
        state = data[address]
        if state >> 6 >= _NARROW:
            common = state & 63
            byte, at = (_COMMON[common - 1], address) if common else (data[address - 1], address - 1)
            if state >> 6 > _NARROW:  # the next node is just before this one
                return _Node(False, 0, [(byte, 0, self._earlier(at - 1, address))])
            at -= 1
            address_bytes, output_bytes = data[at] >> 4, data[at] & 15
            at -= address_bytes
            distance = _number(data, at, address_bytes)
            at -= output_bytes
            next_ = self._earlier(at - distance, address) if distance else 0
            return _Node(False, 0, [(byte, _number(data, at, output_bytes), next_)])
        wide = self._wide(address)
        transitions = [
            (data[wide.inputs - i - 1], *self._transition(address, wide, i)) for i in range(wide.transitions)
        ]
        final_output = _number(data, wide.end, wide.output_bytes) if wide.is_final else 0
        return _Node(wide.is_final, final_output, transitions)

    def _wide(self, address: int) -> _WideNode:
        """The layout of a node with any number of transitions."""
        data = self._nodes
        state = data[address]
        is_final = bool(state & 0x40)
        count, at = state & 63, address
        if not count:
            at -= 1
            count = 256 if data[at] == 1 else data[at]
        at -= 1
        address_bytes, output_bytes = data[at] >> 4, data[at] & 15
        inputs = at - (_INDEX_BYTES if count >= _INDEXED_FROM else 0)
        addresses = inputs - count
        outputs = addresses - count * address_bytes
        end = outputs - count * output_bytes - (output_bytes if is_final else 0)
        if end < 0:
            raise DictionaryFormatError("a node of a term dictionary is outside of it")
        return _WideNode(is_final, count, inputs, addresses, outputs, end, address_bytes, output_bytes)

    def _transition(self, address: int, wide: _WideNode, i: int) -> tuple[int, int]:
        """The output and the next node of a transition."""
        distance = _number(self._nodes, wide.addresses - (i + 1) * wide.address_bytes, wide.address_bytes)
        output = _number(self._nodes, wide.outputs - (i + 1) * wide.output_bytes, wide.output_bytes)
        return output, self._earlier(wide.end - distance, address) if distance else 0

    def _earlier(self, address: int, than: int) -> int:
        """Check the address of a next node: it is less than that of its predecessor, so every walk ends."""
        if not 0 <= address < than:
            raise DictionaryFormatError("a node of a term dictionary is outside of it")
        return address

    def _spans(self, first: int, last: int) -> TermSpans:
        """The bytes of the terms from one rank to another, which are adjacent in both files."""
        start, end = self._record(first), self._record(last)
        if not (start[0] <= end[1] and start[2] <= end[3]):
            raise DictionaryFormatError("a term dictionary has records in another order")
        return TermSpans(ByteSpan(start[0] + TOKENS_BYTES, end[1] + TOKENS_BYTES), ByteSpan(start[2], end[3]))

    def _record(self, rank: int) -> tuple[int, int, int, int]:
        """Where the postings of a term start and end, and its positions."""
        if not 0 <= rank < self.num_terms:
            raise DictionaryFormatError("a term dictionary has a rank without a record")
        block, inner = divmod(rank, _BLOCK_RECORDS)
        at = self._headers + block * _HEADER_BYTES
        data = self._data
        postings, positions = _number(data, at + 12, 8), _number(data, at + 24, 8)
        if not inner:
            return (
                postings,
                postings + _number(data, at + 20, 4),
                positions,
                positions + _number(data, at + 32, 4),
            )
        rows_bits, postings_bits, positions_bits = data[at + 36 : at + _HEADER_BYTES]
        width = rows_bits + postings_bits + positions_bits
        start = self._packed + _number(data, at, 8)
        # The first record is in the header. The end of a record is the start of the next one.
        own = _bits(data, start, self._end, (inner - 1) * width, width + postings_bits + positions_bits)
        mask, position_mask = (1 << postings_bits) - 1, (1 << positions_bits) - 1
        following = own >> width
        return (
            postings + (own & mask),
            postings + (following & mask),
            positions + (own >> postings_bits & position_mask),
            positions + (following >> postings_bits & position_mask),
        )


def _number(data: bytes | memoryview, at: int, size: int) -> int:
    """A number of some bytes, the least significant first."""
    if at < 0:
        at += len(data)
    if at < 0 or at + size > len(data):
        raise DictionaryFormatError("a term dictionary is shorter than its content")
    return int.from_bytes(data[at : at + size], "little")


def _bits(data: memoryview, start: int, end: int, first: int, count: int) -> int:
    """Some bits of packed records; beyond the end they are zero."""
    at = start + first // 8
    if at > end:
        raise DictionaryFormatError("a term dictionary has records outside of it")
    size = (first % 8 + count + 7) // 8
    value = int.from_bytes(data[at : min(at + size, end)], "little") >> first % 8
    return value & ((1 << count) - 1)
