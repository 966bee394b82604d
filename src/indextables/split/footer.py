"""The metadata of a split: the key `indextables.split` in its Parquet footer.

The footer has everything that the log's `add` needs, the offset of each file of the index, and the mapping
of the row ids of the index to row numbers (PROTOCOL.md, "The split"). Reading it costs one or two ranged
reads. Before the footer are the page index and the term filters, which on object stores are read with it and
cached.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, Struct

from indextables.cache import Cache
from indextables.errors import SplitError
from indextables.limits import MAX_INDEX_BYTES, MAX_INDEX_META, MAX_PARQUET_FOOTER
from indextables.records import dataclass
from indextables.schema.values import null_counts
from indextables.split.checksum import CHECKSUM_FORMAT, ChunkChecksums, is_sealed
from indextables.split.mapping import Mapping
from indextables.split.tantivy_layout import POSITIONS_SUFFIX
from indextables.store import CacheScope, Store

# Index files are compressed in blocks of this many bytes.
BLOCK_BYTES = 4 << 20
META = "meta.json"
# The compressed size of a block that zstd cannot compress: a little more than the block.
_LONGEST_BLOCK = BLOCK_BYTES + BLOCK_BYTES // 64

# The names that index files have (PROTOCOL.md, "Index files").
_NAME = re.compile(r"meta\.json|[0-9a-f]{32}\.(term|idx|pos|fast|fieldnorm|store)")

Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Crc: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Source: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
# Field, size, offset, length, checksum, lengths of packed blocks.
PieceJson: TypeAlias = tuple[str | None, Count, Count, Count, _Crc, list[Count]]
FORMAT_VERSION = 3
# The format of companion splits, which have row positions in source files instead of rows.
COMPANION_FORMAT = 4
# The formats that this release reads.
_READ_VERSIONS = (1, 2, 3, 4)
# How many replaced splits a merged one names.
_MAX_REPLACED = 5000
FOOTER_KEY = b"indextables.split"
CHECKSUM_KEY = b"indextables.split.crc32"
MAGIC = b"PAR1"
# The Parquet column with the row number.
ROW_COLUMN = "_row"
# The only other column of a companion split: the position of a row in its source file.
POSITION_COLUMN = "_position"
POSITIONS = pa.schema([pa.field(POSITION_COLUMN, pa.int64(), nullable=False)])
# In the log's `splitTags`: a Parquet split of this engine, and one that is a companion split.
PARQUET_TAG = "parquet"
COMPANION_TAG = "companion"
# A row id of the index is `source << ROW_BITS | row of that source`.
ROW_BITS = 32
_TAIL = 64 << 10

# Term filters: bytes of a block, blocks of a page, bytes of a page's checksum, the maximum of blocks (32
# MiB).
FILTER_BLOCK_BYTES = 32
FILTER_PAGE_BLOCKS = 64
FILTER_CRC_BYTES = 4
MAX_FILTER_BLOCKS = 1 << 20

# The checksums of column chunks, by row group and leaf column.
Checksums: TypeAlias = Sequence[Sequence[ChunkChecksums]]
# Reads a split from a position to its end, given its size.
ReadTail: TypeAlias = Callable[[Store, str, int, int], bytes]


# The share of a split that is read before the footer: term filters take up to 2%, page indexes less than 1%.
_TAIL_SHARE = 0.03
_LEAST_TAIL_BYTES = 16 << 10
_MAX_TAIL_BYTES = 768 << 10
# The part of a small split that is read with the footer, so that it includes the term dictionaries.
_DICTIONARY_TAIL_SHARE = 0.2
_DICTIONARY_TAIL_BYTES = 128 << 10
# The maximum size of all cached tails.
_MAX_CACHE_BYTES = 32 << 20

_Tail = tuple[int, bytes]
_tails: Cache[tuple[CacheScope, str, int], _Tail] = Cache(weigh=lambda tail: len(tail[1]))


class FilterPlace(NamedTuple):
    """Where the filter of a field is in its split."""

    field: str
    offset: int
    blocks: int

    @property
    def length(self) -> int:
        """Its bytes, with the checksums of pages."""
        return filter_bytes(self.blocks)


def filter_bytes(blocks: int) -> int:
    """The bytes of a filter of this many blocks, with the checksums of its pages.

    >>> filter_bytes(1), filter_bytes(128)
    (36, 4104)
    """
    return blocks * FILTER_BLOCK_BYTES + -(-blocks // FILTER_PAGE_BLOCKS) * FILTER_CRC_BYTES


class IndexFileJson(Struct):
    """An index file: its pieces; in format 1 a file is one piece."""

    name: str
    pieces: list[PieceJson] | None = None
    size: Count | None = None
    offset: Count | None = None
    length: Count | None = None
    crc32: _Crc | None = None
    blocks: list[Count] | None = None

    def all_pieces(self) -> list[PieceJson]:
        """Its pieces, of format 1 or later; ValueError if it has none."""
        if self.pieces:
            return self.pieces
        if None in (self.size, self.offset, self.length, self.crc32, self.blocks):
            raise ValueError(f"the index file {self.name!r} has no pieces")
        piece = (None, self.size, self.offset, self.length, self.crc32, self.blocks)
        return [msgspec.convert(piece, PieceJson)]


class IndexedFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A source file whose rows a companion split indexes.

    Attributes:
        path: relative to the source, or a URL.
        size: its bytes.
        records: all of its rows, deleted ones included.
        rows: the rows that are indexed: those that were not deleted.
        values: columns with one value in all rows of the file, as an Arrow stream of one row in base 64.
        etag: its ETag or time, if the source's format has nothing else that identifies a replaced file.
        modified_ms: its time, if it has an `etag`.
        deletes: identifies the rows that were deleted; empty if none were.
    """

    path: str
    size: Count
    records: Count
    rows: Count
    values: str = ""
    etag: str = ""
    modified_ms: int | None = None
    deletes: str = ""


