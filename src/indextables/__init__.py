"""Search your lake: tables with full-text indexes, for PySpark and plain Python.

Everything public is a name of this package. Names are imported from their modules when they are first used,
so that `import indextables` and the command line start without Arrow, Tantivy and Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import indextables.cache  # noqa: F401 - registers what a forked child must renew
from indextables.errors import IndexTablesError
from indextables.version import VERSION

if TYPE_CHECKING:
    from indextables.commands.execute import sql
    from indextables.diagnostics import (
        disk_cache,
        environment,
        flush_disk_cache,
        flush_searchers,
        invalidate_log_cache,
        merge_jobs,
        prewarm_jobs,
        storage_read,
        wait_for_prewarm,
    )
    from indextables.read import Bucket, DateHistogram, Histogram, RangeBuckets
    from indextables.spark.session import attach, configure
    from indextables.standing_queries import StandingQueries
    from indextables.sync import companion
    from indextables.table import Table, repair, write
    from indextables.table import open_table as open  # noqa: A004 - the public name is short on purpose

__version__ = VERSION

__all__ = [
    "Bucket",
    "DateHistogram",
    "Histogram",
    "RangeBuckets",
    "IndexTablesError",
    "StandingQueries",
    "Table",
    "__version__",
    "attach",
    "companion",
    "configure",
    "disk_cache",
    "environment",
    "flush_disk_cache",
    "flush_searchers",
    "invalidate_log_cache",
    "merge_jobs",
    "open",
    "prewarm_jobs",
    "repair",
    "sql",
    "storage_read",
    "wait_for_prewarm",
    "write",
]

_MODULES = {
    "commands.execute": ("sql",),
    "diagnostics": (
        "disk_cache",
        "environment",
        "flush_disk_cache",
        "flush_searchers",
        "invalidate_log_cache",
        "merge_jobs",
        "prewarm_jobs",
        "storage_read",
        "wait_for_prewarm",
    ),
    "read": ("Bucket", "DateHistogram", "Histogram", "RangeBuckets"),
    "spark.session": ("attach", "configure"),
    "standing_queries": ("StandingQueries",),
    "sync": ("companion",),
    "table": ("Table", "open", "repair", "write"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_RENAMED = {"open": "open_table"}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'indextables' has no attribute '{name}'")
    value: object = getattr(import_module(f"indextables.{_HOMES[name]}"), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, those that are not imported yet among them."""
    return sorted({*globals(), *__all__})
