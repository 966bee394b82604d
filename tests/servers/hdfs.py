"""A real HDFS: Hadoop's mini-cluster, which Spark's own tools fetch from Maven; only `make matrix` runs it."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.servers.process import free_port, running

VERSION = "3.5.0"
# The cluster is test code of Hadoop, and needs what its tests need.
PACKAGES = (
    f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.mockito:mockito-core:4.11.0",
)
# Seconds that a busy machine may take to start it.
PATIENCE = 300
HOME = ROOT / ".matrix" / f"hdfs-{VERSION}"


@dataclass(frozen=True)
class HdfsServer:
    """A name node and its data node."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"


def jars() -> Path:
    """The folder with the jars of the cluster, fetched once."""
    ready = HOME / "ready"
    if not ready.is_file():
        import pyspark  # noqa: PLC0415 - slow, and most tests do without

        HOME.mkdir(parents=True, exist_ok=True)
        script = HOME / "nothing.py"
        script.write_text("")
        spark = Path(pyspark.__file__).parent
        command = [str(spark / "bin" / "spark-submit"), "--packages", ",".join(PACKAGES)]
        command += ["--conf", f"spark.jars.ivy={HOME}", str(script)]
        environment = {**os.environ, "SPARK_HOME": str(spark)}
        subprocess.run(command, check=True, env=environment, capture_output=True, timeout=600)
        ready.touch()
    return HOME / "jars"


@contextlib.contextmanager
def mini_cluster(folder: Path) -> Iterator[HdfsServer]:
    java = shutil.which("java")
    assert java is not None, "a JDK is needed"
    port = free_port()
    settings = folder / "settings.xml"
    command = [
        java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-nnport", str(port), "-format",
        "-writeConfig", str(settings),
    ]  # fmt: skip
    with running(command, port, folder / "hdfs.log", patience=PATIENCE, cwd=folder):
        end = time.monotonic() + PATIENCE
        while not settings.is_file():  # written when the data node has registered
            assert time.monotonic() < end, (folder / "hdfs.log").read_text()[-2000:]
            time.sleep(0.1)
        yield HdfsServer(port, folder)
