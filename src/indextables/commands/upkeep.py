"""Commands that keep a table small and quick: MERGE SPLITS, PURGE, CHECKPOINT, TRUNCATE TIME TRAVEL."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from indextables.commands.clauses import DRY_RUN, condition, hours, number, size, where
from indextables.commands.command import Arguments, Clause, Command, Place, Work, rows
from indextables.commands.cursor import CommandCursor
from indextables.data_files import delete_uncommitted
from indextables.errors import CommitConflictError, IndexTablesError
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.log.transaction_log import MERGE
from indextables.maintain import jobs
from indextables.maintain import merge as merging
from indextables.maintain import purge as purging
from indextables.maintain.truncate import truncate
from indextables.options import Options
from indextables.options.indexing import HEAP_SIZE, TEMP_DIRECTORY
from indextables.options.maintenance import MERGE_MAX_PASSES
from indextables.store import Store

_MEGABYTE = 1 << 20

_MERGE = pa.schema(
    [
        ("table_path", pa.string()),
        (
            "metrics",
            pa.struct(
                [
                    pa.field("status", pa.string(), nullable=False),
                    ("merged_files", pa.int64()),
                    ("merge_groups", pa.int64()),
                    ("original_size_bytes", pa.int64()),
                    ("merged_size_bytes", pa.int64()),
                    ("message", pa.string()),
                ]
            ),
        ),
        ("temp_directory_path", pa.string()),
        ("heap_size_bytes", pa.int64()),
    ]
)
_PURGE = pa.schema(
    [
        ("table_path", pa.string()),
        (
            "metrics",
            pa.struct(
                [
                    pa.field("status", pa.string(), nullable=False),
                    ("orphaned_files_found", pa.int64()),
                    ("orphaned_files_deleted", pa.int64()),
                    ("size_mb_deleted", pa.float64()),
                    ("retention_hours", pa.int64()),
                    ("tx_log_files_deleted", pa.int64()),
                    ("expired_states_found", pa.int64()),
                    ("expired_states_deleted", pa.int64()),
                    pa.field("dry_run", pa.bool_(), nullable=False),
                    ("duration_ms", pa.int64()),
                    ("message", pa.string()),
                ]
            ),
        ),
    ]
)
_CHECKPOINT = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "checkpoint_version": pa.int64(),
        "num_actions": pa.int64(),
        "num_files": pa.int64(),
        "protocol_version": pa.int64(),
        "is_multi_part": pa.bool_(),
    }
)
_TRUNCATE = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "checkpoint_version": pa.int64(),
        "versions_deleted": pa.int64(),
        "checkpoints_deleted": pa.int64(),
        "files_preserved": pa.int64(),
        "message": pa.string(),
    }
)


# --- MERGE SPLITS ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MergeState:
    """One pass of a merge: what it is about, and what earlier ones did."""

    wish: merging.MergeWish
    base: SnapshotKey
    now_ms: int
    sizes: dict[str, int]
    job: str
    before: merging.MergeOutcome
    passes_left: int


def _wish(place: Place, arguments: Arguments) -> merging.MergeWish:
    with condition(arguments) as text:
        return merging.MergeWish.of(
            place.log.snapshot(),
            place.options,
            target_bytes=arguments.get("target_size"),
            where=text,
            max_new_splits=arguments.get("max_dest"),
            max_sources=arguments.get("max_source"),
        )


def _merge(place: Place, arguments: Arguments) -> pa.Table | Work:
    wish = _wish(place, arguments)
    work = _pass(place, wish, merging.MergeOutcome(), place.options.get(MERGE_MAX_PASSES), None)
    if work is None:
        nothing = "already optimal" if place.log.snapshot().num_files else "table is empty"
        return _merge_row(place, merging.MergeOutcome(), nothing)
    return work


def _pass(
    place: Place, wish: merging.MergeWish, before: merging.MergeOutcome, passes: int, job: str | None
) -> Work | None:
    """What one pass has to do; None if there is nothing, or passes enough were made."""
    snapshot, now_ms = place.log.snapshot(), time.time_ns() // 1_000_000
    place.log.check_writable(snapshot)
    tasks = wish.tasks(snapshot, place.options, before, now_ms) if passes else []
    if not tasks:
        return None
    batches = len(merging.batched(tasks, place.options))
    if job is None:
        job = jobs.begin(
            jobs.JobKind.MERGE,
            place.store.url,
            place.options,
            total=len(tasks),
            batches=batches,
            owner=place.owner,
            status=jobs.JobStatus.RUNNING,
        ).id
    else:
        jobs.more(job, len(tasks), batches)
    sizes = {ref.path: ref.size for task in tasks for ref in task.sources}
    state = _MergeState(wish, snapshot.key, now_ms, sizes, job, before, passes - 1)
    public = place.options.public()
    return Work(_run_merge, [(task, public) for task in tasks], state, job=job)


def _run_merge(task: tuple[merging.MergeTask, Options], store: Store) -> merging.Merged:
    return merging.run(task[0], store, task[1])


def _finish_merge(
    place: Place, arguments: Arguments, state: _MergeState, results: Sequence[merging.Merged]
) -> pa.Table | Work:
    del arguments
    outcome = _committed(place, state, results)
    # Merged splits may be small enough to be merged again.
    made = outcome.new_splits > state.before.new_splits
    again = _pass(place, state.wish, outcome, state.passes_left, state.job) if made else None
    return again or _merge_row(place, outcome, "")


def _committed(place: Place, state: _MergeState, results: Sequence[merging.Merged]) -> merging.MergeOutcome:
    batches = merging.batched(results, place.options)
    try:
        snapshot = _base_of(place, state)
    except IndexTablesError:
        delete_uncommitted(place.store, [r.add.path for r in results if r.add])
        raise
    outcome = state.before
    for done, batch in enumerate(batches):
        try:
            version = merging.commit_batch(place.log, snapshot, batch, place.options, state.now_ms)
        except IndexTablesError:
            # Batches that come after it have their files already, and nobody will name them.
            left = [r.add.path for later in batches[done + 1 :] for r in later if r.add]
            delete_uncommitted(place.store, left)
            raise
        jobs.batch_done(state.job)
        outcome = outcome.then(batch, state.sizes, version)
    return outcome


def _base_of(place: Place, state: _MergeState) -> Snapshot:
    """The snapshot that a pass was planned from; it is compared by its token, not by its number alone."""
    snapshot = place.log.snapshot_of(state.base)
    if snapshot is None:
        raise CommitConflictError(
            MERGE,
            f"version {state.base[0]}, which it started from, was cleaned up meanwhile",
            version=place.log.snapshot().version,
            other="or one before it",
        )
    return snapshot


def _merge_row(place: Place, outcome: merging.MergeOutcome, nothing: str) -> pa.Table:
    status = "success" if outcome.new_splits else "no_action"
    message = nothing or f"{outcome.merged_splits} splits became {outcome.new_splits}"
    for left, problem in (
        (outcome.skipped, "could not be read and stay as they are"),
        (outcome.unavailable, "were not delivered by storage and are tried again later"),
    ):
        if left:
            status = "partial_success"
            message += f"; {len(left)} {problem}, one is {left[0][0]}: {left[0][1]}"
    if outcome.failed:
        status = "partial_success"
        message += f"; {len(outcome.failed)} groups could not be merged, for one: {outcome.failed[0]}"
    row = {
        "table_path": place.store.url,
        "metrics": {
            "status": status,
            "merged_files": outcome.merged_splits,
            "merge_groups": outcome.new_splits,
            "original_size_bytes": outcome.bytes_before,
            "merged_size_bytes": outcome.bytes_after,
            "message": message,
        },
        "temp_directory_path": place.options.get(TEMP_DIRECTORY) or tempfile.gettempdir(),
        "heap_size_bytes": place.options.get(HEAP_SIZE),
    }
    return rows(_MERGE, row)


def _precommit(cursor: CommandCursor) -> None:
    raise cursor.wrong("PRECOMMIT never did anything, so it is not accepted; leave it out")


# --- PURGE -----------------------------------------------------------------------------------------


def _purge(place: Place, arguments: Arguments) -> pa.Table:
    outcome = purging.purge(
        place.log,
        place.options,
        older_than_hours=arguments.get("older_than"),
        log_hours=arguments.get("log_retention"),
        dry_run=arguments.get("dry_run", False),
    )
    return rows(_PURGE, {"table_path": place.store.url, "metrics": purge_figures(outcome)})


def purge_figures(outcome: purging.PurgeOutcome) -> dict[str, object]:
    """The outcome of a purge as its command reports it."""
    dry = outcome.dry_run
    message = (
        f"{outcome.orphans_found} files and {outcome.log_files_found} files of the log would be deleted"
        if dry
        else f"{outcome.orphans_deleted} files and {outcome.log_files_deleted} files of the log were deleted"
    )
    if outcome.limit_reached:
        message += "; there are more: repeat the purge"
    if outcome.failed:
        message += f"; {outcome.failed} could not be deleted: {outcome.problem}"
    return {
        "status": outcome.status,
        "orphaned_files_found": outcome.orphans_found,
        "orphaned_files_deleted": outcome.orphans_deleted,
        "size_mb_deleted": outcome.bytes_deleted / _MEGABYTE,
        "retention_hours": int(outcome.retention_hours),
        "tx_log_files_deleted": outcome.log_files_deleted,
        "expired_states_found": outcome.states_found,
        "expired_states_deleted": outcome.states_deleted,
        "dry_run": dry,
        "duration_ms": outcome.duration_ms,
        "message": message,
    }


# --- CHECKPOINT, TRUNCATE --------------------------------------------------------------------------


def _checkpoint(place: Place, arguments: Arguments) -> pa.Table:
    del arguments
    made = place.log.checkpoint()
    protocol = place.log.snapshot().protocol
    row = {
        "table_path": place.store.url,
        "status": "SUCCESS",
        "checkpoint_version": made.version,
        "num_actions": made.num_files + 2,  # the protocol and the metadata beside them
        "num_files": made.num_files,
        "protocol_version": protocol.min_reader_version,
        "is_multi_part": False,
    }
    return rows(_CHECKPOINT, row)


def _truncate(place: Place, arguments: Arguments) -> pa.Table:
    dry_run = bool(arguments.get("dry_run"))
    done = truncate(place.log, dry_run=dry_run)
    gone_text = f"{done.versions} versions and {done.states} states before version {done.version}"
    row = {
        "table_path": place.store.url,
        "status": "DRY_RUN" if dry_run else "SUCCESS",
        "checkpoint_version": done.version,
        "versions_deleted": done.versions,
        "checkpoints_deleted": done.states,
        "files_preserved": place.log.snapshot().num_files,
        "message": f"{gone_text} {'would be' if dry_run else 'were'} deleted",
    }
    return rows(_TRUNCATE, row)


COMMANDS = (
    Command(
        openings=("MERGE SPLITS",),
        in_shell="merge",
        in_python="Table.merge",
        result=_MERGE,
        plan=_merge,
        finish=_finish_merge,
        clauses=(
            where(),
            size("TARGET SIZE", "target_size", merging.MIN_TARGET),
            number("MAX DEST SPLITS", "max_dest", 1),
            number("MAX SOURCE SPLITS PER MERGE", "max_source", 2),
            Clause("PRECOMMIT", "precommit", _precommit, refused=True),
        ),
        help="Make few large splits of many small ones, partition by partition.",
    ),
    Command(
        openings=("PURGE INDEXTABLE",),
        in_shell="purge",
        in_python="Table.purge",
        result=_PURGE,
        plan=_purge,
        clauses=(
            hours("OLDER THAN", "older_than"),
            hours("TRANSACTION LOG RETENTION", "log_retention"),
            DRY_RUN,
        ),
        help="Delete files that no version names, and files of the log that have outlived their retention.",
    ),
    Command(
        openings=("CHECKPOINT INDEXTABLES", "COMPACT INDEXTABLES"),
        in_shell="checkpoint",
        in_python="Table.checkpoint",
        result=_CHECKPOINT,
        plan=_checkpoint,
        help="Write a compacted state of the log now; a table of an older protocol becomes a current one.",
    ),
    Command(
        openings=("TRUNCATE INDEXTABLES TIME TRAVEL",),
        in_shell="truncate",
        in_python="Table.truncate",
        result=_TRUNCATE,
        plan=_truncate,
        clauses=(DRY_RUN,),
        help="Forget all versions before the newest one.",
    ),
)
