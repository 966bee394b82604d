"""What a purge must never delete: files of other tables, of running writes, of versions it does not see."""

import gzip
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import indextables as it
from indextables.cli.main import main
from indextables.data_files import add_action
from indextables.errors import CommitConflictError, LogError, ProtocolError, SplitError, StoreError
from indextables.ingest import Mode, SplitUploads, finish_write, plan_write
from indextables.ingest import splits as splits_of_a_write
from indextables.log.commit import check_uploads
from indextables.log.conflict import Draft, purged_before
from indextables.log.format import version_file
from indextables.log.format.actions import Add, Protocol
from indextables.log.format.files import to_adds
from indextables.log.format.names import relative_paths
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.maintain import purge as purging
from indextables.maintain.metadata_changes import drop_partitions
from indextables.maintain.purge import Deletion, Orphans, PurgePlan
from indextables.maintain.repair import repair
from indextables.options import Options
from indextables.store import Store, open_store
from indextables.store.backend import ObjectInfo, Sink
from tests.maintenance_tables import TEXT, aged, appended, ids, log_of, orphan, splits
from tests.servers.fixtures import StoreUrl

# --- paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "s3://elsewhere/t/a.split",
        "hdfs://name/t/a.split",
        "file://host/t/a.split",
        "../t/a.split",
        "./a.split",
        "day=1//a.split",
        "day=1/..",
        "a\\b.split",
        "a\n.split",
        "x" * 2000,
        "/",
        "",
    ],
)
def test_a_purge_refuses_a_table_whose_log_names_a_path_it_cannot_compare(path: str) -> None:
    with pytest.raises(LogError, match="nothing was deleted"):
        relative_paths(pa.array(["a.split", path]), "file:///t")


