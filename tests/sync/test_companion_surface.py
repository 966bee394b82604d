"""What works on any table works on a companion index: merge, purge, prewarm, report, versions, aggregates."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables.errors import CommitConflictError, SourceChangedError
from indextables.read.split_source import close_splits
from indextables.report import report_page
from indextables.split import merge as split_merge
from indextables.split.footer import read_footer
from indextables.split.writer import SplitFile
from indextables.store import open_store

MODES = {"message": "text", "token": "exact_only"}
WORDS = ["disk full", "all well", "disk slow", "login failed"]
QUICK = {"purge.retentionCheckEnabled": False}


def rows(first: int, count: int, **more: list[Any]) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": [f"d{number % 2}" for number in numbers],
            "message": [None if number % 7 == 0 else WORDS[number % 4] for number in numbers],
            "token": [f"token-{number}" for number in numbers],
            **more,
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def index(source: Path, tmp_path: Path) -> Path:
    """An index of five syncs, one split each, of 100 rows."""
    for number in range(5):
        deltalake.write_deltalake(source, rows(number * 20, 20), mode="append")
        indextables.companion(source, at=tmp_path / "index", modes=MODES)
    return tmp_path / "index"


def check(index: Path, source: Path, **options: str) -> indextables.Table:
    """The index answers as its source does."""
    table = indextables.open(index, options=options)
    expected = pa.table(deltalake.DeltaTable(source).to_pyarrow_table()).sort_by("id")
    names = table.schema.names
    assert table.scan().sort_by("id").select(names).to_pylist() == expected.select(names).to_pylist()
    messages = expected["message"].to_pylist()
    ids = expected["id"].to_pylist()
    having = [number for number, text in zip(ids, messages, strict=True) if text and "disk" in text.split()]
    assert sorted(table.scan(["id"], "message INDEXQUERY 'disk'")["id"].to_pylist()) == having
    assert table.count("message INDEXQUERY 'disk'") == len(having)
    for number in (ids[0], ids[-1]):
        assert table.scan(["id"], f"token = 'token-{number}'")["id"].to_pylist() == [number]
    assert table.count("token = 'token-x'") == 0
    assert table.count("id >= 50") == sum(number >= 50 for number in ids)
    return table


def test_a_merge_joins_splits_and_keeps_their_references(index: Path, source: Path) -> None:
    before = indextables.open(index).files()
    outcome = indextables.open(index).merge()
    assert (outcome.merged_splits, outcome.new_splits, outcome.rows) == (5, 1, 100)
    table = check(index, source)
    (entry,) = table.files().to_pylist()
    expected = [name for names in before["companionSourceFiles"].to_pylist() for name in names]
    assert sorted(entry["companionSourceFiles"]) == sorted(expected)
    footer = read_footer(open_store(index), entry["path"], entry["size"])
    assert footer.source_files is not None
    assert [file.path for file in footer.source_files] == entry["companionSourceFiles"]
    assert (footer.num_merge_ops, entry["companionDeltaVersion"]) == (1, 4)
    # No row is copied, and the segments were merged, not built again.
    assert pq.read_schema(index / entry["path"]).names == ["_position", "_row"]
    assert len({each.source for each in footer.row_id_ranges}) == 5
    assert indextables.companion(source, at=index).status == "no_action"
    assert indextables.open(index).merge().new_splits == 0


def test_rows_that_were_deleted_stay_away_after_a_merge(index: Path, source: Path) -> None:
    deltalake.DeltaTable(source).delete("id % 3 = 0")
    indextables.companion(source, at=index)
    indextables.open(index).merge()
    check(index, source)
    deltalake.DeltaTable(source).delete("id = 50")
    check(index, source, **{"companion.freshness": "latest"})
    result = indextables.companion(source, at=index)
    # The split of the changed file is built again from all of its files.
    assert (result.splits_created, result.splits_invalidated) == (1, 1)
    check(index, source)


def test_a_merge_indexes_splits_again_that_lack_a_column(index: Path, source: Path) -> None:
    deltalake.write_deltalake(
        source, rows(100, 20, level=["low", None] * 10), mode="append", schema_mode="merge"
    )
    indextables.companion(source, at=index)
    assert indextables.open(index).merge().merged_splits == 6
    table = check(index, source)
    assert (table.count("level = 'low'"), table.count("level IS NULL")) == (10, 110)
    assert table.count("level INDEXQUERY 'low'") == 10


def test_a_merge_of_partitions_and_of_some_columns(source: Path, tmp_path: Path) -> None:
    for number in range(3):
        deltalake.write_deltalake(source, rows(number * 20, 20), mode="append", partition_by=["day"])
        indextables.companion(source, at=tmp_path / "index", modes={"message": "text"}, include=["message"])
    outcome = indextables.open(tmp_path / "index").merge(where="day = 'd1'")
    assert (outcome.merged_splits, outcome.new_splits) == (3, 1)
    table = check(tmp_path / "index", source)
    assert table.count("day = 'd1' AND message INDEXQUERY 'disk'") == table.count(
        "day = 'd1' AND message LIKE '%disk%'"
    )
    assert table.files().num_rows == 4


def test_a_merge_needs_the_files_of_the_source(index: Path, source: Path) -> None:
    table = deltalake.DeltaTable(source)
    table.delete("id < 20")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceChangedError, match="sync again"):
        indextables.open(index).merge()
    assert indextables.open(index).files().num_rows == 5
    indextables.companion(source, at=index)
    indextables.open(index).merge()
    check(index, source)


def test_a_merge_that_lost_against_a_sync_changes_nothing(
    index: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge_splits(*arguments: Any) -> SplitFile:
        if not deltalake.DeltaTable(source).to_pyarrow_table().filter(pa.compute.field("id") == 3).num_rows:
            return split_merge.merge_splits(*arguments)
        deltalake.DeltaTable(source).delete("id = 3")
        indextables.companion(source, at=index)
        return split_merge.merge_splits(*arguments)

    monkeypatch.setattr("indextables.maintain.merge.merge_splits", merge_splits)
    with pytest.raises(CommitConflictError):
        indextables.open(index).merge()
    check(index, source)
    assert indextables.open(index).merge().new_splits == 1
    check(index, source)


def test_a_sync_during_a_merge_keeps_what_both_did(
    index: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge_splits(*arguments: Any) -> SplitFile:
        if deltalake.DeltaTable(source).version() == 4:
            deltalake.write_deltalake(source, rows(100, 20), mode="append")
            indextables.companion(source, at=index)
        return split_merge.merge_splits(*arguments)

    monkeypatch.setattr("indextables.maintain.merge.merge_splits", merge_splits)
    assert indextables.open(index).merge().merged_splits >= 5
    check(index, source)


def test_a_purge_deletes_superseded_splits_and_nothing_else(index: Path, source: Path) -> None:
    files = sorted(path for path in source.rglob("*") if path.is_file())
    indextables.open(index).merge()
    superseded = indextables.open(index, version=1).files()["path"].to_pylist()
    live = indextables.open(index).files()["path"].to_pylist()
    orphan = index / "companion-0.split"
    orphan.write_bytes(b"left behind by a sync that was killed")
    for path in index.rglob("*.split"):
        os.utime(path, (1, 1))
    week = timedelta(days=7)
    kept = indextables.open(index).purge(older_than=week)
    assert (kept.orphans_deleted, orphan.exists()) == (1, False)
    assert all((index / path).exists() for path in superseded), "versions within the retention are readable"
    table = indextables.open(index, options=QUICK)
    table.truncate()
    for path in index.rglob("*.split"):
        os.utime(path, (1, 1))
    table = indextables.open(index, options=QUICK)
    planned = table.purge(older_than=week, log_retention=timedelta(0), dry_run=True)
    done = table.purge(older_than=week, log_retention=timedelta(0))
    assert (planned.orphans_deleted, done.orphans_deleted) == (0, 5)
    assert sorted(path.name for path in index.rglob("*.split")) == sorted(live)
    assert sorted(path for path in source.rglob("*") if path.is_file()) == files
    check(index, source)


def test_an_earlier_version_is_read_from_the_files_of_its_time(index: Path, source: Path) -> None:
    first = indextables.open(index, version=1)
    assert first.scan(["id"])["id"].to_pylist() == list(range(20))
    indextables.open(index).merge()
    deltalake.DeltaTable(source).delete("id < 30")
    indextables.companion(source, at=index)
    for version, count in ((1, 20), (3, 60), (6, 100), (7, 70)):
        table = indextables.open(index, version=version)
        assert (table.count(), table.scan().num_rows) == (count, count)
    operations = indextables.open(index).history()["operation"].to_pylist()
    assert operations[:2] == ["SYNC COMPANION", "MERGE SPLITS"]
    deltalake.DeltaTable(source).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    close_splits()  # what is open can still be read
    with pytest.raises(SourceChangedError, match="sync again"):
        indextables.open(index, version=6).scan()


def test_prewarm_report_and_figures(index: Path, tmp_path: Path) -> None:
    cache = {"cache.disk.path": str(tmp_path / "cache")}
    table = indextables.open(index, options=cache)
    warmed = table.prewarm(fields=["message"])
    assert warmed.splits == 5
    page = report_page(table)
    assert "<html" in page
    assert "SYNC COMPANION" in page
    assert table.state() is not None
    assert {part.column for split in table.components() for part in split.parts} >= {"message", "token", "id"}
    assert {each.column for each in table.data_skipping()} == {"id", "day", "message", "token"}
    assert len(table.log_actions()) > 0
    job = table.start_prewarm()
    assert [each.error for each in table.wait_for_prewarm(job.id)] == [None]


def test_aggregates_orders_and_buckets(index: Path, source: Path) -> None:
    table = indextables.open(index)
    expected = pa.table(deltalake.DeltaTable(source).to_pyarrow_table()).sort_by("id")
    for where, names in (
        (None, expected),
        ("id >= 30", expected.filter(pa.compute.field("id") >= 30)),
    ):
        groups = table.aggregate(
            {"n": "count(*)", "low": "min(id)", "sum": "sum(id)", "mean": "avg(id)"},
            group_by=["day"],
            where=where,
        ).to_pylist()
        counted = names.group_by("day").aggregate(
            [([], "count_all"), ("id", "min"), ("id", "sum"), ("id", "mean")]
        )
        assert sorted(tuple(group.values()) for group in groups) == sorted(
            (row["day"], row["count_all"], row["id_min"], row["id_sum"], row["id_mean"])
            for row in counted.to_pylist()
        )
    buckets = table.aggregate({"n": "count(*)"}, group_by=[indextables.Histogram("id", 40)]).to_pylist()
    assert sorted(tuple(bucket.values()) for bucket in buckets) == [(0.0, 40), (40.0, 40), (80.0, 20)]
    best = table.search("full OR slow", limit=3, columns=["id"], scores=True)
    scores = best["_score"].to_pylist()
    assert (len(scores), scores) == (3, sorted(scores, reverse=True))


def test_streams_of_an_index_are_refused_with_the_reason(index: Path) -> None:
    table = indextables.open(index)
    reason = "read the changes of its source"
    with pytest.raises(indextables.errors.ProtocolError, match=reason):
        table.changes(since=0)
    with pytest.raises(indextables.errors.ProtocolError, match=reason):
        next(table.follow(since=0, timeout=1))
