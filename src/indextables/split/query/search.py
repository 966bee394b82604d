"""Searching an opened index: row numbers, counts, the best rows, and what to highlight in them.

An index is opened from the local disk cache and stays open in the process for the next search, as long as
there is room (`cache.maxSize`).
"""

import hashlib
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import tantivy
from tantivy import Order, Query

from indextables import metrics
from indextables.errors import SplitError
from indextables.options import Options, reading
from indextables.split.footer import Footer
from indextables.split.index.cache import Lease, Writer, index_cache
from indextables.split.index.files import META, live_files, unpack
from indextables.split.index.folders import remove_folder
from indextables.split.index.tokenizers import register
from indextables.split.mapping import ROW_FIELD, Kind
from indextables.split.parts import BY_FIELD, DIRECTORY, PARTS, field_columns, stretches
from indextables.split.query.verdict import ALL, NOTHING, without
from indextables.split.query.view import IndexView, null_counts
from indextables.store import Store

Rows: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Scores: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

# Metrics: an index that was open or on the local disk, and one that had to be fetched.
CACHE_HIT = "indextables.index_cache.hit"
CACHE_MISS = "indextables.index_cache.miss"

# So many hits are taken along with their count in one call.
_FIRST_HITS = 1024


@dataclass(frozen=True, slots=True)
class Top:
    """Row numbers with their scores, the best first."""

    rows: Rows
    scores: Scores


class OpenIndex:
    """The index of one split, open for searching."""

    def __init__(self, footer: Footer, lease: Lease, index: tantivy.Index) -> None:
        self.footer = footer
        self.lease = lease
        self.view = IndexView(
            index=index,
            searcher=index.searcher(),
            mapping=footer.mapping,
            columns=footer.schema,
            num_rows=footer.num_records,
            null_counts=null_counts(footer.stats),
        )

    def view_with(self, constants: Mapping[str, pa.Scalar]) -> IndexView:
        """The index as conditions see it, given the columns that are the same in every row."""
        return replace(self.view, constants=constants) if constants else self.view

    def count(self, query: Query) -> int:
        """How many rows match."""
        if query is ALL:
            return self.footer.num_records
        return 0 if query is NOTHING else _count(self.view.searcher.search(query, limit=1))

    def rows(self, query: Query) -> Rows:
        """The numbers of all rows that match, in order."""
        found = self.rows_unless_many(query, self.footer.num_records)
        assert found is not None, "there are no more rows than all"
        return found

    def rows_unless_many(self, query: Query, most: int) -> Rows | None:
        """The numbers of all rows that match, in order; None if there are more than `most`."""
        total = self.footer.num_records
        if query is ALL or query is NOTHING or not total:
            rows = np.arange(total if query is ALL else 0, dtype=np.int64)
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
            # A hit costs more than a bit: take the fewer ones, those that do not match.
            mask = np.ones(total, np.bool_)
            mask[self.rows(without(ALL, query))] = False
            return np.flatnonzero(mask)
        return self._numbers(self._by_row(query, count))

    def first(self, query: Query, limit: int) -> Rows:
        """The numbers of some rows that match, no more than `limit`, in order."""
        if query is ALL or query is NOTHING:
            return np.arange(min(limit, self.footer.num_records) if query is ALL else 0, dtype=np.int64)
        limit = min(limit, self.footer.num_records)
        return self._numbers(self._by_row(query, limit)) if limit else np.arange(0, dtype=np.int64)

    def top(self, query: Query, limit: int) -> Top:
        """The rows that match best, by BM25; equal scores in the order of the rows."""
        limit = min(limit, self.footer.num_records)
        if query is NOTHING or limit <= 0:
            return Top(np.arange(0, dtype=np.int64), np.zeros(0, np.float32))
        hits = self.view.searcher.search(query, limit=limit, count=False).hits
        scores = np.array([score for score, _ in hits], np.float32)
        ids = self.view.searcher.fast_field_values(ROW_FIELD, [address for _, address in hits])
        rows = self.footer.row_numbers(np.array(ids, np.int64))
        order = np.lexsort((rows, -scores))
        return Top(rows[order], scores[order])

    def aggregate(self, query: Query, request: dict[str, Any]) -> dict[str, Any]:
        """Tantivy's aggregation over the rows that match."""
        answer: dict[str, Any] = self.view.searcher.aggregate(query, request)
        return answer

    def highlight(
        self, query: Query, column: str, texts: Sequence[str | None], length: int
    ) -> list[str | None]:
        """A fragment of each text around the query's words, put in `<b>`; None where there are none.

        Of a column that the split does not index there are none: it may have come to the table later.
        """
        field = self.view.mapping.find(column, Kind.TEXT)
        if field is None and not self.view.mapping.of(column):
            return [None] * len(texts)
        if field is None:
            raise SplitError(f"'{column}' is not indexed as text, so nothing in it can be highlighted")
        generator = tantivy.SnippetGenerator.create(self.view.searcher, query, self.view.schema, field.name)
        generator.set_max_num_chars(length)
        found: list[str | None] = []
        for text in texts:
            document = tantivy.Document.from_dict({field.name: text or ""}, self.view.schema)
            snippet = generator.snippet_from_doc(document)
            found.append(snippet.to_html() if snippet.highlighted() else None)
        return found

    def _by_row(self, query: Query, limit: int) -> tantivy.SearchResult:
        return self.view.searcher.search(query, limit=limit, order_by_field=ROW_FIELD, order=Order.Asc)

    def _numbers(self, found: tantivy.SearchResult) -> Rows:
        hits = found.hits
        ids = np.fromiter(map(itemgetter(0), hits), np.int64, len(hits))
        rows = self.footer.row_numbers(ids)
        # Chunks of a merged split may stand in another order than their ids.
        return np.sort(rows) if len(self.footer.chunks) > 1 else rows


