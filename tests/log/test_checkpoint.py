"""States: what they cost, when they are compacted, and that nothing is lost on the way."""

import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indextables import metrics
from indextables.errors import CredentialsError, StateExpiredError, StoreError
from indextables.log import checkpoint as checkpointing
from indextables.log.conflict import Draft
from indextables.log.format import checkpoint_files
from indextables.log.format.actions import MergeSkip, Txn, schema_hash
from indextables.log.format.state_manifest import StateManifest
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.predicate import Column, Compare, Op
from indextables.store import open_store
from tests.log_tables import generations as made
from tests.log_tables.build import (
    MAPPING,
    Clock,
    a_log,
    a_table,
    append,
    gone,
    merge,
    overwrite,
    paths_of,
    remove,
    split,
)
from tests.log_tables.watched import WatchedStore

MANY = [f"base-{n}.split" for n in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    invalidate()
    return WatchedStore(open_store(str(tmp_path / "t")))


def with_state(store: Any, options: dict[Any, Any] | None = None, **table: Any) -> TransactionLog:
    """Forty splits in a compacted state at version 1."""
    log = a_table(store, options, **table)
    append(log, *MANY)
    log.checkpoint()
    return log


def fresh(log: TransactionLog) -> Snapshot:
    """The table as another process reads it."""
    invalidate()
    return a_log(log.store).snapshot()


def state_of(log: TransactionLog) -> StateManifest:
    return fresh(log).base.state


# --- incremental -----------------------------------------------------------------------------------


def test_adding_files_costs_the_new_files_only(store: WatchedStore) -> None:
    log = with_state(store)
    old = [m.path for m in state_of(log).manifests]
    append(log, "new.split")
    invalidate()
    store.watch.forget()
    written = log.checkpoint(compact=False)
    assert (written.compacted, written.num_files, written.num_manifests, written.written) == (
        False,
        41,
        2,
        True,
    )
    touched = store.watch.of("get", "create", "put", "delete")
    assert not any(path in touched for path in old), "an old manifest was read or written"
    new = [path for path in store.watch.of("create") if path.startswith("manifests/")]
    assert len(new) == 1
    state = state_of(log)
    assert [m.path for m in state.manifests] == [*old, *new]
    assert paths_of(fresh(log)) == sorted([*MANY, "new.split"])


def test_removing_files_adds_tombstones_and_writes_no_manifest(store: WatchedStore) -> None:
    log = with_state(store)
    remove(log, "base-0.split", "base-1.split")
    invalidate()
    store.watch.forget()
    written = log.checkpoint(compact=False)
    assert (written.num_tombstones, written.num_files, written.compacted) == (2, 38, False)
    assert not [path for path in store.watch.of("create", "get") if path.startswith("manifests/")]
    state = state_of(log)
    assert set(state.tombstones) == {"base-0.split", "base-1.split"}
    assert state.total_bytes == 380
    assert paths_of(fresh(log)) == sorted(MANY[2:])


def test_adds_and_removes_of_one_version_go_together(store: WatchedStore) -> None:
    log = with_state(store)
    merge(log, ["base-0.split", "base-1.split"], "merged.split")
    written = log.checkpoint(compact=False)
    assert (written.num_files, written.num_tombstones, written.num_manifests) == (39, 2, 2)
    assert paths_of(fresh(log)) == sorted([*MANY[2:], "merged.split"])


def test_a_split_that_came_and_went_between_states_leaves_a_tombstone_only(store: WatchedStore) -> None:
    """Another engine may add a path that is live in the base; its removal must count in every case."""
    log = with_state(store)
    append(log, "brief.split")
    remove(log, "brief.split")
    written = log.checkpoint(compact=False)
    assert (written.num_files, written.num_tombstones, written.num_manifests) == (40, 1, 1)
    assert paths_of(fresh(log)) == sorted(MANY)


def test_a_chain_of_incremental_states_equals_replay(store: WatchedStore) -> None:
    log = with_state(store, {"state.compaction.tombstoneThreshold": "10"})
    expected = set(MANY)
    for n in range(15):
        append(log, f"new-{n}.split")
        remove(log, MANY[n])
        expected = (expected | {f"new-{n}.split"}) - {MANY[n]}
        written = log.checkpoint(compact=False)
        assert not written.compacted
        assert written.num_files == len(expected)
        assert set(paths_of(fresh(log))) == expected
    state = state_of(log)
    assert state.state_version == 31
    assert (len(state.manifests), len(state.tombstones)) == (16, 15)


def test_a_double_remove_of_another_engine_is_one_tombstone(store: WatchedStore, tmp_path: Path) -> None:
    log = with_state(store)
    remove(log, "base-0.split")
    log.checkpoint(compact=False)
    remove(log, "base-0.split")
    written = log.checkpoint(compact=False)
    assert (written.num_files, written.num_tombstones) == (39, 1)
    assert len(paths_of(fresh(log))) == 39


def test_new_manifests_have_the_bounds_of_their_partitions(store: WatchedStore) -> None:
    log = a_table(store, columns={"id": "long", "day": "date"}, partition_by=["day"])
    append(log, *(split(f"{d}.split", partition_values={"day": f"2024-01-{d:02d}"}) for d in range(1, 21)))
    log.checkpoint()
    append(log, *(split(f"{d}.split", partition_values={"day": f"2024-02-{d:02d}"}) for d in (3, 9)))
    log.checkpoint(compact=False)
    bounds = [m.partition_bounds["day"] for m in state_of(log).manifests]
    assert [(b.min, b.max) for b in bounds] == [("2024-01-01", "2024-01-20"), ("2024-02-03", "2024-02-09")]


def test_pruning_by_partition_sees_tombstones_and_skips_manifests(store: WatchedStore) -> None:
    log = a_table(store, columns={"id": "long", "day": "date"}, partition_by=["day"])
    append(log, *(split(f"{d}.split", partition_values={"day": f"2024-01-{d:02d}"}) for d in range(1, 21)))
    log.checkpoint()
    append(log, *(split(f"feb-{d}.split", partition_values={"day": f"2024-02-{d:02d}"}) for d in (3, 9)))
    remove(log, "3.split")
    log.checkpoint(compact=False)
    january, february = (m.path for m in state_of(log).manifests)
    invalidate()
    store.watch.forget()
    day = log.snapshot().schema.field("day").type
    in_february = Compare(Op.GE, Column(("day",)), pa.scalar(dt.date(2024, 2, 4), day))
    assert log.snapshot().files(in_february)["path"].to_pylist() == ["feb-9.split"]
    touched = store.watch.of("get", "head")
    assert january not in touched
    assert february in touched
    early = Compare(Op.LE, Column(("day",)), pa.scalar(dt.date(2024, 1, 4), day))
    assert log.snapshot().files(early)["path"].to_pylist() == ["1.split", "2.split", "4.split"]


def test_nothing_new_means_nothing_written(store: WatchedStore) -> None:
    log = with_state(store)
    store.watch.forget()
    assert not log.checkpoint(compact=False).written
    assert not log.checkpoint(compact=True).written
    assert store.watch.of("create", "put", "delete") == []


# --- compaction ------------------------------------------------------------------------------------


def test_more_tombstones_than_their_share_trigger_compaction(store: WatchedStore) -> None:
    log = with_state(store)
    remove(log, *MANY[:4])  # a tenth of forty is allowed
    assert not log.checkpoint(compact=False).compacted
    remove(log, MANY[4])
    written = log.checkpoint(compact=False)
    assert (written.compacted, written.num_tombstones, written.num_files) == (True, 0, 35)
    assert paths_of(fresh(log)) == sorted(MANY[5:])


def test_the_share_of_tombstones_is_an_option(store: WatchedStore) -> None:
    log = with_state(store, {"state.compaction.tombstoneThreshold": "0.5"})
    remove(log, *MANY[:19])
    assert not log.checkpoint(compact=False).compacted


def test_more_manifests_than_allowed_trigger_compaction(store: WatchedStore) -> None:
    log = with_state(store, {"state.compaction.maxManifests": "3"})
    for n in range(2):
        append(log, f"new-{n}.split")
        assert not log.checkpoint(compact=False).compacted
    append(log, "last.split")
    written = log.checkpoint(compact=False)
    assert (written.compacted, written.num_manifests) == (True, 1)


def test_many_removes_at_once_trigger_compaction(store: WatchedStore) -> None:
    log = with_state(store, {"state.compaction.largeRemoveThreshold": "1"})
    remove(log, MANY[0])
    assert not log.checkpoint(compact=False).compacted
    remove(log, MANY[1], MANY[2])
    assert log.checkpoint(compact=False).compacted


@pytest.mark.parametrize(("after_merge", "compacted"), [("true", True), ("false", False)])
def test_a_merge_is_followed_by_a_clean_state_if_wished(
    store: WatchedStore, after_merge: str, compacted: bool
) -> None:
    options = {
        "checkpoint.enabled": "true",
        "checkpoint.interval": "100",
        "state.compaction.afterMerge": after_merge,
    }
    log = with_state(store, options)
    merge(log, MANY[:2], "merged.split")
    snapshot = fresh(log)
    assert (snapshot.base.version == snapshot.version) is compacted
    assert paths_of(snapshot) == sorted([*MANY[2:], "merged.split"])
    assert len(snapshot.base.state.tombstones) == 0


def test_no_state_is_written_soon_after_that_of_a_merge(store: WatchedStore) -> None:
    log = a_table(store, options={"checkpoint.enabled": "true", "checkpoint.interval": "4"})
    for n in range(1, 4):
        append(log, f"{n}.split")
    merged = merge(log, ["1.split", "2.split"], "merged.split")
    assert merged.version == fresh(log).base.version == 4
    for n in range(5, 7):
        append(log, f"{n}.split")
    merge(log, ["merged.split", "3.split"], "all.split")
    append(log, "8.split")
    assert fresh(log).base.version == 7, "the merge wrote one a version ago"
    for n in range(9, 12):
        append(log, f"{n}.split")
    assert fresh(log).base.version == 7
    append(log, "12.split")
    assert fresh(log).base.version == 12


def test_a_path_that_came_back_forces_compaction(store: WatchedStore) -> None:
    log = with_state(store)
    remove(log, MANY[0])
    log.checkpoint(compact=False)
    append(log, MANY[0])
    written = log.checkpoint(compact=False)
    assert (written.compacted, written.num_files) == (True, 40)
    assert paths_of(fresh(log)) == sorted(MANY)


def test_a_path_that_went_and_came_back_between_states_forces_compaction(store: WatchedStore) -> None:
    log = with_state(store)
    remove(log, MANY[0])
    append(log, split(MANY[0], size=77))
    assert log.checkpoint(compact=False).compacted
    listed = fresh(log).files().to_pylist()
    assert [row["size"] for row in listed if row["path"] == MANY[0]] == [77]


def test_removes_without_a_size_force_compaction(store: WatchedStore) -> None:
    log = with_state(store)
    log.commit(Draft(operation="DELETE", removes=(gone(MANY[0], size=None),)), log.snapshot())
    written = log.checkpoint(compact=False)
    assert written.compacted
    assert state_of(log).total_bytes == 390


def test_the_first_state_is_compacted(store: WatchedStore) -> None:
    log = a_table(store)
    append(log, "a.split")
    assert log.checkpoint(compact=False).compacted


def test_compaction_by_force_leaves_no_tombstones_and_all_live_files(store: WatchedStore) -> None:
    log = with_state(store)
    remove(log, MANY[0])
    append(log, "new.split")
    log.checkpoint(compact=False)
    version = log.snapshot().version
    written = log.checkpoint()
    assert written.version == version + 1, (
        "a state is never rewritten: an empty version carries the clean one"
    )
    assert (written.compacted, written.num_tombstones, written.num_manifests) == (True, 0, 1)
    assert paths_of(fresh(log)) == sorted([*MANY[1:], "new.split"])
    assert log.history(1)[0].operation == "CHECKPOINT"


@pytest.mark.parametrize("overwritten", [False, True])
def test_compacting_a_clean_state_is_nothing_to_do(store: WatchedStore, overwritten: bool) -> None:
    log = with_state(store)
    if overwritten:
        overwrite(log)
        log.checkpoint()
        assert paths_of(fresh(log)) == []
    version = log.snapshot().version
    for _ in range(2):
        assert not log.checkpoint().written
    assert log.snapshot().version == version


def test_a_table_without_splits_has_a_state(store: WatchedStore) -> None:
    log = a_table(store)
    assert log.checkpoint().num_files == 0
    assert not log.checkpoint().written
    append(log, "a.split")
    assert log.checkpoint(compact=False).num_files == 1
    assert paths_of(fresh(log)) == ["a.split"]


def test_compaction_cuts_manifests_at_their_size(store: WatchedStore) -> None:
    log = a_table(store, {"state.entriesPerManifest": "15"})
    append(log, *MANY)
    written = log.checkpoint()
    assert written.num_manifests == 3
    assert [m.num_entries for m in state_of(log).manifests] == [15, 15, 10]
    assert not log.checkpoint().written, "that is as clean as it gets"


def test_manifests_of_large_entries_are_cut_before_readers_refuse_them(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = with_state(store).snapshot().files()
    monkeypatch.setattr(checkpointing, "MAX_MANIFEST_BYTES", entries.slice(0, 12).nbytes)
    log = a_log(store)
    append(log, *(f"new-{n}.split" for n in range(20)))
    log.checkpoint(compact=False)
    assert [m.num_entries for m in state_of(log).manifests] == [40, 10, 10]
    log.checkpoint()
    assert max(m.num_entries for m in state_of(log).manifests) <= 12
    assert paths_of(fresh(log)) == sorted([*MANY, *(f"new-{n}.split" for n in range(20))])


def test_compaction_merges_small_manifests(store: WatchedStore) -> None:
    log = with_state(store)
    for n in range(5):
        append(log, f"new-{n}.split")
        log.checkpoint(compact=False)
    assert len(state_of(log).manifests) == 6
    log.checkpoint()
    assert len(state_of(log).manifests) == 1


def test_compaction_sorts_by_the_partitions_values_as_their_type(store: WatchedStore) -> None:
    log = a_table(
        store,
        {"state.entriesPerManifest": "2"},
        columns={"id": "long", "n": "integer", "s": "string"},
        partition_by=["n", "s"],
    )
    values = [("10", "b"), ("9", "a"), ("-1", "x"), (None, "z"), ("10", "a"), ("2", None)]
    append(log, *(split(f"{n}-{s}.split", partition_values={"n": n, "s": s}) for n, s in values))
    log.checkpoint()
    snapshot = fresh(log)
    assert snapshot.files()["path"].to_pylist() == [
        "-1-x.split", "2-None.split", "9-a.split", "10-a.split", "10-b.split", "None-z.split",
    ]  # fmt: skip
    bounds = [m.partition_bounds["n"] for m in snapshot.base.state.manifests]
    assert [(b.min, b.max) for b in bounds] == [("-1", "2"), ("9", "10"), ("10", "10")]


def test_strings_that_look_like_numbers_get_no_bounds_that_others_would_misread(store: WatchedStore) -> None:
    log = a_table(store, columns={"id": "long", "s": "string"}, partition_by=["s"])
    append(log, *(split(f"{s}.split", partition_values={"s": s}) for s in ("9", "10", "x")))
    log.checkpoint()
    assert not (state_of(log).manifests[0].partition_bounds or {}).get("s")


def test_entries_keep_the_version_and_time_they_were_added_at(store: WatchedStore) -> None:
    log = a_table(store, clock=Clock(now=1_000_000, step=1000))
    first = append(log, "a.split")
    second = append(log, "b.split")
    log.checkpoint()
    remove(log, "a.split")
    append(log, "c.split")
    log.checkpoint()
    rows = {row["path"]: row for row in fresh(log).files().to_pylist()}
    assert rows["b.split"]["addedAtVersion"] == 2
    assert rows["b.split"]["addedAtTimestamp"] == second.timestamp > first.timestamp
    assert rows["c.split"]["addedAtVersion"] == 4


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_states_are_read_back_whatever_their_compression(store: WatchedStore, codec: str) -> None:
    log = with_state(store, {"state.compression": codec, "state.compressionLevel": "9"})
    assert paths_of(fresh(log)) == sorted(MANY)


# --- mappings --------------------------------------------------------------------------------------


def mapping(n: int) -> str:
    return json.dumps([{"name": f"field{n}", "type": "i64"}])


def test_the_registry_stands_in_the_state_and_in_its_metadata(store: WatchedStore) -> None:
    log = a_table(store)
    append(log, split("a.split"), split("b.split", doc_mapping_json=mapping(1)))
    log.checkpoint()
    log.truncate()
    snapshot = fresh(log)
    expected = {schema_hash(MAPPING): MAPPING, schema_hash(mapping(1)): mapping(1)}
    assert snapshot.registry == expected
    assert dict(snapshot.base.state.schema_registry) == expected
    named = {f"docMappingSchema.{name}": text for name, text in expected.items()}
    assert snapshot.metadata.configuration == named


@pytest.mark.parametrize(("threshold", "names"), [(1, 2), (5, 3)])
def test_doubles_among_many_mappings_are_consolidated_by_compaction(
    tmp_path: Path, threshold: int, names: int
) -> None:
    """Other engines name one mapping by several hashes."""
    table = made.HandMade(tmp_path / "t")
    spaced = made.MAPPING.replace(":", ": ")
    registry = {"aaaaaaaaaaaaaaaa": made.MAPPING, "bbbbbbbbbbbbbbbb": spaced, "cccccccccccccccc": mapping(9)}
    table.version(
        0,
        made.protocol(),
        made.metadata(configuration={f"docMappingSchema.{k}": v for k, v in registry.items()}),
    )
    table.version(1, *(made.add(f"{k[0]}.split", docMappingRef=k) for k in registry))
    log = a_log(str(tmp_path / "t"), {"state.schema.renormalizeThreshold": str(threshold)})
    log.checkpoint()
    snapshot = fresh(log)
    refs = dict(zip(*(snapshot.files()[c].to_pylist() for c in ("path", "docMappingRef")), strict=True))
    assert len(set(refs.values())) == names
    assert {ref in snapshot.registry for ref in refs.values()} == {True}
    assert len(snapshot.base.state.schema_registry) == names
    assert json.loads(snapshot.registry[refs["b.split"]]) == json.loads(made.MAPPING)


def test_mappings_inside_actions_move_to_the_registry_on_compaction(tmp_path: Path) -> None:
    made.generation_b(tmp_path / "t", 2)
    log = a_log(str(tmp_path / "t"))
    log.checkpoint()
    snapshot = fresh(log)
    assert snapshot.files()["docMappingJson"].null_count == 2
    assert {snapshot.registry[ref] for ref in snapshot.files()["docMappingRef"].to_pylist()} == {made.MAPPING}


# --- what a state carries beside its list ----------------------------------------------------------


@pytest.mark.parametrize("form", ["avro", "json"])
def test_batches_skips_and_the_time_survive_checkpoint_and_truncation(store: WatchedStore, form: str) -> None:
    log = a_table(store, {"state.format": form}, clock=Clock(now=9_000_000_000_000))
    append(log, *MANY, txns=(Txn(app_id="clicks", version=3),))
    skip = MergeSkip(path=MANY[0], skip_timestamp=1, reason="damaged", skip_count=2, retry_after=9)
    before = log.commit(Draft(operation="MERGE SPLITS", skips=(skip,)), log.snapshot())
    log.checkpoint()
    log.truncate()
    snapshot = fresh(log)
    assert snapshot.txns["clicks"].version == 3
    assert snapshot.skips == {MANY[0]: skip}
    assert snapshot.timestamp == before.timestamp
    assert paths_of(snapshot) == sorted(MANY)
    late = a_log(log.store, clock=Clock(now=5, step=0))
    assert append(late, "new.split").timestamp == before.timestamp + 1
    assert late.snapshot(timestamp=before.timestamp).version == 2


# --- the older form --------------------------------------------------------------------------------


def test_a_json_checkpoint_is_written_on_demand_and_read(store: WatchedStore, tmp_path: Path) -> None:
    log = a_table(store, {"state.format": "json"})
    append(log, *MANY)
    written = log.checkpoint()
    assert (written.format, written.num_files) == ("json", 40)
    path = tmp_path / f"t/_transaction_log/{1:020d}.checkpoint.json"
    assert path.read_bytes()[:4] == b"\x01\x01\x1f\x8b"
    pointer = json.loads((tmp_path / "t/_transaction_log/_last_checkpoint").read_text())
    assert (pointer["version"], pointer.get("format"), pointer["numFiles"]) == (1, None, 40)
    log.truncate()
    assert not (tmp_path / f"t/_transaction_log/{0:020d}.json").exists()
    assert paths_of(fresh(log)) == sorted(MANY)


def test_a_table_that_is_read_from_a_json_checkpoint_says_so_once(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_table(store, {"state.format": "json"})
    append(log, *MANY)
    log.checkpoint()
    invalidate()
    assert paths_of(log.snapshot()) == sorted(MANY)
    assert not caplog.text, "it is intended"
    for _ in range(2):
        assert paths_of(fresh(log)) == sorted(MANY)
    assert caplog.text.count("version 1 is read from a JSON checkpoint of 40 splits") == 1
    a_log(store).checkpoint()
    caplog.clear()
    assert paths_of(fresh(log)) == sorted(MANY)
    assert not caplog.text


def test_a_large_json_checkpoint_is_cut_into_parts(
    store: WatchedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 15)
    log = a_table(store, {"state.format": "json"})
    append(log, *MANY)
    log.checkpoint()
    parts = sorted(p.name for p in (tmp_path / "t/_transaction_log").glob("*.checkpoint.*.json"))
    assert len(parts) == 3
    pointer = json.loads((tmp_path / "t/_transaction_log/_last_checkpoint").read_text())
    assert pointer["parts"] == 3
    assert len(pointer["checkpointId"]) == 12
    log.truncate()
    assert paths_of(fresh(log)) == sorted(MANY)
    append(log, "new.split")
    log.checkpoint()
    log.truncate()
    left = {p.name.split(".")[0] for p in (tmp_path / "t/_transaction_log").glob("*.checkpoint*")}
    assert left == {f"{2:020d}"}, "parts go with their checkpoint"


def test_a_table_goes_back_to_json_and_forth(store: WatchedStore, tmp_path: Path) -> None:
    log = with_state(store)
    back = a_log(store, {"state.format": "json"})
    assert back.checkpoint().format == "json"
    pointer = tmp_path / "t/_transaction_log/_last_checkpoint"
    assert "format" not in json.loads(pointer.read_text())
    append(back, "new.split")
    back.checkpoint()
    back.truncate()
    assert list((tmp_path / "t/_transaction_log").glob("state-v*")) == []
    assert paths_of(fresh(back)) == sorted([*MANY, "new.split"])
    log.checkpoint()
    assert json.loads(pointer.read_text())["format"] == "avro-state"
    assert paths_of(fresh(log)) == sorted([*MANY, "new.split"])


def test_a_pointer_never_goes_back(store: WatchedStore, tmp_path: Path) -> None:
    log = with_state(store)
    pointer = tmp_path / "t/_transaction_log/_last_checkpoint"
    newer = {**json.loads(pointer.read_text()), "version": 9}
    pointer.write_text(json.dumps(newer))
    append(log, "new.split")
    a_log(store, {"state.format": "json"}).checkpoint()
    assert json.loads(pointer.read_text()) == newer


# --- trouble ---------------------------------------------------------------------------------------


def test_a_state_write_is_tried_again_as_the_options_say(store: WatchedStore) -> None:
    clock = Clock()
    a_table(store)
    options = {
        "state.retry.maxAttempts": "3",
        "state.retry.baseDelayMs": "100",
        "state.retry.maxDelayMs": "150",
    }
    log = a_log(store, options, clock=clock)
    append(log, "a.split")
    left = [2]

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith(("state-v", "manifests/")) and left[0]:
            left[0] -= 1
            raise StoreError("try again")

    store.watch.before = before
    assert log.checkpoint().written
    assert clock.slept == [0.1, 0.15]
    append(log, "b.split")
    left[0] = 3
    with pytest.raises(StoreError, match="try again"):
        log.checkpoint()
    assert paths_of(fresh(log)) == ["a.split", "b.split"]


def test_refused_credentials_are_not_tried_again(store: WatchedStore) -> None:
    clock = Clock()
    a_table(store)
    log = a_log(store, clock=clock)
    append(log, "a.split")

    def before(operation: str, path: str) -> None:
        if operation == "create":
            raise CredentialsError("no")

    store.watch.before = before
    with pytest.raises(CredentialsError):
        log.checkpoint()
    assert clock.slept == []


def test_a_checkpoint_cut_off_anywhere_harms_nothing(store: WatchedStore) -> None:
    """Every single write of a checkpoint is the last one once."""
    log = with_state(store)
    remove(log, *MANY[:10])
    append(log, "new.split")
    expected = sorted([*MANY[10:], "new.split"])
    for stop in range(4):
        left = [stop]

        def before(operation: str, path: str, left: Any = left) -> None:
            if operation in ("create", "put"):
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1

        store.watch.before = before
        try:
            log.checkpoint()
        except KeyboardInterrupt:
            pass
        finally:
            store.watch.before = lambda *_: None
        assert paths_of(fresh(log)) == expected
        append(log, f"after-{stop}.split")
        expected = sorted([*expected, f"after-{stop}.split"])


def test_two_checkpointers_at_once_leave_one_good_state(tmp_path: Path) -> None:
    invalidate()
    log = with_state(open_store(str(tmp_path / "t")))
    append(log, "new.split")
    results, errors = [], []

    def run(compact: int) -> None:
        try:
            results.append(a_log(str(tmp_path / "t")).checkpoint(compact=bool(compact)))
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n % 2,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(results) == 6
    snapshot = fresh(log)
    assert snapshot.base.version == snapshot.version
    assert paths_of(snapshot) == sorted([*MANY, "new.split"])
    assert len(snapshot.base.state.manifests) == 1, (
        "compaction was asked for, so the state is clean at the end"
    )


def test_nobody_relies_on_a_state_whose_base_was_cleaned_up_meanwhile(
    store: WatchedStore, tmp_path: Path
) -> None:
    """Otherwise the newest state would refer to manifests that are gone, and the table would not open."""
    log = with_state(store)
    append(log, "new.split")
    folder = tmp_path / "t/_transaction_log"
    [manifest] = (folder / "manifests").iterdir()

    def before(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("state-v"):
            (folder / f"state-v{1:020d}/_manifest.avro").unlink()
            manifest.unlink()

    store.watch.before = before
    with pytest.raises(StateExpiredError, match="cleaned up while it was written; the table is unchanged"):
        log.checkpoint(compact=False)
    store.watch.before = lambda *_: None
    assert json.loads((folder / "_last_checkpoint").read_bytes())["version"] == 1
    assert paths_of(fresh(log)) == sorted([*MANY, "new.split"]), "the versions still tell everything"


def test_the_metrics_of_the_specification_are_kept(store: WatchedStore) -> None:
    metrics.reset()
    log = with_state(store)
    remove(log, MANY[0])
    log.checkpoint(compact=False)
    fresh(log).files()
    figures = metrics.figures()
    assert figures["indextables.state.write.compacted"].count == 2
    assert figures["indextables.state.write.compacted"].total == 1
    assert figures["indextables.state.write.duration_ms"].count == 2
    assert figures["indextables.state.read.duration_ms"].last > 0
    assert figures["indextables.state.read.manifest_count"].last == 1
    assert figures["indextables.state.read.file_count"].last == 39
    assert figures["indextables.state.tombstone_count"].last == 1
    assert figures["indextables.state.tombstone_ratio"].last == pytest.approx(1 / 39)