def test_a_live_split_named_by_a_hadoop_url_is_no_orphan(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    version = tmp_path / "_transaction_log" / "00000000000000000001.json"
    actions = [
        msgspec.structs.replace(action, path=f"file:{tmp_path}/{action.path}")
        if isinstance(action, Add)
        else action
        for action in version_file.decode(version.read_bytes(), str(version))
    ]
    version.write_bytes(version_file.encode(actions))
    aged(tmp_path, 1000)
    before = splits(tmp_path)
    assert purging.purge(log_of(tmp_path), Options()).orphans_found == 0
    assert splits(tmp_path) == before


# --- other tables ----------------------------------------------------------------------------------


def test_a_table_in_a_folder_named_like_a_partition_is_another_table(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    appended(outer, 1)
    inner = outer / "tenant=acme"
    appended(inner, 2)
    deep = outer / "Region=eu" / "Tenant=acme"
    appended(deep, 1)
    # Names that a listing shows before the log of their folder.
    orphan(inner, "0.split")
    orphan(inner, "Day=0/0.split")
    orphan(deep, "A=1/0.split")
    lost = [orphan(outer, name) for name in ("Region=eu/0.split", "a/b/c.split", "tenant=acme2/0.split")]
    aged(tmp_path, 1000)
    before = splits(inner) | splits(deep)
    assert purging.purge(log_of(outer), Options()).orphans_deleted == len(lost)
    assert splits(inner) | splits(deep) == before
    assert not any(path.exists() for path in lost)
    assert len(ids(inner)) == 6


def test_a_purge_follows_no_link(tmp_path: Path) -> None:
    appended(tmp_path / "other", 1)
    table = tmp_path / "table"
    appended(table, 1)
    (table / "old_copy").symlink_to(tmp_path / "other" / "day=0")
    (table / "loop").symlink_to(".")
    (table / "self").symlink_to("self")
    linked = orphan(tmp_path, "elsewhere.split")
    (table / "link.split").symlink_to(linked)
    aged(table / "day=0", 1000)
    aged(tmp_path / "other", 1000)
    assert purging.purge(log_of(table), Options(), dry_run=True).orphans_found == 0
    assert purging.purge(log_of(table), Options()).orphans_deleted == 0
    assert linked.exists()
    assert (table / "link.split").is_symlink()
    assert len(ids(tmp_path / "other")) == 3


def test_a_repair_adopts_no_split_of_another_table(tmp_path: Path) -> None:
    appended(tmp_path / "table", 1)
    appended(tmp_path / "table" / "day=7", 1, rows=5)
    appended(tmp_path / "other", 1, rows=5)
    (tmp_path / "table" / "day=8").symlink_to(tmp_path / "other" / "day=0")
    other = next((tmp_path / "other" / "day=0").glob("*.split"))
    (tmp_path / "table" / "day=0" / "linked.split").symlink_to(other)
    for file in (tmp_path / "table" / "_transaction_log").iterdir():
        file.unlink()
    assert repair(str(tmp_path / "table"), None, Options(), engine="test").valid_splits == 1
    assert ids(tmp_path / "table") == [0, 1, 2]


def test_the_leftovers_of_uploads_to_other_tables_stay(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    appended(tmp_path / "inner", 1)
    name = f".{'0' * 32}.indextables-part"
    own, other = orphan(tmp_path / "day=0", name), orphan(tmp_path / "inner" / "day=0", name)
    purging.purge(log_of(tmp_path), Options())
    assert (own.exists(), other.exists()) == (False, True)


# --- the writer protocol ---------------------------------------------------------------------------


def _needs_a_newer_writer(table: Path) -> None:
    log = log_of(table)
    newer = Protocol(min_reader_version=4, min_writer_version=4, writer_features=["sharedSplits"])
    log.commit(Draft(operation="UPGRADE", protocol=newer), log.snapshot())


def test_a_table_that_asks_for_a_newer_writer_is_not_purged(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    lost = orphan(tmp_path)
    _needs_a_newer_writer(tmp_path)
    aged(tmp_path, 1000)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for dry_run in (False, True):
        with pytest.raises(ProtocolError, match="sharedSplits"):
            purging.purge(log_of(tmp_path), Options(), dry_run=dry_run)
    with pytest.raises(ProtocolError, match="sharedSplits"):
        drop_partitions(log_of(tmp_path), "day = 0")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert lost.exists()


def test_a_log_that_asks_for_a_newer_writer_is_not_written_anew(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    _needs_a_newer_writer(tmp_path)
    target = tmp_path / "copy" / "_transaction_log"
    with pytest.raises(ProtocolError, match="sharedSplits"):
        repair(str(tmp_path / "_transaction_log"), str(target), Options(), engine="test")
    assert not target.exists()


# --- clocks and running writes ---------------------------------------------------------------------


def _store_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """The store's clock is ahead of this machine's: so an object that is written now says."""
    real = Store.head

    def head(self: Any, path: Any) -> ObjectInfo:
        info = real(self, path)
        return replace(info, modified_ms=info.modified_ms + int(ahead_s * 1000))

    monkeypatch.setattr(Store, "head", head)


@pytest.mark.parametrize("ahead_s", [-3500, 3500])
def test_a_purge_goes_by_the_clock_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    appended(tmp_path, 1)
    young, old = orphan(tmp_path, "young.split"), orphan(tmp_path, "old.split")
    for path, hours in ((young, 167.9), (old, 168.1)):
        then = time.time() + ahead_s - hours * 3600
        os.utime(path, (then, then))
    _store_clock(monkeypatch, ahead_s)
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted == 1
    assert (young.exists(), old.exists()) == (True, False)


@pytest.mark.parametrize("ahead_s", [-3700, 3700])
def test_a_purge_refuses_clocks_that_are_further_apart_than_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    appended(tmp_path, 1)
    old = orphan(tmp_path)
    _store_clock(monkeypatch, ahead_s)
    with pytest.raises(StoreError, match="seconds apart, and 3600 are tolerated"):
        purging.purge(log_of(tmp_path), Options())
    assert old.exists()
    assert not list((tmp_path / "_transaction_log").glob(".clock-*"))


def _uploaded(folder: Path, hours: float) -> Add:
    """A split as a write that still runs has uploaded it."""
    path = orphan(folder, "part-of-a-running-write.split", hours)
    then = int((time.time() - hours * 3600) * 1000)
    return Add(path=path.name, partition_values={"day": "1"}, size=100, modification_time=then)


@pytest.mark.parametrize(("hours", "stands"), [(168.5, False), (167.5, False), (166.5, True)])
def test_a_write_older_than_the_retention_of_a_purge_fails_instead_of_naming_lost_files(
    tmp_path: Path, hours: float, stands: bool
) -> None:
    appended(tmp_path, 1)
    log = log_of(tmp_path)
    base = log.snapshot()
    add = _uploaded(tmp_path, hours)
    orphan(tmp_path, "another.split")
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted >= 1
    draft = Draft(operation="WRITE", adds=(add,))
    if stands:
        log.commit(draft, base)
        assert (tmp_path / add.path).exists()
    else:
        with pytest.raises(CommitConflictError, match=r"may have deleted .*: it is older"):
            log.commit(draft, base)
        assert add.path not in log_of(tmp_path).snapshot().files()["path"].to_pylist()


@pytest.mark.parametrize(("hours", "stands"), [(168.5, False), (167.5, False), (166.5, True)])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_write_older_than_a_purge_fails_though_the_version_of_the_purge_was_cleaned_up(
    tmp_path: Path, form: str, hours: float, stands: bool
) -> None:
    """The splits may still exist: the purge may be about to delete them."""
    appended(tmp_path, 1)
    log = log_of(tmp_path)
    base = log.snapshot()
    add = _uploaded(tmp_path, hours)
    orphan(tmp_path, "another.split")
    purging.purge(log_of(tmp_path), Options())
    log_of(tmp_path, **{"state.format": form}).truncate()
    _uploaded(tmp_path, hours)
    draft = Draft(operation="WRITE", adds=(add,))
    if stands:
        log.commit(draft, base)
        appended(tmp_path, 1)
        log_of(tmp_path).truncate()
        # It began after that purge.
        log.commit(Draft(operation="WRITE", adds=(_uploaded(tmp_path / "day=2", 200),)), log.snapshot())
    else:
        with pytest.raises(CommitConflictError, match=r"a purge since may have deleted part-of-a-running"):
            log.commit(draft, base)


@pytest.mark.parametrize("first", [True, False])
def test_a_write_that_is_planned_again_is_not_committed_after_a_purge(tmp_path: Path, first: bool) -> None:
    """A first write that another one overtook, and a batch that replaces all rows after a conflict."""
    numbered = {"txn.appId": "stream", "txn.version": 5, **TEXT}
    options, rows = Options.parse(numbered), pa.table({"id": [7], "day": [0], "message": ["x"]})
    if not first:
        appended(tmp_path, 1)
    mode = Mode.APPEND if first else Mode.OVERWRITE
    log = log_of(tmp_path, **numbered)
    planned, base = plan_write(log, rows.schema, mode=mode, partition_by=("day",), options=options)
    assert planned is not None
    adds = SplitUploads(log.store, planned.target, options).write(planned.convert(iter(rows.to_batches())))
    if first:
        appended(tmp_path, 1)
    unsafe = Options.parse({"purge.retentionCheckEnabled": "false"})
    plan = purging.plan_purge(log_of(tmp_path), unsafe, older_than_hours=0)
    purging.commit_purge(log_of(tmp_path), plan)
    with pytest.raises(CommitConflictError, match="purge"):
        finish_write(log, planned, adds, options, base)
    assert ids(tmp_path) == [0, 1, 2]


def test_two_purges_at_once_are_both_committed(tmp_path: Path) -> None:
    """The one that deletes more files tells until when, whichever is committed last."""
    appended(tmp_path, 1)
    orphan(tmp_path)
    log, later = log_of(tmp_path), log_of(tmp_path)
    plan = purging.plan_purge(log, Options())
    real = later.commit

    def commit(draft: Draft, base: Snapshot) -> Snapshot:
        later.commit = real  # type: ignore[method-assign]
        purging.commit_purge(log, plan)
        return real(draft, base)

    later.commit = commit  # type: ignore[method-assign]
    earlier = replace(plan, before_ms=plan.before_ms - 1000)
    assert purging.commit_purge(later, earlier).version == 3
    history = log_of(tmp_path).history()
    assert [entry.operation for entry in history[:2]] == ["PURGE", "PURGE"]
    assert [int(entry.parameters["before"]) for entry in history[:2]] == [earlier.before_ms, plan.before_ms]
    before = purged_before(log_of(tmp_path).snapshot())
    assert before is not None
    assert before > plan.before_ms


def test_a_commit_between_the_plan_and_the_version_of_a_purge_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 1)
    add = _uploaded(tmp_path, 400)
    lost = orphan(tmp_path)
    real = purging.commit_purge

    def committed_first(log: Any, plan: Any) -> PurgePlan:
        other = log_of(tmp_path)
        other.commit(Draft(operation="WRITE", adds=(add,)), other.snapshot())
        return real(log, plan)

    monkeypatch.setattr(purging, "commit_purge", committed_first)
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted == 1
    assert (tmp_path / add.path).exists()
    assert not lost.exists()


def test_a_restore_that_a_purge_overtakes_fails_and_the_table_stays_readable(tmp_path: Path) -> None:
    appended(tmp_path, 3)
    drop_partitions(log_of(tmp_path), "day = 1")
    log = log_of(tmp_path)
    now, then = log.snapshot(), log.snapshot(version=3)
    back = [
        msgspec.structs.replace(add, modification_time=add.modification_time - 1000 * 3_600_000)
        for add in to_adds(then.files())
        if add.path.startswith("day=1/")
    ]
    # The version that names it is no longer there for others.
    log_of(tmp_path).checkpoint()
    (tmp_path / "_transaction_log" / "00000000000000000002.json").rename(tmp_path / "hidden")
    aged(tmp_path / "day=1", 1000)
    assert purging.purge(log_of(tmp_path), Options()).orphans_deleted == 1
    with pytest.raises(CommitConflictError, match=r"may have deleted .*: it is older"):
        log.commit(Draft(operation="RESTORE", adds=tuple(back)), now)
    assert len(ids(tmp_path)) == 6


def test_a_purge_is_in_the_history_if_it_deletes_anything(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    assert purging.purge(log_of(tmp_path), Options()).orphans_found == 0
    orphan(tmp_path)
    purging.purge(log_of(tmp_path), Options(), dry_run=True)
    assert log_of(tmp_path).history()[0].operation == "WRITE"
    purging.purge(log_of(tmp_path), Options())
    newest = log_of(tmp_path).history()[0]
    assert newest.operation == "PURGE"
    assert newest.parameters["retentionHours"] == "168"
    assert abs(int(newest.parameters["before"]) - (time.time() - 168 * 3600) * 1000) < 600_000


# --- many files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["python", "sql", "shell"])
def test_batches_are_deleted_side_by_side_through_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    appended(tmp_path, 1)
    for n in range(6):
        orphan(tmp_path, f"lost-{n}.split")
    monkeypatch.setattr(purging, "_BATCH", 2)
    together = threading.Barrier(3, timeout=60)
    real = purging.delete

    def delete(store: Any, batch: Any, options: Any) -> Deletion:
        together.wait()
        return real(store, batch, options)

    monkeypatch.setattr(purging, "delete", delete)
    if door == "python":
        it.open(tmp_path, options={"purge.parallelism": 3}).purge()
    elif door == "sql":
        it.sql(f"PURGE INDEXTABLE '{tmp_path}'", options={"purge.parallelism": 3})
    else:
        assert main(["purge", str(tmp_path), "-o", "purge.parallelism=3"]) == 0
    assert len(splits(tmp_path)) == 1


def test_no_more_batches_are_held_than_are_deleted_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 1)
    for n in range(20):
        orphan(tmp_path, f"lost-{n}.split")
    monkeypatch.setattr(purging, "_BATCH", 1)
    real_orphans, real_delete = purging.orphans, purging.delete
    listed = deleted = 0
    ahead = []

    def orphans(store: Any, plan: Any) -> Iterator[Orphans]:
        nonlocal listed
        for batch in real_orphans(store, plan):
            listed += 1
            ahead.append(listed - deleted)
            yield batch

    def delete(store: Any, batch: Any, options: Any) -> Deletion:
        nonlocal deleted
        done = real_delete(store, batch, options)
        deleted += 1
        return done

    monkeypatch.setattr(purging, "orphans", orphans)
    monkeypatch.setattr(purging, "delete", delete)
    few = Options.parse({"purge.parallelism": 1})
    assert purging.purge(log_of(tmp_path), few).orphans_deleted == 20
    # The first look for an orphan, two batches under way, and the one that waits.
    assert max(ahead) <= 5


def test_a_write_that_took_long_is_not_committed_if_its_files_are_gone(tmp_path: Path) -> None:
    """Also where the log no longer tells that there was a purge."""
    appended(tmp_path, 1)
    store = log_of(tmp_path).store
    there = _uploaded(tmp_path, 13)
    gone = msgspec.structs.replace(there, path="gone.split")
    check_uploads(store, [there])
    with pytest.raises(SplitError, match=r"1 of the 2 splits .* are gone \(one is gone\.split\)"):
        check_uploads(store, [there, gone])


def test_a_long_write_that_lost_its_files_fails_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 1)
    before = log_of(tmp_path).snapshot().version

    def slowly(path: Any, built: Any, **given: Any) -> Add:
        add = add_action(path, built, **given)
        (tmp_path / path).unlink()
        return msgspec.structs.replace(add, modification_time=add.modification_time - 20 * 3_600_000)

    monkeypatch.setattr(splits_of_a_write, "add_action", slowly)
    with pytest.raises(SplitError, match="the write took longer than a purge keeps files"):
        appended(tmp_path, 1)
    assert log_of(tmp_path).snapshot().version == before


@pytest.mark.parametrize(
    "kind",
    ["memory", pytest.param("s3", marks=pytest.mark.server), pytest.param("azure", marks=pytest.mark.server)],
)
def test_tables_inside_tables_stay_on_object_stores(make_store_url: StoreUrl, kind: str) -> None:
    url, given = make_store_url(kind)
    options = Options.parse({**given, "purge.retentionCheckEnabled": False})
    it.write(url, [{"id": 1}], options=given)
    it.write(f"{url}/Tenant=acme", [{"id": 2}], options=given)
    it.write(f"{url}/tenant=acme/deep", [{"id": 3}], options=given)
    store = open_store(url, options)
    # In an inner table, listed before its log; beside it; and in a folder that a name of a table begins.
    for path in ("Tenant=acme/0.split", "Tenant=acm/0.split", "tenant=acme/0.split"):
        store.put(path, b"x")
    outcome = purging.purge(log_of(url, **given), options, older_than_hours=0)
    assert outcome.orphans_deleted == 2
    assert [store.exists(f"{name}/0.split") for name in ("Tenant=acme", "Tenant=acm", "tenant=acme")] == [
        True,
        False,
        False,
    ]
    assert it.open(f"{url}/Tenant=acme", options=given).count() == 1
    assert it.open(f"{url}/tenant=acme/deep", options=given).count() == 1


def test_the_time_of_a_split_is_when_its_upload_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores stamp what was sent in parts with that time, and a purge compares it with its limit."""
    began = 1_775_000_000_000
    now = began
    monkeypatch.setattr(splits_of_a_write, "local_time_ms", lambda: now)
    real = Store.open_upload

    def slowly(self: Any, path: Any) -> Sink:
        nonlocal now
        now += 3 * 3_600_000
        return real(self, path)

    monkeypatch.setattr(Store, "open_upload", slowly)
    it.write(tmp_path, [{"id": 1}])
    assert log_of(tmp_path).snapshot().files()["modificationTime"].to_pylist() == [began]


def test_splits_that_are_named_by_whole_urls_are_read_merged_and_kept(tmp_path: Path) -> None:
    for n in range(3):
        it.write(tmp_path / "t", [{"id": n}], options={"checkpoint.enabled": "false"})
    for version in (1, 2, 3):
        file = tmp_path / f"t/_transaction_log/{version:020d}.json"
        data = file.read_bytes()
        text = gzip.decompress(data[2:] if data[:2] == b"\1\1" else data).decode()
        whole = f"file:{tmp_path}/t/" if version != 2 else f"{tmp_path}/t/"
        file.write_text(text.replace('"path":"part-', f'"path":"{whole}part-'))
    invalidate()
    table = it.open(tmp_path / "t")
    assert sorted(path.rpartition("/")[0] for path in table.files()["path"].to_pylist()) == [
        f"{tmp_path}/t",
        f"file:{tmp_path}/t",
        f"file:{tmp_path}/t",
    ]
    assert ids(tmp_path / "t") == [0, 1, 2]
    options = Options.parse({"purge.retentionCheckEnabled": "false"})
    purging.purge(log_of(tmp_path / "t"), options, older_than_hours=0)
    assert ids(tmp_path / "t") == [0, 1, 2]
    table.merge()
    assert it.open(tmp_path / "t").files().num_rows == 1
    assert ids(tmp_path / "t") == [0, 1, 2]


def test_a_split_outside_of_the_table_is_refused_by_name(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    (tmp_path / "secret").write_text("x")
    with pytest.raises(StoreError, match=r"secret is not below file://.*/t; open the table by the URL"):
        store.get(f"{tmp_path}/secret")