class Replacements(Struct, frozen=True, omit_defaults=True):
    """What a merge has indexed again, under other row ids: row id ranges of ours, and bundles by file name.

    With it a repair recognises the splits that are in a merged one. A range is its source and the number
    of its rows.
    """

    chunks: tuple[tuple[_Source, Count], ...] = ()
    files: tuple[str, ...] = ()

    def then(self, other: "Replacements") -> "Replacements":
        """The replacements of both, of which only so many of the last ones are kept."""
        chunks, files = (*self.chunks, *other.chunks), (*self.files, *other.files)
        return Replacements(chunks[-_MAX_REPLACED:], files[-_MAX_REPLACED:])


class FooterJson(Struct, rename="camel"):
    """The JSON of the footer; unknown keys are ignored.

    A split may come from an untrusted writer: names become files in the cache, and sizes become memory. So
    every value is checked before it is used.
    """

    format_version: int
    created_time: Count
    num_records: Count
    schema: str
    mapping: msgspec.Raw
    partition_values: dict[str, str | None]
    min_values: dict[str, str]
    max_values: dict[str, str]
    uncompressed_size_bytes: Count
    num_merge_ops: Count
    chunks: list[tuple[_Source, Count, Count]]
    index: list[IndexFileJson]
    stats: str | None = None
    checksums: list[list[tuple[_Crc, _Crc | None, _Crc | None]]] | None = None
    source_files: list[IndexedFile] | None = None
    term_filters: list[tuple[str, Count, Count]] = []
    replaced: Replacements = Replacements()


class _Version(Struct, rename="camel"):
    format_version: int


def format_version(text: bytes) -> int:
    """The format of the footer, decoded first: a newer one may differ in everything else."""
    return msgspec.json.decode(text, type=_Version).format_version


