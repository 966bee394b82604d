"""Writes batches as splits to the store: one or more for each partition, of the target size."""

import io
import shutil
import tempfile
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.data_files import add_action, delete_uncommitted, split_path
from indextables.errors import StoreError
from indextables.ingest.target import Target
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.options import writing as opt
from indextables.options.writing import TEMP_DIRECTORY
from indextables.schema.values import format_values
from indextables.split.writer import SplitWriter
from indextables.store import Store

# The maximum number of open spool files; others are closed and opened again.
_OPEN_FILES = 128
# The weight of a row is its size in memory plus this, for its row id and the index of short values.
_ROW_BYTES = 8
# The rows by which the size of the first split is estimated.
_SAMPLE_ROWS = 20_000
_SAMPLE_WEIGHT = 8 << 20
# Rows are measured only when their weight reaches this share of the target: lighter ones cannot fill a split.
_UNMEASURED = 0.3
# Rows are added to a split in steps of at most this share of it, until less than the tolerance is missing.
_STEP = 0.25
_TOLERANCE = 0.01
# The density of rows is sampled at this many places of a batch, with this many rows at each place.
_PLACES = 8
_PLACE_ROWS = 200
# If the density differs by this factor, this many rows are measured again, up to the maximum for one split.
_OTHER_DENSITY = 1.7
_OTHER_ROWS = 2_000
_MAX_MEASURES = 8

Values = tuple[str | None, ...]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
SizeOf = Callable[[Sequence[pa.RecordBatch]], int]


