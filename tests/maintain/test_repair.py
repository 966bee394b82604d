"""A log is written anew, from one that can be read or from the splits alone."""

import json
import shutil
import time
from pathlib import Path

import pytest

import indextables as it
from indextables.errors import IndexTablesError, LogError, OptionError, TableNotFoundError
from indextables.log.conflict import Draft
from indextables.log.format.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.merge import merge
from indextables.maintain.repair import repair
from indextables.options import Options
from indextables.split import writer
from tests.maintenance_tables import TEXT, appended, ids, log_of, splits

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "original-0.5.4"
LOG = "_transaction_log"


def moved_into_place(table: Path, new: Path) -> None:
    shutil.rmtree(table / LOG)
    shutil.move(new / LOG, table / LOG)


def test_missing_splits_are_left_out_and_the_source_is_not_changed(tmp_path: Path) -> None:
    table = tmp_path / "t"
    appended(table, 12, **{"checkpoint.interval": 5})
    (table / min(splits(table))).unlink()
    before = {p: p.read_bytes() for p in (table / LOG).rglob("*") if p.is_file()}
    done = repair(f"{table}/{LOG}", f"{tmp_path}/new/{LOG}", Options(), engine="test")
    assert (done.source_version, done.total_splits, done.valid_splits, done.missing_splits) == (12, 12, 11, 1)
    assert done.left_out[0][1] == "the file is missing"
    assert {p: p.read_bytes() for p in (table / LOG).rglob("*") if p.is_file()} == before
    moved_into_place(table, tmp_path / "new")
    repaired = it.open(table)
    assert (repaired.version, repaired.count()) == (1, 33)
    assert repaired.count(where="message INDEXQUERY 'word1'") == 11
    assert repaired.count(where="day > 9") == 6
    it.write(table, [{"id": 100, "day": 1, "message": "goes on"}], options=TEXT)


def test_what_was_overwritten_does_not_come_back(tmp_path: Path) -> None:
    table = tmp_path / "t"
    appended(table, 2)
    it.write(table, [{"id": 5, "day": 5, "message": "only this"}], mode="overwrite")
    done = repair(f"{table}/{LOG}/", f"{tmp_path}/new/{LOG}", Options(), engine="test")
    assert done.valid_splits == 1
    moved_into_place(table, tmp_path / "new")
    assert ids(table) == [5]


def test_of_a_damaged_log_the_newest_readable_version_is_taken(tmp_path: Path) -> None:
    table = tmp_path / "t"
    appended(table, 4)
    (table / LOG / f"{3:020d}.json").write_bytes(b"\x1f\x8bnothing")
    done = repair(f"{table}/{LOG}", f"{tmp_path}/new/{LOG}", Options(), engine="test")
    assert (done.source_version, done.valid_splits) == (2, 2)


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("t", "new/_transaction_log", "does not end in _transaction_log"),
        ("t/_transaction_log", "new", "does not end in _transaction_log"),
        ("t/_transaction_log", "t/_transaction_log", "give a folder that is absent or empty"),
    ],
)
def test_places_that_are_no_log_folders_are_refused(
    tmp_path: Path, source: str, target: str, says: str
) -> None:
    appended(tmp_path / "t", 1)
    with pytest.raises(OptionError, match=says):
        repair(f"{tmp_path}/{source}", f"{tmp_path}/{target}", Options(), engine="test")


@pytest.mark.parametrize("ending", ["", f"/{LOG}"])
def test_a_lost_log_is_rebuilt_from_the_splits(tmp_path: Path, ending: str) -> None:
    before = appended(tmp_path, 3)
    rows, listed = before.scan().sort_by("id"), before.files()
    shutil.rmtree(tmp_path / LOG)
    done = repair(f"{tmp_path}{ending}", None, Options(), engine="test")
    assert (done.source_version, done.total_splits, done.valid_splits, done.missing_splits) == (-1, 3, 3, 0)
    table = it.open(tmp_path)
    assert table.scan().sort_by("id").equals(rows)
    assert (table.schema, table.partition_columns) == (before.schema, ("day",))
    assert table.count(where="message INDEXQUERY 'word1'") == 3
    for column in ("size", "minValues", "maxValues", "numRecords", "footerStartOffset", "stats"):
        told = dict(zip(table.files()["path"].to_pylist(), table.files()[column].to_pylist(), strict=True))
        assert told == dict(zip(listed["path"].to_pylist(), listed[column].to_pylist(), strict=True))
    it.write(tmp_path, [{"id": 100, "day": 1, "message": "goes on"}], options=TEXT)
    assert it.open(tmp_path).count(where="message INDEXQUERY 'goes'") == 1


