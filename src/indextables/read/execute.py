"""Scans, counts and aggregations over a table, and their execution over some splits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.log.pruning import evaluate_metrics
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.read.aggregation import Partial, empty_partial, from_log, merge, result_table, split_partial
from indextables.read.parallel import each, in_order, open_readers, parallelism, splits_at_once
from indextables.read.spec import Aggregate, AggregateSpec, Group, ScanSpec, aggregate_spec, check_limit
from indextables.read.split_reader import SplitReader
from indextables.read.split_rows import scan_splits
from indextables.read.table_context import SplitRef, TableContext, plan_splits
from indextables.store import Store

T = TypeVar("T")


def execute(
    spec: ScanSpec | AggregateSpec, splits: Sequence[SplitRef], store: Store, *, scans: int = 1
) -> Iterator[pa.RecordBatch]:
    """Run a scan or an aggregation over some splits, in this process.

    Both `Table` and the tasks of Spark read through this function.

    Args:
        spec: What to return.
        splits: The splits to read, one after the other.
        store: The table's store.
        scans: How many parts of one scan run at the same time in this process.

    Returns:
        Batches of the specification's schema. An aggregation returns one row for each group of these splits.
    """
    match spec:
        case ScanSpec():
            yield from scan_splits(spec, splits, store, scans=scans)
        case AggregateSpec():
            yield from result_table([aggregate_splits(spec, splits, store)], spec).to_batches()


def scan(
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """Stream the rows for which the condition is true, at most `limit` of them.

    Several splits are read at once, in bounded memory; rows come in the order of the splits.
    """
    check_limit(limit)
    plan = plan_splits(snapshot, where, options)
    schema = plan.table.select_fields(columns)
    spec = ScanSpec(plan.table, tuple(schema.names), where, limit=limit)
    return pa.RecordBatchReader.from_batches(schema, stream(spec, plan.splits, store))


def stream(spec: ScanSpec, splits: Sequence[SplitRef], store: Store) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in the order of the splits; several splits are read at once."""
    if spec.limit is not None and spec.limit <= 0:
        return
    at_once = parallelism(spec.table.options)
    chosen = sufficient_splits(spec, splits)
    if spec.where is not None and sum(ref.num_records or _ROWS_PER_THREAD for ref in chosen) < _FEW_ROWS:
        at_once = 1 if splits_at_once(store, chosen, spec.table) == 1 else at_once
    groups = split_groups(spec, chosen, at_once, store)
    scans = min(at_once, len(groups))
    works = [partial(execute, spec, group, store, scans=scans) for group in groups]
    rest = spec.limit
    for batch in in_order(works, at_once):
        if rest is None:
            yield batch
            continue
        yield batch.slice(0, rest)
        rest -= batch.num_rows
        if rest <= 0:
            return


