"""What a write starts by itself: merges and purges, with their thresholds, and never at the write's cost."""

import hashlib
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.maintain import on_write
from indextables.maintain import purge as purging
from indextables.maintain.jobs import JobKind, JobStatus, jobs
from indextables.maintain.merge import MergeTask
from indextables.options import Options
from tests.maintenance_tables import aged, appended, ids, log_of, orphan, splits

MERGE = {"mergeOnWrite.enabled": True, "mergeOnWrite.async.enabled": False}
PURGE = {"purgeOnWrite.enabled": True}


def live(folder: Path) -> int:
    result: int = it.open(folder).files().num_rows
    return result


def operations(folder: Path) -> list[str]:
    result: list[str] = it.open(folder).history()["operation"].to_pylist()
    return result


def url(folder: Path) -> str:
    return it.open(folder).url


def test_a_write_merges_nothing_unless_it_is_asked_to(tmp_path: Path) -> None:
    appended(tmp_path, 4, partition_by=())
    assert live(tmp_path) == 4


def test_small_splits_are_merged_before_the_write_returns(tmp_path: Path) -> None:
    appended(tmp_path, 3, partition_by=())
    rows = ids(tmp_path)
    appended(tmp_path, 1, partition_by=(), **MERGE)
    assert live(tmp_path) == 1
    assert operations(tmp_path)[0] == "MERGE SPLITS"
    assert ids(tmp_path) == sorted([*rows, 0, 1, 2])
    (told,) = jobs(JobKind.MERGE, url(tmp_path))
    assert (told.status, told.total, told.done) == (JobStatus.COMPLETED, 1, 1)


def test_by_default_the_merge_runs_in_the_background(tmp_path: Path) -> None:
    appended(tmp_path, 3, partition_by=())
    table = appended(tmp_path, 1, partition_by=(), **{"mergeOnWrite.enabled": True})
    assert table.count() == 12
    on_write.wait_for_merges()
    assert live(tmp_path) == 1
    assert [told.status for told in jobs(JobKind.MERGE, url(tmp_path))] == [JobStatus.COMPLETED]


def test_writes_that_come_during_a_merge_are_merged_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    real = on_write.plan_merge  # type: ignore[attr-defined]
    threads: set[int] = set()

    def slow(*arguments: Any, **named: Any) -> object:
        threads.add(threading.get_ident())
        begun.set()
        assert may_end.wait(60)
        return real(*arguments, **named)

    monkeypatch.setattr(on_write, "plan_merge", slow)
    background = {"mergeOnWrite.enabled": True}
    appended(tmp_path, 2, partition_by=(), **background)
    assert begun.wait(60)
    appended(tmp_path, 3, partition_by=(), **background)
    may_end.set()
    on_write.wait_for_merges()
    assert live(tmp_path) == 1
    assert len(threads) == 1, "one merge of a table at a time"


def test_a_merge_waits_until_there_is_work_for_enough_batches(tmp_path: Path) -> None:
    # Four processors and a half of them: two groups are a batch; a group is a partition with two splits.
    given = {**MERGE, "mergeOnWrite.batchCpuFraction": 0.5, "mergeOnWrite.minBatchesToTrigger": 2}
    options = Options.parse(given)
    appended(tmp_path, 4)
    appended(tmp_path, 3)
    assert on_write.merge_to_start(log_of(tmp_path).snapshot(), options, processors=4) is None
    appended(tmp_path, 4)
    wanted = on_write.merge_to_start(log_of(tmp_path).snapshot(), options, processors=4)
    assert wanted is not None
    assert wanted.batch == 2
    on_write.merge_now(log_of(tmp_path), options, processors=4)
    assert live(tmp_path) == 4
    assert operations(tmp_path)[:2] == ["MERGE SPLITS", "MERGE SPLITS"], "a version for each batch"


def test_splits_of_the_target_size_are_left_alone(tmp_path: Path) -> None:
    big = [{"text": hashlib.sha256(str(n).encode()).hexdigest()} for n in range(40_000)]
    it.write(tmp_path, big)
    assert it.open(tmp_path).files()["size"][0].as_py() > 1 << 20
    it.write(tmp_path, big, options={**MERGE, "mergeOnWrite.targetSize": "1M"})
    assert live(tmp_path) == 2
    it.write(tmp_path, big, options=MERGE)
    assert live(tmp_path) == 1


def test_a_merge_that_fails_leaves_the_write_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appended(tmp_path, 1, partition_by=())

    def broken(task: MergeTask, *_: object) -> None:
        raise OSError(f"no room for {len(task.sources)} splits")

    monkeypatch.setattr("indextables.maintain.merge.run", broken)
    with caplog.at_level(logging.WARNING):
        table = appended(tmp_path, 1, partition_by=(), **MERGE)
    assert table.count() == 6
    assert live(tmp_path) == 2
    (told,) = jobs(JobKind.MERGE, url(tmp_path))
    assert (told.status, told.error) == (JobStatus.FAILED, "no room for 2 splits")
    assert "the write was committed" in caplog.text


@pytest.mark.parametrize("background", [True, False])
def test_a_merge_whose_thread_cannot_start_leaves_the_write_and_later_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, background: bool
) -> None:
    appended(tmp_path, 1, partition_by=())
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "indextables-merge-on-write":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        table = appended(tmp_path, 1, partition_by=(), **{"mergeOnWrite.enabled": True})
    assert table.count() == 6
    assert "can't start new thread" in caplog.text
    appended(tmp_path, 1, partition_by=(), **{**MERGE, "mergeOnWrite.async.enabled": background})
    on_write.wait_for_merges(url(tmp_path))
    assert live(tmp_path) == 1