class Spool:
    """Temporary files that sort rows by partition."""

    def __init__(self, columns: Sequence[str], folder: str | None) -> None:
        """`columns` are the partition columns; files are below `folder` (None: the system's folder)."""
        self._columns = tuple(columns)
        with _translate_errors(folder or tempfile.gettempdir()):
            self._folder = Path(tempfile.mkdtemp(prefix="indextables-write-", dir=folder))
        self._names: dict[Values, Path] = {}
        self._open: OrderedDict[Values, tuple[pa.NativeFile, pa.ipc.RecordBatchStreamWriter]] = OrderedDict()

    def __enter__(self) -> Self:
        """Delete the files when done."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the files."""
        for files in self._open.values():
            for file in reversed(files):
                with suppress(OSError):  # closing writes buffered rows, which fails again on a full disk
                    file.close()
        self._open.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, batch: pa.RecordBatch) -> None:
        """Sort a batch's rows into their partitions."""
        for values, rows in by_partition(batch, self._columns):
            with _translate_errors(self._folder):
                self._writer(values, batch.schema).write_batch(rows)

    def partitions(self) -> Iterator[tuple[Values, Iterator[pa.RecordBatch]]]:
        """Each partition with its rows, in the order in which they came."""
        with _translate_errors(self._folder):
            for values in list(self._open):
                self._close(values)
        for values, path in self._names.items():
            yield values, _read(path)
            path.unlink(missing_ok=True)

    def _writer(self, values: Values, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if values in self._open:
            self._open.move_to_end(values)
            return self._open[values][1]
        if len(self._open) >= _OPEN_FILES:
            self._close(next(iter(self._open)))
        path = self._names.setdefault(values, self._folder / f"{len(self._names)}.arrows")
        # A file may have several Arrow streams, one after the other: each opening starts a new one.
        sink = pa.OSFile(str(path), mode="ab")
        writer = pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._open[values] = (sink, writer)
        return writer

    def _close(self, values: Values) -> None:
        sink, writer = self._open[values]
        writer.close()
        sink.close()
        del self._open[values]


def by_partition(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of a batch by the values of the partition columns, as the log writes them."""
    if batch.num_rows == 0:
        return
    codes: Numbers = np.zeros(batch.num_rows, dtype=np.int64)
    dictionaries = []
    for name in columns:
        texts = format_values(batch.column(name), partition=True)
        encoded = pc.dictionary_encode(texts, null_encoding="encode")
        dictionaries.append(encoded.dictionary)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    ends = [*starts[1:], batch.num_rows]
    for code, start, end in zip(present.tolist(), starts, ends, strict=True):
        yield _values(code, dictionaries), batch.take(pa.array(order[start:end]))


def _values(code: int, dictionaries: Sequence[pa.Array]) -> Values:
    values: list[str | None] = []
    for dictionary in reversed(dictionaries):
        code, position = divmod(code, len(dictionary))
        values.append(dictionary[position].as_py())
    return tuple(reversed(values))


@contextmanager
def _translate_errors(folder: str | Path) -> Iterator[None]:
    """Raise errors of the temporary folder as errors of this package."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"rows cannot be sorted by partition in the temporary folder {folder} "
            f"({error.strerror or error}); make room there, or set spark.indextables.{TEMP_DIRECTORY.key} "
            "to a folder with room"
        ) from error


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with _translate_errors(path.parent), pa.OSFile(str(path)) as source:
        end = source.size()
        while source.tell() < end:
            yield from pa.ipc.open_stream(source)


def _weight(batch: pa.RecordBatch) -> int:
    """The size of rows in memory, to which the size of their split is proportional."""
    return int(batch.nbytes + _ROW_BYTES * batch.num_rows)


class _RowStream:
    """Batches, from which rows are taken up to a weight."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._next: deque[pa.RecordBatch] = deque()

    def has_more(self) -> bool:
        """Whether there are more rows."""
        if not self._next:
            self._next.extend(islice(self._batches, 1))
        return bool(self._next)

    def take(self, weight: int) -> pa.RecordBatch | None:
        """The next rows of one batch, of at most about a weight, and at least one row; None at the end."""
        if not self.has_more():
            return None
        batch = self._next.popleft()
        return self.split(batch, max(1, batch.num_rows * weight // _weight(batch)))

    def split(self, batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        """The first rows of a batch that was taken; the others are the next ones again."""
        if rows < batch.num_rows:
            self._next.appendleft(batch.slice(rows))
        return batch.slice(0, rows)


class _Sample:
    """The first rows of a split, by which the sizes of splits are estimated."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.weight = 0
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows if there is room for more."""
        share = min(
            (_SAMPLE_ROWS - self._rows) / batch.num_rows, (_SAMPLE_WEIGHT - self.weight) / _weight(batch)
        )
        if rows := min(batch.num_rows, max(int(batch.num_rows * share), 0 if self.batches else 1)):
            self.batches.append(batch.slice(0, rows))
            self.weight += _weight(self.batches[-1])
            self._rows += rows


def _density(batch: pa.RecordBatch) -> float:
    """The size of rows that LZ4 compressed, relative to their weight.

    Rows with another density have another size in a split. LZ4 is fast enough to compare many places.
    """
    sink = pa.MockOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        start = sink.size()
        stream.write_batch(batch)
    return float(sink.size() - start) / _weight(batch)


def _densities(batch: pa.RecordBatch) -> Iterator[tuple[int, float]]:
    """The density of rows at several places of a batch, with the number of the first row."""
    rows = min(_PLACE_ROWS, batch.num_rows)
    step = max(batch.num_rows // _PLACES, rows)
    for start in range(0, batch.num_rows - rows + 1, step):
        yield start, _density(batch.slice(start, rows))


class _SizeRatio:
    """The size of splits relative to the weight of their rows, besides the size of a split with one row.

    It is measured on a sample, once a split has so many rows that it could reach its target; on other rows,
    where their density is another one; and on each split that was filled with rows of one density.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._overhead = 0
        self._ratio: float | None = None
        self._density = 0.0

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was measured yet."""
        return self._ratio is None

    @property
    def _size_of_rows(self) -> int:
        """The size of the rows of a split, without what every split has: at least as much as that."""
        return max(self._target - self._overhead, self._overhead, 1)

    def size(self, weight: int) -> float:
        """The estimated size of rows."""
        return weight * (self._ratio or 0.0)

    def room(self, weight: int, size: float) -> int:
        """The weight of the rows that may follow in a split; 0 if it has its size."""
        if self._ratio is None:
            return max(0 if weight else 1, int(_UNMEASURED * self._target) - weight)
        rest = self._size_of_rows - size
        if weight and rest <= _TOLERANCE * size:
            return 0
        # In steps, because rows differ in weight, and a batch only has the weight of all its rows.
        return max(1, int(min(rest, _STEP * self._size_of_rows) / self._ratio))

    def change(self, batch: pa.RecordBatch) -> int | None:
        """How many rows of a batch have the density of those that were measured; None for all of them.

        Those are the rows up to the last place before one with another density.
        """
        rows = 0
        for start, density in _densities(batch):
            if not self._density / _OTHER_DENSITY <= density <= self._density * _OTHER_DENSITY:
                return rows
            rows = start + min(_PLACE_ROWS, batch.num_rows)
        return None

    def measure(self, batches: Sequence[pa.RecordBatch], weight: int, size_of: SizeOf) -> None:
        """Measure rows of this weight."""
        first = batches[0]
        if not self._overhead:
            self._overhead = size_of([first.slice(0, 1)])
        self._density = _density(first.slice(0, _PLACE_ROWS))
        self.correct(size_of(batches), weight)

    def correct(self, size: int, weight: int) -> None:
        """Take the size of a split with rows of this weight."""
        self._ratio = max(size - self._overhead, 1) / weight


class SplitUploads:
    """The splits of one write. They are invisible until a commit refers to them."""

    def __init__(self, store: Store, target: Target, options: Options) -> None:
        """`store` is rooted at the table."""
        self._store = store
        self._target = target
        self._options = options
        self._uploaded: list[str] = []
        self._ratio = _SizeRatio(options.get(opt.TARGET_SPLIT_SIZE))

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[Add]:
        """Write all rows; returns the actions to commit."""
        columns = self._target.partition_columns
        if not columns:
            return list(self._splits((), batches))
        adds: list[Add] = []
        with Spool(columns, self._options.get(TEMP_DIRECTORY)) as spool:
            for batch in batches:
                spool.put(batch)
            for values, rows in spool.partitions():
                adds += self._splits(values, rows)
        return adds

    def delete_uncommitted(self) -> None:
        """Delete uploaded splits; those that cannot be deleted stay invisible until a purge deletes them."""
        delete_uncommitted(self._store, self._uploaded)

    def _splits(self, values: Values, batches: Iterator[pa.RecordBatch]) -> Iterator[Add]:
        rows = _RowStream(batches)
        while rows.has_more():
            path = split_path(self._partition_of(values), f"part-{uuid.uuid4()}.split")
            started_ms = local_time_ms()
            with self._store.open_upload(path) as sink, self._writer(sink, values) as writer:
                weight, is_uniform = self._fill(writer, values, rows)
                built = writer.finish()
            # A split that was not filled says little about larger ones.
            if rows.has_more() and is_uniform:
                self._ratio.correct(built.size, weight)
            self._uploaded.append(path)
            yield add_action(path, built, data_change=True, started_ms=started_ms)

    def _fill(self, writer: SplitWriter, values: Values, rows: "_RowStream") -> tuple[int, bool]:
        """Write rows until the split has its size; returns their weight, and whether they are alike."""
        weight, size, measures, sample = 0, 0.0, 0, _Sample()
        size_of = partial(self._size_of, values)
        while (room := self._ratio.room(weight, size)) and (batch := rows.take(room)) is not None:
            if self._ratio.is_unknown:
                sample.add(batch)
            elif measures < _MAX_MEASURES and (alike := self._ratio.change(batch)) is not None:
                if not alike:
                    measures += 1
                    part = batch.slice(0, _OTHER_ROWS)
                    self._ratio.measure([part], _weight(part), size_of)
                batch = rows.split(batch, alike)
                if not alike:
                    continue
            writer.write(batch)
            weight += _weight(batch)
            size += self._ratio.size(_weight(batch))
            if self._ratio.is_unknown and not self._ratio.room(weight, size):
                self._ratio.measure(sample.batches, sample.weight, size_of)
                size = self._ratio.size(weight)
        return weight, not measures

    def _size_of(self, values: Values, batches: Sequence[pa.RecordBatch]) -> int:
        """The size of a split with these rows."""
        with self._writer(io.BytesIO(), values) as writer:
            for batch in batches:
                writer.write(batch)
            return writer.finish().size

    def _writer(self, sink: Any, values: Values) -> SplitWriter:  # noqa: ANN401 - untyped library
        target = self._target
        return SplitWriter(sink, target.schema, target.mapping, self._options, self._partition_of(values))

    def _partition_of(self, values: Values) -> dict[str, str | None]:
        return dict(zip(self._target.partition_columns, values, strict=True))
