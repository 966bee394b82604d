"""Companion indexes of Delta tables and folders: incremental syncs, missing files, freshness, refusals."""

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables.data_files import open_log
from indextables.errors import (
    CommandError,
    OptionError,
    ProtocolError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
)
from indextables.log.format.actions import COMPANION_SPLITS, Add
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import purge as purging
from indextables.options import Options
from indextables.split.mapping import Mapping
from indextables.store import open_store
from indextables.sync import run as running
from indextables.sync.build import BuildContext, build_split
from indextables.sync.plan import SyncRequest

TEXT = {"indexing.typemap.message": "text"}
WORDS = ["disk full", "all well", "disk slow", "login failed", "login ok"]


def rows(first: int, count: int, **more: list[Any]) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": [f"d{number % 3}" for number in numbers],
            "message": [None if number % 11 == 0 else WORDS[number % 5] for number in numbers],
            **more,
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    deltalake.write_deltalake(path, rows(0, 30), partition_by=["day"])
    return path


def having(word: str, *ranges: range) -> list[int]:
    """The ids of the rows that have a word in their message."""
    numbers = [number for each in ranges for number in each]
    return [number for number in numbers if number % 11 and word in WORDS[number % 5]]


def ids(table: indextables.Table, where: str | None = None) -> list[int]:
    return sorted(table.scan(["id"], where).column(0).to_pylist())


def records_of_message(index: Path) -> set[str]:
    """What the postings of the column `message` have, in all splits of the index."""
    mappings = open_log(open_store(index), Options(), engine="test").snapshot().registry.values()
    return {field.record for text in mappings for field in Mapping.from_json(text).fields_of("message")}


def interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_new_index_has_no_positions_unless_an_option_asks_for_them(source: Path, tmp_path: Path) -> None:
    for record, options in (
        ("freq", {}),
        ("position", {"indexing.text.indexRecordOption": "position"}),
        ("position", {"indexing.indexrecordoption.message": "position"}),
    ):
        index = tmp_path / "-".join([record, *options])
        indextables.companion(source, at=index, options=TEXT | options)
        deltalake.write_deltalake(source, rows(30, 3), mode="append")
        # Later syncs go on as the first one began.
        indextables.companion(source, at=index)
        assert records_of_message(index) == {record}
        table = indextables.open(index)
        for phrase in ("disk full", "full disk", "login ok"):
            expected = [row for row in table.scan().to_pylist() if phrase in (row["message"] or "")]
            assert table.count(f"message INDEXQUERY '\"{phrase}\"'") == len(expected)


