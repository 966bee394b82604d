"""The frame of a planner process for Spark 4.0 and 4.1; from 4.2 on it is `pyspark.sql.worker.utils`."""

import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from pyspark import util
from pyspark.accumulators import _accumulatorRegistry
from pyspark.serializers import SpecialLengths
from pyspark.worker_util import (
    check_python_version,
    send_accumulator_updates,
    setup_broadcasts,
    setup_memory_limits,
    setup_spark_files,
)

from indextables.spark.daemon import keep_import_caches

Main = Callable[[IO[bytes], IO[bytes]], None]

keep_import_caches()


def worker_run(main: Main, infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Run one call of a planner process: what Spark sends before it, the call, and the end of the stream."""
    try:
        check_python_version(infile)
        setup_memory_limits(int(os.environ.get("PYSPARK_PLANNER_MEMORY_MB", "-1")))
        setup_spark_files(infile)
        setup_broadcasts(infile)
        _accumulatorRegistry.clear()
        main(infile, outfile)
    except BaseException as error:  # noqa: BLE001 - Spark raises it on the other side
        util.handle_worker_exception(error, outfile)
        sys.exit(-1)
    send_accumulator_updates(outfile)
    (end,) = struct.unpack("!i", infile.read(4))
    if end == SpecialLengths.END_OF_STREAM:
        outfile.write(struct.pack("!i", SpecialLengths.END_OF_STREAM))
    else:
        # With another value, the JVM does not use this process again.
        outfile.write(struct.pack("!i", SpecialLengths.END_OF_DATA_SECTION))
        sys.exit(-1)


@contextmanager
def get_sock_file_to_executor(timeout: int | None = -1) -> Iterator[IO[Any]]:
    """The connection to the JVM that started this process, with Spark's own timeout."""
    del timeout
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    address: Any = path or int(os.environ["PYTHON_WORKER_FACTORY_PORT"])
    connect: Any = util.local_connect_and_auth
    file, _ = connect(address, os.environ.get("PYTHON_WORKER_FACTORY_SECRET"))
    file.write(struct.pack("!i", os.getpid()))
    file.flush()
    try:
        yield file
    finally:
        file.close()
