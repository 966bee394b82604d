"""Term filters: whether a field of a split can have a term, by one small read (PROTOCOL.md, "Term filters").

A filter is a split-block Bloom filter, as in Parquet: blocks of 256 bits, of which a term sets eight in one
block. So a term that is in the field always passes, and others pass at a low rate. Blocks are stored in
pages with a checksum each, so that a test reads and verifies one page.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import SplitError
from indextables.split.checksum import crc32
from indextables.split.footer import (
    FILTER_BLOCK_BYTES,
from indextables.records import dataclass
    FILTER_PAGE_BLOCKS,
    MAX_FILTER_BLOCKS,
    FilterPlace,
    filter_bytes,
)
from indextables.split.index.encode import Words, hash64
from indextables.split.mapping import PARTIAL_FIELD, Field, Kind, Mapping

Bits: TypeAlias = np.ndarray[Any, np.dtype[np.uint32]]

# The kinds of fields whose terms are in a filter.
FILTER_KINDS = (Kind.TEXT, Kind.STRING, Kind.HASH)
_CRC = struct.Struct("<I")
_STRIDE = FILTER_PAGE_BLOCKS * FILTER_BLOCK_BYTES + _CRC.size
# Filters of up to so many bytes are read whole.
_WHOLE_BYTES = 64 << 10
# The multipliers of Parquet's split-block Bloom filter: one for each word of a block.
_SALT = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip

# A filter has so many bits for each term, or fewer if all filters would be too large for their split.
_BITS_PER_TERM = 12.0
# With fewer bits than this, too many other terms pass: the field has no filter then.
_LEAST_BITS_PER_TERM = 4.0
# All filters of a split take at most this share of it, and this many bytes in a small one.
_SHARE = 0.02
_LEAST_BYTES = 1024
# The term dictionary of a field with a filter is at most so large: its terms are listed in memory.
_MAX_DICTIONARY_BYTES = 16 << 20
# Keys are made distinct when so many have come together.
_MAX_PENDING = 2_000_000


def term_keys(terms: Sequence[str]) -> Words:
    """The keys of terms in a filter."""
    return hash64(pa.array(terms, pa.string()))


# --- writing ----------------------------------------------------------------------------------------


def encode_filter(keys: Words, blocks: int) -> Bits:
    """The blocks of a filter with these distinct keys, as rows of eight words."""
    bits = np.zeros((blocks, 8), np.uint32)
    if not len(keys):
        return bits
    place = _block_of(keys, blocks)
    order = np.argsort(place, kind="stable")
    place = place[order]
    starts = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
    bits[place[starts]] = np.bitwise_or.reduceat(_masks(keys[order]), starts, axis=0)
    return bits


def _block_of(keys: Words, blocks: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The block of each key, from its upper half."""
    return ((keys >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)).astype(np.int64)


def _masks(keys: Words) -> Bits:
    """The bits of each key in its block, from its lower half."""
    lower = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    masks: Bits = np.uint32(1) << ((lower[:, None] * _SALT) >> np.uint32(27))
    return masks


