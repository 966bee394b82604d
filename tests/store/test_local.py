"""The local disk: durable, whole, and tidy."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from indextables.errors import (
    CredentialsError,
    NotDurableError,
    OutcomeUnknownError,
    StoreError,
    UnsafeStoreError,
)
from indextables.store import Store, local, open_store
from indextables.store.backend import Backoff
from tests.servers.fixtures import StoreUrl

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
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "table")


@pytest.mark.parametrize("way", ["stream", "put", "upload"])
def test_a_killed_writer_leaves_nothing_visible_and_no_half_file(
    store: Store, tmp_path: Path, way: str
) -> None:
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
    assert store.remove_abandoned(before_ms=int(time.time() * 1000) - 3_600_000) == 0
    assert store.remove_abandoned(before_ms=int(time.time() * 1000) + 3_600_000) == len(left)
    assert way != "stream" or len(left) == 1
    assert names(tmp_path / "table") == ["other", "target"]


def test_content_is_on_disk_before_it_has_a_name_and_the_name_after(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = []

    def note(name: str, what: Any) -> None:
        real = getattr(os, name)

        def wrapper(*args: Any, **more: Any) -> Any:
            steps.append(what(*args))
            return real(*args, **more)

        monkeypatch.setattr(os, name, wrapper)

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


def fail(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    *,
    took_effect: bool = False,
    when: Callable[..., Any] = lambda *_: True,
    times: int = 1,
) -> None:
    """Let a call of the operating system fail, before or after it did what it was asked to do."""
    real = getattr(os, name)
    left = [times]

    def failing(*args: Any, **more: Any) -> Any:
        if left[0] and when(*args):
            left[0] -= 1
            if took_effect:
                real(*args, **more)
            raise OSError(number, os.strerror(number), *args[:1] if name != "fsync" else ())
        return real(*args, **more)

    monkeypatch.setattr(os, name, failing)


def is_folder(descriptor: Any, *_: Any) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_dir()


def test_a_create_whose_folder_cannot_be_flushed_is_unknown_though_it_can_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("warm", b"")
    fail(monkeypatch, "fsync", errno.EIO, when=is_folder)
    with pytest.raises(NotDurableError, match="could not be flushed"):
        store.create("v1", b"1")
    assert store.get("v1") == b"1"


@pytest.mark.parametrize("data", [b"ours", b"theirs"])
def test_a_lost_create_is_not_judged_by_bytes_that_may_not_be_on_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    store.put("v1", data)
    fail(monkeypatch, "fsync", errno.EIO, when=is_folder)
    with pytest.raises(NotDurableError):
        store.create("v1", b"ours")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EPERM])
def test_a_link_that_took_effect_before_its_error_is_a_create(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: Any
) -> None:
    store.put("warm", b"")
    fail(monkeypatch, "link", number, took_effect=True)
    assert store.create("v1", b"ours") is True
    assert [info.path for info in store.list()] == ["v1", "warm"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_link_refused_by_the_system_created_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: Any
) -> None:
    store.put("warm", b"")
    fail(monkeypatch, "link", number)
    with pytest.raises(StoreError) as caught:
        store.create("v1", b"ours")
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert names(tmp_path / "table") == ["warm"]


def test_a_link_that_never_says_what_it_did_is_unknown(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indextables.store.handle._BACKOFF", Backoff(0, 0))
    store.put("warm", b"")
    fail(monkeypatch, "link", errno.EIO, times=100)
    with pytest.raises(OutcomeUnknownError):
        store.create("v1", b"ours")


def test_any_error_after_an_attempt_in_doubt_is_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indextables.store.handle._BACKOFF", Backoff(0, 0))
    store.put("warm", b"")
    answers = iter([errno.EIO, errno.ENOSPC])

    def link(*_: Any) -> None:
        number = next(answers)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OutcomeUnknownError, match="disk is full"):
        store.create("v1", b"ours")


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_create_that_fails_before_the_link_created_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    store.put("warm", b"")
    fail(monkeypatch, call, errno.EMFILE)
    with pytest.raises(StoreError) as caught:
        store.create("v1", b"ours")
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert names(tmp_path / "table") == ["warm"]


@pytest.fixture
def one_megabyte_files() -> Iterator[None]:
    """No file of this process may grow beyond a megabyte: a write across that limit is cut short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("way", ["upload", "put", "create", "open_upload"])
def test_a_write_that_the_disk_cuts_short_is_an_error_and_leaves_nothing(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest, way: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (3 << 20))
    store.put("warm", b"")
    request.getfixturevalue("one_megabyte_files")

    def write() -> None:
        if way == "upload":
            store.upload("x", source)
        elif way == "open_upload":
            with store.open_upload("x") as sink:
                sink.write(b"x" * (3 << 20))
        else:
            getattr(store, way)("x", b"x" * (3 << 20))

    with pytest.raises(StoreError, match="File too large"):
        write()
    assert names(tmp_path / "table") == ["warm"]


