"""A forked child never waits for a lock that a thread of its parent held at that moment."""

import faulthandler
import gc
import importlib
import itertools
import os
import pkgutil
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.errors import IndexTablesError
from indextables.options import Options
from indextables.split.index.cache import index_cache
from indextables.split.mapping import mapping_for
from indextables.split.writer import IndexBuilder

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Semaphore)


def modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(indextables.__path__, "indextables."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def places() -> dict[str, Callable[[], Any]]:
    """Every lock that lives as long as the process, by where it is; a call looks at what is there now."""
    found: dict[str, Callable[[], Any]] = {}
    for module in modules():
        value: Any
        for name, value in vars(module).items():
            where = f"{module.__name__}.{name}"
            if isinstance(value, LOCKS):
                found[where] = lambda m=module, n=name: getattr(m, n)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for key, attribute in vars(value).items():
                    if isinstance(attribute, cached_property) and "lock" in vars(attribute):
                        found[f"{where}.{key}"] = lambda a=attribute: vars(a)["lock"]
            elif isinstance(value, dict):
                found |= {
                    f"{where}[...].{key}": lambda d=value, k=key: next(
                        (getattr(each, k) for each in d.values()), None
                    )
                    for each in value.values()
                    for key in _lock_names(each)
                }
            else:
                found |= {
                    f"{where}.{key}": lambda v=value, k=key: getattr(v, k) for key in _lock_names(value)
                }
    return found


def _lock_names(value: object) -> list[str]:
    if not type(value).__module__.startswith("indextables"):
        return []
    names = [*getattr(value, "__dict__", ()), *getattr(value, "__slots__", ())]
    return [name for name in names if isinstance(getattr(value, name, None), LOCKS)]


@contextmanager
def held_by_a_thread(locks: Iterable[Callable[[], Any]]) -> Iterator[None]:
    """Locks that another thread holds until the block ends."""
    each = {id(lock): lock for get in locks if (lock := get()) is not None}

    def hold() -> None:
        with ExitStack() as stack:
            for lock in each.values():
                stack.enter_context(lock)
                # of a semaphore all that it has
                while isinstance(lock, threading.Semaphore) and lock.acquire(blocking=False):
                    stack.callback(lock.release)
            holding.set()
            release.wait()

    holding, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        assert holding.wait(60)
        yield
    finally:
        release.set()
        thread.join(60)


def in_child(work: Callable[[], None]) -> str:
    """What a forked child says: nothing if all went well; HANGS if it does not end."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what is tested here
        child = os.fork()
    if child == 0:
        said = b""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = repr(error).encode()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([pipe], [], [], 30)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "HANGS"
        heard = pipe.read().decode()
    os.waitpid(child, 0)
    return heard


def test_every_lock_that_is_held_at_a_fork_is_free_in_the_child(tmp_path: Path) -> None:
    index_cache(Options.parse({"cache.disk.path": str(tmp_path)}))
    locks = places()
    assert {"indextables.log.snapshot_cache.NEWEST._lock", "indextables.metrics._lock"} <= locks.keys()
    assert len(locks) > 8

    def work() -> None:
        now = {where: get() for where, get in locks.items()}
        once = {id(lock): (where, lock) for where, lock in now.items() if lock is not None}
        stuck = [where for where, lock in once.values() if not lock.acquire(blocking=False)]
        assert not stuck, stuck

    with held_by_a_thread(locks.values()):
        said = in_child(work)
    assert said == ""


def test_a_child_reads_a_table_though_a_thread_of_its_parent_was_inside_every_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    indextables.write(path, [{"id": 1, "text": "one word"}], options={"checkpoint.enabled": "false"})
    indextables.open(path).scan()

    def work() -> None:
        assert indextables.open(path).scan(where="id = 1").num_rows == 1
        indextables.write(path, [{"id": 2, "text": "two"}], options={"checkpoint.enabled": "false"})

    with held_by_a_thread(places().values()):
        said = in_child(work)
    assert said == ""
    assert indextables.open(path).count() == 2


def test_children_answer_and_write_while_threads_of_their_parent_do(tmp_path: Path) -> None:
    options = {"indexing.typemap.t": "text", "cache.disk.path": str(tmp_path / "cache")}
    path = str(tmp_path / "t")
    rows = [{"id": n, "t": f"word{n} all"} for n in range(200)]
    indextables.write(path, rows, options=options)
    stop = threading.Event()
    failures: list[BaseException] = []

    def write_and_merge() -> Iterator[None]:
        for n in itertools.count():
            table = indextables.write(str(tmp_path / "other"), rows, options=options)
            if n % 3 == 2:
                table.merge()
            yield

    def search_without_cached_indexes() -> Iterator[None]:
        for n in itertools.count():
            table = indextables.open(
                path, options={**options, "cache.disk.path": str(tmp_path / f"cache{n % 3}")}
            )
            assert table.search("all", field="t", limit=None).num_rows == 200
            assert table.scan(where="id >= 100").num_rows == 100
            yield

    def repeat(steps: Iterator[None]) -> None:
        try:
            while not stop.is_set():
                next(steps)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    def work() -> None:
        faulthandler.dump_traceback_later(25)  # where it hangs
        table = indextables.open(path, options=options)
        assert table.count("t INDEXQUERY 'word7'") == 1
        assert table.scan(where="t INDEXQUERY 'all'").num_rows == 200
        indextables.write(str(tmp_path / "child"), [{"t": "of a child"}], options=options)
        gc.collect()

    threads = [
        threading.Thread(target=repeat, args=(steps(),), daemon=True)
        for steps in (write_and_merge, search_without_cached_indexes)
    ]
    for thread in threads:
        thread.start()
    try:
        said = [in_child(work) for _ in range(8)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert said == [""] * 8
    assert not failures


def test_a_child_deletes_writers_of_its_parent_without_waiting_for_their_threads(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fields = pa.schema([("t", pa.string())])
    options = Options.parse({"indexWriter.tempDirectoryPath": str(tmp_path)})
    builders = [IndexBuilder(mapping_for(fields, options, ()), 0, options)]
    builders[0].add(pa.record_batch({"t": ["one", "two"]}))

    def work() -> None:
        builders.clear()
        gc.collect()

    assert in_child(work) == ""
    assert capfd.readouterr().err == ""
    assert builders[0].finish().is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="forks as Linux does")
def test_the_private_folder_of_a_process_outlives_its_forked_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = {"cache.disk.enabled": "false"}
    cache = index_cache(Options.parse(options))

    def work() -> None:
        import weakref  # noqa: PLC0415 - what ends with the interpreter

        assert index_cache(Options.parse(options)).folder != cache.folder
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            if finalizer.atexit and finalizer.peek()[1].__name__ == "_remove_private":
                finalizer()

    assert in_child(work) == ""
    assert cache.folder.is_dir()
    with pytest.raises(IndexTablesError):
        indextables.open(str(tmp_path / "none")).scan()
