"""Writes a split from a stream of batches, in bounded memory: its rows, and the Tantivy index of them."""

import os
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Values
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import IO, Any, Self
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import SchemaError, SplitError
from indextables.options import Options
from indextables.options.writing import BATCH_BYTES, BATCH_ROWS, COMPRESSION_LEVEL, HEAP_SIZE, INDEX_THREADS
from indextables.records import dataclass
from indextables.schema.values import Statistics
from indextables.split.footer import (
    COMPANION_TAG,
    PARQUET_TAG,
    POSITIONS,
    ROW_BITS,
    FilterPlace,
    IndexedFile,
    IndexFile,
    RowIdRange,
    SplitMetadata,
    SplitSummary,
    encode_footer,
)
from indextables.split.index.encode import documents
from indextables.split.index.files import dictionary_bytes, pack, remove_folder, temporary_folder
from indextables.split.index.term_filter import FilterWriter
from indextables.split.index.tokenizers import register_tokenizers, tantivy_schema
from indextables.split.json_values import is_indexable, parse_json
from indextables.split.mapping import PARTIAL_FIELD, Kind, Mapping, resolve_fields
from indextables.split.parquet.pages import Ints
from indextables.split.parquet.writer import RowWriter

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
        iterator = iter(lines)
        while True:
            try:
                # The loop is in C, and Tantivy parses each document without the GIL.
                deque(map(self._writer.add_json, iterator), maxlen=0)
            except BaseException as error:
                if not _is_refusal(error):
                    raise
                refused = lines[len(lines) - iterator.__length_hint__() - 1]
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


# The sample from which encodings and unresolved fields of the mapping are chosen.
_SAMPLE_ROWS = 50_000
_SAMPLE_BYTES = 32 << 20
# The level of zstd for the index of a companion split, which is most of the split and is packed once.
_COMPANION_LEVEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFile(SplitSummary):
    """A written split: the fields of the log's `add`, except for its path."""

    size: int
    footer_start: int
    footer_end: int
    split_tags: tuple[str, ...] = (PARQUET_TAG,)

    @classmethod
    def of(cls, summary: SplitMetadata, size: int, footer_start: int) -> Self:
        """The record of a split with this summary, size and offset of the footer."""
        values = {field.name: getattr(summary, field.name) for field in fields(SplitSummary)}
        tags = (PARQUET_TAG,) if summary.source_files is None else (PARQUET_TAG, COMPANION_TAG)
        return cls(**values, size=size, footer_start=footer_start, footer_end=size, split_tags=tags)

    @property
    def doc_mapping_json(self) -> str:
        """The mapping as JSON, as in the log."""
        return self.mapping.to_json()


def new_source_id() -> int:
    """A random number for the row ids of a split, so that they stay distinct when splits are merged."""
    return secrets.randbelow((1 << (63 - ROW_BITS)) - 1) + 1


