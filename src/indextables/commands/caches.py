"""Commands about processes and their caches; in Spark, those of the driver and of the workers."""

import os
import platform
import resource
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

import pyarrow as pa

from indextables import metrics
from indextables.commands.command import Arguments, Command, Place, Wanted, Work, rows
from indextables.log.known import cache_statistics, invalidate
from indextables.log.names import LOG_FOLDER
from indextables.options import PREFIX, Options, reading
from indextables.options.declare import MASK, is_secret
from indextables.read.sources import close_sources
from indextables.split.index_cache import index_cache
from indextables.version import VERSION

DRIVER = "driver"
# Spark spreads so many small tasks over its workers; what came from one process twice counts once.
_SPREAD = 16
_LIBRARIES = ("pyarrow", "datafusion", "tantivy", "obstore", "numpy", "pyspark")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "SPARK_", "PYSPARK_", "INDEXTABLES_")
_OPEN = ("REGION", "ENDPOINT", "PROFILE", "HOME", "PYTHON", "VERSION", "MASTER", "LOCAL_IP")

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


class _Everywhere:
    """A question to the driver and to every worker: what it asks, and what tells answers apart."""

    def __init__(self, name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.name = name
        self.schema = schema
        self.keys = keys

    def plan(self, place: Place, arguments: Arguments) -> Work:
        del arguments
        here = _ask((self.name, place.options), None)
        return Work(_ask, [(self.name, place.options.public())] * _SPREAD, here, others=True)

    def finish(
        self, place: Place, arguments: Arguments, state: list[Row], results: Sequence[list[Row]]
    ) -> pa.Table:
        del place, arguments
        kept: dict[tuple[Any, ...], Row] = {}
        here = [{**row, "executor_id": DRIVER, "role": DRIVER} for row in state]
        for row in chain(here, *results):
            kept.setdefault(tuple(row[key] for key in self.keys), row)
        shown = [{name: row.get(name) for name in self.schema.names} for row in kept.values()]
        return rows(self.schema, *shown)


def _ask(task: tuple[str, Options], store: object) -> list[Row]:
    """Answer in the process where this runs."""
    del store
    name, options = task
    who = {"executor_id": f"worker-{os.getpid()}", "host": socket.gethostname(), "pid": os.getpid()}
    return [{"role": "worker", **who, **row} for row in _ANSWERS[name](options)]


def _disk_cache(options: Options) -> list[Row]:
    enabled = options.get(reading.DISK_CACHE)
    if not enabled:
        return [{"enabled": False, "folder": ""}]
    cache = index_cache(options)
    stats = cache.stats()
    return [
        {
            "enabled": True,
            "folder": stats.folder,
            "total_bytes": stats.bytes,
            "max_bytes": stats.limit,
            "usage_percent": 100.0 * stats.bytes / stats.limit if stats.limit else 0.0,
            "splits_cached": stats.entries,
            "components_cached": cache.files(),
        }
    ]


def _storage(options: Options) -> list[Row]:
    del options
    read = metrics.figures().get("indextables.store.fetched_bytes")
    return [{"bytes_fetched": int(read.total) if read else 0, "requests": read.count if read else 0}]


def _environment(options: Options) -> list[Row]:
    said: list[tuple[str, str, str]] = [
        ("spark", f"{PREFIX}{key}", MASK if is_secret(key) else value)
        for key, value in sorted(options.values.items())
    ]
    said += [
        ("environment", name, value if _is_open(name) else MASK)
        for name, value in sorted(os.environ.items())
        if name.startswith(_ENVIRONMENT)
    ]
    said += [
        ("process", "python", platform.python_version()),
        ("process", "platform", platform.platform()),
        ("process", "processors", str(os.cpu_count())),
        ("process", "pid", str(os.getpid())),
        ("library", "indextables", VERSION),
        *(("library", name, found) for name in _LIBRARIES if (found := _version(name)) is not None),
        ("native_memory", "arrow_bytes", str(pa.total_allocated_bytes())),
        ("native_memory", "peak_rss_bytes", str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)),
    ]
    return [
        {"property_type": kind, "property_name": name, "property_value": value} for kind, name, value in said
    ]


