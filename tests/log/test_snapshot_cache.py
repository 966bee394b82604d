"""What is kept in memory: how often it helps, how long it stays, and that it never lies."""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indextables.cache import Cache
from indextables.log import snapshot, snapshot_cache
from indextables.log.checkpoint import checkpoint
from indextables.log.format import manifest
from indextables.log.snapshot_cache import cache_limits, cache_statistics, invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options import log as opt
from indextables.predicate import Column, Compare, Op
from indextables.store import open_store
from tests.log_tables import generations as made
from tests.log_tables.build import a_log, a_table, append, env, overwrite, paths_of, remove, split
from tests.log_tables.watched import WatchedStore
from tests.servers.fixtures import StoreUrl

OFF = {"transaction.cache.enabled": "false"}


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore(open_store(str(tmp_path / "t")))


def elsewhere(path: Path) -> TransactionLog:
    """A log as another process holds it: nothing of what it does is known here."""
    return a_log(str(path), OFF)


# --- reading less ----------------------------------------------------------------------------------


def test_a_second_look_lists_and_reads_nothing(store: WatchedStore) -> None:
    log = a_table(store)
    append(log, "a.split", "b.split")
    log.checkpoint()
    invalidate()
    log.snapshot().files()
    log.snapshot().files()
    store.watch.forget()
    assert log.snapshot().num_files == 2
    assert store.watch.seen == [("list", ""), ("list", "")]  # of versions and of states


def test_a_second_condition_that_excludes_no_manifest_reads_nothing(store: WatchedStore) -> None:
    log = a_table(store)
    append(log, "a.split", "b.split")
    log.checkpoint()
    invalidate()
    log.snapshot().files(equal("id", 1))
    store.watch.forget()
    assert log.snapshot().files(equal("id", 2)).num_rows == 2
    assert log.snapshot().num_files == 2
    assert set(store.watch.seen) == {("list", "")}


@pytest.fixture
def by_day(store: WatchedStore, monkeypatch: pytest.MonkeyPatch) -> TransactionLog:
    """Three manifests with four days each, one day in a block."""
    monkeypatch.setattr(manifest, "BLOCK_ENTRIES", 10)
    monkeypatch.setattr(snapshot, "BLOCK_ENTRIES", 10)
    monkeypatch.setattr(manifest, "_HEAD_BYTES", 100)
    log = a_table(store, columns={"id": "long", "day": "string"}, partition_by=["day"])
    for first in (1, 5, 9):
        days = [f"2024-01-{day:02d}" for day in range(first, first + 4) for _ in range(10)]
        adds = [split(f"day={day}/{n}.split", partition_values={"day": day}) for n, day in enumerate(days)]
        append(log, *adds)
        log.checkpoint(compact=False)
    invalidate()
    return log


def equal(name: str, value: int | str) -> Compare:
    return Compare(Op.EQ, Column((name,)), pa.scalar(value))


def test_the_blocks_of_a_condition_are_fetched_once(by_day: TransactionLog, store: WatchedStore) -> None:
    day = equal("day", "2024-01-06")
    first = by_day.snapshot().files(day)
    assert first.num_rows == 10
    assert len({path for path in store.watch.of("get") if "manifests/" in path}) == 1
    store.watch.forget()
    assert by_day.snapshot().files(day) == first
    assert set(store.watch.seen) == {("list", "")}
    append(by_day, split("day=2024-01-06/new.split", partition_values={"day": "2024-01-06"}))
    store.watch.forget()
    assert by_day.snapshot().files(day).num_rows == 11, "a later version starts from the same manifests"
    assert not any("manifests/" in path for path in store.watch.of("get", "head"))


def test_the_header_of_a_manifest_is_fetched_once_for_all_conditions(
    by_day: TransactionLog, store: WatchedStore
) -> None:
    by_day.snapshot().files(equal("day", "2024-01-06"))
    store.watch.forget()
    assert by_day.snapshot().files(equal("day", "2024-01-07")).num_rows == 10
    assert not store.watch.of("head")
    assert by_day.snapshot().files(equal("day", "2024-01-11")).num_rows == 10
    assert by_day.snapshot().num_files == 120


