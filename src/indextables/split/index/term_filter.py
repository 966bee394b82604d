"""Term filters: whether a field of a split can have a term, by one small read (PROTOCOL.md, "Term filters").

A filter is a split-block Bloom filter, as in Parquet: blocks of 256 bits, of which a term sets eight in one
block. So a term that is in the field always passes, and others pass at a low rate. Blocks are stored in
pages with a checksum each, so that a test reads and verifies one page. A bundle has the filters of many
splits, laid out so that one read tests a term in all of them.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from typing import IO, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import tantivy
from msgspec import Struct

from indextables.errors import SplitError
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, kind_of
from indextables.split.checksum import crc32
from indextables.split.footer import (
    FILTER_BLOCK_BYTES,
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
# Filters of up to this many bytes are read whole.
_WHOLE_BYTES = 64 << 10
# The multipliers of Parquet's split-block Bloom filter: one for each word of a block.
_SALT = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip

# A filter has this many bits for each term, or fewer if all filters would be too large for their split.
_BITS_PER_TERM = 12.0
# With fewer bits than this, the filter would have too many false positives, so none is written.
_LEAST_BITS_PER_TERM = 4.0
# All filters of a split take at most this share of it, and this many bytes in a small one.
_SHARE = 0.02
_LEAST_BYTES = 1024
# The term dictionary of a field with a filter is at most so large: its terms are listed in memory.
_MAX_DICTIONARY_BYTES = 16 << 20
# Duplicate keys are removed when this many have been collected.
_MAX_PENDING = 2_000_000
# Integers have a filter if, of at least this many first values, this share is distinct, and neither more than
# this share ascends nor descends: a split of ordered values is skipped by minimum and maximum.
_LEAST_INTEGERS = 100
_DISTINCT = 0.95
_ORDERED = 0.9


def term_keys(terms: Sequence[str]) -> Words:
    """The keys of terms in a filter."""
    return hash64(pa.array(terms, pa.string()))


def integer_keys(values: np.ndarray[Any, np.dtype[np.int64]]) -> Words:
    """The keys of integers in a filter."""
    keys = values.astype(np.int64, copy=False).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


# --- writing ----------------------------------------------------------------------------------------


def encode_filter(keys: Words, blocks: int) -> Bits:
    """The blocks of a filter with these distinct keys, as rows of eight words."""
    bits = np.zeros((blocks, 8), np.uint32)
    if not len(keys):
        return bits
    keys = np.sort(keys)
    place = _block_of(keys, blocks)  # ascending, as the keys
    starts = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
    bits[place[starts]] = np.bitwise_or.reduceat(_masks(keys), starts, axis=0)
    return bits


def distinct(keys: Words) -> Words:
    """The distinct keys, ascending: several times as fast as `np.unique`, which hashes them."""
    ordered = np.sort(keys)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


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

    Keys of hash fields and of integers come batch by batch; terms of other fields are listed from the
    finished index. Whether integers have a filter is decided by the first batch with enough of them.
    """

    def __init__(self, mapping: Mapping, integers: Collection[str] | None = None) -> None:
        """`integers` are the fields of integers that may have a filter; by default all."""
        fields = [f for f in mapping.fields if f.term_filter]
        self._fields = [f for f in fields if f.kind in FILTER_KINDS]
        self._integers = [
            f for f in fields if f.kind is Kind.I64 and (integers is None or f.name in integers)
        ]
        self._undecided = {f.name for f in self._integers}
        by_row = [f.name for f in (*self._fields, *self._integers) if f.kind in (Kind.HASH, Kind.I64)]
        self._keys: dict[str, list[Words]] = {name: [] for name in by_row}
        self._pending = dict.fromkeys(self._keys, 0)

    @property
    def columns(self) -> list[str]:
        """The columns whose values `add_rows` needs."""
        return [f.column for f in (*self._fields, *self._integers) if f.name in self._keys]

    def add(self, keys: Iterable[tuple[str, Words]]) -> None:
        """Add keys of hash fields."""
        for name, more in keys:
            if name not in self._keys:
                continue
            self._keys[name].append(more)
            self._pending[name] += len(more)
            if self._pending[name] > _MAX_PENDING:
                self._keys[name] = [distinct(np.concatenate(self._keys[name]))]
                self._pending[name] = 0

    def add_rows(self, batch: pa.RecordBatch, mapping: Mapping) -> None:
        """Add the keys of the hash fields of rows."""
        hashed = (f for f in mapping.fields if f.kind is Kind.HASH and f.name in self._keys)
        self.add((f.name, hash64(batch.column(f.column).drop_null())) for f in hashed)
        self.add_integers(batch)

    def add_integers(self, batch: pa.RecordBatch) -> None:
        """Add the keys of the integers of rows."""
        for field in self._integers:
            if field.name not in self._keys:
                continue
            column = batch.column(field.column)
            if kind_of(column.type) is not TypeKind.INTEGER:
                del self._keys[field.name]
                continue
            values = column.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)
            if field.name in self._undecided and len(values) >= _LEAST_INTEGERS:
                self._undecided.remove(field.name)
                if not _are_keys(values):
                    del self._keys[field.name]
                    continue
            self.add([(field.name, integer_keys(values))])

    def write(
        self, sink: IO[bytes], index: tantivy.Index, dictionary_bytes: Callable[[str], int]
    ) -> tuple[FilterPlace, ...]:
        """Append the filters to a split whose rows and index were written.

        Args:
            sink: The split.
            index: Its index.
            dictionary_bytes: The size of a field's term dictionary.
        """
        integers = [f for f in self._integers if f.name in self._keys and f.name not in self._undecided]
        all_keys = {f.name: self._keys_of(f, index, dictionary_bytes) for f in (*self._fields, *integers)}
        keys = {name: own for name, own in all_keys.items() if own is not None}
        sizes = _sizes({name: len(own) for name, own in keys.items()}, sink.tell())
        places = []
        # The smallest last: bytes close to the footer are read with it.
        for name, blocks in sorted(sizes.items(), key=lambda each: each[1], reverse=True):
            places.append(FilterPlace(name, sink.tell(), blocks))
            sink.write(encode_pages(name, encode_filter(keys[name], blocks)))
        return tuple(places)

    def _keys_of(
        self, field: Field, index: tantivy.Index, dictionary_bytes: Callable[[str], int]
    ) -> Words | None:
        """The distinct keys of a field; None if a filter would be incomplete or too large."""
        if field.kind in (Kind.HASH, Kind.I64):
            parts = self._keys[field.name]
            return distinct(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
        searcher = index.searcher()
        # Rows that are listed in that field have terms that the index lacks.
        if searcher.doc_freq(PARTIAL_FIELD, field.name):
            return None
        if dictionary_bytes(field.name) > _MAX_DICTIONARY_BYTES:
            return None
        return distinct(term_keys([term for term, _ in searcher.terms_with_prefix(field.name, "")]))


def _are_keys(values: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Whether integers are nearly all distinct, and in no order."""
    ascending = float(np.mean(values[1:] >= values[:-1]))
    if not 1 - _ORDERED < ascending < _ORDERED:
        return False
    return len(distinct(integer_keys(values))) >= _DISTINCT * len(values)


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
        bits = max(_LEAST_BITS_PER_TERM, 0.98 * bits)


def encode_pages(field: str, bits: Bits) -> bytes:
    """A filter as it is stored: pages of blocks, each followed by its checksum."""
    data = bits.astype("<u4", copy=False).tobytes()
    size = FILTER_PAGE_BLOCKS * FILTER_BLOCK_BYTES
    pages = (data[start : start + size] for start in range(0, len(data), size))
    return b"".join(page + _CRC.pack(_checksum(field, n, page)) for n, page in enumerate(pages))


def decode_pages(place: FilterPlace, data: bytes | memoryview) -> Bits:
    """The blocks of a whole filter as it is stored, as rows of eight words.

    Raises:
        SplitError: A page is damaged.
    """
    parts = [data[start : start + _STRIDE] for start in range(0, place.length, _STRIDE)]
    pages = (_decode_page(place.field, number, part) for number, part in enumerate(parts))
    return np.frombuffer(b"".join(pages), "<u4").reshape(-1, 8)


def _decode_page(field: str, number: int, part: bytes | memoryview) -> bytes:
    """The blocks of a page, without its checksum."""
    page, checksum = bytes(part[: -_CRC.size]), _CRC.unpack(part[-_CRC.size :])[0]
    if _checksum(field, number, page) != checksum:
        raise SplitError(f"the term filter of '{field}' is damaged (a checksum differs)")
    return page


def _checksum(field: str, number: int, page: bytes | memoryview) -> int:
    """The checksum of a page, which includes the page's position."""
    return crc32(f"{field}\0{number}\0".encode() + bytes(page))


# --- reading ----------------------------------------------------------------------------------------

Read: TypeAlias = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


@dataclass(frozen=True, slots=True)
class TermProbe:
    """A term to test against filters: the upper half of its key, and its bits in a block."""

    upper: int
    mask: int


def probes(terms: Sequence[str]) -> tuple[TermProbe, ...]:
    """The probes of terms."""
    return _probes(term_keys(terms))


def integer_probes(values: Sequence[int]) -> tuple[TermProbe, ...]:
    """The probes of integers of 64 bits."""
    return _probes(integer_keys(np.array(values, np.int64)))


def _probes(keys: Words) -> tuple[TermProbe, ...]:
    masks = _masks(keys).astype("<u4", copy=False)
    uppers = (keys >> np.uint64(32)).tolist()
    return tuple(
        TermProbe(upper, int.from_bytes(mask.tobytes(), "little"))
        for upper, mask in zip(uppers, masks, strict=True)
    )


class TermFilter:
    """The filter of one field of a split; pages that were read are cached."""

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
            self._pages[number] = _decode_page(self._place.field, number, part)


# --- bundles ----------------------------------------------------------------------------------------

# Filters of one field with the same number of blocks are stored block by block: the first block of each
# split, then the second one of each split. A term belongs to one block, so its bits in all these splits are
# adjacent (PROTOCOL.md, "Filter bundles").
BUNDLE_MAGIC = b"ITF1"
# The largest bundle that is written; its bytes are in memory.
MAX_BUNDLE_BYTES = 64 << 20

Keys: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Data: TypeAlias = bytes | memoryview

_KEY_WORDS = 3


def split_keys(entries: pa.Table) -> Keys:
    """The keys of splits in a bundle, one row per split: the hash of the path, the size and the time."""
    count = entries.num_rows
    keys = np.zeros((count, _KEY_WORDS), np.uint64)
    if count:
        keys[:, 0] = hash64(entries["path"].combine_chunks().cast(pa.string()))
        for place, name in enumerate(("size", "modificationTime"), 1):
            values = entries[name].combine_chunks().fill_null(0)
            keys[:, place] = values.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return keys


def find_keys(keys: Keys, among: Keys) -> Numbers:
    """The position of each key among others, or -1."""
    if not len(among):
        return np.full(len(keys), -1, np.int64)
    order = np.argsort(among[:, 0], kind="stable")
    hashes = among[order, 0]
    near = np.minimum(np.searchsorted(hashes, keys[:, 0]), len(hashes) - 1)
    places: Numbers = order[near].astype(np.int64)
    # Of several splits with the same hash only the first is found: the others count as absent.
    places[(among[places] != keys).any(axis=1)] = -1
    return places


@dataclass(frozen=True, slots=True)
class FilterGroup:
    """Filters of one field with the same number of blocks, each of another split.

    `members` are the numbers of the splits in the bundle. `offset` is where the group begins in the bundle.
    """

    field: str
    blocks: int
    members: Numbers
    offset: int

    @property
    def page_blocks(self) -> int:
        """The number of blocks of each filter that a page has: few splits share a page."""
        return max(1, FILTER_PAGE_BLOCKS // max(1, len(self.members)))

    @property
    def length(self) -> int:
        """The bytes of all pages, with their checksums."""
        pages = -(-self.blocks // self.page_blocks)
        return self.blocks * len(self.members) * FILTER_BLOCK_BYTES + pages * _CRC.size

    def page_range(self, number: int) -> tuple[int, int]:
        """The bytes of a page in the bundle, with its checksum."""
        stride = self.page_blocks * len(self.members) * FILTER_BLOCK_BYTES + _CRC.size
        start = self.offset + number * stride
        return start, min(start + stride, self.offset + self.length)

    def page_of(self, term: TermProbe) -> int:
        """The page that has the block of a term."""
        return self._block(term) // self.page_blocks

    def test(self, term: TermProbe, page: Bits) -> Mask:
        """Which members may have a term, by the page of its block."""
        bits = page[self._block(term) % self.page_blocks]
        mask = np.frombuffer(term.mask.to_bytes(FILTER_BLOCK_BYTES, "little"), "<u4")
        may_have: Mask = ((bits & mask) == mask).all(axis=1)
        return may_have

    def decode_page(self, number: int, data: Data) -> Bits:
        """The bits of a page: by block, split and word.

        Raises:
            SplitError: The page is damaged.
        """
        page, (checksum,) = bytes(data[: -_CRC.size]), _CRC.unpack(data[-_CRC.size :])
        if _bundle_checksum(self.field, self.page_range(number)[0], page) != checksum:
            raise SplitError(f"the filters of '{self.field}' are damaged (a checksum differs)")
        return np.frombuffer(page, "<u4").reshape(-1, len(self.members), 8)

    def _block(self, term: TermProbe) -> int:
        return term.upper * self.blocks >> 32


def _bundle_checksum(field: str, offset: int, page: Data) -> int:
    """The checksum of a page, which includes the page's position."""
    return crc32(f"{field}\0{offset}\0".encode() + bytes(page))


# --- content ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BundleContent:
    """The splits of a bundle and their filters, in memory.

    `groups` has, for a field and a number of blocks, the numbers of the splits and their filters: by split,
    block and word. A split without any filter is listed, so that it is not read again.
    """

    keys: Keys
    groups: Dictionary[tuple[str, int], tuple[Numbers, Bits]]

    @property
    def size(self) -> int:
        """The approximate size of the bundle in bytes."""
        return int(self.keys.nbytes) + sum(int(bits.nbytes) for _, bits in self.groups.values())

    @classmethod
    def of(cls, keys: Keys, filters: Sequence[Dictionary[str, Bits]]) -> "BundleContent":
        """The filters of splits, by the name of the field."""
        groups: dict[tuple[str, int], tuple[list[int], list[Bits]]] = {}
        for number, own in enumerate(filters):
            for field, bits in own.items():
                members, all_bits = groups.setdefault((field, len(bits)), ([], []))
                members.append(number)
                all_bits.append(bits)
        return cls(keys, {key: (np.array(m, np.int64), np.stack(b)) for key, (m, b) in groups.items()})

    @classmethod
    def merge(cls, contents: Sequence["BundleContent"]) -> "BundleContent":
        """The splits of several bundles, in order."""
        parts: dict[tuple[str, int], list[tuple[Numbers, Bits]]] = {}
        start = 0
        for content in contents:
            for key, (members, bits) in content.groups.items():
                parts.setdefault(key, []).append((members + start, bits))
            start += len(content.keys)
        keys = np.concatenate([np.zeros((0, _KEY_WORDS), np.uint64), *(c.keys for c in contents)])
        groups = {
            key: (np.concatenate([m for m, _ in own]), np.concatenate([b for _, b in own]))
            for key, own in parts.items()
        }
        return cls(keys, groups)

    def select(self, mask: Mask) -> "BundleContent":
        """Some of the splits, in order."""
        places = np.cumsum(mask) - 1
        groups = {}
        for key, (members, bits) in self.groups.items():
            own = mask[members]
            if own.any():
                groups[key] = (places[members[own]], bits[own])
        return BundleContent(self.keys[mask], groups)

    def cut(self, most: int = MAX_BUNDLE_BYTES) -> Iterator["BundleContent"]:
        """Divide the splits into parts, for bundles of about this many bytes each."""
        count = len(self.keys)
        parts = min(count, -(-self.size // most))
        numbers = np.arange(count)
        for start in range(0, count, -(-count // parts) if parts else 1):
            end = start + -(-count // parts)
            yield self.select((numbers >= start) & (numbers < end)) if parts > 1 else self


# --- on disk ----------------------------------------------------------------------------------------


class _GroupJson(Struct, array_like=True):
    field: str
    blocks: int
    offset: int
    # Numbers of splits, as little-endian u32.
    members: bytes


class _DirectoryJson(Struct):
    # For each split the three words of its key, as little-endian u64.
    splits: bytes
    groups: list[_GroupJson]


def encode_bundle(content: BundleContent) -> tuple[bytes, int]:
    """The file of a bundle, and the number of bytes at its end that its directory takes."""
    parts = [BUNDLE_MAGIC]
    size = len(BUNDLE_MAGIC)
    groups = []
    for (field, blocks), (members, bits) in sorted(content.groups.items(), key=lambda item: item[0]):
        group = FilterGroup(field, blocks, members, size)
        by_block = np.ascontiguousarray(bits.transpose(1, 0, 2)).astype("<u4", copy=False)
        for number, start in enumerate(range(0, blocks, group.page_blocks)):
            page = by_block[start : start + group.page_blocks].tobytes()
            parts += [page, _CRC.pack(_bundle_checksum(field, group.page_range(number)[0], page))]
        groups.append(_GroupJson(field, blocks, size, members.astype("<u4").tobytes()))
        size += group.length
    text = msgspec.json.encode(_DirectoryJson(content.keys.astype("<u8").tobytes(), groups))
    directory = text + _CRC.pack(crc32(text))
    return b"".join((*parts, directory)), len(directory)


@dataclass(frozen=True, slots=True)
class BundleDirectory:
    """The splits of a bundle, and where their filters are."""

    keys: Keys
    groups: tuple[FilterGroup, ...]

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.keys.nbytes) + sum(int(group.members.nbytes) for group in self.groups)

    def of_field(self, field: str) -> Iterator[FilterGroup]:
        """The groups of a field."""
        return (group for group in self.groups if group.field == field)

    @classmethod
    def decode(cls, data: Data, size: int) -> "BundleDirectory":
        """The directory at the end of a bundle of this many bytes.

        Raises:
            SplitError: It is damaged, or has impossible values.
        """
        text = bytes(data[: -_CRC.size])
        if len(data) <= _CRC.size or crc32(text) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise SplitError("its directory is damaged (the checksum differs)")
        try:
            directory = msgspec.json.decode(text, type=_DirectoryJson)
            keys = np.frombuffer(directory.splits, "<u8").reshape(-1, _KEY_WORDS).astype(np.uint64)
            groups = tuple(_group(each, len(keys)) for each in directory.groups)
            _check_groups(groups, size - len(data))
        except (ValueError, OverflowError) as error:
            raise SplitError(f"its directory cannot be understood ({error})") from error
        return cls(keys, groups)


def _group(group: _GroupJson, splits: int) -> FilterGroup:
    members = np.frombuffer(group.members, "<u4").astype(np.int64)
    if not len(members) or int(members.max()) >= splits:
        raise ValueError(f"the filters of '{group.field}' are those of splits that it does not list")
    if not 1 <= group.blocks <= MAX_FILTER_BLOCKS:
        raise ValueError(f"the filters of '{group.field}' have {group.blocks} blocks")
    return FilterGroup(group.field, group.blocks, members, group.offset)


def _check_groups(groups: Iterable[FilterGroup], end: int) -> None:
    """Raise ValueError unless the groups fill the bundle up to its directory."""
    size = len(BUNDLE_MAGIC)
    for group in groups:
        if group.offset != size:
            raise ValueError(f"the filters of '{group.field}' are not where they should be")
        size += group.length
    if size != end:
        raise ValueError(f"its filters take {size} bytes, and there are {end}")


def decode_bundle(data: bytes, directory_bytes: int) -> BundleContent:
    """The content of a whole bundle.

    Raises:
        SplitError: It is damaged.
    """
    if not data.startswith(BUNDLE_MAGIC) or directory_bytes > len(data):
        raise SplitError("it is no filter bundle")
    view = memoryview(data)
    directory = BundleDirectory.decode(view[len(data) - directory_bytes :], len(data))
    groups: dict[tuple[str, int], tuple[Numbers, Bits]] = {}
    for group in directory.groups:
        numbers = range(-(-group.blocks // group.page_blocks))
        pages = [group.decode_page(n, view[slice(*group.page_range(n))]) for n in numbers]
        if (group.field, group.blocks) in groups:
            raise SplitError(f"it has two groups of '{group.field}' with {group.blocks} blocks")
        groups[group.field, group.blocks] = (group.members, np.concatenate(pages).transpose(1, 0, 2))
    return BundleContent(directory.keys, groups)
