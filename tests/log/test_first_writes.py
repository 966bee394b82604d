"""First writes of a table at the same time, and repairs that were interrupted."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import (
    CommitConflictError,
    CommitUnknownError,
    IndexTablesError,
    OutcomeUnknownError,
    TableExistsError,
)
from indextables.ingest import Mode, SplitUploads, finish_write, plan_write
from indextables.ingest.target import as_reader
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.purge import purge
from indextables.options import Options
from indextables.store import Store, open_store
from tests.log_tables.build import (
    a_log,
    paths_of,
)


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


def fresh(path: Path | str) -> list[str]:
    invalidate()
    return paths_of(a_log(str(path)).snapshot())


def planned_write(
    path: Path, rows: list[dict[str, Any]], mode: Mode, options: dict[str, str] | None = None
) -> Callable[..., tuple[Snapshot, bool]]:
    """A write whose splits are uploaded and that is not committed yet."""
    checked = Options.parse(options)
    log = TransactionLog(open_store(path, checked), checked, engine="test")
    reader = as_reader(rows)
    planned, base = plan_write(log, reader.schema, mode=mode, partition_by=(), options=checked)
    uploads = SplitUploads(log.store, planned.target, checked)
    adds = uploads.write(planned.convert(reader))
    return lambda: finish_write(log, planned, adds, checked, base)


def ids(path: Path) -> list[int]:
    invalidate()
    return sorted(indextables.open(path).scan()["id"].to_pylist())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(Mode.APPEND, [1, 2]), (Mode.OVERWRITE, [2]), (Mode.IGNORE, [1]), (Mode.ERROR, [1])],
)
def test_a_first_write_that_finds_another_ones_table_does_what_its_mode_says(
    tmp_path: Path, mode: Any, expected: list[int]
) -> None:
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


def test_a_first_write_with_other_indexing_than_the_table_that_was_made_meanwhile_fails(
    tmp_path: Path,
) -> None:
    first = planned_write(tmp_path / "t", [{"id": 1, "m": "a b"}], Mode.APPEND)
    second = planned_write(
        tmp_path / "t", [{"id": 2, "m": "a b"}], Mode.APPEND, {"indexing.typemap.m": "text"}
    )
    first()
    with pytest.raises(IndexTablesError, match="this write does not fit it"):
        second()
    assert ids(tmp_path / "t") == [1]
    assert len(list((tmp_path / "t").glob("*.split"))) == 1


def test_a_first_write_whose_uploads_went_with_the_folder_is_refused(tmp_path: Path) -> None:
    first = planned_write(tmp_path / "t", [{"id": 1}], Mode.APPEND)
    shutil.rmtree(tmp_path / "t")
    indextables.write(tmp_path / "t", [{"id": 2}])
    with pytest.raises(IndexTablesError, match="folder was deleted meanwhile"):
        first()
    assert ids(tmp_path / "t") == [2]


def test_who_creates_the_table_does_not_overlook_what_others_wrote_into_it_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two overwrites that both found no table: the creator's own must not stand beside a later one."""
    first = planned_write(tmp_path / "t", [{"id": 1}], Mode.OVERWRITE)
    create = TransactionLog.create

    def create_and_lose_time(self: Any, *arguments: Any, **more: Any) -> Snapshot:
        done = create(self, *arguments, **more)
        monkeypatch.undo()
        planned_write(tmp_path / "t", [{"id": 2}], Mode.OVERWRITE)()
        return done

    monkeypatch.setattr(TransactionLog, "create", create_and_lose_time)
    with pytest.raises(CommitConflictError, match="overwrote the table too"):
        first()
    assert ids(tmp_path / "t") == [2]


def test_a_first_write_whose_table_may_or_may_not_exist_says_that_no_rows_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = planned_write(tmp_path / "t", [{"id": 1}], Mode.APPEND)

    def create(self: Any, path: Any, data: Any) -> None:
        raise OutcomeUnknownError(self.url, "timed out")

    monkeypatch.setattr(Store, "create", create)
    monkeypatch.setattr(TransactionLog, "check_store", lambda self: None)
    with pytest.raises(IndexTablesError, match="no rows were written; write again") as caught:
        write()
    assert not isinstance(caught.value, CommitUnknownError)
    assert caught.value.not_committed
    monkeypatch.undo()
    assert not list((tmp_path / "t").glob("*.split"))


def lost_log(path: Path) -> None:
    """A table whose log is gone and whose splits are a month old."""
    for number in range(2):
        indextables.write(path, [{"id": number}])
    shutil.rmtree(path / "_transaction_log")
    month_ago = time.time() - 30 * 86_400
    for file in path.glob("*.split"):
        os.utime(file, (month_ago, month_ago))
    invalidate()


def test_a_purge_in_the_middle_of_a_repair_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_log(tmp_path / "t")
    commit = TransactionLog.commit

    def commit_after_a_purge(self: Any, draft: Any, base: Any) -> Snapshot:
        monkeypatch.undo()
        log = TransactionLog(open_store(tmp_path / "t"), Options(), engine="test")
        assert purge(log, Options()).orphans_deleted == 0
        return commit(self, draft, base)

    monkeypatch.setattr(TransactionLog, "commit", commit_after_a_purge)
    indextables.repair(str(tmp_path / "t"))
    assert ids(tmp_path / "t") == [0, 1]


def test_a_repair_that_was_stopped_between_its_versions_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_log(tmp_path / "t")

    def stop(self: Any, draft: Any, base: Any) -> None:
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
