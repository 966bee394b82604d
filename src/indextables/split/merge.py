"""Merges splits into one: rows are concatenated, index segments are merged by Tantivy.

Sources whose fields are those of the target keep their index: the segments of all of them are listed in one
`meta.json`, and Tantivy merges them. Others (older columns, other options, Quickwit bundles) are indexed
again while their rows are copied. Row ids do not change; the row id ranges of the footer map them to rows.

For companion splits, the positions of rows and the lists of source files are concatenated. The source is read
for splits that are indexed again; for splits that keep their index, only the columns that term filters need.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import tantivy

from indextables.errors import (
    ObjectMissingError,
    SplitError,
    StoreError,
    UnavailableSplitError,
    UnreadableSplitError,
)
from indextables.options import Options
from indextables.options.writing import HEAP_SIZE
from indextables.records import dataclass
from indextables.schema.values import FileStatistics, Statistics, merge_statistics
from indextables.split.footer import (
    META,
    POSITIONS,
    ROW_BITS,
    Footer,
    IndexedFile,
    Replacements,
    RowIdRange,
    SplitMetadata,
)
from indextables.split.index.encode import hash_values, integer_values
from indextables.split.index.files import (
    committed_files,
    merge_segments,
    pack,
    remove_folder,
    temporary_folder,
    unpack,
)
from indextables.split.index.term_filter import FilterWriter
from indextables.split.mapping import ROW_FIELD, Field, Kind, Mapping, resolve_fields
from indextables.split.parquet.reader import BATCH_ROWS, RowGroup, RowReader
from indextables.split.parquet.writer import RowWriter
from indextables.split.writer import (
    IndexBuilder,
    SplitFile,
    finish_split,
    index_level,
    new_source_id,
    write_filters,
)
from indextables.store import Store

_ROWS = 24
T = TypeVar("T")

_SAMPLE_ROWS = 50_000


class LookupSample:
    """A sample of rows whose entries in the merged index are compared with their values.

    One row of each row id range, up to a number, is taken while rows are copied.
    """

    def __init__(self, mapping: Mapping, columns: int = 4) -> None:
        kinds = (Kind.I64, Kind.HASH, Kind.BOOL)
        self._fields: list[Field] = [f for f in mapping.fields if f.fast and f.kind in kinds][:columns]
        self._sampled: set[int] = set()
        self._expected: list[tuple[int, dict[str, Any]]] = []

    @property
    def columns(self) -> list[str]:
        """The columns whose values are compared."""
        return [field.column for field in self._fields]

    def take(self, batch: pa.RecordBatch, position: int, ranges: tuple[RowIdRange, ...], start: int) -> None:
        """Take rows of a batch whose first row is row `position` of the result; ranges begin at `start`."""
        for each in ranges:
            if each.source in self._sampled or len(self._expected) >= _ROWS or not each.rows:
                continue
            row = each.start + start + each.rows // 2 - position
            if 0 <= row < batch.num_rows:
                self._sampled.add(each.source)
                self._expected.append(
                    ((each.source << ROW_BITS) | (each.rows // 2), self._values(batch.slice(row, 1)))
                )

    def check(self, index: tantivy.Index) -> None:
        """Raise SplitError if the index has no entry, several, or a wrong one for a row of the sample."""
        searcher, schema = index.searcher(), index.schema
        for row_id, values in self._expected:
            query = tantivy.Query.range_query(schema, ROW_FIELD, tantivy.FieldType.Integer, row_id, row_id)
            hits = [address for _, address in searcher.search(query, 2).hits]
            rows = [{name: searcher.fast_field_values(name, [hit])[0] for name in values} for hit in hits]
            if rows != [values]:
                raise SplitError(
                    f"after merging, the index has {rows} for a row with {values}; nothing was merged"
                )

    def _values(self, row: pa.RecordBatch) -> dict[str, Any]:
        return {field.name: _field_value(field, row.column(field.column)) for field in self._fields}


def _field_value(field: Field, value: pa.Array) -> Any:  # noqa: ANN401 - a number, a truth value or None
    match field.kind:
        case Kind.HASH:
            return hash_values(value)[0].as_py()
        case Kind.I64:
            return integer_values(value)[0].as_py()
        case _:
            return value[0].as_py()


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A split to be merged: its rows in the target's schema, and its footer if it is a Parquet split.

    `columns` returns some columns of a companion split's rows, which are read from source files.
    """

    path: str
    rows: Callable[[], Iterator[pa.RecordBatch]]
    footer: Footer | None = None
    store: Store | None = None
    columns: Callable[[Sequence[str]], Iterator[pa.RecordBatch]] | None = None

    def groups(self) -> Iterator[RowGroup]:
        """The row groups of a Parquet split; of a companion split they have positions."""
        assert self.store is not None
        assert self.footer is not None
        footer = self.footer if self.columns is None else replace(self.footer, schema=POSITIONS)
        return RowReader(self.store, footer).groups()

    @property
    def source_files(self) -> tuple[IndexedFile, ...] | None:
        """The source files of a companion split."""
        return None if self.footer is None else self.footer.source_files

    @classmethod
    def of(cls, store: Store, footer: Footer, schema: pa.Schema) -> "MergeSource":
        """A Parquet split as a source; columns that it does not have are null."""
        return cls(footer.path, lambda: _with_schema(RowReader(store, footer), schema), footer, store)