def blocks_for(terms: int, bits_per_term: float = _BITS_PER_TERM) -> int:
    """The number of blocks of a filter, rounded down to four binary digits: similar splits have the same.

    >>> blocks_for(10), blocks_for(400), blocks_for(40_000)
    (1, 18, 1792)
    """
    exact = max(1, min(int(terms * bits_per_term) // (8 * FILTER_BLOCK_BYTES), MAX_FILTER_BLOCKS))
    shift = max(0, exact.bit_length() - 4)
    return exact >> shift << shift


class FilterWriter:
    """Collects the keys of a split's terms, and writes its filters.

    Keys of hash fields come batch by batch; terms of other fields are listed from the finished index.
    """

    def __init__(self, mapping: Mapping) -> None:
        self._fields = [f for f in mapping.fields if f.kind in FILTER_KINDS and f.term_filter]
        self._keys: dict[str, list[Words]] = {f.name: [] for f in self._fields if f.kind is Kind.HASH}
        self._pending = dict.fromkeys(self._keys, 0)

    def add(self, keys: Iterable[tuple[str, Words]]) -> None:
        """Add keys of hash fields."""
        for name, more in keys:
            if name not in self._keys:
                continue
            self._keys[name].append(more)
            self._pending[name] += len(more)
            if self._pending[name] > _MAX_PENDING:
                self._keys[name] = [np.unique(np.concatenate(self._keys[name]))]
                self._pending[name] = 0

    def add_rows(self, batch: pa.RecordBatch, mapping: Mapping) -> None:
        """Add the keys of the hash fields of rows."""
        hashed = (f for f in mapping.fields if f.name in self._keys)
        self.add((f.name, hash64(batch.column(f.column).drop_null())) for f in hashed)

    def write(
        self, sink: IO[bytes], index: tantivy.Index, dictionary_bytes: Callable[[str], int]
    ) -> tuple[FilterPlace, ...]:
        """Append the filters to a split whose rows and index were written.

        Args:
            sink: The split.
            index: Its index.
            dictionary_bytes: The size of a field's term dictionary.
        """
        found = {f.name: self._keys_of(f, index, dictionary_bytes) for f in self._fields}
        keys = {name: own for name, own in found.items() if own is not None}
        sizes = _sizes({name: len(own) for name, own in keys.items()}, sink.tell())
        places = []
        # The smallest last: what is close to the footer is read with it.
        for name, blocks in sorted(sizes.items(), key=lambda each: each[1], reverse=True):
            places.append(FilterPlace(name, sink.tell(), blocks))
            sink.write(encode_pages(name, encode_filter(keys[name], blocks)))
        return tuple(places)

    def _keys_of(
        self, field: Field, index: tantivy.Index, dictionary_bytes: Callable[[str], int]
    ) -> Words | None:
        """The distinct keys of a field; None if a filter would not be complete, or cost too much."""
        if field.kind is Kind.HASH:
            found = self._keys[field.name]
            return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)
        searcher = index.searcher()
        # A row that is listed there has terms that the index does not have.
        if searcher.doc_freq(PARTIAL_FIELD, field.name):
            return None
        if dictionary_bytes(field.name) > _MAX_DICTIONARY_BYTES:
            return None
        return np.unique(term_keys([term for term, _ in searcher.terms_with_prefix(field.name, "")]))


def _sizes(terms: dict[str, int], split_bytes: int) -> dict[str, int]:
    """The blocks of each filter; all together are small compared with the split.

    All fields get the same number of bits for each term; if that were too few, those with most terms have no
    filter.
    """
    most = max(int(split_bytes * _SHARE), _LEAST_BYTES)
    chosen: dict[str, int] = {}
    least = 0
    for name in sorted(terms, key=lambda name: terms[name]):
        least += filter_bytes(blocks_for(terms[name], _LEAST_BITS_PER_TERM))
        if least > most:
            break
        chosen[name] = terms[name]
    bits = _BITS_PER_TERM
    while True:
        sizes = {name: blocks_for(count, bits) for name, count in chosen.items()}
        if bits == _LEAST_BITS_PER_TERM or sum(map(filter_bytes, sizes.values())) <= most:
            return sizes
        bits = max(_LEAST_BITS_PER_TERM, 0.9 * bits)


def encode_pages(field: str, bits: Bits) -> bytes:
    """A filter as it is stored: pages of blocks, each followed by its checksum."""
    data = bits.astype("<u4", copy=False).tobytes()
    size = FILTER_PAGE_BLOCKS * FILTER_BLOCK_BYTES
    pages = (data[start : start + size] for start in range(0, len(data), size))
    return b"".join(page + _CRC.pack(_checksum(field, n, page)) for n, page in enumerate(pages))


def _checksum(field: str, number: int, page: bytes | memoryview) -> int:
    """The checksum of a page, which differs for the same bytes at another place."""
    return crc32(f"{field}\0{number}\0".encode() + bytes(page))


# --- reading ----------------------------------------------------------------------------------------

Read: TypeAlias = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


@dataclass(frozen=True, slots=True)
class TermProbe:
    """A term as filters test it: the upper half of its key, and its bits in a block."""

    upper: int
    mask: int


def probes(terms: Sequence[str]) -> tuple[TermProbe, ...]:
    """The probes of terms."""
    keys = term_keys(terms)
    masks = _masks(keys).astype("<u4", copy=False)
    uppers = (keys >> np.uint64(32)).tolist()
    return tuple(
        TermProbe(upper, int.from_bytes(mask.tobytes(), "little"))
        for upper, mask in zip(uppers, masks, strict=True)
    )


class TermFilter:
    """The filter of one field of a split; pages that were read are kept."""

    def __init__(self, place: FilterPlace) -> None:
        self._place = place
        self._pages: dict[int, bytes] = {}

    @property
    def start(self) -> int:
        """The first byte of the filter in the split."""
        return self._place.offset

    def may_contain_any(self, terms: Iterable[TermProbe], read: Read) -> bool:
        """Whether the field may have one of the terms; if not, no row has any of them.

        Args:
            terms: The terms.
            read: Returns ranges of the split's bytes.

        Raises:
            SplitError: A page is damaged.
        """
        places = [(self._block(term), term.mask) for term in terms]
        self._load({block // FILTER_PAGE_BLOCKS for block, _ in places}, read)
        for block, mask in places:
            page, number = divmod(block, FILTER_PAGE_BLOCKS)
            start = number * FILTER_BLOCK_BYTES
            bits = int.from_bytes(self._pages[page][start : start + FILTER_BLOCK_BYTES], "little")
            if bits & mask == mask:
                return True
        return False

    def has_pages(self, terms: Iterable[TermProbe]) -> bool:
        """Whether the pages for these terms were read before."""
        return all(self._block(term) // FILTER_PAGE_BLOCKS in self._pages for term in terms)

    def _block(self, term: TermProbe) -> int:
        return term.upper * self._place.blocks >> 32

    def _load(self, pages: Collection[int], read: Read) -> None:
        missing = sorted(page for page in pages if page not in self._pages)
        if not missing:
            return
        start, length = self._place.offset, self._place.length
        if length <= _WHOLE_BYTES:
            (whole,) = read([(start, start + length)])
            missing = list(range(-(-length // _STRIDE)))
            parts: Sequence[bytes | memoryview] = [whole[n * _STRIDE : (n + 1) * _STRIDE] for n in missing]
        else:
            ranges = [(start + n * _STRIDE, min(start + (n + 1) * _STRIDE, start + length)) for n in missing]
            parts = read(ranges)
        for number, part in zip(missing, parts, strict=True):
            page, stored = bytes(part[: -_CRC.size]), _CRC.unpack(part[-_CRC.size :])[0]
            if _checksum(self._place.field, number, page) != stored:
                raise SplitError(f"the term filter of '{self._place.field}' is damaged (a checksum differs)")
            self._pages[number] = page
