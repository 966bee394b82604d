"""Evaluates thousands of saved queries on rows that are not in a table, as in a stream.

Rows are indexed once, in a temporary split, and every query runs on that index.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from indextables.ingest import SplitUploads
from indextables.ingest.target import Target, as_reader, new_table
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add
from indextables.options import Options, Where
from indextables.options.writing import INDEXING_PREFIX
from indextables.read.split_reader import SplitReader
from indextables.read.standing import (
    MATCHING_QUERIES,
    MATCHING_TYPE,
    check_new_column,
    check_queries,
    matching_queries,
    standing_queries,
)
from indextables.read.table_context import SplitRef, TableContext
from indextables.schema.conversion import cast_stream
from indextables.schema.type_info import TypeKind, kind_of
from indextables.split.footer import PARQUET_TAG
from indextables.store import open_store

# The maximum number of rows, and of bytes, that are indexed together.
_MAX_ROWS = 100_000
_MAX_BYTES = 64 << 20


class StandingQueries:
    """Saved queries, and the rows that match them.

    >>> with StandingQueries({"full": "disk AND full", "slow": "slow OR timeout"}) as queries:
    ...     found = queries.match([{"text": "the disk is full"}, {"text": "all well"}])
    >>> found["_matching_queries"].to_pylist()
    [['full'], []]
    """

    def __init__(self, queries: Mapping[str, object], *, options: Mapping[str, object] | None = None) -> None:
        """Parse the queries.

        Args:
            queries: a query in the query language for each id, or a mapping with `query` and `field`, the
                default field of its unqualified terms.
            options: how columns are indexed (`indexing.*`), as for a table. By default all columns of text
                are indexed word by word.
        """
        self._queries = standing_queries(queries)
        self._options = Options.parse(options, {Where.READ, Where.WRITE})
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def match(self, rows: object) -> pa.Table:
        """Return rows with the column `_matching_queries`: the ids of the queries that each row matches.

        Args:
            rows: an Arrow table, batch or reader, a data frame, a list of dicts, or a dict of columns.

        Raises:
            PredicateError: a query is malformed or names an unknown field.
            SchemaError: the rows have a column `_matching_queries`.
        """
        reader = as_reader(rows)
        schema = reader.schema.append(pa.field(MATCHING_QUERIES, MATCHING_TYPE))
        return pa.Table.from_batches(self.match_batches(reader, reader.schema), schema)

    def match_batches(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """`match` batch by batch, in bounded memory; small batches are indexed together."""
        check_new_column(schema.names)
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            group.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _MAX_ROWS or size >= _MAX_BYTES:
                yield from self._match_group(group, schema)
                group, rows, size = [], 0, 0
        yield from self._match_group(group, schema)

    def check(self, schema: pa.Schema) -> None:
        """Refuse queries that cannot be evaluated on rows of these columns, before there are any.

        Raises:
            PredicateError: a query is malformed or names an unknown field.
            SchemaError: rows of these columns cannot be indexed.
        """
        check_new_column(schema.names)
        target, options = self._target(schema)
        check_queries(self._queries, TableContext("", target.schema, (), (target.mapping,), options))

    def close(self) -> None:
        """Delete temporary files; a later call creates new ones."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        """Return the object; the end of the `with` block deletes temporary files."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete temporary files."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """The state without temporary files, which belong to their process."""
        return {"_queries": self._queries, "_options": self._options, "_folder": None}

    def _match_group(self, group: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(group, schema)
        if not table.num_rows:
            return
        matches = pa.chunked_array(list(self._matches(table)), MATCHING_TYPE)
        yield from table.append_column(MATCHING_QUERIES, matches).combine_chunks().to_batches()

    def _matches(self, rows: pa.Table) -> Iterator[pa.ListArray]:
        """The matching queries of each row, in the order of the rows."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="indextables-standing-")
        cache = {"cache.disk.path": str(Path(self._folder.name) / "cache"), "cache.disk.maxSize": "512M"}
        target, options = self._target(rows.schema, cache)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            store = open_store(folder, options)
            batches = cast_stream(iter(rows.to_batches()), target.schema)
            adds = SplitUploads(store, target, options).write(batches)
            context = TableContext(store.url, target.schema, (), (target.mapping,), options)
            searches = check_queries(self._queries, context)
            for add in adds:
                yield from matching_queries(SplitReader(store, _ref(add), context), self._queries, searches)

    def _target(self, schema: pa.Schema, more: Mapping[str, str] | None = None) -> tuple[Target, Options]:
        """The columns and the indexing of temporary splits, and all options, with `more` as defaults."""
        options = self._options.over(Options.parse({**(more or {}), **self._indexing(schema)}))
        return new_table(schema, (), options, now_ms=local_time_ms()), options

    def _indexing(self, schema: pa.Schema) -> dict[str, str]:
        """Index columns of text word by word, unless options say how columns are indexed."""
        if any(key.startswith(INDEXING_PREFIX.lower()) for key in self._options.values):
            return {}
        texts = [f.name for f in schema if kind_of(f.type) is TypeKind.STRING]
        return {f"indexing.typemap.{name}": "text" for name in texts}


def _ref(add: Add) -> SplitRef:
    parquet = PARQUET_TAG in (add.split_tags or ())
    return SplitRef(add.path, add.size, add.footer_start_offset, add.num_records, (), parquet, 0)
