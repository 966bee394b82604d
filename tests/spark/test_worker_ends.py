"""Python workers end quietly when Spark closes their connection."""

import gc
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from indextables.spark import daemon


@pytest.mark.parametrize(
    ("daemon_module", "worker_module", "sockets", "kills"),
    [
        ("pyspark.daemon", "pyspark_indextables.worker", "unix", ""),
        ("pyspark.daemon", "pyspark_indextables.worker", "tcp", ""),
        ("indextables.spark.daemon", "pyspark_indextables.worker", "unix", ""),
        ("indextables.spark.daemon", "pyspark_indextables.worker", "unix", "1"),
        ("indextables.spark.daemon", "pyspark_indextables.worker", "tcp", ""),
        ("indextables.spark.daemon", "pyspark.worker", "unix", ""),
        # Spark has workers of functions killed if their output cannot be written.
        ("indextables.spark.daemon", "pyspark.worker", "unix", "1"),
        ("indextables.spark.daemon", "pyspark.worker", "tcp", ""),
    ],
)
def test_a_worker_whose_connection_is_closed_prints_nothing(
    folder: str, daemon_module: str, worker_module: str, sockets: str, kills: str
) -> None:
    environment = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": str(sockets == "unix").lower(),
        "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "SPARK_REUSE_WORKER": "1",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": kills,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", daemon_module, worker_module]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as running:
        with _connection(running, sockets) as connection, connection.makefile("rwb") as stream:
            (worker,) = struct.unpack("!i", stream.read(4))
            if sockets == "tcp":
                stream.write(struct.pack("!i", 6) + b"secret")
                stream.flush()
                assert stream.read(6) == b"\0\0\0\2ok"
            process = os.pidfd_open(worker)
        with os.fdopen(process) as ended:
            assert select.select([ended], [], [], 120)[0], "the worker did not end"
        _, printed = running.communicate()
    assert printed.decode() == ""


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder with a short path, as sockets need."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield path


def _connection(running: subprocess.Popen[bytes], sockets: str) -> socket.socket:
    """A connection to the daemon, which starts a worker for it."""
    (answer,) = struct.unpack("!i", running.stdout.read(4))
    if sockets == "tcp":
        return socket.create_connection(("127.0.0.1", answer))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(running.stdout.read(answer).decode())
    return connection


def test_other_errors_of_workers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), OSError("disk full")):
        try:
            raise error
        except OSError:
            daemon.print_unless_closed(f"failed: {error}", file=sys.stderr)
            daemon.print_traceback_unless_closed()
    printed = capsys.readouterr().err
    assert printed.startswith("failed: disk full\nTraceback")
    assert printed.endswith("OSError: disk full\n")
    assert "pipe" not in printed


class Cycle:
    """An object that only a collection of garbage frees."""

    def __init__(self) -> None:
        self.itself = self


def test_a_collection_frees_new_garbage_and_skips_what_was_there_before() -> None:
    module = ModuleType("daemon_of_spark")
    daemon.collect_garbage_rarely(module)
    try:
        before = gc.get_freeze_count()
        vars(daemon)["_collections"] = 0
        module.gc.collect()
        assert gc.get_freeze_count() > before
        for _ in range(3):
            garbage = weakref.ref(Cycle())
            module.gc.collect()
            assert garbage() is None
    finally:
        gc.unfreeze()
