"""Which files may hold a row that a condition wants."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.predicate import And, Predicate, columns_of


def prune(
    files: pa.Table, predicate: Predicate | None, schema: pa.Schema, partition_columns: Sequence[str]
) -> pa.BooleanArray:
    """For each file: may it hold a row for which the condition is true?"""
    del predicate, schema, partition_columns
    return pa.repeat(True, files.num_rows)


def bounds_may_match(
    predicate: Predicate | None,
    bounds: Mapping[str, tuple[str | None, str | None]],
    schema: pa.Schema,
    partition_columns: Sequence[str],
    *,
    ordered: bool,
) -> bool:
    """Whether a manifest with these bounds of its partition values may hold an entry that is wanted."""
    del predicate, bounds, schema, partition_columns, ordered
    return True


def split_partition_conjuncts(
    predicate: Predicate | None, partition_columns: Sequence[str]
) -> tuple[Predicate | None, Predicate | None]:
    """The AND-ed parts that speak of partition columns only, and the others."""
    names = {name.lower() for name in partition_columns}
    mine: list[Predicate] = []
    others: list[Predicate] = []
    for part in _conjuncts(predicate):
        columns = list(columns_of(part))
        only = all(len(c.path) == 1 and c.path[0].lower() in names for c in columns)
        (mine if only else others).append(part)
    return _joined(mine), _joined(others)


def _conjuncts(predicate: Predicate | None) -> list[Predicate]:
    if predicate is None:
        return []
    if isinstance(predicate, And):
        return [inner for part in predicate.parts for inner in _conjuncts(part)]
    return [predicate]


def _joined(parts: list[Predicate]) -> Predicate | None:
    if len(parts) > 1:
        return And(tuple(parts))
    return parts[0] if parts else None
