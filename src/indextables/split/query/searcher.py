"""Searches over one index: row numbers, counts, the best rows, highlights, and prewarming.

An index is opened from the local disk cache and stays open in the process for the next search, as long as
there is room (`cache.maxSize`).
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import tantivy
from tantivy import Order, Query

from indextables import metrics
from indextables.cache import Cache
from indextables.errors import SplitError, is_panic
from indextables.limits import is_resource_exhausted, max_mapped_files, max_open_files
from indextables.options import Options, reading
from indextables.records import dataclass
from indextables.split.footer import META, Footer, positions_key
from indextables.split.index.cache import IndexCache, Lease, Writer, index_cache
from indextables.split.index.cache_entry import CachedPiece, whole_files
from indextables.split.index.files import committed_files, copy_pieces, create_files, remove_folder
from indextables.split.index.loader import (
    Dictionary,
    FastColumn,
    IndexLoader,
    IndexPart,
    LoadedParts,
    TermList,
    first_pieces,
)
from indextables.split.index.tokenizers import register_tokenizers
from indextables.split.mapping import ROW_FIELD, SYSTEM_FIELDS, Kind
from indextables.split.query.index_view import FieldTerm, IndexView, TermStatistics
from indextables.split.query.row_sets import ALL_ROWS, NO_ROWS, subtract
from indextables.split.tantivy_layout import (
    FILES_BY_FIELD,
    INDEX_COMPONENTS,
    MAX_DIRECTORY_BYTES,
    column_of,
    field_names,
    field_ranges,
)
from indextables.store import Store

P = ParamSpec("P")
T = TypeVar("T")
Rows: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Scores: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

# Metrics: indexes that were open or in the disk cache, and indexes that were fetched.
CACHE_HIT = "indextables.index_cache.hit"
CACHE_MISS = "indextables.index_cache.miss"

# The maximum number of open indexes, for any limits of the process.
_MAX_OPEN = 1024
# The limits of open indexes are checked when this share of them is new.
_CHECKED_SHARE = 16
# Additional memory maps of an open index: the stack of a thread.
_MAPS_BESIDE = 2

# The version of indexes that are built for Quickwit bundles; a change of their content needs a new one.
_REBUILD_VERSION = "2"
# The hits that are returned with their count by one call.
_FIRST_HITS = 1024


class AggregationRefusedError(Exception):
    """Tantivy cannot compute an aggregation: too many groups, or an unsuitable field."""


class _Searchable(Protocol):
    """An open index: the location of its split, and how to remove its cache entry."""

    where: str

    def discard(self) -> None:
        """Remove the cache entry; the next search fetches it again."""
        ...


G = TypeVar("G", bound=_Searchable)


def translate_errors(method: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
    """Decorate a search: errors and panics of the library become a SplitError."""

    @wraps(method)
    def search(self: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            if not isinstance(error, ValueError | TypeError) and not is_panic(error):
                raise
            self.discard()
            raise SplitError(
                f"{self.where}: its index could not be searched ({error}); its copy in the cache was "
                "removed: repeat the query"
            ) from error

    return search


@dataclass(frozen=True, slots=True)
class TopRows:
    """Row numbers with their scores, the best first."""

    rows: Rows
    scores: Scores


class CachedIndex:
    """An index in the disk cache, open in this process; it has no store, so that all readers can share it."""

    def __init__(self, lease: Lease, index: tantivy.Index) -> None:
        self.lease = lease
        self.index = index
        self.searcher = index.searcher()
        meta = msgspec.json.decode((lease.folder / META).read_bytes(), type=_MetaJson)
        # Indexes with the same schema share the text.
        self.index_schema = sys.intern(bytes(meta.schema).decode())
        self.smallest_segment = min((segment.max_doc for segment in meta.segments), default=0)
        self.loaded = LoadedParts()


class _SegmentJson(msgspec.Struct):
    max_doc: int


class _MetaJson(msgspec.Struct):
    schema: msgspec.Raw
    segments: list[_SegmentJson]


class IndexSearcher:
    """The index of one split, open for searching; missing pieces are read through a store."""

    def __init__(self, store: Store, footer: Footer, opened: CachedIndex) -> None:
        self.where = f"{store.url}/{footer.path}"
        self.footer = footer
        self.lease = opened.lease
        self._smallest_segment = opened.smallest_segment
        # After an error files may be missing, so the next search opens the index again.
        self.load = IndexLoader(store, footer, opened.lease, opened.loaded, partial(_close, opened.lease))
        self.view = IndexView(
            index=opened.index,
            searcher=opened.searcher,
            mapping=footer.mapping,
            columns=footer.schema,
            num_rows=footer.num_records,
            null_counts=footer.null_counts,
            load=self.load,
            index_schema=opened.index_schema,
        )

    def discard(self) -> None:
        """Remove the cache entry, which is damaged."""
        _close(self.lease)
        self.lease.discard()

    def view_with(self, constants: Mapping[str, pa.Scalar]) -> IndexView:
        """The view of the index with the columns that have one value in all rows."""
        return replace(self.view, constants=constants) if constants else self.view

    @translate_errors
    def count(self, query: Query) -> int:
        """How many rows match."""
        if query is ALL_ROWS:
            return self.footer.num_records
        return 0 if query is NO_ROWS else _count(self._searcher().search(query, limit=1))

    def rows(self, query: Query) -> Rows:
        """The numbers of all rows that match, in order."""
        hits = self.rows_up_to(query, self.footer.num_records)
        assert hits is not None, "there are no more rows than all"
        return hits

    def rows_up_to(self, query: Query, most: int) -> Rows | None:
        """The numbers of all rows that match, in order; None if there are more than `most`."""
        total = self.footer.num_records
        if query is ALL_ROWS or query is NO_ROWS or not total:
            rows = np.arange(total if query is ALL_ROWS else 0, dtype=np.int64)
            return rows if len(rows) <= most else None
        first = self._by_row(query, min(_FIRST_HITS, total))
        count = _count(first)
        if count > most:
            return None
        if count <= _FIRST_HITS:
            return self._numbers(first)
        if count == total:
            return np.arange(total, dtype=np.int64)
        if 2 * count > total:
            # More than half of the rows match: fetch the rows that do not match, and invert.
            mask = np.ones(total, np.bool_)
            mask[self.rows(subtract(ALL_ROWS, query))] = False
            return np.flatnonzero(mask)
        return self._numbers(self._by_row(query, count))

    def first(self, query: Query, limit: int) -> Rows:
        """The numbers of some rows that match, no more than `limit`, in order."""
        if query is ALL_ROWS or query is NO_ROWS:
            return np.arange(min(limit, self.footer.num_records) if query is ALL_ROWS else 0, dtype=np.int64)
        limit = min(limit, self.footer.num_records)
        return self._numbers(self._by_row(query, limit)) if limit else np.arange(0, dtype=np.int64)

    @translate_errors
    def top(self, query: Query, limit: int) -> TopRows:
        """The rows with the highest BM25 scores; equal scores in row order."""
        limit = min(limit, self.footer.num_records)
        if query is NO_ROWS or limit <= 0:
            return TopRows(np.arange(0, dtype=np.int64), np.zeros(0, np.float32))
        searcher = self._searcher(ROW_FIELD)
        hits = searcher.search(query, limit=limit, count=False).hits
        scores = np.array([score for score, _ in hits], np.float32)
        ids = searcher.fast_field_values(ROW_FIELD, [address for _, address in hits])
        rows = self.footer.row_numbers(np.array(ids, np.int64))
        order = np.lexsort((rows, -scores))
        return TopRows(rows[order], scores[order])

    @translate_errors
    def term_statistics(self, words: Iterable[FieldTerm]) -> TermStatistics:
        """The document frequencies of terms, and the average lengths of their fields."""
        terms = list(words)
        self.load(TermList(field, (word,)) for field, word in terms)
        lengths = {field: self.view.average_length(field, [word]) for field, word in terms}
        averages = {field: length for field, length in lengths.items() if length is not None}
        frequencies = {word: self.view.frequency(word) for word in terms}
        return TermStatistics(self.footer.num_records, frequencies, averages)

    @translate_errors
    def aggregate(self, query: Query, request: dict[str, Any]) -> dict[str, Any]:
        """Tantivy's aggregation over the rows that match; AggregationRefusedError if it cannot."""
        try:
            answer: dict[str, Any] = self._searcher().aggregate(query, request)
        except ValueError as error:
            raise AggregationRefusedError(str(error)) from error
        return answer

    @translate_errors
    def sample(self, fields: Sequence[str], count: int) -> list[tuple[float | None, ...]]:
        """The values of numeric fast fields in random documents, one of which may come more than once."""
        if not self._smallest_segment:
            return []
        searcher = self._searcher(*map(FastColumn, fields))
        generator = np.random.default_rng(count)
        segments = generator.integers(searcher.num_segments, size=count)
        documents = generator.integers(self._smallest_segment, size=count)
        addresses = list(map(tantivy.DocAddress, segments.tolist(), documents.tolist()))
        return list(zip(*(searcher.fast_field_values(name, addresses) for name in fields), strict=True))

    @translate_errors
    def highlight(
        self, query: Query, column: str, texts: Sequence[str | None], length: int
    ) -> list[str | None]:
        """A fragment of each text around the query's words, put in `<b>`; None where there are none.

        Columns that the split does not index have none; they may have been added later.
        """
        field = self.view.mapping.find(column, Kind.TEXT)
        if field is None and not self.view.mapping.fields_of(column):
            return [None] * len(texts)
        if field is None:
            raise SplitError(f"'{column}' is not indexed as text, so nothing in it can be highlighted")
        self.load.need((Dictionary(field.name),))
        generator = tantivy.SnippetGenerator.create(self._searcher(), query, self.view.schema, field.name)
        generator.set_max_num_chars(length)
        fragments: list[str | None] = []
        for text in texts:
            document = tantivy.Document.from_dict({field.name: text or ""}, self.view.schema)
            snippet = generator.snippet_from_doc(document)
            fragments.append(snippet.to_html() if snippet.highlighted() else None)
        return fragments

    def _searcher(self, *parts: IndexPart) -> tantivy.Searcher:
        """Tantivy's searcher, after all parts that queries need have been fetched."""
        self.load(parts)
        return self.view.searcher

    @translate_errors
    def _by_row(self, query: Query, limit: int) -> tantivy.SearchResult:
        return self._searcher(ROW_FIELD).search(query, limit=limit, order_by_field=ROW_FIELD, order=Order.Asc)

    @translate_errors
    def _numbers(self, result: tantivy.SearchResult) -> Rows:
        hits = result.hits
        ids = np.fromiter(map(itemgetter(0), hits), np.int64, len(hits))
        rows = self.footer.row_numbers(ids)
        # The rows of a merged split may be in another order than their ids.
        return np.sort(rows) if len(self.footer.row_id_ranges) > 1 else rows


