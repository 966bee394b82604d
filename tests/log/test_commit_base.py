"""A commit lands only on its base: not in another table, not beside changed metadata, rows or a purge."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from indextables.errors import (
    CommitConflictError,
    CorruptLogError,
    ProtocolError,
    SplitError,
)
from indextables.log.conflict import Draft
from indextables.log.format.actions import MergeSkip, Protocol
from indextables.log.format.names import version_file
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.maintain.metadata_changes import restore
from indextables.store import open_store
from tests.log_tables import generations as made
from tests.log_tables.build import (
    a_log,
    a_table,
    append,
    gone,
    paths_of,
    remove,
    schema_string,
    split,
)
from tests.log_tables.watched import Watch, WatchedStore


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore(open_store(tmp_path / "t"))


def fresh(path: Path | str) -> list[str]:
    invalidate()
    return paths_of(a_log(str(path)).snapshot())


def test_a_commit_never_lands_in_a_table_made_anew(tmp_path: Path) -> None:
    where = tmp_path / "t"
    log = a_table(str(where))
    append(log, "a.split")
    base = log.snapshot()
    shutil.rmtree(where)
    other = a_table(str(where), columns={"name": "string"})
    append(other, "other.split")
    with pytest.raises(CommitConflictError, match="deleted or replaced") as caught:
        append(log, "mine.split", base=base)
    assert caught.value.not_committed
    assert fresh(where) == ["other.split"]


def test_a_table_made_anew_between_the_look_and_the_creation_loses_the_stray_version(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split")
    base = log.snapshot()

    def before(operation: str, path: str) -> None:
        if operation == "create" and path == version_file(2):
            store.watch.before = Watch().before
            shutil.rmtree(tmp_path / "t")
            append(a_table(str(tmp_path / "t")), "other.split")

    store.watch.before = before
    with pytest.raises(CommitConflictError, match="deleted or replaced"):
        append(log, "mine.split", base=base)
    assert fresh(tmp_path / "t") == ["other.split"]


def test_a_version_of_another_table_is_refused_by_readers(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    other = a_table(str(tmp_path / "o"))
    append(other, "x.split")
    append(other, "y.split")
    name = version_file(2)
    shutil.copy(tmp_path / "o/_transaction_log" / name, tmp_path / "t/_transaction_log" / name)
    with pytest.raises(CorruptLogError, match="version 2 does not follow the version 1"):
        fresh(tmp_path / "t")


CHANGES: dict[str, dict[str, Any]] = {
    "schema": {"schema_string": schema_string({"id": "string"})},
    "partition columns": {"partition_columns": ["id"]},
    "indexing": {"configuration": {"indexing.typemap.text": "text"}},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rows_first", [True, False])
def test_a_change_of_metadata_conflicts_with_added_rows_in_both_orders(
    tmp_path: Path, change: Any, rows_first: bool
) -> None:
    log = a_table(str(tmp_path / "t"))
    base = log.snapshot()

    def alter() -> None:
        changed = msgspec.structs.replace(base.metadata, **CHANGES[change])
        log.commit(Draft(operation="ALTER", metadata=changed), base)

    first, second = (lambda: append(log, "a.split", base=base), alter)[:: 1 if rows_first else -1]
    first()
    with pytest.raises(CommitConflictError):
        second()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_metadata_conflicts_with_rows_whose_versions_were_cleaned_up(
    tmp_path: Path, change: Any
) -> None:
    log = a_table(str(tmp_path / "t"))
    base = log.snapshot()
    append(log, "a.split")
    append(log, "b.split")
    log.truncate()
    changed = msgspec.structs.replace(base.metadata, **CHANGES[change])
    with pytest.raises(CommitConflictError, match="splits were added"):
        log.commit(Draft(operation="ALTER", metadata=changed), base)


@pytest.mark.parametrize("operation", ["checkpoint", "truncate", "clean"])
def test_maintenance_of_a_table_that_asks_for_a_newer_writer_is_refused(
    tmp_path: Path, operation: str
) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    newer = Protocol(min_reader_version=4, min_writer_version=4, writer_features=["rowTracking"])
    a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"}).commit(
        Draft(operation="UPGRADE", protocol=newer), log.snapshot()
    )
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(ProtocolError, match="rowTracking"):
        getattr(a_log(str(tmp_path / "t")), operation)()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_restore_conflicts_with_a_purge_that_was_committed_meanwhile(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    append(log, "b.split")
    (tmp_path / "t/a.split").write_bytes(b"rows")
    real = log.commit

    def commit(draft: Any, base: Any) -> Snapshot:
        real(Draft(operation="PURGE", parameters={"before": "1", "retentionHours": "24"}), base)
        return real(draft, base)

    draft_base = log.snapshot()
    real(Draft(operation="DROP", removes=(gone("a.split"),)), draft_base)
    log.commit = commit  # type: ignore[method-assign]
    with pytest.raises(CommitConflictError, match="that purge may have deleted"):
        restore(log, version=2)


def test_a_state_of_another_engine_at_the_base_is_the_same_version(tmp_path: Path) -> None:
    """A write planned from the version must find it again, though its state has no token."""
    table = made.HandMade(tmp_path / "t")
    log = a_table(str(tmp_path / "t"))
    append(log, split("a.split", doc_mapping_json=None))
    key = log.snapshot().key
    table.state(1, [table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])])
    invalidate()
    again = a_log(str(tmp_path / "t")).snapshot_of(key)
    assert again is not None
    assert again.key == key


def test_a_version_of_another_engine_at_a_new_state_stays_the_same_version(tmp_path: Path) -> None:
    """A process that knows the table goes on from the new state; what it commits next must not conflict."""
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    log.snapshot()
    foreign = {"add": {"path": "f.split", "size": 5, "modificationTime": 1, "dataChange": True}}
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(json.dumps(foreign) + "\n")
    # As another process would do it: the caches of this one know nothing of it.
    held = log._snapshots
    other = a_log(str(tmp_path / "t"), {"transaction.cache.enabled": "false"})
    other.checkpoint()
    assert log._snapshots is held
    assert append(log, "b.split").version == 3
    assert fresh(tmp_path / "t") == ["a.split", "b.split", "f.split"]


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_copied_table_with_versions_of_another_engine_can_be_written(tmp_path: Path, form: str) -> None:
    log = a_table(str(tmp_path / "t"), {"state.format": form})
    append(log, "a.split")
    foreign = {"add": {"path": "f.split", "size": 5, "modificationTime": 1, "dataChange": True}}
    (tmp_path / "t/_transaction_log" / version_file(2)).write_text(json.dumps(foreign) + "\n")
    invalidate()
    log.checkpoint()
    shutil.copytree(tmp_path / "t", tmp_path / "copy", copy_function=shutil.copy)
    for file in (tmp_path / "copy").rglob("*.json"):
        os.utime(file, (1, 1))
    invalidate()
    assert append(a_log(str(tmp_path / "copy")), "b.split").version == 3


def test_a_commit_whose_uploads_were_purged_is_refused_when_the_versions_since_are_gone(
    store: WatchedStore, tmp_path: Path
) -> None:
    """Whether one of the versions in between was a purge cannot be seen any more."""
    log = a_table(store)
    append(log, "a.split")
    base = log.snapshot()
    other = a_log(str(tmp_path / "t"))
    append(other, "b.split")
    other.truncate()
    for name in ("kept.split", "purged.split"):
        (tmp_path / "t" / name).write_bytes(b"rows")
    (tmp_path / "t/purged.split").unlink()
    merged = Draft(
        operation="MERGE SPLITS",
        adds=(split("kept.split"), split("purged.split")),
        removes=(gone("a.split"),),
    )
    with pytest.raises(SplitError, match=r"1 of the 2 splits .* are gone \(one is purged\.split\)") as raised:
        log.commit(merged, base)
    assert raised.value.not_committed
    assert fresh(tmp_path / "t") == ["a.split", "b.split"]
    after = log.commit(dataclasses.replace(merged, adds=(split("kept.split"),)), base)
    assert sorted(after.files()["path"].to_pylist()) == ["b.split", "kept.split"]


def test_a_split_that_was_removed_meanwhile_is_not_skipped_by_merges(
    store: WatchedStore, tmp_path: Path
) -> None:
    log = a_table(store)
    append(log, "a.split", "b.split")
    base = log.snapshot()
    remove(log, "a.split")
    skips = tuple(
        MergeSkip(
            path=path, skip_timestamp=1, reason="damaged", operation="merge", retry_after=2, skip_count=1
        )
        for path in ("a.split", "b.split")
    )
    after = log.commit(Draft(operation="MERGE SPLITS", skips=skips), base)
    assert list(after.skips) == ["b.split"]