def test_a_panic_of_a_library_in_a_merge_leaves_the_write_and_later_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    appended(tmp_path, 1, partition_by=())
    with monkeypatch.context() as patched:
        patched.setattr(on_write, "plan_merge", panic)
        assert appended(tmp_path, 1, partition_by=(), **MERGE).count() == 6
        assert appended(tmp_path, 1, partition_by=(), **{"mergeOnWrite.enabled": True}).count() == 9
        on_write.wait_for_merges(url(tmp_path))
    appended(tmp_path, 1, partition_by=(), **{"mergeOnWrite.enabled": True})
    on_write.wait_for_merges(url(tmp_path))
    assert live(tmp_path) == 1


def test_what_can_only_fail_later_is_refused_before_the_write(tmp_path: Path) -> None:
    with pytest.raises(it.IndexTablesError, match="too small; give 1M or more"):
        it.write(tmp_path / "t", [{"a": 1}], options={**MERGE, "mergeOnWrite.targetSize": "1K"})
    with pytest.raises(it.IndexTablesError, match="below the minimum of 24"):
        it.write(tmp_path / "t", [{"a": 1}], options={**PURGE, "purgeOnWrite.splitRetentionHours": 1})
    assert not (tmp_path / "t").exists()


def test_a_purge_follows_each_nth_write_of_the_program(tmp_path: Path) -> None:
    every = {**PURGE, "purgeOnWrite.triggerAfterWrites": 2, "purgeOnWrite.splitRetentionHours": 48}
    appended(tmp_path, 1, **every)
    old, young = orphan(tmp_path, "old.split", 49), orphan(tmp_path, "young.split", 47)
    appended(tmp_path, 1, **every)
    assert (old.exists(), young.exists()) == (False, True)
    again = orphan(tmp_path, "old.split", 49)
    appended(tmp_path, 1, **every)
    assert again.exists()
    appended(tmp_path, 1, **every)
    assert not again.exists()


@pytest.mark.parametrize(("wanted", "gone"), [({}, True), ({"purgeOnWrite.triggerAfterMerge": False}, False)])
def test_a_purge_follows_a_merge(tmp_path: Path, wanted: dict[str, object], gone: bool) -> None:
    appended(tmp_path, 1, partition_by=(), **MERGE, **PURGE, **wanted)
    left = orphan(tmp_path)
    appended(tmp_path, 1, partition_by=(), **MERGE, **PURGE, **wanted)
    assert live(tmp_path) == 1
    assert left.exists() is not gone


def test_a_purge_keeps_what_a_version_that_can_be_read_needs(tmp_path: Path) -> None:
    table = appended(tmp_path, 2, partition_by=())
    before = splits(tmp_path)
    aged(tmp_path, 1000)
    every = {**PURGE, "purgeOnWrite.triggerAfterWrites": 1, "purgeOnWrite.txLogRetentionHours": 2000}
    appended(tmp_path, 1, partition_by=(), **MERGE, **every)
    assert splits(tmp_path) >= before
    assert ids(tmp_path, table.version) == [0, 1, 2, 3, 4, 5]


def test_versions_are_kept_as_long_as_the_purge_of_writes_says(tmp_path: Path) -> None:
    table = appended(tmp_path, 12, partition_by=())
    aged(tmp_path, 100)
    every = {**PURGE, "purgeOnWrite.triggerAfterWrites": 1, "purgeOnWrite.txLogRetentionHours": 50}
    appended(
        tmp_path, 1, partition_by=(), **every, **{"state.retention.versions": 0, "state.retention.hours": 0}
    )
    with pytest.raises(it.IndexTablesError):
        it.open(tmp_path, version=table.version - 8)
    assert len(ids(tmp_path)) == 39


def test_a_purge_that_fails_leaves_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no permission")

    monkeypatch.setattr(purging, "plan_purge", broken)
    with caplog.at_level(logging.WARNING):
        table = appended(tmp_path, 1, **PURGE, **{"purgeOnWrite.triggerAfterWrites": 1})
    assert table.count() == 3
    assert "no permission" in caplog.text


def test_a_write_without_rows_starts_nothing(tmp_path: Path) -> None:
    table = appended(tmp_path, 2, partition_by=())
    it.write(tmp_path, table.scan().slice(0, 0), options={**MERGE, **PURGE})
    it.write(tmp_path, table.scan(), mode="ignore", options={**MERGE, **PURGE})
    assert live(tmp_path) == 2


@pytest.mark.parametrize(("patience", "left"), [("300000", 1), ("0", 2)])
def test_a_program_that_ends_waits_for_its_merges_as_long_as_it_was_told(
    tmp_path: Path, patience: str, left: int
) -> None:
    program = (
        "import sys, time, indextables, indextables.maintain.on_write as o\n"
        "real = o.plan_merge\n"
        "def slow(*a, **k): time.sleep(2); return real(*a, **k)\n"
        "o.plan_merge = slow\n"
        "options = {'mergeOnWrite.enabled': True, 'mergeOnWrite.shutdownTimeoutMs': sys.argv[2]}\n"
        "for n in range(2): indextables.write(sys.argv[1], [{'id': n}], options=options)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t"), patience], check=True, timeout=120)
    assert live(tmp_path / "t") == left
    assert ids(tmp_path / "t") == [0, 1]
