"""PREWARM, and the commands about background jobs."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables.commands.grammar import condition
from indextables.commands.implementation import Arguments, CommandContext, Implementation, TaskSet, table_of
from indextables.errors import CommandError
from indextables.maintain import jobs
from indextables.maintain.prewarm import PrewarmTask, Warmed, plan_prewarm, raise_failed, run, together
from indextables.options import Options
from indextables.options.maintenance import MAX_WAIT_SECONDS
from indextables.store import Store

DRIVER = "driver"

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
class _Planned:
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
    planned = _Planned(plan.parts, plan.columns, plan.left_out, homes)
    if not plan.tasks:
        return table_of(_PREWARM, _row(Warmed(socket.gethostname()), planned, status="no_splits"))
    public = context.options.public()
    work = TaskSet(_run, [(task, public) for task in plan.tasks], planned, preferred_executors=homes)
    return _in_background(context, plan.splits, work) if arguments.get("async") else work


def _run(task: tuple[PrewarmTask, Options], store: Store) -> Warmed:
    return run(task[0], store, task[1])


def _in_background(context: CommandContext, splits: int, work: TaskSet) -> TaskSet:
    job = jobs.begin(
        jobs.JobKind.PREWARM, context.store.url, context.options, total=splits, owner=context.owner
    )
    row = _row(Warmed(job.host), work.state, status="started")
    return replace(
        work, job=job.id, immediate_result=table_of(_PREWARM, {**row, "job_id": job.id, "async_mode": True})
    )


def _finish(
    context: CommandContext, arguments: Arguments, state: _Planned, results: Sequence[Warmed]
) -> pa.Table:
    if arguments.get("async"):
        raise_failed(together(results).failed)
    by_host: dict[tuple[str, str], list[Warmed]] = {}
    for result, assigned in zip(results, _assigned(context, state, results), strict=True):
        by_host.setdefault((result.host, assigned or result.host), []).append(result)
    return table_of(
        _PREWARM,
        *(_row(together(each), state, assigned=to) for (_, to), each in sorted(by_host.items())),
    )


def _assigned(context: CommandContext, state: _Planned, results: Sequence[Warmed]) -> list[str | None]:
    """Return the host of the preferred executor for each task that ran on another one; else None."""
    if not context.executors:
        return [None] * len(results)
    return [
        None
        if home is None or home.endswith(f"_{ran}")
        else home.removeprefix("executor_").rpartition("_")[0]
        for home, ran in zip(state.homes, context.executors, strict=True)
    ]


def _row(
    warmed: Warmed, planned: _Planned, status: str | None = None, assigned: str | None = None
) -> dict[str, Any]:
    failed = "; ".join(f"{path}: {problem}" for path, problem in warmed.failed) or None
    if failed and not warmed.splits:
        raise CommandError(f"no split could be warmed on {warmed.host}: {failed}")
    missed = assigned not in (None, warmed.host)
    return {
        "host": warmed.host,
        "assigned_host": assigned or warmed.host,
        "locality_hits": 0 if missed else warmed.splits,
        "locality_misses": warmed.splits if missed else 0,
        "splits_prewarmed": warmed.splits,
        "segments": ",".join(planned.parts),
        "fields": ",".join(planned.columns) or "all",
        "duration_ms": warmed.duration_ms,
        "status": status or ("partial" if failed else "success"),
        "skipped_fields": ",".join(planned.left_out) or None,
        "retries": warmed.retries,
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
    found = jobs.jobs(jobs.JobKind.PREWARM)
    return table_of(_PREWARM_JOBS, *(_only(_PREWARM_JOBS, _job(record)) for record in found))


def _merge_jobs(context: CommandContext, arguments: Arguments) -> pa.Table:
    del context, arguments
    found = jobs.jobs(jobs.JobKind.MERGE)
    return table_of(_MERGE_JOBS, *(_only(_MERGE_JOBS, _job(record)) for record in found))


def _wait(context: CommandContext, arguments: Arguments) -> pa.Table:
    table = context.store.url if context.table is not None else None
    found = jobs.find_jobs(jobs.JobKind.PREWARM, table, arguments.get("job"))
    waited = []
    for record in jobs.wait(found, arguments.get("timeout", MAX_WAIT_SECONDS)):
        row = _only(_WAIT, _job(record))
        over = record.ended is not None
        waited.append(row if over else {**row, "status": f"TIMEOUT (was: {record.status.value})"})
    return table_of(_WAIT, *waited)


PREWARM = Implementation(_PREWARM, _prewarm, _finish)
WAIT = Implementation(_WAIT, _wait)
PREWARM_JOBS = Implementation(_PREWARM_JOBS, _prewarm_jobs)
MERGE_JOBS = Implementation(_MERGE_JOBS, _merge_jobs)