@dataclass(frozen=True, slots=True)
class _Part:
    """A source in the target: its row id ranges, and whether its index is merged or built again."""

    source: MergeSource
    ranges: tuple[RowIdRange, ...]
    native: bool


def merge_splits(
    sources: Sequence[MergeSource],
    sink: IO[bytes],
    schema: pa.Schema,
    plan: Mapping,
    options: Options,
    partition_values: dict[str, str | None] | None = None,
) -> SplitFile:
    """Write the rows of all sources as one split, in order; the caller closes the sink when it is done.

    Args:
        sources: The splits to merge.
        sink: Where the result is written.
        schema: The schema of the table.
        plan: The mapping of the table (`mapping_for`).
        options: Options of the write.
        partition_values: The partition of the result.

    Raises:
        UnreadableSplitError: A source is damaged; the caller must abort the sink.
        UnavailableSplitError: A source could not be read from storage; the caller must abort the sink.
    """
    mapping = _target_mapping(sources, schema, plan).with_filters_of(plan)
    values = dict(partition_values or {})
    work = temporary_folder(options)
    merge = _Merge(sources, sink, schema, mapping, values, options, work)
    try:
        return merge.run()
    finally:
        merge.close()
        remove_folder(work)


def _target_mapping(sources: Sequence[MergeSource], schema: pa.Schema, plan: Mapping) -> Mapping:
    """The mapping of most rows, if it is a resolved form of the plan; else resolved from a sample."""
    rows: dict[Mapping, int] = {}
    for source in sources:
        if source.footer is not None and _is_resolved_form(source.footer.mapping, plan):
            rows[source.footer.mapping] = rows.get(source.footer.mapping, 0) + source.footer.num_records
    if rows:
        return max(rows, key=lambda mapping: rows[mapping])
    batches: list[pa.RecordBatch] = []
    for batch in chain.from_iterable(_translate_errors(source, source.rows) for source in sources):
        batches.append(batch)
        if sum(b.num_rows for b in batches) >= _SAMPLE_ROWS:
            break
    return resolve_fields(plan, pa.Table.from_batches(batches, schema))


def _is_resolved_form(mapping: Mapping, plan: Mapping) -> bool:
    """Whether the mapping is the plan with its unresolved fields resolved in some way."""
    if len(mapping.fields) != len(plan.fields):
        return False
    return all(
        f == p or (not p.resolved and f.column == p.column and f.kind.value in ("string", "hash"))
        for f, p in zip(mapping.fields, plan.fields, strict=True)
    )