def _is_open(name: str) -> bool:
    """Whether an environment variable is surely no secret."""
    return any(word in name for word in _OPEN) and not any(
        word in name for word in ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")
    )


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _flush_searcher(options: Options) -> list[Row]:
    del options
    closed = close_sources()
    return [
        {
            "cache_type": "split_cache",
            "status": "success",
            "cleared_entries": closed,
            "message": f"{closed} open splits were closed",
        }
    ]


def _flush_disk(options: Options) -> list[Row]:
    if not options.get(reading.DISK_CACHE):
        skipped = {"cache_type": "disk_cache_files", "status": "skipped", "message": "the disk cache is off"}
        return [{**skipped, "bytes_freed": 0, "files_deleted": 0, "folder": ""}]
    close_sources()
    cache = index_cache(options)
    removed = cache.flush()
    left = cache.stats().entries
    return [
        {
            "cache_type": "disk_cache_files",
            "status": "success",
            "bytes_freed": removed.bytes,
            "files_deleted": removed.files,
            "message": f"{left} entries are in use and stay" if left else "the cache is empty",
            "folder": str(cache.folder),
        }
    ]


_ANSWERS = {
    "disk": _disk_cache,
    "storage": _storage,
    "environment": _environment,
    "flush_searcher": _flush_searcher,
    "flush_disk": _flush_disk,
}


def _invalidate(place: Place, arguments: Arguments) -> pa.Table:
    del arguments
    before = cache_statistics()
    hits, misses = (sum(getattr(s, side) for s in before.values()) for side in ("hits", "misses"))
    url = f"{place.store.url}/{LOG_FOLDER}" if place.table is not None else None
    gone = invalidate(url)
    row: Mapping[str, Any] = {
        "table_path": place.store.url if place.table is not None else "GLOBAL",
        "result": f"{gone} values were forgotten",
        "cache_hits_before": hits,
        "cache_misses_before": misses,
        "hit_rate_before": f"{100 * hits / (hits + misses):.1f}%" if hits + misses else "N/A",
    }
    return rows(_INVALIDATE, row)


def _everywhere(opening: str, name: str, schema: pa.Schema, keys: Sequence[str], help_: str) -> Command:
    asked = _Everywhere(name, schema, keys)
    return Command(
        openings=(opening,),
        result=schema,
        plan=asked.plan,
        finish=asked.finish,
        target=Wanted.NOTHING,
        help=help_,
    )


COMMANDS = (
    _everywhere(
        "DESCRIBE INDEXTABLES DISK CACHE",
        "disk",
        _DISK,
        ("host", "folder"),
        "How full the cache of index parts is, host by host.",
    ),
    _everywhere(
        "DESCRIBE INDEXTABLES STORAGE STATS",
        "storage",
        _STORAGE,
        ("host", "pid"),
        "What processes have read from storage since they started.",
    ),
    _everywhere(
        "DESCRIBE INDEXTABLES ENVIRONMENT",
        "environment",
        _PROPERTIES,
        ("host", "pid", "property_type", "property_name"),
        "Options, libraries and processes; secrets are masked.",
    ),
    _everywhere(
        "FLUSH INDEXTABLES SEARCHER CACHE",
        "flush_searcher",
        _FLUSH_SEARCHER,
        ("host", "pid"),
        "Close the splits and indexes that processes keep open.",
    ),
    _everywhere(
        "FLUSH INDEXTABLES DISK CACHE",
        "flush_disk",
        _FLUSH_DISK,
        ("host", "folder"),
        "Delete cached index parts that nobody uses now.",
    ),
    Command(
        openings=("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE",),
        result=_INVALIDATE,
        plan=_invalidate,
        target=Wanted.MAYBE,
        before_target="FOR",
        help="Forget what this process has read of logs.",
    ),
)
