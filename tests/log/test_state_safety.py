"""Readers and commits rely only on states that are complete and belong to the table."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import (
    OptionError,
    StateExpiredError,
    StoreError,
)
from indextables.log.checkpoint import checkpoint
from indextables.log.environment import Environment
from indextables.log.format import checkpoint_files
from indextables.log.format.names import version_file
from indextables.log.history import CommitOutcome
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import open_store
from tests.log_tables.build import (
    a_log,
    a_table,
    append,
    paths_of,
    remove,
)
from tests.log_tables.watched import Watch, WatchedStore


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore(open_store(tmp_path / "t"))


def fresh(path: Path | str) -> list[str]:
    invalidate()
    return paths_of(a_log(str(path)).snapshot())


def with_state(path: Path) -> TransactionLog:
    log = a_table(str(path))
    append(log, *(f"{n}.split" for n in range(30)))
    log.checkpoint()
    append(log, "new.split")
    return log


def test_nobody_relies_on_a_state_whose_base_is_gone_though_its_manifests_are_there(
    store: WatchedStore, tmp_path: Path
) -> None:
    """They are about to be deleted: cleaning deletes the base first."""
    with_state(tmp_path / "t")
    folder = tmp_path / "t/_transaction_log"
    log = a_log(store)

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path.startswith("state-v"):
            (folder / f"state-v{1:020d}/_manifest.avro").unlink()
        return answer

    store.watch.after = after
    with pytest.raises(StateExpiredError):
        log.checkpoint(compact=False)
    assert json.loads((folder / "_last_checkpoint").read_bytes())["version"] == 1
    store.watch.after = Watch().after
    for manifest in (folder / "manifests").iterdir():
        manifest.unlink()
    assert len(fresh(tmp_path / "t")) == 31


def test_nobody_relies_on_a_compacted_state_whose_manifests_were_deleted(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split")
    manifests = tmp_path / "t/_transaction_log/manifests"

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("state-v"):
            for manifest in manifests.iterdir():
                manifest.unlink()

    store.watch.before = before
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_state_of_a_table_that_was_replaced_is_not_written(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store)
    append(log, "a.split")

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("state-v"):
            store.watch.before = Watch().before
            shutil.rmtree(tmp_path / "t")
            append(a_table(str(tmp_path / "t")), "other.split")

    store.watch.before = before
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert fresh(tmp_path / "t") == ["other.split"]


def test_young_manifests_are_kept_unless_that_is_switched_off(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"state.gc.minManifestAgeHours": "0"})
    with pytest.raises(OptionError, match="minManifestAgeCheckEnabled=false"):
        log.clean()


def test_a_clock_that_is_hours_ahead_makes_nothing_old(tmp_path: Path) -> None:
    """Ages are told by the store's clock; a machine whose own clock is too far from it deletes nothing."""
    log = with_state(tmp_path / "t")
    ahead = replace(log._env, now_ms=lambda: int(time.time() * 1000) + 5 * 3_600_000)
    cleaner = TransactionLog(
        open_store(tmp_path / "t"), Options.parse({"checkpoint.enabled": "false"}), engine="test"
    )
    cleaner._env = replace(cleaner._env, now_ms=ahead.now_ms)
    stray = tmp_path / "t/_transaction_log/manifests/manifest-unnamed.avro"
    stray.write_bytes(b"of a checkpoint that still runs")
    cleaner.clean()
    assert stray.exists()


@pytest.mark.parametrize("seconds", [3500, 3700])
def test_the_tolerated_difference_of_clocks_is_one_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    with_state(tmp_path / "t")
    cleaner = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + seconds * 10**9)
    if seconds < 3600:
        cleaner.clean()
    else:
        with pytest.raises(StoreError, match="3600 are tolerated"):
            cleaner.clean()


