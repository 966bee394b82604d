"""Scans and counts: every row for which a condition is true, streamed split by split."""

import os
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from indextables.log.pruning.judge import judge
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import Predicate
from indextables.read.parallel import each, in_order
from indextables.read.split_reader import SplitReader
from indextables.read.tasks import ReadTask, SplitRef, TableFacts, prepare
from indextables.store import Store


def run(task: ReadTask, store: Store) -> Iterator[pa.RecordBatch]:
    """The rows of one task; `store` is the table's, opened where the task runs."""
    left = task.limit
    for ref in task.splits:
        for batch in SplitReader(store, ref, task.table).batches(task.columns, task.where, left):
            yield batch
            left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


def scan(
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """Every row for which the condition is true, as a stream; no more than `limit` rows.

    Several splits are read at once, in bounded memory; rows come in the order of the splits.
    """
    table, splits = prepare(snapshot, where, options)
    schema = table.selected(columns)
    return pa.RecordBatchReader.from_batches(
        schema, _stream(store, table, splits, schema.names, where, limit, parallelism(options))
    )


def _stream(
    store: Store,
    table: TableFacts,
    splits: Sequence[SplitRef],
    columns: Sequence[str],
    where: Predicate | None,
    limit: int | None,
    at_once: int,
) -> Iterator[pa.RecordBatch]:
    if limit is not None and limit <= 0:
        return
    works = [
        partial(run, ReadTask(table, (ref,), tuple(columns), where, limit), store)
        for ref in enough(splits, where, limit)
    ]
    left = limit
    for batch in in_order(works, at_once):
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def enough(splits: Sequence[SplitRef], where: Predicate | None, limit: int | None) -> list[SplitRef]:
    """Without a condition, the first splits that have as many rows as are wanted."""
    if limit is None or where is not None:
        return list(splits)
    chosen = []
    rows = 0
    for ref in splits:
        chosen.append(ref)
        rows += ref.num_records or 0
        if rows >= limit:
            break
    return chosen


def count(snapshot: Snapshot, store: Store, options: Options, *, where: Predicate | None = None) -> int:
    """How many rows the condition is true for; from the log alone where it can tell."""
    files = snapshot.files(where)
    judged = judge(files, where, snapshot.schema, snapshot.partition_columns)
    known = files["numRecords"].is_valid().combine_chunks() if files.num_rows else pa.array([], pa.bool_())
    settled = [must and has for must, has in zip(judged.must.to_pylist(), known.to_pylist(), strict=True)]
    total = sum(n for n, done in zip(files["numRecords"].to_pylist(), settled, strict=True) if done)
    table, splits = prepare(snapshot, where, options, files)
    works = [
        partial(_count_one, store, ref, table, where)
        for ref, done in zip(splits, settled, strict=True)
        if not done
    ]
    return int(total) + sum(each(works, parallelism(options)))


def _count_one(store: Store, ref: SplitRef, table: TableFacts, where: Predicate | None) -> int:
    return SplitReader(store, ref, table).count(where)


def parallelism(options: Options) -> int:
    """How many splits are worked on at once."""
    return options.get(reading.PARALLELISM) or os.cpu_count() or 2
