"""Scans and counts over a table, and the execution of a specification over some splits."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from indextables.log.pruning.metrics_evaluator import evaluate_metrics
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.read.aggregation.partials import result_table
from indextables.read.aggregation.run import aggregate_splits
from indextables.read.aggregation.spec import AggregateSpec
from indextables.read.parallel import each, in_order, parallelism
from indextables.read.scan_spec import ScanSpec
from indextables.read.split_reader import SplitReader
from indextables.read.split_rows import scan_splits
from indextables.read.table_context import SplitRef, TableContext, plan_splits
from indextables.store import Store


def execute(
    spec: ScanSpec | AggregateSpec, splits: Sequence[SplitRef], store: Store
) -> Iterator[pa.RecordBatch]:
    """Run a scan or an aggregation over some splits, in this process.

    Both `Table` and the tasks of Spark read through this function.

    Args:
        spec: What to return.
        splits: The splits to read, one after the other.
        store: The table's store.

    Returns:
        Batches of the specification's schema. An aggregation returns one row for each group of these splits.
    """
    match spec:
        case ScanSpec():
            yield from scan_splits(spec, splits, store)
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
    table, splits = plan_splits(snapshot, where, options)
    schema = table.select_fields(columns)
    spec = ScanSpec(table, tuple(schema.names), where, limit=limit)
    return pa.RecordBatchReader.from_batches(schema, _stream(spec, splits, store))


def _stream(spec: ScanSpec, splits: Sequence[SplitRef], store: Store) -> Iterator[pa.RecordBatch]:
    if spec.limit is not None and spec.limit <= 0:
        return
    works = [partial(execute, spec, (ref,), store) for ref in sufficient_splits(spec, splits)]
    left = spec.limit
    for batch in in_order(works, parallelism(spec.table.options)):
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


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
    """How many rows the condition is true for; from the log alone where it can tell."""
    files = snapshot.files(where)
    evaluation = evaluate_metrics(files, where, snapshot.schema, snapshot.partition_columns)
    known = files["numRecords"].is_valid().combine_chunks() if files.num_rows else pa.array([], pa.bool_())
    counted = [
        must and has for must, has in zip(evaluation.strict.to_pylist(), known.to_pylist(), strict=True)
    ]
    total = sum(n for n, done in zip(files["numRecords"].to_pylist(), counted, strict=True) if done)
    table, splits = plan_splits(snapshot, where, options, files)
    works = [
        partial(_count_one, store, ref, table, where)
        for ref, done in zip(splits, counted, strict=True)
        if not done
    ]
    return int(total) + sum(each(works, parallelism(options)))


def _count_one(store: Store, ref: SplitRef, table: TableContext, where: Predicate | None) -> int:
    return SplitReader(store, ref, table).count(where)
