"""Writes a split from a stream of batches, in bounded memory."""

import secrets
import time
from collections import deque
from collections.abc import Mapping as Values
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import IO, Self

import pyarrow as pa
import tantivy

from indextables.errors import SchemaError, SplitError
from indextables.options import Options
from indextables.options.writing import COMPRESSION_LEVEL
from indextables.records import dataclass
from indextables.schema.statistics import Statistics
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
from indextables.split.index.builder import IndexBuilder
from indextables.split.index.files import dictionary_bytes, pack
from indextables.split.index.term_filter import FilterWriter
from indextables.split.mapping import Mapping, resolve_fields
from indextables.split.parquet.pages import Ints
from indextables.split.parquet.writer import RowWriter

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