def test_blocks_are_cached_for_the_same_reader_only(
    by_day: TransactionLog, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = equal("day", "2024-01-06")
    by_day.snapshot().files(day)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    log = a_log(WatchedStore(open_store(store.url), store.watch))
    store.watch.forget()
    assert log.snapshot().files(day).num_rows == 10
    assert [path for path in store.watch.of("get") if "manifests/" in path]


def test_lists_of_some_blocks_are_bounded_like_others(by_day: TransactionLog, store: WatchedStore) -> None:
    day = equal("day", "2024-01-06")
    for options in (OFF, {"transaction.cache.fileList.maxBytes": "100"}):
        log = a_log(store, options)
        for _ in range(2):
            store.watch.forget()
            assert log.snapshot().files(day).num_rows == 10
            assert [path for path in store.watch.of("get") if "manifests/" in path]
        assert cache_statistics()["fileList"].entries == 0
        assert cache_statistics()["manifest"].entries == 0


def test_only_what_came_after_is_read(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store)
    append(log, *(f"{n}.split" for n in range(30)))
    log.checkpoint()
    invalidate()
    log.snapshot().files()
    append(elsewhere(tmp_path / "t"), "new.split")
    store.watch.forget()
    assert log.snapshot().num_files == 31
    assert store.watch.of("get") == [f"{2:020d}.json"]


def test_a_file_list_is_carried_on_by_a_commit(store: WatchedStore) -> None:
    log = a_table(store)
    append(log, "a.split")
    log.snapshot().files()
    after = append(log, "b.split")
    store.watch.forget()
    assert paths_of(after) == ["a.split", "b.split"]
    assert store.watch.seen == []


def test_earlier_versions_are_kept_too(store: WatchedStore) -> None:
    log = a_table(store)
    for n in range(4):
        append(log, f"{n}.split")
    invalidate()
    log.snapshot(version=2).files()
    store.watch.forget()
    assert log.snapshot(version=2).num_files == 2
    assert store.watch.of("get") == []


def test_hits_and_misses_are_counted(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    invalidate()
    before = cache_statistics()
    log.snapshot().files()
    log.snapshot().files()
    log.snapshot().files()
    after = cache_statistics()
    assert after["newest"].hits - before["newest"].hits == 2
    assert after["newest"].misses - before["newest"].misses == 1
    assert after["fileList"].hits - before["fileList"].hits == 2
    assert after["version"].entries == 2
    assert 0 < after["fileList"].hit_rate < 1
    assert after["fileList"].weight > 0


def test_metadata_that_had_to_be_searched_is_kept(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 5)
    store = WatchedStore(open_store(str(tmp_path / "t")))
    options = {"transaction.cache.snapshot.ttl.ms": "0"}
    a_log(store, options).snapshot()
    store.watch.forget()
    a_log(store, options).snapshot()
    assert len([p for p in store.watch.of("get") if p.startswith("state-v")]) == 1


# --- bounds ----------------------------------------------------------------------------------------


def test_off_means_nothing_is_kept(store: WatchedStore) -> None:
    log = a_table(store, OFF)
    append(log, "a.split")
    log.snapshot().files()
    log.snapshot(version=0)
    assert all(s.entries == 0 for s in cache_statistics().values())


@pytest.mark.parametrize("cache", ["snapshot", "fileList", "version"])
def test_a_capacity_of_nothing_turns_one_cache_off(tmp_path: Path, cache: str) -> None:
    log = a_table(str(tmp_path / "t"), {f"transaction.cache.{cache}.capacity": "0"})
    append(log, "a.split")
    invalidate()
    log.snapshot().files()
    log.snapshot(version=0).files()
    kept = cache_statistics()
    assert kept[cache].entries == 0
    assert sum(s.entries for s in kept.values()) > 0


def test_capacity_drops_the_least_recently_used(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"transaction.cache.version.capacity": "3"})
    for n in range(6):
        append(log, f"{n}.split")
    invalidate()
    log.snapshot()
    assert cache_statistics()["version"].entries == 3


def test_file_lists_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    options = {"transaction.cache.fileList.maxBytes": "4K"}
    log = a_table(str(tmp_path / "t"), options)
    append(log, *(f"{n}.split" for n in range(5)))
    for version in range(2):
        log.snapshot(version=version).files()
    assert 0 < cache_statistics()["fileList"].weight <= 4096
    append(log, *(f"more-{n}.split" for n in range(500)))
    log.snapshot().files()
    assert cache_statistics()["fileList"].weight <= 4096


def test_the_clock_of_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cache: Cache[str, str] = Cache(weigh=len)
    cache.put("a", "value", capacity=5)
    now[0] += 9.9
    assert cache.get("a", ttl_ms=10_000) == "value"
    now[0] += 0.2
    assert cache.get("a", ttl_ms=10_000) is None
    assert cache.statistics().entries == 0
    assert cache.statistics().weight == 0
    cache.put("a", "value", capacity=5)
    assert cache.get("a", ttl_ms=0) is None, "no time to live is off"


def test_version_files_are_bounded_by_the_bytes_of_their_text(tmp_path: Path) -> None:
    options = {"transaction.cache.fileList.maxBytes": "256K"}
    log = a_table(str(tmp_path / "t"), options)
    for version in range(12):
        append(log, *(f"{version}-{n}.split" for n in range(10)))
    invalidate()
    assert log.snapshot().num_files == 120
    kept = cache_statistics()["version"]
    assert 8192 < kept.weight <= 16384
    assert 3 < kept.entries < 12
    append(log, *(f"many-{n}.split" for n in range(500)))
    invalidate()
    assert log.snapshot().num_files == 620
    assert cache_statistics()["version"].weight <= 16384


def test_a_value_heavier_than_the_bound_is_not_kept_and_evicts_no_other() -> None:
    cache: Cache[str, str] = Cache(weigh=len)
    cache.put("a", "small", capacity=5, max_weight=10)
    cache.put("b", "x" * 11, capacity=5, max_weight=10)
    assert cache.get("b", ttl_ms=1000) is None
    assert cache.statistics().weight == 5
    cache.put("a", "x" * 11, capacity=5, max_weight=10)
    assert cache.statistics().entries == 0, "nor does the value stay that it replaces"


def test_a_value_put_twice_counts_once() -> None:
    cache: Cache[str, str] = Cache(weigh=len)
    for _ in range(3):
        cache.put("a", "value", capacity=5)
    assert (cache.statistics().entries, cache.statistics().weight) == (1, 5)


def test_times_to_live_from_the_precise_to_the_general() -> None:
    def ttl(**given: str) -> int:
        options = Options.parse({key.replace("_", "."): value for key, value in given.items()})
        return cache_limits(options, opt.CACHE_SNAPSHOT_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY).ttl_ms

    precise = {"transaction_cache_snapshot_ttl_ms": "5"}
    general = {"transaction_cache_ttl_ms": "7"}
    older = {"transaction_cache_expirationSeconds": "9"}
    assert ttl() == 600_000
    assert ttl(**older) == 9000
    assert ttl(**older, **general) == 7
    assert ttl(**older, **general, **precise) == 5


def test_one_table_is_forgotten_without_the_others(tmp_path: Path) -> None:
    for name in ("one", "two"):
        a_table(str(tmp_path / name)).snapshot().files()
    one = open_store(str(tmp_path / "one")).at("_transaction_log").url
    assert invalidate(one) > 0
    assert invalidate(one) == 0
    assert invalidate() > 0


# --- never stale -----------------------------------------------------------------------------------


def test_a_commit_of_this_process_is_seen_at_once(tmp_path: Path) -> None:
    first, second = a_table(str(tmp_path / "t")), a_log(str(tmp_path / "t"))
    second.snapshot().files()
    append(first, "a.split")
    assert paths_of(second.snapshot()) == ["a.split"]
    remove(second, "a.split")
    assert paths_of(first.snapshot()) == []


def test_a_commit_of_another_process_is_seen_at_once(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    log.snapshot().files()
    overwrite(elsewhere(tmp_path / "t"), "b.split")
    assert paths_of(log.snapshot()) == ["b.split"]
    elsewhere(tmp_path / "t").checkpoint()
    assert log.snapshot().base.version == 2, "the newest state is taken as the base"
    elsewhere(tmp_path / "t").truncate()
    append(elsewhere(tmp_path / "t"), "c.split")
    assert paths_of(log.snapshot()) == ["b.split", "c.split"]


def test_states_of_another_engine_are_seen_at_once(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 2)
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot().version == 2
    table.state(3, [table.manifest("manifests/manifest-x.avro", [made.entry("x.split")])])
    assert paths_of(log.snapshot()) == ["x.split"]


def test_a_state_that_appears_before_the_known_version_misleads_nobody(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    other = elsewhere(tmp_path / "t")
    append(other, "a.split")
    early = other.snapshot()
    append(other, "b.split")
    remove(other, "a.split")
    assert paths_of(log.snapshot()) == ["b.split"]
    checkpoint(other._loader, early, env(), compact=True)
    append(other, "c.split")
    assert paths_of(log.snapshot()) == ["b.split", "c.split"]
    invalidate()
    assert paths_of(log.snapshot()) == ["b.split", "c.split"]


def remade(path: Path, *, read_between: bool, options: Any = None) -> None:
    """A table of three versions is deleted and made anew with three others by another process."""
    log = a_table(str(path), options)
    append(log, "old-1.split")
    append(log, "old-2.split")
    if read_between:
        log.snapshot().files()
        log.snapshot(version=1).files()
    shutil.rmtree(path)
    other = a_table(str(path), OFF)
    append(other, "new-1.split")
    append(other, "new-2.split")
    assert paths_of(log.snapshot()) == ["new-1.split", "new-2.split"]
    assert paths_of(log.snapshot(version=1)) == ["new-1.split"]
    assert log.snapshot().metadata.id == other.snapshot().metadata.id
    assert [e.timestamp for e in log.history()] == [e.timestamp for e in other.history()]


@pytest.mark.parametrize("read_between", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transaction.cache.snapshot.capacity": "0"},
        {"transaction.cache.fileList.capacity": "0"},
        {"transaction.cache.version.capacity": "0"},
    ],
    ids=["all caches", "no snapshots", "no lists", "no versions"],
)
def test_a_table_made_anew_with_as_many_versions_is_noticed(
    tmp_path: Path, read_between: bool, options: Any
) -> None:
    remade(tmp_path / "t", read_between=read_between, options=options)


def test_a_table_made_anew_is_noticed_when_only_states_stand(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 2)
    log = a_log(str(tmp_path / "t"))
    log.snapshot().files()
    log.snapshot(version=1).files()
    shutil.rmtree(tmp_path / "t")
    table = made.HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata(made.PARTITIONED, ["date"]), form="legacy")
    for version in (1, 2):
        table.state(
            version, [table.manifest(f"manifests/manifest-{version}.avro", [made.entry(f"n{version}.split")])]
        )
    assert paths_of(log.snapshot()) == ["n2.split"]
    assert log.snapshot().partition_columns == ("date",)
    assert paths_of(log.snapshot(version=1)) == ["n1.split"]


def test_a_table_restored_from_a_backup_and_written_again_is_noticed(tmp_path: Path) -> None:
    """Same table, same number of versions, another last commit."""
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    append(log, "b.split")
    log.snapshot().files()
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "backup", tmp_path / "t")
    append(elsewhere(tmp_path / "t"), "c.split")
    assert paths_of(log.snapshot()) == ["a.split", "c.split"]


def test_a_table_that_was_deleted_is_gone(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    log.snapshot().files()
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(Exception, match="no table at"):
        log.snapshot()
    assert snapshot_cache.NEWEST.statistics().entries == 0


@pytest.mark.server
def test_a_table_made_anew_within_one_tick_of_the_stores_clock_is_noticed(make_store_url: StoreUrl) -> None:
    """S3 tells times to the second; the tag of an object tells more."""
    url, secrets = make_store_url("s3")
    for _ in range(3):
        log = a_table(url, secrets)
        append(log, "old.split")
        log.snapshot().files()
        store = open_store(url, Options.parse(secrets))
        store.delete([info.path for info in store.list()])
        other = a_table(url, {**secrets, **OFF})
        append(other, "new.split")
        assert paths_of(log.snapshot()) == ["new.split"]
        store.delete([info.path for info in store.list()])
