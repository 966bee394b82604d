"""Spark: writing, searching, scanning, planning beside Spark's own Parquet, in one session of two cores."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench import log_work
from bench.entries import day_text
from bench.measure import Measured, ratio
from bench.report import Row, Target
from bench.spark_work import (
    KEYS,
    Question,
    keys,
    questions,
    session,
    source,
    timed,
    views,
    write_ours,
    write_plain,
)

DEFAULT_ROWS = 5_000_000
# Targets are those of 5 million rows; they are shown from a million on.
_SHOWN_FROM = 1_000_000
_SMALL = 10_000
_SPLITS = 100_000
_PAUSE_SECONDS = 65
# Every question is asked for so long before the first is measured: Java compiles what runs often, and a
# session that has answered some queries is what users have.
_WARM_SECONDS = 5
# A question is asked at least for so long while it is measured.
_ASKED_SECONDS = 2
_FASTER = ("needle", "count", "count by hour")
_JOIN = f"join with {KEYS:,} ids"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Write so many log rows and ask about them; 5 million are the size that the targets speak of."""
    spark = session(folder)
    try:
        yield from _Bench(spark, folder, rows or DEFAULT_ROWS, runs).rows()
    finally:
        spark.stop()


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, rows: int, runs: int) -> None:
        self.spark = spark
        self.folder = folder
        self.count = rows
        self.runs = runs
        self.full = rows >= _SHOWN_FROM

    def rows(self) -> Iterator[Row]:
        """All measurements, in order."""
        trace_id = source(self.folder / "source", self.count)
        keys(self.spark, self.folder / "source")
        data = self.spark.read.parquet(str(self.folder / "source"))
        ours, ours_at = self._writes(data, write_ours, "ours")
        plain, plain_at = self._writes(data, write_plain, "plain")
        yield self._row("write", ours, plain, Target(ratio(ours, plain), 3, "times Parquet"))
        names = views(self.spark, ours_at, plain_at, "large")
        asked = questions(trace_id)
        scans = {"scan of one column": "latency_ms", "scan of all columns": "*"}
        for question in asked.values():
            self._warm(self._ask(question.ours, names[0]), self._ask(question.plain, names[1]))
        for columns in scans.values():
            self._warm(*(self._scan(columns, name) for name in names))
        for name, question in asked.items():
            yield self._question(name, question, names)
        for name, columns in scans.items():
            ours, plain = (self._measured(self._scan(columns, table)) for table in names)
            yield self._row(name, ours, plain, Target(ratio(ours, plain), 1.5, "times Parquet"))
        yield from self._small()
        yield self._planning()

    def _writes(
        self, data: DataFrame, write: Callable[[DataFrame, Path], None], name: str
    ) -> tuple[Measured, Path]:
        numbers = count()

        def prepare() -> Callable[[], object]:
            place = self.folder / f"{name}-{next(numbers)}"
            return lambda: write(data, place)

        found = timed(prepare, max(1, min(self.runs, 3)))
        return found, self.folder / f"{name}-0"

    def _question(self, name: str, question: Question, tables: tuple[str, str]) -> Row:
        ours, plain = self._asked(question.ours, tables[0]), self._asked(question.plain, tables[1])
        if ours[1] != plain[1]:
            raise RuntimeError(f"{name}: {ours[1]} rows of ours, {plain[1]} of Parquet")
        faster = Target(1 / ratio(ours[0], plain[0]), 20, "times Parquet's speed", at_least=True)
        no_slower = Target(ratio(ours[0], plain[0]), 1, "times Parquet")
        targets = [faster] if name in _FASTER else [no_slower] if name == _JOIN else []
        return self._row(name, ours[0], plain[0], *targets)

    def _asked(self, sql: str, table: str) -> tuple[Measured, int]:
        ask = self._ask(sql, table)
        return self._measured(ask, _ASKED_SECONDS), ask()

    def _measured(self, act: Callable[[], object], seconds: float = 0) -> Measured:
        return timed(lambda: act, self.runs, seconds if self.full else 0)

    def _ask(self, sql: str, table: str) -> Callable[[], int]:
        text = sql.replace("{t}", table)
        return lambda: int(self.spark.sql(text).toArrow().num_rows)

    def _scan(self, columns: str, table: str) -> Callable[[], None]:
        sql = f"SELECT {columns} FROM {table}"
        return lambda: self.spark.sql(sql).write.format("noop").mode("overwrite").save()

    def _warm(self, *works: Callable[[], object]) -> None:
        for work in works:
            end = time.perf_counter() + _WARM_SECONDS
            while self.full and time.perf_counter() < end:
                work()

    def _small(self) -> Iterator[Row]:
        """A table of one split beside one small Parquet file."""
        place = self.folder / "small-source"
        trace_id = source(place, min(_SMALL, self.count))
        data = self.spark.read.parquet(str(place)).coalesce(1)
        at = self.folder / "small-ours", self.folder / "small-plain"
        write_ours(data, at[0])
        write_plain(data, at[1])
        names = views(self.spark, *at, "small")
        asked = questions(trace_id)
        for name in ("needle", "lookup by id"):
            self._warm(self._ask(asked[name].ours, names[0]), self._ask(asked[name].plain, names[1]))
            ours, _ = self._asked(asked[name].ours, names[0])
            plain, _ = self._asked(asked[name].plain, names[1])
            targets = (
                Target(ours.median_ms, 100, "ms"),
                Target(ratio(ours, plain), 1, "times one Parquet file"),
            )
            yield self._row(f"{name}, one small split", ours, plain, *targets)
        if self.full:
            yield self._after_a_pause(asked["needle"], names[0])

    def _after_a_pause(self, question: Question, table: str) -> Row:
        time.sleep(_PAUSE_SECONDS)
        start = time.perf_counter()
        self.spark.sql(question.ours.replace("{t}", table)).toArrow()
        taken = (time.perf_counter() - start) * 1000
        once = Measured(1, taken, taken, taken, 0.0, taken, 0.0)
        return self._row("first query after a minute's pause", once, None, Target(taken, 1000, "ms"))

    def _planning(self) -> Row:
        splits = _SPLITS if self.full else min(self.count, 1000)
        partitions = min(1000, splits)
        at = log_work.build(self.folder / "many", splits, partitions=partitions)
        # The splits are made up: whatever is planned, nothing of them can be read.
        reader = self.spark.read.format("indextables").option("read.inline.maxRows", 0)
        reader.load(str(at)).createOrReplaceTempView("many_splits")
        sql = f"SELECT id, message FROM many_splits WHERE day = DATE'{day_text(partitions // 2)}'"

        def act() -> int:
            return int(self.spark.sql(sql)._jdf.queryExecution().toRdd().getNumPartitions())

        found = timed(lambda: act, self.runs)
        return self._row("plan over 100K splits, warm", found, None, Target(found.median_ms, 500, "ms"))

    def _row(self, name: str, ours: Measured, plain: Measured | None, *targets: Target) -> Row:
        return Row(name, ours, {"Parquet": plain} if plain else {}, targets if self.full else ())
