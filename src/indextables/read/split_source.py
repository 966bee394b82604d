"""Open splits: their rows by number or in order, and their index.

Footers and page indexes are cached in the process. The cache has no stores, and its keys include the
credentials that an entry was read with.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.cache import Cache
from indextables.errors import IndexTablesError, SplitError
from indextables.limits import is_resource_exhausted, max_open_files
from indextables.options import Options
from indextables.read.table_context import SplitRef, TableContext
from indextables.records import dataclass
from indextables.split.footer import Footer, drop_cached_tails, read_footer, read_tail
from indextables.split.index.term_filter import TermFilter
from indextables.split.parquet.reader import ReaderState, RowReader, slice_batch
from indextables.split.query.required_terms import TermFilters
from indextables.split.query.searcher import (
    IndexSearcher,
    close_indexes,
    is_cached,
    open_index,
    open_rebuilt_index,
)
from indextables.split.quickwit import bundle_rows
from indextables.split.writer import build_index
from indextables.store import CacheScope, Store

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_MAX_CACHED = 1024
# The maximum number of splits that are remembered as open before: their indexes are in the disk cache.
_MAX_READ = 100_000
# Pages of a split have few rows: above this share, evenly spread rows are in all pages.
DENSE = 0.01

_logger = logging.getLogger(__name__)
# Indexing at least this many rows of splits of IndexTables for Scala is logged as a warning.
_MANY_ROWS = 50_000
_REPORT_SECONDS = 5.0
# After such a pause, the count of rows starts again.
_PAUSE_SECONDS = 60.0


class SplitSource(Protocol):
    """A split of either format."""

    @property
    def num_records(self) -> int:
        """How many rows it has."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, without partition columns."""

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Open its index, and prefetch the fields of the columns."""

    def is_index_local(self, options: Options, columns: Iterable[str]) -> bool:
        """Whether the index of these columns is on the local disk."""

    @property
    def dense_fraction(self) -> float:
        """Above this share of the rows, a scan is cheaper than fetching rows by number."""

    @property
    def term_filters(self) -> TermFilters | None:
        """The term filters of its fields; None if it has none."""


class ParquetSplitState:
    """The footer, the page index and the term filters of a Parquet split."""

    def __init__(self, store: Store, ref: SplitRef) -> None:
        self.footer = read_footer(store, ref.path, ref.size, ref.footer_start, tail=read_tail)
        self.rows = ReaderState(store.local_path(ref.path), self.footer.size)
        self._filters = {place.field: TermFilter(place) for place in self.footer.term_filters}

    def term_filters(self, store: Store) -> TermFilters | None:
        """The term filters, to be read through a store."""
        return TermFilters(store, self.footer, self._filters) if self._filters else None

    def open(self, store: Store, ref: SplitRef, table: TableContext) -> SplitSource:
        """The split, to be read through a store."""
        if self.footer.source_files is not None:
            from indextables.read.companion_split import CompanionSplit

            return CompanionSplit(store, self.footer, self.rows, table, self.term_filters(store))
        del ref
        return ParquetSplit(store, self)


class QuickwitSplitState:
    """The number of rows of a split that the original wrote."""

    def __init__(self, store: Store, ref: SplitRef) -> None:
        # A read of the split, since its index may be in the disk cache: this reader needs the permission,
        # too.
        store.get_range(ref.path, ref.size - 1, ref.size)
        self.num_records = ref.num_records

    def open(self, store: Store, ref: SplitRef, table: TableContext) -> SplitSource:
        """The split, to be read through a store."""
        return QuickwitSplit(store, ref, table, self)


class ParquetSplit:
    """A split with rows in Parquet and the index in the same file."""

    def __init__(self, store: Store, state: ParquetSplitState) -> None:
        self._store = store
        self.footer = state.footer
        self.rows = RowReader(store, self.footer, state.rows)
        self.term_filters = state.term_filters(store)

    @property
    def num_records(self) -> int:
        """How many rows it has."""
        return self.footer.num_records

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, without partition columns."""
        return self.footer.schema

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""
        return self.rows.batches(numbers, columns, batch_bytes=batch_bytes)

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        return self.rows.scan(columns, batch_rows=batch_rows, batch_bytes=batch_bytes)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Open its index, and prefetch the fields of the columns."""
        return open_index(self._store, self.footer, options, columns)

    def is_index_local(self, options: Options, columns: Iterable[str]) -> bool:
        """Whether the index of these columns is on the local disk."""
        return is_cached(self._store, self.footer, options, columns)

    @property
    def dense_fraction(self) -> float:
        """Above this share of the rows, a scan is cheaper than fetching rows by number."""
        return DENSE


class QuickwitSplit:
    """A split that the original wrote: rows from its document store, indexed again when they are searched."""

    term_filters: TermFilters | None = None

    def __init__(self, store: Store, ref: SplitRef, table: TableContext, state: QuickwitSplitState) -> None:
        self._store = store
        self._ref = ref
        self._state = state
        self._options = table.options
        self._mapping = table.mappings[ref.mapping]
        partitions = {name.lower() for name in table.partition_columns}
        self.schema = pa.schema([f for f in table.schema if f.name.lower() not in partitions])

    @property
    def num_records(self) -> int:
        """How many rows it has."""
        if self._state.num_records is None:
            self._state.num_records = sum(batch.num_rows for batch in self._rows([]))
        return self._state.num_records

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""
        start = 0
        for batch in self._rows(columns):
            first, last = np.searchsorted(numbers, [start, start + batch.num_rows])
            if last > first:
                yield from slice_batch(batch.take(pa.array(numbers[first:last] - start)), batch_bytes)
            start += batch.num_rows

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        for batch in self._rows(columns):
            for start in range(0, batch.num_rows, batch_rows):
                yield from slice_batch(batch.slice(start, batch_rows), batch_bytes)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Index its rows, with all fields."""
        del columns
        return open_rebuilt_index(self._store, self._as_footer(), options, self._build)

    def is_index_local(self, options: Options, columns: Iterable[str]) -> bool:
        """Always false: indexing reads all rows, so only a search builds the index."""
        del options, columns
        return False

    @property
    def dense_fraction(self) -> float:
        """Above this share of the rows, a scan is cheaper than fetching rows by number."""
        return DENSE

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return bundle_rows(self._store, self._ref.path, schema, self._options, self._ref.size)

    def _build(self) -> Path:
        columns = {each.column for each in self._mapping.fields}
        batches = self._rows([name for name in self.schema.names if name in columns])
        batches = _progress.count(batches, self._store.url, self.num_records)
        return build_index(
            self._mapping, self._options, batches, f"{self._store.url}/{self._ref.path}: its rows", SplitError
        )

    def _as_footer(self) -> Footer:
        return Footer.without_index(
            self._ref.path, self._ref.size, self.schema, self._mapping, self.num_records
        )