def test_a_live_path_named_again_by_another_engine_and_removed_stays_removed(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"state.compaction.tombstoneThreshold": "10"})
    append(log, "a.split", "b.split")
    log.checkpoint()
    again = {"add": {"path": "a.split", "size": 11, "modificationTime": 1, "dataChange": False}}
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(json.dumps(again) + "\n")
    invalidate()
    remove(log, "a.split")
    replayed = fresh(tmp_path / "t")
    written = log.checkpoint(compact=False)
    assert fresh(tmp_path / "t") == replayed == ["b.split"]
    assert written.num_files == 1


def test_a_checkpoint_mends_a_table_whose_newest_state_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = with_state(tmp_path / "t")
    log.checkpoint()
    expected = fresh(tmp_path / "t")
    for manifest in (tmp_path / "t/_transaction_log/manifests").iterdir():
        manifest.write_bytes(b"garbage")
    assert fresh(tmp_path / "t") == expected
    assert fresh(tmp_path / "t") == expected
    assert caplog.text.count("CHECKPOINT INDEXTABLES writes a new state") == 1, "each damage is reported once"
    a_log(str(tmp_path / "t")).checkpoint()
    caplog.clear()
    assert fresh(tmp_path / "t") == expected
    assert not caplog.text


def test_a_state_is_not_checked_again_once_others_may_rely_on_it(store: WatchedStore, tmp_path: Path) -> None:
    """Only the pointer could not be written; meanwhile a truncation deletes the base."""
    with_state(tmp_path / "t")
    log = a_log(store)
    failures: list[Any] = []

    def before(operation: str, path: str) -> None:
        if operation == "put" and path == "_last_checkpoint" and not failures:
            failures.append(path)
            shutil.rmtree(tmp_path / f"t/_transaction_log/state-v{1:020d}")
            raise StoreError("503")

    store.watch.before = before
    assert log.checkpoint(compact=False).written
    assert (tmp_path / f"t/_transaction_log/state-v{2:020d}/_manifest.avro").exists()
    assert len(fresh(tmp_path / "t")) == 31


