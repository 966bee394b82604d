"""Aggregation over a table: from statistics of the log, from indexes where they are exact, else from rows."""

from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa

from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.read.aggregation.from_log import from_log
from indextables.read.aggregation.from_split import empty_partial, split_partial
from indextables.read.aggregation.partials import Partial, merge, result_table
from indextables.read.aggregation.spec import Aggregate, AggregateSpec, Group, aggregate_spec
from indextables.read.parallel import each, parallelism
from indextables.read.table_context import SplitRef, plan_splits
from indextables.store import Store

# So many partial results are merge at once.
_MERGED_AT_ONCE = 32


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
        PredicateError: A sum does not fit into its type, or a function does not take its column.
    """
    files = snapshot.files(where)
    table, splits = plan_splits(snapshot, where, options, files)
    return aggregate_files(aggregate_spec(table, aggregates, group_by, where), files, splits, store)


def aggregate_files(
    spec: AggregateSpec, files: pa.Table, splits: Sequence[SplitRef], store: Store
) -> pa.Table:
    """The result over some splits; `files` are their entries in the log, in the same order."""
    statistics, answered = from_log(files, spec)
    rest = [ref for ref, done in zip(splits, answered.tolist(), strict=True) if not done]
    works = [partial(split_partial, store, ref, spec) for ref in rest]
    partials = each(works, parallelism(spec.table.options))
    return result_table([merge_partials(spec, [] if statistics is None else [statistics], partials)], spec)


def aggregate_splits(spec: AggregateSpec, splits: Sequence[SplitRef], store: Store) -> Partial:
    """The partial aggregate of some splits, which are read one after the other."""
    return merge_partials(spec, [], (split_partial(store, ref, spec) for ref in splits))


def merge_partials(spec: AggregateSpec, first: Sequence[Partial], more: Iterable[Partial]) -> Partial:
    """Partial aggregates as one, in bounded memory; without any, that of no rows."""
    keys = len(spec.groups)
    parts = [empty_partial(spec), *first]
    for found in more:
        parts.append(found)
        if len(parts) >= _MERGED_AT_ONCE:
            parts = [merge(parts, keys)]
    return merge(parts, keys)
