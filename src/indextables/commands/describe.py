"""DESCRIBE commands, which are read-only."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from indextables.commands.declarations import Arguments
from indextables.commands.execute import CommandContext, Implementation, table_of
from indextables.commands.grammar import condition
from indextables.log.format.actions import Action, Add, CommitInfo, MergeSkip, Metadata, Protocol, Remove, Txn
from indextables.log.format.names import LOG_FOLDER
from indextables.log.history import LogFileActions
from indextables.maintain.figures import column_skipping, partition_condition, split_components, state_figures

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
        "created_at": pa.timestamp("us", tz="UTC"),
        "min_reader_version": pa.int32(),
        "min_writer_version": pa.int32(),
        "reader_features": pa.string(),
        "writer_features": pa.string(),
        "num_skipped_splits": pa.int64(),
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

_TIME = pa.timestamp("us", tz="UTC")
_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()

_LOG = pa.schema(
    [
        pa.field("version", _LONG, nullable=False),
        pa.field("log_file_path", _TEXT, nullable=False),
        pa.field("action_type", _TEXT, nullable=False),
        ("path", _TEXT),
        ("partition_values", _TEXT),
        ("size", _LONG),
        ("data_change", _FLAG),
        ("tags", _TEXT),
        ("modification_time", _TIME),
        ("stats", _TEXT),
        ("min_values", _TEXT),
        ("max_values", _TEXT),
        ("num_records", _LONG),
        ("footer_start_offset", _LONG),
        ("footer_end_offset", _LONG),
        ("hotcache_start_offset", _LONG),
        ("hotcache_length", _LONG),
        ("has_footer_offsets", _FLAG),
        ("time_range_start", _TEXT),
        ("time_range_end", _TEXT),
        ("split_tags", _TEXT),
        ("delete_opstamp", _LONG),
        ("num_merge_ops", _INT),
        ("doc_mapping_json", _TEXT),
        ("doc_mapping_ref", _TEXT),
        ("uncompressed_size_bytes", _LONG),
        ("deletion_timestamp", _TIME),
        ("extended_file_metadata", _FLAG),
        ("skip_timestamp", _TIME),
        ("skip_reason", _TEXT),
        ("skip_operation", _TEXT),
        ("skip_retry_after", _TIME),
        ("skip_count", _INT),
        ("protocol_min_reader_version", _INT),
        ("protocol_min_writer_version", _INT),
        ("protocol_reader_features", _TEXT),
        ("protocol_writer_features", _TEXT),
        ("metadata_id", _TEXT),
        ("metadata_name", _TEXT),
        ("metadata_description", _TEXT),
        ("metadata_format_provider", _TEXT),
        ("metadata_format_options", _TEXT),
        ("metadata_schema_string", _TEXT),
        ("metadata_partition_columns", _TEXT),
        ("metadata_configuration", _TEXT),
        ("metadata_created_time", _TIME),
        pa.field("is_checkpoint", _FLAG, nullable=False),
    ]
)
_SLICE_ROWS = 10_000


def _state(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    figures = state_figures(context.log.snapshot(), context.options)
    row = {
        "table_path": context.store.url,
        "format": figures.format,
        "version": figures.version,
        "num_files": figures.num_files,
        "num_manifests": figures.num_manifests,
        "num_tombstones": figures.num_tombstones,
        "tombstone_ratio": figures.tombstone_ratio,
        "total_bytes": figures.total_bytes,
        "needs_compaction": figures.needs_compaction,
        "status": "No checkpoint found" if figures.version is None else "OK",
        "created_at": None if figures.created_ms is None else figures.created_ms * 1000,
        "min_reader_version": figures.protocol.min_reader_version,
        "min_writer_version": figures.protocol.min_writer_version,
        "reader_features": ",".join(figures.protocol.reader_features or ()),
        "writer_features": ",".join(figures.protocol.writer_features or ()),
        "num_skipped_splits": figures.skipped_splits,
    }
    return table_of(_STATE, row)


def _history(context: CommandContext, arguments: Arguments) -> pa.Table:
    rows = [
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
        for entry in context.log.history(arguments.get("limit"))
    ]
    return table_of(_HISTORY, *rows)


def _components(context: CommandContext, arguments: Arguments) -> pa.Table:
    snapshot = context.log.snapshot()
    with condition(arguments) as text:
        chosen = None if text is None else partition_condition(snapshot, text)
    rows = [
        {
            "split_path": split.path,
            "partition_values": json.dumps(split.partition_values) if split.partition_values else None,
            "component_key": part.kind if part.column is None else f"{part.column}.{part.kind}",
            "size_bytes": part.size,
            "component_type": part.kind,
            "field_name": part.column,
        }
        for split in split_components(snapshot, context.store, chosen)
        for part in split.parts
    ]
    return table_of(_COMPONENTS, *rows)


def _skipping(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    rows = [
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
        for column in column_skipping(context.log.snapshot())
    ]
    return table_of(_SKIPPING, *rows)


# --- TRANSACTION LOG ----------------------------------------------------------------------------------


def _log(context: CommandContext, arguments: Arguments) -> pa.Table:
    log_files = context.log.file_actions(everything=bool(arguments.get("include_all")))
    pending: list[dict[str, Any]] = []
    parts = [_LOG.empty_table()]
    for row in _action_rows(log_files):
        pending.append(row)
        if len(pending) == _SLICE_ROWS:
            parts.append(table_of(_LOG, *pending))
            pending = []
    return pa.concat_tables([*parts, table_of(_LOG, *pending)])


def _action_rows(log_files: Sequence[LogFileActions]) -> Iterator[dict[str, Any]]:
    for file in log_files:
        where = {
            "version": file.version,
            "log_file_path": f"{LOG_FOLDER}/{file.path}",
            "is_checkpoint": file.is_checkpoint,
        }
        for action in file.actions:
            yield {**where, **_action_row(action)}


def _action_row(action: Action) -> dict[str, Any]:
    match action:
        case Add():
            return _add(action)
        case Remove():
            return {
                "action_type": "remove",
                "path": action.path,
                "partition_values": _json(action.partition_values),
                "size": action.size,
                "data_change": action.data_change,
                "deletion_timestamp": _micros(action.deletion_timestamp),
            }
        case MergeSkip():
            return {
                "action_type": "skip",
                "path": action.path,
                "partition_values": _json(action.partition_values),
                "size": action.size,
                "skip_timestamp": _micros(action.skip_timestamp),
                "skip_reason": action.reason,
                "skip_operation": action.operation,
                "skip_retry_after": _micros(action.retry_after),
                "skip_count": action.skip_count,
            }
        case Protocol():
            return {
                "action_type": "protocol",
                "protocol_min_reader_version": action.min_reader_version,
                "protocol_min_writer_version": action.min_writer_version,
                "protocol_reader_features": _join_names(action.reader_features),
                "protocol_writer_features": _join_names(action.writer_features),
            }
        case Metadata():
            return _metadata(action)
        case CommitInfo():
            return {"action_type": "commitInfo"}
        case Txn():
            return {"action_type": "txn"}


def _add(action: Add) -> dict[str, Any]:
    return {
        "action_type": "add",
        "path": action.path,
        "partition_values": _json(action.partition_values),
        "size": action.size,
        "data_change": action.data_change,
        "modification_time": _micros(action.modification_time),
        "stats": action.stats,
        "min_values": _json(action.min_values),
        "max_values": _json(action.max_values),
        "num_records": action.num_records,
        "footer_start_offset": action.footer_start_offset,
        "footer_end_offset": action.footer_end_offset,
        "has_footer_offsets": action.has_footer_offsets,
        "time_range_start": _text(action.time_range_start),
        "time_range_end": _text(action.time_range_end),
        "split_tags": None if action.split_tags is None else json.dumps(action.split_tags),
        "delete_opstamp": action.delete_opstamp,
        "num_merge_ops": action.num_merge_ops,
        "doc_mapping_json": action.doc_mapping_json,
        "doc_mapping_ref": action.doc_mapping_ref,
        "uncompressed_size_bytes": action.uncompressed_size_bytes,
    }


def _metadata(action: Metadata) -> dict[str, Any]:
    return {
        "action_type": "metadata",
        "metadata_id": action.id,
        "metadata_name": action.name,
        "metadata_description": action.description,
        "metadata_format_provider": action.format.provider if action.format else None,
        "metadata_format_options": _json(action.format.options) if action.format else None,
        "metadata_schema_string": action.schema_string,
        "metadata_partition_columns": _join_names(action.partition_columns),
        "metadata_configuration": _json(action.configuration),
        "metadata_created_time": _micros(action.created_time),
    }


def _json(values: Mapping[str, str | None] | None) -> str | None:
    return None if values is None else json.dumps(dict(values), ensure_ascii=False)


def _join_names(names: Sequence[str] | None) -> str | None:
    return None if names is None else ",".join(names)


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


STATE = Implementation(_STATE, _state)
HISTORY = Implementation(_HISTORY, _history)
COMPONENTS = Implementation(_COMPONENTS, _components)
SKIPPING = Implementation(_SKIPPING, _skipping)
LOG = Implementation(_LOG, _log)