def _filter_fields(sources: Sequence[MergeSource]) -> set[str]:
    """The fields with a term filter in all sources: a companion's columns are read for them alone."""
    footers = [source.footer for source in sources if source.footer is not None]
    fields = [{place.field for place in footer.term_filters} for footer in footers]
    return set.intersection(*fields) if fields else set()


class _Merge:
    """One merge."""

    def __init__(
        self,
        sources: Sequence[MergeSource],
        sink: IO[bytes],
        schema: pa.Schema,
        mapping: Mapping,
        partition_values: dict[str, str | None],
        options: Options,
        work: Path,
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._mapping = mapping
        self._values = partition_values
        self._options = options
        self._work = work
        self._parts = _arrange(sources, mapping)
        self._source_files = _source_files(sources)
        self._is_companion = self._source_files is not None
        # The columns that a split stores of its rows.
        self._stored = POSITIONS if self._is_companion else schema
        self._sample = LookupSample(mapping, 1 if self._is_companion else 4)
        self._filters = FilterWriter(mapping, _filter_fields(sources) if self._is_companion else None)
        self._recorded: list[FileStatistics] = []
        self._rows: RowWriter | None = None
        self._position = 0
        self._builders: list[IndexBuilder] = []
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="indextables-merge")

    def run(self) -> SplitFile:
        """Copy rows and merge indexes in parallel, then compare a sample of both."""
        beside = self._threads.submit(self._unpack_sources)
        ranges: list[RowIdRange] = []
        for part in self._parts:
            ranges += self._copy_with_index(part) if part.native else [self._copy_and_index(part)]
        rows = self._writer(None)
        rows.flush()
        beside.result()
        if self._builders or not self._parts:
            self._merge_segments()
        self._check(rows.rows, ranges)
        files = pack(self._work, self._sink, index_level(self._options, companion=self._is_companion))
        filters = write_filters(self._filters, self._sink, self._work, files)
        texts = merge_statistics(self._recorded, self._schema)
        operations = [p.source.footer.num_merge_ops for p in self._parts if p.source.footer is not None]
        return finish_split(
            rows,
            self._sink,
            SplitMetadata(
                num_records=rows.rows,
                schema=self._schema,
                mapping=self._mapping,
                partition_values=self._values,
                min_values=texts.min_values,
                max_values=texts.max_values,
                stats=texts.stats,
                uncompressed_bytes=rows.uncompressed + sum(file.size for file in files),
                num_merge_ops=max(operations, default=0) + 1,
                created_ms=time.time_ns() // 1_000_000,
                row_id_ranges=tuple(ranges),
                index_files=tuple(files),
                source_files=self._source_files,
                term_filters=filters,
                replaced=_replacements(self._parts),
            ),
        )

    def close(self) -> None:
        """Stop threads and remove temporary files."""
        self._threads.shutdown(wait=True)
        if self._rows is not None:
            self._rows.abort()
        for builder in self._builders:
            builder.discard()

    # --- rows -----------------------------------------------------------------------------------------

    def _writer(self, first: pa.RecordBatch | None) -> RowWriter:
        if self._rows is None:
            batches = [] if first is None else [first]
            sample = pa.Table.from_batches(batches, self._stored)
            self._rows = RowWriter(self._sink, self._stored, sample, self._options)
        return self._rows

    def _copy_with_index(self, part: _Part) -> list[RowIdRange]:
        """Copy the rows of a source with a native index; returns its row id ranges in the result."""
        footer = part.source.footer
        assert footer is not None
        start = self._position
        if self._is_companion:
            self._copy_positions(part)
            self._take_columns(part, start)
        elif footer.schema.equals(self._schema):
            for group in _translate_errors(part.source, part.source.groups):
                self._copy_row_group(group, part.ranges, start)
        else:
            for batch in _translate_errors(part.source, part.source.rows):
                self._sample.take(batch, self._position, part.ranges, start)
                self._write(batch)
                self._filters.add_rows(batch, self._mapping)
        if self._position - start != footer.num_records:
            raise UnreadableSplitError(
                footer.path, f"{self._position - start} rows instead of {footer.num_records}"
            )
        self._recorded.append(
            FileStatistics(footer.min_values, footer.max_values, footer.stats, trusted=True)
        )
        return [RowIdRange(each.source, each.start + start, each.rows) for each in part.ranges]

    def _copy_positions(self, part: _Part) -> None:
        """Copy the positions of a companion split's rows."""
        for group in _translate_errors(part.source, part.source.groups):
            self._writer(group.rows.slice(0, 1).to_batches()[0])
            if self._writer(None).can_copy(group.file_metadata, group.metadata):
                self._writer(None).copy(group.encoded, group.rows.nbytes)
                self._position += group.rows.num_rows
            else:
                for batch in group.rows.to_batches(max_chunksize=BATCH_ROWS):
                    self._write(batch)

    def _take_columns(self, part: _Part, start: int) -> None:
        """Read the columns that term filters and the sample need from the source of a companion split."""
        names = list(dict.fromkeys([*self._filters.columns, *self._sample.columns]))
        if not names:
            return
        assert part.source.columns is not None
        position = start
        for batch in part.source.columns(names):
            self._sample.take(batch, position, part.ranges, start)
            self._filters.add_rows(batch, self._mapping)
            position += batch.num_rows
        if position != self._position:
            raise SplitError(
                f"the source has {position - start} rows for the {self._position - start} of "
                f"{part.source.path}; nothing was merged"
            )

    def _copy_row_group(self, group: RowGroup, ranges: tuple[RowIdRange, ...], start: int) -> None:
        """Copy an encoded row group; encode it again if it is too small."""
        batches = group.rows.to_batches(max_chunksize=BATCH_ROWS)
        copied = self._writer(batches[0]).can_copy(group.file_metadata, group.metadata)
        if copied:
            self._writer(None).copy(group.encoded, group.rows.nbytes)
        for batch in batches:
            self._sample.take(batch, self._position, ranges, start)
            self._filters.add_rows(batch, self._mapping)
            if copied:
                self._position += batch.num_rows
            else:
                self._write(batch)

    def _copy_and_index(self, part: _Part) -> RowIdRange:
        """Copy the rows of a source, and index them again."""
        source, start = new_source_id(), self._position
        builder = IndexBuilder(self._mapping, source, self._options)
        self._builders.append(builder)
        statistics = Statistics(self._schema, self._options, tuple(self._values))
        rows = 0
        for batch in _translate_errors(part.source, part.source.rows):
            rows += batch.num_rows
            statistics.accumulate(batch)
            builder.add(batch)
            if not self._is_companion:
                self._write(batch)
            self._filters.add_rows(batch, self._mapping)
        if self._is_companion:
            self._copy_positions(part)
        builder.finish()
        self._recorded.append(FileStatistics(*statistics.texts(), trusted=True))
        if rows != self._position - start:
            raise SplitError(
                f"the source has {rows} rows for the {self._position - start} of {part.source.path}; nothing "
                "was merged"
            )
        return RowIdRange(source, start, rows)

    def _write(self, batch: pa.RecordBatch) -> None:
        self._writer(batch).write(batch)
        self._position += batch.num_rows

    # --- index ----------------------------------------------------------------------------------------

    def _unpack_sources(self) -> None:
        """Unpack the segments of sources into the work folder, and merge them if there are no others."""
        parts = [part for part in self._parts if part.native]
        for number, part in enumerate(parts):
            store, footer = part.source.store, part.source.footer
            assert store is not None
            assert footer is not None
            try:
                unpack(store, footer, self._work)
                (self._work / META).replace(self._work / f"{number}.source")
            except (SplitError, StoreError, OSError) as error:
                raise source_error(footer.path, error) from error
        if parts and len(parts) == len(self._parts):
            self._merge_segments()

    def _merge_segments(self) -> None:
        """Merge the segments of all sources and of the new indexes."""
        metas: list[dict[str, Any]] = [
            json.loads(path.read_text("utf-8")) for path in sorted(self._work.glob("*.source"))
        ]
        for builder in self._builders:
            for path in committed_files(builder.folder):
                if path.name == META:
                    metas.append(json.loads(path.read_text("utf-8")))
                else:
                    shutil.move(path, self._work / path.name)
        if not metas:
            empty = IndexBuilder(self._mapping, 1, self._options)
            self._builders.append(empty)
            metas = [json.loads((empty.finish() / META).read_text("utf-8"))]
        merge_segments(metas, self._work, self._options.get(HEAP_SIZE))

    def _check(self, rows: int, ranges: list[RowIdRange]) -> None:
        index = tantivy.Index.open(str(self._work))
        indexed = index.searcher().num_docs
        if indexed != rows or rows != sum(each.rows for each in ranges):
            raise SplitError(
                f"the merged index holds {indexed} documents for {rows} rows; nothing was merged"
            )
        self._sample.check(index)


