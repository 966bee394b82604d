"""Commands about processes and their caches; in Spark, of the driver and of the workers."""

import os
import socket
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from indextables import diagnostics
from indextables.commands.implementation import Arguments, CommandContext, Implementation, TaskSet, table_of
from indextables.options import Options

DRIVER = "driver"
# Spark spreads this many small tasks over its workers; rows that a process returns twice count once.
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
        return TaskSet(
            _collect, [(self.name, context.options.public())] * _NUM_TASKS, here, other_processes=True
        )

    def finish(
        self, context: CommandContext, arguments: Arguments, state: list[Row], results: Sequence[list[Row]]
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
    who = {"executor_id": f"worker-{os.getpid()}", "host": socket.gethostname(), "pid": os.getpid()}
    return [{"role": "worker", **who, **row} for row in _COLLECTORS[name](options)]


def _disk_cache(options: Options) -> list[Row]:
    found = diagnostics.disk_cache(options=options)
    return [
        {
            "enabled": found.enabled,
            "folder": found.folder,
            "total_bytes": found.total_bytes,
            "max_bytes": found.max_bytes,
            "usage_percent": found.usage_percent,
            "splits_cached": found.splits,
            "components_cached": found.components,
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
    closed = diagnostics.flush_searchers()
    return [
        {
            "cache_type": "split_cache",
            "status": "success",
            "cleared_entries": closed,
            "message": f"{closed} splits were closed",
        }
    ]


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


_COLLECTORS = {
    "disk": _disk_cache,
    "storage": _storage,
    "environment": _environment,
    "flush_searcher": _flush_searcher,
    "flush_disk": _flush_disk,
}


def _invalidate(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    url = None if context.table is None else context.store.url
    done = diagnostics.invalidate_log_cache(url, options=context.options)
    rate = done.hit_rate_before
    row: Mapping[str, Any] = {
        "table_path": url or "GLOBAL",
        "result": f"{done.values} values were dropped",
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
ENVIRONMENT = _implementation("environment", _PROPERTIES, "host", "pid", "property_type", "property_name")
FLUSH_SEARCHERS = _implementation("flush_searcher", _FLUSH_SEARCHER, "host", "pid")
FLUSH_DISK_CACHE = _implementation("flush_disk", _FLUSH_DISK, "host", "folder")
INVALIDATE = Implementation(_INVALIDATE, _invalidate)
