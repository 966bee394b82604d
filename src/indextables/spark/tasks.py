"""The functions that tasks of scans, writes and commands run on executors.

Spark pickles them by reference to this module. Rows go to Spark as Arrow batches in Spark's own types.
"""

import gc
import io
import json
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from indextables import metrics
from indextables.errors import IndexTablesError, SchemaError
from indextables.ingest import SplitUploads, WritePlan
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.read import AggregateSpec, ScanSpec, execute
from indextables.read.split_reader import INDEX_TIME
from indextables.read.table_context import SplitRef
from indextables.schema.type_info import NESTED, TypeKind, kind_of
from indextables.split.parquet.reader import MAPPED
from indextables.split.query.searcher import CACHE_HIT, CACHE_MISS
from indextables.store import Store, StoreWithCredentials
from indextables.store.handle import FETCHED

_TIME = pa.time64("ns")


def wire_type(arrow: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values: times of day in nanoseconds."""
    match kind_of(arrow):
        case TypeKind.TIME:
            return _TIME
        case TypeKind.STRUCT:
            return pa.struct([wire_field(field) for field in arrow])
        case TypeKind.MAP:
            return pa.map_(wire_field(arrow.key_field), wire_field(arrow.item_field))
        case TypeKind.LIST:
            return pa.list_(wire_field(arrow.value_field))
        case _:
            return arrow


def wire_field(field: pa.Field) -> pa.Field:
    """A field in the type in which Spark takes its values."""
    return field.with_type(wire_type(field.type))


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """A schema in the types in which Spark takes values."""
    return pa.schema([wire_field(field) for field in schema])


def to_wire(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to a wire schema."""
    if not batch.num_columns or batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def dumps(value: object) -> bytes:
    """Pickle an object in which there may be Arrow scalars.

    Arrow pickles a scalar as a Python object, and Python has no timestamps beyond the year 9999. Here
    scalars are pickled as arrays.
    """
    sink = io.BytesIO()
    _Pickler(sink, protocol=5).dump(value)
    return sink.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:  # noqa: ANN401 - as pickle declares it
        if isinstance(value, pa.Scalar):
            return _scalar, (pa.repeat(value, 1),)
        return NotImplemented


def _scalar(array: pa.Array) -> pa.Scalar:
    return array[0]


ERROR = "error"
METRICS = "_metrics"
_ready = False
MESSAGE = "message"
ROWS = "rows"
BYTES = "bytes"
_WRITE_SCHEMA = pa.schema(
    [(MESSAGE, pa.binary()), (ERROR, pa.string()), (ROWS, pa.int64()), (BYTES, pa.int64())]
)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Add])
RESULT = "result"
_COMMAND_SCHEMA = pa.schema([(RESULT, pa.binary()), (ERROR, pa.string())])


# --- scans ----------------------------------------------------------------------------------------


class ReadFunction:
    """Reads the splits of a task; Spark pickles it by reference to this module."""

    def __init__(self, table_store: StoreWithCredentials, spec: ScanSpec | AggregateSpec) -> None:
        self._table_store = table_store
        self._spec = spec

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_read"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the splits, whose pickle is the only value of the input; then a batch with metrics."""
        _make_ready()
        store = self._table_store.open()
        for batch in batches:
            for blob in batch.column(0):
                splits: tuple[SplitRef, ...] = pickle.loads(blob.as_py())  # noqa: S301 - our planner's
                yield from _with_metrics(self._spec, splits, store)


def _with_metrics(
    spec: ScanSpec | AggregateSpec, splits: Sequence[SplitRef], store: Store
) -> Iterator[pa.RecordBatch]:
    """The rows, with a null column added; then one row whose last column holds the metrics.

    If an error of indextables ends the scan, the last column holds its message instead.
    """
    metrics = TaskMetrics(len(splits))
    wire = wire_schema(spec.schema)
    schema = pa.schema([*wire, pa.field(METRICS, pa.string())])
    error = ""
    try:
        for batch in metrics.time_batches(execute(spec, splits, store)):
            if batch.num_rows:
                converted = to_wire(batch, wire)
                metrics.add(converted)
                yield _with_null_metrics(converted, schema)
    except IndexTablesError as problem:
        error = str(problem)
    nulls = [pa.nulls(1, field.type) for field in schema][:-1]
    text = json.dumps({"error": error} if error else metrics.values())
    yield pa.RecordBatch.from_arrays([*nulls, pa.array([text])], schema=schema)


def _with_null_metrics(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.string())], schema=schema)


