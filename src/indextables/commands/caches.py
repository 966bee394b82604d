"""PREWARM, and commands about jobs, processes and caches; in Spark, on the driver and the workers."""

import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from indextables import diagnostics
from indextables.commands.declarations import Arguments
from indextables.commands.execute import CommandContext, Implementation, table_of
from indextables.commands.grammar import condition
from indextables.errors import CommandError
from indextables.maintain import jobs
from indextables.maintain.jobs import TaskSet
from indextables.maintain.prewarm import (
    PrewarmResult,
    PrewarmTask,
    combine_results,
    plan_prewarm,
    raise_failed,
    run,
)
from indextables.options import Options
from indextables.options.maintenance import MAX_WAIT_SECONDS
from indextables.records import dataclass
from indextables.store import Store

DRIVER = "driver"
# The number of small tasks that Spark distributes over its workers; duplicate rows of a process are dropped.
_NUM_TASKS = 16

_DISK = pa.schema(
    [
        pa.field("executor_id", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("enabled", pa.bool_(), nullable=False),
        ("total_bytes", pa.int64()),
        ("max_bytes", pa.int64()),
        ("usage_percent", pa.float64()),
        ("splits_cached", pa.int64()),
        ("components_cached", pa.int64()),
    ]
)
_STORAGE = pa.schema(
    {"executor_id": pa.string(), "host": pa.string(), "bytes_fetched": pa.int64(), "requests": pa.int64()}
)
_PROPERTIES = pa.schema(
    {
        "host": pa.string(),
        "role": pa.string(),
        "property_type": pa.string(),
        "property_name": pa.string(),
        "property_value": pa.string(),
    }
)
_FLUSH_SEARCHER = pa.schema(
    {
        "cache_type": pa.string(),
        "status": pa.string(),
        "cleared_entries": pa.int64(),
        "message": pa.string(),
    }
)
_FLUSH_DISK = pa.schema(
    {
        "executor_id": pa.string(),
        "cache_type": pa.string(),
        "status": pa.string(),
        "bytes_freed": pa.int64(),
        "files_deleted": pa.int64(),
        "message": pa.string(),
    }
)
_INVALIDATE = pa.schema(
    {
        "table_path": pa.string(),
        "result": pa.string(),
        "cache_hits_before": pa.int64(),
        "cache_misses_before": pa.int64(),
        "hit_rate_before": pa.string(),
    }
)

Row = dict[str, Any]


class _AllProcesses:
    """A command that collects rows from the driver and from every worker.

    `keys` are the columns that identify a row: the workers of one host may report the same folder.
    """

    def __init__(self, name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.name = name
        self.schema = schema
        self.keys = keys

    def plan(self, context: CommandContext, arguments: Arguments) -> TaskSet:
        del arguments
        here = _collect((self.name, context.options), None)
        if self.name == _ENVIRONMENT:
            here += _process_rows(_settings(context, {row["property_name"] for row in here}))
        if self.name == _SEARCHERS:
            here = _process_rows([_flush_row(here[0]["cleared_entries"] + context.removed_values)])
        return TaskSet(
            _collect, [(self.name, context.options.public())] * _NUM_TASKS, here, other_processes=True
        )

    def finish(
        self, context: CommandContext, arguments: Arguments, state: list[Row], results: Iterable[list[Row]]
    ) -> pa.Table:
        del context, arguments
        unique: dict[tuple[Any, ...], Row] = {}
        here = [{**row, "executor_id": DRIVER, "role": DRIVER} for row in state]
        for row in chain(here, *results):
            unique.setdefault(tuple(row[key] for key in self.keys), row)
        shown = [{name: row.get(name) for name in self.schema.names} for row in unique.values()]
        return table_of(self.schema, *shown)


def _collect(task: tuple[str, Options], store: object) -> list[Row]:
    """Collect the rows of the process in which this runs."""
    del store
    name, options = task
    return _process_rows(_COLLECTORS[name](options))


def _process_rows(rows: Iterable[Row]) -> list[Row]:
    """Add the columns of this process to rows."""
    who = {"executor_id": f"worker-{os.getpid()}", "host": socket.gethostname(), "pid": os.getpid()}
    return [{"role": "worker", **who, **row} for row in rows]


def _settings(context: CommandContext, shown: Collection[str]) -> list[Row]:
    """The settings of Spark and of Hadoop, except those in `shown`."""
    return [
        {
            "property_type": kind,
            "property_name": name,
            "property_value": diagnostics.masked_setting(name, value),
        }
        for kind, values in context.settings.items()
        for name, value in values.items()
        if name not in shown
    ]


def _disk_cache(options: Options) -> list[Row]:
    statistics = diagnostics.disk_cache(options=options)
    return [
        {
            "enabled": statistics.enabled,
            "folder": statistics.folder,
            "total_bytes": statistics.total_bytes,
            "max_bytes": statistics.max_bytes,
            "usage_percent": statistics.usage_percent,
            "splits_cached": statistics.splits,
            "components_cached": statistics.components,
        }
    ]


def _storage(options: Options) -> list[Row]:
    del options
    read = diagnostics.storage_read()
    return [{"bytes_fetched": read.bytes_fetched, "requests": read.requests}]


def _environment(options: Options) -> list[Row]:
    return [
        {"property_type": each.kind, "property_name": each.name, "property_value": each.value}
        for each in diagnostics.environment(options=options)
    ]


def _flush_searcher(options: Options) -> list[Row]:
    del options
    return [_flush_row(diagnostics.flush_searchers())]


def _flush_row(splits: int) -> Row:
    return {
        "cache_type": "split_cache",
        "status": "success",
        "cleared_entries": splits,
        "message": f"{splits} splits were closed",
    }


def _flush_disk(options: Options) -> list[Row]:
    done = diagnostics.flush_disk_cache(options=options)
    message = (
        f"{done.in_use} entries are in use and were not deleted" if done.in_use else "the cache is empty"
    )
    return [
        {
            "cache_type": "disk_cache_files",
            "status": "success" if done.enabled else "skipped",
            "bytes_freed": done.bytes,
            "files_deleted": done.files,
            "message": message if done.enabled else "the disk cache is off",
            "folder": done.folder,
        }
    ]


_ENVIRONMENT = "environment"
_SEARCHERS = "flush_searcher"
_COLLECTORS = {
    "disk": _disk_cache,
    "storage": _storage,
    _ENVIRONMENT: _environment,
    _SEARCHERS: _flush_searcher,
    "flush_disk": _flush_disk,
}


def _invalidate(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    url = None if context.table is None else context.store.url
    done = diagnostics.invalidate_log_cache(url, options=context.options)
    rate = done.hit_rate_before
    row: Mapping[str, Any] = {
        "table_path": url or "GLOBAL",
        "result": f"{done.values + context.removed_values} values were dropped",
        "cache_hits_before": done.hits_before,
        "cache_misses_before": done.misses_before,
        "hit_rate_before": "N/A" if rate is None else f"{100 * rate:.1f}%",
    }
    return table_of(_INVALIDATE, row)


def _implementation(name: str, schema: pa.Schema, *keys: str) -> Implementation:
    command = _AllProcesses(name, schema, keys)
    return Implementation(schema, command.plan, command.finish)


DISK_CACHE = _implementation("disk", _DISK, "host", "folder")
STORAGE = _implementation("storage", _STORAGE, "host", "pid")
ENVIRONMENT = _implementation(_ENVIRONMENT, _PROPERTIES, "host", "pid", "property_type", "property_name")
FLUSH_SEARCHERS = _implementation(_SEARCHERS, _FLUSH_SEARCHER, "host", "pid")
FLUSH_DISK_CACHE = _implementation("flush_disk", _FLUSH_DISK, "host", "folder")
INVALIDATE = Implementation(_INVALIDATE, _invalidate)


_PREWARM = pa.schema(
    [
        pa.field("host", pa.string(), nullable=False),
        pa.field("assigned_host", pa.string(), nullable=False),
        ("locality_hits", pa.int32()),
        ("locality_misses", pa.int32()),
        ("splits_prewarmed", pa.int32()),
        ("segments", pa.string()),
        ("fields", pa.string()),
        ("duration_ms", pa.int64()),
        ("status", pa.string()),
        ("skipped_fields", pa.string()),
        ("retries", pa.int32()),
        ("failed_splits_by_host", pa.string()),
        ("job_id", pa.string()),
        ("async_mode", pa.bool_()),
    ]
)
_PREWARM_JOBS = pa.schema(
    {
        "executor_id": pa.string(),
        "host": pa.string(),
        "job_id": pa.string(),
        "table_path": pa.string(),
        "status": pa.string(),
        "total_splits": pa.int32(),
        "completed_splits": pa.int32(),
        "progress_pct": pa.float64(),
        "duration_ms": pa.int64(),
        "error_message": pa.string(),
    }
)
_MERGE_JOBS = pa.schema(
    {
        "job_id": pa.string(),
        "table_path": pa.string(),
        "status": pa.string(),
        "total_groups": pa.int32(),
        "completed_groups": pa.int32(),
        "total_batches": pa.int32(),
        "completed_batches": pa.int32(),
        "progress_pct": pa.float64(),
        "duration_ms": pa.int64(),
        "error_message": pa.string(),
    }
)
_WAIT = pa.schema(
    {
        "executor_id": pa.string(),
        "host": pa.string(),
        "job_id": pa.string(),
        "table_path": pa.string(),
        "status": pa.string(),
        "total_splits": pa.int32(),
        "splits_prewarmed": pa.int32(),
        "duration_ms": pa.int64(),
        "error_message": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class _PrewarmState:
    parts: tuple[str, ...]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    homes: tuple[str | None, ...] = ()


def _prewarm(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    with condition(arguments) as where:
        plan = plan_prewarm(
            context.log.snapshot(),
            context.options,
            segments=arguments.get("segments", ()),
            fields=arguments.get("fields", ()),
            where=where,
            parallelism=arguments.get("parallelism"),
            home=context.executor_of,
        )
    homes = tuple(task.home for task in plan.tasks)
    state = _PrewarmState(plan.parts, plan.columns, plan.left_out, homes)
    if not plan.tasks:
        return table_of(_PREWARM, _row(PrewarmResult(socket.gethostname()), state, status="no_splits"))
    public = context.options.public()
    work = TaskSet(_run, [(task, public) for task in plan.tasks], state, preferred_executors=homes)
    return _in_background(context, plan.splits, work) if arguments.get("async") else work


def _run(task: tuple[PrewarmTask, Options], store: Store) -> PrewarmResult:
    return run(task[0], store, task[1])


def _in_background(context: CommandContext, splits: int, work: TaskSet) -> TaskSet:
    job = jobs.begin(
        jobs.JobKind.PREWARM, context.store.url, context.options, total=splits, owner=context.owner
    )
    row = _row(PrewarmResult(job.host), work.state, status="started")
    return replace(
        work, job=job.id, immediate_result=table_of(_PREWARM, {**row, "job_id": job.id, "async_mode": True})
    )


def _finish(
    context: CommandContext, arguments: Arguments, state: _PrewarmState, task_results: Iterable[PrewarmResult]
) -> pa.Table:
    results = list(task_results)
    if arguments.get("async"):
        raise_failed(combine_results(results).failed)
    by_host: dict[tuple[str, str], list[PrewarmResult]] = {}
    for result, assigned in zip(results, _preferred_hosts(context, state, results), strict=True):
        by_host.setdefault((result.host, assigned or result.host), []).append(result)
    return table_of(
        _PREWARM,
        *(_row(combine_results(each), state, assigned=to) for (_, to), each in sorted(by_host.items())),
    )


def _preferred_hosts(
    context: CommandContext, state: _PrewarmState, results: Sequence[PrewarmResult]
) -> list[str | None]:
    """Return for each task the host of its preferred executor if it ran on another one; else None."""
    if not context.executors:
        return [None] * len(results)
    return [
        None
        if home is None or home.endswith(f"_{ran}")
        else home.removeprefix("executor_").rpartition("_")[0]
        for home, ran in zip(state.homes, context.executors, strict=True)
    ]


def _row(
    result: PrewarmResult, state: _PrewarmState, status: str | None = None, assigned: str | None = None
) -> dict[str, Any]:
    failed = "; ".join(f"{path}: {problem}" for path, problem in result.failed) or None
    if failed and not result.splits:
        raise CommandError(f"no split could be warmed on {result.host}: {failed}")
    missed = assigned not in (None, result.host)
    return {
        "host": result.host,
        "assigned_host": assigned or result.host,
        "locality_hits": 0 if missed else result.splits,
        "locality_misses": result.splits if missed else 0,
        "splits_prewarmed": result.splits,
        "segments": ",".join(state.parts),
        "fields": ",".join(state.columns) or "all",
        "duration_ms": result.duration_ms,
        "status": status or ("partial" if failed else "success"),
        "skipped_fields": ",".join(state.left_out) or None,
        "retries": result.retries,
        "failed_splits_by_host": failed,
        "async_mode": False,
    }


def _job(record: jobs.Job) -> dict[str, Any]:
    return {
        "executor_id": DRIVER,
        "host": record.host,
        "job_id": record.id,
        "table_path": record.table,
        "status": record.status.value,
        "total_splits": record.total,
        "completed_splits": record.done,
        "splits_prewarmed": record.done,
        "total_groups": record.total,
        "completed_groups": record.done,
        "total_batches": record.total_batches,
        "completed_batches": record.done_batches,
        "progress_pct": record.progress_pct,
        "duration_ms": record.duration_ms,
        "error_message": record.error,
    }


def _only(schema: pa.Schema, row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in schema.names}


def _prewarm_jobs(context: CommandContext, arguments: Arguments) -> pa.Table:
    del context, arguments
    records = jobs.jobs(jobs.JobKind.PREWARM)
    return table_of(_PREWARM_JOBS, *(_only(_PREWARM_JOBS, _job(record)) for record in records))


def _merge_jobs(context: CommandContext, arguments: Arguments) -> pa.Table:
    del context, arguments
    records = jobs.jobs(jobs.JobKind.MERGE)
    return table_of(_MERGE_JOBS, *(_only(_MERGE_JOBS, _job(record)) for record in records))


# The pauses between two looks at jobs: a tenth of the time that was waited, between these seconds.
_PAUSES = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Jobs that are waited for; times are of the monotonic clock, which all processes of a machine share."""

    jobs: Sequence[Mapping[str, Any]]
    since: float
    until: float


def _wait(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    table = context.store.url if context.table is not None else None
    waiting = jobs.find_jobs(jobs.JobKind.PREWARM, table, arguments.get("job"))
    now = time.monotonic()
    return _result_or_pause(waiting, now, now + arguments.get("timeout", MAX_WAIT_SECONDS))


def _look_again(
    context: CommandContext, arguments: Arguments, state: _Waiting, results: Iterable[object]
) -> pa.Table | TaskSet:
    del context, arguments, results
    return _result_or_pause(jobs.current(jobs.Job(**each) for each in state.jobs), state.since, state.until)


def _result_or_pause(records: Sequence[jobs.Job], since: float, until: float) -> pa.Table | TaskSet:
    """The result, if all jobs have ended or the time is over; else a pause, after which to look again."""
    now = time.monotonic()
    if now < until and any(record.ended is None for record in records):
        least, most = _PAUSES
        pause = min(until - now, most, max(least, (now - since) / 10))
        state = _Waiting([jobs.to_fields(record) for record in records], since, until)
        return TaskSet(_no_task, (), state, pause=pause)
    rows = []
    for record in records:
        row = _only(_WAIT, _job(record))
        over = record.ended is not None
        rows.append(row if over else {**row, "status": f"TIMEOUT (was: {record.status.value})"})
    return table_of(_WAIT, *rows)


def _no_task(task: object, store: object) -> None:
    raise AssertionError(f"waiting has no tasks: {task}, {store}")


PREWARM = Implementation(_PREWARM, _prewarm, _finish)
WAIT = Implementation(_WAIT, _wait, _look_again)
PREWARM_JOBS = Implementation(_PREWARM_JOBS, _prewarm_jobs)
MERGE_JOBS = Implementation(_MERGE_JOBS, _merge_jobs)
