"""Maintenance while others read and write: no reader ever sees a wrong count."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest

import indextables as it
from tests.maintenance_tables import TEXT, orphan
from tests.servers.fixtures import StoreUrl

ROWS = 3


class Crowd:
    """One writer and two readers of a table, until they are told to stop."""

    def __init__(self, table: Path | str, options: Mapping[str, object]) -> None:
        self.table = table
        self.options = dict(options)
        self.reads = 0
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
        it.write(self.table, rows, options={**TEXT, **self.options})
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
            opened = it.open(self.table, options=self.options)
            count = opened.count()
            if count % ROWS or not least * ROWS <= count <= (self.appends + 1) * ROWS or count < seen:
                self.problems.append(f"{count} rows after {seen}, with {least} to {self.appends} appends")
            ids = opened.scan(["id"])["id"].to_pylist()
            if sorted(ids) != list(range(count)):
                self.problems.append(f"{len(ids)} rows, {len(set(ids))} distinct ones, of {count}")
            if opened.count(where="message INDEXQUERY 'append'") != count:
                self.problems.append(f"a search does not find all of {count} rows")
            seen = count
            self.reads += 1


SIZES = [
    ("local", 30),
    pytest.param("local", 100, marks=pytest.mark.soak),
    pytest.param("s3", 10, marks=pytest.mark.server),
    pytest.param("s3", 100, marks=[pytest.mark.server, pytest.mark.soak]),
    pytest.param("azure", 100, marks=[pytest.mark.server, pytest.mark.soak]),
]


@pytest.mark.parametrize(("kind", "appends"), SIZES)
def test_readers_and_a_writer_go_on_while_a_table_is_put_in_shape(
    kind: str, appends: int, make_store_url: StoreUrl
) -> None:
    """Counts only grow, by whole appends, and a reader finds every row of the version that it opened."""
    url, options = make_store_url(kind)
    crowd = Crowd(url, options)
    for _ in range(appends):
        crowd.append()
    # On a disk files can be made old, so that the purge has something to delete.
    lost = [orphan(Path(url), f"left-over-{n}.split") for n in range(5)] if kind == "local" else []
    with crowd:
        # The writer never stops, so that there would be more to merge after each pass.
        keeper = it.open(url, options={**options, "state.retention.versions": 0, "merge.maxPasses": 2})
        merged = keeper.merge(max_sources=25)
        keeper.checkpoint()
        purged = keeper.purge()
        truncated = keeper.truncate()
        keeper.merge()
    assert crowd.problems == []
    assert merged.merged_splits >= appends
    assert purged.orphans_deleted == len(lost)
    assert not any(path.exists() for path in lost)
    assert truncated.versions >= appends
    assert crowd.appends > appends
    assert crowd.reads > 1
    left = it.open(url, options=options)
    assert left.count() == crowd.appends * ROWS
    assert left.files().num_rows < crowd.appends
