"""Aggregates over a table: from the log where it knows, from indexes where they are exact, else from rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import Predicate
from indextables.read.aggregates import Aggregate, Group
from indextables.read.finish import finished
from indextables.read.from_log import from_log
from indextables.read.from_splits import empty_partial, split_partial
from indextables.read.parallel import each
from indextables.read.partials import Partial, merged
from indextables.read.request import Request, request_for
from indextables.read.scan import parallelism as processors
from indextables.read.tasks import SplitRef, TableFacts, grouped, prepare
from indextables.store import Store

# So many partial results are merged at once.
_FOLD = 32


@dataclass(frozen=True)
class AggregateTask:
    """Some splits, and what to compute over them; picklable, without secrets."""

    table: TableFacts
    splits: tuple[SplitRef, ...]
    request: Request


@dataclass(frozen=True)
class AggregatePlan:
    """An aggregate shared out: what the log answered, and the tasks for the rest.

    `finish` makes the answer of what the log and the tasks gave.
    """

    logged: Partial | None
    tasks: tuple[AggregateTask, ...]
    schema: pa.Schema
    request: Request

    def finish(self, partials: Iterable[Partial]) -> pa.Table:
        """The answer, once every task was run."""
        keys = len(self.request.groups)
        parts = [] if self.logged is None else [self.logged]
        for found in partials:
            parts.append(found)
            if len(parts) >= _FOLD:
                parts = [merged(parts, keys)]
        return finished(parts or [empty_partial(self.schema, self.request)], self.request)


def plan_aggregate(
    snapshot: Snapshot,
    options: Options,
    *,
    aggregates: Sequence[Aggregate],
    group_by: Sequence[Group] = (),
    where: Predicate | None = None,
    parallelism: int = 1,
) -> AggregatePlan:
    """Share an aggregate out to tasks that can be sent to other processes."""
    files = snapshot.files(where)
    table, splits = prepare(snapshot, where, options, files)
    request = request_for(table.schema, aggregates, group_by, where)
    logged, known = from_log(files, where, table, request)
    left = [ref for ref, done in zip(splits, known.tolist(), strict=True) if not done]
    chosen = options.get(reading.AGGREGATE_SPLITS_PER_TASK)
    most = options.get(reading.AGGREGATE_MAX_SPLITS_PER_TASK)
    groups = grouped(left, parallelism, size=chosen, most=most)
    tasks = tuple(AggregateTask(table, group, request) for group in groups)
    return AggregatePlan(logged, tasks, table.schema, request)


def run_aggregate(task: AggregateTask, store: Store) -> Partial:
    """The groups of one task's splits; `store` is the table's, opened where the task runs."""
    keys = len(task.request.groups)
    found = split_partial(store, task.splits[0], task.table, task.request)
    for ref in task.splits[1:]:
        found = merged([found, split_partial(store, ref, task.table, task.request)], keys)
    return found


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
    at_once = processors(options)
    planned = plan_aggregate(
        snapshot, options, aggregates=aggregates, group_by=group_by, where=where, parallelism=at_once
    )
    works = [partial(run_aggregate, task, store) for task in planned.tasks]
    return planned.finish(each(works, at_once))
