"""The planner process, which Spark starts on the driver; each operation is one call."""

import importlib.abc
import os
import struct
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from indextables.spark.daemon import collect_garbage_rarely
from indextables.spark.planner.dispatch import answer, renew

try:
    from pyspark.sql.worker.utils import worker_run
    from pyspark.worker_util import get_sock_file_to_executor
except ImportError:  # Spark 4.0 and 4.1 have no such functions
    from pyspark_indextables.worker_of_older_spark import get_sock_file_to_executor, worker_run

# Spark's daemon loads this module, whose libraries have threads, and then forks; Python 3.12 and newer warn
# of that. The threads hold no locks while the daemon waits.
warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)

_started = False


class _NoPandas(importlib.abc.MetaPathFinder):
    """Hides pandas: Arrow would load it on first use, which takes seconds, although it is not used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Refuse pandas; other modules are found by the next finder."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used in the planner", name="pandas")


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Answer one call of the bridge."""
    global _started  # noqa: PLW0603 - once in a process
    if not _started:
        sys.meta_path.insert(0, _NoPandas())
    try:
        worker_run(_call, infile, outfile)
        outfile.flush()
    except (BrokenPipeError, ConnectionResetError):
        # The application ended, or cancelled the call: no process waits for the answer.
        sys.exit(-1)
    finally:
        _discard_if_closed(outfile)
    if not _started:
        # This process is a fork of the daemon, so its main module is the daemon.
        collect_garbage_rarely(sys.modules["__main__"])
        _started = True


def _discard_if_closed(outfile: IO[bytes]) -> None:
    """Discard output that cannot be sent; Spark's daemon would try again, and print a traceback."""
    try:
        outfile.flush()
    except OSError:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), outfile.fileno())


def _call(infile: IO[bytes], outfile: IO[bytes]) -> None:
    # With this id, the caller can end this process.
    outfile.write(struct.pack("!i", os.getpid()))
    outfile.flush()
    renew(closings=_read_int(infile), invalidations=_read_int(infile))
    operation = _read(infile).decode()
    request = _read(infile).decode()
    blobs = [_read(infile) for _ in range(_read_int(infile))]
    reply, reply_blobs = answer(operation, request, blobs)
    _write(reply, outfile)
    outfile.write(struct.pack("!i", len(reply_blobs)))
    for blob in reply_blobs:
        _write(blob, outfile)


def _read_int(infile: IO[bytes]) -> int:
    (number,) = struct.unpack("!i", infile.read(4))
    return int(number)


def _read(infile: IO[bytes]) -> bytes:
    return infile.read(_read_int(infile))


def _write(data: bytes, outfile: IO[bytes]) -> None:
    outfile.write(struct.pack("!i", len(data)))
    outfile.write(data)


if __name__ == "__main__":
    with get_sock_file_to_executor() as sockets:
        main(sockets, sockets)
