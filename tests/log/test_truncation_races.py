"""Commits and readers while versions are truncated or cleaned up."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from indextables.errors import (
    CommitUnknownError,
    CorruptLogError,
    StateExpiredError,
    VersionNotFoundError,
)
from indextables.log import snapshot as snapshots
from indextables.log.format import checkpoint_files
from indextables.log.format.checkpoint_files import Pointer
from indextables.log.format.names import version_file
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.purge import purge
from indextables.options import Options
from indextables.store import open_store
from tests.log_tables.build import (
    Clock,
    a_log,
    a_table,
    append,
    overwrite,
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


def cleaner(path: Path) -> TransactionLog:
    """A log as of now, for ages of files."""
    return TransactionLog(open_store(path), Options.parse({"checkpoint.enabled": "false"}), engine="test")


def overtaking(store: WatchedStore, tmp_path: Path, *, adjust: Callable[..., Any] = lambda: None) -> None:
    """Just before our version 1 is created, others commit three versions and truncate."""
    other = a_log(str(tmp_path / "t"))
    (tmp_path / "t/mine.split").write_bytes(b"rows")

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            store.watch.before = Watch().before
            for n in range(3):
                append(other, f"other-{n}.split")
            other.truncate()
            adjust()

    store.watch.before = before


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_an_overtaken_commit_is_found_whatever_the_times_of_files_say(
    store: WatchedStore, tmp_path: Path, seconds: int
) -> None:
    log = a_table(store)

    def step() -> None:
        moment = time.time() + seconds
        for path in (tmp_path / "t/_transaction_log").rglob("*"):
            os.utime(path, (moment, moment))

    overtaking(store, tmp_path, adjust=step)
    assert append(log, "mine.split").version == 4
    assert "mine.split" in fresh(tmp_path / "t")


def test_a_commit_is_never_deleted_when_clocks_step_back(store: WatchedStore, tmp_path: Path) -> None:
    """A state at our own version, made from it, with a time before that of our file."""
    log = a_table(store)

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(1):
            store.watch.after = Watch().after
            a_log(str(tmp_path / "t")).checkpoint()
            for file in (tmp_path / "t/_transaction_log").glob("state-v*/*"):
                os.utime(file, (1, 1))
        return answer

    store.watch.after = after
    assert append(log, "a.split").version == 1
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_drop_that_a_truncation_overtakes_is_committed_after_it(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split", "b.split")
    other = a_log(str(tmp_path / "t"))

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(2):
            store.watch.before = Watch().before
            for n in range(2):
                append(other, f"other-{n}.split")
            other.truncate()

    store.watch.before = before
    remove(log, "a.split")
    assert fresh(tmp_path / "t") == ["b.split", "other-0.split", "other-1.split"]


def test_a_pointer_that_goes_backwards_hides_no_commit(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store)
    pointer = tmp_path / "t/_transaction_log/_last_checkpoint"
    old = msgspec.json.encode(Pointer(version=0, size=0))
    overtaking(store, tmp_path, adjust=lambda: pointer.write_bytes(old))
    assert append(log, "mine.split").version == 4
    assert "mine.split" in fresh(tmp_path / "t")


def test_a_snapshot_across_a_truncation_reads_the_same_version_or_says_it_is_gone(tmp_path: Path) -> None:
    options = {"state.gc.minManifestAgeHours": "0", "state.gc.minManifestAgeCheckEnabled": "false"}
    log = a_table(str(tmp_path / "t"), options, clock=Clock(now=2_000_000_000_000))
    append(log, "a.split", "b.split")
    log.checkpoint()
    append(log, "c.split")
    invalidate()
    held = a_log(str(tmp_path / "t"), options).snapshot()
    log.truncate()
    assert paths_of(held) == ["a.split", "b.split", "c.split"], "the new state is of this version"
    invalidate()
    held = a_log(str(tmp_path / "t"), options).snapshot()
    append(log, "d.split")
    log.truncate()
    invalidate()
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        held.files()


def test_a_read_that_two_truncations_overtake_says_that_its_version_is_gone(
    store: WatchedStore, tmp_path: Path
) -> None:
    """The second one deletes the state that the reader has found in place of its own."""
    options = {"state.gc.minManifestAgeHours": "0", "state.gc.minManifestAgeCheckEnabled": "false"}
    other = a_table(str(tmp_path / "t"), options, clock=Clock(now=2_000_000_000_000))
    append(other, "a.split")
    other.checkpoint()
    append(other, "b.split")
    invalidate()
    held = a_log(store, options).snapshot()
    truncations = 0

    def before(operation: str, path: str) -> None:
        nonlocal truncations
        if operation == "get" and path.startswith(("manifests/", "state-v")[truncations]):
            truncations += 1
            if truncations == 2:
                store.watch.before = Watch().before
                append(other, "c.split")
            other.truncate()

    store.watch.before = before
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        held.files()
    assert truncations == 2


def test_a_state_without_its_manifests_hides_no_split_from_a_purge(
    store: WatchedStore, tmp_path: Path
) -> None:
    """A checkpoint left it: a truncation that knew one version less deleted the state that it extends."""
    options = {"state.gc.minManifestAgeHours": "0", "state.gc.minManifestAgeCheckEnabled": "false"}
    log = a_table(store, options, clock=Clock(now=2_000_000_000_000))
    append(log, "a.split")
    log.checkpoint()
    append(log, "b.split")
    append(log, "c.split")
    earlier = WatchedStore(open_store(tmp_path / "t"))

    def list_before_version_3(operation: str, _: str, answer: Any) -> Any:
        return [i for i in answer if i.path != version_file(3)] if operation == "list" else answer

    earlier.watch.after = list_before_version_3

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("state-v"):
            store.watch.before = Watch().before
            invalidate()
            a_log(earlier, options, clock=Clock(now=2_000_000_000_000)).truncate()

    store.watch.before = before
    with pytest.raises(StateExpiredError):
        log.checkpoint(compact=False)
    state = tmp_path / f"t/_transaction_log/state-v{3:020d}/_manifest.avro"
    assert state.exists()
    purger = a_log(str(tmp_path / "t"))
    assert sorted(purger.referenced_splits().to_pylist()) == ["a.split", "b.split", "c.split"]
    (tmp_path / "t/_transaction_log" / version_file(3)).unlink()
    with pytest.raises(CorruptLogError, match=r"manifest .* missing"):
        purger.referenced_splits()


def test_a_json_checkpoint_that_cannot_be_read_hides_no_split_from_a_purge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was slow: cleaning deleted its parts. The version's own file tells its splits."""
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 3)
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    remove(log, "a.split")
    append(log, "b.split")
    log.checkpoint()
    folder = tmp_path / "t/_transaction_log"
    for part in folder.glob("*.checkpoint.*.*.json"):
        part.unlink()
    invalidate()
    purger = a_log(str(tmp_path / "t"))
    with pytest.raises(CorruptLogError, match=r"checkpoint\..*missing"):
        purger.referenced_splits()
    append(purger, "c.split")
    assert sorted(purger.referenced_splits().to_pylist()) == ["a.split", "b.split", "c.split"]