def test_rows_of_a_merge_are_there_once(tmp_path: Path) -> None:
    appended(tmp_path, 6, partition_by=())
    merge(log_of(tmp_path), Options())
    it.write(tmp_path, [{"id": 100, "day": 1, "message": "after"}], options=TEXT)
    rows = ids(tmp_path)
    assert len(splits(tmp_path)) == 8
    shutil.rmtree(tmp_path / LOG)
    done = repair(str(tmp_path), None, Options(), engine="test")
    assert (done.total_splits, done.valid_splits, done.missing_splits) == (8, 2, 0)
    assert ids(tmp_path) == rows


def test_rows_of_a_merge_that_indexed_them_again_are_there_once(tmp_path: Path) -> None:
    """A column that came later is a reason to index again; the second merge takes over the first one's index."""
    appended(tmp_path, 3, partition_by=())
    options = {**TEXT, "mergeSchema": True}
    it.write(tmp_path, [{"id": 100, "day": 1, "message": "new", "extra": 1}], options=options)
    merge(log_of(tmp_path), Options())
    it.write(tmp_path, [{"id": 101, "day": 1, "message": "newer", "extra": 1}], options=TEXT)
    merge(log_of(tmp_path), Options())
    rows = ids(tmp_path)
    assert len(splits(tmp_path)) == 7
    shutil.rmtree(tmp_path / LOG)
    done = repair(str(tmp_path), None, Options(), engine="test")
    assert (done.total_splits, done.valid_splits, done.missing_splits) == (7, 1, 0)
    assert ids(tmp_path) == rows


def test_rows_of_converted_splits_are_there_once(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden/tables/quickwit-bundles", tmp_path / "t")
    table = it.open(tmp_path / "t")
    rows = ids(tmp_path / "t")
    assert table.convert().converted == 3
    shutil.rmtree(tmp_path / "t" / LOG)
    done = repair(str(tmp_path / "t"), None, Options(), engine="test")
    assert (done.valid_splits, done.missing_splits) == (3, 0)
    assert ids(tmp_path / "t") == rows


def test_splits_whose_random_numbers_are_equal_by_chance_are_not_taken_for_merged_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "new_source_id", lambda: 5)
    appended(tmp_path, 3, partition_by=())
    rows = ids(tmp_path)
    shutil.rmtree(tmp_path / LOG)
    done = repair(str(tmp_path), None, Options(), engine="test")
    assert (done.valid_splits, done.missing_splits) == (3, 0)
    assert ids(tmp_path) == rows


def test_a_merge_by_a_machine_whose_clock_is_behind_replaces_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 3, partition_by=())
    rows = ids(tmp_path)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 600 * 10**9)
    merge(log_of(tmp_path), Options())
    monkeypatch.undo()
    shutil.rmtree(tmp_path / LOG)
    done = repair(str(tmp_path), None, Options(), engine="test")
    assert (done.valid_splits, done.missing_splits) == (1, 0)
    assert ids(tmp_path) == rows