def test_nobody_relies_on_a_state_that_appears_long_after_its_manifests(
    store: WatchedStore, tmp_path: Path
) -> None:
    """A cleaning that found the manifests old and unreferenced may be about to delete them."""
    now = 1_775_000_000_000
    table = a_table(store)
    append(table, "a.split")

    def after(operation: str, path: str, answer: object) -> object:
        nonlocal now
        if operation == "create" and path.startswith("state-v"):
            now += 2 * 3_600_000
        return answer

    store.watch.after = after
    watched: Any = store
    log = TransactionLog(watched, Options(), engine="slow", env=Environment(now_ms=lambda: now))
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    folder = tmp_path / "t/_transaction_log"
    assert not (folder / "_last_checkpoint").exists()
    store.watch.after = Watch().after
    # A truncation that follows writes a state of its own.
    version, _ = a_log(store).truncate()
    assert version == 2
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_state_that_nobody_relies_on_is_not_deleted(store: WatchedStore, tmp_path: Path) -> None:
    """The deletion could arrive late, and hit another state of the same version."""
    table = a_table(store)
    append(table, "a.split")
    deleted: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("state-v"):
            for manifest in (tmp_path / "t/_transaction_log/manifests").iterdir():
                manifest.unlink()
        elif operation == "delete":
            deleted.append(path)

    store.watch.before = before
    with pytest.raises(StateExpiredError):
        table.checkpoint()
    assert deleted == []
    store.watch.before = Watch().before
    assert table.checkpoint().version == 2
    assert fresh(tmp_path / "t") == ["a.split"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_json_checkpoint_of_a_version_that_is_gone_is_not_left(
    store: WatchedStore, tmp_path: Path, when: str
) -> None:
    table = a_table(str(tmp_path / "t"))
    append(table, "a.split")
    folder = tmp_path / "t/_transaction_log"

    def replace_table() -> None:
        shutil.rmtree(tmp_path / "t")
        append(a_table(str(tmp_path / "t")), "other.split")

    def before(operation: str, path: str) -> None:
        if operation == ("list" if when == "before" else "create") and seen:
            store.watch.before = Watch().before
            replace_table()
        seen.append(operation)

    seen: list[str] = []
    log = a_log(store, {"state.format": "json"})
    snapshot = log.snapshot()
    store.watch.before = before
    with pytest.raises(StateExpiredError):
        checkpoint(log._loader, snapshot, Environment(), compact=True)
    assert not list(folder.glob("*.checkpoint*"))
    assert fresh(tmp_path / "t") == ["other.split"]


def test_a_json_checkpoint_of_a_table_that_was_created_again_stays(
    store: WatchedStore, tmp_path: Path
) -> None:
    """The new table has no other base; the late checkpoint of the old one has the same number."""
    append(a_table(str(tmp_path / "t")), "a.split")

    def before(operation: str, path: str) -> None:
        if operation in {"put", "create"} and path.endswith(".checkpoint.json"):
            store.watch.before = Watch().before
            shutil.rmtree(tmp_path / "t")
            append(a_table(str(tmp_path / "t")), "other.split")
            assert a_log(str(tmp_path / "t"), {"state.format": "json"}).truncate()[0] == 1

    log = a_log(store, {"state.format": "json"})
    store.watch.before = before
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert fresh(tmp_path / "t") == ["other.split"]


@pytest.mark.parametrize("how", ["deleted", "slow"])
def test_nobody_relies_on_a_json_checkpoint_whose_parts_are_or_may_be_deleted(
    store: WatchedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 3)
    now, folder = 1_775_000_000_000, tmp_path / "t/_transaction_log"
    append(a_table(str(tmp_path / "t")), "a.split")

    def before(operation: str, path: str) -> None:
        nonlocal now
        if operation == "create" and path.endswith(".checkpoint.json"):
            if how == "slow":
                now += 2 * 3_600_000
                return
            for part in folder.glob("*.checkpoint.*.*.json"):
                part.unlink()

    store.watch.before = before
    options = Options.parse({"state.format": "json"})
    watched: Any = store
    log = TransactionLog(watched, options, engine="slow", env=Environment(now_ms=lambda: now))
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert not (folder / "_last_checkpoint").exists()
    store.watch.before = Watch().before
    assert fresh(tmp_path / "t") == ["a.split"]
    if how == "deleted":
        assert log.checkpoint().version == 2, "the damaged one stays: it is not known whose it is"
    assert fresh(tmp_path / "t") == ["a.split"]


@pytest.mark.parametrize("parts", [False, True])
def test_a_json_checkpoint_of_another_table_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, parts: bool
) -> None:
    """Its writer died before it could delete it."""
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 3 if parts else 100)
    options = {"state.format": "json"}
    append(a_table(str(tmp_path / "old"), options), "a.split")
    a_log(str(tmp_path / "old"), options).checkpoint()
    append(a_table(str(tmp_path / "t"), options), "other.split")
    folder = tmp_path / "t/_transaction_log"
    for file in (tmp_path / "old/_transaction_log").glob("*.checkpoint*"):
        shutil.copy(file, folder)
    assert fresh(tmp_path / "t") == ["other.split"]
    assert "it is of another commit than version 1" in caplog.text
    cleaner = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
    assert cleaner.clean(log_hours=0).versions == ()
    append(a_log(str(tmp_path / "t")), "more.split")
    assert fresh(tmp_path / "t") == ["more.split", "other.split"]
    log = a_log(str(tmp_path / "t"), options)
    assert log.truncate()[0] == 2
    assert fresh(tmp_path / "t") == ["more.split", "other.split"]


def with_state_of_another_table(path: Path, *, whole: bool) -> TransactionLog:
    """A table with two splits, and a state at its last version that another table's writer left and died."""
    old = a_table(str(path.parent / "old"))
    append(old, "a.split")
    if whole:
        remove(old, "a.split")  # An empty table, whose state needs no manifest.
    else:
        append(old, "b.split")
    assert old.checkpoint().version == 2
    log = a_table(str(path))
    append(log, "other.split")
    append(log, "more.split")
    state = f"_transaction_log/state-v{2:020d}"
    shutil.copytree(path.parent / "old" / state, path / state)
    return log