def _single_fields(footer: Footer, columns: Iterable[str]) -> set[str]:
    """The fields of columns that have a single one."""
    own = (footer.mapping.fields_of(column) for column in columns)
    return {fields[0].name for fields in own if len(fields) == 1}


def _count(result: tantivy.SearchResult) -> int:
    count: int = result.count  # type: ignore[attr-defined]  # tantivy's stub forgot it
    return count


# By the content of an index: only a reader of the split can have this key.
_open_indexes: Cache[str, CachedIndex] = Cache()
_unchecked = 0


def open_index(store: Store, footer: Footer, options: Options, columns: Iterable[str] = ()) -> IndexSearcher:
    """The searcher of a split, whose index is open, in the disk cache, or fetched.

    If it is fetched, the fields of `columns` are fetched by the same requests; of large fields only the parts
    that every search for terms needs.
    """

    def write(folder: Path) -> list[CachedPiece]:
        create_files(footer, folder)
        fields = _single_fields(footer, columns)
        first = [*footer.pieces[None], *(piece for name in fields for piece in first_pieces(footer, name))]
        return copy_pieces(store, footer, folder, first)

    return _open_cached(footer.index_key(store.url), store, footer, options, write)


def open_rebuilt_index(
    store: Store, footer: Footer, options: Options, build: Callable[[], Path]
) -> IndexSearcher:
    """The searcher of a split without a usable index: the index is built once and cached.

    `build` builds the index in a folder, which is moved into the cache.
    """

    def move(folder: Path) -> list[CachedPiece]:
        built = build()
        try:
            for file in committed_files(built):
                shutil.move(file, folder / file.name)
        finally:
            remove_folder(built)
        return whole_files(folder)

    mapping = footer.mapping.to_json()
    parts = [store.url, footer.path, str(footer.size), mapping, _REBUILD_VERSION]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return _open_cached(key, store, footer, options, move, built=True)


