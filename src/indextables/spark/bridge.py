"""The jar with the Scala bridge: find the one for a version of Spark, or compile it.

The wheel contains a jar for each supported minor version of Spark, and the Scala sources. A checkout has the
jar for the installed PySpark. If there is no jar, it is compiled once, with the Scala compiler that PySpark
contains, into a cache folder.
"""

import os
import re
import sys
from pathlib import Path

import pyspark

from indextables.errors import IndexTablesError
from indextables.spark.compiler import (
    MINORS,
    CompileError,
    compile_bridge,
    jar_name,
    minor,
    origin,
    origin_of,
    sources_for,
    version_key,
)

EXTENSIONS = "org.apache.spark.sql.indextables.Extensions"
# Their names in IndexTables for Scala: subclasses, in the same jar.
EXTENSIONS_OF_SCALA = (
    "io.indextables.extensions.IndexTablesSparkExtensions",
    "io.indextables.spark.extensions.IndexTables4SparkExtensions",
)

_HERE = Path(__file__).parent


class BridgeError(IndexTablesError):
    """There is no bridge jar for this Spark, and none can be compiled."""


def spark_home() -> Path:
    """The folder with the jars of Spark that a session started here uses."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def spark_version() -> str:
    """The version of Spark that a session started here has: PySpark's, or that of `SPARK_HOME`."""
    for jar_file in (spark_home() / "jars").glob("spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_[\d.]+-(\d+\.\d+\..+)\.jar", jar_file.name):
            return match[1]
    return pyspark.__version__


def jar(version: str | None = None) -> Path:
    """The bridge for a version of Spark (default: the one that a session started here has).

    If there is none, it is compiled, after one line on stderr.

    Raises:
        BridgeError: The version is not supported, or the bridge cannot be compiled.
    """
    version = version or spark_version()
    _check_version(version)
    packaged = packaged_jar(version)
    sources = source_files(version)
    if packaged.is_file() and (not sources or origin_of(packaged) == origin(version, sources)):
        return packaged
    cached = _cache_folder() / f"{packaged.stem}-{origin(version, sources)[:16]}.jar"
    if cached.is_file():
        return cached
    print(  # noqa: T201 - half a minute without a word would look like a hang
        f"indextables: compiling the bridge for Spark {minor(version)} (once, half a minute): {cached}",
        file=sys.stderr,
    )
    return build(cached, version)


def packaged_jar(version: str) -> Path:
    """The path of the packaged bridge for a version of Spark; one serves all patches of a minor version."""
    return _HERE / "jars" / jar_name(version)


def source_files(version: str) -> list[Path]:
    """The Scala sources for a version of Spark: in the wheel, or beside the package in a checkout."""
    for folder in (_HERE / "scala", _HERE.parents[2] / "bridge"):
        if sources := sources_for(folder, version):
            return sources
    return []


def build(target: Path, version: str | None = None, home: Path | None = None) -> Path:
    """Compile the bridge into `target` with the Scala compiler of a Spark; `home` is its folder.

    Raises:
        BridgeError: There is no such Spark here, there are no sources, or they do not compile.
    """
    version = version or spark_version()
    _check_version(version)
    if home is None and minor(version) != minor(spark_version()):
        raise BridgeError(
            f"the session runs Spark {version}, but Spark here is {spark_version()}, and a bridge is "
            f"compiled with the Spark that it is for; install pyspark~={minor(version)}.0 in this environment"
        )
    sources = source_files(version)
    if not sources:
        raise BridgeError(
            f"there is no bridge for Spark {version}, and its sources are not installed; install the "
            "indextables wheel again"
        )
    try:
        compile_bridge(sources, home or spark_home(), version, target)
    except CompileError as error:
        raise BridgeError(f"the bridge for Spark {version} cannot be compiled: {error}") from None
    except OSError as error:
        raise BridgeError(
            f"the bridge for Spark {version} cannot be written to {target} ({error}); set XDG_CACHE_HOME to "
            "a folder that can be written, or install the wheel, which contains the bridge"
        ) from None
    return target


def is_current(target: Path, version: str) -> bool:
    """Whether a jar was compiled from the current sources, for a version of Spark."""
    return target.is_file() and origin_of(target) == origin(version, source_files(version))


def _check_version(version: str) -> None:
    if version_key(version) < version_key(MINORS[0]):
        raise BridgeError(
            f"the session runs Spark {version}, but indextables needs Spark {MINORS[0]} to {MINORS[-1]}; "
            f"install pyspark>={MINORS[0]}, or read without Spark, in plain Python: indextables.open(path)"
        )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "indextables"
