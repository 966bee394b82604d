"""The operation `plan`: the splits that a read needs, the tasks that read them, and small results."""

import hashlib
import heapq
import json
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType

from indextables.errors import PredicateError
from indextables.log.pruning import (
    First,
    evaluate_metrics,
    may_hold_first,
    prune,
    split_partition_conjuncts,
)
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import Always, Predicate, Search
from indextables.predicate.traversal import searches_of
from indextables.read.aggregation import empty_partial, from_log, result_table
from indextables.read.execute import sufficient_splits
from indextables.read.search import term_statistics
from indextables.read.spec import AggregateSpec, ScanSpec, SortKey
from indextables.read.split_source import is_of_original, needs_indexing
from indextables.read.table_context import SplitRef, plan_splits
from indextables.records import dataclass
from indextables.spark.planner.aggregation import pushed_spec
from indextables.spark.planner.inline import complete_groups, inline_rows, open_ahead, record_tasks
from indextables.spark.planner.read_context import ALL_FIELDS, ReadContext, read_context
from indextables.spark.tasks import METRICS, ReadFunction, TaskMetrics, dumps, to_wire, wire_schema

# Opening a split costs as much as reading this many bytes.
_SPLIT_BYTES = 1 << 20
# With more bytes per core, tasks are smaller, so that cores finish at about the same time.
_WAVE_BYTES = 256 << 20
_WAVES = 3


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """The splits of one task, and the executor whose cache holds their indexes, if any."""

    splits: tuple[SplitRef, ...]
    executor: str | None


