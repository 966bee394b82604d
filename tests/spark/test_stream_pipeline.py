"""A pipeline: files into a table, a search over it into another one, while the tables are merged and purged."""

import json
import os
import threading
import time
from collections import Counter

import pytest

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

    def run(self) -> None:
        while not self.stopped.is_set():
            for path in self.paths:
                try:
                    table = indextables.open(path)
                    table.merge()
                    table.checkpoint()
                    table.purge()
                except IndexTablesError as error:
                    self.problems.append(error)
            self.rounds += 1


@pytest.mark.parametrize("seconds", [0, pytest.param(SOAK_SECONDS, marks=[pytest.mark.soak])])
@pytest.mark.timeout(0)
def test_rows_go_through_once(spark, tmp_path, seconds):
    lines, red, arriving = str(tmp_path / "lines"), str(tmp_path / "red"), tmp_path / "arriving"
    arriving.mkdir()
    rows: list[dict] = []

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

    def start(frame, path):
        writer = frame.writeStream.format("indextables").option("mergeOnWrite.minSplits", "3")
        return writer.option("checkpointLocation", f"{path}-checkpoint").start(path)

    files = (
        spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).json(str(arriving))
    )
    searched = spark.readStream.format("indextables").load(lines).where("text INDEXQUERY 'red'")
    queries = [start(files, lines), start(searched, red)]
    maintenance = Maintenance(lines, red)
    maintenance.start()
    end = time.monotonic() + seconds
    try:
        for _ in range(2):
            arrive(3)
            for query in queries:
                query.processAllAvailable()
        while time.monotonic() < end:
            arrive(3)
            for query in queries:
                query.processAllAvailable()
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
