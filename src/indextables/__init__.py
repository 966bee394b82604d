"""Search your lake: tables with full-text indexes, for PySpark and plain Python."""

from typing import TYPE_CHECKING

import indextables.fork  # noqa: F401 - for forked children
from indextables.commands.execute import sql
from indextables.errors import IndexTablesError
from indextables.machine import (
    disk_cache,
    environment,
    flush_disk_cache,
    flush_searchers,
    forget_logs,
    merge_jobs,
    prewarm_jobs,
    storage_read,
    wait_for_prewarm,
)
from indextables.read import Bucket, DateHistogram, Histogram, RangeBuckets
from indextables.table import Table, repair, write
from indextables.table import open_table as open  # noqa: A004 - the public name is short on purpose
from indextables.version import VERSION

if TYPE_CHECKING:
    from indextables.spark.session import attach, configure

__version__ = VERSION

__all__ = [
    "Bucket",
    "DateHistogram",
    "Histogram",
    "RangeBuckets",
    "IndexTablesError",
    "Table",
    "__version__",
    "attach",
    "configure",
    "disk_cache",
    "environment",
    "flush_disk_cache",
    "flush_searchers",
    "forget_logs",
    "merge_jobs",
    "open",
    "prewarm_jobs",
    "repair",
    "sql",
    "storage_read",
    "wait_for_prewarm",
    "write",
]


def __getattr__(name: str) -> object:
    """What needs Spark is loaded when it is asked for: plain Python does without."""
    if name in ("attach", "configure"):
        from indextables.spark import session  # noqa: PLC0415 - pyspark is an extra, and slow to load

        return getattr(session, name)
    raise AttributeError(f"module 'indextables' has no attribute '{name}'")