class _ShortWrites:
    """A file that takes at most a thousand bytes at a time, as files may."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> Any:
        return self._file.write(memoryview(data)[:1000])

    def __getattr__(self, name: Any) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


@pytest.mark.parametrize("way", ["upload", "put", "create", "open_upload"])
def test_a_file_system_that_takes_few_bytes_at_a_time_gets_them_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    data = bytes(range(256)) * 40
    source = tmp_path / "source"
    source.write_bytes(data)

    def short(path: Any, mode: Any, **more: Any) -> Any:
        file = Path(path).open(mode, **more)  # noqa: SIM115 - the store closes it
        return _ShortWrites(file) if "x" in mode else file

    monkeypatch.setattr(local, "open", short, raising=False)
    if way == "upload":
        assert store.upload("x", source) == len(data)
    elif way == "open_upload":
        with store.open_upload("x") as sink:
            sink.write(data)
    else:
        getattr(store, way)("x", data)
    assert store.get("x") == data


def test_a_file_system_without_links_is_refused_by_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UnsafeStoreError, match=f"{store.url}.*without hard links"):
        store.check_create_if_absent()
    assert list(store.list()) == []


def test_deleting_the_last_file_removes_its_folders_up_to_the_root(store: Store, tmp_path: Path) -> None:
    store.put("a/b/c/x", b"")
    store.put("a/y", b"")
    assert store.delete(["a/b/c/x", "a/b/none"]) == 1
    assert names(tmp_path / "table" / "a") == ["y"]
    store.delete(["a/y"])
    assert names(tmp_path / "table") == []


def test_writers_and_deleters_of_one_folder_do_not_disturb_each_other(store: Store) -> None:
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


def test_a_folder_removed_between_two_looks_at_it_is_made_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("warm", b"")
    folder = tmp_path / "table" / "p=1"
    real = os.mkdir

    def another_made_and_removed_it(path: Any, *more: Any) -> Any:
        if not done:
            done.append(path)
            real(path, *more)
            folder.rmdir()
            raise FileExistsError(errno.EEXIST, "File exists", path)
        return real(path, *more)

    done: list[str] = []
    monkeypatch.setattr(os, "mkdir", another_made_and_removed_it)
    store.put("p=1/x", b"1")
    assert done
    assert store.get("p=1/x") == b"1"


def test_the_name_of_a_folder_that_another_process_made_is_flushed_before_it_is_relied_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("warm", b"")
    (tmp_path / "table" / "p=1" / "q=1").mkdir(parents=True)
    flushed = []
    real = os.fsync

    def fsync(descriptor: Any) -> None:
        flushed.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put("p=1/q=1/x", b"1")
    table = str(tmp_path / "table")
    assert flushed[:2] == [table, f"{table}/p=1"]
    assert flushed[-1] == f"{table}/p=1/q=1"
    flushed.clear()
    store.put("p=1/q=1/y", b"1")
    assert len(flushed) == 2
    # a folder that was removed and made anew by another is another folder
    for name in ("x", "y"):
        (tmp_path / "table" / "p=1" / "q=1" / name).unlink()
    (tmp_path / "table" / "p=1" / "q=1").rename(tmp_path / "table" / "p=1" / "old")
    (tmp_path / "table" / "p=1" / "q=1").mkdir()
    flushed.clear()
    store.put("p=1/q=1/x", b"1")
    assert flushed[0] == f"{table}/p=1"


def test_a_folder_that_gets_the_identity_of_a_deleted_one_is_flushed_too(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the number of a deleted folder to the next one."""
    folder = str(tmp_path / "table")
    real_stat, real_fsync = os.stat, os.fsync

    def stat_with_one_number(path: Any, **how: Any) -> os.stat_result:
        status = real_stat(path, **how)
        return os.stat_result((status.st_mode, 7, *status[2:])) if path == folder else status

    def fsync(descriptor: Any) -> None:
        flushed.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    flushed: list[str] = []
    monkeypatch.setattr(os, "stat", stat_with_one_number)
    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        flushed.clear()
        assert store.create("x", b"1")
        assert str(tmp_path) in flushed, "the name of the folder"
        shutil.rmtree(folder)


def test_a_folder_that_leads_nowhere_is_named(store: Store, tmp_path: Path) -> None:
    store.put("warm", b"")
    (tmp_path / "table" / "p=1").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="a dangling link"):
        store.put("p=1/x", b"")


def test_an_empty_folder_does_not_exist(store: Store, tmp_path: Path) -> None:
    (tmp_path / "table" / "empty" / "deep").mkdir(parents=True)
    store.put("full/x", b"")
    assert store.list_folder() == ([], ["full"])
    assert [info.path for info in store.list()] == ["full/x"]


def test_files_of_others_are_listed_as_they_are(store: Store, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    for name in (".x.crc", "_SUCCESS", "x.tmp"):
        (tmp_path / "table" / name).write_bytes(b"")
    assert [info.path for info in store.list()] == [".x.crc", "_SUCCESS", "x.tmp"]


def test_where_a_file_lies_is_told(store: Store, tmp_path: Path, make_store_url: StoreUrl) -> None:
    store.put("a/x", b"1")
    assert store.local_path("a/x") == str(tmp_path / "table" / "a" / "x")
    assert open_store(make_store_url("memory")[0]).local_path("x") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table").chmod(0o500)
    with pytest.raises(CredentialsError, match="permission denied"):
        store.put("x", b"")


def test_a_file_in_place_of_a_folder_is_named(store: Store) -> None:
    store.put("a", b"")
    with pytest.raises(StoreError, match=store.url):
        store.put("a/b", b"")
    assert not store.exists("a/b")
    assert list(store.list("a")) == []


def test_the_root_of_the_file_system_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    root = open_store("/")
    assert root.get(str(tmp_path / "x")[1:]) == b"1"
    assert root.url == "file://"


def test_a_name_that_is_too_long_is_told_once(store: Store) -> None:
    with pytest.raises(StoreError, match="File name too long"):
        store.open_upload("n" * 300 + "/file")


def test_a_disk_error_while_a_link_is_looked_up_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a.split", b"")
    fail(monkeypatch, "lstat", errno.EIO)
    with pytest.raises(StoreError, match=r"a\.split: Input/output error"):
        store.is_link("a.split")
    assert not store.is_link("a.split")
    assert not store.is_link("b.split")
