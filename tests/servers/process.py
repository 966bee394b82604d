"""Servers as child processes on 127.0.0.1, ended by their id."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        result: int = probe.getsockname()[1]
        return result


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, log: Path, *, patience: float = 60, **popen: Any
) -> Iterator[int]:
    """Run a server until the block ends; wait until it takes connections."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **popen
        ) as server,
    ):
        try:
            _wait(server, port, log, patience)
            yield port
        finally:
            server.kill()  # SeaweedFS does not end on SIGTERM; nothing of the others is worth a farewell
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path, patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{server.args!r} did not start:\n{log.read_text(errors='replace')[-2000:]}")
