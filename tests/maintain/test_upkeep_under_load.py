"""Upkeep while others read and write: no reader ever sees a wrong count."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from upkeep_tables import TEXT

import indextables as it

ROWS = 3


class Crowd:
    """One writer and two readers of a table, until they are told to stop."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.appends = 0
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._write, self._read, self._read)
        ]

    def append(self) -> None:
        start = self.appends * ROWS
        rows = [{"id": start + i, "message": f"append {self.appends}"} for i in range(ROWS)]
        it.write(self.table, rows, options=TEXT)
        self.appends += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a thread's failure must fail the test
            self.problems.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _write(self) -> None:
        while not self._stop.is_set():
            self.append()

    def _read(self) -> None:
        seen = 0
        while not self._stop.is_set():
            least = self.appends
            opened = it.open(self.table)
            count = opened.count()
            if count % ROWS or not least * ROWS <= count <= (self.appends + 1) * ROWS or count < seen:
                self.problems.append(f"{count} rows after {seen}, with {least} to {self.appends} appends")
            ids = opened.scan(["id"])["id"].to_pylist()
            if sorted(ids) != list(range(count)):
                self.problems.append(f"{len(ids)} rows, {len(set(ids))} distinct ones, of {count}")
            if opened.count(where="message INDEXQUERY 'append'") != count:
                self.problems.append(f"a search does not find all of {count} rows")
            seen = count


@pytest.mark.parametrize("appends", [30, pytest.param(100, marks=pytest.mark.soak)])
def test_readers_and_a_writer_go_on_while_a_table_is_put_in_shape(tmp_path: Path, appends: int) -> None:
    """Counts only grow, by whole appends, and a reader finds every row of the version that it opened."""
    crowd = Crowd(tmp_path / "t")
    for _ in range(appends):
        crowd.append()
    with crowd:
        keeper = it.open(crowd.table, options={"state.retention.versions": 0})
        merged = keeper.merge(max_sources=appends // 4)
        keeper.checkpoint()
        keeper.purge()
        keeper.truncate()
        keeper.merge()
    assert crowd.problems == []
    assert merged.merged_splits >= appends
    assert crowd.appends > appends
    left = it.open(crowd.table)
    assert left.count() == crowd.appends * ROWS
    assert left.files().num_rows < crowd.appends
