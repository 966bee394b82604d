"""Commands that tell about a table and change nothing."""

import pyarrow as pa

from indextables.commands.command import Arguments, Command, Place
from indextables.commands.cursor import CommandCursor
from indextables.log.checkpoint import needs_compaction

_STATE = pa.schema(
    {
        "table_path": pa.string(),
        "format": pa.string(),
        "version": pa.int64(),
        "num_files": pa.int64(),
        "num_manifests": pa.int32(),
        "num_tombstones": pa.int32(),
        "tombstone_ratio": pa.float64(),
        "total_bytes": pa.int64(),
        "needs_compaction": pa.bool_(),
        "status": pa.string(),
    }
)
_HISTORY = pa.schema(
    {
        "version": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "operation": pa.string(),
        "parameters": pa.map_(pa.string(), pa.string()),
        "metrics": pa.map_(pa.string(), pa.int64()),
        "engine": pa.string(),
        "user_metadata": pa.string(),
    }
)


def _state(place: Place, arguments: Arguments) -> pa.Table:
    del arguments
    snapshot = place.log.snapshot()
    base = snapshot.base
    row: dict[str, object] = {
        "table_path": place.store.url,
        "format": "none",
        "version": None,
        "num_files": snapshot.num_files,
        "num_manifests": 0,
        "num_tombstones": 0,
        "tombstone_ratio": 0.0,
        "total_bytes": snapshot.total_bytes,
        "needs_compaction": False,
        "status": "No checkpoint found",
    }
    if base.state is not None:
        state = base.state
        row |= {
            "format": "avro-state",
            "version": base.version,
            "num_files": state.num_files,
            "num_manifests": len(state.manifests),
            "num_tombstones": len(state.tombstones),
            "tombstone_ratio": len(state.tombstones) / max(state.num_files, 1),
            "total_bytes": state.total_bytes,
            "needs_compaction": needs_compaction(snapshot, place.options),
            "status": "OK",
        }
    elif base.version >= 0:
        row |= {"format": "json", "version": base.version, "needs_compaction": True, "status": "OK"}
    return pa.Table.from_pylist([row], _STATE)


def _history(place: Place, arguments: Arguments) -> pa.Table:
    entries = place.log.history(arguments.get("limit"))
    rows = [
        {
            "version": entry.version,
            "timestamp": entry.timestamp * 1000,
            "operation": entry.operation,
            "parameters": list(entry.parameters.items()),
            "metrics": list(entry.metrics.items()),
            "engine": entry.engine,
            "user_metadata": entry.user_metadata,
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, _HISTORY)


def _limit(cursor: CommandCursor) -> Arguments:
    return {"limit": cursor.expect_number("how many versions")} if cursor.accept_words("LIMIT") else {}


COMMANDS = (
    Command(
        openings=("DESCRIBE INDEXTABLES STATE",),
        syntax="DESCRIBE INDEXTABLES STATE table",
        result=_STATE,
        plan=_state,
        help="How the log's newest state is made up, and whether it should be compacted.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES HISTORY",),
        syntax="DESCRIBE INDEXTABLES HISTORY table [LIMIT n]",
        result=_HISTORY,
        plan=_history,
        arguments=_limit,
        help="What was done to the table, newest version first.",
    ),
)
