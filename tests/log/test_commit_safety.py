"""No committed data is lost, whatever fails, races or returns a wrong answer after the version file was created."""

import dataclasses
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import indextables
from indextables.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptLogError,
    CredentialsError,
    IndexTablesError,
    OptionError,
    OutcomeUnknownError,
    ProtocolError,
    SplitError,
    StateExpiredError,
    StoreError,
    TableExistsError,
    VersionNotFoundError,
)
from indextables.ingest import Mode, SplitUploads, finish_write, plan_write
from indextables.ingest.target import as_reader
from indextables.log.checkpoint import checkpoint
from indextables.log.conflict import Draft
from indextables.log.environment import Environment
from indextables.log.format.actions import MergeSkip, Protocol
from indextables.log.format.checkpoint_files import Pointer
from indextables.log.format.names import version_file
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.metadata_changes import restore
from indextables.maintain.purge import purge
from indextables.options import Options
from indextables.store import Store, open_store
from tests.log_tables import generations as made
from tests.log_tables.build import (
    Clock,
    a_log,
    a_table,
    append,
    gone,
    metadata,
    paths_of,
    remove,
    schema_string,
    split,
)
from tests.log_tables.watched import Watch, WatchedStore


@pytest.fixture(autouse=True)
def cold():
    invalidate()


@pytest.fixture
def store(tmp_path):
    return WatchedStore(open_store(tmp_path / "t"))


def fresh(path: Path | str) -> list[str]:
    invalidate()
    return paths_of(a_log(str(path)).snapshot())


def failing_after_create(store, error: Exception, version: int = 1):
    """The first call after a version was created fails, and so do those that follow."""
    created = []

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(version):
            created.append(path)
        return answer

    def before(operation: str, path: str) -> None:
        if created:
            raise error

    store.watch.before, store.watch.after = before, after


# --- an error after the creation is "unknown", never "failed" ----------------------------------------


@pytest.mark.parametrize(
    "error",
    [StoreError("503"), CredentialsError("expired"), OSError(24, "Too many open files"), MemoryError()],
    ids=["503", "expired token", "too many files", "memory"],
)
def test_an_error_right_after_the_creation_leaves_the_outcome_unknown(store, tmp_path, error):
    log = a_table(store)
    failing_after_create(store, error)
    with pytest.raises(CommitUnknownError) as caught:
        append(log, "a.split")
    assert caught.value.not_committed is False
    assert "Table.commit_outcome" in str(caught.value)
    store.watch.before = Watch().before
    assert fresh(tmp_path / "t") == ["a.split"]
    outcome = a_log(str(tmp_path / "t")).commit_outcome(caught.value.token)
    assert (outcome.committed, outcome.version) == (True, 1)


def test_the_splits_of_a_write_stay_when_reading_fails_after_its_commit(tmp_path, monkeypatch):
    indextables.write(tmp_path / "t", [{"id": 1}])
    create, listing = Store.create, Store.list
    committed = []

    def create_and_note(self, path, data):
        done = create(self, path, data)
        if path == version_file(2):
            committed.append(path)
        return done

    def failing_list(self, prefix="", *, after=None):
        if committed:
            raise StoreError("503 after all retries")
        return listing(self, prefix, after=after)

    monkeypatch.setattr(Store, "create", create_and_note)
    monkeypatch.setattr(Store, "list", failing_list)
    with pytest.raises(CommitUnknownError):
        indextables.write(tmp_path / "t", [{"id": 2}])
    monkeypatch.undo()
    invalidate()
    assert sorted(indextables.open(tmp_path / "t").scan()["id"].to_pylist()) == [1, 2]


def test_an_unknown_attempt_followed_by_a_refusal_is_unknown(store, tmp_path):
    """The first request is still on its way; it arrives after the second one was refused."""
    log = a_table(store)
    late: list[bytes] = []
    real = store._store.at("_transaction_log")

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            if not late:
                late.append(b"")
                raise OutcomeUnknownError("file:///t", "timed out")
            raise CredentialsError("the token expired")

    store.watch.before = before
    with pytest.raises(CommitUnknownError):
        append(log, "a.split")
    store.watch.before = Watch().before
    outcome = log.commit_outcome("0" * 32, version=1)
    assert outcome.committed is None, "the version is absent, so the request may still arrive"
    assert real.exists(version_file(0))


