"""Splits of an object store are opened many at once: the rows and their order are those of a local table."""

import importlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.errors import StoreError
from indextables.limits import ByteLimit
from indextables.read.split_source import close_splits
from indextables.split.index import files
from indextables.split.query.searcher import IndexSearcher
from indextables.store import Store

SPLITS = 24
ROWS = 40
# Without filter bundles: what they skip is not opened.
OPTIONS = {
    "indexing.typemap.t": "text",
    "checkpoint.interval": "1",
    "state.filterBundles.enabled": "false",
}


class Requests:
    """Counts the reads of splits, and how many run at once."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.most = 0
        self.running = 0
        self.failing = ""
        # Requests wait until so many run at once, or for some seconds.
        self.together = 1
        self._changed = threading.Condition()

    def of(self, get_ranges: Any) -> Callable[..., Any]:
        def slow(store: Any, path: Any, ranges: Any) -> Any:
            if not path.endswith(".split"):
                return get_ranges(store, path, ranges)
            with self._changed:
                self.paths.append(path)
                self.running += 1
                self.most = max(self.most, self.running)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self.most >= self.together, timeout=10)
            try:
                if self.failing and path.endswith(self.failing):
                    raise StoreError(f"{path}: no answer")
                return get_ranges(store, path, ranges)
            finally:
                with self._changed:
                    self.running -= 1

        return slow


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    counted = Requests()
    monkeypatch.setattr(Store, "get_ranges", counted.of(Store.get_ranges))
    return counted


def rows(split: int) -> pa.Table:
    numbers = range(split * ROWS, (split + 1) * ROWS)
    texts = [f"row word{n % 7} {'needle' if n == 500 else 'straw'} own{split}" for n in numbers]
    return pa.table({"n": pa.array(numbers, pa.int64()), "t": texts, "k": [f"key{n}" for n in numbers]})


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return f"memory://ahead-{tmp_path.name}/t"


def written(url: str) -> None:
    for split in range(SPLITS):
        indextables.write(url, rows(split), options=OPTIONS)


def cold(url: str, tmp_path: Path, **options: str) -> indextables.Table:
    close_splits()
    folder = tmp_path / f"cache-{time.monotonic_ns()}"
    return indextables.open(url, options={"cache.disk.path": str(folder), **options})


CONDITIONS = [
    "t INDEXQUERY 'needle'",
    "t INDEXQUERY 'word3 own5'",
    "t INDEXQUERY 'word1 OR own7'",
    "t INDEXQUERY 'nowhere'",
    "k = 'key77'",
    "k IN ('key1', 'key900') OR n = 3",
    "n BETWEEN 100 AND 130 AND t INDEXQUERY 'straw'",
    "n >= 900 OR n < 3",
    "NOT t INDEXQUERY 'straw'",
]


def test_rows_counts_groups_and_rankings_equal_those_of_a_local_table(
    tmp_path: Path, remote: str, requests: Requests
) -> None:
    local = str(tmp_path / "t")
    written(local)
    written(remote)
    for condition in CONDITIONS:
        answers = []
        for url in (local, remote):
            table = cold(url, tmp_path)
            found = table.scan(where=condition)
            counted = cold(url, tmp_path).count(where=condition)
            groups = cold(url, tmp_path).aggregate({"c": "count(*)", "m": "max(n)"}, where=condition)
            answers.append((found.to_pydict(), counted, groups.to_pylist()))
        assert answers[0] == answers[1], condition
    ranked = [cold(url, tmp_path).search("word3 own5", limit=20, scores=True) for url in (local, remote)]
    assert ranked[0].to_pydict() == ranked[1].to_pydict()
    everything = cold(remote, tmp_path).scan()["n"].to_pylist()
    assert everything == list(range(SPLITS * ROWS))


def test_many_are_opened_at_once_and_those_without_the_word_only_that(
    tmp_path: Path, remote: str, requests: Requests
) -> None:
    written(remote)
    table = cold(remote, tmp_path)
    requests.paths.clear()
    requests.most, requests.together = 0, SPLITS // 2
    assert table.scan(where="t INDEXQUERY 'needle'")["n"].to_pylist() == [500]
    assert requests.most >= SPLITS // 2
    assert SPLITS <= len(requests.paths) <= SPLITS + 8
    requests.most, requests.together = 0, 1
    table = cold(remote, tmp_path, **{"read.concurrentOpens": "1", "read.parallelism": "1"})
    assert table.scan(where="t INDEXQUERY 'needle'")["n"].to_pylist() == [500]
    assert requests.most == 1


def test_a_limit_that_is_reached_early_opens_few(tmp_path: Path, remote: str, requests: Requests) -> None:
    written(remote)
    table = cold(remote, tmp_path, **{"read.parallelism": "1"})
    requests.paths.clear()
    assert table.scan(where="t INDEXQUERY 'straw'", limit=3).num_rows == 3
    assert len(set(requests.paths)) <= SPLITS // 2


def test_the_error_of_one_split_names_it_and_ends_the_rest(
    tmp_path: Path, remote: str, requests: Requests
) -> None:
    written(remote)
    table = cold(remote, tmp_path)
    requests.failing = table.files()["path"][SPLITS // 2].as_py()
    before = threading.active_count()
    with pytest.raises(StoreError, match=requests.failing):
        table.scan(where="t INDEXQUERY 'needle'")
    requests.failing = ""
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert table.scan(where="t INDEXQUERY 'needle'").num_rows == 1


class AtOnce:
    """Counts how many calls of a function run at once; each waits until so many do, or for some seconds."""

    def __init__(self, together: int) -> None:
        self.most = self._running = 0
        self._together = together
        self._changed = threading.Condition()

    def of(self, function: Any) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            with self._changed:
                self._running += 1
                self.most = max(self.most, self._running)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self.most >= self._together, timeout=5)
            try:
                return function(*arguments, **named)
            finally:
                with self._changed:
                    self._running -= 1

        return counted


def test_cached_splits_are_ranked_and_counted_at_once_whatever_their_size(
    tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(remote)
    options = {"cache.disk.path": str(tmp_path / "cache"), "read.parallelism": "4"}
    table = indextables.open(remote, options=options)
    everything = table.search("row straw", limit=None)
    monkeypatch.setattr(files, "_fetching", ByteLimit(1))
    ranked, counted = AtOnce(4), AtOnce(4)
    search = importlib.import_module("indextables.read.search")
    monkeypatch.setattr(search, "best_rows", ranked.of(search.best_rows))
    monkeypatch.setattr(IndexSearcher, "term_statistics", counted.of(IndexSearcher.term_statistics))
    assert table.search("straw row", limit=None)["n"].sort() == everything["n"].sort()
    assert (ranked.most, counted.most) == (4, 4)


def test_indexes_are_fetched_at_once_as_far_as_there_is_memory(
    tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(remote)
    read_ranges = files.read_ranges  # type: ignore[attr-defined]
    for limit, together in ((128 << 20, 4), (1, 1)):
        fetches = AtOnce(together)
        monkeypatch.setattr(files, "_fetching", ByteLimit(limit))
        monkeypatch.setattr(files, "read_ranges", fetches.of(read_ranges))
        assert cold(remote, tmp_path).search("straw", limit=None).num_rows == SPLITS * ROWS - 1
        assert (fetches.most == 1) is (limit == 1)
