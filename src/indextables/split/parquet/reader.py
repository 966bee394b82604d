"""Reads the rows of a split: by row number, or all in order.

To read a few rows, only their pages are fetched and decoded; the page index has their locations.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables import metrics
from indextables.errors import SplitError
from indextables.split.checksum import crc32, crc32s
from indextables.split.footer import ROW_COLUMN, Footer
from indextables.split.parquet.metadata import FileMetadata, RowGroupMetadata
from indextables.split.parquet.pages import FileLayout, Ints, Leaf, Pages
from indextables.split.parquet.row_groups import EncodedRowGroup, RowGroupWriter
from indextables.split.parquet.storage_types import from_storage
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

# By row group: the first rows of pages, and the pages that were selected among them.
_PageChoices: TypeAlias = dict[int, list[tuple[Ints, tuple[Ints, Ints, int]]]]


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="indextables-pages")


# Bytes that are read from splits on the local disk.
MAPPED = "indextables.split.mapped_bytes"


def cpu_count() -> int:
    """How many processors there are."""
    return os.cpu_count() or 2


def decode(data: bytes, positions: Ints, *, on_a_thread: bool) -> "Future[pa.Array]":
    """The values at some positions of a Parquet file of one column."""
    if on_a_thread:
        return _threads(os.getpid()).submit(_read_small, data, positions)
    done: Future[pa.Array] = Future()
    done.set_result(_read_small(data, positions))
    return done


def _read_small(data: bytes, positions: Ints) -> pa.Array:
    opened = pq.ParquetFile(pa.BufferReader(data))
    chunks = [opened.metadata.row_group(g).column(0) for g in range(opened.num_row_groups)]
    if all(c.has_dictionary_page and c.physical_type == "BYTE_ARRAY" for c in chunks):
        # Dictionary codes are selected before they are decoded.
        names, metadata = opened.schema_arrow.names, opened.metadata
        opened = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=names)
    values = opened.read(use_threads=False).column(0).take(pa.array(positions))
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def slice_batch(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices of no more than `most` bytes each, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from slice_batch(batch.slice(0, half), most)
    yield from slice_batch(batch.slice(half), most)


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are in memory: Arrow reads each column chunk as a whole."""

    def __init__(self, size: int, parts: dict[int, bytes]) -> None:
        self._size = size
        self._parts = parts
        self._position = 0

    @classmethod
    def open(cls, size: int, parts: dict[int, bytes]) -> Any:  # noqa: ANN401 - untyped library
        """An Arrow file of parts, by the offset of each."""
        return pa.PythonFile(cls(size, parts), "r")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; ValueError if they were not fetched."""
        part = self._parts.get(self._position, b"")
        if size is None or not 0 <= size <= len(part):
            raise ValueError(f"{size} bytes at {self._position} are not those of a column chunk")
        self._position += size
        return part if size == len(part) else part[:size]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to fetch of a column.

    `groups`: for each row group its number, the rows of the selected pages, the number of pages, and whether
    a dictionary page precedes them. `positions`: the requested rows among those of all selected pages.
    `ranges`: the byte ranges to read, with `size` bytes in all and their `checksums`, unless the format has
    none.
    """

    groups: list[tuple[int, int, int, bool]]
    positions: Ints
    ranges: list[tuple[int, int]]
    size: int
    checksums: list[int]


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
            return self._result_schema(names).empty_table()
        if numbers[0] < 0 or numbers[-1] >= self._footer.num_records:
            raise SplitError(f"{self._where}: no row {numbers[-1]}; there are {self._footer.num_records}")
        with self._translate_errors():
            return self._fetch(numbers, names)

    def _fetch(self, numbers: Ints, names: list[str]) -> pa.Table:
        parts = self._by_group(numbers)
        flat = [name for name in names if name in self._layout.flat and name != ROW_COLUMN]
        page_tables = self._selection(flat, parts)
        arrays = dict(zip(flat, self._decode(flat, parts, page_tables), strict=True))
        arrays[ROW_COLUMN] = pa.array(numbers, pa.int64())
        nested = [name for name in names if name not in arrays]
        if nested:
            arrays.update(self._nested(nested, parts))
        schema = self._result_schema(names)
        return pa.Table.from_arrays(
            [self._from_storage(arrays[name], schema.field(name).type) for name in names], schema=schema
        )

    def batches(
        self, numbers: Ints, columns: Sequence[str] | None = None, *, batch_bytes: int = BATCH_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers (ascending, distinct), by row group, or several small ones."""
        names = self._names(columns)
        parts = self._by_group(numbers)
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
        schema = self._result_schema(names)
        # With fewer columns decoded in parallel than cores, row groups are too.
        decoders = max(1, len(names)) if self._columns_in_parallel else 1
        largest = max((self._row_bytes(g, names) * self._layout.groups[g].rows for g in groups), default=0)
        depth = min(cpu_count(), len(groups), 1 + int(_AHEAD_BYTES // max(1, largest))) // decoders
        depth = max(1, depth)
        for table in self._read_ahead(
            [partial(self._group, group, names, start, end) for group in groups], depth
        ):
            typed = [self._from_storage(table.column(n), schema.field(n).type) for n in names]
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
        schema = self._result_schema(names)
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
                    typed = [self._from_storage(batch.column(n), schema.field(n).type) for n in names]
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
        schema = self._result_schema(names)
        typed = [self._from_storage(table.column(name), schema.field(name).type) for name in names]
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
        return self._store.get_ranges(self._path, ranges) if ranges else []

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        names = list(self._footer.schema.names if columns is None else columns)
        available = {*self._footer.schema.names, ROW_COLUMN}
        for name in names:
            if name not in available:
                raise SplitError(
                    f"{self._where}: no column {name!r}; the columns are {', '.join(sorted(available))}"
                )
        return names

    def _result_schema(self, names: list[str]) -> pa.Schema:
        number = pa.field(ROW_COLUMN, pa.int64(), nullable=False)
        return pa.schema([number if n == ROW_COLUMN else self._footer.schema.field(n) for n in names])

    def _from_storage(
        self, column: pa.ChunkedArray | pa.Array, kind: pa.DataType
    ) -> pa.ChunkedArray | pa.Array:
        return column if column.type == kind else from_storage(column, kind)

    # --- rows by number --------------------------------------------------------------------------------

    def _by_group(self, numbers: Ints) -> list[tuple[int, Ints]]:
        """The row numbers within each row group that has any of the rows."""
        groups = self._layout.groups
        bounds = np.searchsorted(numbers, [g.first_row for g in groups] + [self._footer.num_records])
        return [
            (i, numbers[bounds[i] : bounds[i + 1]] - groups[i].first_row)
            for i in range(len(groups))
            if bounds[i + 1] > bounds[i]
        ]

    def _selection(self, names: list[str], parts: list[tuple[int, Ints]]) -> dict[tuple[int, int], Pages]:
        """The pages of column chunks; page indexes that were not read before are fetched together."""
        leaves = [self._layout.flat[name] for name in names]
        keys = [(group, leaf) for leaf in leaves for group, _ in parts]
        missing = [(group, leaf) for group, leaf in keys if (group, leaf.number) not in self._pages]
        read = self._ranges([self._layout.page_index_range(group, leaf) for group, leaf in missing])
        checksums = self._footer.checksums
        for (group, leaf), data in zip(missing, read, strict=True):
            if checksums is not None:
                _check(data, checksums[group][leaf.number].offset_index, "a page index")
            checked = checksums is not None
            self._pages[group, leaf.number] = self._layout.pages(group, leaf, data, checked=checked)
        return {(group, leaf.number): self._pages[group, leaf.number] for group, leaf in keys}

    def _decode(
        self, names: list[str], parts: list[tuple[int, Ints]], pages: dict[tuple[int, int], Pages]
    ) -> list[pa.Array]:
        leaves = [self._layout.flat[name] for name in names]
        choices: _PageChoices = {}
        plans = [self._plan(leaf, parts, pages, choices) for leaf in leaves]
        # The largest first, so that the threads finish at about the same time.
        order = sorted(range(len(plans)), key=lambda i: -plans[i].size)
        read = self._ranges([each for i in order for each in plans[i].ranges])
        if self._footer.checksums is not None:
            expected = [crc for i in order for crc in plans[i].checksums]
            if crc32s(read) != expected:
                raise ValueError("a page differs from its checksum")
        data = iter(read)
        many = len(plans) > 1 and sum(plan.size for plan in plans) > _MIN_BYTES_FOR_THREADS
        decoded: list[Any] = [None] * len(plans)
        for i in order:
            column_parts = []
            for group, rows, count, has_dictionary in plans[i].groups:
                dictionary = next(data) if has_dictionary else b""
                column_parts.append((group, rows, [next(data) for _ in range(count)], dictionary))
            file = self._layout.single_column_file(leaves[i], column_parts)
            # Threads decode the first files while the others are assembled.
            decoded[i] = decode(file, plans[i].positions, on_a_thread=many)
        return [each.result() for each in decoded]

    def _plan(
        self,
        leaf: Leaf,
        parts: list[tuple[int, Ints]],
        pages: dict[tuple[int, int], Pages],
        choices: "_PageChoices",
    ) -> "_Plan":
        """Which pages of a column have the rows, and the positions of the rows in them."""
        groups: list[tuple[int, int, int, bool]] = []
        positions: list[Ints] = []
        ranges: list[tuple[int, int]] = []
        checksums: list[int] = []
        before = 0
        for group, local in parts:
            own = pages[group, leaf.number]
            selected, within, rows = self._select_pages(group, own.first_rows, local, choices)
            positions.append(within + before)
            if own.dictionary is not None:
                ranges.append(own.dictionary)
            starts = own.offsets[selected]
            ranges.extend(zip(starts.tolist(), (starts + own.lengths[selected]).tolist(), strict=True))
            if own.checksums is not None:
                checksums += own.checksums[:1].tolist() if own.dictionary is not None else []
                checksums += own.checksums[1 + selected].tolist()
            groups.append((group, rows, len(selected), own.dictionary is not None))
            before += rows
        size = sum(end - start for start, end in ranges)
        return _Plan(groups, np.concatenate(positions), ranges, size, checksums)

    def _select_pages(
        self, group: int, first_rows: Ints, local: Ints, choices: "_PageChoices"
    ) -> tuple[Ints, Ints, int]:
        """The pages with rows of a row group, the positions of the rows in them, and the rows of these pages.

        Most columns of a row group have page boundaries at the same rows, so the result is reused.
        """
        for cut, choice in choices.setdefault(group, []):
            if np.array_equal(cut, first_rows):
                return choice
        which = np.searchsorted(first_rows, local, side="right") - 1
        selected, place = np.unique(which, return_inverse=True)
        following = np.append(first_rows[1:], self._layout.groups[group].rows)
        counts = following[selected] - first_rows[selected]
        starts = np.cumsum(counts) - counts
        choice = selected, starts[place] + local - first_rows[which], int(counts.sum())
        choices[group].append((first_rows, choice))
        return choice

    def _nested(self, names: list[str], parts: list[tuple[int, Ints]]) -> dict[str, pa.ChunkedArray]:
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
            truncated = Path(self.path).stat().st_size < self.data.size
        except FileNotFoundError:
            truncated = False  # a deleted file stays readable as long as it is mapped
        if truncated:
            raise ValueError("the file was truncated since it was opened")
        return memoryview(self.data).cast("B")


def _check(data: bytes | memoryview, expected: int | None, what: str) -> None:
    if crc32(data) != expected:
        raise ValueError(f"{what} differs from its checksum")
