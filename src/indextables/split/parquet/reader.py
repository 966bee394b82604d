"""Reads the rows of a split: by row number, or all in order.

To read a few rows, only their pages are fetched and decoded; the page index has their locations.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables import metrics
from indextables.errors import SplitError
from indextables.limits import cpu_count
from indextables.records import dataclass
from indextables.schema.type_info import decode_dictionary
from indextables.split.checksum import crc32, crc32s
from indextables.split.footer import MAGIC, ROW_COLUMN, Footer, read_ranges
from indextables.split.parquet.metadata import (
    ChunkPages,
    FileMetadata,
    RowGroupMetadata,
    pages_footer,
)
from indextables.split.parquet.pages import (
    FileLayout,
    Ints,
    PageChoices,
    Pages,
    PageSelection,
    SparseFile,
    select_pages,
)
from indextables.split.parquet.writer import EncodedRowGroup, RowGroupWriter, from_storage
from indextables.store import Store

# Below this many bytes of pages, threads cost more than they save.
_MIN_BYTES_FOR_THREADS = 256 << 10
T = TypeVar("T")

BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
# The limit for row groups that are decoded ahead, unless a single one exceeds it.
_AHEAD_BYTES = 128 << 20
# Rows of several row groups are fetched together up to this number, since each call has a cost.
_ROWS_PER_FETCH = 1024


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="indextables-pages")


# Bytes that are read from splits on the local disk.
MAPPED = "indextables.split.mapped_bytes"


def slice_batch(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices of no more than `most` bytes each, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from slice_batch(batch.slice(0, half), most)
    yield from slice_batch(batch.slice(half), most)


@dataclass(frozen=True, slots=True)
class _PageFile:
    """The pages of some columns as a Parquet file in memory; the requested rows have the same positions.

    `columns` are the numbers of the columns among those of the request. `coded` are the names of those whose
    pages have dictionaries of byte arrays in all row groups.
    """

    data: bytes
    columns: Sequence[int]
    positions: Ints
    coded: list[str]

    def read(self) -> dict[int, pa.Array]:
        """The requested values, by column; dictionary codes are selected before they are decoded."""
        opened = pq.ParquetFile(pa.BufferReader(self.data), read_dictionary=self.coded, pre_buffer=False)
        rows = opened.read(use_threads=False).combine_chunks().take(pa.array(self.positions))
        return {
            number: _decode_column(column)
            for number, column in zip(self.columns, rows.itercolumns(), strict=True)
        }


def _decode_column(column: pa.ChunkedArray) -> pa.Array:
    values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return decode_dictionary(values)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: the metadata of its file and its own, its bytes, and its rows."""

    file_metadata: FileMetadata
    metadata: RowGroupMetadata
    encoded: EncodedRowGroup
    rows: pa.Table


class ReaderState:
    """Data of an open split beyond its footer; it can be cached, and shared by threads.

    For a split on the local disk it has the memory map of the file. It has no store, hence no credentials.
    """

    def __init__(self, local_path: str | None, size: int) -> None:
        self.layout: FileLayout | None = None
        self.pages: dict[tuple[int, int], Pages] = {}
        self.map = MappedFile.open(local_path, size) if local_path is not None else None