def assign_splits(
    splits: Sequence[SplitRef],
    parallelism: int,
    executors: Sequence[str],
    options: Options,
    *,
    aggregate: bool = False,
) -> list[TaskSplits]:
    """Assign splits to tasks of about the same size.

    A split is assigned to the executor with the highest hash of executor and split (rendezvous hashing), so
    that only few splits move when executors come and go.
    """
    if not splits:
        return []
    fixed, most = _limits(options, aggregate=aggregate)
    homes: dict[str | None, list[SplitRef]] = {}
    for ref in splits:
        homes.setdefault(preferred_executor(ref.path, executors), []).append(ref)
    tasks: list[TaskSplits] = []
    total = sum(ref.size + _SPLIT_BYTES for ref in splits)
    for executor, own in sorted(homes.items(), key=lambda own: own[0] or ""):
        share = sum(ref.size + _SPLIT_BYTES for ref in own) / total
        if fixed is not None:
            count = -(-len(own) // fixed)
        else:
            waves = _WAVES if total / parallelism > _WAVE_BYTES else 1
            count = max(round(parallelism * waves * share), -(-len(own) // most), 1)
        tasks += [TaskSplits(group, executor) for group in _balance(own, min(count, len(own)))]
    return tasks


def _limits(options: Options, *, aggregate: bool) -> tuple[int | None, int]:
    if aggregate:
        return (
            options.get(reading.AGGREGATE_SPLITS_PER_TASK),
            options.get(reading.AGGREGATE_MAX_SPLITS_PER_TASK),
        )
    return options.get(reading.SPLITS_PER_TASK), options.get(reading.MAX_SPLITS_PER_TASK)


def preferred_executor(path: str, executors: Sequence[str]) -> str | None:
    """The executor that a split is assigned to."""
    if not executors:
        return None
    return max(
        executors, key=lambda name: hashlib.blake2b(f"{name}\0{path}".encode(), digest_size=8).digest()
    )


def _balance(splits: Sequence[SplitRef], count: int) -> list[tuple[SplitRef, ...]]:
    """Divide the splits into `count` groups: the largest first, each into the smallest group."""
    groups: list[list[SplitRef]] = [[] for _ in range(count)]
    most = -(-len(splits) // count)
    loads = [(0, number) for number in range(count)]
    for ref in sorted(splits, key=lambda ref: (-ref.size, ref.path)):
        load, number = heapq.heappop(loads)
        groups[number].append(ref)
        if len(groups[number]) < 2 * most:
            heapq.heappush(loads, (load + ref.size + _SPLIT_BYTES, number))
    return [tuple(group) for group in groups if group]


@dataclass(frozen=True, slots=True)
class SplitSelection:
    """The entries of the splits that may hold a matching row, and how many splits were considered."""

    files: pa.Table
    considered: int
    within_partitions: int

    def metrics(self) -> dict[str, int]:
        """The metrics by their names on Spark's SQL page."""
        return {
            "splitsConsidered": self.considered,
            "splitsPrunedByPartition": self.considered - self.within_partitions,
            "splitsPrunedByStatistics": self.within_partitions - self.files.num_rows,
        }

    @property
    def rows(self) -> int:
        """How many rows the splits have according to the log."""
        return pc.sum(self.files["numRecords"]).as_py() or 0

    @property
    def bytes(self) -> int:
        """The size of the splits."""
        return pc.sum(self.files["size"]).as_py() or 0

    @property
    def uncompressed_bytes(self) -> int:
        """The size of the splits before compression; at least what is stored, which has footers, too."""
        sizes = pc.max_element_wise(self.files["uncompressedSizeBytes"], self.files["size"])
        return pc.sum(sizes).as_py() or 0

    def holding_first(self, snapshot: Snapshot, where: Predicate | None, first: First) -> "SplitSelection":
        """Only the splits that may hold one of the first rows of an order."""
        if not self.files.num_rows:
            return self
        certain = evaluate_metrics(self.files, where, snapshot.schema, snapshot.partition_columns).strict
        sure = certain.to_numpy(zero_copy_only=False)
        keep = may_hold_first(self.files, first, sure, snapshot.schema, snapshot.partition_columns)
        return self if keep.all() else replace(self, files=self.files.filter(pa.array(keep)))


def select_splits(snapshot: Snapshot, where: Predicate | None) -> SplitSelection:
    """The splits that may hold a row for which the condition is true."""
    partition, _ = split_partition_conjuncts(where, snapshot.partition_columns)
    file_list = snapshot.files(partition)
    considered = file_list.num_rows if partition is None else max(_live(snapshot), file_list.num_rows)
    files = file_list
    if where is not None and file_list.num_rows:
        mask = prune(file_list, where, snapshot.schema, snapshot.partition_columns)
        files = file_list if mask.true_count == len(mask) else file_list.filter(mask)
    return SplitSelection(files, considered, file_list.num_rows)


def _live(snapshot: Snapshot) -> int:
    """How many splits are live, without reading their entries."""
    base, delta = snapshot.base, snapshot.delta
    files = 0
    if base.file_list is not None:
        files = base.file_list.num_rows
    elif base.state is not None:
        files = base.state.num_files
    removals = sum(path not in delta.fresh for path in delta.removed)
    return files - removals + len(delta.added)


_logger = logging.getLogger(__name__)

Request = Mapping[str, Any]
Reply = tuple[Mapping[str, Any], Sequence[bytes]]


def plan(request: Request, blobs: Sequence[bytes]) -> Reply:
    """The partitions of a scan: results as Arrow streams, and tasks as pickles for the pickled function."""
    del blobs
    started = time.perf_counter()
    context = read_context(request)
    if context is None:
        return _Plan(request, {}).reply(started)
    where = context.where_with_runtime_filters(request)
    selection = select_splits(context.snapshot, where)
    if request.get("aggregate"):
        plan_ = _plan_groups(request, context, where, selection)
    else:
        plan_ = _plan_rows(request, context, where, selection)
    return plan_.reply(started)


class _Plan:
    """The partitions and metrics of a reply."""

    def __init__(self, request: Request, metrics: Mapping[str, int]) -> None:
        self.request = request
        self.metrics = dict(metrics)
        self.function = b""
        self.partitions: list[dict[str, Any]] = []
        self.blobs: list[bytes] = []

    def add_result(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Add a partition whose rows are in the plan."""
        sink = pa.BufferOutputStream()
        wire = wire_schema(schema)
        with pa.ipc.new_stream(sink, wire) as stream:
            for batch in batches:
                stream.write_batch(to_wire(batch, wire))
        self.partitions.append({"kind": "answer"})
        self.blobs.append(sink.getvalue().to_pybytes())

    def add_tasks(
        self,
        spec: ScanSpec | AggregateSpec,
        tasks: Sequence[TaskSplits],
        context: ReadContext,
    ) -> None:
        """Add a partition for each task."""
        if not tasks:
            return
        record_tasks()
        splits = [ref for task in tasks for ref in task.splits]
        open_ahead(spec, splits, context.location.store, self.request["parallelism"])
        _warn_of_indexing(spec, tasks, context)
        schema = StructType.fromJson(json.loads(self.request["schema"]))
        result = StructType([*schema.fields, StructField(METRICS, StringType())])
        self.function = dumps((ReadFunction(context.location.store.with_credentials(), spec), result))
        for task in tasks:
            self.partitions.append({"kind": "task", "executor": task.executor})
            self.blobs.append(dumps(task.splits))

    def reply(self, started: float) -> Reply:
        self.metrics["planningTime"] = round((time.perf_counter() - started) * 1000)
        return {"partitions": self.partitions, "metrics": self.metrics}, [self.function, *self.blobs]


def _plan_rows(
    request: Request, context: ReadContext, where: Predicate | None, selection: SplitSelection
) -> _Plan:
    limit = request.get("limit")
    order = _order(request.get("order") or ())
    if order and limit is not None:
        key = order[0]
        first = First(key.column, limit, key.ascending, key.nulls_first)
        selection = selection.holding_first(context.snapshot, where, first)
    chosen = plan_splits(context.snapshot, where, context.options, selection.files, by_terms=False)
    spec = ScanSpec(chosen.table, tuple(request["columns"]), where, context.virtual, limit, order)
    _check(spec)
    plan = _Plan(request, selection.metrics())
    store = context.location.store
    if spec.needs_score:
        spec = replace(spec, statistics=term_statistics(store, chosen, spec.scored_searches))
    splits = sufficient_splits(spec, chosen.without_terms(where).splits)
    if isinstance(where, Always) and where.value is not True:
        splits = []
    metrics = TaskMetrics(len(splits))
    batches = inline_rows(spec, splits, store, request["parallelism"])
    if batches is None:
        plan.add_tasks(spec, _assign(request, context, splits), context)
        return plan
    for batch in batches:
        metrics.add(batch)
    plan.metrics.update(metrics.values())
    if any(batch.num_rows for batch in batches):
        plan.add_result(batches, spec.schema)
    return plan


def _plan_groups(
    request: Request, context: ReadContext, where: Predicate | None, selection: SplitSelection
) -> _Plan:
    files = selection.files
    spec = pushed_spec(request["aggregate"], context, where, files)
    if spec is None:
        raise PredicateError(
            "the aggregate of the query cannot be computed any more: a runtime filter changed the splits "
            "that it reads; run the query again"
        )
    plan = _Plan(request, selection.metrics())
    snapshot, store = context.snapshot, context.location.store
    if request["aggregate"].get("complete"):
        metrics = TaskMetrics(files.num_rows)
        batches = complete_groups(snapshot, files, spec, store).to_batches()
        for batch in batches:
            metrics.add(batch)
        plan.metrics.update(metrics.values())
        plan.add_result(batches, spec.schema)
        return plan
    chosen = plan_splits(snapshot, where, context.options, files)
    spec = replace(spec, table=chosen.table)
    statistics, complete = from_log(chosen.files, spec)
    rest = [ref for ref, done in zip(chosen.splits, complete.tolist(), strict=True) if not done]
    # Without groups there is one row even if there are no splits.
    if statistics is not None or (not rest and not spec.groups):
        parts = [empty_partial(spec), *([] if statistics is None else [statistics])]
        plan.add_result(result_table(parts, spec).to_batches(), spec.schema)
    plan.add_tasks(spec, _assign(request, context, rest, aggregate=True), context)
    return plan


# The tables whose indexing was announced last.
_warned: deque[str] = deque(maxlen=1024)


def _warn_of_indexing(
    spec: ScanSpec | AggregateSpec, tasks: Sequence[TaskSplits], context: ReadContext
) -> None:
    """Warn on the driver that tasks will index rows before a search; executors log their own warnings.

    Once for a table: later queries read other numbers of rows, which may be indexed by then.
    """
    virtual = spec.virtual.values() if isinstance(spec, ScanSpec) else ()
    if not any(searches_of(spec.where)) and not any(isinstance(column, Search) for column in virtual):
        return
    originals = [ref for task in tasks for ref in task.splits if is_of_original(ref)]
    url = context.location.store.url
    if url not in _warned and needs_indexing(originals):
        _warned.append(url)
        rows = sum(ref.num_records or 0 for ref in originals)
        _logger.warning(
            "%s was written by IndexTables for Scala: before the first search, tasks index %s rows of %d "
            "splits on the machines that they run on, which can take minutes. Spark's progress bar and page "
            "show how many of the %d tasks are done, and the logs of executors say how many rows are. "
            "Later searches use these indexes. To do this once for all, run CONVERT INDEXTABLES '%s'",
            url, f"{rows:,}", len(originals), len(tasks), url,
        )  # fmt: skip


def _assign(
    request: Request, context: ReadContext, splits: Sequence[SplitRef], *, aggregate: bool = False
) -> list[TaskSplits]:
    executors = request.get("executors") or ()
    return assign_splits(splits, request["parallelism"], executors, context.options, aggregate=aggregate)


def _order(keys: Sequence[Request]) -> tuple[SortKey, ...]:
    return tuple(SortKey(each["column"], each["ascending"], each["nulls_first"]) for each in keys)


def _check(spec: ScanSpec) -> None:
    """Reject columns that have no value in this query."""
    if any(name == ALL_FIELDS and name not in spec.table.schema.names for name in spec.columns):
        raise PredicateError(
            f"{ALL_FIELDS} has no value of its own; it can only be searched: {ALL_FIELDS} INDEXQUERY 'words'"
        )
    if not spec.scored_searches and (spec.highlighted_columns or spec.needs_score):
        raise PredicateError(
            "a score or a highlighted text needs a search in the same query; add one to its condition, "
            "as WHERE message INDEXQUERY 'words'"
        )
