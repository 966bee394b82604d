"""Claiming versions: races, conflicts that are named, and acknowledgements that get lost."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from indextables import limits
from indextables.errors import (
    CommitAttemptsError,
    CommitConflictError,
    CommitUnknownError,
    CredentialsError,
    LogError,
    OutcomeUnknownError,
    StoreError,
)
from indextables.log.conflict import Draft
from indextables.log.format import version_file as version_files
from indextables.log.format.actions import (
    Add,
    CommitInfo,
    MergeSkip,
    Metadata,
    Protocol,
    Remove,
    Txn,
    schema_hash,
)
from indextables.log.format.version_file import decode
from indextables.log.snapshot_cache import invalidate
from indextables.store import open_store
from tests.log_tables import generations as made
from tests.log_tables.build import (
    MAPPING,
    WHEN,
    Clock,
    a_log,
    a_table,
    append,
    merge,
    metadata,
    overwrite,
    paths_of,
    remove,
    schema_string,
    split,
)
from tests.log_tables.generations import HandMade
from tests.log_tables.watched import Watch, WatchedStore
from tests.servers.fixtures import StoreUrl
from tests.servers.proxy import Fault, Proxy
from tests.servers.s3 import S3Server

OTHER_MAPPING = '[{"fast":true,"indexed":true,"name":"text","stored":true,"tokenizer":"raw","type":"text"}]'


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    invalidate()
    return WatchedStore(open_store(str(tmp_path / "t")))


def version_file(version: int) -> str:
    return f"{version:020d}.json"


def on_disk(
    tmp_path: Path, version: int
) -> list[Protocol | Metadata | Add | Remove | MergeSkip | CommitInfo | Txn]:
    path = tmp_path / "t/_transaction_log" / version_file(version)
    return decode(path.read_bytes(), str(path))


def test_version_zero_is_made_once(tmp_path: Path, store: WatchedStore) -> None:
    log = a_log(store)
    assert not log.exists()
    assert log.create(metadata()).version == 0
    assert log.exists()
    assert log.create(metadata()) is None
    actions: Any = on_disk(tmp_path, 0)
    assert [type(a) for a in actions] == [CommitInfo, Protocol, Metadata]
    assert (actions[1].min_reader_version, actions[1].min_writer_version) == (5, 5)
    assert actions[1].reader_features == actions[1].writer_features == ["parquetSplits"]


def test_of_many_who_make_a_table_one_does(tmp_path: Path) -> None:
    made_it = []

    def make() -> None:
        if (snapshot := a_log(str(tmp_path / "t")).create(metadata())) is not None:
            made_it.append(snapshot.metadata.id)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made_it) == 1
    assert a_log(str(tmp_path / "t")).snapshot().metadata.id == made_it[0]


def test_a_table_of_another_engine_is_not_made_again(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 2)
    (tmp_path / "t/_transaction_log" / version_file(0)).unlink()
    assert a_log(str(tmp_path / "t")).create(metadata()) is None


def test_version_files_are_gzip_unless_told_otherwise(tmp_path: Path) -> None:
    a_table(str(tmp_path / "zip"))
    a_table(str(tmp_path / "plain"), {"transaction.compression.enabled": "false"})
    assert (tmp_path / "zip/_transaction_log" / version_file(0)).read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "plain/_transaction_log" / version_file(0)).read_bytes()[:1] == b"{"


def test_a_commit_says_who_what_when_and_how_much(tmp_path: Path) -> None:
    clock = Clock(now=5_000_000, step=0)
    log = a_table(str(tmp_path / "t"), clock=clock)
    append(
        log,
        split("a.split", size=7),
        split("b.split", size=8),
        parameters={"mode": "append"},
        user_metadata="me",
    )
    info: Any = on_disk(tmp_path, 1)[0]
    assert info.operation == "WRITE"
    assert info.timestamp == 5_000_001  # a time finds one version, so it grows though the clock stands
    assert info.engine == "test"
    assert info.user_metadata == "me"
    assert info.operation_parameters == {"mode": "append"}
    assert info.operation_metrics == {
        "numAddedFiles": 2,
        "numAddedBytes": 15,
        "numAddedRecords": 20,
        "numRemovedFiles": 0,
        "numRemovedBytes": 0,
    }
    assert len(info.token) == 32


def test_removes_stand_before_adds(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    overwrite(log, "b.split")
    kinds = [type(a).__name__ for a in on_disk(tmp_path, 2)]
    assert kinds.index("Remove") < kinds.index("Add")


# --- others were faster ----------------------------------------------------------------------------


def two_logs(tmp_path: Path, options: Any = None, **table: Any) -> Any:
    log = a_table(str(tmp_path / "t"), options, **table)
    append(log, "a.split", "b.split")
    return log, a_log(str(tmp_path / "t"), options)


def test_appends_never_conflict(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    for n in range(5):
        append(second, f"other-{n}.split")
    after = append(first, "mine.split", base=base)
    assert after.version == 7
    assert paths_of(after) == sorted(
        ["a.split", "b.split", "mine.split", *(f"other-{n}.split" for n in range(5))]
    )
    invalidate()
    assert paths_of(a_log(str(tmp_path / "t")).snapshot()) == paths_of(after)


def test_a_merge_of_splits_that_an_overwrite_removed_fails_and_names_it(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    overwrite(second, "new.split")
    with pytest.raises(CommitConflictError, match=r"version 2 \(OVERWRITE at .*removed a.split") as conflict:
        merge(first, ["a.split", "b.split"], "merged.split", base)
    assert (conflict.value.version, conflict.value.operation) == (2, "MERGE SPLITS")
    assert paths_of(first.snapshot()) == ["new.split"]


def test_an_overwrite_of_splits_that_were_merged_fails(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    merge(second, ["a.split", "b.split"], "merged.split")
    with pytest.raises(CommitConflictError, match=r"version 2 \(MERGE SPLITS"):
        overwrite(first, "new.split", base=base)


def test_a_drop_of_a_partition_that_was_dropped_fails(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    remove(second, "a.split")
    with pytest.raises(CommitConflictError, match=r"version 2 \(DROP PARTITIONS"):
        remove(first, "a.split", base=base)
    assert remove(first, "b.split", base=base).version == 3


def test_splits_appended_meanwhile_survive_an_overwrite(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, "late.split")
    assert paths_of(overwrite(first, "new.split", base=base)) == ["late.split", "new.split"]


def test_two_overwrites_of_an_empty_table_do_not_both_stand(tmp_path: Path) -> None:
    first = a_table(str(tmp_path / "t"))
    base = first.snapshot()
    overwrite(a_log(str(tmp_path / "t")), "theirs.split")
    with pytest.raises(CommitConflictError, match="overwrote the table too"):
        overwrite(first, "mine.split", base=base)
    assert paths_of(first.snapshot()) == ["theirs.split"]


def with_metadata(log: Any, base: Any = None, **changes: Any) -> Any:
    base = base or log.snapshot()
    changed = msgspec.structs.replace(base.metadata, **changes)
    return log.commit(Draft(operation="SET", metadata=changed), base)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema_string": schema_string({"id": "long"})}, "changed the table's schema"),
        ({"configuration": {"a": "1"}}, "changed the table's configuration"),
        ({"partition_columns": ["text"]}, "changed the table's partition columns"),
        ({"description": "new"}, "changed the table's name or description"),
    ],
)
def test_two_changes_of_metadata_conflict(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    with_metadata(second, **changes)
    with pytest.raises(CommitConflictError, match=rf"version 2 \(SET at .*{problem}"):
        with_metadata(first, base, name="mine")


def test_an_append_conflicts_with_a_change_of_schema_but_not_of_configuration(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    with_metadata(second, configuration={"a": "1"})
    after = append(first, "c.split", base=base)
    assert after.metadata.configuration["a"] == "1"
    with_metadata(second, schema_string=schema_string({"id": "long"}))
    with pytest.raises(CommitConflictError, match="schema"):
        append(first, "d.split", base=after)


def test_a_table_replaced_by_another_is_a_conflict(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    with_metadata(second, id="another")
    with pytest.raises(CommitConflictError, match="replaced the table"):
        append(first, "c.split", base=base)


def test_two_changes_of_the_protocol_conflict(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    draft = Draft(operation="UPGRADE", protocol=Protocol(min_reader_version=4, min_writer_version=4))
    second.commit(draft, second.snapshot())
    with pytest.raises(CommitConflictError, match="changed the protocol too"):
        first.commit(draft, base)


def test_the_same_path_is_not_added_twice(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, "c.split")
    with pytest.raises(CommitConflictError, match=r"added c.split"):
        append(first, "c.split", base=base)


def test_a_conflict_with_another_engine_says_so(tmp_path: Path) -> None:
    table = made.generation_b(tmp_path / "t", 1)
    log = a_log(str(tmp_path / "t"))
    base = log.snapshot()
    table.version(2, made.remove("part-1.split"))
    with pytest.raises(CommitConflictError, match=r"version 2 \(written by another engine\)"):
        remove(log, "part-1.split", base=base)


def test_concurrent_appends_that_register_mappings_keep_both(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, split("c.split", doc_mapping_json=OTHER_MAPPING))
    third = '[{"name":"z","type":"bool"}]'
    after = append(first, split("d.split", doc_mapping_json=third), base=base)
    assert set(after.registry.values()) == {MAPPING, OTHER_MAPPING, third}
    invalidate()
    later = a_log(str(tmp_path / "t")).snapshot()
    assert later.registry == after.registry
    refs = dict(zip(*(later.files()[c].to_pylist() for c in ("path", "docMappingRef")), strict=True))
    assert refs["c.split"] == schema_hash(OTHER_MAPPING)
    assert refs["d.split"] == schema_hash(third)


def test_a_change_of_metadata_keeps_mappings_registered_meanwhile(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, split("c.split", doc_mapping_json=OTHER_MAPPING))
    after = with_metadata(first, base, configuration={"a": "1"})
    assert after.metadata.configuration["a"] == "1"
    assert set(after.registry.values()) == {MAPPING, OTHER_MAPPING}


def test_a_reference_by_a_name_that_is_no_hash_is_committed_under_the_hash(tmp_path: Path) -> None:
    """A compaction drops such names of other engines; what is committed must not depend on them."""
    table = HandMade(tmp_path / "t")
    table.version(
        0,
        made.protocol(),
        made.metadata(configuration={f"docMappingSchema.{made.MAPPING_HASH}": made.MAPPING}),
    )
    after = append(
        a_log(str(tmp_path / "t")), split("a.split", doc_mapping_json=None, doc_mapping_ref=made.MAPPING_HASH)
    )
    assert after.files()["docMappingRef"].to_pylist() == [schema_hash(made.MAPPING)]
    assert after.registry[schema_hash(made.MAPPING)] == made.MAPPING


# --- batches of streams ----------------------------------------------------------------------------


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, "c.split", txns=(Txn(app_id="clicks", version=7),))
    with pytest.raises(CommitConflictError, match="committed batch 7 of application clicks already"):
        append(first, "d.split", base=base, txns=(Txn(app_id="clicks", version=7),))
    with pytest.raises(CommitConflictError, match="batch 7 of application clicks was committed already"):
        append(first, "d.split", txns=(Txn(app_id="clicks", version=6),))
    assert append(first, "d.split", txns=(Txn(app_id="clicks", version=8),)).txns["clicks"].version == 8
    assert append(first, "e.split", txns=(Txn(app_id="views", version=1),)).version == 4


def test_a_batch_that_was_committed_and_cleaned_up_meanwhile_is_not_committed_again(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    append(second, "c.split", txns=(Txn(app_id="clicks", version=7),))
    append(second, "d.split")
    second.truncate()
    with pytest.raises(CommitConflictError, match="batch 7 of application clicks"):
        append(first, "e.split", base=base, txns=(Txn(app_id="clicks", version=7),))


# --- what was cleaned up meanwhile -----------------------------------------------------------------


def test_a_commit_from_a_base_that_was_cleaned_up_lands_after_the_newest_version(tmp_path: Path) -> None:
    """Creating the version after the old base would succeed, since it is gone, and nobody would read it."""
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    for n in range(3):
        append(second, f"other-{n}.split")
    second.truncate()
    (tmp_path / "t/mine.split").write_bytes(b"rows")
    after = append(first, "mine.split", base=base)
    assert after.version == 5
    invalidate()
    assert "mine.split" in paths_of(a_log(str(tmp_path / "t")).snapshot())
    assert not (tmp_path / "t/_transaction_log" / version_file(2)).exists()


def test_what_a_commit_relied_on_is_checked_even_when_the_versions_between_are_gone(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    remove(second, "a.split")
    second.truncate()
    with pytest.raises(
        CommitConflictError, match=r"a.split was removed.*cleaned up since|cleaned up since.*a.split"
    ):
        merge(first, ["a.split", "b.split"], "merged.split", base)
    with pytest.raises(CommitConflictError, match=r"b.split was added"):
        append(first, "b.split", base=base)
    with pytest.raises(CommitConflictError, match="may have overwritten the same rows"):
        overwrite(first, "new.split", base=base)
    assert paths_of(remove(first, "b.split", base=base)) == []


def test_a_commit_to_a_table_that_was_made_anew_fails(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    base = first.snapshot()
    for path in sorted((tmp_path / "t/_transaction_log").rglob("*"), reverse=True):
        path.unlink()
    second.create(metadata())
    with pytest.raises(CommitConflictError, match="created again"):
        append(first, "c.split", base=base)


# --- attempts --------------------------------------------------------------------------------------


def losing(store: WatchedStore, times: int) -> None:
    """Let another writer take the version just before each of our first attempts."""
    other = a_log(str(store.url).removeprefix("file://"))
    left = [times]

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".json") and left[0]:
            left[0] -= 1
            append(other, f"other-{left[0]}.split")

    store.watch.before = before


def test_attempts_are_as_many_as_the_option_says_with_growing_waits(store: WatchedStore) -> None:
    clock = Clock()
    log = a_table(store)
    options = {
        "transaction.retry.maxAttempts": "4",
        "transaction.retry.baseDelayMs": "100",
        "transaction.retry.maxDelayMs": "300",
    }
    log = a_log(store, options, clock=clock)
    losing(store, 4)
    with pytest.raises(CommitAttemptsError, match="failed 4 times: other writers committed first") as lost:
        append(log, "mine.split")
    assert "transaction.retry.maxAttempts" in str(lost.value)
    assert clock.slept == [0.1, 0.2, 0.3]
    losing(store, 3)
    assert append(log, "mine.split").version == 8


def test_jitter_takes_at_most_half_of_a_wait(store: WatchedStore) -> None:
    clock = Clock()
    a_table(store)
    log = a_log(store, {"transaction.retry.baseDelayMs": "100"}, clock=clock, jitter=0.0)
    losing(store, 2)
    append(log, "mine.split")
    assert clock.slept == [0.05, 0.1]


def test_a_commit_without_rivals_lists_once_and_creates_once(store: WatchedStore) -> None:
    log = a_table(store)
    base = log.snapshot()
    store.watch.forget()
    append(log, "a.split", base=base)
    assert store.watch.seen == [
        ("list", ""),
        ("create", version_file(1)),
        ("list", ""),
    ]


# --- lost acknowledgements -------------------------------------------------------------------------


def answer(store: WatchedStore, path: str, reply: Any, times: int = 1) -> None:
    """Apply the creation of a version, then give another answer."""
    left = [times]

    def after(operation: str, done: str, result: object) -> object:
        if operation == "create" and done == path and left[0]:
            left[0] -= 1
            if isinstance(reply, Exception):
                raise reply
            return reply
        return result

    store.watch.after = after


@pytest.mark.parametrize(
    "reply", [False, OutcomeUnknownError("file:///x", "connection reset")], ids=["exists", "unknown"]
)
def test_a_lost_acknowledgement_is_told_by_reading_back(
    tmp_path: Path, store: WatchedStore, reply: Any
) -> None:
    log = a_table(store)
    answer(store, version_file(1), reply)
    after = append(log, "a.split")
    assert after.version == 1
    assert paths_of(after) == ["a.split"]
    assert not (tmp_path / "t/_transaction_log" / version_file(2)).exists()
    assert paths_of(log.snapshot()) == ["a.split"]


def test_a_lost_acknowledgement_of_version_zero_is_told_too(store: WatchedStore) -> None:
    answer(store, version_file(0), OutcomeUnknownError("file:///x", "connection reset"))
    assert a_log(store).create(metadata()) is not None


def test_an_unknown_outcome_that_was_anothers_win_is_a_lost_attempt(store: WatchedStore) -> None:
    log = a_table(store)
    other = a_log(str(store.url).removeprefix("file://"))

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            append(other, "other.split")
            raise OutcomeUnknownError("file:///x", "timeout")

    store.watch.before = before
    assert paths_of(append(log, "mine.split")) == ["mine.split", "other.split"]


def test_an_unknown_outcome_with_nothing_there_is_tried_again(store: WatchedStore) -> None:
    log = a_table(store)
    left = [2]

    def before(operation: str, path: str) -> None:
        if operation == "create" and left[0]:
            left[0] -= 1
            raise OutcomeUnknownError("file:///x", "timeout")

    store.watch.before = before
    assert append(log, "mine.split").version == 1


def test_an_outcome_that_stays_unknown_is_said_to_be(store: WatchedStore) -> None:
    log = a_table(store)

    def before(operation: str, path: str) -> None:
        if operation == "create":
            raise OutcomeUnknownError("file:///x", "timeout")

    store.watch.before = before
    with pytest.raises(CommitUnknownError, match=r"it is unknown whether version 1 ") as unknown:
        append(log, "mine.split")
    assert unknown.value.version == 1


def test_storage_that_fails_after_an_unknown_outcome_leaves_it_unknown(store: WatchedStore) -> None:
    """The caller must not delete the splits: the version may still appear."""
    log = a_table(store)
    base = log.snapshot()
    failing: list[Any] = []

    def before(operation: str, path: str) -> None:
        if failing and operation == "list":
            raise StoreError("down")
        if operation == "create":
            failing.append(1)
            raise OutcomeUnknownError("file:///x", "timeout")

    store.watch.before = before
    with pytest.raises(CommitUnknownError):
        append(log, "mine.split", base=base)
    failing.clear()

    def unreadable(operation: str, path: str) -> None:
        if operation == "create":
            raise OutcomeUnknownError("file:///x", "timeout")
        if operation == "get":
            raise StoreError("down")

    store.watch.before = unreadable
    with pytest.raises(CommitUnknownError):
        append(log, "mine.split", base=base)


def test_refused_credentials_are_no_unknown_outcome(store: WatchedStore) -> None:
    log = a_table(store)

    def before(operation: str, path: str) -> None:
        if operation == "create":
            raise CredentialsError("no")

    store.watch.before = before
    with pytest.raises(CredentialsError):
        append(log, "mine.split")


@pytest.mark.server
@pytest.mark.parametrize(
    "fault",
    [Fault.ERROR_AFTER, Fault.DROP_AFTER, Fault.CONFLICT, Fault.BUSY, Fault.DROP_BEFORE],
    ids=lambda f: f.name,
)
def test_an_append_through_a_faulty_network_lands_exactly_once(
    moto_server: S3Server, faulty_s3: Proxy, make_store_url: StoreUrl, fault: Any
) -> None:
    url, _ = make_store_url("s3")
    options = moto_server.options(faulty_s3.port)
    log = a_table(url, options)
    append(log, "a.split")
    faulty_s3.fail(fault, 2)
    append(log, "b.split")
    faulty_s3.fault = lambda _request: None
    invalidate()
    snapshot = a_log(url, options).snapshot()
    assert (snapshot.version, paths_of(snapshot)) == (2, ["a.split", "b.split"])


# --- what a draft carries --------------------------------------------------------------------------


def test_times_grow_with_versions_though_clocks_go_backwards(tmp_path: Path) -> None:
    clock = Clock(now=WHEN, step=-5000)
    log = a_table(str(tmp_path / "t"), clock=clock)
    for n in range(5):
        append(log, f"{n}.split")
    times = [entry.timestamp for entry in log.history()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)
    for entry in log.history():
        assert log.snapshot(timestamp=entry.timestamp).version == entry.version


def test_a_commit_after_another_engines_is_later_than_its_file(tmp_path: Path) -> None:
    table = made.generation_b(tmp_path / "t", 1)
    table.version(2, made.add("c.split"))
    modified = (table.log / version_file(2)).stat().st_mtime_ns // 1_000_000
    log = a_log(str(tmp_path / "t"), clock=Clock(now=5, step=0))
    assert append(log, "d.split").timestamp == modified + 1


def test_skips_and_batches_are_kept_and_a_removed_split_forgets_its_skip(tmp_path: Path) -> None:
    first, _ = two_logs(tmp_path)
    skips = tuple(MergeSkip(path=p, skip_timestamp=1, reason="bad") for p in ("a.split", "b.split"))
    first.commit(Draft(operation="MERGE SPLITS", skips=skips), first.snapshot())
    assert set(first.snapshot().skips) == {"a.split", "b.split"}
    remove(first, "a.split")
    assert set(first.snapshot().skips) == {"b.split"}


def test_an_automatic_checkpoint_that_fails_does_not_fail_the_commit(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_table(
        store, {"checkpoint.enabled": "true", "checkpoint.interval": "2", "state.retry.maxAttempts": "2"}
    )

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("manifests/"):
            raise StoreError("the disk is full")

    store.watch.before = before
    append(log, "a.split")
    assert append(log, "b.split").version == 2
    assert "no state written at version 2" in caplog.text

    # As libraries in Rust raise it; Python's own errors of other kinds are not caught.
    panic = type("PanicException", (BaseException,), {})
    errors: list[type[BaseException]] = [ZeroDivisionError, panic]

    def broken(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("manifests/"):
            raise errors.pop(0)

    store.watch.before = broken
    for version in range(3, 7):
        assert append(log, f"{version}.split").version == version
    assert errors == []
    store.watch.before = lambda *_: None
    append(log, "g.split")
    assert append(log, "h.split").version == 8
    invalidate()
    assert log.snapshot().base.version == 8


def test_a_state_is_written_every_so_many_versions(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"checkpoint.enabled": "true", "checkpoint.interval": "3"})
    for n in range(7):
        append(log, f"{n}.split")
    states = sorted(p.name for p in (tmp_path / "t/_transaction_log").glob("state-v*"))
    assert states == [f"state-v{v:020d}" for v in (3, 6)]


@pytest.mark.parametrize("options", [{"checkpoint.interval": "0"}, {"checkpoint.enabled": "false"}])
def test_states_can_be_turned_off(tmp_path: Path, options: dict[str, Any]) -> None:
    log = a_table(str(tmp_path / "t"), {"checkpoint.enabled": "true", **options})
    for n in range(11):
        append(log, f"{n}.split")
    assert list((tmp_path / "t/_transaction_log").glob("state-v*")) == []


def test_a_base_that_never_was_is_refused(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    stale = replace(log.snapshot(), version=41)
    with pytest.raises(
        CommitConflictError, match="the table is at version 0, and this operation started from 41"
    ):
        append(log, "a.split", base=stale)


# --- truncation between the look and the creation --------------------------------------------------


def truncating(store: WatchedStore, others: int, *, times: int = 1) -> None:
    """Let others commit and truncate the log just before our first attempts create their version."""
    other = a_log(str(store.url).removeprefix("file://"))
    left = [times]

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".json") and left[0]:
            left[0] -= 1
            for n in range(others):
                append(other, f"other-{left[0]}-{n}.split")
            other.truncate()
            time.sleep(0.01)  # files made in the same millisecond cannot be put in order

    store.watch.before = before


@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_a_truncation_overtakes_is_committed_after_it(
    store: WatchedStore, tmp_path: Path, times: int
) -> None:
    log = a_table(store)
    truncating(store, 3, times=times)
    (tmp_path / "t/mine.split").write_bytes(b"rows")
    after = append(log, "mine.split")
    assert after.version == 1 + 3 * times
    invalidate()
    found = a_log(str(tmp_path / "t")).snapshot()
    assert found.version == after.version
    assert "mine.split" in paths_of(found)
    assert len(paths_of(found)) == 1 + 3 * times


def test_a_commit_that_a_truncation_overtakes_is_checked_again(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store)
    append(log, "a.split")
    base = log.snapshot()
    other = a_log(str(tmp_path / "t"))

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".json"):
            store.watch.before = Watch().before
            remove(other, "a.split")
            other.truncate()
            time.sleep(0.01)

    store.watch.before = before
    with pytest.raises(CommitConflictError, match=r"a\.split was removed"):
        merge(log, ["a.split"], "merged.split", base)


def test_a_commit_that_is_truncated_right_after_it_stands(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store)
    other = a_log(str(tmp_path / "t"))

    def after(operation: str, path: str, answer: object) -> object:
        if operation == "create" and path.endswith(".json"):
            store.watch.after = Watch().after
            append(other, "later.split")
            other.truncate()
        return answer

    store.watch.after = after
    append(log, "mine.split")
    invalidate()
    assert sorted(paths_of(a_log(str(tmp_path / "t")).snapshot())) == ["later.split", "mine.split"]


class LazyStore(WatchedStore):
    """Lists when the first object is read, as stores do: the states of a listing before its versions."""

    def at(self, prefix: str) -> "LazyStore":
        return LazyStore(self._store.at(prefix), self.watch)

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[Any]:
        yield from super().list(prefix, after=after)


def test_a_commit_that_is_truncated_while_its_log_is_listed_stands(tmp_path: Path) -> None:
    """Neither the version before it nor the state after it is in such a listing."""
    invalidate()
    store = LazyStore(open_store(str(tmp_path / "t")))
    log = a_table(store)
    append(log, "first.split")
    other = a_log(str(tmp_path / "t"))
    listings: list[str] = []

    def after(operation: str, path: str, answer: object) -> object:
        if operation == "create" and path == version_file(2):
            store.watch.before = before
        return answer

    def before(operation: str, path: str) -> None:
        if operation == "list":
            listings.append(path)
            if len(listings) == 2:
                store.watch.before = Watch().before
                other.truncate()

    store.watch.after = after
    assert append(log, "mine.split").version == 2
    assert len(listings) == 2, "the log was truncated between two listings"
    invalidate()
    assert sorted(paths_of(a_log(str(tmp_path / "t")).snapshot())) == ["first.split", "mine.split"]


def test_a_commit_whose_splits_are_removed_and_truncated_at_once_is_acknowledged(
    store: WatchedStore, tmp_path: Path
) -> None:
    """The state that the truncation leaves names the commit among the last ones."""
    log = a_table(store)
    other = a_log(str(tmp_path / "t"))

    def after(operation: str, path: str, answer: object) -> object:
        if operation == "create" and path.endswith(".json"):
            store.watch.after = Watch().after
            remove(other, "mine.split")
            other.truncate()
        return answer

    store.watch.after = after
    assert append(log, "mine.split").version == 1
    invalidate()
    assert paths_of(log.snapshot()) == []


def test_a_commit_that_the_disk_did_not_confirm_is_unknown_though_its_version_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_table(str(tmp_path / "t"))
    base = log.snapshot()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.realpath(f"/proc/self/fd/{descriptor}").endswith("_transaction_log"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CommitUnknownError, match="could not be flushed"):
        append(log, "a")
    assert log.snapshot().version == base.version + 1


@pytest.mark.parametrize("compress", [True, False])
def test_a_version_that_no_reader_would_accept_is_not_written(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch, compress: bool
) -> None:
    """Else the table could not be read any more."""
    log = a_table(store, {"transaction.compression.enabled": str(compress)})
    append(log, "a.split")
    monkeypatch.setattr(limits, "MAX_UNPACKED", 5000)
    monkeypatch.setattr(version_files, "MAX_UNPACKED", 5000)
    with pytest.raises(LogError, match="readers accept at most 5000; it was not written") as caught:
        append(log, *(f"b-{n}.split" for n in range(100)))
    assert caught.value.not_committed
    append(log, "c.split")
    invalidate()
    assert paths_of(a_log(store).snapshot()) == ["a.split", "c.split"]


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (
            Draft(operation="WRITE", txns=(Txn(app_id="a", version=2**63),)),
            "Expected `int` <= 9223372036854775807",
        ),
        (
            Draft(operation="WRITE", txns=(Txn(app_id="a", version=2**70),)),
            "txn.version|out of range|too large",
        ),
        (Draft(operation="WRITE", user_metadata="\ud800"), "surrogates not allowed"),
        (Draft(operation="WRITE", parameters={"where": "\udcff"}), "surrogates not allowed"),
    ],
)
def test_a_version_with_a_value_that_readers_refuse_is_not_written(
    store: WatchedStore, draft: Draft, says: str
) -> None:
    log = a_table(store)
    base = append(log, "a.split")
    with pytest.raises(LogError, match=says) as caught:
        log.commit(draft, base)
    assert caught.value.not_committed
    invalidate()
    assert a_log(store).snapshot().version == base.version


def test_a_commit_after_the_last_time_that_readers_accept_is_refused(store: WatchedStore) -> None:
    """Its time would be later than that of the version before, which another engine set."""
    log = a_table(store)
    append(log, "a.split")
    last = CommitInfo(timestamp=253_402_300_799_999, operation="WRITE", token="")
    store.create(f"_transaction_log/{2:020d}.json", version_files.encode([last]))
    with pytest.raises(LogError, match=r"readers would refuse it .* at `.*timestamp`"):
        append(log, "b.split")
    invalidate()
    assert paths_of(a_log(store).snapshot()) == ["a.split"]


def test_a_commit_after_the_last_version_that_has_a_name_is_refused(store: WatchedStore) -> None:
    """Readers would not see its file."""
    log = a_table(store)
    text = msgspec.json.encode({"metaData": log.snapshot().metadata}).decode()
    last = 10**18 - 1
    state = {"formatVersion": 1, "stateVersion": last, "numFiles": 0, "manifests": [], "metadata": text}
    store.put(f"_transaction_log/state-v{last:020d}/_manifest.json", msgspec.json.encode(state))
    with pytest.raises(LogError, match=f"has version {last}, and no table has more versions") as caught:
        append(a_log(store), "a.split")
    assert caught.value.not_committed
