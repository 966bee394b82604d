"""The disk cache: entries come whole, stay while used, go when too many, survive crashes."""

import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import SplitError
from indextables.options import Options
from indextables.split.index import cache as cache_folders
from indextables.split.index import cache_entry as entries
from indextables.split.index.cache import IndexCache, Lease, index_cache
from indextables.split.index.cache_entry import (
    VERIFY_AFTER_S,
    CachedPiece,
    read_entry,
    whole_files,
    write_entry,
)

CONTENT = {"a.term": b"terms" * 10, "meta.json": b"{}"}
SIZE = sum(len(data) for data in CONTENT.values())


def fill(folder: Path) -> list[CachedPiece]:
    for name, data in CONTENT.items():
        (folder / name).write_bytes(data)
    return [CachedPiece(name, 0, len(data), zlib.crc32(data)) for name, data in CONTENT.items()]


def never(folder: Path) -> list[CachedPiece]:
    raise AssertionError("the entry should be there")


def age(cache: IndexCache, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(cache.folder / "entries" / key / "entry.json", (then, then))


def test_an_entry_is_fetched_once_and_then_found(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    with cache.lease("k", SIZE, fill) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]
    with IndexCache(tmp_path).lease("k", SIZE, never) as lease:
        assert (lease.folder / "meta.json").read_bytes() == b"{}"
    stats = cache.stats()
    assert (stats.entries, stats.bytes, stats.hits, stats.misses, stats.bytes_fetched) == (
        1,
        SIZE,
        0,
        1,
        SIZE,
    )


def test_a_failed_fetch_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)

    def fail(folder: Path) -> list[CachedPiece]:
        (folder / "a.term").write_bytes(b"half")
        raise ValueError("the store went away")

    with pytest.raises(ValueError, match="went away"):
        cache.lease("k", SIZE, fail)
    assert not cache.holds("k")
    assert list((tmp_path / "arriving").iterdir()) == []
    with cache.lease("k", SIZE, fill):
        assert cache.holds("k")


def test_an_index_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match="52 bytes, but 99 were expected"):
        IndexCache(tmp_path).lease("k", 99, fill)


@pytest.mark.parametrize("harm", ["cut", "missing", "no facts", "garbled facts"])
def test_a_damaged_entry_is_fetched_again(tmp_path: Path, harm: str) -> None:
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, fill).close()
    entry = tmp_path / "entries" / "k"
    match harm:
        case "cut":
            (entry / "a.term").write_bytes(b"terms")
        case "missing":
            (entry / "a.term").unlink()
        case "no facts":
            (entry / "entry.json").unlink()
        case "garbled facts":
            (entry / "entry.json").write_text("{")
        case _:
            pass
    with cache.lease("k", SIZE, fill) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


def fill_and_read_again(folder: Path) -> list[CachedPiece]:
    """As one who did not see the bytes go by."""
    fill(folder)
    return whole_files(folder)


WRITERS = [fill, fill_and_read_again]


@pytest.mark.parametrize("write", WRITERS)
def test_bytes_spoilt_by_a_machine_crash_are_noticed_after_the_reboot(tmp_path: Path, write: Any) -> None:
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, write).close()
    entry = tmp_path / "entries" / "k"
    (entry / "a.term").write_bytes(bytes(len(CONTENT["a.term"])))
    write_entry(entry, replace(read_entry(entry), boot="an earlier one"))
    with cache.lease("k", SIZE, fill) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_sound_entry_survives_a_reboot(tmp_path: Path, write: Any) -> None:
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, write).close()
    entry = tmp_path / "entries" / "k"
    facts = read_entry(entry)
    write_entry(entry, replace(facts, boot="an earlier one"))
    cache.lease("k", SIZE, never).close()
    assert read_entry(entry).boot == facts.boot


def spoil(path: Path) -> None:
    """Change a byte in place, as other programs and failing disks do."""
    with path.open("r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("name", ["a.term", "meta.json", "entry.json"])
@pytest.mark.parametrize("by", ["this process", "another"])
def test_a_changed_byte_is_noticed_and_the_entry_replaced_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, by: str
) -> None:
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, fill).close()
    spoil(tmp_path / "entries" / "k" / name)
    later = cache if by == "this process" else IndexCache(tmp_path)
    for write in (fill, never):
        with later.lease("k", SIZE, write) as lease:
            assert {n: (lease.folder / n).read_bytes() for n in CONTENT} == CONTENT
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "entries/k was damaged; it was fetched from its split again" in caplog.text


