"""What a task of a scan runs on an executor: the rows of its splits, then what it cost."""

import gc
import json
import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa

from indextables import metrics
from indextables.errors import IndexTablesError
from indextables.read.finish import finished
from indextables.read.from_splits import empty_partial, split_partial
from indextables.read.partials import merged
from indextables.read.tasks import SplitRef
from indextables.spark.split_rows import rows_of
from indextables.spark.wanted import Groups, Rows
from indextables.spark.wire import wire_schema, wired
from indextables.split.query.searcher import CACHE_HIT, CACHE_MISS
from indextables.store import Passport, Store

METRICS = "_metrics"

_ready = False


class ReadFunction:
    """Reads the splits that it is given; Spark pickles it by reference to this module."""

    def __init__(self, passport: Passport, wanted: Rows | Groups) -> None:
        self._passport = passport
        self._wanted = wanted

    @property
    def __name__(self) -> str:
        """Spark wants its functions to have a name."""
        return "indextables_read"

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the splits whose pickle is the only value given, and a last batch with figures."""
        _make_ready()
        store = self._passport.open()
        for batch in given:
            for blob in batch.column(0):
                splits: tuple[SplitRef, ...] = pickle.loads(blob.as_py())  # noqa: S301 - our planner's
                yield from _with_figures(self._wanted, splits, store)


def answer(wanted: Rows | Groups, splits: Sequence[SplitRef], store: Store) -> Iterator[pa.RecordBatch]:
    """What is wanted of some splits, as it travels to Spark."""
    schema = wire_schema(wanted.schema)
    for batch in _found(wanted, splits, store):
        yield wired(batch, schema)


def _found(wanted: Rows | Groups, splits: Sequence[SplitRef], store: Store) -> Iterator[pa.RecordBatch]:
    if isinstance(wanted, Rows):
        yield from rows_of(wanted, splits, store)
        return
    request = wanted.request
    parts = [empty_partial(wanted.table.schema, request)]
    for ref in splits:
        parts = [merged([*parts, split_partial(store, ref, wanted.table, request)], len(request.groups))]
    yield from finished(parts, request).to_batches()


def _with_figures(
    wanted: Rows | Groups, splits: Sequence[SplitRef], store: Store
) -> Iterator[pa.RecordBatch]:
    """The rows, each batch with an empty column more; then one row whose last column holds the figures.

    Where an error of ours ends the rows, the last column holds its sentence instead.
    """
    figures = Figures(len(splits))
    schema = pa.schema([*wire_schema(wanted.schema), pa.field(METRICS, pa.string())])
    error = ""
    try:
        for batch in answer(wanted, splits, store):
            if batch.num_rows:
                figures.add(batch)
                yield _marked(batch, schema)
    except IndexTablesError as problem:
        error = str(problem)
    nothing = [pa.nulls(1, field.type) for field in schema][:-1]
    said = json.dumps({"error": error} if error else figures.values())
    yield pa.RecordBatch.from_arrays([*nothing, pa.array([said])], schema=schema)


def _marked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.string())], schema=schema)


class Figures:
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
        """The figures by the names of the metrics on Spark's SQL page."""
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