class SplitWriter:
    """Writes one split to a sink.

    Batches have the table's schema (`indextables.schema`), partition columns included; all rows have the same
    partition values. Rows are written to the sink at once; the index is built in a temporary folder and
    appended. After `finish` the caller closes the sink, which makes the split visible; after an error, call
    `abort`. As a context manager it calls `abort` by itself.
    """

    def __init__(
        self,
        sink: IO[bytes],
        schema: pa.Schema,
        mapping: Mapping,
        options: Options,
        partition_values: Values[str, str | None] | None = None,
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._mapping = mapping
        self._options = options
        self._partition_values = dict(partition_values or {})
        self._statistics = Statistics(schema, options, tuple(self._partition_values))
        self._source = new_source_id()
        self._sample: list[pa.RecordBatch] = []
        self._sample_bytes = 0
        self._rows: RowWriter | None = None
        self._index: IndexBuilder | None = None
        self.num_records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.schema.equals(self._schema):
            raise SchemaError(
                f"a batch has other columns than the split:\n{batch.schema}\nnot\n{self._schema}"
            )
        if not batch.num_rows:
            return
        if self.num_records + batch.num_rows >= 1 << ROW_BITS:
            raise SplitError(f"a split holds fewer than {1 << ROW_BITS} rows; begin another one")
        self._statistics.accumulate(batch)
        self.num_records += batch.num_rows
        if self._rows is None:
            self._sample.append(batch)
            self._sample_bytes += batch.nbytes
            if self.num_records >= _SAMPLE_ROWS or self._sample_bytes >= _SAMPLE_BYTES:
                self._begin()
        else:
            self._add(batch)

    def finish(self) -> SplitFile:
        """Write the remaining rows, the index and the footer."""
        if self._rows is None:
            self._begin()
        assert self._rows is not None
        assert self._index is not None
        # The last row group is encoded while the index is committed.
        with ThreadPoolExecutor(1) as beside:
            flushed = beside.submit(self._rows.flush)
            folder = self._index.finish()
            flushed.result()
        source_files = self._source_files()
        files = pack(folder, self._sink, index_level(self._options, companion=source_files is not None))
        filters = write_filters(self._index.filters, self._sink, folder, files)
        texts = self._statistics.texts()
        metadata = SplitMetadata(
            num_records=self.num_records,
            schema=self._schema,
            mapping=self._mapping,
            partition_values=self._partition_values,
            min_values=texts.min_values,
            max_values=texts.max_values,
            stats=texts.stats,
            uncompressed_bytes=self._rows.uncompressed + sum(file.size for file in files),
            num_merge_ops=0,
            created_ms=time.time_ns() // 1_000_000,
            row_id_ranges=(RowIdRange(self._source, 0, self.num_records),),
            index_files=tuple(files),
            source_files=source_files,
            term_filters=filters,
        )
        built = finish_split(self._rows, self._sink, metadata)
        self._index.discard()
        return built

    def _source_files(self) -> tuple[IndexedFile, ...] | None:
        """The source files of a companion split."""
        return None

    def abort(self) -> None:
        """Remove temporary files; the caller aborts the sink."""
        if self._rows is not None:
            self._rows.abort()
        if self._index is not None:
            self._index.discard()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Clean up after an error."""
        if error is not None:
            self.abort()

    def _begin(self) -> None:
        sample = pa.Table.from_batches(self._sample, self._schema)
        self._mapping = resolve_fields(self._mapping, sample)
        batches, self._sample = self._sample, []
        self._rows = self._row_writer(sample)
        self._index = IndexBuilder(self._mapping, self._source, self._options)
        for batch in batches:
            self._add(batch)

    def _row_writer(self, sample: pa.Table) -> RowWriter:
        return RowWriter(self._sink, self._schema, sample, self._options)

    def _add(self, batch: pa.RecordBatch) -> None:
        assert self._index is not None
        self._store_rows(batch)
        self._index.add(batch)

    def _store_rows(self, batch: pa.RecordBatch) -> None:
        assert self._rows is not None
        self._rows.write(batch)


class CompanionSplitWriter(SplitWriter):
    """Writes a companion split: rows are indexed, and only their positions in the source are stored.

    The rows of a source file are written one batch after the other, each with the positions of its rows;
    then `end_file` records which file they were from.
    """

    def __init__(
        self,
        sink: IO[bytes],
        schema: pa.Schema,
        mapping: Mapping,
        options: Options,
        partition_values: Values[str, str | None] | None = None,
    ) -> None:
        super().__init__(sink, schema, mapping, options, partition_values)
        self._positions: deque[pa.RecordBatch] = deque()
        self._files: list[IndexedFile] = []

    def write_rows(self, batch: pa.RecordBatch, positions: Ints) -> None:
        """Add rows of a source file, and their positions in it."""
        if batch.num_rows:
            self._positions.append(pa.RecordBatch.from_arrays([pa.array(positions)], schema=POSITIONS))
        self.write(batch)

    def end_file(self, file: IndexedFile) -> None:
        """Record the source file whose rows were written last."""
        self._files.append(file)

    def _row_writer(self, sample: pa.Table) -> RowWriter:
        del sample
        return RowWriter(
            self._sink, POSITIONS, pa.Table.from_batches(self._positions, POSITIONS), self._options
        )

    def _store_rows(self, batch: pa.RecordBatch) -> None:
        del batch
        assert self._rows is not None
        self._rows.write(self._positions.popleft())

    def _source_files(self) -> tuple[IndexedFile, ...]:
        return tuple(self._files)


def index_level(options: Options, *, companion: bool) -> int:
    """The level of zstd for the files of an index."""
    level = options.get(COMPRESSION_LEVEL)
    return _COMPANION_LEVEL if companion and not options.is_set(COMPRESSION_LEVEL) else level


def write_filters(
    filters: FilterWriter, sink: IO[bytes], folder: Path, files: Sequence[IndexFile]
) -> tuple[FilterPlace, ...]:
    """Append the term filters to a split whose index was packed from a folder."""
    index = tantivy.Index.open(str(folder))
    return filters.write(sink, index, partial(dictionary_bytes, files))


def finish_split(rows: RowWriter, sink: IO[bytes], metadata: SplitMetadata) -> SplitFile:
    """Write the footer of a split; returns its record for the log."""
    start = rows.close(lambda checksums: encode_footer(metadata, checksums))
    return SplitFile.of(metadata, sink.tell(), start)