def test_whoever_uses_an_entry_notices_a_changed_byte(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    with cache.lease("k", SIZE, fill) as lease:
        assert lease.is_current()
        os.utime(lease.folder / "a.term")
        assert lease.is_current(), "another time, the same bytes"
        spoil(lease.folder / "a.term")
        assert not lease.is_current()


def test_bytes_that_a_disk_changed_silently_are_noticed_after_a_while(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, fill).close()
    entry = tmp_path / "entries" / "k"
    spoil(entry / "a.term")
    files = {path.name: path.stat() for path in entry.iterdir() if path.name in CONTENT}
    stamps = {n: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for n, s in files.items()}
    # The change does not show in the file's stamp.
    write_entry(entry, replace(read_entry(entry), files=stamps))
    cache.lease("k", SIZE, never).close()
    write_entry(entry, replace(read_entry(entry), verified=time.time() - VERIFY_AFTER_S - 1))
    with cache.lease("k", SIZE, fill) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


def test_a_disk_that_keeps_nothing_is_an_error_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = IndexCache(tmp_path)
    monkeypatch.setattr("indextables.split.index.cache.validate", lambda entry, facts: None)
    with pytest.raises(SplitError, match=r"differ from what was written.*cache\.disk\.path"):
        cache.lease("k", SIZE, fill)


def test_what_the_cache_holds_is_counted_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold search over many splits must not look at every entry for every split."""
    cache = IndexCache(tmp_path)
    looked = []
    real = entries.allocated_bytes
    monkeypatch.setattr(
        "indextables.split.index.cache.allocated_bytes", lambda e: looked.append(e) or real(e)
    )
    for n in range(100):
        cache.lease(f"k{n}", SIZE, fill).close()
    assert len(looked) <= 100


def test_a_cache_of_many_entries_stays_below_its_limit_at_a_bounded_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = IndexCache(tmp_path, limit=100 * SIZE)
    looked = []
    real = entries.allocated_bytes
    monkeypatch.setattr(
        "indextables.split.index.cache.allocated_bytes", lambda e: looked.append(e) or real(e)
    )
    for n in range(300):
        cache.lease(f"k{n}", SIZE, fill).close()
        assert sum(1 for _ in (tmp_path / "entries").iterdir()) <= 101
    assert cache.stats().entries >= 80
    assert len(looked) < 300 * 100 / 2


def test_entries_that_are_all_in_use_are_not_counted_for_every_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = IndexCache(tmp_path, limit=0)
    looked = []
    real = entries.allocated_bytes
    monkeypatch.setattr(
        "indextables.split.index.cache.allocated_bytes", lambda e: looked.append(e) or real(e)
    )
    leases = [cache.lease(f"k{n}", SIZE, fill) for n in range(200)]
    assert len(looked) < 10 * 200
    for lease in leases:
        lease.close()
    cache.flush()
    assert cache.stats().entries == 0


def test_the_files_of_an_entry_that_did_not_change_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = IndexCache(tmp_path)
    looked: list[str] = []
    real = entries.allocated_bytes
    monkeypatch.setattr(
        "indextables.split.index.cache.allocated_bytes", lambda e: looked.append(Path(e).name) or real(e)
    )
    for n in range(4):
        cache.lease(f"k{n}", SIZE, fill).close()
    for key in ("k0", "k1", "k2"):
        age(cache, key, 100)
    assert cache.stats().bytes == 4 * SIZE
    looked.clear()
    assert cache.stats().bytes == 4 * SIZE
    assert looked == ["k3"], "the space of young files may not be allocated yet"
    # Another process writes more into an entry.
    contents = read_entry(tmp_path / "entries" / "k1")
    assert contents is not None
    (tmp_path / "entries" / "k1" / "b.term").write_bytes(b"more")
    write_entry(tmp_path / "entries" / "k1", contents)
    assert cache.stats().bytes == 4 * SIZE + 4
    shutil.rmtree(tmp_path / "entries" / "k2")
    assert (cache.stats().entries, cache.stats().bytes) == (3, 3 * SIZE + 4)


def test_the_longest_unused_entry_goes_first(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, limit=2 * SIZE)
    for n, key in enumerate(("old", "older", "new")):
        cache.lease(key, SIZE, fill).close()
        if key != "new":
            age(cache, key, 100 + 100 * n)
    assert (cache.holds("old"), cache.holds("older"), cache.holds("new")) == (True, False, True)
    assert cache.stats().evictions == 1
    assert cache.stats().bytes_evicted == SIZE


def test_using_an_entry_makes_it_young_again(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, limit=2 * SIZE)
    for key in ("a", "b"):
        cache.lease(key, SIZE, fill).close()
    age(cache, "a", 500)
    age(cache, "b", 400)
    cache.lease("a", SIZE, never).close()
    cache.lease("c", SIZE, fill).close()
    assert (cache.holds("a"), cache.holds("b")) == (True, False)


def test_an_entry_in_use_is_not_removed(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, limit=0)
    with cache.lease("k", SIZE, fill) as lease:
        assert IndexCache(tmp_path).flush().entries == 0
        assert (lease.folder / "a.term").exists()
    assert not cache.holds("k")


def test_flush_says_what_it_freed(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    for key in ("a", "b"):
        cache.lease(key, SIZE, fill).close()
    freed = cache.flush()
    assert (freed.entries, freed.files, freed.bytes) == (2, 4, 2 * SIZE)
    assert list((tmp_path / "locks").iterdir()) == []


def test_threads_that_want_the_same_entry_fetch_it_once(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    fetched = []

    def slow(folder: Path) -> list[CachedPiece]:
        fetched.append(1)
        time.sleep(0.05)
        return fill(folder)

    leases = []
    threads = [threading.Thread(target=lambda: leases.append(cache.lease("k", SIZE, slow))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(leases) == 8
    assert len(fetched) == 1


def test_who_comes_late_does_not_wait_for_those_who_use_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = IndexCache(tmp_path).lease("k", SIZE, fill)
    late = IndexCache(tmp_path)
    real, looked = IndexCache._enter, []

    def enter(cache: IndexCache, key: str, size: int | None) -> Lease | None:
        looked.append(cache)
        return None if looked.count(late) == 1 else real(cache, key, size)

    monkeypatch.setattr(IndexCache, "_enter", enter)
    with late.lease("k", SIZE, never) as second:
        assert second.folder == first.folder
    assert (late.stats().hits, late.stats().misses) == (1, 0)
    assert list((tmp_path / "arriving").iterdir()) == []


def test_a_damaged_entry_is_replaced_though_someone_uses_it(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    with cache.lease("k", SIZE, fill) as old:
        (old.folder / "a.term").write_bytes(b"cut")
        with cache.lease("k", SIZE, fill) as new:
            assert (new.folder / "a.term").read_bytes() == CONTENT["a.term"]


def _stress(folder: str, seed: int) -> None:
    cache = IndexCache(Path(folder), limit=2 * SIZE)
    for n in range(40):
        with cache.lease(f"k{(n * (seed + 1)) % 5}", SIZE, fill) as lease:
            assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


def test_processes_fetch_use_and_evict_side_by_side(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    workers = [spawn.Process(target=_stress, args=(str(tmp_path), seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert IndexCache(tmp_path, limit=2 * SIZE).stats().bytes <= 3 * SIZE


def _die_with_lease(folder: str) -> None:
    lease = IndexCache(Path(folder)).lease("k", SIZE, fill)
    assert lease.folder.exists()
    os._exit(9)


def _die_while_fetching(folder: str) -> None:
    def die(arriving: Path) -> list[CachedPiece]:
        (arriving / "a.term").write_bytes(b"half")
        os._exit(9)

    IndexCache(Path(folder)).lease("k", SIZE, die)


@pytest.mark.parametrize("death", [_die_with_lease, _die_while_fetching])
def test_a_dead_process_leaves_a_usable_cache(tmp_path: Path, death: Any) -> None:
    worker = multiprocessing.get_context("fork").Process(target=death, args=(str(tmp_path),))
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    cache = IndexCache(tmp_path)
    cache.lease("k", SIZE, fill).close()
    for left in (tmp_path / "arriving").iterdir():
        os.utime(left, (0, 0))
    cache.flush()
    assert list((tmp_path / "arriving").iterdir()) == []
    assert list((tmp_path / "entries").iterdir()) == []


def test_options_name_the_folder_and_the_limit(tmp_path: Path) -> None:
    options = Options.parse({"cache.disk.path": str(tmp_path / "c"), "cache.disk.maxSize": "3M"})
    cache = index_cache(options)
    assert (cache.folder, cache.limit) == (tmp_path / "c", 3 << 20)
    assert index_cache(options) is cache
    assert index_cache(Options.parse({"cache.directoryPath": str(tmp_path / "d")})).folder == tmp_path / "d"


def test_without_a_disk_cache_entries_live_in_a_folder_of_the_process() -> None:
    cache = index_cache(Options.parse({"cache.disk.enabled": False}))
    cache.lease("k", SIZE, fill).close()
    assert cache.holds("k")
    assert cache.folder != index_cache(Options.parse({})).folder
    cache.flush()


def test_a_cache_whose_folder_was_deleted_says_that_it_is_empty(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path / "c")
    with cache.lease("k", SIZE, fill):
        shutil.rmtree(tmp_path / "c")
        assert not cache.holds("k")
        assert (cache.stats().entries, cache.flush().entries) == (0, 0)
    with cache.lease("k", SIZE, fill) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SplitError, match=r"file.*cache\.disk\.path"):
        IndexCache(tmp_path / "file")


def test_a_copy_that_takes_longer_than_an_hour_is_not_swept_away(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    IndexCache(tmp_path).lease("old", SIZE, fill).close()

    def slowly(folder: Path) -> list[CachedPiece]:
        copied = fill(folder)
        os.utime(folder, (1, 1))
        IndexCache(tmp_path).flush()
        assert (folder / "a.term").exists()
        return copied

    with cache.lease("k", SIZE, slowly) as lease:
        assert (lease.folder / "a.term").read_bytes() == CONTENT["a.term"]


def test_what_a_dead_process_left_on_its_way_is_swept_away(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    left = tmp_path / "arriving" / "1-0123"
    left.mkdir()
    (left / "a.term").write_bytes(b"half")
    lock = tmp_path / "arriving" / "k.lock"
    lock.touch()
    for path in (left, lock):
        os.utime(path, (1, 1))
    cache.flush()
    assert list((tmp_path / "arriving").iterdir()) == []


@pytest.fixture
def shared_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place like /tmp, and nothing known of it yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache_folders._warn_private.cache_clear()
    cache_folders.private_folder.cache_clear()
    yield tmp_path / f"indextables-cache-{os.geteuid()}"
    cache_folders.private_folder.cache_clear()


def test_the_cache_in_shared_space_is_closed_to_others(shared_space: Path) -> None:
    shared_space.mkdir(mode=0o755)
    index_cache(Options()).lease("k", SIZE, fill).close()
    for folder in (shared_space, *(shared_space / name for name in ("entries", "locks", "arriving"))):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["link", "file", "other user"])
def test_what_others_put_in_the_place_of_the_cache_does_not_switch_searching_off(
    shared_space: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, planted: str
) -> None:
    victim = shared_space.parent / "victim"
    (victim / "arriving").mkdir(parents=True)
    thesis = victim / "arriving" / "thesis.tex"
    thesis.write_text("x")
    os.utime(thesis, (1, 1))
    if planted == "link":
        shared_space.symlink_to(victim)
    elif planted == "file":
        shared_space.write_text("")
    else:
        other = os.geteuid() + 1
        (shared_space.parent / f"indextables-cache-{other}").mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: other)
        assert cache_folders.shared_folder(Options()) == cache_folders.private_folder()
        return
    for _ in range(2):
        index_cache(Options()).lease("k", SIZE, fill).close()
    index_cache(Options()).flush()
    assert thesis.exists()
    assert index_cache(Options()).folder == cache_folders.private_folder()
    (warning,) = (record.message for record in caplog.records)
    assert "cached for this process only" in warning


def test_a_named_cache_folder_keeps_its_mode_and_may_be_reached_by_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    real.chmod(0o755)
    (tmp_path / "link").symlink_to(real)
    cache = index_cache(Options.parse({"cache.disk.path": str(tmp_path / "link")}))
    cache.lease("k", SIZE, fill).close()
    assert real.stat().st_mode & 0o777 == 0o755
    assert (real / "entries").stat().st_mode & 0o777 == 0o700


def test_a_named_cache_folder_that_everyone_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SplitError, match="everyone can write to"):
        IndexCache(tmp_path)