def _open_cached(
    key: str,
    store: Store,
    footer: Footer,
    options: Options,
    write: Writer,
    *,
    built: bool = False,
) -> IndexSearcher:
    cache = index_cache(options)
    name = f"{cache.folder}/{key}"
    cached = _open_indexes.get(name)
    if cached is not None:
        if cached.lease.is_current():
            metrics.record(CACHE_HIT, 1)
            return IndexSearcher(store, footer, cached)
        _close(cached.lease)
    before = cache.misses
    size = None if built else footer.index_bytes
    try:
        opened = _open_entry(cache, key, size, write, store, footer)
    except SplitError as error:
        if not is_resource_exhausted(error) or not close_indexes():
            raise
        opened = _open_entry(cache, key, size, write, store, footer)
    metrics.record(CACHE_MISS if cache.misses > before else CACHE_HIT, 1)
    limit = options.get(reading.OPEN_INDEXES_SIZE)
    current = _open_indexes.put_if_absent(name, opened)
    # An evicted index stays open while it is referenced; then its lock is released.
    _evict_over_limit(limit)
    return IndexSearcher(store, footer, current)


def _open_entry(
    cache: IndexCache, key: str, size: int | None, write: Writer, store: Store, footer: Footer
) -> CachedIndex:
    where = f"{store.url}/{footer.path}"
    for last in (False, True):
        try:
            lease = cache.lease(key, size, write)
        except OSError as error:
            raise _cannot_open(where, error) from error
        try:
            index = tantivy.Index.open(str(lease.folder))
            register_tokenizers(index, footer.mapping)
            return CachedIndex(lease, index)
        except BaseException as error:
            if not isinstance(error, ValueError | OSError) and not is_panic(error):
                lease.close()
                raise
            # The cache entry was compared with its checksums, so that damage is recent, or in the split.
            if is_resource_exhausted(error) or last:
                lease.close()
                raise _cannot_open(where, error) from error
            lease.discard()
    raise AssertionError("the last attempt returns or raises")


