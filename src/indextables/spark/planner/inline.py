"""Small results that the planner computes itself, because starting a task would take longer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from indextables.cache import Cache
from indextables.log.snapshot import Snapshot
from indextables.options import reading
from indextables.predicate import to_sql
from indextables.read import execute
from indextables.read.aggregation.from_log import from_log
from indextables.read.aggregation.from_split import (
    empty_partial,
    index_partial,
    index_suffices,
    split_partial,
)
from indextables.read.aggregation.partials import Partial, result_table
from indextables.read.execute import aggregate_files
from indextables.read.parallel import in_order, parallelism
from indextables.read.spec import AggregateSpec, ScanSpec
from indextables.read.split_reader import SplitReader
from indextables.read.split_rows import ranked_search
from indextables.read.table_context import SplitRef, plan_splits
from indextables.spark.planner.aggregation import sums_fit_doubles
from indextables.store import Store

# An index that is not on the local disk is fetched for an inline answer only if its split is small.
_MAX_FETCHED_BYTES = 64 << 20
# Ordering or grouping this many rows takes about as long as starting a task.
_MAX_ROWS_READ = 100_000
_MAX_ANSWER_BYTES = 4 << 20
_MAX_CACHED = 16

_answers: Cache[tuple[object, ...], pa.Table] = Cache(_MAX_CACHED)


def inline_rows(spec: ScanSpec, splits: Sequence[SplitRef], store: Store) -> list[pa.RecordBatch] | None:
    """The rows of a scan, if they are few and quickly found; else None."""
    options = spec.table.options
    most = options.get(reading.INLINE_ROWS)
    if not most or len(splits) > options.get(reading.INLINE_SPLITS):
        return None
    cost = sum(_cost(spec, ref, store) for ref in splits)
    if cost > most:
        return None
    works = [partial(execute, spec, (ref,), store) for ref in splits]
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in in_order(works, parallelism(options)):
        batches.append(batch)
        size += batch.nbytes
        if size > _MAX_ANSWER_BYTES:
            return None
    return batches


def _cost(spec: ScanSpec, ref: SplitRef, store: Store) -> float:
    """How many rows are fetched; rows that are only compared count less."""
    options = spec.table.options
    most = options.get(reading.INLINE_ROWS)
    limit = spec.limit
    row_count = ref.num_records
    if row_count is not None and row_count <= most and (spec.where is None or ref.size <= _MAX_FETCHED_BYTES):
        return min(row_count, row_count if limit is None else limit)
    if spec.where is None:
        if limit is None or row_count is None or limit > most:
            return float("inf")
        return limit if not spec.order else limit + row_count * most / _MAX_ROWS_READ
    reader = SplitReader(store, ref, spec.table)
    if not (ref.size <= _MAX_FETCHED_BYTES or reader.is_index_at_hand(reader.columns_of(spec.where))):
        return float("inf")
    if limit is not None and ranked_search(spec) is not None and reader.index_decides(spec.where):
        return limit
    candidates = reader.count_candidates(spec.where)
    if limit is None or candidates <= limit:
        return candidates
    if spec.order:
        return limit + candidates * most / _MAX_ROWS_READ
    return limit if reader.index_decides(spec.where) else candidates


def can_answer_groups(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store) -> bool:
    """Whether the planner computes an aggregation itself: from the log, a few indexes, or few rows.

    The result is computed here only where nothing else shows whether indexes are exact; then it is cached.
    """
    rest = _inline_splits(snapshot, files, spec)
    if rest is None:
        return False
    exact = True
    sums_exact = sums_fit_doubles(spec, files)
    for ref in rest.splits:
        if rest.is_small(ref):
            continue
        reader = SplitReader(store, ref, rest.spec.table)
        if not _is_at_hand(reader, rest.spec):
            return False
        suffices = index_suffices(reader, rest.spec, sums_exact=sums_exact)
        if suffices is False:
            return False
        exact = exact and suffices is True
    return exact or inline_groups(snapshot, files, spec, store) is not None


def complete_groups(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store) -> pa.Table:
    """The result of an aggregation for which `can_answer_groups` was true, at any cost."""
    groups = inline_groups(snapshot, files, spec, store)
    if groups is not None:
        return groups
    table, splits = plan_splits(snapshot, spec.where, spec.table.options, files)
    return aggregate_files(replace(spec, table=table), files, splits, store)


def inline_groups(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store) -> pa.Table | None:
    """The result of an aggregation, if the planner can compute it quickly; it is cached."""
    options = spec.table.options.public()
    where = "" if spec.where is None else to_sql(spec.where)
    text = repr((spec.aggregates, spec.groups, where))
    key = (snapshot.log.cache_scope, snapshot.key, text, *sorted(options.values.items()))
    if (cached := _answers.get(key)) is not None:
        return cached
    groups = _inline_groups(snapshot, files, spec, store)
    if groups is not None:
        _answers.put(key, groups)
    return groups


@dataclass(frozen=True, slots=True)
class _InlineSplits:
    """The splits whose partial aggregate is not in the log, if they are few."""

    spec: AggregateSpec
    statistics: Partial | None
    splits: Sequence[SplitRef]

    def is_small(self, ref: SplitRef) -> bool:
        """Whether reading the rows of a split is cheap enough."""
        return ref.num_records is not None and ref.num_records <= _MAX_ROWS_READ // len(self.splits)


def _inline_splits(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec) -> _InlineSplits | None:
    options = spec.table.options
    if not options.get(reading.INLINE_ROWS):
        return None
    table, splits = plan_splits(snapshot, spec.where, options, files)
    spec = replace(spec, table=table)
    statistics, answered = from_log(files, spec)
    rest = [ref for ref, done in zip(splits, answered.tolist(), strict=True) if not done]
    return None if len(rest) > options.get(reading.INLINE_SPLITS) else _InlineSplits(spec, statistics, rest)


def _inline_groups(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store) -> pa.Table | None:
    rest = _inline_splits(snapshot, files, spec)
    if rest is None:
        return None
    parts = [empty_partial(rest.spec), *([] if rest.statistics is None else [rest.statistics])]
    for ref in rest.splits:
        if rest.is_small(ref):
            parts.append(split_partial(store, ref, rest.spec))
            continue
        if not _is_at_hand(SplitReader(store, ref, rest.spec.table), rest.spec):
            return None
        partial_result = index_partial(store, ref, rest.spec)
        if partial_result is None:
            return None
        parts.append(partial_result)
    return result_table(parts, rest.spec)


def _is_at_hand(reader: SplitReader, spec: AggregateSpec) -> bool:
    """Whether the index needs no fetching, or only that of a small split."""
    columns = [*reader.columns_of(spec.where), *spec.columns]
    return reader.ref.size <= _MAX_FETCHED_BYTES or reader.is_index_at_hand(columns)
