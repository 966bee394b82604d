"""Packages from Maven, which Spark's own tools fetch into folders below `.matrix`.

`python -m tests.servers.maven NAME` fetches those of a name, if they are not there.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from indextables.spark.compiler import minor
from tests import ROOT

ATTEMPTS = 4
_SPARK = minor(importlib.metadata.version("pyspark"))  # which is not loaded: most tests do without

PACKAGES = {
    "delta": (f"io.delta:delta-spark_{_SPARK}_2.13:4.4.0",),
    "iceberg": (f"org.apache.iceberg:iceberg-spark-runtime-{_SPARK}_2.13:1.12.0",),
    # Hadoop's mini-cluster is test code, and needs what Hadoop's tests need.
    "hdfs": (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.junit.jupiter:junit-jupiter-api:5.13.4",
        "org.mockito:mockito-core:4.11.0",
    ),
}


def ivy_folder(name: str) -> Path:
    """A folder for `spark.jars.ivy` that has packages and everything that they need, fetched once.

    Its `jars` are the files. Ivy remembers in it what it has fetched, so that a session that names the same
    packages needs no network.
    """
    packages = "\n".join(PACKAGES[name])
    folder = ROOT / ".matrix" / f"ivy-{name}"
    ready = folder / "ready"
    if not ready.is_file() or ready.read_text() != packages:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(folder, PACKAGES[name])
        ready.write_text(packages)
    return folder


def _fetch(folder: Path, packages: tuple[str, ...]) -> None:
    script = folder / "nothing.py"
    script.write_text("")
    (spark,) = importlib.util.find_spec("pyspark").submodule_search_locations
    command = [f"{spark}/bin/spark-submit", "--packages", ",".join(packages)]
    command += ["--conf", f"spark.jars.ivy={folder}", str(script)]
    names = ", ".join(packages)
    printed = ""
    for attempt in range(1, ATTEMPTS + 1):
        run = subprocess.run(
            command,
            env={**os.environ, "SPARK_HOME": spark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if run.returncode == 0:
            return
        printed = run.stdout
        sys.stderr.write(f"{names}: attempt {attempt} of {ATTEMPTS} to fetch them from Maven failed\n")
        if attempt < ATTEMPTS:
            time.sleep(10 * attempt)  # Maven may be back then
    raise RuntimeError(f"{names} cannot be fetched from Maven:\n{printed[-4000:]}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        ivy_folder(argument)