def test_a_lost_first_answer_and_a_lost_race_at_the_last_attempt_are_told_apart(tmp_path):
    """The file of the first attempt is there, with other bytes than the last attempt had."""
    store = WatchedStore(open_store(tmp_path / "t"))
    log = a_log(store, {"transaction.retry.maxAttempts": "2"})
    assert log.create(metadata()) is not None
    tries = []

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(1):
            tries.append(path)
            if len(tries) == 1:
                raise OutcomeUnknownError("file:///t", "timed out")
        return answer

    store.watch.after = after
    assert append(log, "a.split").version == 1
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_refused_commit_says_that_nothing_was_committed(store):
    log = a_table(store)

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            raise CredentialsError("access denied")

    store.watch.before = before
    with pytest.raises(CredentialsError) as caught:
        append(log, "a.split")
    assert caught.value.not_committed


def test_the_outcome_of_a_commit_that_lost_its_number_is_known(tmp_path):
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    assert log.commit_outcome("f" * 32, version=1).committed is False
    token = log.snapshot().token
    log.truncate()
    append(log, "b.split")
    outcome = log.commit_outcome(token, version=1)
    assert (outcome.committed, outcome.version) == (True, 1)


# --- a base is named by its token --------------------------------------------------------------------


def test_a_commit_never_lands_in_a_table_made_anew(tmp_path):
    where = tmp_path / "t"
    log = a_table(str(where))
    append(log, "a.split")
    base = log.snapshot()
    shutil.rmtree(where)
    other = a_table(str(where), columns={"name": "string"})
    append(other, "other.split")
    with pytest.raises(CommitConflictError, match="deleted or replaced") as caught:
        append(log, "mine.split", base=base)
    assert caught.value.not_committed
    assert fresh(where) == ["other.split"]


def test_a_table_made_anew_between_the_look_and_the_creation_loses_the_stray_version(store, tmp_path):
    log = a_table(store)
    append(log, "a.split")
    base = log.snapshot()

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(2):
            store.watch.before = Watch().before
            shutil.rmtree(tmp_path / "t")
            append(a_table(str(tmp_path / "t")), "other.split")

    store.watch.before = before
    with pytest.raises(CommitConflictError, match="deleted or replaced"):
        append(log, "mine.split", base=base)
    assert fresh(tmp_path / "t") == ["other.split"]


def test_a_version_of_another_table_is_refused_by_readers(tmp_path):
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    other = a_table(str(tmp_path / "o"))
    append(other, "x.split")
    append(other, "y.split")
    name = version_file(2)
    shutil.copy(tmp_path / "o/_transaction_log" / name, tmp_path / "t/_transaction_log" / name)
    with pytest.raises(CorruptLogError, match="version 2 does not follow the version 1"):
        fresh(tmp_path / "t")


# --- metadata against rows ---------------------------------------------------------------------------


