"""Getting into a session: configured, attached, of Spark Connect, and without the bridge."""

import os
import random
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import indextables
from indextables.options.declare import plain_key
from indextables.spark import bridge
from indextables.spark import session as session_setup
from indextables.spark.compiler import MINORS, sources_for, version_key
from tests import ROOT
from tests.spark.script_runner import run_script


def test_a_table_written_without_spark_is_read_by_its_path(spark: SparkSession, tmp_path: Path) -> None:
    indextables.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "message": ["a b", "c", None]}))
    rows = spark.read.format("indextables").load(str(tmp_path / "t")).select("message", "id").collect()
    assert sorted(tuple(row) for row in rows if row[0]) == [("a b", 1), ("c", 2)]
    assert len(rows) == 3


def test_configure_adds_to_what_is_set_and_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    builder = SparkSession.Builder()
    builder.config("spark.jars", "/their.jar").config("spark.sql.extensions", "their.Extension")
    builder.config("spark.python.unix.domain.socket.enabled", "false")
    for _ in range(2):
        indextables.configure(builder)
    options = builder._options
    assert options["spark.jars"] == f"/their.jar,{bridge.jar()}"
    assert options["spark.sql.extensions"] == f"their.Extension,{bridge.EXTENSIONS}"
    assert options["spark.python.unix.domain.socket.enabled"] == "false"
    assert os.environ["PYSPARK_PYTHON"] == "/their/python"


def test_the_bridge_in_the_package_is_made_from_the_sources_as_they_are() -> None:
    packaged = bridge.packaged_jar(pyspark.__version__)
    assert packaged.is_file(), "run scripts/build_bridge.py"
    assert bridge.jar() == packaged, "the sources changed: run scripts/build_bridge.py"
    with zipfile.ZipFile(packaged) as archive:
        registered = archive.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister")
    assert registered.decode().strip() == "org.apache.spark.sql.indextables.Provider"


@pytest.mark.parametrize("minor", MINORS)
def test_a_version_has_its_own_sources_where_its_internals_differ(minor: Any) -> None:
    own = {path.name for path in (ROOT / "bridge" / "compat" / minor).glob("*.scala")}
    used = {path.name: path.parent.name for path in sources_for(ROOT / "bridge", minor)}
    assert used.keys() == {path.name for path in (ROOT / "bridge" / "src").glob("*.scala")}
    assert {name for name, folder in used.items() if folder == minor} == own


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("3.5.1", r"needs Spark 4\.0 to 4\.3; .* without Spark"),
        ("4.99.0", r"install pyspark~=4\.99\.0 in this environment"),
    ],
)
def test_another_spark_than_the_bridge_can_serve_is_refused(version: str, message: str) -> None:
    with pytest.raises(bridge.BridgeError, match=message):
        bridge.jar(version)


def test_a_bridge_that_is_not_there_is_compiled_once_after_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = bridge.jar()
    monkeypatch.setattr(bridge, "packaged_jar", lambda version: tmp_path / "no" / there.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def build(target: Path, version: str) -> Path:
        """Half a minute of compiling is left out: make setup compiles these sources."""
        target.parent.mkdir(parents=True)
        return Path(shutil.copy(there, target))

    monkeypatch.setattr(bridge, "build", build)
    compiled = bridge.jar()
    minor = ".".join(pyspark.__version__.split(".")[:2])
    assert capsys.readouterr().err == (
        f"indextables: compiling the bridge for Spark {minor} (once, half a minute): {compiled}\n"
    )
    assert bridge.jar() == compiled
    assert capsys.readouterr().err == ""


def test_plain_python_does_not_load_pyspark() -> None:
    results = run_script("import_without_spark")
    assert results == {"pyspark": False}


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="older versions have no such warning")
def test_the_warning_of_pyspark_about_pandas_is_not_printed() -> None:
    load = "import pyspark.testing.utils"
    configure = "import indextables; from pyspark.sql import SparkSession; indextables.configure(SparkSession.builder)"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stderr
        for code in (load, f"{configure}; {load}")
    ]
    assert "FutureWarning: PySpark does not yet fully support pandas" in printed[0]
    assert printed[1] == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older versions have no such warning")
def test_the_warning_of_python_about_forks_of_the_planner_is_not_printed() -> None:
    fork = (
        "import os, threading, time; threading.Thread(target=time.sleep, args=[1], daemon=True).start(); "
        "child = os.fork() or os._exit(0); os.waitpid(child, 0)"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stderr
        for code in (fork, f"import pyspark_indextables.worker; {fork}")
    ]
    assert "DeprecationWarning" in printed[0]
    assert printed[1] == ""


@pytest.mark.parametrize("name", [bridge.EXTENSIONS, *bridge.EXTENSIONS_OF_SCALA])
def test_the_extensions_by_any_of_their_names_are_the_bridge(name: Any) -> None:
    builder = SparkSession.Builder().config("spark.sql.extensions", f"their.Extension, {name}")
    assert indextables.configure(builder)._options["spark.sql.extensions"] == f"their.Extension, {name}"
    assert session_setup._has_extensions(f"their.Extension, {name}")
    assert not session_setup._has_extensions("their.Extension")


def test_a_bridge_that_cannot_be_stored_names_the_variable_for_another_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(bridge.BridgeError, match=r"cannot be written to .*; set XDG_CACHE_HOME to a folder"):
        bridge.build(tmp_path / "file" / "bridge.jar")


