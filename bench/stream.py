"""Streams into a table and from it, and standing queries, beside Spark's own Parquet, on two cores."""

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import indextables
from bench import logs
from bench.measure import Measured, ratio, scaled
from bench.report import Row, Target
from bench.spark_work import TEXT, session, source, timed, write_ours, write_plain

DEFAULT_ROWS = 1_000_000
# Targets are those of a million rows.
_SHOWN_FROM = 1_000_000
_ARRIVING = 1_000
_MATCHED = 100_000
_QUERIES = 10_000
# Others compare rows with one query after the other: so many are measured, and extrapolated to all of them.
_COMPARED = 20


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Stream so many log rows; a million is the size that the targets speak of."""
    spark = session(folder)
    try:
        yield from _Bench(spark, folder, rows or DEFAULT_ROWS, max(1, min(runs, 3))).rows()
    finally:
        spark.stop()


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, rows: int, runs: int) -> None:
        self.spark = spark
        self.folder = folder
        self.count = rows
        self.runs = runs
        self.full = rows >= _SHOWN_FROM
        self.numbers = count()

    def rows(self) -> Iterator[Row]:
        """All measurements, in order."""
        source(self.folder / "source", self.count)
        data = self.spark.read.parquet(str(self.folder / "source"))
        arriving = self.spark.readStream.schema(data.schema).parquet(str(self.folder / "source"))
        batch = self._timed(lambda place: write_ours(data, place))
        ours = self._timed(lambda place: self._stream(arriving, "indextables", place, {TEXT: "text"}))
        plain = self._timed(lambda place: self._stream(arriving, "parquet", place))
        limit = Target(ratio(ours, batch), 1.2, "times a batch write")
        yield self._row("sink", ours, {"batch write": batch, "Parquet": plain}, limit)
        write_ours(data, self.folder / "ours")
        write_plain(data, self.folder / "plain")
        table = self.spark.readStream.format("indextables").load(str(self.folder / "ours"))
        files = self.spark.readStream.schema(data.schema).parquet(str(self.folder / "plain"))
        ours, plain = (self._timed(lambda _, frame=frame: self._drain(frame)) for frame in (table, files))
        limit = Target(ratio(ours, plain), 1.5, "times Parquet")
        yield self._row("source", ours, {"Parquet": plain}, limit)
        searched = table.where(f"message INDEXQUERY '{logs.ONE_PERCENT}'")
        compared = files.where(f"message RLIKE '\\\\b{logs.ONE_PERCENT}\\\\b'")
        ours, plain = (
            self._timed(lambda _, frame=frame: self._drain(frame)) for frame in (searched, compared)
        )
        yield self._row(
            "source with a search", ours, {"Parquet": plain}, Target(ratio(ours, plain), 1, "times Parquet")
        )
        yield self._searchable(data)
        yield self._standing()

    def _searchable(self, data: DataFrame) -> Row:
        """From the start of a micro-batch until a search in another process finds its rows."""
        place = self.folder / "searchable"
        write_ours(data.limit(_ARRIVING), place)
        rows = pa.Table.from_batches(logs.table(_ARRIVING).to_batches())

        def prepare() -> Callable[[], object]:
            before = indextables.open(place).count(f"message INDEXQUERY '{logs.ONE_PERCENT}'")
            folder = self.folder / f"arrival-{next(self.numbers)}"
            self.spark.createDataFrame(rows).coalesce(1).write.parquet(str(folder))
            frame = self.spark.readStream.schema(data.schema).parquet(str(folder))

            def arrive() -> None:
                self._stream(frame, "indextables", place, {"mergeOnWrite.enabled": "false"})
                if indextables.open(place).count(f"message INDEXQUERY '{logs.ONE_PERCENT}'") <= before:
                    raise RuntimeError("the rows that arrived are not found")

            return arrive

        ours = timed(prepare, self.runs)
        return self._row(f"{_ARRIVING:,} rows searchable", ours, {}, Target(ours.median_ms, 2000, "ms"))

    def _standing(self) -> Row:
        """So many queries on so many rows; brute force looks words up in the set of each row's words."""
        rows = logs.table(min(_MATCHED, self.count))
        words = sorted(
            {word for text in rows["message"].to_pylist()[:5000] for word in re.findall(r"[a-z]+", text)}
        )
        saved = {
            f"q{n}": f"{words[n % len(words)]} AND {words[(7 * n + n // len(words)) % len(words)]}"
            for n in range(_QUERIES if self.full else 200)
        }
        some = [query.split(" AND ") for query in list(saved.values())[:_COMPARED]]
        frame = self.spark.createDataFrame(rows.select(["message"])).cache()
        frame.count()

        def ours(_: Path) -> None:
            with indextables.StandingQueries(saved) as queries:
                queries.match(rows.select(["message"]))

        def rlike(_: Path) -> None:
            for pair in some:
                frame.where(" AND ".join(f"message RLIKE '\\\\b{word}\\\\b'" for word in pair)).count()

        # Not measured: it would be extrapolated to all queries.
        texts = [set(re.findall(r"\w+", text)) for text in rows["message"].to_pylist()]

        def brute_force(_: Path) -> None:
            for pair in some:
                sum(1 for words in texts if words.issuperset(pair))

        others = {}
        for name, act in {"RLIKE": rlike, "brute force": brute_force}.items():
            measured = self._timed(act)
            others[f"{name}, {len(some)} queries measured"] = measured
            others[f"{name}, {len(saved):,} queries extrapolated"] = scaled(measured, len(saved) / len(some))
        name = f"{len(saved):,} standing queries on {rows.num_rows:,} rows"
        return self._row(name, self._timed(ours), others)

    def _stream(
        self, frame: DataFrame, form: str, place: Path, options: dict[str, str] | None = None
    ) -> None:
        writer = frame.writeStream.format(form).options(**(options or {})).trigger(availableNow=True)
        checkpoint = self.folder / f"checkpoint-{next(self.numbers)}"
        writer.option("checkpointLocation", str(checkpoint)).start(str(place)).awaitTermination()

    def _drain(self, frame: DataFrame) -> None:
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        checkpoint = self.folder / f"checkpoint-{next(self.numbers)}"
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    def _timed(self, act: Callable[[Path], None]) -> Measured:
        def prepare() -> Callable[[], object]:
            place = self.folder / f"place-{next(self.numbers)}"
            return lambda: act(place)

        return timed(prepare, self.runs)

    def _row(self, name: str, ours: Measured, others: dict[str, Measured], *targets: Target) -> Row:
        return Row(name, ours, others, targets if self.full else ())
