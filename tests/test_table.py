"""Maintenance of a table from plain Python: typed results."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import indextables as it
from tests.maintenance_tables import aged, appended, ids, orphan


def test_a_table_is_kept_in_shape_by_its_methods(tmp_path: Path) -> None:
    table = appended(tmp_path / "t", 12)
    options = {"cache.disk.path": str(tmp_path / "cache"), "state.retention.versions": 0}
    table = it.open(tmp_path / "t", options=options)
    rows = ids(tmp_path / "t")
    assert table.text_columns == ("message",)
    assert table.prewarm(where="day > 9").splits == 2
    assert table.drop_partitions("day > 9").splits == 2
    assert table.restore(version=12).splits_restored == 2
    again = appended(tmp_path / "t", 12)
    steps: list[tuple[int, int]] = []
    merged = again.merge(where="day < 3", progress=lambda *step: steps.append(step))
    assert (merged.merged_splits, merged.new_splits, steps[-1]) == (6, 3, (3, 3))
    assert again.merge(max_new_splits=2, target_size=5 << 20).new_splits == 2
    assert table.checkpoint().num_files == 24 - 6 + 3 - 4 + 2
    state = table.refresh().state()
    assert (state.format, state.num_tombstones, state.needs_compaction) == ("avro-state", 0, False)
    told, done = table.truncate(dry_run=True), table.truncate()
    assert (told.versions, told.states, told.dry_run) == (done.versions, done.states, True)
    orphan(tmp_path / "t")
    aged(tmp_path / "t", 1000)
    purged = table.purge(older_than=timedelta(days=2), log_retention=timedelta(days=2))
    assert purged.orphans_deleted == 1 + 6 + 4
    assert ids(tmp_path / "t") == sorted([*rows, *rows])


def test_a_json_checkpoint_is_described_by_the_process_that_wrote_it(tmp_path: Path) -> None:
    table = it.write(tmp_path, [{"n": 1}], options={"state.format": "json", "checkpoint.interval": "0"})
    assert table.state().format == "none"
    written = table.checkpoint()
    state = table.refresh().state()
    assert (state.format, state.version) == ("json", written.version)
    assert state.created_ms


def test_a_lost_log_is_repaired(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    shutil.rmtree(tmp_path / "_transaction_log")
    assert it.repair(str(tmp_path)).valid_splits == 2
    assert len(ids(tmp_path)) == 6


def test_sql_runs_without_spark(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    assert it.sql(f"CHECKPOINT INDEXTABLES '{tmp_path}'")["num_files"].to_pylist() == [2]
    with pytest.raises(it.IndexTablesError, match="below the minimum"):
        it.sql(f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 1 HOURS")
    assert (
        it.sql(
            f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 1 HOURS",
            options={"purge.retentionCheckEnabled": False},
        ).num_rows
        == 1
    )
