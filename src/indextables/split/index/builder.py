"""Builds a Tantivy index in a folder from batches of rows."""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import SplitError
from indextables.options import Options
from indextables.options.writing import BATCH_BYTES, BATCH_ROWS, HEAP_SIZE, INDEX_THREADS
from indextables.split.footer import ROW_BITS
from indextables.split.index.encode import documents
from indextables.split.index.files import remove_folder, temporary_folder
from indextables.split.index.term_filter import FilterWriter
from indextables.split.index.tokenizers import register_tokenizers, tantivy_schema
from indextables.split.json_values import is_indexable, parse_json
from indextables.split.mapping import PARTIAL_FIELD, Kind, Mapping

# The smallest heap per thread that Tantivy accepts.
_LEAST_HEAP = 16 << 20

_builders: "WeakSet[IndexBuilder]" = WeakSet()
_of_parents: list[object] = []


class IndexBuilder:
    """Builds an index from batches; documents have row ids `source << 32 | row`.

    Memory is bounded by the heap option and one batch. `finish` returns the folder; `discard` removes it.
    """

    def __init__(self, mapping: Mapping, source: int, options: Options) -> None:
        self._mapping = mapping
        self._next = source << ROW_BITS
        self._options = options
        self._schema = tantivy_schema(mapping)
        self.folder = temporary_folder(options)
        self.rows = 0
        self.filters = FilterWriter(mapping)
        threads = options.get(INDEX_THREADS)
        heap = max(options.get(HEAP_SIZE), threads * _LEAST_HEAP)
        index = tantivy.Index(self._schema, path=str(self.folder))
        register_tokenizers(index, mapping)
        self._writer: tantivy.IndexWriter | None = index.writer(heap_size=heap, num_threads=threads)
        _builders.add(self)

    def add(self, batch: pa.RecordBatch) -> None:
        """Index the rows of a batch."""
        for part in self._parts(batch):
            ids = np.arange(self._next, self._next + part.num_rows, dtype=np.int64)
            self._add_documents(part, ids)
            self._next += part.num_rows
            self.rows += part.num_rows

    def finish(self) -> Path:
        """Commit, wait for merges, check the number of documents; the caller removes the folder."""
        assert self._writer is not None
        self._writer.commit()
        self._writer.wait_merging_threads()
        self._writer = None
        indexed = tantivy.Index.open(str(self.folder)).searcher().num_docs
        if indexed != self.rows:
            raise SplitError(f"the index holds {indexed} of {self.rows} rows; nothing was written")
        return self.folder

    def discard(self) -> None:
        """Remove the folder."""
        self._writer = None
        remove_folder(self.folder)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._options.get(BATCH_ROWS)
        if batch.num_rows and batch.nbytes > self._options.get(BATCH_BYTES):
            rows = min(rows, max(1, batch.num_rows * self._options.get(BATCH_BYTES) // batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _add_documents(self, batch: pa.RecordBatch, ids: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        assert self._writer is not None
        converted = documents(batch, self._mapping, ids)
        self.filters.add(converted.hashes.items())
        self.filters.add_integers(batch)
        lines = converted.lines.to_pylist()
        for row, floats in converted.floats.items():
            values = {**parse_json(lines[row]), **floats}
            nested = (values.get(each.name) for each in self._mapping.fields if each.kind is Kind.JSON)
            if all(map(is_indexable, nested)):
                self._add_fields(values)
            else:
                self._add_without_rejected(values, ValueError("deep JSON, or a number that is too large"))
        if converted.floats:
            lines = [line for row, line in enumerate(lines) if row not in converted.floats]
        left = iter(lines)
        while True:
            try:
                # The loop is in C, and Tantivy parses each document without the GIL.
                deque(map(self._writer.add_json, left), maxlen=0)
            except BaseException as error:
                if not _is_refusal(error):
                    raise
                refused = lines[len(lines) - left.__length_hint__() - 1]
                self._add_without_rejected(parse_json(refused), error)
            else:
                return

    def _add_without_rejected(self, document: dict[str, Any], error: BaseException) -> None:
        """Index a row without the values that Tantivy rejects: deep JSON, large numbers, unusual addresses.

        It also rejects instants after the year 9999 in UTC. The fields without a value are in `_partial`.
        """
        names = {field.name for field in self._mapping.fields if field.kind in (Kind.JSON, Kind.IP)}
        if not names & document.keys():
            raise SplitError(f"a row could not be indexed ({error}); nothing was written") from error
        indexable = {key: value for key, value in document.items() if key not in names}
        indexable[PARTIAL_FIELD] = sorted({*document.get(PARTIAL_FIELD, ()), *(names & document.keys())})
        self._add_fields(indexable)

    def _add_fields(self, values: dict[str, Any]) -> None:
        assert self._writer is not None
        try:
            self._writer.add_document(tantivy.Document.from_dict(values, self._schema))
        except BaseException as error:
            # A plain exception is what it raises for a number that is too large.
            if not isinstance(error, Exception) and not _is_refusal(error):
                raise
            self._add_without_rejected(values, error)


def _is_refusal(error: BaseException) -> bool:
    """Whether Tantivy rejected a value: it panics for some instants."""
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"


def build_index(
    mapping: Mapping, options: Options, batches: Iterator[pa.RecordBatch], where: str, error: type[Exception]
) -> Path:
    """Build the index of rows that have none; returns its folder, which the caller removes.

    Raises:
        error: the rows cannot be indexed; `where` names them.
    """
    builder = IndexBuilder(mapping, 0, options)
    try:
        for batch in batches:
            builder.add(batch)
        return builder.finish()
    except (pa.ArrowException, ValueError) as problem:
        builder.discard()
        raise error(f"{where} cannot be indexed ({problem})") from problem
    except BaseException:
        builder.discard()
        raise


def _after_fork() -> None:
    """Keep the writers of the parent in a forked child: deleting one waits for threads that it lacks."""
    global _builders  # noqa: PLW0603 - the child's own
    _of_parents.extend(builder._writer for builder in _builders)  # noqa: SLF001 - the class is of this module
    _builders = WeakSet()


os.register_at_fork(after_in_child=_after_fork)