CHANGES: dict[str, dict[str, Any]] = {
    "schema": {"schema_string": schema_string({"id": "string"})},
    "partition columns": {"partition_columns": ["id"]},
    "indexing": {"configuration": {"indexing.typemap.text": "text"}},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rows_first", [True, False])
def test_a_change_of_metadata_conflicts_with_added_rows_in_both_orders(tmp_path, change, rows_first):
    log = a_table(str(tmp_path / "t"))
    base = log.snapshot()

    def alter() -> None:
        changed = msgspec.structs.replace(base.metadata, **CHANGES[change])
        log.commit(Draft(operation="ALTER", metadata=changed), base)

    first, second = (lambda: append(log, "a.split", base=base), alter)[:: 1 if rows_first else -1]
    first()
    with pytest.raises(CommitConflictError):
        second()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_metadata_conflicts_with_rows_whose_versions_were_cleaned_up(tmp_path, change):
    log = a_table(str(tmp_path / "t"))
    base = log.snapshot()
    append(log, "a.split")
    append(log, "b.split")
    log.truncate()
    changed = msgspec.structs.replace(base.metadata, **CHANGES[change])
    with pytest.raises(CommitConflictError, match="splits were added"):
        log.commit(Draft(operation="ALTER", metadata=changed), base)


# --- truncation at the wrong moment ------------------------------------------------------------------


def overtaking(store, tmp_path, *, adjust=lambda: None):
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
def test_an_overtaken_commit_is_found_whatever_the_times_of_files_say(store, tmp_path, seconds):
    log = a_table(store)

    def step() -> None:
        moment = time.time() + seconds
        for path in (tmp_path / "t/_transaction_log").rglob("*"):
            os.utime(path, (moment, moment))

    overtaking(store, tmp_path, adjust=step)
    assert append(log, "mine.split").version == 4
    assert "mine.split" in fresh(tmp_path / "t")


def test_a_commit_is_never_deleted_when_clocks_step_back(store, tmp_path):
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


def test_a_drop_that_a_truncation_overtakes_is_committed_after_it(store, tmp_path):
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


def test_a_pointer_that_goes_backwards_hides_no_commit(store, tmp_path):
    log = a_table(store)
    pointer = tmp_path / "t/_transaction_log/_last_checkpoint"
    old = msgspec.json.encode(Pointer(version=0, size=0))
    overtaking(store, tmp_path, adjust=lambda: pointer.write_bytes(old))
    assert append(log, "mine.split").version == 4
    assert "mine.split" in fresh(tmp_path / "t")


def test_a_snapshot_across_a_truncation_reads_the_same_version_or_says_it_is_gone(tmp_path):
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


# --- states ------------------------------------------------------------------------------------------


def with_state(path: Path) -> TransactionLog:
    log = a_table(str(path))
    append(log, *(f"{n}.split" for n in range(30)))
    log.checkpoint()
    append(log, "new.split")
    return log


def test_nobody_relies_on_a_state_whose_base_is_gone_though_its_manifests_are_there(store, tmp_path):
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


def test_nobody_relies_on_a_compacted_state_whose_manifests_were_deleted(store, tmp_path):
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


def test_a_state_of_a_table_that_was_replaced_is_not_written(store, tmp_path):
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


def test_young_manifests_are_kept_unless_that_is_switched_off(tmp_path):
    log = a_table(str(tmp_path / "t"), {"state.gc.minManifestAgeHours": "0"})
    with pytest.raises(OptionError, match="minManifestAgeCheckEnabled=false"):
        log.clean()


def test_a_clock_that_is_hours_ahead_makes_nothing_old(tmp_path):
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
def test_the_tolerated_difference_of_clocks_is_one_hour(tmp_path, monkeypatch, seconds):
    with_state(tmp_path / "t")
    cleaner = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + seconds * 10**9)
    if seconds < 3600:
        cleaner.clean()
    else:
        with pytest.raises(StoreError, match="3600 are tolerated"):
            cleaner.clean()


def test_a_live_path_named_again_by_another_engine_and_removed_stays_removed(tmp_path):
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


def test_a_checkpoint_mends_a_table_whose_newest_state_is_damaged(tmp_path, caplog):
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


# --- who may write -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["checkpoint", "truncate", "clean"])
def test_upkeep_of_a_table_that_asks_for_a_newer_writer_is_refused(tmp_path, operation):
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    newer = Protocol(min_reader_version=4, min_writer_version=4, writer_features=["rowTracking"])
    a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"}).commit(
        Draft(operation="UPGRADE", protocol=newer), log.snapshot()
    )
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(ProtocolError, match="rowTracking"):
        getattr(a_log(str(tmp_path / "t")), operation)()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


# --- first writes at the same time -------------------------------------------------------------------


def planned_write(path: Path, rows: list[dict], mode: Mode, options: dict[str, str] | None = None):
    """A write whose splits are uploaded and that is not committed yet."""
    checked = Options.parse(options)
    log = TransactionLog(open_store(path, checked), checked, engine="test")
    reader = as_reader(rows)
    planned, base = plan_write(log, reader.schema, mode=mode, partition_by=(), options=checked)
    uploads = SplitUploads(log.store, planned.target, checked)
    adds = uploads.write(planned.stored(reader))
    return lambda: finish_write(log, planned, adds, checked, base)


def ids(path: Path) -> list[int]:
    invalidate()
    return sorted(indextables.open(path).scan()["id"].to_pylist())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(Mode.APPEND, [1, 2]), (Mode.OVERWRITE, [2]), (Mode.IGNORE, [1]), (Mode.ERROR, [1])],
)
def test_a_first_write_that_finds_another_ones_table_does_what_its_mode_says(tmp_path, mode, expected):
    first = planned_write(tmp_path / "t", [{"id": 1}], mode)
    second = planned_write(tmp_path / "t", [{"id": 2}], mode)
    first()
    if mode is Mode.ERROR:
        with pytest.raises(TableExistsError):
            second()
    else:
        second()
    assert ids(tmp_path / "t") == expected
    live = sorted(fresh(tmp_path / "t"))
    kept = sorted(path.name for path in (tmp_path / "t").glob("*.split"))
    assert set(live) <= set(kept)
    assert len(kept) == (2 if mode in (Mode.APPEND, Mode.OVERWRITE) else 1)


