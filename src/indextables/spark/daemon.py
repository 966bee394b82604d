"""Spark's daemon of Python workers for local sessions, without needless tracebacks and garbage collections.

When Spark closes the connection of a worker, because it was idle for a minute or the session ends, the worker
fails to write to it. Over TCP this has no visible effect; over Unix sockets Spark's daemon prints a
traceback.
"""

import gc
import importlib
import sys
import traceback
from types import ModuleType, SimpleNamespace

import pyspark
from pyspark import worker_util

from indextables.spark.compiler import version_key


def print_unless_closed(*values: object, **options: object) -> None:
    """Print a message of Spark's daemon about an error, unless the connection was closed."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        print(*values, **options)  # type: ignore[call-overload]  # noqa: T201 - in place of Spark's


def print_traceback_unless_closed() -> None:
    """Print the traceback of the current error, unless the connection was closed."""
    print_unless_closed(traceback.format_exc(), end="", file=sys.stderr)


def ignore_closed_connections(daemon: ModuleType) -> None:
    """Replace both functions with which Spark's daemon prints errors of workers."""
    vars(daemon)["print"] = print_unless_closed
    vars(daemon)["traceback"] = SimpleNamespace(
        format_exc=traceback.format_exc, print_exc=print_traceback_unless_closed
    )


def keep_import_caches() -> None:
    """Keep the import caches of this process and its workers until the path of modules changes.

    Spark 4.0 and 4.1 invalidate them before each task, and Python then reads the directories of Spark's own
    zip files again: 60 ms of CPU time. Newer versions do it only where the path has changed.
    """
    if version_key(pyspark.__version__) < (4, 2):
        vars(worker_util)["importlib"] = SimpleNamespace(invalidate_caches=_invalidate_if_path_changed)


def collect_garbage_rarely(daemon: ModuleType) -> None:
    """Replace the full collection of garbage that Spark's daemon does after each call or task of a worker.

    It visits every object in memory: 50 ms of CPU time with the libraries and the metadata of a hundred
    splits. New objects are still collected; all objects as often as by Python itself.
    """
    vars(daemon)["gc"] = SimpleNamespace(collect=_collect_new_objects)


_FULL_COLLECTION_EVERY = 100
_collections = 0


def _collect_new_objects() -> int:
    global _collections  # noqa: PLW0603 - a count of this process
    _collections += 1
    if _collections == 1:
        # Libraries stay loaded, so their objects are excluded from later collections.
        count = gc.collect()
        gc.freeze()
        return count
    return gc.collect() if _collections % _FULL_COLLECTION_EVERY == 0 else gc.collect(1)


_path: list[str] = []


def _invalidate_if_path_changed() -> None:
    if _path != sys.path:
        _path[:] = sys.path
        importlib.invalidate_caches()


if __name__ == "__main__":
    from pyspark import daemon  # loads the module of the workers

    ignore_closed_connections(daemon)
    keep_import_caches()
    collect_garbage_rarely(daemon)
    daemon.manager()
