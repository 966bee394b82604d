"""An error after the creation of a version leaves the outcome unknown, and it can be looked up."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import (
    CommitUnknownError,
    CredentialsError,
    OutcomeUnknownError,
    ProtocolError,
    StoreError,
)
from indextables.log.conflict import Draft
from indextables.log.format.actions import Protocol
from indextables.log.format.names import version_file
from indextables.log.snapshot_cache import invalidate
from indextables.store import Store, open_store
from indextables.store.backend import ObjectInfo
from tests.log_tables.build import (
    a_log,
    a_table,
    append,
    metadata,
    paths_of,
    split,
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


def failing_after_create(store: WatchedStore, error: Exception, version: int = 1) -> None:
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


@pytest.mark.parametrize(
    "error",
    [StoreError("503"), CredentialsError("expired"), OSError(24, "Too many open files"), MemoryError()],
    ids=["503", "expired token", "too many files", "memory"],
)
def test_an_error_right_after_the_creation_leaves_the_outcome_unknown(
    store: WatchedStore, tmp_path: Path, error: Any
) -> None:
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


def test_the_splits_of_a_write_stay_when_reading_fails_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indextables.write(tmp_path / "t", [{"id": 1}])
    create, listing = Store.create, Store.list
    committed = []

    def create_and_note(self: Any, path: Any, data: Any) -> bool:
        done = create(self, path, data)
        if path == version_file(2):
            committed.append(path)
        return done

    def failing_list(self: Any, prefix: str = "", *, after: Any = None) -> Iterator[ObjectInfo]:
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


def test_an_unknown_attempt_followed_by_a_refusal_is_unknown(store: WatchedStore, tmp_path: Path) -> None:
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


def test_a_lost_first_answer_and_a_lost_race_at_the_last_attempt_are_told_apart(tmp_path: Path) -> None:
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


def test_a_refused_commit_says_that_nothing_was_committed(store: WatchedStore) -> None:
    log = a_table(store)

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(1):
            raise CredentialsError("access denied")

    store.watch.before = before
    with pytest.raises(CredentialsError) as caught:
        append(log, "a.split")
    assert caught.value.not_committed


def test_the_outcome_of_a_commit_that_lost_its_number_is_known(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    assert log.commit_outcome("f" * 32, version=1).committed is False
    token = log.snapshot().token
    log.truncate()
    append(log, "b.split")
    outcome = log.commit_outcome(token, version=1)
    assert (outcome.committed, outcome.version) == (True, 1)


def ids(path: Path) -> list[int]:
    invalidate()
    return sorted(indextables.open(path).scan()["id"].to_pylist())


def hiding(store: WatchedStore, name: str, times: int) -> None:
    """The next listings do not show a file that is there: it was created while they ran."""
    left = [times]

    def after(operation: str, path: str, answer: Any) -> Any:
        if operation == "list" and left[0] and any(info.path == name for info in answer):
            left[0] -= 1
            return [info for info in answer if info.path != name]
        return answer

    store.watch.after = after


@pytest.mark.parametrize("times", [1, 2])
def test_a_listing_that_shows_a_version_without_the_one_before_it_is_repeated(
    store: WatchedStore, times: int
) -> None:
    log = a_table(store)
    append(log, "a.split")
    append(log, "b.split")
    invalidate()
    hiding(store, version_file(1), times)
    assert paths_of(a_log(store).snapshot()) == ["a.split", "b.split"]


def test_a_commit_looks_again_when_a_listing_misses_a_version_in_between(store: WatchedStore) -> None:
    log = a_table(store)
    base = log.snapshot()
    append(log, "a.split")
    append(log, "b.split")
    hiding(store, version_file(1), 1)
    draft = Draft(operation="OVERWRITE", adds=(split("c.split"),), parameters={"mode": "overwrite"})
    assert log.commit(draft, base).version == 3, "no conflict: both versions in between are appends"


def test_a_state_that_vanishes_while_a_commit_is_confirmed_leaves_no_doubt(
    store: WatchedStore, tmp_path: Path
) -> None:
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


def test_a_handle_that_checks_the_protocol_is_not_answered_from_one_that_does_not(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    careless = a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"})
    newer = Protocol(min_reader_version=99, min_writer_version=99)
    careless.commit(Draft(operation="UPGRADE", protocol=newer), careless.snapshot())
    careless.snapshot()
    with pytest.raises(ProtocolError, match="99"):
        a_log(str(tmp_path / "t")).snapshot()
