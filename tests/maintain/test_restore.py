"""Restoring: the table is what it was, and its history is whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.errors import CommitConflictError, OptionError, SplitError, VersionNotFoundError
from indextables.log.conflict import Draft
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.merge import merge
from indextables.maintain.metadata_changes import drop_partitions, restore
from indextables.options import Options
from tests.log_tables.build import gone
from tests.maintenance_tables import TEXT, appended, ids, log_of


def test_rows_come_back_and_later_ones_leave(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    rows = ids(tmp_path)
    drop_partitions(log_of(tmp_path), "day = 0")
    it.write(tmp_path, [{"id": 99, "day": 9, "message": "later"}])
    outcome = restore(log_of(tmp_path), version=3)
    assert (outcome.splits_restored, outcome.splits_removed) == (1, 1)
    assert outcome.bytes_restored > 0 < outcome.bytes_removed
    assert (outcome.restored_version, outcome.version) == (3, 6)
    assert ids(tmp_path) == rows
    assert 99 in ids(tmp_path, version=5)
    assert it.open(tmp_path).search("append", field="message", limit=None).num_rows == len(rows)


def test_a_merge_can_be_taken_back(tmp_path: Path) -> None:
    table = appended(tmp_path, 4, partition_by=())
    merge(log_of(tmp_path), Options())
    restore(log_of(tmp_path), version=table.version)
    assert it.open(tmp_path).files().num_rows == 4
    assert len(ids(tmp_path)) == 12


def test_schema_and_indexing_come_back_too(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    other = [{"key": "a", "note": "quite another table"}]
    it.write(tmp_path, other, mode="overwrite", options={"overwriteSchema": True})
    restore(log_of(tmp_path), version=2)
    table = it.open(tmp_path)
    assert table.schema.names == ["id", "day", "message"]
    assert table.partition_columns == ("day",)
    assert table.count(where="message INDEXQUERY 'word1'") == 2
    it.write(tmp_path, [{"id": 7, "day": 7, "message": "word1 again"}], options=TEXT)
    assert it.open(tmp_path).count(where="message INDEXQUERY 'word1'") == 3


def test_a_time_finds_its_version(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    log = log_of(tmp_path)
    at = {entry.version: entry.timestamp for entry in log.history()}
    assert restore(log, timestamp=at[2]).restored_version == 2
    assert len(ids(tmp_path)) == 6


def test_the_newest_version_is_restored_by_doing_nothing(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    assert restore(log_of(tmp_path), version=2).version is None
    assert it.open(tmp_path).version == 2


def test_splits_that_a_purge_deleted_are_an_error_that_says_so(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    drop_partitions(log_of(tmp_path), "day = 1")
    gone = next((tmp_path / "day=1").glob("*.split"))
    gone.unlink()
    with pytest.raises(SplitError, match=r"version 3 .* cannot be restored: 1 of its 3 splits were deleted"):
        restore(log_of(tmp_path), version=3)
    assert it.open(tmp_path).version == 4


def test_a_version_that_never_was_is_refused(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    with pytest.raises(VersionNotFoundError, match="versions 0 to 1"):
        restore(log_of(tmp_path), version=5)
    with pytest.raises(OptionError, match="give one of them"):
        restore(log_of(tmp_path))


def remove_the_first_two(folder: Path) -> None:
    log = log_of(folder)
    base = log.snapshot()
    sources = sorted(path for path in base.files()["path"].to_pylist() if path.startswith(("day=0", "day=1")))
    log.commit(Draft(operation="DELETE", removes=tuple(gone(path) for path in sources)), base)


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda folder: drop_partitions(log_of(folder), "day = 0"),
        remove_the_first_two,
    ],
    ids=["drop", "removal"],
)
def test_removing_a_split_that_a_restore_keeps_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], object]
) -> None:
    appended(tmp_path, 3)
    log, real = log_of(tmp_path), TransactionLog.commit

    def commit(self: Any, draft: Any, base: Any) -> Snapshot:
        monkeypatch.setattr(TransactionLog, "commit", real)
        meanwhile(tmp_path)
        return real(self, draft, base)

    monkeypatch.setattr(TransactionLog, "commit", commit)
    with pytest.raises(CommitConflictError):
        restore(log, version=2)
    assert it.open(tmp_path).version == 4


def test_a_change_of_columns_conflicts_with_a_restore_that_only_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 3)
    log, real = log_of(tmp_path), TransactionLog.commit

    def commit(self: Any, draft: Any, base: Any) -> Snapshot:
        monkeypatch.setattr(TransactionLog, "commit", real)
        row = {"id": 9, "day": 7, "message": "wider", "extra": 1}
        it.write(tmp_path, [row], options={"mergeSchema": "true"})
        return real(self, draft, base)

    monkeypatch.setattr(TransactionLog, "commit", commit)
    with pytest.raises(CommitConflictError, match="schema"):
        restore(log, version=2)
    assert "extra" in it.open(tmp_path).schema.names


def test_rows_appended_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(tmp_path, 2)
    log = log_of(tmp_path)
    real = TransactionLog.commit

    def commit(self: Any, draft: Any, base: Any) -> Snapshot:
        monkeypatch.setattr(TransactionLog, "commit", real)
        it.write(tmp_path, [{"id": 50, "day": 5, "message": "meanwhile"}])
        return real(self, draft, base)

    monkeypatch.setattr(TransactionLog, "commit", commit)
    restore(log, version=1)
    assert ids(tmp_path) == [0, 1, 2, 50]
