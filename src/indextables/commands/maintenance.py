"""Maintenance commands: MERGE, CONVERT, PURGE, CHECKPOINT, TRUNCATE, DROP PARTITIONS, RESTORE and REPAIR."""

import tempfile
from collections.abc import Iterable

import pyarrow as pa

from indextables.commands.declarations import Arguments
from indextables.commands.execute import CommandContext, Implementation, table_of
from indextables.commands.grammar import condition
from indextables.maintain import convert as converting
from indextables.maintain import merge as merging
from indextables.maintain import on_write
from indextables.maintain import purge as purging
from indextables.maintain.jobs import TaskSet
from indextables.maintain.metadata_changes import drop_partitions, restore, truncate
from indextables.maintain.repair import repair
from indextables.options.writing import HEAP_SIZE, MERGE_HEAP_SIZE, TEMP_DIRECTORY, with_heap_size
from indextables.version import ENGINE

_MEGABYTE = 1 << 20
_NO_COLUMNS = pa.table({})

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
_CONVERT = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "splits_converted": pa.int64(),
        "splits_left": pa.int64(),
        "rows_converted": pa.int64(),
        "original_size_bytes": pa.int64(),
        "converted_size_bytes": pa.int64(),
        "message": pa.string(),
    }
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

_DROP = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "partitions_dropped": pa.int64(),
        "splits_removed": pa.int64(),
        "total_size_bytes": pa.int64(),
        "message": pa.string(),
    }
)
_RESTORE = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "restored_version": pa.int64(),
        "version": pa.int64(),
        "splits_restored": pa.int64(),
        "splits_removed": pa.int64(),
        "restored_size_bytes": pa.int64(),
        "removed_size_bytes": pa.int64(),
        "message": pa.string(),
    }
)
_REPAIR = pa.schema(
    {
        "source_path": pa.string(),
        "target_path": pa.string(),
        "source_version": pa.int64(),
        "total_splits": pa.int32(),
        "valid_splits": pa.int32(),
        "missing_splits": pa.int32(),
        "status": pa.string(),
    }
)


# --- MERGE SPLITS ----------------------------------------------------------------------------------


def _merge_options(context: CommandContext, arguments: Arguments) -> merging.MergeOptions:
    with condition(arguments) as text:
        return merging.MergeOptions.of(
            context.log.snapshot(),
            context.options,
            target_bytes=arguments.get("target_size"),
            where=text,
            max_new_splits=arguments.get("max_new_splits"),
            max_sources=arguments.get("max_sources"),
        )


