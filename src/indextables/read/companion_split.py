"""Splits of a companion index: searched by their own index, with rows from the files of the source."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from indextables.cache import Cache
from indextables.errors import SourceError, SplitError
from indextables.options import Options
from indextables.read.table_context import SplitRef, TableContext
from indextables.schema.conversion import cast_batch
from indextables.source import SourceFile, SourceReader
from indextables.source.description import SourceDescription, UnindexedFile, source_file
from indextables.split.footer import POSITION_COLUMN, POSITIONS, Footer, IndexedFile
from indextables.split.index.builder import build_index
from indextables.split.parquet.reader import BATCH_BYTES, BATCH_ROWS, ReaderState, RowReader, slice_batch
from indextables.split.query.required_terms import TermFilters
from indextables.split.query.searcher import IndexSearcher, is_cached, open_index, open_rebuilt_index
from indextables.store import CacheScope, Store

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Each keeps some files of its source open.
_MAX_READERS = 8
_readers: Cache[tuple[CacheScope, SourceDescription], SourceReader] = Cache(_MAX_READERS)


def source_reader(store: Store, source: SourceDescription) -> SourceReader:
    """The reader of a companion index's source; files that were opened before stay open.

    `store` is that of the index. Readers are shared only by those who open the source with the same
    credentials.
    """
    key = (store.source_store(source.place).cache_scope, source)
    reader = _readers.get(key)
    return reader or _readers.put_if_absent(key, SourceReader(source.open(store.source_store)))


def close_source_readers() -> None:
    """Close the files of sources that this process keeps open."""
    _readers.clear()


def _description(table: TableContext) -> SourceDescription:
    if table.source is None:
        raise SplitError(
            f"{table.url} has companion splits, but its metadata names no source; build it again"
        )
    return table.source


class _SourceRows:
    """Rows of source files, one file after the other, in the columns of a schema."""

    def __init__(
        self, store: Store, table: TableContext, files: Sequence[IndexedFile], schema: pa.Schema
    ) -> None:
        self._store = store
        self._source = _description(table)
        self._schema = schema
        self.files = files
        self._starts: Numbers = np.cumsum([0, *(file.rows for file in files)]).astype(np.int64)

    @cached_property
    def _reader(self) -> SourceReader:
        return source_reader(self._store, self._source)

    def read(
        self,
        columns: Sequence[str],
        numbers: Numbers | None,
        positions: "_Positions",
        batch_bytes: int,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows by number, ascending, or all of them; `positions` are those in their files."""
        schema = pa.schema([self._schema.field(name) for name in columns])
        for number, file in enumerate(self.files):
            start, end = int(self._starts[number]), int(self._starts[number + 1])
            selection: Numbers | None = None
            if numbers is not None:
                low, high = np.searchsorted(numbers, [start, end])
                if low == high:
                    continue
                selection = numbers[low:high] if high - low < end - start else None
            if start == end:
                continue
            opened = self._opened(file)
            places = None
            if file.rows < file.records:
                places = positions(start, end, selection)
            elif selection is not None:
                places = selection - start
            for batch in self._reader.read(opened, columns, places, deleted_rows=True, batch_rows=batch_rows):
                yield from slice_batch(cast_batch(batch, schema), batch_bytes)

    def _opened(self, file: IndexedFile) -> SourceFile:
        try:
            return source_file(file, self._source.url)
        except (ValueError, TypeError, LookupError, OSError, pa.ArrowException) as error:
            raise SourceError(
                f"what a companion index records of the source file {file.path} cannot be understood "
                f"({error}); build the index again"
            ) from error


class _Positions:
    """The positions in their file of rows by number: `numbers`, or all from `start` to before `end`."""

    def __call__(self, start: int, end: int, numbers: Numbers | None) -> Numbers:
        raise NotImplementedError


