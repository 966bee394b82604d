"""Aggregates over a table: from the log where it knows, from indexes where they are exact, else from rows."""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.read.aggregates import Aggregate, Group
from indextables.read.finish import finished
from indextables.read.from_log import from_log
from indextables.read.from_splits import empty_partial, split_partial
from indextables.read.parallel import each
from indextables.read.partials import merged
from indextables.read.request import request_for
from indextables.read.scan import parallelism
from indextables.read.tasks import prepare
from indextables.store import Store

# So many partial results are merged at once.
_FOLD = 32


def aggregate(
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    aggregates: Sequence[Aggregate],
    group_by: Sequence[Group] = (),
    where: Predicate | None = None,
) -> pa.Table:
    """One row for each group: the groups' columns, then the aggregates'.

    Nulls are a group of their own. Without groups there is exactly one row. Sums of whole numbers are longs
    and fail if they do not fit; averages of whole numbers are doubles; sums and averages of decimals are
    exact decimals of Spark's precision.
    """
    files = snapshot.files(where)
    table, splits = prepare(snapshot, where, options, files)
    request = request_for(table.schema, aggregates, group_by, where)
    logged, known = from_log(files, where, table, request)
    works = [
        partial(split_partial, store, ref, table, request)
        for ref, done in zip(splits, known.tolist(), strict=True)
        if not done
    ]
    parts = [empty_partial(table.schema, request), *([logged] if logged is not None else [])]
    for found in each(works, parallelism(options)):
        parts.append(found)
        if len(parts) >= _FOLD:
            parts = [merged(parts, len(group_by))]
    return finished(parts, request)
