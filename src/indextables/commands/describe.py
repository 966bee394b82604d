"""Commands that tell about a table and change nothing."""

import json

import pyarrow as pa

from indextables.commands.clauses import condition, number, where
from indextables.commands.command import Arguments, Command, Place, rows
from indextables.maintain.figures import column_skipping, split_components, state_figures
from indextables.maintain.partitions import partition_condition

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
        "token": pa.string(),
    }
)
_COMPONENTS = pa.schema(
    [
        pa.field("split_path", pa.string(), nullable=False),
        ("partition_values", pa.string()),
        pa.field("component_key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("component_type", pa.string(), nullable=False),
        ("field_name", pa.string()),
    ]
)
_SKIPPING = pa.schema(
    {
        "column_name": pa.string(),
        "data_type": pa.string(),
        "num_splits": pa.int64(),
        "splits_with_stats": pa.int64(),
        "coverage": pa.float64(),
        "min_value": pa.string(),
        "max_value": pa.string(),
        "null_count": pa.int64(),
    }
)


def _state(place: Place, arguments: Arguments) -> pa.Table:
    del arguments
    found = state_figures(place.log.snapshot(), place.options)
    row = {
        "table_path": place.store.url,
        "format": found.format,
        "version": found.version,
        "num_files": found.num_files,
        "num_manifests": found.num_manifests,
        "num_tombstones": found.num_tombstones,
        "tombstone_ratio": found.tombstone_ratio,
        "total_bytes": found.total_bytes,
        "needs_compaction": found.needs_compaction,
        "status": "No checkpoint found" if found.version is None else "OK",
    }
    return rows(_STATE, row)


def _history(place: Place, arguments: Arguments) -> pa.Table:
    found = [
        {
            "version": entry.version,
            "timestamp": entry.timestamp * 1000,
            "operation": entry.operation,
            "parameters": list(entry.parameters.items()),
            "metrics": list(entry.metrics.items()),
            "engine": entry.engine,
            "user_metadata": entry.user_metadata,
            "token": entry.token,
        }
        for entry in place.log.history(arguments.get("limit"))
    ]
    return rows(_HISTORY, *found)


def _components(place: Place, arguments: Arguments) -> pa.Table:
    snapshot = place.log.snapshot()
    with condition(arguments) as text:
        chosen = None if text is None else partition_condition(snapshot, text)
    found = [
        {
            "split_path": split.path,
            "partition_values": json.dumps(split.partition_values) if split.partition_values else None,
            "component_key": part.kind if part.column is None else f"{part.column}.{part.kind}",
            "size_bytes": part.size,
            "component_type": part.kind,
            "field_name": part.column,
        }
        for split in split_components(snapshot, place.store, chosen)
        for part in split.parts
    ]
    return rows(_COMPONENTS, *found)


def _skipping(place: Place, arguments: Arguments) -> pa.Table:
    del arguments
    found = [
        {
            "column_name": column.column,
            "data_type": column.data_type,
            "num_splits": column.splits,
            "splits_with_stats": column.with_bounds,
            "coverage": column.with_bounds / column.splits if column.splits else 0.0,
            "min_value": column.least,
            "max_value": column.greatest,
            "null_count": column.nulls,
        }
        for column in column_skipping(place.log.snapshot())
    ]
    return rows(_SKIPPING, *found)


COMMANDS = (
    Command(
        openings=("DESCRIBE INDEXTABLES STATE",),
        in_shell="describe state",
        in_python="Table.state",
        result=_STATE,
        plan=_state,
        help="How the log's newest state is made up, and whether it should be compacted.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES HISTORY",),
        in_shell="history",
        in_python="Table.history",
        result=_HISTORY,
        plan=_history,
        clauses=(number("LIMIT", "limit", 1),),
        help="What was done to the table, newest version first.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES COMPONENT SIZES",),
        in_shell="describe components",
        in_python="Table.components",
        result=_COMPONENTS,
        plan=_components,
        clauses=(where(),),
        help="The parts of every split by kind and column, with their sizes.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES DATA SKIPPING STATS",),
        in_shell="describe skipping",
        in_python="Table.data_skipping",
        result=_SKIPPING,
        plan=_skipping,
        help="For each column: how many splits have statistics that let a query skip them, and the bounds.",
    ),
)
