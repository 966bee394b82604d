"""The local disk: durable, whole, and tidy."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from indextables.errors import CredentialsError, OutcomeUnknownError, StoreError, UnsafeStoreError
from indextables.store import open_store

_WRITE_FOREVER = """
import sys
from indextables.store import open_store
store, way = open_store(sys.argv[1]), sys.argv[2]
data = b"x" * (64 << 20)
if way == "stream":
    sink = store.open_upload("target")
    sink.write(data)
    print("half", flush=True)
    while True:
        sink.write(data[:4096])
while True:
    print("half", flush=True)
    store.upload("target", sys.argv[3]) if way == "upload" else store.put("target", data)
    store.delete(["target"])
"""


def names(folder: Path) -> list[str]:
    """Everything that lies in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


@pytest.mark.parametrize("way", ["stream", "put", "upload"])
def test_a_killed_writer_leaves_nothing_visible_and_no_half_file(store, tmp_path, way):
    source = tmp_path / "source"
    source.write_bytes(b"x" * (64 << 20))
    store.put("other", b"1")
    command = [sys.executable, "-c", _WRITE_FOREVER, str(tmp_path / "table"), way, str(source)]
    delays = (0.0,) if way == "stream" else (0.0, 0.02)
    for delay in delays:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay)
            os.kill(writer.pid, signal.SIGKILL)
        seen = {info.path: info.size for info in store.list()}
        assert seen.pop("other") == 1
        assert seen in ({}, {"target": 64 << 20})
        assert set(store.list_folder()[1]) == set()
        store.delete(["target"])
    assert store.create("target", b"new")
    left = [path for path in (tmp_path / "table").iterdir() if path.suffix == ".indextables-part"]
    assert store.remove_abandoned(older_than_hours=1) == 0
    assert store.remove_abandoned(older_than_hours=-1) == len(left)
    assert way != "stream" or len(left) == 1
    assert names(tmp_path / "table") == ["other", "target"]


def test_content_is_on_disk_before_it_has_a_name_and_the_name_after(store, monkeypatch, tmp_path):
    steps = []

    def note(name, what):
        real = getattr(os, name)

        def noted(*args, **more):
            steps.append(what(*args))
            return real(*args, **more)

        monkeypatch.setattr(os, name, noted)

    note("fsync", lambda fd: "folder" if Path(f"/proc/self/fd/{fd}").is_dir() else "file")
    note("link", lambda *_: "link")
    note("replace", lambda *_: "rename")
    store.put("warm/up", b"")
    steps.clear()
    store.create("warm/x", b"1")
    store.put("warm/x", b"2")
    with store.open_upload("warm/y") as sink:
        sink.write(b"3")
    assert steps == ["file", "link", "folder", "file", "rename", "folder", "file", "rename", "folder"]
    steps.clear()
    store.create("new/deep/x", b"1")
    assert steps == ["folder", "folder", "file", "link", "folder"]


def test_a_create_whose_folder_cannot_be_flushed_is_unknown(store, monkeypatch):
    store.put("warm", b"")
    real = os.fsync

    def fails_for_folders(fd):
        if Path(f"/proc/self/fd/{fd}").is_dir():
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", fails_for_folders)
    with pytest.raises(OutcomeUnknownError, match="could not be flushed"):
        store.create("v1", b"1")


def test_a_file_system_without_links_is_refused_by_name(store, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UnsafeStoreError, match=f"{store.url}.*without hard links"):
        store.check_create_if_absent()
    assert list(store.list()) == []


def test_deleting_the_last_file_removes_its_folders_up_to_the_root(store, tmp_path):
    store.put("a/b/c/x", b"")
    store.put("a/y", b"")
    assert store.delete(["a/b/c/x", "a/b/none"]) == 1
    assert names(tmp_path / "table" / "a") == ["y"]
    store.delete(["a/y"])
    assert names(tmp_path / "table") == []


def test_writers_and_deleters_of_one_folder_do_not_disturb_each_other(store):
    stop = time.monotonic() + 1

    def churn(n: int) -> None:
        try:
            while time.monotonic() < stop:
                store.put(f"p=1/q=1/{n}", b"")
                store.delete([f"p=1/q=1/{n}"])
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    failures: list[BaseException] = []
    threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_empty_folder_does_not_exist(store, tmp_path):
    (tmp_path / "table" / "empty" / "deep").mkdir(parents=True)
    store.put("full/x", b"")
    assert store.list_folder() == ([], ["full"])
    assert [info.path for info in store.list()] == ["full/x"]


def test_files_of_others_are_listed_as_they_are(store, tmp_path):
    (tmp_path / "table").mkdir()
    for name in (".x.crc", "_SUCCESS", "x.tmp"):
        (tmp_path / "table" / name).write_bytes(b"")
    assert [info.path for info in store.list()] == [".x.crc", "_SUCCESS", "x.tmp"]


def test_where_a_file_lies_is_told(store, tmp_path, make_store_url):
    store.put("a/x", b"1")
    assert store.local_path("a/x") == str(tmp_path / "table" / "a" / "x")
    assert open_store(make_store_url("memory")[0]).local_path("x") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(store, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table").chmod(0o500)
    with pytest.raises(CredentialsError, match="permission denied"):
        store.put("x", b"")


def test_a_file_in_place_of_a_folder_is_named(store):
    store.put("a", b"")
    with pytest.raises(StoreError, match=store.url):
        store.put("a/b", b"")
    assert not store.exists("a/b")
    assert list(store.list("a")) == []


def test_the_root_of_the_file_system_is_a_store(tmp_path):
    (tmp_path / "x").write_bytes(b"1")
    root = open_store("/")
    assert root.get(str(tmp_path / "x")[1:]) == b"1"
    assert root.url == "file://"


def test_a_name_that_is_too_long_is_told_once(store):
    with pytest.raises(StoreError, match="File name too long"):
        store.open_upload("n" * 300 + "/file")
