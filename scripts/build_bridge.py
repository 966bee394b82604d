"""Compile the Scala bridge into the package, where it is not there or its sources changed.

Before that, the declarations of Python that Scala needs are written to `bridge/src/Declarations.scala`.

Without arguments for the installed Spark. With `--all` for every supported version: pip installs the others,
each into a folder of its own in the cache (about 450 MB each), and only their jars are used.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from indextables.commands.grammar import COMMAND_WORD_POSITIONS, COMMAND_WORDS, shared_openings
from indextables.options.cloud import HADOOP_PREFIXES
from indextables.options.declare import HADOOP_PREFIX, PREFIX
from indextables.options.reading import READ_CHANGES
from indextables.options.writing import INDEXING_PREFIX
from indextables.spark import bridge
from indextables.spark.compiler import MINORS, minor
from indextables.spark.planner.tables import LOCATION_OPTIONS
from indextables.spark.session import SECRETS

DECLARATIONS = Path(__file__).resolve().parents[1] / "bridge" / "src" / "Declarations.scala"


def declarations() -> str:
    """The Scala object with the declarations that the bridge needs before it can call the planner."""
    openings = ",\n    ".join(_strings(opening.lower().split()) for opening in shared_openings())
    return f"""\
package org.apache.spark.sql.indextables

/** Declarations that the bridge needs before it can call the planner. Written by scripts/build_bridge.py. */
object Declarations {{
  // Before the keys of options and of Hadoop (options/declare.py), and of indexing (options/writing.py).
  val OptionPrefix = {json.dumps(PREFIX)}
  val HadoopPrefix = {json.dumps(HADOOP_PREFIX)}
  val IndexingPrefix = {json.dumps(INDEXING_PREFIX)}
  // Beginnings of the keys of Hadoop's file systems that have a counterpart (options/cloud.py).
  val HadoopKeys = {_strings(HADOOP_PREFIXES)}
  // Spark's own pattern of names of secrets, extended (spark/session.py).
  val Secrets = {json.dumps(SECRETS)}
  // Options that name a table and its version (spark/planner/tables.py).
  val LocationOptions = {_strings(sorted(LOCATION_OPTIONS), "Set")}
  val ReadChanges = {json.dumps(READ_CHANGES.key)}
  // Words of which one is among the first ones of a command, and among how many (commands/grammar.py).
  val CommandWords = {_strings(sorted(word.lower() for word in COMMAND_WORDS), "Set")}
  val CommandWordPositions = {COMMAND_WORD_POSITIONS}
  // Commands without such a word: those of Delta, too.
  val SharedOpenings = Seq(
    {openings})
}}
"""


def _strings(texts: Iterable[str], collection: str = "Seq") -> str:
    return f"{collection}({', '.join(json.dumps(text) for text in texts)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="for every supported version of Spark")
    parser.add_argument("--force", action="store_true", help="compile what is up to date, too")
    arguments = parser.parse_args()
    if not DECLARATIONS.is_file() or DECLARATIONS.read_text() != declarations():
        DECLARATIONS.write_text(declarations())
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
