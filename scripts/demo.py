"""A demonstration on a terminal: generate logs, write them with Spark, search them with and without Spark.

What the JVM and Spark's workers print goes to a file, which is shown when something fails: their warnings
are about things that a newcomer cannot change.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
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
    """Print the heading of a step."""
    print(f"\n{BOLD}{text}{OFF}", flush=True)


def timed(what: str, act: Callable[[], T]) -> T:
    """Run a function and print how long it took."""
    start = time.perf_counter()
    result = act()
    print(f"  {what}  {DIM}{(time.perf_counter() - start) * 1000:,.0f} ms{OFF}", flush=True)
    return result


def query(spark: SparkSession, sql: str) -> list[Any]:
    """Run a query twice: the first run opens the index, the second shows the time of a search."""
    print(f"\n  {GREEN}{' '.join(sql.split())}{OFF}")
    timed("first ", lambda: spark.sql(sql).collect())
    return timed("again ", lambda: spark.sql(sql).collect())


def table(rows: list[dict[str, object]], width: int = 78) -> None:
    """Print a few rows, one a line."""
    for row in rows:
        text = "  ".join(str(value) for value in row.values())
        print("    " + (text if len(text) <= width else text[: width - 1] + "…"))


def bars(counts: list[tuple[str, int]]) -> None:
    """Print counts over time as bars."""
    most = max(n for _, n in counts)
    for label, n in counts:
        print(f"    {label}  {'█' * max(1, round(44 * n / most))} {n:,}")


def generate(folder: Path) -> Path:
    """Write the logs of a shop for a month to a Parquet file."""
    path = folder / "logs.parquet"
    with pq.ParquetWriter(path, next(logs.batches(1)).schema, compression="zstd") as writer:
        for batch in logs.batches(ROWS):
            writer.write_batch(batch)
    return path


def write(raw: DataFrame, path: str) -> None:
    """Write the table with Spark: one column indexed by words, the others by whole values."""
    raw.repartition(4).write.format("indextables").option("indexing.typemap.message", "text").save(path)


def with_spark(spark: SparkSession, path: str) -> None:
    """Search, count and plot with Spark SQL."""
    spark.read.format("indextables").load(path).createOrReplaceTempView("logs")
    rows = query(
        spark,
        """SELECT ts, service, message FROM logs
           WHERE message INDEXQUERY 'timeout AND hundredfold' AND level = 'ERROR' ORDER BY ts LIMIT 3""",
    )
    table([row.asDict() for row in rows])
    rows = query(
        spark, "SELECT count(*) AS n FROM logs WHERE message INDEXQUERY '\"connection to\" AND refused'"
    )
    table([row.asDict() for row in rows])
    rows = query(
        spark,
        """SELECT indextables_date_histogram(ts, '3d') AS day, count(*) AS n FROM logs
           WHERE status >= 500 AND message INDEXQUERY 'timeout' GROUP BY 1 ORDER BY 1""",
    )
    bars([(row.day.strftime("%d %b"), row.n) for row in rows])


def without_spark(path: str) -> None:
    """Open the same table in plain Python, merge its splits and search."""
    own = indextables.open(path)
    print(f"  {own}: {own.count():,} rows in {own.files().num_rows} splits")
    outcome = timed("merged ", own.merge)
    print(f"  {outcome.merged_splits} splits became {outcome.new_splits}")
    own = own.refresh()
    own.search(logs.NEEDLE, field="message")
    hits = timed("search ", lambda: own.search(logs.NEEDLE, field="message", scores=True))
    table(hits.select(["service", "message", "_score"]).to_pylist())
    print(f"  {DIM}history:{OFF}")
    table(own.history().select(["version", "operation", "timestamp"]).to_pylist())


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Send standard error to a file; processes that are started meanwhile keep writing there."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def session(messages: Path) -> SparkSession:
    """Start Spark with IndexTables."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    with stderr_to(messages):
        return configure(builder).getOrCreate()


def main() -> None:
    """Run the steps in a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="indextables-demo-"))
    messages = folder / "spark-messages.txt"
    spark = None
    try:
        say(f"1. A month of logs: {ROWS:,} rows")
        raw = timed("generated", lambda: generate(folder))
        table(next(logs.batches(3)).select(["level", "service", "message"]).to_pylist())
        say("2. Write it with Spark; configure(builder) adds IndexTables to a session")
        spark = timed("session", lambda: session(messages))
        path = str(folder / "table")
        source = spark.read.parquet(str(raw))
        timed("written", lambda: write(source, path))
        say("3. Search operators in Spark SQL")
        with_spark(spark, path)
        say("4. The same table without Spark")
        without_spark(path)
        say("Done. The README shows the same in a few lines of Python.")
    except BaseException:
        if messages.exists():
            print(messages.read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