@dataclass(slots=True)
class _Build:
    """The number of rows of a table that this process indexed recently."""

    rows: int = 0
    ended: float = 0.0
    reported: float = 0.0
    warned: bool = False


def is_of_original(ref: SplitRef) -> bool:
    """Whether IndexTables for Scala wrote a split: its rows are indexed before they can be searched."""
    return not ref.is_parquet and ref.source_file is None


def needs_indexing(originals: Iterable[SplitRef]) -> bool:
    """Whether splits of IndexTables for Scala have so many rows that indexing them is worth a warning."""
    return sum(ref.num_records or 0 for ref in originals) >= _MANY_ROWS


class _BuildProgress:
    """Logs that splits of IndexTables for Scala are indexed before they can be searched, and the progress.

    The rows of all splits that a table needs within a short time are counted together.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset in a forked child: a thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._builds: dict[str, _Build] = {}

    def count(self, batches: Iterator[pa.RecordBatch], url: str, rows: int) -> Iterator[pa.RecordBatch]:
        """Return the batches of a split with this many rows; the progress is logged from time to time."""
        build = self._begin(url, rows)
        for batch in batches:
            yield batch
            self._add(build, url, batch.num_rows)

    def _begin(self, url: str, rows: int) -> _Build:
        with self._lock:
            now = time.monotonic()
            self._builds = {
                table: build for table, build in self._builds.items() if now - build.ended < _PAUSE_SECONDS
            }
            build = self._builds.setdefault(url, _Build(ended=now, reported=now))
            warn = not build.warned and build.rows + rows >= _MANY_ROWS
            build.warned = build.warned or warn
        if warn:
            _logger.warning(
                "%s was written by IndexTables for Scala: its rows are indexed on this machine before they "
                "can be searched; to convert them permanently, run CONVERT INDEXTABLES '%s'",
                url, url,
            )  # fmt: skip
        return build

    def _add(self, build: _Build, url: str, rows: int) -> None:
        with self._lock:
            build.rows += rows
            build.ended = now = time.monotonic()
            report = build.warned and now - build.reported >= _REPORT_SECONDS
            if report:
                build.reported = now
        if report:
            _logger.warning("%s: %d rows are indexed so far", url, build.rows)


_progress = _BuildProgress()
os.register_at_fork(after_in_child=_progress.reset)


_splits: Cache[tuple[CacheScope, str, int], ParquetSplitState | QuickwitSplitState] = Cache()
_were_open: Cache[tuple[CacheScope, str, int], bool] = Cache(_MAX_READ)


def open_split(store: Store, ref: SplitRef, table: TableContext) -> SplitSource:
    """Open a split for reading; its footer may be cached."""
    if ref.source_file is not None:
        from indextables.read.companion_split import UnindexedSplit

        return UnindexedSplit(store, ref, table)
    key = (store.cache_scope, ref.path, ref.size)
    state = _splits.get(key)
    if state is None:
        try:
            read = _read(store, ref)
        except IndexTablesError as error:
            if not is_resource_exhausted(error) or not close_splits():
                raise
            read = _read(store, ref)
        state = _splits.put_if_absent(key, read, capacity=max_open_splits())
        _were_open.put(key, True)
    return state.open(store, ref, table)


def is_open(store: Store, ref: SplitRef) -> bool:
    """Whether the footer of a split is cached."""
    return _splits.has((store.cache_scope, ref.path, ref.size))


def was_open(store: Store, ref: SplitRef) -> bool:
    """Whether a split was open in this process before, so that its index need not be fetched."""
    return _were_open.has((store.cache_scope, ref.path, ref.size))


def max_open_splits() -> int:
    """The maximum number of splits that stay open in this process."""
    return max_open_files(_MAX_CACHED)


def _read(store: Store, ref: SplitRef) -> ParquetSplitState | QuickwitSplitState:
    return ParquetSplitState(store, ref) if ref.is_parquet else QuickwitSplitState(store, ref)


def close_splits() -> int:
    """Close all splits and indexes that this process has open; returns the number of splits."""
    count = len(_splits.clear())
    _were_open.clear()
    # Looked up, not imported: without a free file handle imports fail, and an unused module has no open
    # files.
    sources = sys.modules.get("indextables.source.description")
    if sources is not None:
        sources.close_source_readers()
    close_indexes()
    drop_cached_tails()
    return count
