"""A Parquet data file of any writer: its footer, all rows in order, or the rows at some positions.

For a few rows, only their pages are read: they are located by the page index or, in files without one, by the
page headers of a column chunk. Nested columns, whose leaves have pages with different rows, are read by row
group.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import (
    ObjectMissingError,
    SourceChangedError,
    SourceError,
    StoreError,
    UnsupportedSourceError,
)
from indextables.limits import MAX_PARQUET_FOOTER, cpu_count
from indextables.schema.type_info import TypeKind, decode_dictionary, leaf_count, storage_kind_of
from indextables.source.locations import Place
from indextables.split.parquet.metadata import Bytes, FileMetadata, read_struct
from indextables.split.parquet.pages import (
    FileLayout,
    Ints,
    Leaf,
    PageChoices,
    Pages,
    SparseFile,
    page_locations,
    range_within,
    select_pages,
)

BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# The size of the first read of a file, which contains most footers.
_TAIL = 64 << 10
# Below this many bytes of pages, threads cost more than they save.
_THREAD_BYTES = 256 << 10
# How many rows are decoded before the requested ones are selected.
_DECODED_ROWS = 1 << 16
# A column of texts with at most this many bytes a row is stored as codes: a text alone has four and more.
_CODE_BYTES = 2.5
_BYTES = frozenset({TypeKind.STRING, TypeKind.BINARY})
# Of the page header (parquet.thrift): its fields, and the kinds of pages.
_PAGE_TYPE, _PAGE_BYTES, _V1_HEADER, _V2_HEADER, _PAGE_VALUES = 1, 3, 5, 8, 1
_DATA_PAGE, _DICTIONARY, _DATA_PAGE_V2 = 0, 2, 3
# The encoding of the values in the header of a data page of each kind, and those of codes of a dictionary.
_V1_ENCODING, _V2_ENCODING = 2, 4
_CODES = (2, 8)
# No page header has more bytes, statistics included.
_HEADER_BYTES = 1 << 20
_INT96 = "INT96"

Range: TypeAlias = tuple[int, int]


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="indextables-source")


class FileBytes:
    """Ranges of bytes of one data file: mapped on the local disk, fetched from an object store."""

    def __init__(self, place: Place, size: int) -> None:
        """`size` is that of the table's log or listing; a file of another size was replaced."""
        self._store, self._path, self.url = place
        self.size = size
        local = self._store.local_path(self._path)
        self._map = None if local is None else _map_file(local, self.url, size)

    @property
    def is_local(self) -> bool:
        """Whether the file is on the local disk."""
        return self._map is not None

    def ranges(self, ranges: Sequence[Range]) -> Sequence[Bytes]:
        """Several ranges; near ones share a request."""
        for start, end in ranges:
            if not 0 <= start <= end <= self.size:
                raise SourceError(
                    f"{self.url}: the footer refers to bytes {start} to {end}, but the file has {self.size}; "
                    "the file is damaged"
                )
        if self._map is not None:
            if self._map.size() < self.size:
                raise SourceChangedError(self.url, "was truncated while it was read")
            whole = memoryview(self._map)
            return [whole[start:end] for start, end in ranges]
        try:
            return self._store.get_ranges(self._path, ranges)
        except ObjectMissingError:
            raise SourceChangedError(self.url, "is not there any more") from None

    def open(self, parts: dict[int, Bytes]) -> Any:  # noqa: ANN401 - untyped library
        """An Arrow file; `parts` are ranges in memory by their start, other ranges are fetched when read."""
        if self._map is not None:
            return pa.BufferReader(self._map)
        return SparseFile.open(self.size, parts, lambda start, end: self.ranges([(start, end)])[0])


