"""Compile the Scala bridge into the package, where it is not there or its sources changed.

Without arguments for the installed Spark. With `--all` for every supported version: pip installs the others,
each into a folder of its own in the cache (about 450 MB each), and only their jars are used.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from indextables.spark import bridge
from indextables.spark.compiler import MINORS, minor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="for every supported version of Spark")
    parser.add_argument("--force", action="store_true", help="compile what is up to date, too")
    arguments = parser.parse_args()
    installed = minor(bridge.spark_version())
    for version in MINORS if arguments.all else [installed]:
        target = bridge.packaged_jar(version)
        if bridge.is_current(target, version) and not arguments.force:
            continue
        started = time.monotonic()
        try:
            bridge.build(target, version, bridge.spark_home() if version == installed else _spark(version))
        except bridge.BridgeError as error:
            print(f"build_bridge: {error}", file=sys.stderr)
            return 1
        print(f"build_bridge: {target} in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return 0


def _spark(version: str) -> Path:
    """The folder of Spark's newest patch of a minor version, installed into the cache if it is not there."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "indextables" / "spark"
    folder = base / version
    home = folder / "pyspark"
    if not (home / "jars").is_dir():
        print(f"build_bridge: installing Spark {version} into {folder}", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder), f"pyspark~={version}.0"], check=True)
    return home


if __name__ == "__main__":
    sys.exit(main())