def _arrange(sources: Sequence[MergeSource], mapping: Mapping) -> list[_Part]:
    """Which sources keep their index: those with the same fields, and row ids that no other source has."""
    parts: list[_Part] = []
    used: set[int] = set()
    for source in sources:
        footer = source.footer
        ranges = footer.row_id_ranges if footer is not None else ()
        ids = {each.source for each in ranges}
        native = footer is not None and footer.mapping == mapping and not ids & used
        used |= ids if native else set()
        parts.append(_Part(source, ranges, native))
    return parts


def _replacements(parts: Sequence[_Part]) -> Replacements:
    """The splits that are indexed again, and those that sources of this merge have replaced."""
    whole = Replacements()
    for part in parts:
        footer = part.source.footer
        if footer is None:
            whole = whole.then(Replacements(files=(part.source.path.rpartition("/")[2],)))
            continue
        whole = whole.then(footer.replaced)
        if not part.native:
            whole = whole.then(Replacements(tuple((each.source, each.rows) for each in part.ranges)))
    return whole


def _source_files(sources: Sequence[MergeSource]) -> tuple[IndexedFile, ...] | None:
    """The source files of companion splits, in the order of their rows; None if the splits have rows."""
    files = [source.source_files for source in sources]
    lists = [each for each in files if each is not None]
    if not lists:
        return None
    if len(lists) < len(files):
        raise SplitError("companion splits cannot be merged with splits that have rows of their own")
    return tuple(chain.from_iterable(lists))


def _translate_errors(source: MergeSource, read: Callable[[], Iterator[T]]) -> Iterator[T]:
    try:
        yield from read()
    except (SplitError, StoreError, pa.ArrowException, OSError) as error:
        raise source_error(source.path, error) from error


def source_error(path: str, error: Exception) -> SplitError:
    """The error of a source: it is damaged, or the storage is unavailable."""
    match error:
        case UnreadableSplitError() | UnavailableSplitError():
            return error
        case ObjectMissingError():
            return UnreadableSplitError(path, "the file is missing")
        case StoreError() | MemoryError() | OSError(errno=int()):
            # Arrow raises an `OSError` without errno for bytes that it cannot decode.
            return UnavailableSplitError(path, str(error))
        case _:
            return UnreadableSplitError(path, str(error))


def _with_schema(rows: RowReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with the columns of a schema; absent ones are null."""
    source_names = {name.lower(): name for name in rows.schema.names}
    present = [source_names[name.lower()] for name in schema.names if name.lower() in source_names]
    for batch in rows.scan(present):
        columns = {name.lower(): batch.column(i) for i, name in enumerate(present)}
        arrays = [
            columns[f.name.lower()] if f.name.lower() in columns else pa.nulls(batch.num_rows, f.type)
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
