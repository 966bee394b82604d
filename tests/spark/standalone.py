"""Spark's standalone cluster on this machine: a master and workers, each a process of its own."""

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from pyspark.find_spark_home import _find_spark_home

from tests.java_options import QUICK_START

# Two names of one address: Spark tries a task that lags a second time on another host only.
HOSTS = ("127.0.0.1", "localhost")
_START_SECONDS = 60


class Cluster:
    """A master and a worker of one core for each of two hosts; all end when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._start("master.Master", "--host", "127.0.0.1", "--port", self._port, "--webui-port", 0)
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(self._port):
            if self._running[0].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no master came up: {(self._folder / 'cluster.log').read_text()[-2000:]}")
            time.sleep(0.1)
        for host in HOSTS:
            self.add_worker(host)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def add_worker(self, host: str) -> None:
        """One more worker on a host."""
        size = ("--cores", 1, "--memory", "1g", "--webui-port", 0, "--work-dir", self._folder / "work")
        self._start("worker.Worker", "--host", host, *size, self.url)

    def _start(self, name: str, *arguments: object) -> None:
        command = [Path(_find_spark_home()) / "bin/spark-class", f"org.apache.spark.deploy.{name}"]
        with (self._folder / "cluster.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [*map(str, command), *map(str, arguments)],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_START},
                )
            )


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