@pytest.mark.parametrize("whole", [True, False])
def test_a_state_of_another_table_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    """Its writer died before it could delete it."""
    path, both = tmp_path / "t", ["more.split", "other.split"]
    with_state_of_another_table(path, whole=whole)
    assert fresh(path) == both
    assert "it is of another commit than version 2" in caplog.text
    assert paths_of(a_log(str(path)).snapshot(version=2)) == both
    assert sorted(a_log(str(path)).referenced_splits().to_pylist()) == both
    append(a_log(str(path)), "last.split")
    assert fresh(path) == ["last.split", *both]
    assert a_log(str(path)).checkpoint().version == 3
    assert paths_of(a_log(str(path)).snapshot(version=2)) == both


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_base_of_another_table_does_not_answer_whether_a_commit_is_in_the_table(
    tmp_path: Path, kind: str
) -> None:
    """Whoever writes again after a wrong answer doubles rows."""
    options, path = {"state.format": kind}, tmp_path / "t"
    old = a_table(str(tmp_path / "old"), options)
    lost = [append(old, f"{n}.split").token for n in range(1, 4)]
    assert old.checkpoint().version == 3
    log = a_table(str(path))
    tokens = [append(log, f"other-{n}.split").token for n in range(1, 6)]
    for file in (tmp_path / "old/_transaction_log").rglob("*"):
        if "state-v" in str(file) or ".checkpoint" in file.name:
            place = path / file.relative_to(tmp_path / "old")
            place.mkdir() if file.is_dir() else shutil.copy(file, place)
    for version, token in enumerate(tokens, start=1):
        assert token is not None
        assert log.commit_outcome(token, version=version) == CommitOutcome(committed=True, version=version)
    assert lost[1] is not None
    assert log.commit_outcome(lost[1], version=2).committed is not True


@pytest.mark.parametrize("manifests", [True, False])
@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_table_with_fewer_versions_than_a_state_of_another_table_is_read_and_written(
    tmp_path: Path, kind: str, manifests: bool
) -> None:
    """Its writer died before it could delete it, after the table was created again."""
    options, path = {"state.format": kind}, tmp_path / "t"
    old = a_table(str(tmp_path / "old"), options)
    append(old, "a.split")
    append(old, "b.split")
    append(old, "c.split")
    assert old.checkpoint().version == 3
    append(a_table(str(path)), "other.split")
    before = a_log(str(path)).snapshot()
    for file in (tmp_path / "old/_transaction_log").rglob("*"):
        if "state-v" in str(file) or ".checkpoint" in file.name or ("manifests" in str(file) and manifests):
            place = path / file.relative_to(tmp_path / "old")
            place.mkdir(exist_ok=True) if file.is_dir() else shutil.copy(file, place)
    assert a_log(str(path)).snapshot().key == before.key
    assert fresh(path) == ["other.split"]
    assert a_log(str(path)).referenced_splits().to_pylist() == ["other.split"]
    assert append(a_log(str(path)), "2.split").version == 2
    assert fresh(path) == ["2.split", "other.split"]
    assert [append(a_log(str(path)), f"{n}.split").version for n in (3, 4)] == [3, 4]
    whole = ["2.split", "3.split", "4.split", "other.split"]
    assert fresh(path) == whole
    log = a_log(str(path), options)
    log.checkpoint()
    log.truncate()
    assert fresh(path) == whole


@pytest.mark.parametrize("whole", [True, False])
def test_cleaning_does_not_rely_on_a_state_of_another_table(tmp_path: Path, whole: bool) -> None:
    log, path = with_state_of_another_table(tmp_path / "t", whole=whole), tmp_path / "t"
    append(log, "last.split")
    later = time.time() + 100 * 3600
    cleaner = TransactionLog(open_store(path), Options.parse({"purge.txLogRetentionHours": 0}), engine="test")
    cleaner._env = replace(cleaner._env, store_time_ms=lambda _: int(later * 1000))
    assert cleaner.clean().versions == ()
    assert fresh(path) == ["last.split", "more.split", "other.split"]