class _StoredPositions(_Positions):
    """Positions that a companion split stores."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def __call__(self, start: int, end: int, numbers: Numbers | None) -> Numbers:
        if numbers is not None:
            column = self._rows.fetch(numbers, [POSITION_COLUMN]).column(0)
        else:
            batches = self._rows.scan([POSITION_COLUMN], start=start, end=end)
            column = pa.Table.from_batches(batches, POSITIONS).column(0)
        positions: Numbers = column.combine_chunks().to_numpy(zero_copy_only=False)
        return positions


class CompanionSplit:
    """A split whose rows are in the files of the source."""

    # Source files decide themselves whether rows are fetched by page or selected from a scan.
    dense_fraction = 2.0

    def __init__(
        self,
        store: Store,
        footer: Footer,
        state: ReaderState,
        table: TableContext,
        term_filters: TermFilters | None,
    ) -> None:
        assert footer.source_files is not None
        self._store = store
        self.footer = footer
        self.term_filters = term_filters
        self._rows = _SourceRows(store, table, footer.source_files, footer.schema)
        self._positions = _StoredPositions(RowReader(store, replace(footer, schema=POSITIONS), state))

    @property
    def num_records(self) -> int:
        """How many rows it has."""
        return self.footer.num_records

    @property
    def schema(self) -> pa.Schema:
        """The columns that it has itself."""
        return self.footer.schema

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""
        return self._rows.read(columns, numbers, self._positions, batch_bytes)

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        return self._rows.read(columns, None, self._positions, batch_bytes, batch_rows)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Its index, open; the fields of the columns will be needed."""
        return open_index(self._store, self.footer, options, columns)

    def index_at_hand(self, options: Options, columns: Iterable[str]) -> bool:
        """Whether the index of these columns is on the local disk."""
        return is_cached(self._store, self.footer, options, columns)


class _RemainingPositions(_Positions):
    """Positions of the rows of one file that are not deleted."""

    def __init__(self, records: int, deleted: Numbers) -> None:
        self._records = records
        self._deleted = deleted

    @cached_property
    def _all(self) -> Numbers:
        every = np.arange(self._records, dtype=np.int64)
        return np.setdiff1d(every, self._deleted, assume_unique=True)

    def __call__(self, start: int, end: int, numbers: Numbers | None) -> Numbers:
        del start, end
        return self._all if numbers is None else self._all[numbers]


class UnindexedSplit:
    """A source file that no split indexes: its rows are indexed in the local cache when they are searched."""

    dense_fraction = 2.0
    term_filters: TermFilters | None = None

    def __init__(self, store: Store, ref: SplitRef, table: TableContext) -> None:
        assert ref.source_file is not None
        try:
            unindexed = UnindexedFile.from_text(ref.source_file)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SplitError(f"{ref.path}: the entry of a source file is damaged ({error})") from error
        self._store = store
        self._ref = ref
        self._options = table.options
        self._mapping = table.mappings[ref.mapping]
        partitions = {name.lower() for name in table.partition_columns}
        self.schema = pa.schema([f for f in table.schema if f.name.lower() not in partitions])
        self._file = unindexed.file
        self._rows = _SourceRows(store, table, (unindexed.file,), self.schema)
        self._positions = _RemainingPositions(unindexed.file.records, unindexed.deleted)

    @property
    def num_records(self) -> int:
        """How many rows it has."""
        return self._file.rows

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""
        return self._rows.read(columns, numbers, self._positions, batch_bytes)

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        return self._rows.read(columns, None, self._positions, batch_bytes, batch_rows)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Its rows, indexed now: all fields."""
        del columns
        # The index is in the local cache once it is built: who uses it must be allowed to read the file.
        for _ in self._rows.read(
            self.schema.names[:1], np.zeros(min(1, self.num_records), np.int64), self._positions, 1
        ):
            pass
        return open_rebuilt_index(self._store, self._as_footer(), options, self._build)

    def index_at_hand(self, options: Options, columns: Iterable[str]) -> bool:
        """It takes reading all rows, so only a search is worth it."""
        del options, columns
        return False

    def _build(self) -> Path:
        columns = {each.column for each in self._mapping.fields}
        names = [name for name in self.schema.names if name in columns]
        batches = self.scan(names or self.schema.names[:1], BATCH_ROWS, BATCH_BYTES)
        return build_index(
            self._mapping, self._options, batches, f"the rows of {self._file.path}", SourceError
        )

    def _as_footer(self) -> Footer:
        return Footer.without_index(
            self._ref.path, self._ref.size, self.schema, self._mapping, self.num_records
        )
