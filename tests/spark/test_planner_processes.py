"""The planner's processes: how many there are, what happens when one dies or its query is cancelled."""

import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import indextables

# Workers do not find the modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Of those, as many plan queries as there are cores, but two at least.
PLANNERS = 4

pytestmark = pytest.mark.skipif(
    not Path("/proc/net/unix").exists(), reason="processes are looked up in /proc"
)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DataFrame:
    path = str(tmp_path / "table")
    indextables.write(path, pa.table({"id": list(range(100))}))
    return spark.read.format("indextables").load(path)


def _planners() -> list[int]:
    """The planner processes below this one; the process that starts them is none of them."""
    found: dict[int, tuple[int, bool]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[int(entry.name)] = (parent, b"pyspark_indextables.worker" in command)

    def ours(pid: int) -> bool:
        while pid in found:
            if pid == os.getpid():
                return True
            pid = found[pid][0]
        return False

    planners = {pid for pid, (_, is_planner) in found.items() if is_planner and ours(pid)}
    return sorted(pid for pid in planners if found[pid][0] in planners)


def _eventually(check: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not check():
        assert time.monotonic() < until, "it did not happen within five minutes"
        time.sleep(0.01)


def _query_planners(spark: SparkSession) -> int:
    """How many processes plan queries at most."""
    cores = spark._jvm.java.lang.Runtime.getRuntime().availableProcessors()
    result: int = max(2, min(PLANNERS, cores))
    return result


def _rpc(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.indextables.Rpc


def test_many_queries_at_once_share_few_planner_processes(spark: SparkSession, table: DataFrame) -> None:
    def ask(number: int) -> int:
        return table.where(f"id < {number}").count()

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(ask, range(40))) == list(range(40))
    assert 1 <= len(_planners()) <= _query_planners(spark) + PLANNERS


def _stop_all_planners(spark: SparkSession, table: DataFrame) -> list[int]:
    """Stop as many idle planner processes as there may be for queries; their numbers."""
    count = _query_planners(spark)
    with ThreadPoolExecutor(count) as threads:
        while len(stopped := _planners()) < count:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            # Calls that find their process stopped wait; the others start processes.
            answers = [threads.submit(table.count) for _ in range(count)]
            _eventually(lambda waiting=tuple(stopped): _rpc(spark).busyProcesses() <= len(waiting))
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            assert [answer.result(timeout=120) for answer in answers] == [100] * count
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    return stopped


def test_a_cancelled_query_ends_the_planner_process_that_works_for_it(
    spark: SparkSession, table: DataFrame
) -> None:
    # Before the test below, which leaves dead processes that a call may meet first.
    stopped = _stop_all_planners(spark, table)
    invoke = spark._jvm.java.lang.invoke
    kind = invoke.MethodType.methodType(spark._jvm.java.lang.Long.TYPE)
    counted = table.where("id < 9")._jdf
    handle = (
        invoke.MethodHandles.publicLookup().findVirtual(counted.getClass(), "count", kind).bindTo(counted)
    )
    callable_ = spark._jvm.java.lang.Class.forName("java.util.concurrent.Callable")
    thread = spark._jvm.java.util.concurrent.Executors.newSingleThreadExecutor()
    try:
        answer = thread.submit(invoke.MethodHandleProxies.asInterfaceInstance(callable_, handle))
        _eventually(lambda: _rpc(spark).busyProcesses() == 1)
        answer.cancel(True)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        _eventually(lambda: _rpc(spark).busyProcesses() == 0)
    finally:
        thread.shutdownNow()
        for pid in set(stopped) & set(_planners()):
            os.kill(pid, signal.SIGCONT)
    _eventually(lambda: set(stopped) - set(_planners()) != set())
    assert table.where("id < 9").count() == 9


def test_planners_that_die_idle_or_in_a_call_are_replaced_and_the_call_repeated(
    spark: SparkSession, table: DataFrame
) -> None:
    stopped = _stop_all_planners(spark, table)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(lambda: table.where("id < 7").collect())
        _eventually(lambda: _rpc(spark).busyProcesses() == 1)
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        assert len(answer.result(timeout=120)) == 7
    assert not set(stopped) & set(_planners())
    # Spark's list of idle processes still has dead ones: the next calls meet them, and succeed.
    assert [table.count() for _ in range(PLANNERS)] == [100] * PLANNERS


def _open_files(pid: int, folder: Path) -> list[str]:
    """The files in a folder that a process has open or mapped."""
    mapped = [line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    opened = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return [name for name in (*mapped, *opened) if name.startswith(str(folder))]


@pytest.mark.parametrize("statement", ["FLUSH INDEXTABLES SEARCHER CACHE", "FLUSH INDEXTABLES DISK CACHE"])
def test_all_planner_processes_close_their_splits(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    rows = [{"id": n, "text": f"word{n} other"} for n in range(100)]
    indextables.write(tmp_path / "t", rows, options={"indexing.typemap.text": "text"})
    reader = spark.read.format("indextables").option("cache.disk.path", str(tmp_path / "cache"))
    table = reader.load(str(tmp_path / "t"))

    def search(number: int) -> int:
        return table.where(f"text INDEXQUERY 'word{number}'").count()

    def holders() -> list[int]:
        return [pid for pid in _planners() if _open_files(pid, tmp_path)]

    with ThreadPoolExecutor(8) as threads:
        _eventually(lambda: list(threads.map(search, range(16))) == [1] * 16 and len(holders()) > 1)
    before = len(holders())
    result = spark.sql(statement).collect()
    assert holders() == []
    if "cleared_entries" in result[0]:
        assert result[0].cleared_entries >= before
    assert search(5) == 1


def test_only_commands_that_empty_caches_close_splits(spark: SparkSession, tmp_path: Path) -> None:
    """What a statement does follows from its command, not from words in it, such as those of a path."""
    path = tmp_path / "flush_cache" / "invalidate_environment"
    indextables.write(path, [{"id": n, "text": f"word{n}"} for n in range(100)])
    reader = spark.read.format("indextables").option("cache.disk.path", str(tmp_path / "cache"))
    table = reader.load(str(path))

    def opened() -> bool:
        return table.where("text = 'word5'").count() == 1 and any(
            _open_files(pid, tmp_path) for pid in _planners()
        )

    _eventually(opened)
    spark.sql(f"DESCRIBE INDEXTABLES STATE '{path}'").collect()
    assert any(_open_files(pid, tmp_path) for pid in _planners())
    spark.sql("FLUSH INDEXTABLES SEARCHER CACHE").collect()
    assert not any(_open_files(pid, tmp_path) for pid in _planners())


def test_a_planner_process_that_is_busy_closes_its_splits_before_its_next_call(
    spark: SparkSession, tmp_path: Path
) -> None:
    indextables.write(tmp_path / "t", [{"id": 1, "text": "some words"}])
    table = spark.read.format("indextables").load(str(tmp_path / "t"))
    stopped = _stop_all_planners(spark, table)
    count = _query_planners(spark)
    try:
        with ThreadPoolExecutor(count) as threads:
            answers = [threads.submit(table.count) for _ in range(count)]
            _eventually(lambda: _rpc(spark).busyProcesses() == count)
            _rpc(spark).closeSplits()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            assert [answer.result(timeout=120) for answer in answers] == [1] * count
    finally:
        for pid in set(stopped) & set(_planners()):
            os.kill(pid, signal.SIGCONT)
    assert _rpc(spark).closeSplits() >= 0
    assert [pid for pid in _planners() if _open_files(pid, tmp_path)] == []


def test_sockets_of_workers_are_in_a_private_folder_and_stale_ones_are_deleted(
    spark: SparkSession, table: DataFrame
) -> None:
    table.count()
    sockets = spark._jvm.org.apache.spark.sql.indextables.SocketFolder
    folder = Path(spark._jsc.sc().conf().get("spark.python.unix.domain.socket.dir"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    left = folder / ".left-behind.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
        sockets.sweep()
        assert left.exists()
    sockets.sweep()
    assert not left.exists()
    assert table.count() == 100


def test_workers_of_users_are_left_to_spark(spark: SparkSession, table: DataFrame) -> None:
    spark.conf.set("spark.indextables.read.inline.maxRows", "0")
    try:
        data = table.select(udf(lambda number: number + 1, "long", useArrow=False)("id").alias("id"))
        assert sorted(row.id for row in data.collect()) == list(range(1, 101))
    finally:
        spark.conf.unset("spark.indextables.read.inline.maxRows")
    env = spark._jsc.sc().env()
    keep_alive = getattr(getattr(spark._jvm.org.apache.spark.sql.indextables, "KeepAlive$"), "MODULE$")
    kept = keep_alive.factories(env).size()
    field = spark._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    assert 2 <= kept < field.get(env).size()