class RowReader:
    """An open split, for reading rows; may be shared by threads."""

    def __init__(self, store: Store, footer: Footer, state: ReaderState | None = None) -> None:
        """Open a split; `state` is that of an earlier reader of the same split."""
        self._store = store
        self._footer = footer
        self._path = footer.path
        self._state = state or ReaderState(store.local_path(footer.path), footer.size)
        self._pages = self._state.pages
        self._map = self._state.map

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._footer.schema

    def fetch(self, numbers: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these numbers, which must be ascending and distinct, in that order."""
        names = self._names(columns)
        if not len(numbers):
            return self.result_schema(names).empty_table()
        if numbers[0] < 0 or numbers[-1] >= self._footer.num_records:
            raise SplitError(f"{self._where}: no row {numbers[-1]}; there are {self._footer.num_records}")
        with self._translate_errors():
            return self._fetch(numbers, names)

    def _fetch(self, numbers: Ints, names: list[str]) -> pa.Table:
        flat = self.flat_columns(names)
        arrays: dict[str, Any] = {}
        if flat:
            pages = self.pages(numbers, flat)
            arrays = dict(zip(flat, _decode([(self, pages)], flat), strict=True))
        arrays[ROW_COLUMN] = pa.array(numbers, pa.int64())
        nested = [name for name in names if name not in arrays]
        if nested:
            arrays.update(
                self._read_nested(nested, self._layout.rows_by_group(numbers, self._footer.num_records))
            )
        schema = self.result_schema(names)
        return pa.Table.from_arrays(
            [from_storage_type(arrays[name], schema.field(name).type) for name in names], schema=schema
        )

    def flat_columns(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that are stored as one leaf, and so are read by page."""
        return [name for name in names if name in self._layout.flat and name != ROW_COLUMN]

    def schema_bytes(self, flat: Sequence[str]) -> bytes:
        """Identifies how these columns are stored."""
        return self._layout.schema_bytes(tuple(flat))

    def pages(self, numbers: Ints, flat: Sequence[str]) -> "SelectedPages":
        """The pages with these rows, compared with their checksums."""
        with self._translate_errors():
            parts = self._layout.rows_by_group(numbers, self._footer.num_records)
            located = self._selection(flat, parts)
            choices: PageChoices = {}
            plans = [
                select_pages(self._layout, self._layout.flat[name], parts, located, choices) for name in flat
            ]
            read = self._ranges([each for plan in plans for each in plan.ranges])
            if self._footer.checksums is not None:
                expected = [crc for plan in plans for crc in plan.checksums]
                if crc32s(read) != expected:
                    raise ValueError("a page differs from its checksum")
            return SelectedPages(plans, read)

    def batches(
        self, numbers: Ints, columns: Sequence[str] | None = None, *, batch_bytes: int = BATCH_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers (ascending, distinct), by row group, or several small ones."""
        names = self._names(columns)
        parts = self._layout.rows_by_group(numbers, self._footer.num_records)
        ends = np.cumsum([len(local) for _, local in parts]).tolist()
        sizes = np.cumsum([len(local) * self._row_bytes(group, names) for group, local in parts]).tolist()
        start, size = 0, 0.0
        for (end, reached), (following, next_size) in pairwise(
            [*zip(ends, sizes, strict=True), (np.inf, np.inf)]
        ):
            if following - start > _ROWS_PER_FETCH or next_size - size > batch_bytes:
                # One chunk for each column, so that the rows become one batch.
                table = self.fetch(numbers[start:end], columns).combine_chunks()
                for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                    yield from slice_batch(batch, batch_bytes)
                start, size = end, reached

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: int = 0,
        end: int | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """The rows from number `start` to before `end`, in order; few row groups are decoded ahead."""
        names = self._names(columns)
        end = self._footer.num_records if end is None else min(end, self._footer.num_records)
        groups = [
            i for i, g in enumerate(self._layout.groups) if g.first_row < end and g.first_row + g.rows > start
        ]
        if self._map is not None and len(names) >= cpu_count():
            for batch in self._stream(groups, names, start, end, batch_rows, batch_bytes):
                yield from slice_batch(batch, batch_bytes)
            return
        schema = self.result_schema(names)
        # With fewer columns decoded in parallel than cores, row groups are too.
        decoders = max(1, len(names)) if self._columns_in_parallel else 1
        largest = max((self._row_bytes(g, names) * self._layout.groups[g].rows for g in groups), default=0)
        depth = min(cpu_count(), len(groups), 1 + int(_AHEAD_BYTES // max(1, largest))) // decoders
        depth = max(1, depth)
        for table in self._read_ahead(
            [partial(self._group, group, names, start, end) for group in groups], depth
        ):
            typed = [from_storage_type(table.column(n), schema.field(n).type) for n in names]
            rows = pa.Table.from_arrays(typed, schema=schema) if names else table
            for batch in rows.to_batches(max_chunksize=batch_rows):
                yield from slice_batch(batch, batch_bytes)

    def _row_bytes(self, group: int, names: list[str]) -> float:
        """The average uncompressed size of a row of a row group."""
        row_group = self._layout.groups[group]
        columns = (row_group.columns[number] for number in self._layout.chunks(names))
        return sum(column.uncompressed_size for column in columns) / max(1, row_group.rows)

    def _stream(
        self, groups: list[int], names: list[str], start: int, end: int, batch_rows: int, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a local file, decoded batch by batch, so that memory is reused."""
        schema = self.result_schema(names)
        for group in groups:
            position = self._layout.groups[group].first_row
            fitting = int(batch_bytes // max(1, self._row_bytes(group, names)))
            with self._translate_errors():
                batches = self._open(group, names).iter_batches(
                    max(1, min(batch_rows, fitting)),
                    row_groups=[group],
                    columns=names,
                    use_threads=pa.cpu_count() > 1,
                )
            while True:
                with self._translate_errors():
                    batch = next(batches, None)
                if batch is None:
                    break
                low, high = max(0, start - position), min(batch.num_rows, end - position)
                position += batch.num_rows
                if low < high:
                    typed = [from_storage_type(batch.column(n), schema.field(n).type) for n in names]
                    rows = pa.RecordBatch.from_arrays(typed, schema=schema)
                    yield rows if high - low == rows.num_rows else rows.slice(low, high - low)

    def groups(self) -> Iterator["RowGroup"]:
        """The row groups in order, encoded and decoded; one is read ahead."""
        yield from self._read_ahead(
            [partial(self._read_row_group, number) for number in range(len(self._layout.groups))], 1
        )

    def _read_ahead(self, tasks: Sequence[Callable[[], T]], depth: int) -> Iterator[T]:
        """The results of tasks, in order; threads run `depth` tasks ahead."""
        if len(tasks) == 1:
            with self._translate_errors():
                only = tasks[0]()
            yield only
            return
        with ThreadPoolExecutor(depth, thread_name_prefix="indextables-scan") as ahead:
            waiting = deque(ahead.submit(task) for task in tasks[:depth])
            for number in range(len(tasks)):
                with self._translate_errors():
                    done = waiting.popleft().result()
                if number + depth < len(tasks):
                    waiting.append(ahead.submit(tasks[number + depth]))
                yield done

    def _read_row_group(self, number: int) -> "RowGroup":
        group = self._layout.metadata.row_groups[number]
        encoded = EncodedRowGroup.read(group, self._ranges)
        if self._footer.checksums is not None:
            encoded.check(self._footer.checksums[number])
        # Decoded from a copy, so that the bytes that will be written are known to be readable.
        copy = pa.BufferOutputStream()
        file = RowGroupWriter(copy, self._layout.metadata)
        file.add(encoded)
        file.close(lambda _: {})
        names = self._footer.schema.names
        table = pq.ParquetFile(pa.BufferReader(copy.getvalue())).read(columns=names)
        if table.num_rows != encoded.rows:
            raise ValueError(f"a row group has {table.num_rows} rows instead of {encoded.rows}")
        schema = self.result_schema(names)
        typed = [from_storage_type(table.column(name), schema.field(name).type) for name in names]
        return RowGroup(self._layout.metadata, group, encoded, pa.Table.from_arrays(typed, schema=schema))

    # --- the file -------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"{self._store.url}/{self._path}"

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of decoders into a SplitError."""
        try:
            yield
        except (pa.ArrowException, OSError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            raise SplitError(
                f"{self._where}: the rows cannot be read ({error}); the split is damaged"
            ) from error

    @property
    def _layout(self) -> FileLayout:
        if (layout := self._state.layout) is None:
            sink = pa.BufferOutputStream()
            with self._translate_errors():
                self._footer.parquet.write_metadata_file(sink)
                layout = self._state.layout = FileLayout.of(sink.getvalue().to_pybytes()[4:-8])
        return layout

    def _open(self, group: int, names: list[str]) -> pq.ParquetFile:
        """A reader of some columns of a row group, after a comparison of their checksums.

        Every call opens a new reader, since readers are cheap and not thread-safe.
        """
        numbers = self._layout.chunks(names)
        places = [self._layout.groups[group].columns[number].byte_range for number in numbers]
        data = self._ranges(places)
        if self._footer.checksums is not None:
            for number, chunk in zip(numbers, data, strict=True):
                _check(chunk, self._footer.checksums[group][number].chunk, "a column chunk")
        if self._map is not None:
            source = pa.BufferReader(self._map.data)
        else:
            parts = {start: bytes(chunk) for (start, _), chunk in zip(places, data, strict=True)}
            source = SparseFile.open(self._footer.size, parts)
        return pq.ParquetFile(source, metadata=self._footer.parquet, pre_buffer=False)

    def _ranges(self, ranges: list[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        if self._map is not None:
            whole = self._map.bytes()
            metrics.record(MAPPED, sum(end - start for start, end in ranges))
            return [whole[start:end] for start, end in ranges]
        return read_ranges(self._store, self._path, self._footer.size, ranges) if ranges else []

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        names = list(self._footer.schema.names if columns is None else columns)
        available = {*self._footer.schema.names, ROW_COLUMN}
        for name in names:
            if name not in available:
                raise SplitError(
                    f"{self._where}: no column {name!r}; the columns are {', '.join(sorted(available))}"
                )
        return names

    @property
    def is_local(self) -> bool:
        """Whether the split is on the local disk."""
        return self._map is not None

    def result_schema(self, names: Sequence[str]) -> pa.Schema:
        """The columns with the types that the table has."""
        number = pa.field(ROW_COLUMN, pa.int64(), nullable=False)
        return pa.schema([number if n == ROW_COLUMN else self._footer.schema.field(n) for n in names])

    # --- rows by number --------------------------------------------------------------------------------

    def _selection(self, names: Sequence[str], parts: list[tuple[int, Ints]]) -> dict[tuple[int, int], Pages]:
        """The pages of column chunks; page indexes that were not read before are fetched together."""
        leaves = [self._layout.flat[name] for name in names]
        keys = [(group, leaf) for leaf in leaves for group, _ in parts]
        missing = [(group, leaf) for group, leaf in keys if (group, leaf.number) not in self._pages]
        read = self._ranges([self._layout.page_index_range(group, leaf) for group, leaf in missing])
        checksums = self._footer.checksums
        for (group, leaf), data in zip(missing, read, strict=True):
            if checksums is not None:
                _check(data, checksums[group][leaf.number].offset_index, "a page index")
            pages = self._layout.pages(group, leaf, data, checked=checksums is not None)
            self._pages[group, leaf.number] = self._with_shared_rows(group, pages)
        return {(group, leaf.number): self._pages[group, leaf.number] for group, leaf in keys}

    def _with_shared_rows(self, group: int, pages: Pages) -> Pages:
        """The same pages; columns whose pages begin at the same rows have one array of these."""
        for (other, _), earlier in list(self._pages.items()):
            if other == group and np.array_equal(earlier.first_rows, pages.first_rows):
                return replace(pages, first_rows=earlier.first_rows)
        return pages

    def _read_nested(self, names: list[str], parts: list[tuple[int, Ints]]) -> dict[str, pa.ChunkedArray]:
        """Nested columns: the pages of their leaves have different rows, so whole row groups are read."""
        tables = [self._read_group(group, names).take(pa.array(local)) for group, local in parts]
        table = pa.concat_tables(tables)
        return {name: table.column(name) for name in names}

    @property
    def _columns_in_parallel(self) -> bool:
        """Whether threads of Arrow decode columns: only from memory of Arrow (see `MappedFile`)."""
        return self._map is not None

    def _read_group(self, group: int, names: list[str]) -> pa.Table:
        opened = self._open(group, names)
        return opened.read_row_group(group, columns=names, use_threads=self._columns_in_parallel)

    def _group(self, group: int, names: list[str], start: int, end: int) -> pa.Table:
        first = self._layout.groups[group].first_row
        table = self._read_group(group, names)
        low, high = max(0, start - first), min(self._layout.groups[group].rows, end - first)
        return table if low == 0 and high == table.num_rows else table.slice(low, high - low)


@dataclass(frozen=True, slots=True)
class SelectedPages:
    """The pages of some columns of a split: what was planned for each column, and the bytes of all."""

    plans: list[PageSelection]
    data: Sequence[bytes | memoryview]

    def parts(self, number: int) -> Sequence[bytes | memoryview]:
        """The bytes of one column: for each row group its dictionary page, if it has one, and data pages."""
        start = sum(len(plan.ranges) for plan in self.plans[:number])
        return self.data[start : start + len(self.plans[number].ranges)]


def fetch_together(requests: Sequence[tuple[RowReader, Ints]], columns: Sequence[str]) -> pa.Table | None:
    """Rows of several splits as one table, in the order of the requests; they are decoded together.

    Args:
        requests: Splits with the numbers of their rows, ascending and distinct; at least one row of each.
        columns: Columns that all of the splits have.

    Returns:
        The rows; None if the splits store the columns differently, or one of the columns is nested.

    Raises:
        SplitError: A split is damaged; it is named.
    """
    first, _ = requests[0]
    flat = first.flat_columns(columns)
    kind, schema = first.schema_bytes(flat), first.result_schema(columns)
    if len(flat) < len(columns) or any(
        reader.flat_columns(columns) != flat
        or reader.schema_bytes(flat) != kind
        or not reader.result_schema(columns).equals(schema)
        for reader, _ in requests[1:]
    ):
        return None
    if all(reader.is_local for reader, _ in requests):
        pages = [(reader, reader.pages(numbers, flat)) for reader, numbers in requests]
    else:
        pool = _threads(os.getpid())
        running = [(reader, pool.submit(reader.pages, numbers, flat)) for reader, numbers in requests]
        pages = [(reader, each.result()) for reader, each in running]
    try:
        arrays = _decode(pages, flat)
    except (pa.ArrowException, OSError, ValueError):
        # One by one, so that the error names the split.
        return pa.concat_tables([reader.fetch(numbers, columns) for reader, numbers in requests])
    typed = [from_storage_type(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.Table.from_arrays(typed, schema=schema)


def _decode(pages: Sequence[tuple[RowReader, SelectedPages]], flat: Sequence[str]) -> list[pa.Array]:
    """The requested rows of several splits that store the columns in the same way, by column.

    Columns whose pages begin at the same rows are one file in memory; most columns do.
    """
    same_pages: dict[tuple[object, ...], list[int]] = {}
    for number in range(len(flat)):
        plans = [selected.plans[number] for _, selected in pages]
        key = tuple((plan.positions.tobytes(), *(rows for _, rows, _, _ in plan.groups)) for plan in plans)
        same_pages.setdefault(key, []).append(number)
    classes = list(same_pages.values())
    size = sum(len(part) for _, selected in pages for part in selected.data)
    if size > _MIN_BYTES_FOR_THREADS:
        # Threads decode the columns, each alone.
        classes = [[number] for number in range(len(flat))]
    files = (_page_file(pages, flat, columns) for columns in classes)
    if len(classes) < 2 or size <= _MIN_BYTES_FOR_THREADS:
        results = [file.read() for file in files]
    else:
        pool = _threads(os.getpid())
        results = [each.result() for each in [pool.submit(file.read) for file in files]]
    arrays = {number: array for result in results for number, array in result.items()}
    return [arrays[number] for number in range(len(flat))]


def _page_file(
    pages: Sequence[tuple[RowReader, SelectedPages]], flat: Sequence[str], columns: Sequence[int]
) -> _PageFile:
    """A Parquet file of the pages of some columns, from several splits."""
    body: list[bytes | memoryview] = [MAGIC]
    groups: list[tuple[int, list[ChunkPages]]] = []
    offset = len(MAGIC)
    coded = dict.fromkeys(columns, True)
    positions: list[Ints] = []
    before = 0
    for _, selected in pages:
        own: list[list[ChunkPages]] = [[] for _ in selected.plans[0].groups]
        for number in columns:
            plan = selected.plans[number]
            data = iter(selected.parts(number))
            for place, (chunk, rows, count, has_dictionary) in enumerate(plan.groups):
                parts = [next(data) for _ in range(count + has_dictionary)]
                size = sum(map(len, parts))
                dictionary = len(parts[0]) if has_dictionary else 0
                own[place].append(ChunkPages(chunk, rows, offset, dictionary, size))
                coded[number] = coded[number] and has_dictionary and chunk.is_bytes
                body += parts
                offset += size
        groups += [(chunks[0].rows, chunks) for chunks in own]
        positions.append(selected.plans[columns[0]].positions + before)
        before += selected.plans[columns[0]].rows
    footer = pages_footer(pages[0][0].schema_bytes([flat[number] for number in columns]), groups)
    file = b"".join([*body, footer, len(footer).to_bytes(4, "little"), MAGIC])
    names = [flat[number] for number, is_coded in coded.items() if is_coded]
    return _PageFile(file, columns, np.concatenate(positions), names)


def from_storage_type(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column in the type that the table has, where the file stores another one."""
    return column if column.type == kind else from_storage(column, kind)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A local file that is mapped into memory.

    The memory belongs to Arrow: a thread of Arrow that still holds a part of it while the interpreter ends
    releases it without the interpreter, whereas a buffer of Python's would abort the process.
    """

    path: str
    data: pa.Buffer

    @classmethod
    def open(cls, path: str, size: int) -> "MappedFile":
        """Map a file, whose size must be `size`; the file itself is closed."""
        try:
            with pa.memory_map(path) as file:
                data = file.read_buffer()
        except (OSError, ValueError) as error:
            raise SplitError(f"{path}: the split cannot be opened ({error})") from error
        if data.size != size:
            raise SplitError(
                f"{path}: the split has {data.size} bytes instead of {size}; it was replaced or truncated"
            )
        return cls(path, data)

    def bytes(self) -> memoryview:
        """The whole file; ValueError if it was truncated since, as pages past its end cannot be read."""
        try:
            truncated = os.stat(self.path).st_size < self.data.size  # noqa: PTH116 - for every fetch
        except FileNotFoundError:
            truncated = False  # a deleted file stays readable as long as it is mapped
        if truncated:
            raise ValueError("the file was truncated since it was opened")
        return memoryview(self.data).cast("B")


def _check(data: bytes | memoryview, expected: int | None, what: str) -> None:
    if crc32(data) != expected:
        raise ValueError(f"{what} differs from its checksum")