def test_a_first_write_with_other_indexing_than_the_table_that_was_made_meanwhile_fails(tmp_path):
    first = planned_write(tmp_path / "t", [{"id": 1, "m": "a b"}], Mode.APPEND)
    second = planned_write(
        tmp_path / "t", [{"id": 2, "m": "a b"}], Mode.APPEND, {"indexing.typemap.m": "text"}
    )
    first()
    with pytest.raises(IndexTablesError, match="do not fit it as they were written"):
        second()
    assert ids(tmp_path / "t") == [1]
    assert len(list((tmp_path / "t").glob("*.split"))) == 1


def test_a_first_write_whose_uploads_went_with_the_folder_is_refused(tmp_path):
    first = planned_write(tmp_path / "t", [{"id": 1}], Mode.APPEND)
    shutil.rmtree(tmp_path / "t")
    indextables.write(tmp_path / "t", [{"id": 2}])
    with pytest.raises(IndexTablesError, match="folder was deleted meanwhile"):
        first()
    assert ids(tmp_path / "t") == [2]


def test_who_creates_the_table_does_not_overlook_what_others_wrote_into_it_since(tmp_path, monkeypatch):
    """Two overwrites that both found no table: the creator's own must not stand beside a later one."""
    first = planned_write(tmp_path / "t", [{"id": 1}], Mode.OVERWRITE)
    create = TransactionLog.create

    def create_and_lose_time(self, *arguments, **more):
        done = create(self, *arguments, **more)
        monkeypatch.undo()
        planned_write(tmp_path / "t", [{"id": 2}], Mode.OVERWRITE)()
        return done

    monkeypatch.setattr(TransactionLog, "create", create_and_lose_time)
    with pytest.raises(CommitConflictError, match="overwrote the table too"):
        first()
    assert ids(tmp_path / "t") == [2]


# --- restore and purge -------------------------------------------------------------------------------


def test_a_restore_conflicts_with_a_purge_that_was_committed_meanwhile(tmp_path):
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    append(log, "b.split")
    (tmp_path / "t/a.split").write_bytes(b"rows")
    real = log.commit

    def commit(draft, base):
        real(Draft(operation="PURGE", parameters={"before": "1", "retentionHours": "24"}), base)
        return real(draft, base)

    draft_base = log.snapshot()
    real(Draft(operation="DROP", removes=(gone("a.split"),)), draft_base)
    log.commit = commit  # type: ignore[method-assign]
    with pytest.raises(CommitConflictError, match="that purge may have deleted"):
        restore(log, version=2)


# --- other engines -----------------------------------------------------------------------------------


def test_a_state_of_another_engine_at_the_base_is_the_same_version(tmp_path):
    """A write planned from the version must find it again, though its state has no token."""
    table = made.HandMade(tmp_path / "t")
    log = a_table(str(tmp_path / "t"))
    append(log, split("a.split", doc_mapping_json=None))
    key = log.snapshot().key
    table.state(1, [table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])])
    invalidate()
    again = a_log(str(tmp_path / "t")).snapshot_of(key)
    assert again is not None
    assert again.key == key


# --- listings are no picture of one moment -----------------------------------------------------------


def hiding(store, name: str, times: int) -> None:
    """The next listings do not show a file that is there: it was created while they ran."""
    left = [times]

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "list" and left[0] and any(info.path == name for info in answer):
            left[0] -= 1
            return [info for info in answer if info.path != name]
        return answer

    store.watch.after = after


@pytest.mark.parametrize("times", [1, 2])
def test_a_listing_that_shows_a_version_without_the_one_before_it_is_repeated(store, times):
    log = a_table(store)
    append(log, "a.split")
    append(log, "b.split")
    invalidate()
    hiding(store, version_file(1), times)
    assert paths_of(a_log(store).snapshot()) == ["a.split", "b.split"]


def test_a_commit_looks_again_when_a_listing_misses_a_version_in_between(store):
    log = a_table(store)
    base = log.snapshot()
    append(log, "a.split")
    append(log, "b.split")
    hiding(store, version_file(1), 1)
    draft = Draft(operation="OVERWRITE", adds=(split("c.split"),), parameters={"mode": "overwrite"})
    assert log.commit(draft, base).version == 3, "no conflict: both versions in between are appends"


# --- who deletes relies only on states that nobody takes back ----------------------------------------


def test_a_truncation_does_not_rely_on_a_state_that_its_writer_may_take_back(store, tmp_path):
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