def split_groups(
    spec: ScanSpec, splits: Sequence[SplitRef], at_once: int, store: Store
) -> list[tuple[SplitRef, ...]]:
    """Group the splits; one thread reads each group. A few rows of several splits are fetched together.

    Without a condition every split has many rows, and is a separate group. Splits of an object store are
    opened ahead within a group, so there are no more groups than threads.
    """
    if spec.where is None:
        size = 1
    elif store.is_local:
        size = min(_SPLITS_IN_GROUP, -(-len(splits) // (2 * at_once)))
    else:
        size = -(-len(splits) // at_once)
    return [tuple(splits[start : start + size]) for start in range(0, len(splits), max(1, size))]


def sufficient_splits(spec: ScanSpec, splits: Sequence[SplitRef]) -> list[SplitRef]:
    """The first splits that together have enough rows for the limit, if every row matches; else all."""
    if spec.limit is None or spec.where is not None or spec.order:
        return list(splits)
    chosen = []
    rows = 0
    for ref in splits:
        chosen.append(ref)
        rows += ref.num_records or 0
        if rows >= spec.limit:
            break
    return chosen


def count(snapshot: Snapshot, store: Store, options: Options, *, where: Predicate | None = None) -> int:
    """The number of rows for which a condition is true; from the statistics in the log if they suffice."""
    plan = plan_splits(snapshot, where, options)
    files = plan.files
    evaluation = evaluate_metrics(files, where, snapshot.schema, snapshot.partition_columns)
    has_count = (
        files["numRecords"].is_valid().combine_chunks() if files.num_rows else pa.array([], pa.bool_())
    )
    strict = evaluation.strict.to_numpy(zero_copy_only=False)
    counted = strict & has_count.to_numpy(zero_copy_only=False)
    total = pc.sum(files["numRecords"].filter(pa.array(counted))).as_py() or 0
    rest = plan.select(~counted).splits
    counts = _of_splits(store, rest, plan.table, where, lambda reader: reader.count(where))
    return int(total) + sum(counts)


def _of_splits(
    store: Store,
    splits: Sequence[SplitRef],
    table: TableContext,
    where: Predicate | None,
    compute: Callable[[SplitReader], T],
) -> Iterator[T]:
    """The results of a function for each split, computed in several threads if there is enough work."""
    # Opening a split takes longer than searching few rows.
    most = _ROWS_PER_THREAD if splits_at_once(store, splits, table) == 1 else 1
    groups = max(1, -(-sum(ref.num_records or most for ref in splits) // most))
    works = (
        partial(_compute, group, compute)
        for group in _thread_groups(open_readers(store, splits, table, where), most)
    )
    for results in each(works, min(parallelism(table.options), len(splits), groups)):
        yield from results


def _thread_groups(readers: Iterable[SplitReader], most: int) -> Iterator[list[SplitReader]]:
    """Groups of splits with enough rows for a thread of their own."""
    group: list[SplitReader] = []
    rows = 0
    for reader in readers:
        group.append(reader)
        rows += reader.ref.num_records or most
        if rows >= most:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _compute(readers: Sequence[SplitReader], compute: Callable[[SplitReader], T]) -> list[T]:
    return [compute(reader) for reader in readers]


_SPLITS_IN_GROUP = 64
# A filtered scan of fewer rows, all of whose splits are open, takes less time than the start of threads.
_FEW_ROWS = 100_000
# An index of fewer rows is searched in less time than another thread starts.
_ROWS_PER_THREAD = 1 << 18
# Partial results are merged when they have this many groups in all, or when this many are waiting.
_MERGED_ROWS = 100_000
_MERGED_AT_ONCE = 1024


def aggregate(
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    aggregates: Sequence[Aggregate],
    group_by: Sequence[Group] = (),
    where: Predicate | None = None,
) -> pa.Table:
    """Compute aggregates over the rows of a table that match a condition.

    Returns:
        One row for each group: the columns of the groups, then those of the aggregates. Rows with null keys
        are a group of their own. Without groups there is exactly one row. Sums of integers are longs;
        averages of integers are doubles; sums and averages of decimals are decimals of Spark's precision.

    Raises:
        PredicateError: A sum does not fit into its type, a function does not take its column, or neither
            aggregates nor groups are given.
    """
    if not aggregates and not group_by:
        raise PredicateError("no aggregate is given; name one (count(*), sum(column), ..), or a group")
    plan = plan_splits(snapshot, where, options)
    spec = aggregate_spec(plan.table, aggregates, group_by, where)
    return aggregate_files(spec, plan.files, plan.splits, store)


def aggregate_files(
    spec: AggregateSpec, files: pa.Table, splits: Sequence[SplitRef], store: Store
) -> pa.Table:
    """The result over some splits; `files` are their entries in the log, in the same order."""
    statistics, complete = from_log(files, spec)
    rest = [ref for ref, done in zip(splits, complete.tolist(), strict=True) if not done]
    partials = _of_splits(store, rest, spec.table, spec.where, lambda reader: split_partial(reader, spec))
    return result_table([merge_partials(spec, [] if statistics is None else [statistics], partials)], spec)


def aggregate_splits(spec: AggregateSpec, splits: Sequence[SplitRef], store: Store) -> Partial:
    """The partial aggregate of some splits, which are read one after the other."""
    readers = open_readers(store, splits, spec.table, spec.where)
    return merge_partials(spec, [], (split_partial(reader, spec) for reader in readers))


def merge_partials(spec: AggregateSpec, first: Sequence[Partial], more: Iterable[Partial]) -> Partial:
    """Merge partial aggregates in bounded memory; without any, return that of no rows."""
    keys = len(spec.groups)
    parts = [empty_partial(spec), *first]
    rows = 0
    for part in more:
        parts.append(part)
        rows += part.groups.num_rows + sum(table.num_rows for table in part.distinct.values())
        if len(parts) >= _MERGED_AT_ONCE or rows >= _MERGED_ROWS:
            parts, rows = [merge(parts, keys)], 0
    return merge(parts, keys)
