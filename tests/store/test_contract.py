"""What every kind of store promises: one suite, run on each."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.errors import ObjectMissingError, StoreError
from indextables.options import Options
from indextables.store import Store, location, open_store
from tests.servers.fixtures import KINDS, StoreUrl

NAMES = [
    "plain",
    "day=2024-01-01",
    "a%2Fb",
    "100%",
    "with space",
    "colon:semi;comma,",
    "plus+and&",
    "question?star*",
    "hash#1",
    "äöü-日本語-🎉",
    "quote'double\"",
    "[brackets]{braces}",
    "tilde~caret^pipe|",
    ".hidden",
    "_under",
    "at@sign$",
    "<less>",
    "`tick`!",
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_what_was_put_is_got(any_store: Store) -> None:
    any_store.put("a/b", b"first")
    any_store.put("a/b", b"second")
    assert any_store.get("a/b") == b"second"


def test_an_empty_object_is_an_object(any_store: Store) -> None:
    any_store.put("empty", b"")
    assert any_store.get("empty") == b""
    assert any_store.head("empty").size == 0


@pytest.mark.parametrize("method", ["get", "head"])
def test_a_missing_object_is_named(any_store: Store, method: str) -> None:
    with pytest.raises(ObjectMissingError) as caught:
        getattr(any_store, method)("no/such")
    assert caught.value.url == f"{any_store.url}/no/such"


def test_a_range_of_a_missing_object_is_missing(any_store: Store) -> None:
    with pytest.raises(ObjectMissingError):
        any_store.get_range("no/such", 0, 1)


def test_a_folder_is_not_an_object(any_store: Store) -> None:
    any_store.put("folder/x", b"1")
    assert not any_store.exists("folder")
    assert any_store.exists("folder/x")


def test_head_tells_size_and_time(any_store: Store, request: pytest.FixtureRequest) -> None:
    any_store.put("x", b"12345")
    info = any_store.head("x")
    assert (info.path, info.size) == ("x", 5)
    assert 1_600_000_000_000 < info.modified_ms < 4_000_000_000_000
    assert next(any_store.list()).modified_ms // 1000 == info.modified_ms // 1000


def test_every_name_survives_every_way(any_store: Store) -> None:
    # HDFS allows no colons, and says so (tests/store/test_hdfs.py)
    names = [name for name in NAMES if not (any_store.url.startswith("hdfs:") and ":" in name)]
    paths = sorted(f"{name}/{name}.x" for name in names)
    for path in paths:
        any_store.put(path, path.encode())
    assert [info.path for info in any_store.list()] == paths
    assert [any_store.get(path).decode() for path in paths] == paths
    assert any_store.list_folder()[1] == sorted(names)
    for name in names:
        assert [info.path for info in any_store.list(name)] == [f"{name}/{name}.x"]
        assert [info.path for info in any_store.at(name).list()] == [f"{name}.x"]
    any_store.delete(paths)
    assert list(any_store.list()) == []


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\nb", "a\x00b", "a\\b", "x" * 1025, "\ud800"]
)
def test_a_path_that_some_store_cannot_keep_is_refused(any_store: Store, path: str) -> None:
    with pytest.raises(StoreError, match="path"):
        any_store.put(path, b"")


def test_ranges_come_back_in_the_order_asked(any_store: Store) -> None:
    data = bytes(range(256)) * 20
    any_store.put("x", data)
    ranges = [(5000, 5010), (0, 3), (7, 7), (2, 9), (5119, 5120), (0, 5120)]
    assert any_store.get_ranges("x", ranges) == [data[start:end] for start, end in ranges]
    assert any_store.get_range("x", 10, 20) == data[10:20]
    assert any_store.get_ranges("x", []) == []


@pytest.mark.parametrize("wanted", [(8, 12), (10, 11), (20, 30)])
def test_a_range_behind_the_end_is_an_error_and_never_short(any_store: Store, wanted: Any) -> None:
    any_store.put("x", b"0123456789")
    with pytest.raises(StoreError, match=r"x has no bytes \d+ to \d+"):
        any_store.get_ranges("x", [(0, 2), wanted])


@pytest.mark.parametrize("wanted", [(-1, 3), (3, 2)])
def test_a_range_that_is_none_is_refused(any_store: Store, wanted: Any) -> None:
    any_store.put("x", b"0123456789")
    with pytest.raises(StoreError, match="is not a range"):
        any_store.get_range("x", *wanted)


def test_lists_are_sorted_by_whole_path(any_store: Store) -> None:
    paths = ["a-b/1", "a/1", "a/2/3", "a.b", "b", "a0", "B", "ä", "Z/z"]
    for path in paths:
        any_store.put(path, b"")
    assert [info.path for info in any_store.list()] == sorted(paths)


def test_a_list_takes_a_folder_and_not_the_beginning_of_a_name(any_store: Store) -> None:
    for path in ("log/1", "log/deep/2", "logbook/3", "log.txt"):
        any_store.put(path, b"")
    assert [info.path for info in any_store.list("log")] == ["log/1", "log/deep/2"]
    assert [info.path for info in any_store.list("log/")] == ["log/1", "log/deep/2"]
    assert list(any_store.list("nothing")) == []


def test_a_list_after_a_path_begins_behind_it(any_store: Store) -> None:
    paths = [f"log/{n:03}" for n in range(20)] + ["log-x", "log/010/x", "zz"]
    for path in paths:
        any_store.put(path, b"") if path != "log/010" else None
    there = sorted(path for path in paths if path != "log/010")
    for after in ("log/005", "log/0055", "log/010/x", "log/", "log", "a", "zzz"):
        assert [i.path for i in any_store.list(after=after)] == [p for p in there if p > after], after
    assert [i.path for i in any_store.list("log", after="log/017")] == ["log/018", "log/019"]


def test_a_folder_lists_its_own_objects_and_folders_only(any_store: Store) -> None:
    for path in ("f/1", "f/2", "f/sub/3", "f/sub/deep/4", "f/other/5", "g/6"):
        any_store.put(path, b"")
    objects, folders = any_store.list_folder("f")
    assert [info.path for info in objects] == ["f/1", "f/2"]
    assert folders == ["other", "sub"]
    assert any_store.list_folder("nothing") == ([], [])


def test_create_has_one_winner(any_store: Store) -> None:
    assert any_store.create("v/1", b"mine") is True
    assert any_store.create("v/1", b"yours") is False
    assert any_store.get("v/1") == b"mine"


def test_create_by_many_threads_has_one_winner_each(any_store: Store) -> None:
    start = threading.Barrier(8)

    def claim(writer: int) -> list[int]:
        start.wait()
        return [v for v in range(12) if any_store.create(f"v/{v}", f"{writer} of {v}".encode())]

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(claim, range(8)))
    assert sorted(v for won in wins for v in won) == list(range(12))
    for writer, won in enumerate(wins):
        assert all(any_store.get(f"v/{v}") == f"{writer} of {v}".encode() for v in won)


def test_the_probe_passes_and_leaves_nothing(any_store: Store) -> None:
    any_store.check_create_if_absent()
    assert list(any_store.list()) == []


def test_deletes_are_counted_and_missing_ones_are_fine(any_store: Store) -> None:
    paths = [f"d/{n}" for n in range(30)]
    for path in paths[:20]:
        any_store.put(path, b"")
    any_store.put("keep", b"")
    assert 20 <= any_store.delete(["d/none", *paths]) <= 31
    assert [info.path for info in any_store.list()] == ["keep"]
    assert any_store.delete([]) == 0


def test_an_upload_of_a_file_is_the_file(any_store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789" * 100_000)
    assert any_store.upload("up/loaded", source) == 1_000_000
    assert any_store.get("up/loaded") == source.read_bytes()
    with pytest.raises(StoreError, match="no such local file"):
        any_store.upload("x", tmp_path / "nothing")


def test_a_large_upload_goes_in_parts(make_store_url: StoreUrl, tmp_path: Path, kind: Any) -> None:
    url, options = make_store_url(kind)
    store = open_store(url, Options.parse({**options, "s3.multipartThreshold": "6M", "s3.partSize": "5M"}))
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * (12 << 12))
    assert store.upload("large", source) == 12 << 20
    assert store.get("large") == source.read_bytes()
    store.put("large", source.read_bytes()[:-1])
    assert store.head("large").size == (12 << 20) - 1


def test_a_stream_is_visible_when_closed(make_store_url: StoreUrl, kind: Any) -> None:
    url, options = make_store_url(kind)
    store = open_store(url, Options.parse({**options, "s3.partSize": "5M"}))
    sink = store.open_upload("s")
    for _ in range(12):
        sink.write(b"x" * (1 << 20))
    assert sink.tell() == 12 << 20
    assert not store.exists("s")
    sink.close()
    sink.close()
    assert store.get("s") == b"x" * (12 << 20)
    with pytest.raises(ValueError, match="closed"):
        sink.write(b"more")


def test_a_stream_that_fails_is_never_visible(any_store: Store) -> None:
    def fail_half_way() -> None:
        with any_store.open_upload("broken") as sink:
            sink.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    aborted = any_store.open_upload("aborted")
    aborted.write(b"half")
    aborted.abort()
    aborted.close()
    lost = any_store.open_upload("lost")
    lost.write(b"half")
    del lost
    assert list(any_store.list()) == []


def test_arrow_writes_into_a_stream(any_store: Store) -> None:
    table = pa.table({"x": range(1000)})
    with any_store.open_upload("t.parquet") as sink, pa.PythonFile(sink, mode="w") as file:
        pq.write_table(table, file)
    assert pq.read_table(pa.BufferReader(any_store.get("t.parquet"))).equals(table)


def test_a_deeper_store_is_the_same_store(any_store: Store) -> None:
    any_store.put("a/b/c", b"1")
    deeper = any_store.at("a/").at("b")
    assert deeper.url == any_store.url + "/a/b"
    assert deeper.get("c") == b"1"
    assert any_store.at("").url == any_store.url


def test_threads_may_share_a_handle(any_store: Store) -> None:
    def work(n: int) -> bytes:
        any_store.put(f"t/{n}", str(n).encode())
        return any_store.get(f"t/{n}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [str(n).encode() for n in range(40)]


def test_an_object_that_is_too_large_is_refused_before_it_is_read(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.put("large", b"x" * 1001)
    any_store.put("small", b"x" * 1000)
    monkeypatch.setattr(location, "MAX_OBJECT", 1000)
    assert len(any_store.get("small")) == 1000
    with pytest.raises(
        StoreError, match="has 1001 bytes, and no object that is read as a whole has more than 1000"
    ):
        any_store.get("large")
    assert any_store.get_range("large", 1000, 1001) == b"x"