def test_cleaning_does_not_rely_on_a_state_that_its_writer_may_take_back(store, tmp_path):
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


def test_a_state_is_not_checked_again_once_others_may_rely_on_it(store, tmp_path):
    """Only the pointer could not be written; meanwhile a truncation deletes the base."""
    with_state(tmp_path / "t")
    log = a_log(store)
    failures = []

    def before(operation: str, path: str) -> None:
        if operation == "put" and path == "_last_checkpoint" and not failures:
            failures.append(path)
            shutil.rmtree(tmp_path / f"t/_transaction_log/state-v{1:020d}")
            raise StoreError("503")

    store.watch.before = before
    assert log.checkpoint(compact=False).written
    assert (tmp_path / f"t/_transaction_log/state-v{2:020d}/_manifest.avro").exists()
    assert len(fresh(tmp_path / "t")) == 31


def test_cleaning_keeps_the_versions_before_a_damaged_json_checkpoint(tmp_path):
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split")
    log.checkpoint()
    append(log, "b.split")
    (tmp_path / f"t/_transaction_log/{1:020d}.checkpoint.json").write_bytes(b"\x01\x01garbage")
    cleaner = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
    assert cleaner.clean(log_hours=0).versions == ()
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]


def test_a_version_of_another_engine_at_a_new_state_stays_the_same_version(tmp_path):
    """A process that knows the table goes on from the new state; what it commits next must not conflict."""
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    log.snapshot()
    foreign = {"add": {"path": "f.split", "size": 5, "modificationTime": 1, "dataChange": True}}
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(json.dumps(foreign) + "\n")
    # As another process would do it: the caches of this one know nothing of it.
    held = log._snapshots
    other = a_log(str(tmp_path / "t"), {"transaction.cache.enabled": "false"})
    other.checkpoint()
    assert log._snapshots is held
    assert append(log, "b.split").version == 3
    assert fresh(tmp_path / "t") == ["a.split", "b.split", "f.split"]


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_copied_table_with_versions_of_another_engine_can_be_written(tmp_path, form):
    log = a_table(str(tmp_path / "t"), {"state.format": form})
    append(log, "a.split")
    foreign = {"add": {"path": "f.split", "size": 5, "modificationTime": 1, "dataChange": True}}
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(json.dumps(foreign) + "\n")
    invalidate()
    log.checkpoint()
    shutil.copytree(tmp_path / "t", tmp_path / "copy", copy_function=shutil.copy)
    for file in (tmp_path / "copy").rglob("*.json"):
        os.utime(file, (1, 1))
    invalidate()
    assert append(a_log(str(tmp_path / "copy")), "b.split").version == 3


def test_a_state_that_vanishes_while_a_commit_is_confirmed_leaves_no_doubt(store, tmp_path):
    log = a_table(store)

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "create" and path == version_file(1):
            a_log(str(tmp_path / "t")).checkpoint()
        if operation == "list" and any(info.path.startswith("state-v") for info in answer):
            store.watch.after = Watch().after
            shutil.rmtree(tmp_path / f"t/_transaction_log/state-v{1:020d}")
        return answer

    store.watch.after = after
    assert append(log, "a.split").version == 1


def test_a_first_write_whose_table_may_or_may_not_exist_says_that_no_rows_were_written(tmp_path, monkeypatch):
    write = planned_write(tmp_path / "t", [{"id": 1}], Mode.APPEND)

    def create(self, path, data):
        raise OutcomeUnknownError(self.url, "timed out")

    monkeypatch.setattr(Store, "create", create)
    monkeypatch.setattr(TransactionLog, "check_store", lambda self: None)
    with pytest.raises(IndexTablesError, match="no rows were written; write again") as caught:
        write()
    assert not isinstance(caught.value, CommitUnknownError)
    assert caught.value.not_committed
    monkeypatch.undo()
    assert not list((tmp_path / "t").glob("*.split"))


def test_a_handle_that_checks_the_protocol_is_not_answered_from_one_that_does_not(tmp_path):
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    careless = a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"})
    newer = Protocol(min_reader_version=99, min_writer_version=99)
    careless.commit(Draft(operation="UPGRADE", protocol=newer), careless.snapshot())
    careless.snapshot()
    with pytest.raises(ProtocolError, match="99"):
        a_log(str(tmp_path / "t")).snapshot()


# --- repair ------------------------------------------------------------------------------------------