def test_a_commit_that_came_late_tells_no_splits_of_a_json_checkpoint(tmp_path: Path) -> None:
    """The next version follows the checkpoint, not the file of its version."""
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    late = tmp_path / "t/_transaction_log" / version_file(1)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "t", other)
    late.unlink()
    invalidate()
    append(a_log(str(tmp_path / "t")), "b.split")
    log.checkpoint()
    append(log, "c.split")
    late.write_bytes((other / "_transaction_log" / version_file(1)).read_bytes())
    (late.parent / f"{1:020d}.checkpoint.json").write_bytes(b"\x01\x01garbage")
    invalidate()
    with pytest.raises(CorruptLogError):
        a_log(str(tmp_path / "t")).referenced_splits()


def with_state(path: Path) -> TransactionLog:
    log = a_table(str(path))
    append(log, *(f"{n}.split" for n in range(30)))
    log.checkpoint()
    append(log, "new.split")
    return log


def test_a_truncation_does_not_rely_on_a_state_that_its_writer_may_take_back(
    store: WatchedStore, tmp_path: Path
) -> None:
    """A truncation between the creation of a state and the check that its writer makes after it."""
    with_state(tmp_path / "t")
    expected = fresh(tmp_path / "t")

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path.startswith("state-v"):
            store.watch.after = Watch().after
            a_log(str(tmp_path / "t")).truncate()
        return answer

    store.watch.after = after
    with suppress(StateExpiredError):
        a_log(store).checkpoint(compact=False)
    assert fresh(tmp_path / "t") == expected


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_truncation_deletes_no_version_while_its_own_base_is_gone(
    store: WatchedStore, tmp_path: Path, form: str
) -> None:
    """A deletion that was sent before arrives right after the base was written."""
    options = {"state.format": form}
    append(a_table(str(tmp_path / "t")), "a.split")
    folder = tmp_path / "t/_transaction_log"
    base = folder / (f"{1:020d}.checkpoint.json" if form == "json" else f"state-v{1:020d}/_manifest.avro")

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "put" and path == "_last_checkpoint":
            store.watch.after = Watch().after
            base.unlink()
        return answer

    truncating = a_log(store, options)
    store.watch.after = after
    assert truncating.truncate()[0] == 1
    assert base.exists(), "it is written again"
    assert fresh(tmp_path / "t") == ["a.split"]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_truncation_does_not_rely_on_a_base_of_another_writer_that_the_pointer_does_not_name(
    store: WatchedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It appears while the truncation writes one; its manifests or parts are old, and about to be deleted."""
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 3)
    options = {"state.format": form}
    append(a_table(str(tmp_path / "t")), "a.split")
    folder = tmp_path / "t/_transaction_log"
    old: list[Path] = []

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "list" and not old:
            store.watch.after = Watch().after
            a_log(str(tmp_path / "t"), options).checkpoint()
            (folder / "_last_checkpoint").unlink()  # its writer has not come so far
            old.extend((*folder.glob("manifests/*"), *folder.glob("*.checkpoint.*.*.json")))
            invalidate()
        return answer

    truncating = a_log(store, options)
    store.watch.after = after
    version, _ = truncating.truncate()
    assert version == 2
    assert old
    for path in old:
        path.unlink(missing_ok=True)
    assert fresh(tmp_path / "t") == ["a.split"]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_truncation_relies_on_a_base_of_another_writer_that_the_pointer_names(
    store: WatchedStore, tmp_path: Path, form: str
) -> None:
    options = {"state.format": form}
    append(a_table(str(tmp_path / "t")), "a.split")
    done: list[str] = []

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "list" and not done:
            done.append(path)
            a_log(str(tmp_path / "t"), options).checkpoint()
        return answer

    truncating = a_log(store, options)
    store.watch.after = after
    assert truncating.truncate()[0] == 1
    assert truncating.truncate()[0] == 1
    assert done
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_truncation_replaces_a_damaged_json_checkpoint_that_the_pointer_names(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    log.checkpoint()
    (tmp_path / f"t/_transaction_log/{1:020d}.checkpoint.json").write_bytes(b"\x01\x01garbage")
    invalidate()
    assert a_log(str(tmp_path / "t"), {"state.format": "json"}).truncate()[0] == 2
    assert fresh(tmp_path / "t") == ["a.split"]


@pytest.mark.parametrize("live", [True, False])
def test_a_commit_whose_token_is_too_old_for_states_is_known_by_its_splits(
    store: WatchedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """Many versions are committed and cleaned up before it is confirmed: states keep the last tokens only."""
    monkeypatch.setattr(snapshots, "LINEAGE_LENGTH", 2)
    log, other = a_table(store), a_log(str(tmp_path / "t"))

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(1):
            store.watch.after = Watch().after
            for n in range(3):
                append(other, f"other-{n}.split")
            if not live:
                remove(other, "mine.split")
            other.truncate()
        return answer

    store.watch.after = after
    if live:
        append(log, "mine.split")
        assert "mine.split" in fresh(tmp_path / "t")
    else:
        with pytest.raises(CommitUnknownError, match="the versions after it were cleaned up"):
            append(log, "mine.split")


@pytest.mark.parametrize("cleaning", ["truncate", "clean"])
def test_a_cleaning_deletes_nothing_of_a_table_that_was_created_again_meanwhile(
    store: WatchedStore, tmp_path: Path, cleaning: str
) -> None:
    path = tmp_path / "t"
    log = a_table(str(path))
    for n in range(4):
        append(log, f"{n}.split")
        log.checkpoint()

    def before(operation: str, _: str) -> None:
        if operation == "list":
            looks.append(operation)
        # The last look before the deletions, which compares what is there with what was selected.
        if operation == "list" and len(looks) == last_look:
            store.watch.before = Watch().before
            shutil.rmtree(path)
            again = a_table(str(path))
            for n in range(3):
                append(again, f"again-{n}.split")
            again.checkpoint()

    def run(watched: Any) -> None:
        options = Options.parse({"purge.txLogRetentionHours": 0, "checkpoint.enabled": "false"})
        cleaner = TransactionLog(watched, options, engine="test")
        later = int((time.time() + 100 * 3600) * 1000)
        cleaner._env = replace(cleaner._env, store_time_ms=lambda _: later)
        cleaner.truncate() if cleaning == "truncate" else cleaner.clean()

    looks: list[str] = []
    deleted: list[str] = []
    shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copy2)
    trial = WatchedStore(open_store(tmp_path / "copy"))

    def count(operation: str, path: str) -> None:
        if operation == "list" and not deleted:
            looks.append(operation)
        if operation == "delete":
            deleted.append(path)

    trial.watch.before = count
    run(trial)
    assert deleted
    last_look, looks = len(looks), []
    store.watch.before = before
    run(store)
    assert fresh(path) == [f"again-{n}.split" for n in range(3)]
    assert len(a_log(str(path)).history()) == 4


def test_a_checkpoint_of_a_table_that_was_deleted_leaves_the_state_of_the_next_one(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split")

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path.startswith("state-v"):
            store.watch.after = Watch().after
            shutil.rmtree(tmp_path / "t")
            invalidate()
            other = a_table(str(tmp_path / "t"))
            append(other, "b.split")
            other.truncate()
        return answer

    store.watch.after = after
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert fresh(tmp_path / "t") == ["b.split"]
    assert (tmp_path / f"t/_transaction_log/state-v{1:020d}/_manifest.avro").exists()


def test_a_checkpoint_of_a_version_that_is_gone_takes_its_state_back(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split")

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path.startswith("state-v"):
            store.watch.after = Watch().after
            other = a_log(str(tmp_path / "t"))
            append(other, "b.split")
            other.checkpoint()
            (tmp_path / "t/_transaction_log" / version_file(1)).unlink()
        return answer

    store.watch.after = after
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    assert not (tmp_path / f"t/_transaction_log/state-v{1:020d}/_manifest.avro").exists()
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]


def test_cleaning_does_not_rely_on_a_state_that_its_writer_may_take_back(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split")

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path.startswith("state-v"):
            store.watch.after = Watch().after
            other = TransactionLog(open_store(tmp_path / "t"), Options(), engine="other")
            append(other, "b.split")
            other.clean(log_hours=0)
        return answer

    store.watch.after = after
    with suppress(StateExpiredError):
        log.checkpoint()
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]


def test_cleaning_keeps_the_versions_before_a_damaged_json_checkpoint(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    log.checkpoint()
    append(log, "b.split")
    (tmp_path / f"t/_transaction_log/{1:020d}.checkpoint.json").write_bytes(b"\x01\x01garbage")
    assert cleaner(tmp_path / "t").clean(log_hours=0).versions == ()
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]


def _with_late_state(path: Path, hours: float) -> Path:
    """A truncated table, in which a state of an earlier version appears so many hours ago; that state."""
    log = a_table(str(path))
    append(log, "a.split")
    log.checkpoint()
    state = path / f"_transaction_log/state-v{1:020d}/_manifest.avro"
    data = state.read_bytes()
    overwrite(log, "b.split")
    old = time.time() - 100 * 3600
    for manifest in (path / "_transaction_log/manifests").iterdir():
        os.utime(manifest, (old, old))
    append(log, "c.split")
    cleaner(path).truncate()
    assert not state.exists()
    state.parent.mkdir(exist_ok=True)
    state.write_bytes(data)
    appeared = time.time() - hours * 3600
    os.utime(state, (appeared, appeared))
    invalidate()
    return state


def test_a_state_that_appears_after_a_truncation_ends_no_purge_and_is_deleted(tmp_path: Path) -> None:
    """The request that created it arrived late, and its manifests are gone."""
    state = _with_late_state(tmp_path / "t", hours=0.5)
    (tmp_path / "t/a.split").write_bytes(b"of a version that cannot be read")
    os.utime(tmp_path / "t/a.split", (0, 0))
    log = cleaner(tmp_path / "t")
    assert sorted(log.referenced_splits().to_pylist()) == ["b.split", "c.split"]
    assert log.expired_files().states == (1,)
    purged = purge(log, Options())
    assert (purged.orphans_deleted, purged.states_deleted) == (1, 1)
    assert not state.exists()
    assert fresh(tmp_path / "t") == ["b.split", "c.split"]


def test_versions_expire_beside_a_state_that_appeared_late(tmp_path: Path) -> None:
    _with_late_state(tmp_path / "t", hours=2)
    log = a_log(str(tmp_path / "t"))
    append(log, "d.split")
    log.checkpoint()
    old = time.time() - 50 * 24 * 3600
    for file in (tmp_path / "t/_transaction_log").glob("0*.json"):
        os.utime(file, (old, old))
    assert cleaner(tmp_path / "t").clean().versions == (3,)
    assert fresh(tmp_path / "t") == ["b.split", "c.split", "d.split"]


def test_a_state_without_manifests_goes_with_the_other_files_of_its_version(tmp_path: Path) -> None:
    """Else a purge could not tell which splits it names: a slow writer left it beside a JSON checkpoint."""
    path = str(tmp_path / "t")
    append(a_table(path), "a.split")
    a_log(path, {"state.format": "json"}).checkpoint()
    a_log(path).checkpoint()
    for manifest in (tmp_path / "t/_transaction_log/manifests").iterdir():
        manifest.unlink()
    invalidate()
    append(a_log(path), "b.split")
    a_log(path).checkpoint()
    cleaned = cleaner(tmp_path / "t").clean(log_hours=0)
    assert (cleaned.versions, cleaned.checkpoints, cleaned.states) == ((0, 1), (1,), (1,))
    assert sorted(cleaner(tmp_path / "t").referenced_splits().to_pylist()) == ["a.split", "b.split"]
    assert fresh(path) == ["a.split", "b.split"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_state_of_a_promised_version_is_not_deleted_and_ends_a_purge(
    tmp_path: Path, version: int
) -> None:
    """Of an anchor, whose file is gone, and of one before another state."""
    log = a_table(str(tmp_path / "t"))
    folder = tmp_path / "t/_transaction_log"
    manifests: set[Path] = set()
    own: dict[int, set[Path]] = {}
    for n in range(1, 5):
        append(log, f"{n}.split")
        if n != 3:
            log.checkpoint()
        own[n] = set((folder / "manifests").glob("manifest-*")) - manifests
        manifests |= own[n]
    for n in range(version + 1):
        (folder / version_file(n)).unlink()
    for n in (1, 2, 4):
        state = folder / f"state-v{n:020d}"
        if n < version:
            shutil.rmtree(state)
        else:
            old = time.time() - (100 - n) * 3600
            os.utime(state / "_manifest.avro", (old, old))
    for manifest in own[version]:
        manifest.unlink()
    invalidate()
    log = cleaner(tmp_path / "t")
    assert log.clean(log_hours=0.5).states == ()
    with pytest.raises(CorruptLogError, match=f"version {version} cannot be read"):
        log.referenced_splits()