class TaskMetrics:
    """The metrics of a task."""

    def __init__(self, splits: int) -> None:
        self._before = metrics.figures()
        self._splits = splits
        self._rows = 0
        self._bytes = 0
        self._seconds = 0.0

    def time_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches, and measure the time that they take."""
        while True:
            started = time.perf_counter()
            batch = next(batches, None)
            self._seconds += time.perf_counter() - started
            if batch is None:
                return
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def values(self) -> dict[str, int]:
        """The metrics by their names on Spark's SQL page."""
        return {
            "splitsRead": self._splits,
            "rowsRead": self._rows,
            "bytesRead": self._bytes,
            "storageBytes": round(self._increase(FETCHED) + self._increase(MAPPED)),
            "indexTime": round(self._increase(INDEX_TIME)),
            "rowTime": max(round(self._seconds * 1000 - self._increase(INDEX_TIME)), 0),
            "cacheHits": self._since(CACHE_HIT),
            "cacheMisses": self._since(CACHE_MISS),
        }

    def _since(self, name: str) -> int:
        now, before = metrics.figures().get(name), self._before.get(name)
        return (now.count if now else 0) - (before.count if before else 0)

    def _increase(self, name: str) -> float:
        now, before = metrics.figures().get(name), self._before.get(name)
        return (now.total if now else 0.0) - (before.total if before else 0.0)


def _make_ready() -> None:
    """Prepare a new process for tasks.

    Spark calls the garbage collector after each task; objects that are loaded now are excluded from it.
    A task has one core: threads of Arrow would only take it from other tasks.
    """
    global _ready  # noqa: PLW0603 - once in a process
    if not _ready:
        pa.set_cpu_count(1)
        gc.collect()
        gc.freeze()
        _ready = True


# --- writes ---------------------------------------------------------------------------------------


class WriteFunction:
    """Writes the rows of one task; Spark pickles it by reference to this module.

    Without a plan there is nothing to write, and the rows are not read.
    """

    def __init__(
        self, table_store: StoreWithCredentials, write_plan: WritePlan | None, options: Options
    ) -> None:
        self._table_store = table_store
        self._write_plan = write_plan
        self._options = options

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_write"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows; returns the commit message, or an error message."""
        try:
            adds = [] if self._write_plan is None else self._write_splits(self._write_plan, batches)
        except IndexTablesError as error:
            yield _message_batch(None, str(error))
        else:
            yield _message_batch(_encoder.encode(adds), None, adds)

    def _write_splits(self, write_plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> list[Add]:
        uploads = SplitUploads(self._table_store.open(), write_plan.target, self._options)
        try:
            return uploads.write(write_plan.convert(valid_texts(batches)))
        except BaseException:
            uploads.delete_uncommitted()
            raise


def valid_texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; raises SchemaError if a text is not valid UTF-8, which Spark allows."""
    for batch in batches:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if not _holds_text(field.type):
                continue
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SchemaError(
                    f"column {field.name} holds a text that is not valid UTF-8 ({error}); write it as "
                    f"make_valid_utf8({field.name}), or as CAST({field.name} AS BINARY)"
                ) from None
        yield batch


def _holds_text(arrow: pa.DataType) -> bool:
    if kind_of(arrow) in NESTED:
        return any(_holds_text(arrow.field(i).type) for i in range(arrow.num_fields))
    return kind_of(arrow) is TypeKind.STRING


def _message_batch(message: bytes | None, error: str | None, adds: Sequence[Add] = ()) -> pa.RecordBatch:
    rows = sum(add.num_records or 0 for add in adds)
    row = {MESSAGE: message, ERROR: error, ROWS: rows, BYTES: sum(add.size for add in adds)}
    return pa.RecordBatch.from_pylist([row], _WRITE_SCHEMA)


def adds_of(messages: Sequence[bytes]) -> list[Add]:
    """The splits in the commit messages of tasks."""
    return [add for message in messages for add in _decoder.decode(message)]


# --- commands -------------------------------------------------------------------------------------


class CommandFunction:
    """Runs the tasks of a command; Spark pickles it by reference to this module."""

    def __init__(self, table_store: StoreWithCredentials | None, run: Callable[[Any, Any], Any]) -> None:
        self._table_store = table_store
        self._run = run

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_command"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the tasks, whose pickles are the input; of a task that fails, its error message."""
        store = None if self._table_store is None else self._table_store.open()
        for batch in batches:
            for blob in batch.column(0):
                try:
                    result = self._run(pickle.loads(blob.as_py()), store)  # noqa: S301 - our planner wrote it
                except IndexTablesError as error:
                    yield pa.RecordBatch.from_pylist([{ERROR: str(error)}], _COMMAND_SCHEMA)
                else:
                    yield pa.RecordBatch.from_pylist([{RESULT: pickle.dumps(result)}], _COMMAND_SCHEMA)