def test_a_table_whose_repair_was_interrupted_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the splits of the lost log would be orphans of that table, which a purge deletes."""
    appended(tmp_path, 3)
    rows = ids(tmp_path)
    shutil.rmtree(tmp_path / LOG)

    def commit(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TransactionLog, "commit", commit)
    with pytest.raises(KeyboardInterrupt):
        repair(str(tmp_path), None, Options(), engine="test")
    monkeypatch.undo()
    with pytest.raises(LogError, match="was interrupted before its splits were in the log; run REPAIR"):
        appended(tmp_path, 1)
    assert repair(str(tmp_path), None, Options(), engine="test").valid_splits == 3
    assert ids(tmp_path) == rows
    appended(tmp_path, 1)


def test_a_first_write_is_refused_if_a_repair_was_interrupted_while_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit would end the repair, and the splits of the lost log would be orphans."""
    appended(tmp_path, 3)
    rows, before = ids(tmp_path), splits(tmp_path)
    shutil.rmtree(tmp_path / LOG)
    create, commit = TransactionLog.create, TransactionLog.commit

    def interrupted(log: TransactionLog, draft: Draft, base: Snapshot) -> Snapshot:
        if draft.operation == "REPAIR":
            raise KeyboardInterrupt
        return commit(log, draft, base)

    def late(log: TransactionLog, metadata: Metadata, *, operation: str = "CREATE TABLE") -> Snapshot | None:
        if operation != "REPAIR":
            with pytest.raises(KeyboardInterrupt):
                repair(str(tmp_path), None, Options(), engine="test")
        return create(log, metadata, operation=operation)

    monkeypatch.setattr(TransactionLog, "commit", interrupted)
    monkeypatch.setattr(TransactionLog, "create", late)
    with pytest.raises(LogError, match="was interrupted before its splits were in the log; run REPAIR"):
        appended(tmp_path, 1)
    monkeypatch.undo()
    assert splits(tmp_path) == before
    assert repair(str(tmp_path), None, Options(), engine="test").valid_splits == 3
    assert ids(tmp_path) == rows


def test_an_empty_table_that_was_repaired_is_written_to(tmp_path: Path) -> None:
    table = appended(tmp_path / "t", 1)
    table.drop_partitions("day = 0")
    new = tmp_path / "new" / LOG
    assert repair(str(tmp_path / "t" / LOG), str(new), Options(), engine="test").total_splits == 0
    moved_into_place(tmp_path / "t", tmp_path / "new")
    assert appended(tmp_path / "t", 1).count() == 3


def test_damaged_splits_are_left_out_with_their_reason(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    bad = tmp_path / min(splits(tmp_path))
    bad.write_bytes(bad.read_bytes()[:-10])
    shutil.rmtree(tmp_path / LOG)
    done = repair(str(tmp_path), None, Options(), engine="test")
    assert (done.valid_splits, done.missing_splits) == (2, 1)
    assert "truncated or damaged" in done.left_out[0][1]


def test_columns_that_came_later_are_kept(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    later = [{"id": 50, "day": 1, "message": "more", "extra": 1.5}]
    before = it.write(tmp_path, later, options={**TEXT, "mergeSchema": True})
    shutil.rmtree(tmp_path / LOG)
    repair(str(tmp_path), None, Options(), engine="test")
    assert it.open(tmp_path).scan().sort_by("id").equals(before.scan().sort_by("id"))


def test_a_log_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    with pytest.raises(OptionError, match="it can be read; to write a new one elsewhere, give AT LOCATION"):
        repair(str(tmp_path), None, Options(), engine="test")
    (tmp_path / LOG / f"{0:020d}.json").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(OptionError, match="cannot be read"):
        repair(str(tmp_path), None, Options(), engine="test")


def test_nothing_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        repair(str(tmp_path), None, Options(), engine="test")
    (tmp_path / "a.split").write_bytes(b"x" * 100)
    with pytest.raises(IndexTablesError, match="none of 1 splits"):
        repair(str(tmp_path), None, Options(), engine="test")
    assert not (tmp_path / LOG).exists()


@pytest.mark.skipif(not FIXTURES.exists(), reason="the original's tables are not at hand")
@pytest.mark.parametrize("name", ["04_partitioned", "06_schema_dedup"])
def test_tables_of_the_original_come_back_as_far_as_their_splits_tell(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "t")
    shutil.rmtree(tmp_path / "t" / LOG)
    repair(str(tmp_path / "t"), None, Options(), engine="test")
    expected = json.loads((FIXTURES / "expected.json").read_text())[name]["rows"]
    found = it.open(tmp_path / "t").scan().to_pylist()
    assert sorted(found, key=lambda r: r["id"]) == sorted(expected, key=lambda r: r["id"])