def _count(result: tantivy.SearchResult) -> int:
    found: int = result.count  # type: ignore[attr-defined]  # tantivy's stub forgot it
    return found


_open: OrderedDict[str, OpenIndex] = OrderedDict()
_open_lock = threading.Lock()


def open_index(store: Store, footer: Footer, options: Options) -> OpenIndex:
    """The index of a split: open already, or from the disk cache, or copied there first."""
    where = f"{store.url}/{footer.path}"
    return _kept_open(_key(store, footer), footer, options, partial(unpack, store, footer), where)


def open_built(store: Store, footer: Footer, options: Options, build: Callable[[], Path]) -> OpenIndex:
    """The index of a split that has none we can search: built once, then kept like others.

    `build` makes the index in a folder, which is taken over.
    """

    def move(folder: Path) -> None:
        made = build()
        try:
            for file in live_files(made):
                shutil.move(file, folder / file.name)
        finally:
            remove_folder(made)

    mapping = footer.mapping.to_json()
    key = hashlib.sha256("\n".join([store.url, footer.path, str(footer.size), mapping]).encode()).hexdigest()
    return _kept_open(key, footer, options, move, f"{store.url}/{footer.path}", built=True)


def _kept_open(
    key: str,
    footer: Footer,
    options: Options,
    write: Writer,
    where: str,
    *,
    built: bool = False,
) -> OpenIndex:
    cache = index_cache(options)
    name = f"{cache.folder}/{key}"
    with _open_lock:
        if (found := _open.get(name)) is not None:
            _open.move_to_end(name)
            metrics.record(CACHE_HIT, 1)
            return found
    before = cache.misses
    lease = cache.lease(key, None if built else footer.index_bytes, write)
    metrics.record(CACHE_MISS if cache.misses > before else CACHE_HIT, 1)
    made = OpenIndex(footer, lease, _opened(lease, footer, where))
    limit = options.get(reading.OPEN_INDEXES_SIZE)
    with _open_lock:
        kept = _open.setdefault(name, made)
        dropped = _overflow(limit)
    # Indexes that somebody still searches stay open until he is done; their lock goes with them.
    del dropped
    return kept


def _opened(lease: Lease, footer: Footer, where: str) -> tantivy.Index:
    try:
        index = tantivy.Index.open(str(lease.folder))
    except ValueError as error:
        lease.close()
        raise SplitError(f"{where}: its index cannot be opened ({error}); the split is damaged") from error
    register(index, footer.mapping)
    return index


def _overflow(limit: int) -> list[OpenIndex]:
    """Take the longest unused indexes out of the list until the others fit; one always stays."""
    dropped = []
    size = sum(each.lease.size for each in _open.values())
    while size > limit and len(_open) > 1:
        _, oldest = _open.popitem(last=False)
        size -= oldest.lease.size
        dropped.append(oldest)
    return dropped


def _key(store: Store, footer: Footer) -> str:
    """Names the content of an index part: the split, and the checksums of its files."""
    said = [store.url, footer.path, str(footer.size), *(f"{f.name}:{f.crc32}" for f in footer.index_files)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _forget() -> None:
    """A forked child opens indexes of its own; the parent's lock may be held for ever."""
    global _open_lock  # noqa: PLW0603 - the child's own
    _open_lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


def is_cached(store: Store, footer: Footer, options: Options) -> bool:
    """Whether the index of a split is in the local cache."""
    return index_cache(options).holds(_key(store, footer))


def close_indexes() -> int:
    """Close every index that this process keeps open; returns how many there were."""
    with _open_lock:
        dropped = list(_open.values())
        _open.clear()
    return len(dropped)


def prewarm(
    store: Store,
    footer: Footer,
    options: Options,
    parts: Iterable[str] = ("TERM", "POSTINGS"),
    columns: Collection[str] = (),
) -> int:
    """Bring a split's index into the disk cache, open it, and read the named parts into memory.

    Returns how many bytes were read. Parts are the keys of `PARTS`. With columns, of files that keep fields
    apart only theirs are read.
    """
    opened = open_index(store, footer, options)
    suffixes = tuple(suffix for part in parts for suffix in PARTS[part])
    folder = opened.lease.folder
    fields = field_columns((folder / META).read_bytes())
    wanted = {number for number, column in enumerate(fields) if column in columns} if columns else None
    return sum(
        _read_through(Path(item.path), wanted) for item in os.scandir(folder) if item.name.endswith(suffixes)
    )


def _read_through(path: Path, fields: Collection[int] | None) -> int:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        spans = [(0, size)]
        if fields is not None and path.suffix in BY_FIELD:
            file.seek(max(0, size - DIRECTORY))
            found = stretches(file.read(), size)
            spans = [(stretch.start, stretch.end) for stretch in found if stretch.field in fields]
        return sum(_read_span(file, start, end) for start, end in spans)


def _read_span(file: IO[bytes], start: int, end: int) -> int:
    file.seek(start)
    read = 0
    while read < end - start and (chunk := file.read(min(1 << 22, end - start - read))):
        read += len(chunk)
    return read
