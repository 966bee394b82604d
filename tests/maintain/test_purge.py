"""A purge deletes what no version needs, and nothing else."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import CorruptLogError, OptionError, StoreError
from indextables.log.format.names import relative_paths
from indextables.log.retention import ExpiredFiles
from indextables.maintain import purge as purging
from indextables.maintain.merge import merge
from indextables.maintain.metadata_changes import drop_partitions, restore
from indextables.options import Options
from indextables.store import ObjectInfo, Store, open_store
from indextables.store.backend import Backoff
from tests import ROOT
from tests.maintenance_tables import aged, appended, ids, log_of, orphan, splits
from tests.servers.fixtures import StoreUrl

QUICK = Options.parse({"purge.retentionCheckEnabled": False})


def test_orphans_go_and_live_splits_stay(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    live = splits(tmp_path)
    aged(tmp_path, 1000)
    orphan(tmp_path, "day=1/lost.split")
    orphan(tmp_path, "day=7/lost.split")
    outcome = purging.purge(log_of(tmp_path), Options())
    assert (outcome.orphans_found, outcome.orphans_deleted, outcome.bytes_deleted) == (2, 2, 200)
    assert outcome.status == "SUCCESS"
    assert splits(tmp_path) == live
    assert len(ids(tmp_path)) == 9


def test_a_young_orphan_may_be_a_running_write(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    young = orphan(tmp_path, hours=167)
    for dry_run in (True, False):
        outcome = purging.purge(log_of(tmp_path), Options(), dry_run=dry_run)
        assert (outcome.orphans_found, outcome.young_orphans, outcome.orphans_deleted) == (0, 1, 0)
    old = orphan(tmp_path, "day=1/old.split")
    outcome = purging.purge(log_of(tmp_path), Options())
    assert (outcome.orphans_found, outcome.young_orphans, outcome.orphans_deleted) == (1, 1, 1)
    assert young.exists()
    assert not old.exists()
    assert purging.purge(log_of(tmp_path), Options(), older_than_hours=100).orphans_deleted == 1


def test_a_dry_run_says_what_the_real_run_does_and_touches_nothing(tmp_path: Path) -> None:
    appended(tmp_path, 12, **{"checkpoint.interval": 5})
    drop_partitions(log_of(tmp_path), "day < 6")
    appended(tmp_path, 3, **{"checkpoint.interval": 5})
    it.open(tmp_path)
    log_of(tmp_path).checkpoint()
    aged(tmp_path, 1000)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    few = {"state.retention.versions": 0}
    told = purging.purge(log_of(tmp_path, **few), Options(), log_hours=24, dry_run=True)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before
    done = purging.purge(log_of(tmp_path, **few), Options(), log_hours=24)
    assert told.status == "DRY_RUN"
    assert (
        (told.orphans_found, told.bytes_found)
        == (done.orphans_found, done.bytes_found)
        == (done.orphans_deleted, done.bytes_deleted)
    )
    assert (told.log_files_found, told.states_found) == (done.log_files_deleted, done.states_deleted)
    assert told.log_files_deleted == told.orphans_deleted == 0
    assert done.orphans_deleted > 0
    assert done.log_files_deleted > 0


def test_a_split_that_a_retained_version_names_stays_for_time_travel(tmp_path: Path) -> None:
    appended(tmp_path, 4)
    before = ids(tmp_path)
    drop_partitions(log_of(tmp_path), "day IN (0, 1)")
    for path in tmp_path.rglob("*.split"):
        os.utime(path, (1, 1))
    assert purging.purge(log_of(tmp_path), Options()).orphans_found == 0
    assert ids(tmp_path, version=4) == before


def test_sources_of_a_merge_go_when_the_versions_that_name_them_went(tmp_path: Path) -> None:
    appended(tmp_path, 6, partition_by=())
    merge(log_of(tmp_path), Options())
    aged(tmp_path, 24 * 60)
    rows = ids(tmp_path)
    assert len(splits(tmp_path)) == 7
    outcome = purging.purge(log_of(tmp_path), Options())
    assert outcome.orphans_deleted == 6
    assert outcome.log_files_deleted > 0
    assert (len(splits(tmp_path)), ids(tmp_path)) == (1, rows)
    assert purging.purge(log_of(tmp_path), Options()).orphans_found == 0


def test_a_split_removed_and_brought_back_under_the_same_path_stays(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    rows = ids(tmp_path)
    drop_partitions(log_of(tmp_path), "day = 1")
    restore(log_of(tmp_path), version=3)
    aged(tmp_path, 24 * 60)
    log_of(tmp_path).checkpoint()
    purging.purge(log_of(tmp_path), Options())
    assert ids(tmp_path) == rows


def test_a_split_that_comes_back_while_the_purge_runs_stays(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    log = log_of(tmp_path)
    plan = purging.plan_purge(log, Options())
    batch = purging.Orphans(tuple(sorted(splits(tmp_path))), 300)
    assert purging.still_orphans(log, plan, batch) == batch
    drop_partitions(log_of(tmp_path), "day = 1")
    restore(log_of(tmp_path), version=plan.version)
    # The dropped one came and went: nothing is new to the table, so the batch as planned stands...
    it.write(tmp_path, [{"id": 99, "day": 1, "message": "x"}])
    newest = max((tmp_path / "day=1").glob("*.split"), key=lambda p: p.stat().st_mtime_ns)
    with_new = purging.Orphans((*batch.paths, str(newest.relative_to(tmp_path))), 400)
    assert str(newest.relative_to(tmp_path)) not in purging.still_orphans(log, plan, with_new).paths


def test_checksum_files_go_with_their_split_only(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    live = next(iter(splits(tmp_path)))
    kept = orphan(tmp_path, str(Path(live).parent / f".{Path(live).name}.crc"))
    orphan(tmp_path, "day=0/old.split")
    gone = orphan(tmp_path, "day=0/.old.split.crc")
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted == 2
    assert kept.exists()
    assert not gone.exists()


def test_other_files_and_other_tables_inside_are_left_alone(tmp_path: Path) -> None:
    appended(tmp_path / "outer", 1)
    appended(tmp_path / "outer" / "inner", 2)
    aged(tmp_path, 1000)
    note = orphan(tmp_path / "outer", "readme.txt")
    outcome = purging.purge(log_of(tmp_path / "outer"), Options())
    assert outcome.orphans_found == 0
    assert note.exists()
    assert len(ids(tmp_path / "outer" / "inner")) == 6


@pytest.mark.parametrize(
    ("hours", "says"), [(23, "below the minimum of 24"), (0, "below the minimum"), (-1, "negative")]
)
def test_a_short_retention_is_refused(tmp_path: Path, hours: float, says: str) -> None:
    appended(tmp_path, 1)
    with pytest.raises(OptionError, match=says):
        purging.purge(log_of(tmp_path), Options(), older_than_hours=hours)


def test_a_negative_log_retention_is_refused(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    with pytest.raises(OptionError, match="log retention of -1 hours is negative"):
        purging.purge(log_of(tmp_path), Options(), log_hours=-1)


def test_a_short_retention_is_allowed_when_its_check_is_off(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    orphan(tmp_path, hours=1)
    assert purging.purge(log_of(tmp_path), QUICK, older_than_hours=0).orphans_deleted == 1


def test_a_log_that_cannot_be_read_makes_nothing_an_orphan(tmp_path: Path) -> None:
    appended(tmp_path, 12, **{"checkpoint.interval": 5})
    aged(tmp_path, 1000)
    manifest = next((tmp_path / "_transaction_log" / "manifests").glob("manifest-*"))
    manifest.write_bytes(b"Obj\x01damaged")
    before = splits(tmp_path)
    with pytest.raises(CorruptLogError):
        purging.purge(log_of(tmp_path), Options())
    assert splits(tmp_path) == before


def test_whole_urls_in_the_log_are_understood_or_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    named = pa.array(["z.split", f"{url}/day=1/b.split", f"{tmp_path}/a.split", f"file:{tmp_path}/c.split"])
    assert relative_paths(named, url).to_pylist() == ["z.split", "day=1/b.split", "a.split", "c.split"]
    in_bucket = pa.array(["s3a://b/t/x.split", "s3n://b/t/y.split", "s3://b/t/z.split"])
    assert relative_paths(in_bucket, "s3://b/t").to_pylist() == ["x.split", "y.split", "z.split"]


def test_no_more_files_than_allowed_go_at_once(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    for n in range(7):
        orphan(tmp_path, f"lost-{n}.split")
    few = Options.parse({"purge.maxFilesToDelete": 5})
    first = purging.purge(log_of(tmp_path), few)
    assert (first.orphans_deleted, first.limit_reached) == (5, True)
    second = purging.purge(log_of(tmp_path), few)
    assert (second.orphans_deleted, second.limit_reached) == (2, False)


def test_deleting_is_tried_again_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 1)
    orphan(tmp_path)
    monkeypatch.setattr(purging, "_BACKOFF", Backoff(0, 0))
    real, calls = Store.delete, []

    def flaky(self: Any, paths: Any) -> int:
        paths = tuple(paths)
        if not any(path.endswith(".split") for path in paths):
            return real(self, paths)
        calls.append(paths)
        if len(calls) < 3:
            raise StoreError("the store is busy")
        return real(self, calls[-1])

    monkeypatch.setattr(Store, "delete", flaky)
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted == 1
    orphan(tmp_path)
    calls.clear()
    with pytest.raises(StoreError, match="none of 1 files could be deleted: the store is busy"):
        purging.purge(log_of(tmp_path), Options.parse({"purge.deleteRetries": 1}))


@pytest.mark.parametrize("files", [200_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_many_listed_files_take_little_memory(files: int) -> None:
    """The listing is streamed: memory is that of the names the log has, not of the files there are."""
    script = f"""