def _merge(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    merge_options = _merge_options(context, arguments)
    tasks = merging.plan_merge(context.log, context.options, merge_options, owner=context.owner)
    if isinstance(tasks, TaskSet):
        return tasks
    nothing = "already optimal" if context.log.snapshot().num_files else "table is empty"
    return _merge_row(context, tasks, nothing)


def _finish_merge(
    context: CommandContext,
    arguments: Arguments,
    state: merging.MergePass,
    results: Iterable[merging.MergeTaskResult],
) -> pa.Table | TaskSet:
    del arguments
    finished = merging.finish_merge(context.log, context.options, state, results)
    return finished if isinstance(finished, TaskSet) else _merge_row(context, finished, "")


def _merge_row(context: CommandContext, outcome: merging.MergeOutcome, nothing: str) -> pa.Table:
    status = "success" if outcome.new_splits else "no_action"
    message = nothing or f"{outcome.merged_splits} splits became {outcome.new_splits}"
    for problems, problem in (
        (outcome.skipped, "could not be read and are not changed"),
        (outcome.unavailable, "could not be fetched from storage and are tried again later"),
    ):
        if problems:
            status = "partial_success"
            message += f"; {len(problems)} {problem}, one is {problems[0][0]}: {problems[0][1]}"
    if outcome.failed:
        status = "partial_success"
        message += f"; {len(outcome.failed)} groups could not be merged, for one: {outcome.failed[0]}"
    row = {
        "table_path": context.store.url,
        "metrics": {
            "status": status,
            "merged_files": outcome.merged_splits,
            "merge_groups": outcome.new_splits,
            "original_size_bytes": outcome.bytes_before,
            "merged_size_bytes": outcome.bytes_after,
            "message": message,
        },
        "temp_directory_path": context.options.get(TEMP_DIRECTORY) or tempfile.gettempdir(),
        "heap_size_bytes": with_heap_size(context.options, MERGE_HEAP_SIZE).get(HEAP_SIZE),
    }
    return table_of(_MERGE, row)


# --- CONVERT ---------------------------------------------------------------------------------------


def _convert(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    with condition(arguments) as text:
        where = converting.condition(context.log.snapshot(), text)
    if arguments.get("dry_run"):
        conversion = converting.planned_conversion(context.log, where)
        return _convert_row(
            context, conversion, "dry_run", f"{conversion.remainder} splits would be converted"
        )
    tasks = converting.plan_conversion(context.log, context.options, where, owner=context.owner)
    return tasks if isinstance(tasks, TaskSet) else _finished_row(context, tasks)


def _finish_conversion(
    context: CommandContext,
    arguments: Arguments,
    state: merging.MergePass,
    results: Iterable[merging.MergeTaskResult],
) -> pa.Table | TaskSet:
    del arguments
    finished = converting.finish_conversion(context.log, context.options, state, results)
    return finished if isinstance(finished, TaskSet) else _finished_row(context, finished)


def _finished_row(context: CommandContext, conversion: converting.Conversion) -> pa.Table:
    status = "partial_success" if conversion.remainder else "success" if conversion.converted else "no_action"
    message = f"{conversion.converted} splits were converted, {conversion.remainder} are left"
    if conversion.problems:
        path, reason = conversion.problems[0]
        message += f"; {len(conversion.problems)} could not be converted, one is {path}: {reason}"
    return _convert_row(context, conversion, status, message)


def _convert_row(
    context: CommandContext, conversion: converting.Conversion, status: str, message: str
) -> pa.Table:
    row = {
        "table_path": context.store.url,
        "status": status,
        "splits_converted": conversion.converted,
        "splits_left": conversion.remainder,
        "rows_converted": conversion.rows,
        "original_size_bytes": conversion.bytes_before,
        "converted_size_bytes": conversion.bytes_after,
        "message": message,
    }
    return table_of(_CONVERT, row)


# --- PURGE -----------------------------------------------------------------------------------------


def _purge(context: CommandContext, arguments: Arguments) -> pa.Table:
    outcome = purging.purge(
        context.log,
        context.options,
        older_than_hours=arguments.get("older_than"),
        log_hours=arguments.get("log_retention"),
        dry_run=arguments.get("dry_run", False),
    )
    return table_of(_PURGE, {"table_path": context.store.url, "metrics": purge_figures(outcome)})


def purge_figures(outcome: purging.PurgeOutcome) -> dict[str, object]:
    """Return the outcome of a purge as the fields of its result."""
    dry = outcome.dry_run
    message = (
        f"{outcome.orphans_found} files and {outcome.log_files_found} log files would be deleted"
        if dry
        else f"{outcome.orphans_deleted} files and {outcome.log_files_deleted} log files were deleted"
    )
    if outcome.limit_reached:
        message += "; there are more: repeat the purge"
    if outcome.failed:
        message += f"; {outcome.failed} could not be deleted: {outcome.problem}"
    return {
        "status": outcome.status,
        "orphaned_files_found": outcome.orphans_found + outcome.young_orphans,
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


def _checkpoint(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    checkpoint = context.log.checkpoint()
    protocol = context.log.snapshot().protocol
    row = {
        "table_path": context.store.url,
        "status": "SUCCESS",
        "checkpoint_version": checkpoint.version,
        "num_actions": checkpoint.num_files + 2,  # with the protocol and the metadata
        "num_files": checkpoint.num_files,
        "protocol_version": protocol.min_reader_version,
        "is_multi_part": checkpoint.parts is not None,
    }
    return table_of(_CHECKPOINT, row)


def _truncate(context: CommandContext, arguments: Arguments) -> pa.Table:
    dry_run = bool(arguments.get("dry_run"))
    done = truncate(context.log, dry_run=dry_run)
    gone_text = f"{done.versions} versions and {done.states} states before version {done.version}"
    row = {
        "table_path": context.store.url,
        "status": "DRY_RUN" if dry_run else "SUCCESS",
        "checkpoint_version": done.version,
        "versions_deleted": done.versions,
        "checkpoints_deleted": done.states,
        "files_preserved": context.log.snapshot().num_files,
        "message": f"{gone_text} {'would be' if dry_run else 'were'} deleted",
    }
    return table_of(_TRUNCATE, row)


# --- DROP PARTITIONS, RESTORE, REPAIR ------------------------------------------------------------------


def _drop(context: CommandContext, arguments: Arguments) -> pa.Table:
    with condition(arguments) as where:
        assert where is not None, "WHERE is required"
        done = drop_partitions(context.log, where)
    message = (
        "no partition matches"
        if done.version is None
        else f"version {done.version}; a purge deletes the files once their retention is over"
    )
    row = {
        "table_path": context.store.url,
        "status": "no_action" if done.version is None else "success",
        "partitions_dropped": done.partitions,
        "splits_removed": done.splits,
        "total_size_bytes": done.bytes,
        "message": message,
    }
    return table_of(_DROP, row)


def _restore(context: CommandContext, arguments: Arguments) -> pa.Table:
    done = restore(context.log, version=arguments.get("version"), timestamp=arguments.get("timestamp"))
    message = (
        "the table has this content already"
        if done.version is None
        else f"version {done.version} has the content of version {done.restored_version}"
    )
    row = {
        "table_path": context.store.url,
        "status": "no_action" if done.version is None else "success",
        "restored_version": done.restored_version,
        "version": done.version,
        "splits_restored": done.splits_restored,
        "splits_removed": done.splits_removed,
        "restored_size_bytes": done.bytes_restored,
        "removed_size_bytes": done.bytes_removed,
        "message": message,
    }
    return table_of(_RESTORE, row)


def _repair(context: CommandContext, arguments: Arguments) -> pa.Table:
    done = repair(
        arguments["path"],
        arguments.get("at"),
        context.options,
        engine=ENGINE,
        credentials=context.credentials,
    )
    row = {
        "source_path": done.source,
        "target_path": done.target,
        "source_version": done.source_version,
        "total_splits": done.total_splits,
        "valid_splits": done.valid_splits,
        "missing_splits": done.missing_splits,
        "status": "SUCCESS",
    }
    return table_of(_REPAIR, row)


def _merge_on_write(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    tasks = on_write.plan_merge_on_write(
        context.log, context.options, arguments["processors"], owner=context.owner
    )
    return _NO_COLUMNS if tasks is None else tasks


def _finish_merge_on_write(
    context: CommandContext,
    arguments: Arguments,
    state: on_write.MergeRound,
    results: Iterable[merging.MergeTaskResult],
) -> pa.Table | TaskSet:
    del arguments
    again = on_write.finish_merge_on_write(context.log, context.options, state, results, owner=context.owner)
    return _NO_COLUMNS if again is None else again


def _purge_on_write(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    on_write.purge_now(context.log, context.options)
    return _NO_COLUMNS


MERGE = Implementation(_MERGE, _merge, _finish_merge)
CONVERT = Implementation(_CONVERT, _convert, _finish_conversion)
PURGE = Implementation(_PURGE, _purge)
CHECKPOINT = Implementation(_CHECKPOINT, _checkpoint)
TRUNCATE = Implementation(_TRUNCATE, _truncate)
DROP_PARTITIONS = Implementation(_DROP, _drop)
RESTORE = Implementation(_RESTORE, _restore)
REPAIR = Implementation(_REPAIR, _repair)
# The commands that Spark runs after a write; there are no statements for them.
AFTER_WRITE = {
    "merge": Implementation(_NO_COLUMNS.schema, _merge_on_write, _finish_merge_on_write),
    "purge": Implementation(_NO_COLUMNS.schema, _purge_on_write),
}
