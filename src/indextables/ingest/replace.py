"""The splits that an overwrite removes: all, those of some partitions, or those that a condition covers."""

import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import IndexTablesError, PredicateError, SchemaError
from indextables.log.format.actions import Add, Remove
from indextables.log.format.files import from_adds, removes_of
from indextables.log.pruning.metrics_evaluator import evaluate_metrics, prune
from indextables.log.snapshot import Snapshot
from indextables.predicate import Predicate, evaluate, to_sql
from indextables.schema.values import parse_values


class Replace(StrEnum):
    """What an overwrite removes."""

    NOTHING = "nothing"
    ALL = "all"
    PARTITIONS = "partitions"
    WHERE = "where"


def removes(
    snapshot: Snapshot, replace: Replace, where: Predicate | None, adds: Sequence[Add]
) -> tuple[Remove, ...]:
    """The actions that remove the replaced splits."""
    match replace:
        case Replace.NOTHING:
            return ()
        case Replace.ALL:
            gone = snapshot.files()
        case Replace.PARTITIONS:
            gone = _same_partitions(snapshot, adds)
        case _:
            assert where is not None
            gone = covered_splits(snapshot, where)
    return removes_of(gone, timestamp=time.time_ns() // 1_000_000)


def replacement_test(
    snapshot: Snapshot, replace: Replace, where: Predicate | None, adds: Sequence[Add]
) -> Callable[[Sequence[Add]], bool] | None:
    """A test whether concurrently added splits have rows to replace; None if that needs no test."""

    def in_partitions(others: Sequence[Add]) -> bool:
        if not snapshot.partition_columns:
            return True  # the whole table is one partition
        ours = set(_values(snapshot, [add.partition_values or {} for add in adds]))
        return not ours.isdisjoint(_values(snapshot, [add.partition_values or {} for add in others]))

    def matching_condition(others: Sequence[Add]) -> bool:
        files = from_adds(others, version=snapshot.version, timestamp=0)
        return bool(pc.any(prune(files, where, snapshot.schema, snapshot.partition_columns)).as_py())

    match replace:
        case Replace.PARTITIONS:
            return in_partitions
        case Replace.WHERE:
            return matching_condition
        case _:
            return None


def covered_splits(snapshot: Snapshot, where: Predicate) -> pa.Table:
    """The splits for all of whose rows the condition is true; an error if it is true for part of a split."""
    files = snapshot.files(where)
    evaluation = evaluate_metrics(files, where, snapshot.schema, snapshot.partition_columns)
    partly = files.filter(pc.and_not(evaluation.inclusive, evaluation.strict))
    if partly.num_rows:
        by = ", ".join(snapshot.partition_columns) or "none"
        raise PredicateError(
            f"{to_sql(where)} covers only some rows of {partly.num_rows} splits (one is {partly['path'][0]}) "
            f"according to the log, and a split is replaced or deleted as a whole; give a condition "
            f"that covers whole partitions (the partition columns: {by}), or read, filter and overwrite "
            "the table"
        )
    return files.filter(evaluation.strict)


def check_rows(batches: Iterator[pa.RecordBatch], where: Predicate) -> Iterator[pa.RecordBatch]:
    """The unchanged batches; an error if a row does not match the condition on the replaced rows."""
    for batch in batches:
        outside = batch.num_rows - (pc.sum(evaluate(where, batch)).as_py() or 0)
        if outside:
            raise IndexTablesError(
                f"{outside} of {batch.num_rows} rows do not match the condition of replaceWhere, "
                f"{to_sql(where)}; write only rows that do"
            )
        yield batch


def _same_partitions(snapshot: Snapshot, adds: Sequence[Add]) -> pa.Table:
    """The splits in the partitions of the new ones; partition values are compared by value, not as text."""
    files = snapshot.files()
    columns = snapshot.partition_columns
    if not columns:
        return files
    old = _values(snapshot, [dict(entry or ()) for entry in files["partitionValues"].to_pylist()])
    new = set(_values(snapshot, [add.partition_values or {} for add in adds]))
    return files.filter(pa.array([values in new for values in old], pa.bool_()))


def _values(snapshot: Snapshot, partitions: Sequence[dict[str, str | None]]) -> list[tuple[object, ...]]:
    read = []
    for name in snapshot.partition_columns:
        texts = pa.array([entry.get(name) for entry in partitions], pa.string())
        parsed = parse_values(texts, snapshot.schema.field(name).type, partition=True)
        if parsed.unreadable.any():
            text = texts[int(parsed.unreadable.argmax())]
            raise SchemaError(
                f"the partition value '{text}' is not a {snapshot.schema.field(name).type}, the type of "
                f"{name}; overwrite the whole table instead"
            )
        read.append(parsed.values)
    columns = [[_comparable(value) for value in column.to_pylist()] for column in read]
    return list(zip(*columns, strict=True))


def _comparable(value: object) -> str | None:
    """The value for comparison: NaN equals NaN, -0.0 equals 0.0 (PROTOCOL.md, "Partition values")."""
    if value is None:
        return None
    return str(value + 0.0) if isinstance(value, float) else str(value)