def test_an_error_of_ours_is_its_sentence_and_no_traceback(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.read.format("indextables").option("read.batchSize", "many").load(str(tmp_path))
    assert str(raised.value).startswith("option 'read.batchsize' is 'many', but")
    assert "Traceback" not in str(raised.value)


def test_the_memory_of_one_process_is_no_place_for_many(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="is the memory of one process"):
        spark.range(1).write.format("indextables").save("memory://here/t")


def test_secrets_are_not_in_plans(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    indextables.write(tmp_path / "t", pa.table({"id": [1]}))
    frame = (
        spark.read.format("indextables")
        .option("spark.indextables.aws.secretKey", "hush-hush")
        .load(str(tmp_path / "t"))
    )
    frame.where("id > 0").explain(extended=True)
    shown = capsys.readouterr().out
    assert "Physical Plan" in shown
    assert "hush-hush" not in shown


def test_without_the_bridge_it_reads_and_writes_and_a_running_session_can_be_attached_to(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("INDEXTABLES_QUERY_SEED") or random.SystemRandom().randrange(1 << 31))
    results = run_script("session_without_bridge", tmp_path, seed)
    assert results["plain_queries"] == [], "\n\n".join(results["plain_queries"])
    assert results["plain_append"] == 20
    assert results["plain_overwrite"] == 3
    assert results["plain_filtered"] == [[1, 2], [0], [0, 1, 2], []], "filters of one query are not another's"
    assert results["plain_empty"] == [0, 0, 0]
    assert "unknown option 'nonsense'" in results["plain_unknown_option"]
    assert results["plain_merged"] == [1, 10]
    assert "writes are not counted" in results["plain_counting"]
    assert "column m.element is an interval of months" in results["plain_months"]
    assert "append" in results["plain_error_mode"].lower()
    assert "the column id was long and is string now" in results["plain_replaced"]
    spark_version = version_key(pyspark.__version__)
    if spark_version == (4, 0):
        assert "Spark 4.0 has no stream writers" in results["plain_sink_failure"]
    else:
        assert results.get("plain_sink") == [1, 10], (
            results["plain_sink_failure"] or "a batch that came again"
        )
        assert "needs the option txn.appId" in results["plain_sink_unnamed"]
    if spark_version < (4, 2):
        assert "needs the bridge, or Spark 4.2" in results["plain_source_failure"]
    else:
        assert results["plain_source_batches"] == 2, "availableNow has the limits of the options"
        assert results.get("plain_source") == [7, 8, 9, 77], (
            results["plain_source_failure"] or "a row came twice"
        )
    assert "a table exists at" in results["attached_error_mode"]
    assert results["attached_read"] == 10
    assert results["attached_sql"] == 9
    assert results["attached_search"] == [7]
    assert results["attached_command"]["num_files"] > 0
    assert results["new_session"] == 10
    assert results["merged_at_the_end"] == [20, 300], "a session that ends waits for merges in the background"


def test_a_session_whose_environment_is_not_activated_is_attached_to_and_started_again(
    tmp_path: Path,
) -> None:
    results = run_script("session_not_activated", tmp_path)
    for running in ("running", "running in a thread", "running without a session"):
        assert "indextables.attach(spark)" in results[running], running
    assert results["attached"] == [7]
    assert results["by path"] == [7]
    assert results["by version"] == [0], "version 0 creates the table"
    assert results["score above a view"] == [7]
    assert results["in a subquery"] == [7]
    assert "option mergeSchema" in results["checked"]
    assert results["cached"] == [7]
    assert results["restarted"] == [7], "the JVM of a session that was stopped takes the jar"


def test_attach_says_what_to_set_where_workers_have_no_indextables(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    results = run_script("session_of_another_python", tmp_path, PYSPARK_PYTHON=f"{tmp_path}/bare/bin/python")
    assert "Spark's Python workers cannot run indextables" in results["attached"]
    assert f"PYSPARK_PYTHON to a Python that has it, such as {sys.executable}" in results["attached"]
    assert results["still there"] == 3


def test_spark_connect_has_everything_but_attach(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    results = run_script("connect_session", tmp_path, SPARK_CONNECT_MODE_ENABLED="1")
    # PySpark warns of each setting of the builder that its server has had since it started; of ours it does not.
    assert results["not set"] == [
        "spark.driver.extraJavaOptions",
        "spark.sql.warehouse.dir",
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
    ]
    assert results["count"] == 20
    assert results["where"] == [7, 7]
    assert results["search"] == [7, 7]
    assert results["max"] == 100
    assert results["command"]["table_path"] == Path(tmp_path / "t").as_uri()
    assert "a table exists at" in results["error"]
    assert results["merged"] == 1
    assert "rows do not match the condition of replaceWhere" in results["task_error"].splitlines()[0]
    assert results["client"] == {
        "python": "{}.{}".format(*sys.version_info),
        "has a JVM": True,
        "has indextables": False,
        "search": [3],
        "sql": [3, 4],
        "command": 2,
        "pandas": [2],
    }
    assert "Spark Connect" in results["attach"]


def test_python_and_scala_spell_the_key_of_an_option_alike(spark: SparkSession) -> None:
    options = getattr(getattr(spark._jvm.org.apache.spark.sql.indextables, "SessionOptions$"), "MODULE$")
    keys = ["mergeSchema", "spark.indextables.mergeSchema", "Spark.IndexTables.MERGESCHEMA"]
    keys += ["spark.hadoop.fs.s3a.access.key", "spark.indextables.spark.hadoop.dfs.x", "indexing.typemap.A.b"]
    assert [options.plain(key) for key in keys] == [plain_key(key) for key in keys]


def test_a_session_of_extensions_alone_shows_no_secrets(tmp_path: Path) -> None:
    results = run_script("session_of_extensions", tmp_path)
    assert (results["rows"], results["written"]) == (2, True)
    assert results["shown"] == []
    assert results["set by the user"] == "mine"
