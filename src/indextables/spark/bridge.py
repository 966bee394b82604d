"""The jar with the Scala bridge: find the one for a version of Spark, or compile it.

The wheel carries a jar for the Spark it was built with, and the Scala sources. PySpark carries a Scala
compiler, so for another version the jar is compiled once, on first use, into a cache folder.
"""

import os
from pathlib import Path

import pyspark

from indextables.errors import IndexTablesError
from indextables.spark.compiler import CompileError, compile_bridge, jar_name, minor, origin, origin_of

EXTENSIONS = "org.apache.spark.sql.indextables.Extensions"

_HERE = Path(__file__).parent
_OLDEST = (4, 3)


class BridgeError(IndexTablesError):
    """There is no bridge jar for this Spark, and none can be compiled."""


def jar(spark_version: str | None = None) -> Path:
    """The bridge for a version of Spark (by default the installed PySpark's), compiled if necessary."""
    version = spark_version or pyspark.__version__
    _check_version(version)
    packaged = packaged_jar(version)
    sources = source_files()
    if packaged.is_file() and (not sources or origin_of(packaged) == origin(version, sources)):
        return packaged
    cached = _cache_folder() / f"{packaged.stem}-{origin(version, sources)[:16]}.jar"
    return cached if cached.is_file() else build(cached, version)


def packaged_jar(spark_version: str) -> Path:
    """The path of the packaged bridge for a version of Spark, which serves all of its patch versions."""
    return _HERE / "jars" / jar_name(spark_version)


def source_files() -> list[Path]:
    """The Scala sources: in the wheel, or beside it in a checkout."""
    for folder in (_HERE / "scala", _HERE.parents[2] / "bridge" / "src"):
        if found := sorted(folder.glob("*.scala")):
            return found
    return []


def build(target: Path, spark_version: str | None = None) -> Path:
    """Compile the bridge with the Scala compiler of the installed PySpark."""
    version = spark_version or pyspark.__version__
    _check_version(version)
    if minor(version) != minor(pyspark.__version__):
        raise BridgeError(
            f"the session runs Spark {version}, but PySpark here is {pyspark.__version__}, and a bridge is "
            f"compiled with PySpark; install pyspark~={minor(version)}.0 in this environment"
        )
    sources = source_files()
    if not sources:
        raise BridgeError(
            f"there is no bridge for Spark {version}, and its sources are not installed; install the "
            "indextables wheel again"
        )
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    try:
        compile_bridge(sources, spark, version, target)
    except CompileError as error:
        raise BridgeError(f"the bridge for Spark {version} cannot be compiled: {error}") from None
    return target


def is_current(target: Path) -> bool:
    """Whether a jar was compiled from the current sources, for the installed PySpark."""
    return target.is_file() and origin_of(target) == origin(pyspark.__version__, source_files())


def _check_version(version: str) -> None:
    if tuple(int(part) for part in minor(version).split(".")) < _OLDEST:
        oldest = ".".join(str(part) for part in _OLDEST)
        raise BridgeError(
            f"the session runs Spark {version}, but indextables needs {oldest} or newer; install "
            f"pyspark>={oldest}, or read without Spark: indextables.open(path)"
        )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "indextables"
