"""The same log rows in two splits and in a hundred: queries for few rows, counts, groups, many clients.

In plain Python every question runs in a process of its own; Spark answers all of them in one session.
"""

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import indextables
from bench import logs
from bench.measure import Measured, Prepare, measure
from bench.report import Row, Target
from bench.spark_work import session, timed
from indextables import read
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import parse_condition
from indextables.read import Aggregate, Function
from indextables.store import open_store

DEFAULT_ROWS = 2_000_000
SPLITS = (2, 100)
# With `--rows`: writing a hundred splits takes longer than everything else.
FEW_SPLITS = (2, 10)
_OPTIONS = {
    "indexing.typemap.message": "text",
    "indexing.fastfields": "level,service,status,latency_ms,ts",
}
_CLIENTS = 8
_CLIENT_SECONDS = 20
_WARM_SECONDS = 2

# The conditions that are asked about; `{id}` is the id of a row.
CONDITIONS = {
    "needle": f"message INDEXQUERY '{logs.NEEDLE}'",
    "100 rows": f"message INDEXQUERY '{logs.HUNDRED}'",
    "one row by id": "trace_id = '{id}'",
    "count of a common word": f"message INDEXQUERY '{logs.HALF}'",
    "count with two filters": f"message INDEXQUERY '{logs.HALF}' AND level = 'ERROR' AND status >= 500",
    "groups of a common word": f"message INDEXQUERY '{logs.HALF}'",
}
# Targets in milliseconds: in Spark by number of splits, and in plain Python over a hundred.
_SPARK_MS = {
    2: {"one row by id": 39, "100 rows": 50},
    100: {
        "needle": 80,
        "100 rows": 110,
        "one row by id": 80,
        "count of a common word": 90,
        "count with two filters": 90,
        "groups of a common word": 90,
    },
}
_PYTHON_MS = {"100 rows": 60}
_FIRST_MS = 430


def make(folder: Path, rows: int, splits: int) -> str:
    """Write the rows, in random order, as a table of so many splits; returns the id of one of them."""
    table = logs.table(rows)
    table = table.take(pa.array(np.random.default_rng(3).permutation(rows)))
    step = -(-rows // splits)
    for start in range(0, rows, step):
        indextables.write(folder, table.slice(start, step).combine_chunks(), options=_OPTIONS)
    return str(table["trace_id"][rows // 3].as_py())


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Write so many log rows twice and ask about them."""
    count, full = rows or DEFAULT_ROWS, rows is None
    ids = {
        splits: make(folder / f"table-{splits}", count, splits) for splits in (SPLITS if full else FEW_SPLITS)
    }
    for splits, trace_id in ids.items():
        for name in CONDITIONS:
            found = measure(
                "bench.splits:ask", str(folder), splits, name, trace_id,
                runs=runs, warm_seconds=_WARM_SECONDS if full else 0,
            )  # fmt: skip
            most = _PYTHON_MS.get(name) if splits == SPLITS[-1] else None
            targets = (Target(found.median_ms, most, "ms"),) if most and full else ()
            yield Row(f"{name}, {splits} splits, plain Python", found, {}, targets)
    spark = session(folder)
    try:
        yield from _Spark(spark, folder, runs, full=full).rows(ids)
    finally:
        spark.stop()


def ask(folder: str, splits: int, name: str, trace_id: str) -> Prepare:
    """A question in plain Python."""
    options = Options.parse({"cache.disk.path": str(Path(folder) / "cache")})
    store = open_store(Path(folder) / f"table-{splits}")
    snapshot = TransactionLog(store, engine="bench").snapshot()
    where = parse_condition(CONDITIONS[name].replace("{id}", trace_id), snapshot.schema)

    def act() -> object:
        if name.startswith("count"):
            return read.count(snapshot, store, options, where=where)
        if name.startswith("groups"):
            return read.aggregate(
                snapshot, store, options,
                aggregates=[Aggregate(Function.COUNT)], group_by=["level"], where=where,
            )  # fmt: skip
        return read.scan(snapshot, store, options, where=where).read_all()

    return lambda: act


class _Spark:
    def __init__(self, spark: SparkSession, folder: Path, runs: int, *, full: bool) -> None:
        self.spark = spark
        self.folder = folder
        self.runs = runs
        self.full = full

    def rows(self, ids: dict[int, str]) -> Iterator[Row]:
        """The first needle of the session, then every question, then many clients."""
        most = max(ids)
        # Spark's own start is not measured.
        self.spark.range(10).selectExpr("sum(id)").collect()
        for splits in ids:
            table = self.spark.read.format("indextables").load(str(self.folder / f"table-{splits}"))
            table.createOrReplaceTempView(f"splits_{splits}")
        first = self._once(self._query("needle", most, ids[most]))
        yield self._row(
            f"first needle, {most} splits, Spark", first, Target(first.median_ms, _FIRST_MS, "ms")
        )
        for splits, trace_id in ids.items():
            for name in CONDITIONS:
                query = self._query(name, splits, trace_id)
                self._warm(query)
                found = timed(lambda query=query: query, self.runs, _WARM_SECONDS if self.full else 0)
                limit = _SPARK_MS.get(splits, {}).get(name)
                targets = () if limit is None else (Target(found.median_ms, limit, "ms"),)
                yield self._row(f"{name}, {splits} splits, Spark", found, *targets)
        yield self._clients(ids[most], most)

    def _query(self, name: str, splits: int, trace_id: str) -> Callable[[], int]:
        condition = CONDITIONS[name].replace("{id}", trace_id)
        what, tail = "*", ""
        if name.startswith("count"):
            what = "count(*)"
        elif name.startswith("groups"):
            what, tail = "level, count(*)", " GROUP BY level"
        sql = f"SELECT {what} FROM splits_{splits} WHERE {condition}{tail}"
        return lambda: len(self.spark.sql(sql).collect())

    def _warm(self, query: Callable[[], object]) -> None:
        end = time.perf_counter() + _WARM_SECONDS
        while self.full and time.perf_counter() < end:
            query()

    def _once(self, query: Callable[[], object]) -> Measured:
        start = time.perf_counter()
        query()
        taken = (time.perf_counter() - start) * 1000
        return Measured(1, taken, taken, taken, 0.0, taken, 0.0)

    def _clients(self, trace_id: str, splits: int) -> Row:
        """Several clients at once; the figures are those of single queries."""
        queries = [self._query(name, splits, trace_id) for name in CONDITIONS]
        seconds = _CLIENT_SECONDS if self.full else 0.5
        end = time.perf_counter() + seconds
        taken: list[float] = []

        def client(seed: int) -> None:
            choices = random.Random(seed)
            while time.perf_counter() < end:
                start = time.perf_counter()
                choices.choice(queries)()
                taken.append((time.perf_counter() - start) * 1000)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(_CLIENTS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = len(taken) / (time.perf_counter() - start)
        last = sorted(taken)[int(len(taken) * 0.99)]
        found = Measured(len(taken), statistics.median(taken), min(taken), max(taken), 0.0, taken[0], 0.0)
        return self._row(
            f"one query of {_CLIENTS} clients, {splits} splits, Spark", found,
            Target(rate, 15, "queries a second", at_least=True), Target(last, 1500, "ms (p99)"),
        )  # fmt: skip

    def _row(self, name: str, found: Measured, *targets: Target) -> Row:
        return Row(name, found, {}, targets if self.full else ())
