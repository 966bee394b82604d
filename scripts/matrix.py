"""Run the representative part of the Spark tests on each of the other supported versions of Spark.

Each version is installed in an environment of its own below `.matrix`; everything but PySpark is shared with
`.venv`. On the versions that a lake connector supports, the tests of `tests/connectors` run beside it: Spark
fetches the connector from Maven.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The newest patch of each minor version besides the one in constraints.txt.
VERSIONS = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1"}

# The connector that is tested beside ours: its name in tests/connectors.
CONNECTORS = {"4.1": "iceberg", "4.2": "delta"}

# Search, filters, aggregates, writes, commands, catalog, time travel, kinds of sessions.
TESTS = [
    "tests/spark/test_buckets.py",
    "tests/spark/test_cached_data.py",
    "tests/spark/test_catalog.py",
    "tests/spark/test_pushdown.py",
    "tests/spark/test_searches_above_joins.py",
    "tests/spark/test_session.py",
    "tests/spark/test_snapshots.py",
    "tests/spark/test_spark_commands.py",
    "tests/spark/test_write.py",
]


# Tests on a real HDFS: Hadoop's mini-cluster from Maven. They do not depend on the version of Spark.
HDFS_TESTS = ["tests/store/test_hdfs.py", "tests/store/test_contract.py", "tests/race/test_race.py"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", choices=[*VERSIONS, []], help="minor versions (default: all)")
    parser.add_argument(
        "--only-connectors", action="store_true", help="leave out the tests without connectors"
    )
    arguments = parser.parse_args()
    failed = []
    for minor in arguments.versions or VERSIONS:
        started = time.monotonic()
        python = _environment(minor)
        connector = CONNECTORS.get(minor)
        runs = [] if arguments.only_connectors else [TESTS]
        runs += [["tests/connectors", "-m", "connectors", "--connector", connector]] if connector else []
        codes = [_pytest(python, run) for run in runs]
        print(f"matrix: Spark {VERSIONS[minor]} in {time.monotonic() - started:.0f} s", flush=True)
        failed += [minor] if any(codes) else []
    if not arguments.versions:
        failed += ["(HDFS)"] if _pytest(Path(sys.executable), [*HDFS_TESTS, "-m", "connectors"]) else []
    if failed:
        print(f"matrix: failed on Spark {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _environment(minor: str) -> Path:
    """The Python of an environment with a version of Spark, installed if it is not there."""
    folder = ROOT / ".matrix" / minor
    python = folder / "bin" / "python"
    marker = folder / f"ready-{VERSIONS[minor]}"
    if not marker.is_file():
        print(f"matrix: installing Spark {VERSIONS[minor]} into {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=False)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", f"pyspark=={VERSIONS[minor]}"], check=True)
        own = next((folder / "lib").glob("python3.*")) / "site-packages"
        # Packages of the environment itself come first.
        (own / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        subprocess.run([python, ROOT / "scripts" / "build_bridge.py"], check=True)
        marker.touch()
    return python


def _pytest(python: Path, arguments: list[str]) -> int:
    # A Python worker of Spark must have the same packages as the tests.
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
