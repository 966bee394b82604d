"""A stream of one micro-batch per second for an hour: searches while it runs, and what it leaves behind.

Searches are timed in another process than Spark's. `warm` is a search of the same version once more, `fresh`
the first one after new micro-batches. Splits and files of the log are counted at the end.
"""

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import indextables
from bench.measure import ROOT, Measured
from bench.report import Row, Target
from bench.spark_work import TEXT, session

DEFAULT_SECONDS = 3600
_ROWS_PER_SECOND = 200
_PAUSE_S = 5.0
_MESSAGE = "concat('request ', value, ' took ', value % 977, ' ms word', value % 50)"
_QUERY = "message INDEXQUERY 'word7'"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Stream for an hour, or for as many seconds as `rows` says; `runs` is not used."""
    del runs
    seconds = rows or DEFAULT_SECONDS
    place = folder / "table"
    spark = session(folder)
    try:
        rate = spark.readStream.format("rate").option("rowsPerSecond", _ROWS_PER_SECOND).load()
        lines = rate.selectExpr("timestamp", "value", f"{_MESSAGE} AS message")
        writer = lines.writeStream.format("indextables").option(TEXT, "text")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(processingTime="1 second").start(str(place))
        while not query.recentProgress and query.isActive:
            time.sleep(0.1)
        command = [sys.executable, "-m", "bench.stream_hour", str(place)]
        watch = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            query.awaitTermination(seconds)
        finally:
            watch.send_signal(signal.SIGTERM)
            output, _ = watch.communicate()
        batches = query.lastProgress["batchId"] + 1 if query.lastProgress else 0
        if (problem := query.exception()) is not None:
            raise problem
        query.stop()
    finally:
        spark.stop()
    times = [json.loads(line) for line in output.splitlines()]
    if not times:
        raise RuntimeError("no search was timed while the stream ran; see above")
    table = indextables.open(place)
    files = [path for path in (place / "_transaction_log").rglob("*") if path.is_file()]
    versions = sum(path.suffix == ".json" for path in files)
    count = table.files().num_rows
    full = rows is None
    note = f"{batches:,} batches, {table.count():,} rows"
    warm, fresh = (_measured([each[kind] for each in times]) for kind in ("warm", "fresh"))
    limits = (
        Target(warm.median_ms, 50, "ms"),
        Target(count, 200, "splits"),
        Target(versions, 10_000, "version files"),
    )
    yield Row(f"search, warm ({note}, {count} splits)", warm, {}, limits if full else ())
    yield Row(f"search, fresh ({len(files):,} files of the log)", fresh)


def _measured(times: list[float]) -> Measured:
    late = times[len(times) // 2 :]  # of the second half, when the table is large
    return Measured(len(late), statistics.median(late), min(late), max(late), 0, times[0], 0)


def _watch(place: str) -> None:
    """Search again and again, and print the times, until a signal comes."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    while not stopped:
        taken = {}
        table = indextables.open(place)
        for kind in ("fresh", "warm"):
            start = time.perf_counter()
            table.count(_QUERY)
            taken[kind] = (time.perf_counter() - start) * 1000
        print(json.dumps(taken), flush=True)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _watch(sys.argv[1])