class ParquetFile:
    """An open Parquet data file; may be shared by threads.

    The file's Arrow schema follows from its Parquet types alone: a schema that an Arrow writer stored
    in the file is ignored, so that equal Parquet types always give equal Arrow types.
    """

    def __init__(self, data: FileBytes) -> None:
        self.data = data
        footer = self._footer()
        with self._errors():
            metadata = FileMetadata.parse(footer)
            self.key_values = metadata.key_values
            odd = any(element.is_odd_leaf for element in metadata.schema_elements)
            if "ARROW:schema" in self.key_values or odd:
                footer = metadata.without_extras().to_bytes()
            self.metadata = pq.read_metadata(
                pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC)
            )
            self.schema: pa.Schema = self.metadata.schema.to_arrow_schema()
            self._layout = FileLayout.of(footer)
        self._flat = self._flat_leaves()
        self._pages: dict[tuple[int, int], Pages] = {}

    @property
    def url(self) -> str:
        """The URL of the file."""
        return self.data.url

    @property
    def num_rows(self) -> int:
        """The number of rows of the file."""
        return int(self.metadata.num_rows)

    @cached_property
    def leaf_ranges(self) -> list[range]:
        """The leaf columns of each top-level column, by number."""
        ranges, first = [], 0
        for field in self.schema:
            count = leaf_count(field.type)
            ranges.append(range(first, first + count))
            first += count
        if first != self.metadata.num_columns:
            raise SourceError(f"{self.url}: the footer's schema is malformed; the file is damaged")
        return ranges

    def is_int96(self, leaf: int) -> bool:
        """Whether a leaf column has timestamps of the old type INT96."""
        return bool(self.metadata.schema.column(leaf).physical_type == _INT96)

    def has_julian_dates(self, *, int96: bool) -> bool:
        """Whether Spark wrote old dates and times of the file in the Julian calendar."""
        version = self.key_values.get("org.apache.spark.version")
        if int96:
            return "org.apache.spark.legacyINT96" in self.key_values or (version or "9") < "3.1.0"
        return "org.apache.spark.legacyDateTime" in self.key_values or (version or "9") < "3.0.0"

    def fetch(
        self, positions: Ints, columns: Sequence[int], leaves: Sequence[int]
    ) -> list[pa.Array | pa.ChunkedArray]:
        """The rows at ascending, distinct positions; columns by number, restricted to some leaves."""
        if len(positions) and not 0 <= positions[0] <= positions[-1] < self.num_rows:
            raise SourceChangedError(self.url, f"has {self.num_rows} rows, and no row {positions[-1]}")
        with self._errors():
            parts = self._layout.rows_by_group(positions, self.num_rows)
            flat = [column for column in columns if column in self._flat]
            arrays: dict[int, Any] = dict(zip(flat, self._decode_pages(flat, parts), strict=True))
            nested = [column for column in columns if column not in arrays]
            if nested:
                arrays.update(self._read_groups(nested, leaves, parts))
            return [arrays[column] for column in columns]

    def is_dense(self, positions: Ints, columns: Sequence[int]) -> bool:
        """Whether rows are in more than half of the pages, so that a scan costs less than fetching them."""
        if not len(positions) or not 0 <= positions[0] <= positions[-1] < self.num_rows:
            return False
        if 2 * len(positions) > self.num_rows:
            return True
        leaf = next((self._flat[column] for column in columns if column in self._flat), None)
        if leaf is None:
            return False
        parts = self._layout.rows_by_group(positions, self.num_rows)
        places = {group: self._layout.groups[group].columns[leaf.number] for group, _ in parts}
        if any(
            (group, leaf.number) not in self._pages and chunk.offset_index_range is None
            for group, chunk in places.items()
        ):
            return False
        with self._errors():
            self._locate([(group, leaf) for group in places])
        row_pages = pages = rows = 0
        for group, local in parts:
            first_rows = self._pages[group, leaf.number].first_rows
            row_pages += len(np.unique(np.searchsorted(first_rows, local, side="right")))
            pages += len(first_rows)
            rows += self._layout.groups[group].rows
        return 2 * row_pages * rows > pages * self.num_rows

    def scan(
        self, columns: Sequence[int], leaves: Sequence[int], batch_rows: int, *, coded: bool = False
    ) -> Iterator[tuple[int, pa.RecordBatch | int]]:
        """All rows in order: the position of the first row of each batch, and the batch.

        Without columns a batch is only its number of rows. With `coded`, columns of few distinct texts are
        dictionaries: of rows that are left out, no text is made.
        """
        first = 0
        for group in range(self.metadata.num_row_groups):
            rows = self._layout.groups[group].rows
            if not columns:
                for start in range(0, rows, batch_rows):
                    yield first + start, min(batch_rows, rows - start)
                first += rows
                continue
            with self._errors():
                names = self._coded_columns(group, columns) if coded else []
                reader = self._open(group, leaves, names).reader
                fitting = int(BATCH_BYTES // max(1.0, self._row_bytes(group, leaves)))
                batches = reader.iter_batches(max(1, min(batch_rows, fitting)), [group], list(leaves))
            while True:
                with self._errors():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield first, batch
                first += batch.num_rows

    def batch_rows(self, leaves: Sequence[int], most: int) -> int:
        """The number of rows of a batch of moderate size."""
        largest = max((self._row_bytes(g, leaves) for g in range(len(self._layout.groups))), default=1.0)
        return max(1, min(most, int(BATCH_BYTES // max(1.0, largest))))

    # --- the file --------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of Parquet decoders as SourceError."""
        try:
            yield
        except (StoreError, SourceError):
            raise
        except (pa.ArrowException, OSError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            raise SourceError(
                f"{self.url} cannot be read ({error}); the file is damaged, or was replaced by another"
            ) from error

    def _footer(self) -> bytes:
        size = self.data.size
        if size < 12:
            raise SourceError(f"{self.url} has {size} bytes, which is no Parquet file")
        start = max(0, size - _TAIL)
        tail = memoryview(self.data.ranges([(start, size)])[0])
        if bytes(tail[-4:]) == _ENCRYPTED_MAGIC:
            raise UnsupportedSourceError("Parquet encryption", f"{self.url} is encrypted")
        if bytes(tail[-4:]) != MAGIC:
            raise SourceError(f"{self.url} does not end as a Parquet file; it is damaged, or of another kind")
        length = int.from_bytes(tail[-8:-4], "little")
        if length > min(size - 12, MAX_PARQUET_FOOTER):
            raise SourceError(f"{self.url} announces a footer of {length} bytes; the file is damaged")
        if length + 8 > len(tail):
            return bytes(self.data.ranges([(size - 8 - length, size - 8)])[0])
        return bytes(tail[-8 - length : -8])

    def _flat_leaves(self) -> dict[int, Leaf]:
        """The top-level columns that are leaves and occur once in each row, by their number."""
        schema = self.metadata.schema
        flat = {}
        names = [field.name for field in self.schema]
        for number, leaves in enumerate(self.leaf_ranges):
            leaf = self._layout.flat.get(names[number])
            repeated = schema.column(leaves[0]).max_repetition_level
            if leaf is not None and len(leaves) == 1 and leaf.number == leaves[0] and not repeated:
                flat[number] = leaf
        return flat

    def _row_bytes(self, group: int, leaves: Sequence[int]) -> float:
        """The average size of an encoded row of a row group."""
        row_group = self._layout.groups[group]
        return sum(row_group.columns[leaf].uncompressed_size for leaf in leaves) / max(1, row_group.rows)

    def _coded_columns(self, group: int, columns: Sequence[int]) -> list[str]:
        """The names of columns of texts that are so small in a row group that they can only be codes."""
        row_group = self._layout.groups[group]
        names = []
        for column in columns:
            leaf, field = self._flat.get(column), self.schema.field(column)
            if leaf is None or storage_kind_of(field.type) not in _BYTES:
                continue
            size = row_group.columns[leaf.number].uncompressed_size
            # The reader interprets a name with a dot as a field within another.
            if size <= _CODE_BYTES * row_group.rows and "." not in field.name:
                names.append(field.name)
        return names

    def _open(self, group: int, leaves: Sequence[int], coded: Sequence[str] = ()) -> pq.ParquetFile:
        parts: dict[int, Bytes] = {}
        if not self.data.is_local:
            places = [self._layout.groups[group].columns[leaf].byte_range for leaf in leaves]
            read = self.data.ranges(places)
            parts = {start: part for (start, _), part in zip(places, read, strict=True)}
        return pq.ParquetFile(
            self.data.open(parts),
            metadata=self.metadata,
            read_dictionary=list(coded) or None,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
        )

    # --- rows by position ------------------------------------------------------------------------------

    def _read_groups(
        self, columns: list[int], leaves: Sequence[int], parts: list[tuple[int, Ints]]
    ) -> dict[int, pa.ChunkedArray]:
        own = [leaf for column in columns for leaf in self.leaf_ranges[column]]
        selected = sorted(set(own) & set(leaves))
        tables = [
            self._open(group, selected).reader.read_row_groups([group], selected).take(pa.array(local))
            for group, local in parts
        ]
        table = pa.concat_tables(tables)
        return dict(zip(sorted(columns), table.columns, strict=True))

    def _decode_pages(self, columns: list[int], parts: list[tuple[int, Ints]]) -> list[pa.Array]:
        chunks = self._locate([(group, self._flat[column]) for column in columns for group, _ in parts])
        same: PageChoices = {}
        choices = [
            select_pages(self._layout, self._flat[column], parts, self._pages, same) for column in columns
        ]
        # The largest first, so that the threads finish at about the same time.
        order = sorted(range(len(choices)), key=lambda i: -choices[i].size)
        data = iter(self._ranges([each for i in order for each in choices[i].ranges], chunks))
        threads = len(choices) > 1 and sum(choice.size for choice in choices) > _THREAD_BYTES
        decoded: dict[int, Future[pa.Array]] = {}
        for i in order:
            groups = []
            for chunk, rows, count, has_dictionary in choices[i].groups:
                dictionary = next(data) if has_dictionary else b""
                groups.append((chunk, rows, [next(data) for _ in range(count)], dictionary))
            file = self._layout.single_column_file(self._flat[columns[i]], groups)
            kind = self.schema.field(columns[i]).type
            coded = storage_kind_of(kind) in _BYTES and all(
                dictionary and _is_coded(page) for _, _, pages, dictionary in groups for page in pages
            )
            decoded[i] = _decode(file, choices[i].positions, coded=coded, on_a_thread=threads)
        return [decoded[i].result() for i in range(len(columns))]

    def _ranges(self, ranges: list[Range], chunks: dict[int, Bytes]) -> Iterator[Bytes]:
        """Ranges of the file; ranges of chunks in memory are not fetched again."""
        starts = sorted(chunks)
        parts = [range_within(chunks, starts, start, end) for start, end in ranges]
        missing = [place for place, data in zip(ranges, parts, strict=True) if data is None]
        fetched = iter(self.data.ranges(missing))
        return (next(fetched) if data is None else data for data in parts)

    def _locate(self, keys: list[tuple[int, Leaf]]) -> dict[int, Bytes]:
        """Locate the pages of column chunks, unless they have been located before.

        Returns chunks that were fetched for that, by their offset.
        """
        missing = [(group, leaf) for group, leaf in keys if (group, leaf.number) not in self._pages]
        chunks = [self._layout.groups[group].columns[leaf.number] for group, leaf in missing]
        indexed = [chunk.offset_index_range is not None for chunk in chunks]
        places = [chunk.offset_index_range or chunk.byte_range for chunk in chunks]
        read = self.data.ranges(places)
        fetched: dict[int, Bytes] = {}
        for (group, leaf), chunk, has_index, data in zip(missing, chunks, indexed, read, strict=True):
            start, end = chunk.byte_range
            rows = self._layout.groups[group].rows
            table = page_locations(data) if has_index else _walk_pages(data, start, rows)
            if not has_index:
                fetched[start] = data
            if not len(table) or table[0, 2] != 0 or not (np.diff(table[:, 2]) > 0).all():
                raise ValueError("the pages of a column do not begin with its first row")
            first = int(table[0, 0])
            dictionary = (start, first) if start < first else None
            if first < start or int((table[:, 0] + table[:, 1]).max()) > end:
                raise ValueError("a page lies outside of its column chunk")
            self._pages[group, leaf.number] = Pages(table[:, 0], table[:, 1], table[:, 2], dictionary, None)
        return fetched


def _walk_pages(chunk: Bytes, start: int, rows: int) -> Ints:
    """Offset, length and first row of each data page of a column whose every value is a row."""
    view = memoryview(chunk)
    pages: list[tuple[int, int, int]] = []
    position = first_row = 0
    while position < len(view) and first_row < rows:
        header, length = read_struct(view[position : position + _HEADER_BYTES])
        end = position + length + header[_PAGE_BYTES][1]
        kind = header[_PAGE_TYPE][1]
        if end > len(view) or end <= position:
            raise ValueError("a page is longer than its column chunk")
        if kind in (_DATA_PAGE, _DATA_PAGE_V2):
            described = header[_V1_HEADER if kind == _DATA_PAGE else _V2_HEADER][1]
            pages.append((start + position, end - position, first_row))
            first_row += described[_PAGE_VALUES][1]
        position = end
    if first_row != rows:
        raise ValueError(f"the pages of a column have {first_row} rows, its row group {rows}")
    table = np.array(pages, np.int64).reshape(-1, 3)
    # Pages without rows are dropped: the search for a row would find them instead of the next page.
    counts = np.diff(np.append(table[:, 2], rows))
    return table[counts > 0]


def _is_coded(page: Bytes) -> bool:
    """Whether the values of a data page are codes of the dictionary, which may be full before the end."""
    header, _ = read_struct(memoryview(page)[:_HEADER_BYTES])
    if header[_PAGE_TYPE][1] == _DATA_PAGE:
        encoding = header[_V1_HEADER][1][_V1_ENCODING][1]
    else:
        encoding = header[_V2_HEADER][1][_V2_ENCODING][1]
    return encoding in _CODES


def _decode(data: bytes, positions: Ints, *, coded: bool, on_a_thread: bool) -> "Future[pa.Array]":
    """The values at some positions of a Parquet file of one column."""
    if on_a_thread:
        return _threads(os.getpid()).submit(_read_small, data, positions, coded=coded)
    done: Future[pa.Array] = Future()
    done.set_result(_read_small(data, positions, coded=coded))
    return done


def _read_small(data: bytes, positions: Ints, *, coded: bool) -> pa.Array:
    settings = {"coerce_int96_timestamp_unit": "us", "arrow_extensions_enabled": False, "pre_buffer": False}
    opened = pq.ParquetFile(pa.BufferReader(data), **settings)
    if coded:
        # Codes are selected before they become strings. Plain values would be hashed for that.
        names, metadata = opened.schema_arrow.names, opened.metadata
        opened = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=names, **settings)
    parts, first = [], 0
    for batch in opened.iter_batches(_DECODED_ROWS, use_threads=False):
        low, high = np.searchsorted(positions, [first, first + batch.num_rows])
        if low < high:
            values = batch.column(0).take(pa.array(positions[low:high] - first))
            parts.append(decode_dictionary(values))
        first += batch.num_rows
    return pa.concat_arrays(parts)


def _map_file(path: str, url: str, size: int) -> mmap.mmap:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the store gives it
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise SourceChangedError(url, "is not there any more") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{url} cannot be opened ({error}); check its permissions") from error
    if len(mapped) != size:
        raise SourceChangedError(url, f"has {len(mapped)} bytes instead of {size}")
    return mapped
