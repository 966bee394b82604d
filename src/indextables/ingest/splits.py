"""Writes batches as splits to the store: one or more for each partition, of the target size."""

import io
import shutil
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from indextables.options.indexing import TEMP_DIRECTORY
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
# A split whose rows have less than this share of the target as weight does not reach it.
_UNMEASURED = 0.3
# The share of a split that is taken at once, and the one that is not worth another step.
_STEP = 0.25
_TOLERANCE = 0.01

Values = tuple[str | None, ...]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Spool:
    """Temporary files that sort rows by partition."""

    def __init__(self, columns: Sequence[str], folder: str | None) -> None:
        """`columns` are the partition columns; files are below `folder` (None: the system's folder)."""
        self._columns = tuple(columns)
        with _reported(folder or tempfile.gettempdir()):
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
            with _reported(self._folder):
                self._writer(values, batch.schema).write_batch(rows)

    def partitions(self) -> Iterator[tuple[Values, Iterator[pa.RecordBatch]]]:
        """Each partition with its rows, in the order in which they came."""
        with _reported(self._folder):
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
def _reported(folder: str | Path) -> Iterator[None]:
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
    with _reported(path.parent), pa.OSFile(str(path)) as source:
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
        self._rest: pa.RecordBatch | None = None

    def has_more(self) -> bool:
        """Whether there are more rows."""
        if self._rest is None:
            self._rest = next(self._batches, None)
        return self._rest is not None

    def take(self, weight: int) -> pa.RecordBatch | None:
        """The next rows of one batch, of at most about a weight, and at least one row; None at the end."""
        if not self.has_more():
            return None
        batch, self._rest = self._rest, None
        assert batch is not None
        rows = max(1, batch.num_rows * weight // _weight(batch))
        if rows < batch.num_rows:
            self._rest = batch.slice(rows)
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


class _SizeRatio:
    """The size of splits relative to the weight of their rows.

    It is measured on a sample, once a split has so many rows that it could reach its target, and then on
    each split that was filled.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._ratio: float | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was measured yet."""
        return self._ratio is None

    def room(self, weight: int) -> int:
        """The weight of the rows that may follow in a split of a weight; 0 if it has its size."""
        if self._ratio is None:
            return max(0, int(_UNMEASURED * self._target) - weight)
        left = int(self._target / self._ratio) - weight
        # Rows are taken in steps: what rows weigh differs, and within a batch it is not visible.
        step = int(_STEP * self._target / self._ratio)
        return min(left, max(step, 1)) if left > _TOLERANCE * weight else 0

    def correct(self, size: int, weight: int) -> None:
        """Measure a split."""
        self._ratio = size / weight


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
            path = split_path(self._named(values), f"part-{uuid.uuid4()}.split")
            started_ms = local_time_ms()
            with self._store.open_upload(path) as sink, self._writer(sink, values) as writer:
                weight = self._fill(writer, values, rows)
                built = writer.finish()
            if rows.has_more():  # else the split was not filled, and tells little about larger ones
                self._ratio.correct(built.size, weight)
            self._uploaded.append(path)
            yield add_action(path, built, data_change=True, started_ms=started_ms)

    def _fill(self, writer: SplitWriter, values: Values, rows: "_RowStream") -> int:
        """Write rows until the split has its size; returns their weight."""
        weight, sample = 0, _Sample()
        while (room := self._ratio.room(weight)) and (batch := rows.take(room)) is not None:
            writer.write(batch)
            weight += _weight(batch)
            if self._ratio.is_unknown:
                sample.add(batch)
                if not self._ratio.room(weight):
                    self._ratio.correct(self._size_of(sample, values), sample.weight)
        return weight

    def _size_of(self, sample: "_Sample", values: Values) -> int:
        """The size of a split of a sample."""
        with self._writer(io.BytesIO(), values) as writer:
            for batch in sample.batches:
                writer.write(batch)
            return writer.finish().size

    def _writer(self, sink: Any, values: Values) -> SplitWriter:  # noqa: ANN401 - untyped library
        target = self._target
        return SplitWriter(sink, target.schema, target.mapping, self._options, self._named(values))

    def _named(self, values: Values) -> dict[str, str | None]:
        return dict(zip(self._target.partition_columns, values, strict=True))