def _cannot_open(where: str, error: BaseException) -> SplitError:
    if is_resource_exhausted(error):
        return SplitError(
            f"{where}: its index cannot be opened ({error}); raise the number of files that this process may "
            "open (ulimit -n), or close some"
        )
    return SplitError(f"{where}: its index cannot be opened ({error}); the split is damaged")


def _evict_over_limit(limit: int) -> None:
    """Close the least recently used indexes until the others fit; the last one stays open.

    An open index has an open lock file, mapped files, and a thread of Tantivy.
    """
    count, most_maps = max_open_files(_MAX_OPEN), max_mapped_files()

    global _unchecked  # noqa: PLW0603 - counts indexes of this process
    _unchecked += 1
    # The check looks at all open indexes, so it runs only after some new ones.
    if len(_open_indexes) <= count and _unchecked * _CHECKED_SHARE < len(_open_indexes):
        return
    _unchecked = 0

    def sizes(opened: CachedIndex) -> tuple[int, int, int]:
        return opened.lease.size, opened.lease.files + _MAPS_BESIDE, 1

    _open_indexes.evict_over(sizes, (limit, most_maps, count), slack=1 / _CHECKED_SHARE)


def is_cached(store: Store, footer: Footer, options: Options, columns: Iterable[str]) -> bool:
    """Whether the fields of some columns are in the disk cache; of large fields, whether their terms are."""
    pieces = [
        (piece.file, piece.start)
        for column in columns
        for field in footer.mapping.fields_of(column)
        for piece in first_pieces(footer, field.name)
    ]
    key = footer.index_key(store.url)
    cache = index_cache(options)
    opened = _open_indexes.get(f"{cache.folder}/{key}")
    if opened is not None and not any(map(opened.lease.is_missing, pieces)):
        return True
    if not pieces:
        return cache.holds(key)
    there = cache.pieces(key)
    return there is not None and there.issuperset(pieces)


def _close(lease: Lease) -> None:
    _open_indexes.discard(lambda _, opened: opened.lease is lease)


def close_indexes() -> int:
    """Close all open indexes of this process; returns their number."""
    return len(_open_indexes.clear())


def prewarm(
    store: Store,
    footer: Footer,
    options: Options,
    parts: Iterable[str] = ("TERM", "POSTINGS"),
    columns: Collection[str] = (),
) -> int:
    """Fetch a split's index into the disk cache, open it, and read components into memory.

    Returns the number of bytes that were read. `parts` are keys of `INDEX_COMPONENTS`. With columns, only
    their fields are fetched, and, where the files allow that, read.
    """
    opened = open_index(store, footer, options)
    folder = opened.lease.folder
    fields = field_names((folder / META).read_bytes())
    selection = {name for name in fields if not columns or column_of(name) in columns}
    opened.load((*selection, *SYSTEM_FIELDS, *map(positions_key, selection)))
    suffixes = tuple(suffix for part in parts for suffix in INDEX_COMPONENTS[part])
    return sum(
        _read_file(Path(item.path), fields, selection if columns else None)
        for item in os.scandir(folder)
        if item.name.endswith(suffixes)
    )


def _read_file(path: Path, fields: Sequence[str], selection: Collection[str] | None) -> int:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        spans = [(0, size)]
        if selection is not None and path.suffix in FILES_BY_FIELD:
            file.seek(max(0, size - MAX_DIRECTORY_BYTES))
            ranges = field_ranges(path.suffix, file.read(), size, fields)
            spans = [(part.start, part.end) for part in ranges if part.field in selection]
        return sum(_read_span(file, start, end) for start, end in spans)


def _read_span(file: IO[bytes], start: int, end: int) -> int:
    file.seek(start)
    read = 0
    while read < end - start and (chunk := file.read(min(1 << 22, end - start - read))):
        read += len(chunk)
    return read
