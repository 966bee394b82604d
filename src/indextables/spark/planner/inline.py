"""Answers that the planner gives itself: small ones, found faster than a task starts."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from indextables.log.snapshot import Snapshot
from indextables.options import reading
from indextables.predicate import Predicate, to_sql
from indextables.read.aggregate import aggregate
from indextables.read.finish import finished
from indextables.read.from_log import from_log
from indextables.read.from_splits import empty_partial, index_partial, split_partial
from indextables.read.parallel import in_order
from indextables.read.request import Request
from indextables.read.scan import parallelism
from indextables.read.split_reader import SplitReader
from indextables.read.tasks import SplitRef, TableFacts, prepare
from indextables.spark.read_task import answer
from indextables.spark.split_rows import ranked
from indextables.spark.wanted import Rows
from indextables.store import Store

# An index that is not on the local disk is fetched for an answer only if its split is small.
_FETCHED_BYTES = 64 << 20
# Ordering or grouping this many rows takes about as long as starting a task.
_LOOKED_AT = 100_000
_MOST_BYTES = 4 << 20
_KEPT = 16

_answers: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()


def inline_rows(wanted: Rows, splits: Sequence[SplitRef], store: Store) -> list[pa.RecordBatch] | None:
    """The rows that are wanted, if they are few and quickly found."""
    options = wanted.table.options
    most = options.get(reading.INLINE_ROWS)
    if not most or len(splits) > options.get(reading.INLINE_SPLITS):
        return None
    cost = sum(_cost(wanted, ref, store) for ref in splits)
    if cost > most:
        return None
    works = [partial(answer, wanted, (ref,), store) for ref in splits]
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in in_order(works, parallelism(options)):
        found.append(batch)
        size += batch.nbytes
        if size > _MOST_BYTES:
            return None
    return found


def _cost(wanted: Rows, ref: SplitRef, store: Store) -> float:
    """How many rows are fetched for an answer; rows that are only looked at count less."""
    options = wanted.table.options
    most = options.get(reading.INLINE_ROWS)
    limit = wanted.limit
    known = ref.num_records
    if known is not None and known <= most and (wanted.where is None or ref.size <= _FETCHED_BYTES):
        return min(known, known if limit is None else limit)
    if wanted.where is None:
        if limit is None or known is None or limit > most:
            return float("inf")
        return limit if not wanted.order else limit + known * most / _LOOKED_AT
    reader = SplitReader(store, ref, wanted.table)
    if not (ref.size <= _FETCHED_BYTES or reader.at_hand(reader.columns_of(wanted.where))):
        return float("inf")
    if limit is not None and ranked(wanted) is not None and reader.decided(wanted.where):
        return limit
    candidates = reader.candidates(wanted.where)
    if limit is None or candidates <= limit:
        return candidates
    if wanted.order:
        return limit + candidates * most / _LOOKED_AT
    return limit if reader.decided(wanted.where) else candidates


def inline_groups(
    snapshot: Snapshot,
    files: pa.Table,
    where: Predicate | None,
    table: TableFacts,
    request: Request,
    store: Store,
) -> pa.Table | None:
    """An aggregate from the log and the indexes of a few splits, or over a few rows; None if it takes more.

    Spark asks whether it can be answered before it asks for the answer, so the answer is kept for a moment.
    """
    if not table.options.get(reading.INLINE_ROWS):
        return None
    options = table.options.public()
    key = (snapshot.log.cache_scope, snapshot.key, _text(request), *sorted(options.values.items()))
    if (kept := _answers.get(key)) is not None:
        return kept
    found = _groups(snapshot, files, where, table, request, store)
    if found is not None:
        _answers[key] = found
        while len(_answers) > _KEPT:
            _answers.popitem(last=False)
    return found


def whole_groups(
    snapshot: Snapshot,
    files: pa.Table,
    where: Predicate | None,
    table: TableFacts,
    request: Request,
    store: Store,
) -> pa.Table:
    """The same aggregate, whatever it takes: what was promised complete has to come whole."""
    found = inline_groups(snapshot, files, where, table, request, store)
    if found is not None:
        return found
    return aggregate(
        snapshot,
        store,
        table.options,
        aggregates=request.aggregates,
        group_by=request.groups,
        where=where,
    )


def _text(request: Request) -> str:
    where = "" if request.where is None else to_sql(request.where)
    return repr((request.aggregates, request.groups, where))


def _groups(
    snapshot: Snapshot,
    files: pa.Table,
    where: Predicate | None,
    table: TableFacts,
    request: Request,
    store: Store,
) -> pa.Table | None:
    options = table.options
    own, splits = prepare(snapshot, where, options, files)
    logged, known = from_log(files, where, own, request)
    left = [ref for ref, done in zip(splits, known.tolist(), strict=True) if not done]
    if len(left) > options.get(reading.INLINE_SPLITS):
        return None
    parts = [empty_partial(own.schema, request), *([logged] if logged is not None else [])]
    for ref in left:
        if (ref.num_records or _LOOKED_AT + 1) <= _LOOKED_AT // len(left):
            parts.append(split_partial(store, ref, own, request))
            continue
        reader = SplitReader(store, ref, own)
        if not (ref.size <= _FETCHED_BYTES or reader.at_hand([*reader.columns_of(where), *request.columns])):
            return None
        found = index_partial(store, ref, own, request)
        if found is None:
            return None
        parts.append(found)
    return finished(parts, request)
