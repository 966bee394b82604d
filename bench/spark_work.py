"""The session, tables and questions of the Spark measurements, and the clock for work in one session."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import indextables
from bench import logs
from bench.measure import Measured

TEXT = "indexing.typemap.message"
# How many ids the view `keys` has.
KEYS = 1_000
_SOURCE_FILES = 4
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Question:
    """The same question to a table of ours and to plain Parquet; `{t}` is the table."""

    ours: str
    plain: str


def questions(trace_id: str) -> dict[str, Question]:
    """What is asked, by name."""

    def rows(word: str) -> Question:
        return Question(
            f"SELECT * FROM {{t}} WHERE message INDEXQUERY '{word}'",
            f"SELECT * FROM {{t}} WHERE message LIKE '%{word}%'",
        )

    percent = f"message INDEXQUERY '{logs.ONE_PERCENT}'"
    matches = f"message RLIKE '\\\\b{logs.ONE_PERCENT}\\\\b'"
    hour, truncated = "indextables_date_histogram(ts, '1h')", "date_trunc('HOUR', ts)"
    lookup = f"SELECT * FROM {{t}} WHERE trace_id = '{trace_id}'"
    join = "SELECT * FROM {t} JOIN keys USING (trace_id)"
    return {
        "needle": rows(logs.NEEDLE),
        "100 hits": rows(logs.HUNDRED),
        "1% of the rows": rows(logs.ONE_PERCENT),
        "count": Question(
            f"SELECT count(*) FROM {{t}} WHERE {percent}", f"SELECT count(*) FROM {{t}} WHERE {matches}"
        ),
        "count by hour": Question(
            f"SELECT {hour} AS t, count(*) AS n FROM {{t}} WHERE {percent} GROUP BY {hour}",
            f"SELECT {truncated} AS t, count(*) AS n FROM {{t}} WHERE {matches} GROUP BY {truncated}",
        ),
        "10 best by score": Question(
            f"SELECT message, _score FROM {{t}} WHERE {percent} ORDER BY _score DESC LIMIT 10",
            f"SELECT message, latency_ms FROM {{t}} WHERE {matches} ORDER BY latency_ms DESC LIMIT 10",
        ),
        "lookup by id": Question(lookup, lookup),
        f"join with {KEYS:,} ids": Question(join, join),
    }


# --- session and tables -------------------------------------------------------------------------------


def session(folder: Path) -> SparkSession:
    """A session of two cores with the bridge, all its files in a folder."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("indextables-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.indextables.cache.disk.path", f"{folder}/cache")
    )
    made = indextables.configure(builder).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def source(folder: Path, rows: int) -> str:
    """The rows that both are written from, in a few Parquet files; the id of one of them."""
    folder.mkdir()
    table = logs.table(rows)
    step = -(-rows // _SOURCE_FILES)
    for number in range(_SOURCE_FILES):
        part = table.slice(number * step, step)
        if part.num_rows:
            pq.write_table(part, folder / f"part-{number}.parquet")
    return str(table["trace_id"][rows // 3].as_py())


def keys(spark: SparkSession, folder: Path) -> None:
    """Make the view `keys`: ids spread over the rows of a source."""
    ids = pq.read_table(folder, columns=["trace_id"])
    places = np.unique(np.linspace(0, len(ids) - 1, KEYS).astype(np.int64))
    spark.createDataFrame(ids.take(places)).createOrReplaceTempView("keys")


def write_ours(data: DataFrame, folder: Path) -> None:
    """Rows as a table of ours."""
    data.write.format("indextables").option(TEXT, "text").save(str(folder))


def write_plain(data: DataFrame, folder: Path) -> None:
    """Rows as Spark writes Parquet."""
    data.write.parquet(str(folder))


def views(spark: SparkSession, ours: Path, plain: Path, name: str) -> tuple[str, str]:
    """Names under which a table of ours and its plain twin can be asked."""
    spark.read.format("indextables").load(str(ours)).createOrReplaceTempView(f"ours_{name}")
    spark.read.parquet(str(plain)).createOrReplaceTempView(f"plain_{name}")
    return f"ours_{name}", f"plain_{name}"


# --- the clock ----------------------------------------------------------------------------------------


Prepare: TypeAlias = Callable[[], Callable[[], object]]


def timed_by_turns(prepared: Sequence[Prepare], runs: int) -> list[Measured]:
    """What several pieces of work took in this session, measured by turns: all see the same machine."""
    first: list[float] = []
    peaks: list[float] = []
    for prepare in prepared:
        act = prepare()
        gc.collect()
        idle = _reset_peaks()
        first.append(_milliseconds(act)[0])
        peaks.append(max(0.0, sum(_memory(pid, "VmHWM") for pid in _family()) - idle))
    done: list[list[tuple[float, float]]] = [[] for _ in prepared]
    for _ in range(runs):
        for own, prepare in zip(done, prepared, strict=True):
            own.append(_milliseconds(prepare()))
    measured = []
    for own, once, peak in zip(done, first, peaks, strict=True):
        times, cpu = zip(*own, strict=True)
        median = statistics.median
        measured.append(Measured(runs, median(times), min(times), max(times), median(cpu), once, peak))
    return measured


def timed(prepare: Prepare, runs: int, seconds: float = 0) -> Measured:
    """What work took in this session: this process, the JVM and its Python workers together.

    So many runs, or as many as there is time for in so many seconds, if those are more.
    """
    act = prepare()
    gc.collect()
    idle = _reset_peaks()
    first, _ = _milliseconds(act)
    peak = sum(_memory(pid, "VmHWM") for pid in _family()) - idle
    end = time.perf_counter() + seconds
    done: list[tuple[float, float]] = []
    while len(done) < runs or time.perf_counter() < end:
        done.append(_milliseconds(prepare()))
    times, cpu = zip(*done, strict=True)
    return Measured(
        len(done),
        statistics.median(times),
        min(times),
        max(times),
        statistics.median(cpu),
        first,
        max(peak, 0.0),
    )


def _milliseconds(act: Callable[[], object]) -> tuple[float, float]:
    start, start_cpu = time.perf_counter(), _cpu_seconds()
    act()
    return (time.perf_counter() - start) * 1000, max(_cpu_seconds() - start_cpu, 0.0) * 1000


def _family() -> Iterator[int]:
    """This process and all that it started, at any remove."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def _stat(pid: int) -> list[str] | None:
    """The figures of a process after its name: state, parent, ..."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _cpu_seconds() -> float:
    """The processor's time of all of them, and of their children that have ended."""
    total = 0
    for pid in _family():
        if (stat := _stat(pid)) is not None:
            total += sum(int(ticks) for ticks in stat[11:15])
    return total / _TICKS


def _reset_peaks() -> float:
    """Forget the highest memory so far; the memory now, in megabytes."""
    total = 0.0
    for pid in list(_family()):
        try:
            (Path("/proc") / str(pid) / "clear_refs").write_text("5")
        except OSError:
            continue
        total += _memory(pid, "VmRSS")
    return total


def _memory(pid: int, name: str) -> float:
    try:
        text = (Path("/proc") / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line for line in text.splitlines() if line.startswith(f"{name}:")]
    return int(found[0].split()[1]) / 1024 if found else 0.0
