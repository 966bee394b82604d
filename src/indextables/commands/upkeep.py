"""Commands that keep a table's log small."""

import pyarrow as pa

from indextables.commands.command import Arguments, Command, Place
from indextables.commands.cursor import CommandCursor

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
    return pa.Table.from_pylist([row], _CHECKPOINT)


def _truncate(place: Place, arguments: Arguments) -> pa.Table:
    dry_run = bool(arguments["dry_run"])
    version, gone = place.log.truncate(dry_run=dry_run)
    states = len(gone.states) + len(gone.checkpoints)
    gone_text = f"{len(gone.versions)} versions and {states} states before version {version}"
    row = {
        "table_path": place.store.url,
        "status": "DRY_RUN" if dry_run else "SUCCESS",
        "checkpoint_version": version,
        "versions_deleted": len(gone.versions),
        "checkpoints_deleted": states,
        "files_preserved": place.log.snapshot().num_files,
        "message": f"{gone_text} {'would be' if dry_run else 'were'} deleted",
    }
    return pa.Table.from_pylist([row], _TRUNCATE)


def _dry_run(cursor: CommandCursor) -> Arguments:
    return {"dry_run": cursor.accept_words("DRY RUN")}


COMMANDS = (
    Command(
        openings=("CHECKPOINT INDEXTABLES", "COMPACT INDEXTABLES"),
        syntax="{CHECKPOINT | COMPACT} INDEXTABLES table",
        result=_CHECKPOINT,
        plan=_checkpoint,
        help="Write a compacted state of the log now.",
    ),
    Command(
        openings=("TRUNCATE INDEXTABLES TIME TRAVEL",),
        syntax="TRUNCATE INDEXTABLES TIME TRAVEL table [DRY RUN]",
        result=_TRUNCATE,
        plan=_truncate,
        arguments=_dry_run,
        help="Forget all versions before the newest one.",
    ),
)
