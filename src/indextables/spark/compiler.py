"""Compiles the Scala sources of the bridge into a jar, with the compiler in PySpark's jars.

This module imports no other of the package, because the build of the wheel uses it too.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

# The minor versions of Spark that the bridge is compiled for.
MINORS = ("4.0", "4.1", "4.2", "4.3")

PROVIDER = "org.apache.spark.sql.indextables.Provider"

_REGISTER = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_ORIGIN = "META-INF/indextables-bridge"
_FIXED = (1980, 1, 1, 0, 0, 0)  # the same sources give the same jar


class CompileError(Exception):
    """The bridge cannot be compiled here."""


def minor(version: str) -> str:
    """The minor version of Spark, all of whose patch versions use one jar.

    >>> minor("4.3.0")
    '4.3'
    """
    return ".".join(version.split(".")[:2])


def version_key(version: str) -> tuple[int, int]:
    """The minor version as numbers, for comparisons.

    >>> version_key("4.10.1") > version_key("4.3")
    True
    """
    first, second = minor(version).split(".")
    return int(first), int(second)


def sources_for(folder: Path, spark_version: str) -> list[Path]:
    """The Scala sources for a version of Spark; empty if the folder has none.

    `src` has them for the newest version. `compat` has a folder for each older version in which internals of
    Spark differ: its files replace those of `src` with the same names.
    """
    files = {path.name: path for path in (folder / "src").glob("*.scala")}
    files |= {path.name: path for path in (folder / "compat" / minor(spark_version)).glob("*.scala")}
    return [files[name] for name in sorted(files)]


def jar_name(spark_version: str) -> str:
    """The file name of the jar for a version of Spark."""
    return f"indextables-bridge-{minor(spark_version)}.jar"


def origin(spark_version: str, sources: Sequence[Path]) -> str:
    """A digest of the sources of a jar and of its Spark version."""
    digest = hashlib.sha256(minor(spark_version).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def origin_of(jar: Path) -> str:
    """The digest stored in a jar; empty if there is none."""
    try:
        with zipfile.ZipFile(jar) as opened:
            return opened.read(_ORIGIN).decode().strip()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return ""


def compile_bridge(sources: Sequence[Path], spark: Path, spark_version: str, target: Path) -> None:
    """Compile the sources into the jar `target`; `spark` is the folder that holds Spark's `jars`."""
    jars = sorted((spark / "jars").glob("*.jar"))
    if not any(jar.name.startswith("scala-compiler") for jar in jars):
        raise CompileError(f"there is no Scala compiler among the jars of Spark in {spark / 'jars'}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="indextables-bridge-") as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        _compile(sources, jars, classes)
        built = Path(scratch) / "bridge.jar"
        _pack(classes, built, origin(spark_version, sources))
        # Renamed, so that other processes see the whole jar or none.
        waiting = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(built, waiting)
        waiting.replace(target)


def _compile(sources: Sequence[Path], jars: Sequence[Path], classes: Path) -> None:
    path = os.pathsep.join(str(jar) for jar in jars)
    arguments = ["-nowarn", "-deprecation", "-d", str(classes), "-classpath", path, *map(str, sources)]
    arguments_file = classes.parent / "arguments"
    arguments_file.write_text("\n".join(f'"{argument}"' for argument in arguments))
    run = subprocess.run(  # noqa: S603 - java from JAVA_HOME or the path, our own arguments
        [_java(), "-Xmx1g", "-Xss8m", "-cp", path, "scala.tools.nsc.Main", f"@{arguments_file}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CompileError(f"the bridge does not compile:\n{run.stdout}{run.stderr}")


def _pack(classes: Path, target: Path, digest: str) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in classes.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _FIXED)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(_REGISTER, _FIXED), PROVIDER + "\n")
        archive.writestr(zipfile.ZipInfo(_ORIGIN, _FIXED), digest + "\n")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise CompileError("no Java was found; Spark needs one: install a JDK 17 or newer or set JAVA_HOME")
    return java
