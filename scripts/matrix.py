"""Run the representative part of the Spark tests on each of the other supported versions of Spark.

Each version is installed in an environment of its own below `.matrix`, with another Python where there is
one: installed, or from Maven. On the versions that a lake connector supports, the tests of `tests/connectors`
run beside it: Spark fetches the connector from Maven. The wheel with the bridges of all versions is tested on
the oldest, and Spark Connect with a client in an environment that has neither indextables nor a JVM, on
another Python. Two runs go on at once; the output of each is printed when it ends. What is fetched is kept
in `.matrix`.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".matrix"

# The newest patch of each minor version besides the one in constraints.txt.
VERSIONS = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1"}

# The Python of a version's environment, if there is one; otherwise that of `.venv`.
PYTHONS = {"4.0": "3.12", "4.1": "3.13", "4.2": "3.14"}

# Pythons that few systems have yet, from Maven: `org.bytedeco:cpython`, for these machines.
MAVEN_PYTHONS = {"3.14": "3.14.3-1.5.13"}
MAVEN_MACHINES = {("Linux", "x86_64"): "linux-x86_64", ("Linux", "aarch64"): "linux-arm64"}

# The test of the wheel builds and installs one in the environment of a version.
WHEEL_TOOLS = ("build", "hatchling", "pip")

# The client of Spark Connect; older than the server, as clients often are.
CONNECT_CLIENT = "pyspark-client==4.2.0"

# The connector that is tested beside ours: its name in tests/connectors.
CONNECTORS = {"4.1": "iceberg", "4.2": "delta"}

# Search, filters, aggregates, writes, commands, catalog, time travel, streams, kinds of sessions.
TESTS = (
    "tests/spark/test_buckets.py",
    "tests/spark/test_cached_data.py",
    "tests/spark/test_catalog.py",
    "tests/spark/test_catalog_statements.py",
    "tests/spark/test_pushdown.py",
    "tests/spark/test_searches_above_joins.py",
    "tests/spark/test_session.py",
    "tests/spark/test_snapshots.py",
    "tests/spark/test_spark_addresses.py",
    "tests/spark/test_spark_commands.py",
    "tests/spark/test_split_metadata.py",
    "tests/spark/test_stream_source.py",
    "tests/spark/test_streams.py",
    "tests/spark/test_write.py",
    "tests/spark/test_write_metrics.py",
)

# Tests without Spark that run on the newest Python.
PYTHON_TESTS = (
    *(
        "tests/ingest",
        "tests/log",
        "tests/read",
        "tests/schema",
        "tests/split",
        "tests/store",
        "tests/test_fork.py",
    ),
    *("-m", "not soak and not connectors and not server and not spark"),
)

# Tests on a real HDFS: Hadoop's mini-cluster from Maven. They do not depend on the version of Spark.
HDFS_TESTS = ("tests/store/test_hdfs.py", "tests/store/test_contract.py", "tests/race/test_race.py")

# PySpark of older versions leaves sockets and files to the garbage collector.
WARNINGS = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")

# How often a download is tried.
ATTEMPTS = 4

_output = threading.Lock()


@dataclass(frozen=True)
class Run:
    """Tests on one version of Spark; none is the one of `.venv`."""

    minor: str | None
    name: str
    arguments: tuple[str, ...]
    packages: str | None = None  # from Maven: a name in tests/servers/maven.py
    client: Path | None = None  # the Python of a client of Spark Connect

    def __str__(self) -> str:
        return f"Spark {VERSIONS[self.minor]}, {self.name}" if self.minor else self.name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)} (default: all)"
    )
    parser.add_argument(
        "--only-connectors", action="store_true", help="leave out the tests without connectors"
    )
    parser.add_argument("--processes", type=int, default=2, help="how many runs go on at once (default: 2)")
    arguments = parser.parse_args()
    unknown = set(arguments.versions) - set(VERSIONS)
    if unknown:
        parser.error(f"no such version: {', '.join(sorted(unknown))}; there are {', '.join(VERSIONS)}")
    started = time.monotonic()
    # Packages are installed without compiled modules: each process would compile them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    FOLDER.mkdir(exist_ok=True)
    minors = arguments.versions or list(VERSIONS)
    runs = _runs(minors, only_connectors=arguments.only_connectors)
    interpreters = {version: _interpreter(version) for version in dict.fromkeys(PYTHONS.values())}
    with ThreadPoolExecutor(arguments.processes) as pool:
        environments = pool.map(lambda minor: _environment(minor, interpreters[PYTHONS[minor]]), minors)
        pythons = dict(zip(minors, environments, strict=True))
        if set(minors) == set(VERSIONS) and not arguments.only_connectors:
            runs += _connect_runs(interpreters)
        own = Path(sys.executable)
        passed = list(pool.map(lambda run: _passes(run, pythons.get(run.minor or "", own)), runs))
    failed = [str(run) for run, ok in zip(runs, passed, strict=True) if not ok]
    print(f"matrix: {len(runs)} runs in {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        print(f"matrix: failed: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _runs(minors: list[str], *, only_connectors: bool) -> list[Run]:
    runs = [] if only_connectors else [Run(minor, "representative tests", TESTS) for minor in minors]
    for minor in minors:
        if name := CONNECTORS.get(minor):
            connectors = (
                "tests/connectors/test_connectors.py",
                "tests/connectors/test_connector_companions.py",
            )
            runs.append(Run(minor, name, (*connectors, "-m", "connectors", "--connector", name), name))
    if set(minors) == set(VERSIONS) and not only_connectors:
        wheel = "tests/connectors/test_wheel_of_all_versions.py"
        runs.append(Run(minors[0], "wheel", (wheel, "-m", "connectors")))
        runs.append(Run(None, "HDFS", (*HDFS_TESTS, "-m", "connectors"), "hdfs"))
        runs.append(Run(minors[-1], "tests without Spark", PYTHON_TESTS))
    return runs


def _connect_runs(interpreters: dict[str, Path | None]) -> list[Run]:
    """The test of Spark Connect with a client on another Python than that of `.venv`, if there is one."""
    own = "{}.{}".format(*sys.version_info)
    others = [(version, path) for version, path in interpreters.items() if path and version != own]
    if not others:
        print("matrix: no other Python: Spark Connect is not tested with a client on another one", flush=True)
        return []
    version, interpreter = others[-1]
    folder = FOLDER / "connect-client"
    python = folder / "bin" / "python"
    marker = folder / f"ready-{CONNECT_CLIENT}-{version}"
    if not marker.is_file():
        print(f"matrix: installing {CONNECT_CLIENT} for Python {version} into {folder}", flush=True)
        subprocess.run([interpreter, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        _download([*_pip(python), "-c", str(_constraints("client")), CONNECT_CLIENT])
        marker.touch()
    test = "tests/connectors/test_connect_client.py"
    return [
        Run(None, f"Connect with a client on Python {version}", (test, "-m", "connectors"), client=python)
    ]


def _passes(run: Run, python: Path) -> bool:
    started = time.monotonic()
    log = FOLDER / f"{run.minor or 'own'}-{run.name.split()[0]}.log"
    tests = ["-m", "pytest", "-p", "no:cacheprovider", *WARNINGS, *run.arguments]
    fetch = [["-m", "tests.servers.maven", run.packages]] if run.packages else []
    # A Python worker of Spark must have the same packages as the tests.
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    if run.client is not None:
        environment["INDEXTABLES_CONNECT_CLIENT"] = str(run.client)
    code = 0
    with log.open("wb") as output:
        for arguments in (*fetch, tests):
            code = (
                code
                or subprocess.run(
                    [str(python), *arguments],
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                ).returncode
            )
    seconds = time.monotonic() - started
    with _output:
        print(log.read_text(errors="replace"), f"matrix: {run} in {seconds:.0f} s", sep="", flush=True)
    return code == 0


def _environment(minor: str, interpreter: Path | None) -> Path:
    """The Python of an environment with a version of Spark and its bridge, installed if it is not there."""
    folder = FOLDER / minor
    python = folder / "bin" / "python"
    version = PYTHONS[minor]
    if interpreter is None:
        print(f"matrix: no Python {version}; Spark {VERSIONS[minor]} runs on this one", flush=True)
    marker = folder / f"ready-{VERSIONS[minor]}-{version if interpreter else 'own'}"
    if not marker.is_file():
        print(f"matrix: installing Spark {VERSIONS[minor]} into {folder}", flush=True)
        if interpreter is None:
            venv.create(folder, clear=True, with_pip=False)
            _download([*_pip(python), f"pyspark=={VERSIONS[minor]}"])
            own = next((folder / "lib").glob("python3.*")) / "site-packages"
            # Packages of the environment itself come first.
            shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
            (own / "shared.pth").write_text(shared)
        else:
            subprocess.run([interpreter, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            spark = f"pyspark[connect]=={VERSIONS[minor]}"
            packages = [spark, *WHEEL_TOOLS, "-e", f"{ROOT}[test]"]
            _download([*_pip(python), "-c", str(_constraints(minor)), *packages])
        marker.touch()
    subprocess.run([python, ROOT / "scripts" / "build_bridge.py"], check=True)
    return python


def _pip(python: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    return [*pip, "--disable-pip-version-check"]


def _interpreter(version: str) -> Path | None:
    """The Python of a version: on the path, one of pyenv's, or from Maven."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    for candidate in (on_path, *pyenv.glob(f"{version}.*/bin/python")):
        if candidate is not None and _version_of(candidate) == version:
            return Path(candidate)
    machine = MAVEN_MACHINES.get((platform.system(), platform.machine()))
    return _python_from_maven(version, machine) if machine and version in MAVEN_PYTHONS else None


