"""Whole partitions, chosen by a condition on partition columns: compared by their types, so 10 > 9."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError
from indextables.log.snapshot import Snapshot
from indextables.predicate import Predicate, columns_of, evaluate, has_search, parse_condition
from indextables.schema.values import parse_values


def partition_condition(snapshot: Snapshot, where: str) -> Predicate:
    """The condition, if it speaks of partition columns only."""
    return check_partition_condition(snapshot, parse_condition(where, snapshot.schema))


def check_partition_condition(snapshot: Snapshot, predicate: Predicate) -> Predicate:
    """Refuse a condition that a split's partition values do not decide."""
    own = snapshot.partition_columns
    if not own:
        raise PredicateError(
            f"the table at {snapshot.url} is not partitioned, so WHERE has nothing to choose by; leave it out"
        )
    names = [column.name for column in columns_of(predicate)]
    other = [name for name in names if name.lower() not in {column.lower() for column in own}]
    if other or has_search(predicate):
        raise PredicateError(
            f"{other[0] if other else 'a search'} is not decided by a partition; WHERE takes conditions on "
            f"the partition columns only: {', '.join(own)}"
        )
    if not names:
        raise PredicateError(f"the condition names no partition column; they are: {', '.join(own)}")
    return predicate


def in_partitions(snapshot: Snapshot, where: Predicate | None) -> pa.Table:
    """The live splits of the partitions for which the condition is true."""
    files = snapshot.files(where)
    if where is None or not files.num_rows:
        return files
    return files.filter(evaluate(where, typed_values(files, snapshot.schema, snapshot.partition_columns)))


def typed_values(files: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The partition values of each split, typed."""
    arrays = []
    for name in columns:
        texts = pc.map_lookup(files["partitionValues"], pa.scalar(name), "first")
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        parsed = parse_values(texts, schema.field(name).type, partition=True)
        if parsed.unreadable.any():
            row = int(parsed.unreadable.argmax())
            raise SchemaError(
                f"the partition value '{texts[row]}' of {name} in {files['path'][row]} is not a "
                f"{schema.field(name).type}, so no condition decides about it; rewrite that partition"
            )
        arrays.append(parsed.values)
    return pa.table(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def distinct_partitions(files: pa.Table) -> int:
    """How many partitions the splits are in."""
    return len({tuple(entry or ()) for entry in files["partitionValues"].to_pylist()})
