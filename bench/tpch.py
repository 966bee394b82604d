"""TPC-H: the 22 queries and the writes of the tables, by Spark over our tables and over Parquet."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.measure import Measured, ratio
from bench.report import Row, Target
from bench.spark_work import session, timed_by_turns
from bench.tpch_queries import queries

# Rows for each unit of scale; those of lineitem depend on how many lines the generator gives an order.
TABLES = {
    "region": None,
    "nation": None,
    "supplier": 10_000,
    "customer": 150_000,
    "part": 200_000,
    "partsupp": 800_000,
    "orders": 1_500_000,
    "lineitem": None,
}
DEFAULT_SCALE = 1.0
_ORDERS = 1_500_000
# Writes of tables with fewer rows for a unit of scale are a matter of the jobs' overhead.
_WRITTEN = ("customer", "part", "partsupp", "orders", "lineitem")
_NAMES = ("ours", "Parquet")


def generate(folder: Path, scale: float) -> None:
    """Each table as two Parquet files in a folder of its own, so that two tasks load it."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", str(scale), "--parts", "2", "--quiet", "--output-dir", folder], check=True
    )


def run(folder: Path, *, rows: int | None, runs: int, scale: float | None = None) -> Iterator[Row]:
    """Write the tables and run the queries; `rows` are those of the table `orders`, if no scale is given."""
    size = scale or (rows / _ORDERS if rows else DEFAULT_SCALE)
    generate(folder / "source", size)
    spark = session(folder)
    try:
        yield from _Bench(spark, folder, size, runs).rows()
    finally:
        spark.stop()


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, scale: float, runs: int) -> None:
        self.spark = spark
        self.folder = folder
        self.scale = scale
        self.runs = runs
        self.full = scale >= DEFAULT_SCALE

    def rows(self) -> Iterator[Row]:
        """The writes, each query, and all queries together."""
        for name in TABLES:
            written = self._write(name)
            if name in _WRITTEN:
                yield self._row(f"write of {name}", *written, Target(ratio(*written), 3, "times Parquet"))
        tables = {
            "ours": [self.spark.read.format("indextables").load(str(self._place("ours", n))) for n in TABLES],
            "Parquet": [self.spark.read.parquet(str(self._place("Parquet", n))) for n in TABLES],
        }
        measured = []
        for number, query in sorted(queries(self.scale).items()):
            measured.append(self._query(number, query.sql, tables))
            yield self._row(f"query {number}", *measured[-1])
        ours, plain = (_sum([each[side] for each in measured]) for side in (0, 1))
        yield self._row("all queries", ours, plain, Target(ratio(ours, plain), 1, "times Parquet"))

    def _place(self, side: str, name: str) -> Path:
        return self.folder / side / name

    def _write(self, name: str) -> tuple[Measured, Measured]:
        source = self.spark.read.parquet(str(self.folder / "source" / name))

        def write(side: str) -> Callable[[], object]:
            place = self._place(side, name)
            shutil.rmtree(place, ignore_errors=True)
            writer = source.write.format("indextables" if side == "ours" else "parquet")
            return lambda: writer.save(str(place))

        ours, plain = timed_by_turns([lambda side=side: write(side) for side in _NAMES], self.runs)
        return ours, plain

    def _query(self, number: int, sql: str, tables: dict[str, list[DataFrame]]) -> tuple[Measured, Measured]:
        answers: dict[str, list[int]] = {side: [] for side in _NAMES}

        def ask(side: str) -> Callable[[], object]:
            for name, table in zip(TABLES, tables[side], strict=True):
                table.createOrReplaceTempView(name)
            return lambda: answers[side].append(self.spark.sql(sql).toArrow().num_rows)

        ours, plain = timed_by_turns([lambda side=side: ask(side) for side in _NAMES], self.runs)
        if len({count for counts in answers.values() for count in counts}) != 1:
            raise RuntimeError(f"query {number}: other numbers of rows from ours and Parquet: {answers}")
        return ours, plain

    def _row(self, name: str, ours: Measured, plain: Measured, *targets: Target) -> Row:
        return Row(name, ours, {"Parquet": plain}, targets if self.full else ())


def _sum(measured: Sequence[Measured]) -> Measured:
    """All measurements one after the other."""
    return Measured(
        runs=measured[0].runs,
        median_ms=sum(each.median_ms for each in measured),
        least_ms=sum(each.least_ms for each in measured),
        most_ms=sum(each.most_ms for each in measured),
        cpu_ms=sum(each.cpu_ms for each in measured),
        first_ms=sum(each.first_ms for each in measured),
        peak_mb=max(each.peak_mb for each in measured),
    )