def _python_from_maven(version: str, machine: str) -> Path:
    """A Python from Maven, fetched by the Ivy that is part of PySpark."""
    revision = MAVEN_PYTHONS[version]
    folder = FOLDER / f"python-{revision}"
    python = folder / "org" / "bytedeco" / "cpython" / machine / "bin" / f"python{version}"
    if not (folder / "ready").is_file():
        print(f"matrix: fetching Python {version} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "ivy.xml").write_text(
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
            '<info organisation="indextables" module="matrix"/><dependencies>'
            f'<dependency org="org.bytedeco" name="cpython" rev="{revision}" transitive="false">'
            f'<artifact name="cpython" type="jar" m:classifier="{machine}"/></dependency>'
            "</dependencies></ivy-module>"
        )
        jars = Path(sysconfig.get_path("purelib")) / "pyspark" / "jars"
        classes = [str(jar) for name in ("ivy", "commons-cli") for jar in jars.glob(f"{name}-*.jar")]
        ivy = [
            "java",
            "-cp",
            os.pathsep.join(classes),
            "org.apache.ivy.Main",
            "-warn",
            "-ivy",
            str(folder / "ivy.xml"),
        ]
        _download([*ivy, "-cache", str(folder / "cache"), "-retrieve", f"{folder}/[artifact].[ext]"])
        with zipfile.ZipFile(folder / "cpython.jar") as jar:
            jar.extractall(folder)
        for program in python.parent.iterdir():
            program.chmod(0o755)
        (folder / "ready").touch()
    return python


def _version_of(python: str | Path) -> str:
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _constraints(minor: str) -> Path:
    """The constraints of all packages but PySpark."""
    path = FOLDER / f"constraints-{minor}.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if re.match(r"(pyspark|py4j)\b", line) is None))
    return path


def _download(command: list[str]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        if subprocess.run(command, check=False).returncode == 0:
            return
        print(f"matrix: attempt {attempt} of {ATTEMPTS} failed: {' '.join(command)}", file=sys.stderr)
        time.sleep(10 * attempt)  # the index may be back then
    raise SystemExit(f"matrix: a download failed {ATTEMPTS} times: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main())
