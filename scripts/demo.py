"""The main job on a terminal: logs are generated, written through Spark, searched with and without it."""

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import indextables
from indextables import configure

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench import logs

warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
T = TypeVar("T")
ROWS = int(os.environ.get("DEMO_ROWS", "300000"))
BOLD, DIM, GREEN, OFF = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("",) * 4


def say(text: str) -> None:
    """A step of the story."""
    print(f"\n{BOLD}{text}{OFF}", flush=True)


def timed(what: str, act: Callable[[], T]) -> T:
    """Do it and say how long it took."""
    start = time.perf_counter()
    result = act()
    print(f"  {what}  {DIM}{(time.perf_counter() - start) * 1000:,.0f} ms{OFF}", flush=True)
    return result


def ask(spark: SparkSession, sql: str) -> list[Any]:
    """Ask in SQL, twice: the first time finds the index, the second time shows what a search costs."""
    print(f"\n  {GREEN}{' '.join(sql.split())}{OFF}")
    timed("first ", lambda: spark.sql(sql).collect())
    return timed("again ", lambda: spark.sql(sql).collect())


def table(rows: list[dict[str, object]], width: int = 78) -> None:
    """A few rows, readable."""
    for row in rows:
        text = "  ".join(str(value) for value in row.values())
        print("    " + (text if len(text) <= width else text[: width - 1] + "…"))


def bars(counts: list[tuple[str, int]]) -> None:
    """Counts over time as bars."""
    most = max(n for _, n in counts)
    for label, n in counts:
        print(f"    {label}  {'█' * max(1, round(44 * n / most))} {n:,}")


def generate(folder: Path) -> Path:
    """A month of logs of a shop, as a Parquet file."""
    path = folder / "logs.parquet"
    with pq.ParquetWriter(path, next(logs.batches(1)).schema, compression="zstd") as writer:
        for batch in logs.batches(ROWS):
            writer.write_batch(batch)
    return path


def write(raw: DataFrame, path: str) -> None:
    """Write the table through Spark: one column searched by words, the others as they are."""
    raw.repartition(4).write.format("indextables").option("indexing.typemap.message", "text").save(path)


def with_spark(spark: SparkSession, path: str) -> None:
    """Search, count, plot."""
    spark.read.format("indextables").load(path).createOrReplaceTempView("logs")
    rows = ask(
        spark,
        """SELECT ts, service, message FROM logs
           WHERE message INDEXQUERY 'timeout AND hundredfold' AND level = 'ERROR' ORDER BY ts LIMIT 3""",
    )
    table([row.asDict() for row in rows])
    rows = ask(
        spark, "SELECT count(*) AS n FROM logs WHERE message INDEXQUERY '\"connection to\" AND refused'"
    )
    table([row.asDict() for row in rows])
    rows = ask(
        spark,
        """SELECT indextables_date_histogram(ts, '3d') AS day, count(*) AS n FROM logs
           WHERE status >= 500 AND message INDEXQUERY 'timeout' GROUP BY 1 ORDER BY 1""",
    )
    bars([(row.day.strftime("%d %b"), row.n) for row in rows])


def without_spark(path: str) -> None:
    """The same table in plain Python."""
    found = indextables.open(path)
    print(f"  {found}: {found.count():,} rows in {found.files().num_rows} splits")
    outcome = timed("merged ", found.merge)
    print(f"  {outcome.merged_splits} splits became {outcome.new_splits}")
    found = found.refresh()
    found.search(logs.NEEDLE, field="message")
    hits = timed("search ", lambda: found.search(logs.NEEDLE, field="message", scores=True))
    table(hits.select(["service", "message", "_score"]).to_pylist())
    print(f"  {DIM}history:{OFF}")
    table(found.history().select(["version", "operation", "timestamp"]).to_pylist())


def main() -> None:
    """Tell the story in a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="indextables-demo-"))
    spark = None
    try:
        say(f"1. A month of logs: {ROWS:,} rows")
        raw = timed("generated", lambda: generate(folder))
        table(next(logs.batches(3)).select(["level", "service", "message"]).to_pylist())
        say("2. Spark, with one line more than usual: configure(builder)")
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        spark = timed("session", lambda: configure(builder).getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        path = str(folder / "table")
        source = spark.read.parquet(str(raw))
        timed("written", lambda: write(source, path))
        say("3. Search operators in Spark SQL")
        with_spark(spark, path)
        say("4. The same table without Spark")
        without_spark(path)
        say("Done. The README's first search is three lines of Python.")
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