def test_only_new_files_are_indexed(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    first = indextables.companion(source, at=index, options=TEXT)
    assert (first.status, first.splits_created, first.files_indexed) == ("success", 3, 3)
    again = indextables.companion(source, at=index)
    assert (again.status, again.splits_created, again.version) == ("no_action", 0, first.version)
    deltalake.write_deltalake(source, rows(30, 3), mode="append")
    dry = indextables.companion(source, at=index, dry_run=True)
    assert (dry.status, dry.files_indexed, dry.version) == ("dry_run", 3, first.version)
    next_ = indextables.companion(source, at=index)
    assert (next_.splits_created, next_.splits_invalidated, next_.source_version) == (3, 0, 1)
    table = indextables.open(index)
    assert (table.count(), table.partition_columns) == (33, ("day",))
    assert table.text_columns == ("message",)
    assert ids(table, "message INDEXQUERY 'disk' AND day = 'd1'") == having("disk", range(1, 33, 3))
    assert table.search("disk", limit=2, scores=True, highlight=["message"]).num_rows == 2
    groups = table.aggregate({"n": "count(*)", "last": "max(id)"}, group_by=["day"]).to_pylist()
    assert sorted((g["day"], g["n"], g["last"]) for g in groups) == [
        ("d0", 11, 30),
        ("d1", 11, 31),
        ("d2", 11, 32),
    ]
    assert indextables.open(index, version=first.version).count() == 30


def test_rows_are_not_copied(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "index", options=TEXT)
    for split in (tmp_path / "index").rglob("*.split"):
        assert pq.read_schema(split).names == ["_position", "_row"]


def test_deleted_and_rewritten_rows_leave_the_index(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    table = deltalake.DeltaTable(source)
    table.delete("id = 3")
    table.update({"message": "'disk gone'"}, predicate="id = 4")
    result = indextables.companion(source, at=index)
    assert (result.splits_created, result.splits_invalidated) == (2, 2)
    now = indextables.open(index)
    assert now.count("message INDEXQUERY 'gone'") == 1
    assert 3 not in ids(now)
    # The earlier version still refers to its files.
    assert ids(indextables.open(index, version=1)) == list(range(30))


def test_many_small_splits_become_one(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    for number in range(9):
        deltalake.write_deltalake(source, rows(number * 10, 10), mode="append")
        indextables.companion(source, at=index, options=TEXT)
    table = indextables.open(index)
    assert table.files().num_rows < 9
    assert ids(table) == list(range(90))


def test_target_size_bounds_the_files_of_a_split(tmp_path: Path) -> None:
    for number in range(6):
        deltalake.write_deltalake(tmp_path / "source", rows(number * 10, 10), mode="append")
    size = max(path.stat().st_size for path in (tmp_path / "source").glob("*.parquet"))
    done: list[Any] = []
    result = indextables.companion(
        tmp_path / "source",
        at=tmp_path / "index",
        target_size=2 * size,
        progress=lambda *all_: done.append(all_),
    )
    assert (result.splits_created, done) == (3, [(1, 3), (2, 3), (3, 3)])
    assert ids(indextables.open(tmp_path / "index")) == list(range(60))


def test_a_condition_on_partitions_selects_files(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    result = indextables.companion(source, at=index, where="day IN ('d0', 'd2')")
    assert result.files_indexed == 2
    assert indextables.open(index).count() == 20
    deltalake.write_deltalake(source, rows(30, 3), mode="append")
    assert indextables.companion(source, at=index).files_indexed == 2
    assert indextables.open(index).count() == 22
    changed = indextables.companion(source, at=index, where="day = 'd1'")
    assert (changed.files_indexed, changed.splits_invalidated) == (2, 4)
    assert indextables.open(index).count() == indextables.open(index).count("day = 'd1'") == 11
    with pytest.raises(CommandError, match=r"may only compare partition columns of the source.*: day"):
        indextables.companion(source, at=index, where="id > 3")


def test_columns_are_included_and_excluded(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "a", include=["message"], options=TEXT)
    indextables.companion(source, at=tmp_path / "b", exclude=["message"])
    for name, where, count in (("a", "id >= 20", 10), ("b", "message LIKE '%disk%'", 10)):
        assert indextables.open(tmp_path / name).count(where) == count
    columns = {
        name: {
            part.column for split in indextables.open(tmp_path / name).components() for part in split.parts
        }
        for name in "ab"
    }
    assert "message" in columns["a"] - columns["b"]
    assert "id" in columns["b"] - columns["a"]
    with pytest.raises(OptionError, match="included or excluded, not both"):
        indextables.companion(source, at=tmp_path / "c", include=["id"], exclude=["message"])
    with pytest.raises(OptionError, match="no column 'nosuch'; its columns are: id, day, message"):
        indextables.companion(source, at=tmp_path / "c", include=["nosuch"])
    with pytest.raises(OptionError, match="no column is left to be indexed"):
        indextables.companion(source, at=tmp_path / "c", include=["day"])
    assert not (tmp_path / "c").exists()


def test_columns_that_are_added_are_null_in_older_splits(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(
        source, rows(30, 3, level=["low", None, "high"]), mode="append", schema_mode="merge"
    )
    result = indextables.companion(source, at=index)
    assert (result.splits_created, result.splits_invalidated) == (3, 0)
    table = indextables.open(index)
    assert (table.count("level IS NULL"), table.count("level = 'low'")) == (31, 1)
    assert ids(table, "level INDEXQUERY 'high'") == [32]


def test_a_column_that_files_had_all_along_is_indexed_when_it_is_added(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    pq.write_table(rows(0, 5), folder / "a.parquet")
    pq.write_table(rows(5, 5, level=["high"] * 5), folder / "b.parquet")
    indextables.companion(folder, at=tmp_path / "index")
    assert "level" not in indextables.open(tmp_path / "index").schema.names
    result = indextables.companion(folder, at=tmp_path / "index", merge_schema=True)
    assert (result.splits_created, result.splits_invalidated) == (1, 1)
    assert indextables.open(tmp_path / "index").count("level = 'high'") == 5


def test_a_column_that_comes_back_has_its_values_in_all_splits(tmp_path: Path) -> None:
    folder, index = tmp_path / "source", tmp_path / "index"
    folder.mkdir()
    pq.write_table(rows(0, 5), folder / "a.parquet")
    pq.write_table(rows(5, 5, level=["high"] * 5), folder / "b.parquet")
    indextables.companion(folder, at=index, merge_schema=True)
    # Built while the source has no such column.
    pq.write_table(rows(10, 5, level=["high"] * 5), folder / "c.parquet")
    indextables.companion(folder, at=index, merge_schema=False)
    assert "level" not in indextables.open(index).schema.names
    indextables.companion(folder, at=index, merge_schema=True)
    assert ids(indextables.open(index), "level = 'high'") == list(range(5, 15))
    assert ids(indextables.open(index), "level IS NULL") == list(range(5))


def test_a_column_of_another_type_leads_to_a_new_build(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(
        source,
        rows(0, 4).set_column(0, "id", pa.array(list("abcd"))),
        mode="overwrite",
        schema_mode="overwrite",
    )
    result = indextables.companion(source, at=index)
    assert "the column id was renamed, replaced, or has another type" in result.message
    assert indextables.open(index).count("id = 'c'") == 1


def test_other_indexing_options_lead_to_a_new_build(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "index")
    result = indextables.companion(source, at=tmp_path / "index", options=TEXT)
    assert "the column message is indexed in another way" in result.message
    assert result.splits_invalidated == 3
    assert indextables.open(tmp_path / "index").count("message INDEXQUERY 'disk'") == len(
        having("disk", range(30))
    )
    assert indextables.companion(source, at=tmp_path / "index", rebuild=True).splits_created == 3


def test_a_source_that_was_created_again_is_indexed_anew(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "index")
    shutil.rmtree(source)
    deltalake.write_deltalake(source, rows(100, 4), partition_by=["day"])
    result = indextables.companion(source, at=tmp_path / "index")
    assert "replaced by another table" in result.message
    assert ids(indextables.open(tmp_path / "index")) == [100, 101, 102, 103]


# --- files that changed --------------------------------------------------------------------------------


def test_a_file_that_vanished_is_an_error_that_says_sync_again(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "index", options=TEXT)
    table = deltalake.DeltaTable(source)
    table.delete("day = 'd1'")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    index = indextables.open(tmp_path / "index")
    # Counts need the index only.
    assert index.count("message INDEXQUERY 'disk'") == len(having("disk", range(30)))
    with pytest.raises(SourceChangedError, match=r"is not there any more.*sync again"):
        index.scan()
    latest = indextables.open(tmp_path / "index", options={"companion.freshness": "latest"})
    assert (latest.scan().num_rows, latest.count("message INDEXQUERY 'disk'")) == (
        20,
        len(having("disk", range(0, 30, 3), range(2, 30, 3))),
    )
    indextables.companion(source, at=tmp_path / "index")
    assert indextables.open(tmp_path / "index").scan().num_rows == 20


def test_a_file_of_a_folder_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    pq.write_table(rows(0, 20), folder / "a.parquet", compression="none")
    indextables.companion(folder, at=tmp_path / "index")
    index = indextables.open(tmp_path / "index")
    assert ids(index, "id >= 10") == list(range(10, 20))
    size = (folder / "a.parquet").stat().st_size
    pq.write_table(rows(55, 20), folder / "a.parquet", compression="none")
    # Even if the file has the same size, and is open.
    assert (folder / "a.parquet").stat().st_size == size
    for read in (index, indextables.open(tmp_path / "index")):
        with pytest.raises(SourceChangedError, match="sync again"):
            read.scan(where="id >= 10")
    assert indextables.companion(folder, at=tmp_path / "index").splits_invalidated == 1
    assert ids(indextables.open(tmp_path / "index")) == list(range(55, 75))


def test_the_newest_version_of_the_source_is_read_if_requested(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(source, rows(30, 6), mode="append")
    deltalake.DeltaTable(source).delete("id = 7")
    synced, latest = (
        indextables.open(index, options={"companion.freshness": freshness})
        for freshness in ("synced", "latest")
    )
    assert (synced.count(), latest.count()) == (30, 35)
    assert ids(latest) == [number for number in range(36) if number != 7]
    where = "message INDEXQUERY 'disk'"
    assert ids(synced, where) == having("disk", range(30))
    assert ids(latest, where) == having("disk", range(7), range(8, 36))
    best = latest.search("disk", limit=None, columns=["id"], scores=True)
    assert sorted(best["id"].to_pylist()) == ids(latest, where)
    assert min(best["_score"].to_pylist()) > 0
    groups = latest.aggregate({"n": "count(*)", "low": "min(id)"}, group_by=["day"]).to_pylist()
    assert sorted((g["day"], g["n"], g["low"]) for g in groups) == [
        ("d0", 12, 0),
        ("d1", 11, 1),
        ("d2", 12, 2),
    ]
    with pytest.raises(OptionError, match="a version of the index cannot be given with it"):
        indextables.open(index, version=1, options={"companion.freshness": "latest"})


def test_the_newest_version_is_refused_when_columns_changed(source: Path, tmp_path: Path) -> None:
    indextables.companion(source, at=tmp_path / "index")
    deltalake.write_deltalake(
        source,
        rows(0, 4).set_column(0, "id", pa.array(list("abcd"))),
        mode="overwrite",
        schema_mode="overwrite",
    )
    with pytest.raises(SourceError, match=r"the column id of .* sync again"):
        indextables.open(tmp_path / "index", options={"companion.freshness": "latest"})


# --- several at once -----------------------------------------------------------------------------------


def test_of_two_first_builds_at_once_one_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    others: list[Any] = []

    def build(*arguments: Any) -> Add:
        if not others:
            others.append(None)
            others[0] = indextables.companion(source, at=index, options=TEXT)
        return build_split(*arguments)

    monkeypatch.setattr(running, "build_split", build)
    result = indextables.companion(source, at=index, options=TEXT)
    assert (others[0].status, result.status) == ("success", "no_action")
    table = indextables.open(index)
    assert (table.count(), table.files().num_rows) == (30, 3)
    # What the slower sync built is deleted again.
    assert len(list(index.rglob("*.split"))) == 3


def test_an_index_whose_first_sync_was_killed_does_not_answer(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    with monkeypatch.context() as patch:
        patch.setattr(TransactionLog, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            indextables.companion(source, at=index, options=TEXT)
    for options in ({}, {"companion.freshness": "latest"}):
        with pytest.raises(SourceError, match="has none of its rows yet: wait for that sync, or sync again"):
            indextables.open(index, options=options)
    assert indextables.companion(source, at=index, options=TEXT).status == "success"
    assert indextables.open(index).count() == 30
    with pytest.raises(SourceError, match="version 0 of the companion index"):
        indextables.open(index, version=0)


def test_of_two_syncs_at_once_each_version_is_a_version_of_the_source(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(source, rows(30, 6), mode="append")
    others: list[Any] = []

    def build(*arguments: Any) -> Add:
        if not others:
            others.append(None)
            others[0] = indextables.companion(source, at=index)
            deltalake.write_deltalake(source, rows(36, 6), mode="append")
        return build_split(*arguments)

    monkeypatch.setattr(running, "build_split", build)
    result = indextables.companion(source, at=index)
    assert (others[0].source_version, result.source_version, result.splits_created) == (1, 2, 3)
    assert ids(indextables.open(index)) == list(range(42))
    assert ids(indextables.open(index, version=2)) == list(range(36))


def test_a_sync_does_not_use_the_splits_of_an_index_that_was_deleted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process builds the index again, from an earlier version of the source."""
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(source, rows(30, 3), mode="append")
    others: list[Any] = []

    def finish(*arguments: Any) -> Any:
        if not others:
            others.append(None)
            shutil.rmtree(index)
            others[0] = indextables.companion(source, at=index, version=0, options=TEXT)
        return real(*arguments)

    real = running.finish
    monkeypatch.setattr(running, "finish", finish)
    assert indextables.companion(source, at=index, options=TEXT).status == "success"
    assert others[0].source_version == 0
    assert ids(indextables.open(index)) == list(range(33))


def test_a_sync_does_not_use_splits_that_a_purge_may_delete(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync goes on between the purge's last look for its files and their deletion."""
    index = tmp_path / "index"
    indextables.companion(source, at=index, options=TEXT)
    deltalake.write_deltalake(source, rows(30, 3), mode="append")
    log, options = open_log(open_store(index), engine="test"), Options.parse(TEXT)
    request = SyncRequest(source=str(source))
    state = running.begin(log, request, options)

    def build() -> list[Add]:
        assert isinstance(state, running.RunningSync)
        return [build_split(split, BuildContext.of(state.plan), log.store) for split in state.pending]

    def delete(*arguments: Any) -> Any:
        nonlocal state, built
        while isinstance(state, running.RunningSync):
            state = running.finish(log, request, options, state, built)
            built = build() if isinstance(state, running.RunningSync) else []
        return real(*arguments)

    built, real = build(), purging.delete
    monkeypatch.setattr(purging, "delete", delete)
    unsafe = Options.parse({"purge.retentionCheckEnabled": "false"})
    assert purging.purge(log, unsafe, older_than_hours=0).orphans_deleted == 3
    assert isinstance(state, running.SyncResult)
    assert ids(indextables.open(index)) == list(range(33))


def test_a_sync_that_fails_leaves_nothing_behind(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def build(*arguments: Any) -> Add:
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError("the disk is full")
        return build_split(*arguments)

    monkeypatch.setattr(running, "build_split", build)
    with pytest.raises(OSError, match="disk is full"):
        indextables.companion(source, at=tmp_path / "index")
    assert not list((tmp_path / "index").rglob("*.split"))
    monkeypatch.undo()
    assert indextables.companion(source, at=tmp_path / "index").status == "success"
    assert indextables.open(tmp_path / "index").count() == 30


# --- refusals ------------------------------------------------------------------------------------------


def test_a_companion_index_is_not_written_to(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index)
    table = indextables.open(index)
    refused = "is not possible for the companion index at"
    with pytest.raises(SourceError, match=f"a write {refused}"):
        indextables.write(index, rows(0, 1))
    with pytest.raises(ProtocolError, match="has no changes of rows; read the changes of its source"):
        table.changes(since=0)
    with pytest.raises(SourceError, match=f"dropping partitions {refused}"):
        table.drop_partitions("day = 'd1'")
    with pytest.raises(SourceError, match=f"a repair {refused}"):
        indextables.repair(f"{index}/_transaction_log", at=f"{tmp_path}/other/_transaction_log")


def test_restore_and_purge_work(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index)
    deltalake.write_deltalake(source, rows(30, 6), mode="append")
    indextables.companion(source, at=index)
    indextables.open(index).restore(1)
    assert indextables.open(index).count() == 30
    assert indextables.companion(source, at=index).source_version == 1
    assert indextables.open(index).count() == 36
    assert indextables.open(index).purge(dry_run=True) is not None
    assert indextables.open(index).checkpoint() is not None
    assert indextables.open(index).count("id >= 0") == 36


def test_other_places_and_sources_are_refused(source: Path, tmp_path: Path) -> None:
    indextables.write(tmp_path / "table", rows(0, 3))
    with pytest.raises(SourceError, match=r"a table at .* that is not a companion index"):
        indextables.companion(source, at=tmp_path / "table")
    indextables.companion(source, at=tmp_path / "index")
    deltalake.write_deltalake(tmp_path / "other", rows(0, 3))
    with pytest.raises(SourceError, match=r"is that of the delta table at .*choose another location"):
        indextables.companion(tmp_path / "other", at=tmp_path / "index")
    with pytest.raises(OptionError, match="is not a format of sources"):
        indextables.companion(source, at=tmp_path / "new", format="orc")
    with pytest.raises(SourceNotFoundError):
        indextables.companion(tmp_path / "nothing", at=tmp_path / "new", format="delta")


def test_older_readers_refuse_a_companion_index_by_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indextables.companion(source, at=tmp_path / "index")
    monkeypatch.setattr(
        "indextables.log.format.actions._READER_FEATURES", frozenset({"parquetSplits"}), raising=True
    )
    with pytest.raises(ProtocolError, match=COMPANION_SPLITS):
        indextables.open(tmp_path / "index")


def test_texts_that_are_not_utf_8_are_read_as_spark_shows_them(tmp_path: Path) -> None:
    """Spark shows U+FFFD for bytes that are not UTF-8."""
    broken = pa.array([b"\xff\xfe disk", b"all well", None, b"disk \xe2\x82"]).view(pa.string())
    nested = pa.StructArray.from_arrays([broken], names=["text"])
    lists = pa.ListArray.from_arrays([0, 1, 2, 3, 4], broken)
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"message": broken, "nested": nested, "texts": lists}), source / "part.parquet")
    indextables.companion(source, at=tmp_path / "index", modes={"message": "text"})
    index = indextables.open(tmp_path / "index")
    shown = ["\ufffd\ufffd disk", "all well", None, "disk \ufffd"]
    assert index.scan().to_pylist() == [
        {"message": text, "nested": {"text": text}, "texts": [text]} for text in shown
    ]
    assert index.count("message INDEXQUERY 'disk'") == 2
    assert index.search("disk", columns=["message"]).num_rows == 2
    assert index.count("message LIKE '%disk'") == 1


def test_columns_of_nulls_alone_are_integers_as_in_spark(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "nothing": pa.nulls(2)}), source / "part.parquet")
    indextables.companion(source, at=tmp_path / "index")
    index = indextables.open(tmp_path / "index")
    assert index.schema.field("nothing").type == pa.int32()
    assert index.scan().to_pylist() == [{"id": 1, "nothing": None}, {"id": 2, "nothing": None}]
    assert (index.count("nothing IS NULL"), index.count("nothing = 1")) == (2, 0)
