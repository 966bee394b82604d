"""A real HDFS: Hadoop's mini-cluster, which Spark's own tools fetch from Maven; only `make matrix` runs it."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers.maven import ivy_folder
from tests.servers.process import free_port, running

# Seconds that a busy machine may take to start it.
PATIENCE = 300


@dataclass(frozen=True)
class HdfsServer:
    """A name node and its data node."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"


@contextlib.contextmanager
def mini_cluster(folder: Path) -> Iterator[HdfsServer]:
    java = shutil.which("java")
    assert java is not None, "a JDK is needed"
    jars = ivy_folder("hdfs") / "jars"
    port = free_port()
    settings = folder / "settings.xml"
    command = [
        java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-nnport", str(port), "-format",
        "-writeConfig", str(settings),
    ]  # fmt: skip
    with running(command, port, folder / "hdfs.log", patience=PATIENCE, cwd=folder):
        end = time.monotonic() + PATIENCE
        while not settings.is_file():  # written when the data node has registered
            assert time.monotonic() < end, (folder / "hdfs.log").read_text()[-2000:]
            time.sleep(0.1)
        yield HdfsServer(port, folder)