def test_a_commit_does_not_take_a_state_of_another_table_for_one_that_supersedes_it(
    store: WatchedStore, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    with_state_of_another_table(path, whole=True)
    state, version = path / f"_transaction_log/state-v{2:020d}", path / f"_transaction_log/{2:020d}.json"
    state.rename(tmp_path / "late")
    version.unlink()

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(2):
            (tmp_path / "late").rename(state)
        return answer

    store.watch.after = after
    assert append(a_log(store), "again.split").version == 2
    assert fresh(path) == ["again.split", "other.split"]


def test_a_commit_that_comes_after_its_version_was_cleaned_up_finds_that_out_by_a_json_checkpoint(
    store: WatchedStore, tmp_path: Path
) -> None:
    """Else its file stays, and makes the checkpoint look like that of another table."""
    options, folder = {"state.format": "json"}, tmp_path / "t/_transaction_log"
    other = a_table(str(tmp_path / "t"), options)
    (tmp_path / "t/late.split").write_bytes(b"rows")

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            store.watch.before = Watch().before
            append(other, "a.split")
            other.checkpoint()
            append(other, "b.split")
            for version in range(2):
                (folder / version_file(version)).unlink()

    store.watch.before = before
    assert append(a_log(store, options), "late.split").version == 3
    assert not (folder / version_file(1)).exists()
    assert fresh(tmp_path / "t") == ["a.split", "b.split", "late.split"]


def test_a_json_checkpoint_is_read_beside_a_late_commit_of_its_version(tmp_path: Path) -> None:
    path, options = str(tmp_path / "t"), {"state.format": "json"}
    log = a_table(path, options)
    shutil.copytree(tmp_path / "t", tmp_path / "other")
    append(a_log(str(tmp_path / "other"), options), "late.split")
    append(log, "a.split")
    log.checkpoint()
    own = tmp_path / f"t/_transaction_log/{1:020d}.json"
    shutil.copy(tmp_path / f"other/_transaction_log/{1:020d}.json", own)
    assert fresh(path) == ["a.split"]
    assert a_log(path).referenced_splits().to_pylist().count("a.split") == 1


def test_a_state_whose_manifests_are_gone_does_not_hide_the_json_checkpoint_of_its_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, json_format = str(tmp_path / "t"), {"state.format": "json"}
    append(a_table(path, json_format), "a.split")
    assert a_log(path, json_format).truncate()[0] == 1
    assert a_log(path).checkpoint().version == 1
    for manifest in (tmp_path / "t/_transaction_log/manifests").iterdir():
        manifest.unlink()
    assert fresh(path) == ["a.split"]
    assert caplog.text.count(f"state-v{1:020d}/_manifest.avro: a manifest that it refers to is missing") == 1
    assert a_log(path).referenced_splits().to_pylist() == ["a.split"]
    assert a_log(path).checkpoint().version == 2
    assert fresh(path) == ["a.split"]


def test_a_damaged_json_checkpoint_is_replaced_by_one_of_a_new_version(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    assert (log.checkpoint().written, log.checkpoint().written) == (True, False)
    (tmp_path / f"t/_transaction_log/{1:020d}.checkpoint.json").write_bytes(b"\x01\x01garbage")
    invalidate()
    written = log.checkpoint()
    assert (written.version, written.num_files, written.written) == (2, 1, True)
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_compacted_state_drops_skips_of_splits_that_are_not_live(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    skip = {
        "path": "never.split",
        "skipTimestamp": 1,
        "reason": "damaged",
        "operation": "merge",
        "skipCount": 1,
    }
    line = json.dumps({"mergeskip": skip})
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(line + "\n")
    assert list(log.snapshot().skips) == ["never.split"]
    log.checkpoint(compact=True)
    invalidate()
    assert log.snapshot().skips == {}
