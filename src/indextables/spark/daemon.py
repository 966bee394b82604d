"""Spark's daemon of Python workers, for local sessions: its workers end quietly.

A worker whose connection Spark closes, because it was idle for a minute or the session ends, fails to write
to it. Over TCP nobody sees that; over Unix sockets Spark's daemon prints a traceback.
"""

import importlib
import sys
from types import SimpleNamespace

import pyspark
from pyspark import worker_util

from indextables.spark.compiler import version_key


def print_unless_closed(*values: object, **options: object) -> None:
    """Print what Spark's daemon says of an error, unless the error is that the connection was closed."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        print(*values, **options)  # type: ignore[call-overload]  # noqa: T201 - in place of Spark's


def keep_import_caches() -> None:
    """Keep the import caches of this process and its workers until the path of modules changes.

    Spark 4.0 and 4.1 invalidate them before each task, and Python then reads the directories of Spark's own
    zip files again: 60 ms of CPU time. Newer versions do it only where the path has changed.
    """
    if version_key(pyspark.__version__) < (4, 2):
        vars(worker_util)["importlib"] = SimpleNamespace(invalidate_caches=_invalidate_if_path_changed)


_path: list[str] = []


def _invalidate_if_path_changed() -> None:
    if _path != sys.path:
        _path[:] = sys.path
        importlib.invalidate_caches()


if __name__ == "__main__":
    from pyspark import daemon  # loads the module of the workers

    vars(daemon)["print"] = print_unless_closed
    keep_import_caches()
    daemon.manager()