from tests.maintain.test_purge import many_listed
print(many_listed({files}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found, grown_mb = map(int, done.stdout.split())
    assert found == files // 2
    assert grown_mb < 80, grown_mb


def many_listed(files: int) -> str:
    """Every second file is an orphan; how many were found, and by how much memory grew."""
    names = [f"part-{n:032d}.split" for n in range(0, files, 2)]
    plan = purging.PurgePlan(168, 10, ExpiredFiles(), pa.array(names, pa.string()), 0, "id", dry_run=True)
    del names
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    class Listed(Store):
        __slots__ = ()

        def list(self, prefix: str = "", *, after: Any = None) -> Iterator[ObjectInfo]:
            if prefix:
                return
            for n in range(files):
                yield ObjectInfo(f"part-{n:032d}.split", 1, 1)

    listed = open_store("memory://many/table")
    listed.__class__ = Listed
    found = sum(len(batch.paths) for batch in purging.orphans(listed, plan))
    return f"{found} {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}"


@pytest.mark.parametrize(
    "kind",
    ["memory", pytest.param("s3", marks=pytest.mark.server), pytest.param("azure", marks=pytest.mark.server)],
)
def test_orphans_go_on_object_stores_too(make_store_url: StoreUrl, kind: str) -> None:
    url, given = make_store_url(kind)
    it.write(url, [{"id": 1}], options=given)
    options = Options.parse({**given, "purge.retentionCheckEnabled": False})
    store = open_store(url, options)
    store.put("lost.split", b"x")
    time.sleep(0.01)
    outcome = purging.purge(log_of(url, **given), options, older_than_hours=0)
    assert outcome.orphans_deleted >= 1
    assert not store.exists("lost.split")
    assert it.open(url, options=given).count() == 1