def lost_log(path: Path) -> None:
    """A table whose log is gone and whose splits are a month old."""
    for number in range(2):
        indextables.write(path, [{"id": number}])
    shutil.rmtree(path / "_transaction_log")
    month_ago = time.time() - 30 * 86_400
    for file in path.glob("*.split"):
        os.utime(file, (month_ago, month_ago))
    invalidate()


def test_a_purge_in_the_middle_of_a_repair_deletes_nothing(tmp_path, monkeypatch):
    lost_log(tmp_path / "t")
    commit = TransactionLog.commit

    def commit_after_a_purge(self, draft, base):
        monkeypatch.undo()
        log = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
        assert purge(log, Options()).orphans_deleted == 0
        return commit(self, draft, base)

    monkeypatch.setattr(TransactionLog, "commit", commit_after_a_purge)
    indextables.repair(str(tmp_path / "t"))
    assert ids(tmp_path / "t") == [0, 1]


def test_a_repair_that_was_stopped_between_its_versions_is_finished_by_the_next(tmp_path, monkeypatch):
    lost_log(tmp_path / "t")

    def stop(self, draft, base):
        raise KeyboardInterrupt

    monkeypatch.setattr(TransactionLog, "commit", stop)
    with pytest.raises(KeyboardInterrupt):
        indextables.repair(str(tmp_path / "t"))
    monkeypatch.undo()
    invalidate()
    log = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
    assert purge(log, Options()).orphans_deleted == 0, "a table without any commit keeps all files"
    invalidate()
    indextables.repair(str(tmp_path / "t"))
    assert ids(tmp_path / "t") == [0, 1]


def test_nobody_relies_on_a_state_that_appears_long_after_its_manifests(store, tmp_path):
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
    log = TransactionLog(store, Options(), engine="slow", env=Environment(now_ms=lambda: now))
    with pytest.raises(StateExpiredError):
        log.checkpoint()
    folder = tmp_path / "t/_transaction_log"
    assert not (folder / "_last_checkpoint").exists()
    store.watch.after = Watch().after
    # A truncation that follows writes a state of its own.
    version, _ = a_log(store).truncate()
    assert version == 2
    assert fresh(tmp_path / "t") == ["a.split"]


def test_a_state_that_nobody_relies_on_is_not_deleted(store, tmp_path):
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


def test_a_commit_whose_uploads_were_purged_is_refused_when_the_versions_since_are_gone(store, tmp_path):
    """Whether one of the versions in between was a purge cannot be seen any more."""
    log = a_table(store)
    append(log, "a.split")
    base = log.snapshot()
    other = a_log(str(tmp_path / "t"))
    append(other, "b.split")
    other.truncate()
    for name in ("kept.split", "purged.split"):
        (tmp_path / "t" / name).write_bytes(b"rows")
    (tmp_path / "t/purged.split").unlink()
    merged = Draft(
        operation="MERGE SPLITS",
        adds=(split("kept.split"), split("purged.split")),
        removes=(gone("a.split"),),
    )
    with pytest.raises(SplitError, match=r"1 of the 2 splits .* are gone \(one is purged\.split\)") as raised:
        log.commit(merged, base)
    assert raised.value.not_committed
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]
    after = log.commit(dataclasses.replace(merged, adds=(split("kept.split"),)), base)
    assert sorted(after.files()["path"].to_pylist()) == ["b.split", "kept.split"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_json_checkpoint_of_a_version_that_is_gone_is_not_left(store, tmp_path, when):
    table = a_table(str(tmp_path / "t"))
    append(table, "a.split")
    folder = tmp_path / "t/_transaction_log"

    def replace_table() -> None:
        shutil.rmtree(tmp_path / "t")
        append(a_table(str(tmp_path / "t")), "other.split")

    def before(operation: str, path: str) -> None:
        if operation == ("list" if when == "before" else "put") and seen:
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


def test_a_split_that_was_removed_meanwhile_is_not_skipped_by_merges(store, tmp_path):
    log = a_table(store)
    append(log, "a.split", "b.split")
    base = log.snapshot()
    remove(log, "a.split")
    skips = tuple(
        MergeSkip(
            path=path, skip_timestamp=1, reason="damaged", operation="merge", retry_after=2, skip_count=1
        )
        for path in ("a.split", "b.split")
    )
    after = log.commit(Draft(operation="MERGE SPLITS", skips=skips), base)
    assert list(after.skips) == ["b.split"]


def test_a_compacted_state_drops_skips_of_splits_that_are_not_live(tmp_path):
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