def check_file(file: IndexFileJson) -> None:
    """Raise ValueError unless an index file has a valid name and pieces whose sizes agree."""
    if _NAME.fullmatch(file.name) is None:
        raise ValueError(f"{file.name!r} is not the name of an index file")
    pieces = file.all_pieces()
    for _, size, _, length, _, blocks in pieces:
        whole = -(-size // BLOCK_BYTES)
        fits = (
            len(blocks) == whole and sum(blocks) == length and max(blocks) <= _LONGEST_BLOCK
            if blocks
            else length == size
        )
        if not fits:
            raise ValueError(f"the index file {file.name} has a piece whose sizes contradict each other")
    if file.name == META and sum(piece[1] for piece in pieces) > MAX_INDEX_META:
        raise ValueError(f"{META} has more than {MAX_INDEX_META} bytes")


def check_footer(footer: FooterJson, footer_start: int) -> None:
    """Raise ValueError unless index files are before the footer, and row id ranges are within the rows."""
    for file in footer.index:
        check_file(file)
    if len({file.name for file in footer.index}) != len(footer.index):
        raise ValueError("an index file is listed twice")
    pieces = [piece for file in footer.index for piece in file.all_pieces()]
    if any(not 4 <= offset <= offset + length <= footer_start for _, _, offset, length, _, _ in pieces):
        raise ValueError("an index file lies outside of the split")
    if sum(piece[1] for piece in pieces) > MAX_INDEX_BYTES:
        raise ValueError(f"its index has more than {MAX_INDEX_BYTES} bytes")
    rows = footer.num_records
    if any(start + count > rows for _, start, count in footer.chunks):
        raise ValueError("a row id range has rows that the split does not have")
    if len({source for source, _, _ in footer.chunks}) != len(footer.chunks):
        raise ValueError("two row id ranges have the same source")
    if (footer.source_files is None) != (footer.format_version != COMPANION_FORMAT):
        raise ValueError("source files belong to the format of companion splits only")
    files = footer.source_files or []
    if footer.source_files is not None and sum(file.rows for file in files) != rows:
        raise ValueError("its source files have more or fewer rows than it has")
    if any(file.rows > file.records for file in files):
        raise ValueError("a source file has fewer rows than are indexed")
    _check_filters(footer.term_filters, footer_start)


def _check_filters(places: Sequence[tuple[str, int, int]], footer_start: int) -> None:
    """Raise ValueError unless term filters have a valid size and are before the footer."""
    for place in (FilterPlace(*each) for each in places):
        if not 1 <= place.blocks <= MAX_FILTER_BLOCKS:
            raise ValueError(f"the term filter of '{place.field}' has {place.blocks} blocks")
        if not 4 <= place.offset <= place.offset + place.length <= footer_start:
            raise ValueError(f"the term filter of '{place.field}' lies outside of the split")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an index file: `size` bytes at `start` of the file, `length` bytes at `offset` of the split.

    `field` is the only field that needs the piece; None if every search needs it. `blocks` are the lengths
    of its compressed blocks, each of `BLOCK_BYTES` uncompressed bytes but for the last; empty if the piece
    is not compressed. `crc32` is that of the stored bytes.
    """

    file: str
    start: int
    field: str | None
    size: int
    offset: int
    length: int
    crc32: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of the Tantivy index: its pieces, one after the other."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """The length of the file."""
        return sum(piece.size for piece in self.pieces)

    def to_json(self) -> dict[str, Any]:
        """The file as JSON of the footer."""
        pieces = [[p.field, p.size, p.offset, p.length, p.crc32, p.blocks] for p in self.pieces]
        return {"name": self.name, "pieces": pieces}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "IndexFile":
        """The file from JSON of a footer; in format 1 a file is one piece."""
        file = msgspec.convert(value, IndexFileJson)
        check_file(file)
        return cls.of(file)

    @classmethod
    def of(cls, file: IndexFileJson) -> "IndexFile":
        """The file from checked JSON."""
        pieces = []
        start = 0
        for field, size, offset, length, crc32, blocks in file.all_pieces():
            pieces.append(Piece(file.name, start, field, size, offset, length, crc32, tuple(blocks)))
            start += size
        return cls(file.name, tuple(pieces))


@dataclass(frozen=True, slots=True)
class RowIdRange:
    """Rows that were written together: row ids `source << 32 | i` are the rows `start + i`."""

    source: int
    start: int
    rows: int


def positions_key(field: str) -> str:
    """The key of a field's positions in `Footer.pieces`; no field has such a name."""
    return f"positions:{field}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """The metadata of a split in the log: number of rows, statistics and document mapping."""

    num_records: int
    mapping: Mapping
    partition_values: dict[str, str | None]
    min_values: dict[str, str]
    max_values: dict[str, str]
    stats: str | None
    uncompressed_bytes: int
    num_merge_ops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMetadata(SplitSummary):
    """The metadata that a writer stores in the footer.

    `schema` is the table's, partition columns included, without `_row`. `source_files` are those of a
    companion split, in the order of its rows; None if the split has the rows itself. `term_filters` are the
    filters of fields that have one. `replaced` are splits whose rows it has under other row ids.
    """

    schema: pa.Schema
    created_ms: int
    row_id_ranges: tuple[RowIdRange, ...]
    index_files: tuple[IndexFile, ...]
    source_files: tuple[IndexedFile, ...] | None = None
    term_filters: tuple[FilterPlace, ...] = ()
    replaced: Replacements = Replacements()


@dataclass(frozen=True, kw_only=True)
class Footer(SplitMetadata):
    """The metadata of a split, without its rows and index.

    `parquet` is Parquet's own metadata, to open the rows without reading it again. `checksums` are those of
    the rows; None in formats that have none.
    """

    path: str
    size: int
    footer_start: int
    parquet: pq.FileMetaData
    checksums: Checksums | None = None

    @classmethod
    def without_index(cls, path: str, size: int, schema: pa.Schema, mapping: Mapping, rows: int) -> "Footer":
        """A footer for a file whose rows have no index yet: one row id range, no index files."""
        return cls(
            path=path, size=size, footer_start=0, num_records=rows, schema=schema, mapping=mapping,
            partition_values={}, min_values={}, max_values={}, stats=None, uncompressed_bytes=0,
            num_merge_ops=0, created_ms=0, row_id_ranges=(RowIdRange(0, 0, rows),), index_files=(),
            parquet=None,
        )  # fmt: skip

    @property
    def footer_end(self) -> int:
        """Where the footer ends: at the end of the file."""
        return self.size

    @property
    def index_bytes(self) -> int:
        """The uncompressed size of the index."""
        return sum(file.size for file in self.index_files)

    @cached_property
    def null_counts(self) -> dict[str, int]:
        """The number of nulls of each column, if known."""
        return null_counts(self.stats)

    def index_key(self, url: str) -> str:
        """Identifies the content of the index by the split below a URL and the checksums of its files."""
        if (key := self._index_keys.get(url)) is None:
            sums = (f"{p.file}:{p.crc32}" for file in self.index_files for p in file.pieces)
            text = "\n".join([url, self.path, str(self.size), *sums])
            key = self._index_keys[url] = hashlib.sha256(text.encode()).hexdigest()
        return key

    @cached_property
    def _index_keys(self) -> dict[str, str]:
        return {}

    @cached_property
    def pieces(self) -> dict[str | None, list[Piece]]:
        """The pieces of the index by the field that needs them; those that every search needs under None.

        Pieces that only phrases need are under the `positions_key` of their field.
        """
        pieces: dict[str | None, list[Piece]] = {None: []}
        for file in self.index_files:
            for piece in file.pieces:
                field = piece.field
                if field is not None and file.name.endswith(POSITIONS_SUFFIX):
                    field = positions_key(field)
                pieces.setdefault(field, []).append(piece)
        return pieces

    def row_numbers(self, ids: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Turn row ids (values of the index field `_row`) into row numbers, in the same order."""
        if len(self.row_id_ranges) == 1:
            only = self.row_id_ranges[0]
            return ids - (only.source << ROW_BITS) + only.start
        sources = np.array([each.source for each in self.row_id_ranges], np.int64)
        starts = np.array([each.start for each in self.row_id_ranges], np.int64)
        order = np.argsort(sources)
        which = order[np.minimum(np.searchsorted(sources[order], ids >> ROW_BITS), len(order) - 1)]
        if not np.array_equal(sources[which], ids >> ROW_BITS):
            raise SplitError(
                f"{self.path}: the index has row ids outside of all ranges; the split is damaged"
            )
        return starts[which] + (ids & ((1 << ROW_BITS) - 1))


def encode_footer(footer: SplitMetadata, checksums: Checksums) -> dict[str, str]:
    """The key-values of the Parquet footer: the metadata with the checksums of rows, and its own checksum."""
    companion = footer.source_files is not None
    text = json.dumps(
        {
            "formatVersion": COMPANION_FORMAT if companion else FORMAT_VERSION,
            "createdTime": footer.created_ms,
            "numRecords": footer.num_records,
            "schema": base64.b64encode(footer.schema.serialize().to_pybytes()).decode(),
            "mapping": json.loads(footer.mapping.to_json()),
            "partitionValues": footer.partition_values,
            "minValues": footer.min_values,
            "maxValues": footer.max_values,
            "stats": footer.stats,
            "uncompressedSizeBytes": footer.uncompressed_bytes,
            "numMergeOps": footer.num_merge_ops,
            "chunks": [[c.source, c.start, c.rows] for c in footer.row_id_ranges],
            "index": [file.to_json() for file in footer.index_files],
            "checksums": [[[c.chunk, c.column_index, c.offset_index] for c in group] for group in checksums],
            **({"sourceFiles": msgspec.to_builtins(footer.source_files)} if companion else {}),
            **({"termFilters": footer.term_filters} if footer.term_filters else {}),
            **({"replaced": replaced} if (replaced := msgspec.to_builtins(footer.replaced)) else {}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )  # fmt: skip
    return {FOOTER_KEY.decode(): text, CHECKSUM_KEY.decode(): str(zlib.crc32(text.encode()))}


def read_footer(
    store: Store,
    path: str,
    size: int | None = None,
    start: int | None = None,
    *,
    tail: ReadTail | None = None,
) -> Footer:
    """Read a split's footer; with its size and footer's start (both are in the log) in one ranged read.

    Args:
        store: where the split is.
        path: its path.
        size: its size.
        start: where its footer starts.
        tail: reads the bytes from a position to the end (`read_tail`); by default just those.

    Raises SplitError, naming the split, if the file is cut, not Parquet, not a split, or of a newer format.
    """
    where = f"{store.url}/{path}"
    size = store.head(path).size if size is None else size
    if size < 12:
        raise SplitError(
            f"{where}: {size} bytes are too few for a split; the file is truncated or not a split"
        )
    usable = start is not None and max(0, size - 8 - MAX_PARQUET_FOOTER) <= start < size - 8
    begin = start if start is not None and usable else max(0, size - _TAIL)
    data = store.get_range(path, begin, size) if tail is None else tail(store, path, begin, size)
    if len(data) != size - begin or data[-4:] != MAGIC:
        raise SplitError(
            f"{where}: the file does not end as a Parquet file of {size} bytes; it is truncated or damaged"
        )
    length = int.from_bytes(data[-8:-4], "little")
    footer_start = size - 8 - length
    if footer_start < 4:
        raise SplitError(f"{where}: the footer's length ({length} bytes) exceeds the file; it is damaged")
    if length > MAX_PARQUET_FOOTER:
        raise SplitError(f"{where}: the footer's length ({length} bytes) exceeds {MAX_PARQUET_FOOTER} bytes")
    if footer_start < begin:
        data = store.get_range(path, footer_start, begin) + data
    return _decode(data[-8 - length :], where, path, size, footer_start)


def _decode(tail: bytes, where: str, path: str, size: int, footer_start: int) -> Footer:
    try:
        sealed = is_sealed(tail[:-8])
        # Parquet's reader starts at the end, so the footer alone is enough.
        parquet = pq.read_metadata(pa.BufferReader(MAGIC + tail))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SplitError(f"{where}: the Parquet footer is damaged ({error})") from error
    text = (parquet.metadata or {}).get(FOOTER_KEY)
    if text is None:
        raise SplitError(f"{where}: a Parquet file, but not a split: its footer has no {FOOTER_KEY.decode()}")
    if str(zlib.crc32(text)).encode() != parquet.metadata.get(CHECKSUM_KEY):
        raise SplitError(f"{where}: the split's footer is damaged (its checksum differs)")
    try:
        footer = _footer_of(text, path, size, footer_start, parquet)
    except SplitError as error:
        raise SplitError(f"{where}: {error}") from error
    except (ValueError, KeyError, TypeError, OSError, RecursionError, pa.ArrowException) as error:
        raise SplitError(
            f"{where}: the split's footer cannot be understood ({type(error).__name__}: {error})"
        ) from error
    if footer.checksums is not None and not sealed:
        raise SplitError(f"{where}: the Parquet footer is damaged (its checksum is missing)")
    return footer


def _footer_of(text: bytes, path: str, size: int, footer_start: int, parquet: pq.FileMetaData) -> Footer:
    version = format_version(text)
    if version not in _READ_VERSIONS:
        versions = f"{_READ_VERSIONS[0]} to {_READ_VERSIONS[-1]}"
        raise SplitError(f"split format {version} is unknown, this release reads {versions}; upgrade")
    footer = msgspec.json.decode(text, type=FooterJson)
    ranges = tuple(RowIdRange(*stored_range) for stored_range in footer.chunks)
    rows = footer.num_records
    if parquet.num_rows != rows or sum(each.rows for each in ranges) != rows:
        raise ValueError(f"{rows} rows are expected, {parquet.num_rows} are in the file")
    check_footer(footer, footer_start)
    return Footer(
        path=path,
        size=size,
        footer_start=footer_start,
        num_records=rows,
        schema=_schema(footer.schema),
        mapping=_mapping(bytes(footer.mapping)),
        partition_values=footer.partition_values,
        min_values=footer.min_values,
        max_values=footer.max_values,
        stats=footer.stats,
        uncompressed_bytes=footer.uncompressed_size_bytes,
        num_merge_ops=footer.num_merge_ops,
        created_ms=footer.created_time,
        row_id_ranges=ranges,
        index_files=tuple(IndexFile.of(file) for file in footer.index),
        source_files=None if footer.source_files is None else tuple(footer.source_files),
        term_filters=tuple(FilterPlace(*each) for each in footer.term_filters),
        replaced=footer.replaced,
        parquet=parquet,
        checksums=_checksums(footer, parquet) if version >= CHECKSUM_FORMAT else None,
    )


@lru_cache(maxsize=64)
def _schema(text: str) -> pa.Schema:
    """A schema in base 64; splits of a table share the object."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


@lru_cache(maxsize=64)
def _mapping(text: bytes) -> Mapping:
    """A document mapping; splits of a table share the object."""
    return Mapping.from_json(text)


def _checksums(footer: FooterJson, parquet: pq.FileMetaData) -> Checksums:
    checksums = tuple(tuple(ChunkChecksums(*chunk) for chunk in group) for group in footer.checksums or ())
    if [len(group) for group in checksums] != [parquet.num_columns] * parquet.num_row_groups:
        raise ValueError("its checksums are not those of its column chunks")
    return checksums


def tail_bytes(size: int, *, dictionaries: bool = True) -> int:
    """How many bytes before the footer are read of a remote split of this size.

    They include the term filters, and of a small split the term dictionaries, unless these are not needed.
    """
    filters = min(max(int(size * _TAIL_SHARE), _LEAST_TAIL_BYTES), _MAX_TAIL_BYTES)
    with_dictionaries = min(int(size * _DICTIONARY_TAIL_SHARE), _DICTIONARY_TAIL_BYTES)
    return max(filters, with_dictionaries) if dictionaries else filters


def read_tail(store: Store, path: str, begin: int, size: int) -> bytes:
    """The bytes of a split from `begin` to its end; for a remote split, the bytes before them are cached.

    These are the page index, the term filters, and of a small split the term dictionaries.
    """
    return _read_tail(store, path, begin, size, tail_bytes(size))


def read_filter_tail(store: Store, path: str, begin: int, size: int) -> bytes:
    """As `read_tail`, without the term dictionaries."""
    return _read_tail(store, path, begin, size, tail_bytes(size, dictionaries=False))


def _read_tail(store: Store, path: str, begin: int, size: int, before: int) -> bytes:
    if store.is_local:
        return store.get_range(path, begin, size)
    start = max(0, begin - before)
    tail = store.get_range(path, start, size)
    if len(tail) == size - start:
        _tails.put((store.cache_scope, path, size), (start, tail), max_weight=_MAX_CACHE_BYTES)
    return tail[begin - start :]


def is_tail_cached(store: Store, path: str, size: int, start: int) -> bool:
    """Whether the bytes from `start` on are available without a request."""
    tail = _tails.get((store.cache_scope, path, size))
    return tail is not None and tail[0] <= start


def read_ranges(
    store: Store, path: str, size: int, ranges: Sequence[tuple[int, int]]
) -> list[bytes | memoryview]:
    """Ranges of a split, from its cached tail if possible."""
    tail = None if store.is_local else _tails.get((store.cache_scope, path, size))
    if tail is None:
        return list(store.get_ranges(path, ranges))
    start, tail_bytes = tail
    missing = [(begin, end) for begin, end in ranges if begin < start or end > size]
    read = iter(store.get_ranges(path, missing) if missing else ())
    return [
        next(read) if begin < start or end > size else tail_bytes[begin - start : end - start]
        for begin, end in ranges
    ]


def drop_cached_tails() -> None:
    """Release all tails."""
    _tails.clear()
