"""The planner process: Spark starts it on the driver, and each operation is one call."""

import gc
import importlib.abc
import sys
from collections.abc import Sequence
from typing import IO

from pyspark.serializers import read_int, write_int, write_with_length
from pyspark.sql.worker.utils import worker_run
from pyspark.worker_util import get_sock_file_to_executor, utf8_deserializer

from indextables.spark.planner.dispatch import answer

_started = False


class _NoPandas(importlib.abc.MetaPathFinder):
    """Says that pandas is not there: Arrow would load it on first use, which takes seconds, for nothing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Refuse pandas; leave everything else to the next finder."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used in the planner", name="pandas")


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Answer one call of the bridge."""
    global _started  # noqa: PLW0603 - once in a process
    if not _started:
        sys.meta_path.insert(0, _NoPandas())
    worker_run(_call, infile, outfile)
    if not _started:
        # Spark's daemon collects garbage after each call; what is loaded by now stays anyway.
        gc.collect()
        gc.freeze()
        _started = True


def _call(infile: IO[bytes], outfile: IO[bytes]) -> None:
    operation = utf8_deserializer.loads(infile)
    request = utf8_deserializer.loads(infile)
    blobs = [infile.read(read_int(infile)) for _ in range(read_int(infile))]
    reply, made = answer(operation, request, blobs)
    write_with_length(reply, outfile)
    write_int(len(made), outfile)
    for blob in made:
        write_with_length(blob, outfile)


if __name__ == "__main__":
    with get_sock_file_to_executor() as sockets:
        main(sockets, sockets)
