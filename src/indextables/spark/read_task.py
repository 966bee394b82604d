"""The function that a task of a scan runs on an executor: it returns rows, then metrics."""

import gc
import json
import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa

from indextables import metrics
from indextables.errors import IndexTablesError
from indextables.read import AggregateSpec, ScanSpec, execute
from indextables.read.table_context import SplitRef
from indextables.spark.wire import to_wire, wire_schema
from indextables.split.query.searcher import CACHE_HIT, CACHE_MISS
from indextables.store import Passport, Store

METRICS = "_metrics"

_ready = False


class ReadFunction:
    """Reads the splits of a task; Spark pickles it by reference to this module."""

    def __init__(self, passport: Passport, spec: ScanSpec | AggregateSpec) -> None:
        self._passport = passport
        self._spec = spec

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_read"

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the splits, whose pickle is the only value of the input; then a batch with metrics."""
        _make_ready()
        store = self._passport.open()
        for batch in given:
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
        for batch in execute(spec, splits, store):
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
    """What a task read."""

    def __init__(self, splits: int) -> None:
        self._before = metrics.figures()
        self._splits = splits
        self._rows = 0
        self._bytes = 0

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
            "cacheHits": self._since(CACHE_HIT),
            "cacheMisses": self._since(CACHE_MISS),
        }

    def _since(self, name: str) -> int:
        now, before = metrics.figures().get(name), self._before.get(name)
        return (now.count if now else 0) - (before.count if before else 0)


def _make_ready() -> None:
    """Make a new process ready for tasks.

    The collector, which Spark calls after each task, is kept from walking over all that is loaded. A task has
    one core: threads of Arrow's would only take it from other tasks.
    """
    global _ready  # noqa: PLW0603 - once in a process
    if not _ready:
        pa.set_cpu_count(1)
        gc.collect()
        gc.freeze()
        _ready = True
