"""Many small splits become few large ones, and no row changes."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.errors import (
    CommitConflictError,
    IndexTablesError,
    ObjectMissingError,
    StoreError,
    UnavailableSplitError,
    UnreadableSplitError,
)
from indextables.log.conflict import Draft
from indextables.log.format.files import removes_of
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import merge as merging
from indextables.options import Options
from indextables.options.writing import HEAP_SIZE
from indextables.split.index.files import merge_segments
from indextables.split.merge import source_error
from indextables.store import Store, open_store

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "original-0.5.4"
DAY_MS = 24 * 3_600_000
TEXT = {"indexing.typemap.message": "text"}


def log_of(folder: Path) -> TransactionLog:
    return TransactionLog(open_store(folder), engine="test")


def written(folder: Path, splits: int, rows: int = 3) -> it.Table:
    table = None
    for n in range(splits):
        data = [
            {"id": n * rows + i, "kind": "ab"[n % 2], "message": f"split {n} row {i} said word{i}"}
            for i in range(rows)
        ]
        table = it.write(folder, data, partition_by=["kind"], options=TEXT)
    assert table is not None
    return table


def rows_of(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in it.open(folder).files()["path"].to_pylist():
        found += pq.ParquetFile(folder / path).read().drop_columns(["_row"]).to_pylist()
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 128 << 20),
        ({"indexWriter.heapSize": "64M"}, 64 << 20),
        ({"indexWriter.heapSize": "64M", "merge.heapSize": "32M"}, 32 << 20),
        ({"indexWriter.heapSize": "64M", "companion.writerHeapSize": "32M"}, 64 << 20),
    ],
)
def test_the_memory_of_a_merge_has_an_option_that_writes_do_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], expected: int
) -> None:
    written(tmp_path, 4)
    heaps = []
    original = merge_segments

    def record(metas: Any, folder: Path, heap: int) -> None:
        heaps.append(heap)
        original(metas, folder, heap)

    monkeypatch.setattr("indextables.split.merge.merge_segments", record)
    assert it.open(tmp_path, options=options).merge().merged_splits == 4
    assert set(heaps) == {expected}
    only = {key: text for key, text in options.items() if key != "indexWriter.heapSize"}
    assert Options.parse(only).get(HEAP_SIZE) == 128 << 20


def test_rows_stay_the_same_and_partitions_apart(tmp_path: Path) -> None:
    before = written(tmp_path, 8)
    rows = rows_of(tmp_path)
    outcome = merging.merge(log_of(tmp_path), Options())
    after = it.open(tmp_path)
    assert (outcome.merged_splits, outcome.new_splits, outcome.versions) == (8, 2, (before.version + 1,))
    assert rows_of(tmp_path) == rows
    assert sorted(v[0][1] for v in after.files()["partitionValues"].to_pylist()) == ["a", "b"]
    assert set(after.files()["dataChange"].to_pylist()) == {False}
    assert set(after.files()["numMergeOps"].to_pylist()) == {1}


def test_statistics_survive(tmp_path: Path) -> None:
    written(tmp_path, 4)
    merging.merge(log_of(tmp_path), Options())
    bounds = {
        (dict(low)["id"], dict(high)["id"])
        for low, high in zip(
            it.open(tmp_path).files()["minValues"].to_pylist(),
            it.open(tmp_path).files()["maxValues"].to_pylist(),
            strict=True,
        )
    }
    assert bounds == {("0", "8"), ("3", "11")}


def test_nothing_to_merge_is_no_version(tmp_path: Path) -> None:
    table = written(tmp_path, 2)
    assert merging.merge(log_of(tmp_path), Options()) == merging.MergeOutcome()
    assert it.open(tmp_path).version == table.version


def test_large_splits_are_left_alone_and_groups_respect_the_target(tmp_path: Path) -> None:
    table = written(tmp_path, 8)
    size = max(table.files()["size"].to_pylist())
    snapshot = log_of(tmp_path).snapshot()
    assert merging.plan(snapshot, Options(), target_bytes=size, now_ms=0) == []
    tasks = merging.plan(snapshot, Options(), target_bytes=3 * size, now_ms=0)
    assert [len(task.sources) for task in tasks] == [3, 3]
    few = Options.parse({"merge.maxSourceSplitsPerMerge": 2})
    assert [len(t.sources) for t in merging.plan(snapshot, few, target_bytes=1 << 30, now_ms=0)] == [2] * 4


def test_a_merge_leaves_a_compacted_state(tmp_path: Path) -> None:
    written(tmp_path, 4)
    merging.merge(log_of(tmp_path), Options())
    state = log_of(tmp_path).snapshot().base
    assert state.version == it.open(tmp_path).version
    assert state.state is not None
    assert (state.state.tombstones, len(state.state.manifests)) == ((), 1)


@pytest.mark.parametrize("damage", ["cut", "missing", "garbage"])
def test_a_split_that_cannot_be_read_is_skipped_and_stays_live(tmp_path: Path, damage: str) -> None:
    table = written(tmp_path, 8)
    bad = table.files()["path"][2].as_py()
    if damage == "missing":
        (tmp_path / bad).unlink()
    elif damage == "cut":
        (tmp_path / bad).write_bytes((tmp_path / bad).read_bytes()[:500])
    else:
        size = (tmp_path / bad).stat().st_size
        (tmp_path / bad).write_bytes(b"x" * size)
    outcome = merging.merge(log_of(tmp_path), Options())
    assert [path for path, _ in outcome.skipped] == [bad]
    assert outcome.merged_splits == 7
    snapshot = log_of(tmp_path).snapshot()
    assert bad in snapshot.files()["path"].to_pylist()
    assert snapshot.skips[bad].skip_count == 1
    assert snapshot.skips[bad].reason


def test_a_skipped_split_is_tried_again_after_its_rest(tmp_path: Path) -> None:
    table = written(tmp_path, 4)
    bad = table.files()["path"][0].as_py()
    whole = (tmp_path / bad).read_bytes()
    (tmp_path / bad).write_bytes(whole[:100])
    log = log_of(tmp_path)
    merging.merge(log, Options())
    first = log.snapshot().skips[bad]
    again = merging.plan(log.snapshot(), Options(), target_bytes=1 << 30, now_ms=first.skip_timestamp + 1)
    assert all(bad not in [ref.path for ref in task.sources] for task in again)
    later = merging.plan(
        log.snapshot(), Options(), target_bytes=1 << 30, now_ms=first.skip_timestamp + DAY_MS + 1
    )
    assert any(bad in [ref.path for ref in task.sources] for task in later)
    results = [merging.run(task, log.store, Options()) for task in later]
    merging.finish(log, log.snapshot(), results, Options(), first.skip_timestamp + DAY_MS + 1)
    assert log.snapshot().skips[bad].skip_count == 2
    (tmp_path / bad).write_bytes(whole)
    tasks = merging.plan(
        log.snapshot(), Options(), target_bytes=1 << 30, now_ms=first.skip_timestamp + 9 * DAY_MS
    )
    merging.finish(log, log.snapshot(), [merging.run(t, log.store, Options()) for t in tasks], Options(), 0)
    assert bad not in log.snapshot().skips
    assert len(rows_of(tmp_path)) == 12


def test_without_tracking_nothing_is_remembered(tmp_path: Path) -> None:
    table = written(tmp_path, 4)
    (tmp_path / table.files()["path"][0].as_py()).unlink()
    options = Options.parse({"skippedFiles.trackingEnabled": False})
    merging.merge(log_of(tmp_path), options)
    assert log_of(tmp_path).snapshot().skips == {}


def test_a_merge_that_lost_its_sources_fails_and_leaves_nothing(tmp_path: Path) -> None:
    written(tmp_path, 4)
    log = log_of(tmp_path)
    planned = log.snapshot()
    tasks = merging.plan(planned, Options(), target_bytes=1 << 30, now_ms=0)
    results = [merging.run(task, log.store, Options()) for task in tasks]
    everything = removes_of(planned.files(), timestamp=1)
    log_of(tmp_path).commit(Draft(operation="OVERWRITE", removes=everything), planned)
    with pytest.raises(CommitConflictError, match="OVERWRITE"):
        merging.finish(log, planned, results, Options(), 1)
    assert it.open(tmp_path).files().num_rows == 0


def test_splits_appended_during_a_merge_survive(tmp_path: Path) -> None:
    written(tmp_path, 4)
    log = log_of(tmp_path)
    planned = log.snapshot()
    tasks = merging.plan(planned, Options(), target_bytes=1 << 30, now_ms=0)
    results = [merging.run(task, log.store, Options()) for task in tasks]
    it.write(tmp_path, [{"id": 99, "kind": "a", "message": "meanwhile"}])
    merging.finish(log, planned, results, Options(), 1)
    assert len(rows_of(tmp_path)) == 13


@pytest.mark.skipif(not FIXTURES.exists(), reason="the original's tables are not at hand")
@pytest.mark.parametrize("name", ["04_partitioned", "06_schema_dedup", "10_large_batch"])
def test_splits_of_the_original_become_ours(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "t")
    expected = json.loads((FIXTURES / "expected.json").read_text())[name]
    merging.merge(log_of(tmp_path / "t"), Options())
    assert rows_of(tmp_path / "t") == sorted(expected["rows"], key=lambda row: str(_in_order(row, expected)))


def _in_order(row: dict[str, object], expected: dict[str, list[str]]) -> dict[str, object]:
    return {name: row[name] for name in (column.split(":")[0] for column in expected["schema"])}


def test_a_condition_chooses_partitions_to_merge(tmp_path: Path) -> None:
    written(tmp_path, 8)
    log = log_of(tmp_path)
    merge_options = merging.MergeOptions.of(log.snapshot(), Options(), where="kind = 'b'")
    outcome = merging.merge(log, Options(), merge_options)
    assert (outcome.merged_splits, outcome.new_splits) == (4, 1)
    assert len(rows_of(tmp_path)) == 24


def test_no_more_merged_splits_than_wanted_over_all_passes(tmp_path: Path) -> None:
    written(tmp_path, 12)
    log = log_of(tmp_path)
    merge_options = merging.MergeOptions.of(log.snapshot(), Options(), max_new_splits=3, max_sources=2)
    outcome = merging.merge(log, Options(), merge_options)
    assert (outcome.merged_splits, outcome.new_splits) == (6, 3)
    assert it.open(tmp_path).files().num_rows == 9


def test_a_batch_is_a_version(tmp_path: Path) -> None:
    before = written(tmp_path, 8)
    log = log_of(tmp_path)
    options = Options.parse({"merge.batchSize": 1, "merge.maxPasses": 1})
    merge_options = merging.MergeOptions.of(log.snapshot(), options, max_sources=2)
    outcome = merging.merge(log, options, merge_options)
    assert outcome.versions == tuple(range(before.version + 1, before.version + 5))
    assert len(rows_of(tmp_path)) == 24


@pytest.mark.parametrize(
    ("merge_options", "says"),
    [
        ({"target_bytes": 1000}, "give 1M or more"),
        ({"max_new_splits": 0}, "give 1 or more"),
        ({"max_sources": 1}, "give 2 or more"),
        ({"where": "id = 1"}, "partition columns only"),
    ],
)
def test_options_that_merge_nothing_are_refused(
    tmp_path: Path, merge_options: dict[str, Any], says: str
) -> None:
    written(tmp_path, 2)
    with pytest.raises(IndexTablesError, match=says):
        merging.MergeOptions.of(log_of(tmp_path).snapshot(), Options(), **merge_options)


# --- storage fails -----------------------------------------------------------------------------------


def broken(store: Store, monkeypatch: pytest.MonkeyPatch, fails: Any) -> None:
    """The store, where calls on objects for which `fails(method, path)` says so end in a storage error."""
    for method in ("get_range", "get_ranges", "open_upload", "head"):
        whole = getattr(type(store), method)

        def call(
            self: Any, path: Any, *rest: Any, _whole: Any = whole, _method: Any = method, **more: Any
        ) -> Any:
            if fails(_method, path):
                raise StoreError(f"{path}: 503 slow down")
            return _whole(self, path, *rest, **more)

        monkeypatch.setattr(type(store), method, call)


def test_a_split_that_storage_does_not_deliver_leaves_its_group_out_and_rests_for_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path, 8)
    bad = table.files()["path"][2].as_py()
    log = log_of(tmp_path)
    with monkeypatch.context() as patch:
        broken(log.store, patch, lambda method, path: path == bad)
        outcome = merging.merge(log, Options())
    assert [path for path, _ in outcome.unavailable] == [bad]
    assert (outcome.skipped, outcome.failed) == ((), ())
    # The other partition's group is committed; in the next pass the rest of this one, without the split.
    assert (outcome.merged_splits, outcome.new_splits) == (7, 2)
    skip = log.snapshot().skips[bad]
    assert skip.retry_after - skip.skip_timestamp == 10 * 60_000
    assert "503" in skip.reason
    assert splits_on_disk(tmp_path) >= set(log.snapshot().files()["path"].to_pylist())
    assert len(rows_of(tmp_path)) == 24


def test_minutes_later_the_split_is_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path, 4)
    bad = table.files()["path"][0].as_py()
    log, options = log_of(tmp_path), Options.parse({"skippedFiles.storageRetryMinutes": 3})
    with monkeypatch.context() as patch:
        broken(log.store, patch, lambda method, path: path == bad)
        merging.merge(log, options)
    rested = log.snapshot().skips[bad].skip_timestamp + 3 * 60_000
    for now, found in ((rested - 1, False), (rested, True)):
        tasks = merging.plan(log.snapshot(), options, target_bytes=1 << 30, now_ms=now)
        assert any(bad in [ref.path for ref in task.sources] for task in tasks) is found


def test_a_group_whose_result_cannot_be_stored_leaves_no_file_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 8)
    log = log_of(tmp_path)
    with monkeypatch.context() as patch:
        broken(log.store, patch, lambda method, path: method == "open_upload" and path.startswith("kind=a"))
        outcome = merging.merge(log, Options())
    assert (outcome.merged_splits, outcome.new_splits) == (4, 1)
    assert outcome.failed
    assert all("503" in reason for reason in outcome.failed)
    assert log.snapshot().skips == {}
    live = set(log.snapshot().files()["path"].to_pylist())
    orphans = {path for path in splits_on_disk(tmp_path) if path.startswith("kind=a")} - live
    assert orphans == set()
    assert len(rows_of(tmp_path)) == 24


def test_a_merge_reports_in_sql_what_storage_did_not_deliver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path, 4)
    bad = table.files()["path"][0].as_py()
    broken(open_store(tmp_path), monkeypatch, lambda method, path: path == bad)
    metrics = it.sql(f"MERGE SPLITS '{tmp_path}'")["metrics"][0].as_py()
    assert metrics["status"] == "partial_success"
    assert "could not be fetched from storage" in metrics["message"]
    assert bad in metrics["message"]


def test_a_machine_short_of_file_handles_makes_no_split_look_damaged() -> None:
    assert isinstance(source_error("s", OSError(errno.EMFILE, "too many")), UnavailableSplitError)
    assert isinstance(source_error("s", pa.ArrowMemoryError("no memory")), UnavailableSplitError)
    assert isinstance(source_error("s", OSError("Couldn't deserialize thrift")), UnreadableSplitError)
    assert isinstance(source_error("s", pa.ArrowInvalid("bad page")), UnreadableSplitError)
    assert isinstance(source_error("s", ObjectMissingError("s")), UnreadableSplitError)


def splits_on_disk(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.split")}
