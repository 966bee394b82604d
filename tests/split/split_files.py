"""Builders of splits for tests: rows in, an open split out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import tantivy

from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.index.files import remove_folder, temporary_folder, unpack
from indextables.split.index.tokenizers import register_tokenizers
from indextables.split.mapping import ROW_FIELD, mapping_for
from indextables.split.parquet.reader import RowReader
from indextables.split.writer import SplitFile, SplitWriter
from indextables.store import Store


def write_split(
    store: Store,
    path: str,
    table: Any,
    options: dict[Any, Any] | None = None,
    partition_values: dict[Any, Any] | None = None,
    batch_rows: int = 1000,
) -> SplitFile:
    """Write a table as one split; gives what was built."""
    given = Options.parse(options or {})
    mapping = mapping_for(table.schema, given, tuple(partition_values or ()))
    sink: Any = store.open_upload(path)
    with SplitWriter(sink, table.schema, mapping, given, partition_values) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write(batch)
        built = writer.finish()
    sink.close()
    return built


def rows_of(store: Store, path: str) -> RowReader:
    return RowReader(store, read_footer(store, path))


def table_of(store: Store, path: str) -> pa.Table:
    rows = rows_of(store, path)
    return pa.Table.from_batches(rows.scan(), rows.schema)


@contextmanager
def opened(store: Store, path: str) -> Iterator[Any]:
    """The split's footer and its index, unpacked and opened."""
    footer = read_footer(store, path)
    folder = temporary_folder(Options.parse({}))
    try:
        unpack(store, footer, folder)
        index = tantivy.Index.open(str(folder))
        register_tokenizers(index, footer.mapping)
        yield footer, index
    finally:
        remove_folder(folder)


def hits(footer: Any, index: Any, query: tantivy.Query) -> list[Any]:
    """The numbers of the rows that a query finds, ascending."""
    searcher = index.searcher()
    found = [address for _, address in searcher.search(query, max(1, searcher.num_docs)).hits]
    ids = np.array(searcher.fast_field_values(ROW_FIELD, found), np.int64)
    return sorted(footer.row_numbers(ids).tolist())


def term(index: Any, field: str, value: int | str) -> tantivy.Query:
    return tantivy.Query.term_query(index.schema, field, value)


def between(index: Any, field: str, kind: tantivy.FieldType, low: float, high: float | None) -> tantivy.Query:
    return tantivy.Query.range_query(index.schema, field, kind, low, high)
