"""Commands about work in the background: PREWARM, WAIT FOR, and the lists of jobs."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables.commands.clauses import condition, flag, names, number, text, where
from indextables.commands.command import Arguments, Command, Place, Wanted, Work, rows
from indextables.errors import CommandError
from indextables.maintain import jobs
from indextables.maintain.prewarm import PrewarmTask, Warmed, plan_prewarm, raise_failed, run, together
from indextables.options import Options
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


def _prewarm(place: Place, arguments: Arguments) -> pa.Table | Work:
    with condition(arguments) as said:
        plan = plan_prewarm(
            place.log.snapshot(),
            place.options,
            segments=arguments.get("segments", ()),
            fields=arguments.get("fields", ()),
            where=said,
            parallelism=arguments.get("parallelism"),
            home=place.home,
        )
    homes = tuple(task.home for task in plan.tasks)
    planned = _Planned(plan.parts, plan.columns, plan.left_out, homes)
    if not plan.tasks:
        return rows(_PREWARM, _row(Warmed(socket.gethostname()), planned, status="no_splits"))
    public = place.options.public()
    work = Work(_run, [(task, public) for task in plan.tasks], planned, preferred=homes)
    return _in_background(place, plan.splits, work) if arguments.get("async") else work


def _run(task: tuple[PrewarmTask, Options], store: Store) -> Warmed:
    return run(task[0], store, task[1])


def _in_background(place: Place, splits: int, work: Work) -> Work:
    made = jobs.begin(jobs.JobKind.PREWARM, place.store.url, place.options, total=splits, owner=place.owner)
    row = _row(Warmed(made.host), work.state, status="started")
    return replace(work, job=made.id, at_once=rows(_PREWARM, {**row, "job_id": made.id, "async_mode": True}))


def _finish(place: Place, arguments: Arguments, state: _Planned, results: Sequence[Warmed]) -> pa.Table:
    if arguments.get("async"):
        raise_failed(together(results).failed)
    by_host: dict[tuple[str, str], list[Warmed]] = {}
    for result, assigned in zip(results, _assigned(place, state, results), strict=True):
        by_host.setdefault((result.host, assigned or result.host), []).append(result)
    return rows(
        _PREWARM,
        *(_row(together(each), state, assigned=to) for (_, to), each in sorted(by_host.items())),
    )


def _assigned(place: Place, state: _Planned, results: Sequence[Warmed]) -> list[str | None]:
    """For each task that ran elsewhere than where its splits are read, the host of that place."""
    if not place.ran:
        return [None] * len(results)
    return [
        None
        if home is None or home.endswith(f"_{ran}")
        else home.removeprefix("executor_").rpartition("_")[0]
        for home, ran in zip(state.homes, place.ran, strict=True)
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


def _prewarm_jobs(place: Place, arguments: Arguments) -> pa.Table:
    del place, arguments
    found = jobs.jobs(jobs.JobKind.PREWARM)
    return rows(_PREWARM_JOBS, *(_only(_PREWARM_JOBS, _job(record)) for record in found))


def _merge_jobs(place: Place, arguments: Arguments) -> pa.Table:
    del place, arguments
    found = jobs.jobs(jobs.JobKind.MERGE)
    return rows(_MERGE_JOBS, *(_only(_MERGE_JOBS, _job(record)) for record in found))


def _wait(place: Place, arguments: Arguments) -> pa.Table:
    table = place.store.url if place.table is not None else None
    found = jobs.found(jobs.JobKind.PREWARM, table, arguments.get("job"))
    waited = []
    for record in jobs.wait(found, arguments.get("timeout", jobs.WAIT_S)):
        row = _only(_WAIT, _job(record))
        over = record.ended is not None
        waited.append(row if over else {**row, "status": f"TIMEOUT (was: {record.status.value})"})
    return rows(_WAIT, *waited)


COMMANDS = (
    Command(
        openings=("PREWARM INDEXTABLES CACHE",),
        in_shell="prewarm",
        in_python="Table.prewarm",
        result=_PREWARM,
        plan=_prewarm,
        finish=_finish,
        clauses=(
            names("FOR SEGMENTS", "segments"),
            names("ON FIELDS", "fields"),
            number("WITH PERWORKER PARALLELISM OF", "parallelism", 1),
            where(),
            flag("ASYNC MODE", "async"),
        ),
        help="Bring indexes to the local disk and into memory before the first search.",
    ),
    Command(
        openings=("WAIT FOR INDEXTABLES PREWARM JOBS",),
        in_shell="wait",
        in_python="wait_for_prewarm",
        result=_WAIT,
        plan=_wait,
        target=Wanted.MAYBE,
        clauses=(text("JOB", "job", shown="'id'"), number("TIMEOUT", "timeout", 1, shown="seconds")),
        help="Wait until prewarm jobs of this machine have ended.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES PREWARM JOBS",),
        in_shell="jobs prewarm",
        in_python="prewarm_jobs",
        result=_PREWARM_JOBS,
        plan=_prewarm_jobs,
        target=Wanted.NOTHING,
        help="The prewarm jobs of this machine, running and recently ended.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES MERGE JOBS",),
        in_shell="jobs merge",
        in_python="merge_jobs",
        result=_MERGE_JOBS,
        plan=_merge_jobs,
        target=Wanted.NOTHING,
        help="The merges of this machine, running and recently ended.",
    ),
)
