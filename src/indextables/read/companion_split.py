"""Splits of a companion index: searched by their own index, with rows from the files of the source."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from indextables.errors import SourceError, SplitError
from indextables.options import Options
from indextables.read.table_context import SplitRef, TableContext
from indextables.source.description import (
    IndexedRows,
    RemainingPositions,
    SourceDescription,
    StoredPositions,
    UnindexedFile,
)
from indextables.split.footer import POSITIONS, Footer
from indextables.split.parquet.reader import BATCH_BYTES, BATCH_ROWS, ReaderState, RowReader
from indextables.split.query.required_terms import TermFilters
from indextables.split.query.searcher import IndexSearcher, is_cached, open_index, open_rebuilt_index
from indextables.split.writer import build_index
from indextables.store import Store

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def _description(table: TableContext) -> SourceDescription:
    if table.source is None:
        raise SplitError(f"{table.url} has companion splits, but its metadata has no source; build it again")
    return table.source


class CompanionSplit:
    """A split whose rows are in the files of the source."""

    # The reader of source files chooses by itself between fetching pages and scanning.
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
        positions = StoredPositions(RowReader(store, replace(footer, schema=POSITIONS), state))
        self._rows = IndexedRows(store, _description(table), footer.source_files, footer.schema, positions)

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
        return self._rows.read(columns, numbers, batch_bytes)

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        return self._rows.read(columns, None, batch_bytes, batch_rows)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Open its index, and prefetch the fields of the columns."""
        return open_index(self._store, self.footer, options, columns)

    def is_index_local(self, options: Options, columns: Iterable[str]) -> bool:
        """Whether the index of these columns is on the local disk."""
        return is_cached(self._store, self.footer, options, columns)


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
        positions = RemainingPositions(unindexed.file.records, unindexed.deleted)
        self._rows = IndexedRows(store, _description(table), (unindexed.file,), self.schema, positions)

    @property
    def num_records(self) -> int:
        """How many rows it has."""
        return self._file.rows

    def fetch(self, numbers: Numbers, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, which are ascending."""
        return self._rows.read(columns, numbers, batch_bytes)

    def scan(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        return self._rows.read(columns, None, batch_bytes, batch_rows)

    def index(self, options: Options, columns: Sequence[str]) -> IndexSearcher:
        """Index its rows, with all fields."""
        del columns
        # A read of the file, since the index may be in the local cache: this reader needs the permission,
        # too.
        for _ in self._rows.read(self.schema.names[:1], np.zeros(min(1, self.num_records), np.int64), 1):
            pass
        return open_rebuilt_index(self._store, self._as_footer(), options, self._build)

    def is_index_local(self, options: Options, columns: Iterable[str]) -> bool:
        """Always false: indexing reads all rows, so only a search builds the index."""
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
