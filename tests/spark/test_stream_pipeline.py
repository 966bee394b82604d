"""A pipeline: files into a table, a search over it into another one, while the tables are merged and purged."""

import contextlib
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import indextables
from indextables.errors import IndexTablesError

SOAK_SECONDS = int(os.environ.get("INDEXTABLES_SOAK_SECONDS", "3600"))


class Maintenance(threading.Thread):
    """Merges, checkpoints and purges tables until it is told to stop."""

    def __init__(self, *paths: str) -> None:
        super().__init__(daemon=True)
        self.paths = paths
        self.stopped = threading.Event()
        self.problems: list[IndexTablesError] = []
        self.rounds = 0
        self.splits_deleted: Counter[str] = Counter()

    @property
    def has_purged(self) -> bool:
        """Whether splits and versions of each table were deleted; those of the log also after a checkpoint."""
        first = [Path(path, "_transaction_log", f"{0:020d}.json") for path in self.paths]
        return all(self.splits_deleted[path] for path in self.paths) and not any(map(Path.exists, first))

    def run(self) -> None:
        while not self.stopped.is_set():
            for path in self.paths:
                try:
                    table = indextables.open(path)
                    table.merge()
                    table.checkpoint()
                    self.splits_deleted[path] += table.purge().orphans_deleted
                except IndexTablesError as error:
                    self.problems.append(error)
            self.rounds += 1


class Aging:
    """Makes the past of a table old, so that a purge deletes it; each pass through is a day after the last one."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seen: set[str] = set()
        self.aged: set[Path] = set()
        self.days = 10 * 365

    def age(self, version: int) -> None:
        """Age the log before a version, which all streams have read, and splits that are not live any more."""
        log = self.path / "_transaction_log"
        old = {log / f"{number:020d}.json" for number in range(version)}
        old |= {log / f"state-v{number:020d}" / "_manifest.avro" for number in range(version)}
        live = set(indextables.open(str(self.path)).files()["path"].to_pylist())
        old |= {self.path / path for path in self.seen - live}
        self.seen |= live
        self.days -= 1
        then = time.time() - self.days * 24 * 3600
        for file in old - self.aged:
            with contextlib.suppress(FileNotFoundError):
                os.utime(file, (then, then))
                self.aged.add(file)


def process_all(queries: list[Any]) -> None:
    """Let the queries, of which each reads what the one before it writes, take all that is there."""
    for query in queries:
        query.processAllAvailable()


@pytest.mark.parametrize("seconds", [0, pytest.param(SOAK_SECONDS, marks=[pytest.mark.soak])])
@pytest.mark.timeout(0)
def test_rows_go_through_once(spark: SparkSession, tmp_path: Path, seconds: Any) -> None:
    lines, red, arriving = str(tmp_path / "lines"), str(tmp_path / "red"), tmp_path / "arriving"
    arriving.mkdir()
    rows: list[dict[str, Any]] = []

    def arrive(files: int) -> None:
        for _ in range(files):
            first = len(rows)
            new = [
                {"id": n, "text": "a red line" if n % 3 else "a blue line"} for n in range(first, first + 5)
            ]
            part = arriving / f".{first:06}.json"
            part.write_text("\n".join(map(json.dumps, new)))
            part.rename(arriving / f"{first:06}.json")
            rows.extend(new)

    for path in (lines, red):
        indextables.write(path, [{"id": -1, "text": "none"}], options={"indexing.typemap.text": "text"})

    def start(frame: DataFrame, path: str) -> StreamingQuery:
        writer = frame.writeStream.format("indextables").option("mergeOnWrite.minSplits", "3")
        return writer.option("checkpointLocation", f"{path}-checkpoint").start(path)

    files = (
        spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).json(str(arriving))
    )
    searched = spark.readStream.format("indextables").load(lines).where("text INDEXQUERY 'red'")
    queries = [start(files, lines), start(searched, red)]
    agings = [Aging(lines), Aging(red)]
    maintenance = Maintenance(lines, red)
    maintenance.start()
    end = time.monotonic() + seconds

    def pass_through() -> None:
        """More rows go through; then what all streams have read for certain becomes old."""
        arrive(3)
        process_all(queries)
        versions = [indextables.open(path).version for path in (lines, red)]
        process_all(queries)
        for aging, version in zip(agings, versions, strict=True):
            aging.age(version)

    try:
        for _ in range(2):
            pass_through()
        while time.monotonic() < end or not maintenance.has_purged:
            assert time.monotonic() < end + 300, "nothing was purged"
            pass_through()
        pass_through()
    finally:
        maintenance.stopped.set()
        maintenance.join()
        for query in queries:
            query.stop()
    assert maintenance.rounds
    assert [error for error in maintenance.problems if "conflicts with" not in str(error)] == []
    found = Counter(n for n in indextables.open(lines).scan()["id"].to_pylist() if n >= 0)
    assert found == Counter(row["id"] for row in rows)
    found = Counter(n for n in indextables.open(red).scan()["id"].to_pylist() if n >= 0)
    assert found == Counter(row["id"] for row in rows if "red" in row["text"])
