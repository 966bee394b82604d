"""Which files may hold a row that a condition wants, and which hold no other.

`files` are entries of a snapshot: `partitionValues`, `minValues`, `maxValues`, `stats` and `splitTags`
are read, any of which may be absent. Nothing is skipped on a guess: a statistic that cannot be read, or that
its writer may have cut or left a NaN out of, bounds nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from indextables.log.pruning.bounds import ManifestBounds
from indextables.log.pruning.columns import Entries
from indextables.log.pruning.tree import evaluate
from indextables.predicate import And, Predicate, columns_of, conjuncts, has_search

_READ = ("partitionValues", "minValues", "maxValues", "stats", "splitTags")


class Judgement(NamedTuple):
    """For each file: may some row match, and do all rows match for certain."""

    may: pa.BooleanArray
    must: pa.BooleanArray


def prune(
    files: pa.Table, predicate: Predicate | None, schema: pa.Schema, partition_columns: Sequence[str]
) -> pa.BooleanArray:
    """For each file: may it hold a row for which the condition is true?"""
    return _judged(files, predicate, schema, partition_columns, certain=False).may


def judge(
    files: pa.Table, predicate: Predicate | None, schema: pa.Schema, partition_columns: Sequence[str]
) -> Judgement:
    """For each file: may some of its rows match, and must all of them?

    Where `must` equals `may`, the rows that match can be counted from the log alone.
    """
    return _judged(files, predicate, schema, partition_columns, certain=True)


def bounds_may_match(
    predicate: Predicate | None,
    bounds: Mapping[str, tuple[str | None, str | None]],
    schema: pa.Schema,
    partition_columns: Sequence[str],
    *,
    ordered: bool,
) -> bool:
    """Whether a manifest with these bounds of its partition values may hold an entry that is wanted.

    `ordered` says that the bounds were found by the columns' types (`manifest_order.bounds_of`); other
    writers compared them as numbers if they looked like numbers, so theirs say nothing about texts and
    decimals.
    """
    if predicate is None:
        return True
    source = ManifestBounds(bounds, schema, partition_columns, ordered=ordered)
    return bool(evaluate(predicate, source, nulls=False).true[0])


def split_partition_conjuncts(
    predicate: Predicate | None, partition_columns: Sequence[str]
) -> tuple[Predicate | None, Predicate | None]:
    """The AND-ed parts that speak of partition columns only, and the others; None for no part."""
    names = {name.lower() for name in partition_columns}
    mine: list[Predicate] = []
    others: list[Predicate] = []
    for part in conjuncts(predicate):
        columns = list(columns_of(part))
        only = bool(columns) and all(len(c.path) == 1 and c.path[0].lower() in names for c in columns)
        (mine if only and not has_search(part) else others).append(part)
    return _joined(mine), _joined(others)


def _judged(
    files: pa.Table,
    predicate: Predicate | None,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    *,
    certain: bool,
) -> Judgement:
    if predicate is None:
        every = pa.array(np.ones(files.num_rows, dtype=np.bool_))
        return Judgement(every, every)
    may = [np.zeros(0, dtype=np.bool_)]
    must = [np.zeros(0, dtype=np.bool_)]
    for batch in files.select([name for name in _READ if name in files.column_names]).to_batches():
        verdict = evaluate(predicate, Entries(batch, schema, partition_columns), nulls=certain)
        may.append(verdict.true)
        must.append(verdict.true & ~verdict.false & ~verdict.null)
    return Judgement(pa.array(np.concatenate(may)), pa.array(np.concatenate(must)))


def _joined(parts: list[Predicate]) -> Predicate | None:
    if len(parts) > 1:
        return And(tuple(parts))
    return parts[0] if parts else None
