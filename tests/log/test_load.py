"""Tables of every generation of writers give the right list, and go on under ours."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import ProtocolError
from indextables.log.snapshot_cache import invalidate
from tests.log_tables import generations as made
from tests.log_tables.build import a_log, append, paths_of, remove
from tests.log_tables.generations import HandMade


@pytest.fixture(autouse=True)
def cold() -> None:
    """Nothing is known of other tests' tables."""
    invalidate()


def read(table: Path) -> list[str]:
    invalidate()
    return paths_of(a_log(str(table)).snapshot())


def goes_on(table: Path, expected: list[str], options: Any = None) -> None:
    """Append, checkpoint, truncate: nothing is lost, nothing comes back."""
    log = a_log(str(table), options)
    before = log.snapshot()
    assert paths_of(before) == sorted(expected)
    after = append(log, "new.split")
    assert after.version == before.version + 1
    assert read(table) == sorted([*expected, "new.split"])
    log.checkpoint(compact=False)
    assert read(table) == sorted([*expected, "new.split"])
    remove(log, "new.split")
    log.checkpoint()
    log.truncate()
    assert read(table) == sorted(expected)
    assert a_log(str(table)).snapshot().metadata.schema_string == before.metadata.schema_string


# --- generation J ----------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [False, True])
def test_json_checkpoints_single_and_in_parts_are_read(tmp_path: Path, parts: bool) -> None:
    made.generation_j(tmp_path / "t", parts=parts)
    expected = [f"part-{n}.split" for n in range(1, 13)]
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert snapshot.version == 12
    assert snapshot.protocol.min_reader_version == 2
    goes_on(tmp_path / "t", expected)


@pytest.mark.parametrize("parts", [False, True])
def test_a_json_checkpoint_stands_in_for_versions_that_are_gone(tmp_path: Path, parts: bool) -> None:
    table = made.generation_j(tmp_path / "t", parts=parts)
    for version in range(10):
        (table.log / f"{version:020d}.json").unlink()
    assert read(tmp_path / "t") == sorted(f"part-{n}.split" for n in range(1, 13))
    (table.log / "_last_checkpoint").unlink()
    assert read(tmp_path / "t") == sorted(f"part-{n}.split" for n in range(1, 13))


@pytest.mark.parametrize("form", ["plain", "gzip", "legacy"])
def test_version_files_are_read_in_all_three_forms(tmp_path: Path, form: str) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata(), form=form)
    table.version(1, made.add("a.split"), made.add("b.split"), form=form)
    table.version(2, made.remove("a.split"), made.add("c.split"), form=form)
    assert read(tmp_path / "t") == ["b.split", "c.split"]
    goes_on(tmp_path / "t", ["b.split", "c.split"])


def test_a_checkpoint_command_turns_a_json_table_into_an_avro_one(tmp_path: Path) -> None:
    made.generation_j(tmp_path / "t")
    log = a_log(str(tmp_path / "t"))
    written = log.checkpoint()
    assert (written.version, written.format, written.num_files) == (12, "avro-state", 12)
    pointer = json.loads((tmp_path / "t/_transaction_log/_last_checkpoint").read_text())
    assert (pointer["version"], pointer["format"]) == (12, "avro-state")
    log.truncate()
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert paths_of(snapshot) == sorted(f"part-{n}.split" for n in range(1, 13))
    assert snapshot.protocol.min_reader_version == 4


def test_an_upgrade_keeps_statistics_partition_values_and_document_mappings(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    facts = made.metadata(
        made.PARTITIONED, ["date"], configuration={f"docMappingSchema.{made.MAPPING_HASH}": made.MAPPING}
    )
    line = made.add_with_nulls(
        "date=2024-01-01/a.split",
        partitionValues={"date": "2024-01-01"},
        minValues={"id": "1"},
        maxValues={"id": "9"},
        docMappingRef=made.MAPPING_HASH,
        splitTags=["x"],
        numMergeOps=2,
    )
    table.version(0, made.protocol(3), facts, form="legacy")
    table.version(1, line, form="legacy")
    before = a_log(str(tmp_path / "t")).snapshot().files().to_pylist()
    a_log(str(tmp_path / "t")).checkpoint()
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert snapshot.base.version == 1
    assert snapshot.files().to_pylist() == before
    assert before[0]["partitionValues"] == [("date", "2024-01-01")]
    assert (before[0]["minValues"], before[0]["maxValues"]) == ([("id", "1")], [("id", "9")])
    assert snapshot.registry == {made.MAPPING_HASH: made.MAPPING}


# --- generation A ----------------------------------------------------------------------------------


def test_a_table_whose_commits_are_states_only_is_read(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 3)
    table = indextables.open(tmp_path / "t")
    assert table.version == 3
    assert table.schema.names == ["id", "text"]
    goes_on(tmp_path / "t", [f"part-{v}-{n}.split" for v in (1, 2, 3) for n in (1, 2)])


def test_a_state_only_table_is_read_at_every_version(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 3)
    for version in (0, 1, 2, 3):
        snapshot = a_log(str(tmp_path / "t")).snapshot(version=version)
        assert snapshot.num_files == 2 * version


def test_metadata_comes_from_the_newest_state_that_has_it(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 4)
    changed = made.metadata(made.PARTITIONED, ["date"])
    manifests = [table.manifest("manifests/manifest-0000000f.avro", [made.entry("x.split")])]
    table.state(2, manifests, metadata=changed)
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot().partition_columns == ("date",)
    assert log.snapshot(version=1).partition_columns == ()


def test_without_any_metadata_the_table_is_refused(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 2)
    (table.log / f"{0:020d}.json").unlink()
    with pytest.raises(indextables.IndexTablesError, match="neither its states nor version 0"):
        a_log(str(tmp_path / "t")).snapshot()


def test_a_late_state_under_number_zero_is_not_version_zero(tmp_path: Path) -> None:
    """Releases of the original numbered a CHECKPOINT by their version files, of which they had one."""
    table = made.generation_a(tmp_path / "t", 5)
    listed = [table.manifest("manifests/manifest-000000ff.avro", [made.entry("late.split")])]
    table.state(0, listed, metadata=made.metadata(), createdAt=made.WHEN + 99_000)
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot().version == 5
    assert log.snapshot(version=0).num_files == 0
    assert log.snapshot(timestamp=made.WHEN + 3_500).version == 3
    goes_on(tmp_path / "t", [f"part-{v}-{n}.split" for v in range(1, 6) for n in (1, 2)])


def test_a_truncated_log_with_a_late_state_under_number_zero_is_read(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 6)
    listed = [table.manifest("manifests/manifest-000000ff.avro", [made.entry("late.split")])]
    table.state(0, listed, metadata=made.metadata(), createdAt=made.WHEN + 99_000)
    for version in (1, 2, 3):
        shutil.rmtree(table.log / f"state-v{version:020d}")
    (table.log / f"{0:020d}.json").unlink()
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot().version == 6
    assert log.snapshot().schema.names == ["id", "text"]
    assert log.snapshot(timestamp=made.WHEN + 4_500).version == 4
    for version in (0, 1, 2, 3):
        with pytest.raises(indextables.IndexTablesError, match="versions 4 to 6 can be read"):
            log.snapshot(version=version)
    log.truncate()
    assert not (table.log / f"state-v{0:020d}").exists() or read(tmp_path / "t")
    assert read(tmp_path / "t") == sorted(f"part-{v}-{n}.split" for v in range(1, 7) for n in (1, 2))


def test_tombstones_hide_their_paths(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    one = table.manifest("manifests/manifest-1.avro", [made.entry("a.split"), made.entry("b.split")])
    two = table.manifest("manifests/manifest-2.avro", [made.entry("c.split")])
    table.state(1, [one])
    table.state(2, [one, two], tombstones=["a.split"])
    goes_on(tmp_path / "t", ["b.split", "c.split"])


def test_where_two_manifests_name_a_path_the_later_one_is_right(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    one = table.manifest("manifests/manifest-1.avro", [made.entry("a.split", size=1), made.entry("b.split")])
    two = table.manifest("manifests/manifest-2.avro", [made.entry("a.split", size=2)])
    table.state(2, [one, two])
    files = a_log(str(tmp_path / "t")).snapshot().files()
    assert dict(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True)) == {
        "a.split": 2,
        "b.split": 10,
    }


@pytest.mark.parametrize("schema", [made.ENTRY_04, made.ENTRY_05, made.ENTRY_B], ids=["0.4", "0.5", "B"])
@pytest.mark.parametrize("codec", ["null", "snappy", "zstandard", "deflate"])
def test_manifests_of_every_layout_and_codec_are_read(tmp_path: Path, schema: Any, codec: str) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    entries = [made.entry(f"{n}.split") for n in range(5)]
    table.state(
        1, [table.manifest("manifests/manifest-1.avro", entries, schema=schema, codec=codec)], codec=codec
    )
    goes_on(tmp_path / "t", [f"{n}.split" for n in range(5)])


def test_a_manifest_in_the_states_own_folder_is_found_and_carried_on(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    folder = f"state-v{1:020d}"
    info = table.manifest(f"{folder}/manifest-0001.avro", [made.entry(f"{n}.split") for n in range(20)])
    table.state(1, [{**info, "path": "manifest-0001.avro"}])
    log = a_log(str(tmp_path / "t"))
    append(log, "new.split")
    log.checkpoint(compact=False)
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert next(m.path for m in snapshot.base.state.manifests) == f"{folder}/manifest-0001.avro"
    assert snapshot.num_files == 21


def test_a_state_manifest_as_json_is_read(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    info = table.manifest("manifests/manifest-1.avro", [made.entry(f"{n}.split") for n in range(20)])
    table.state(1, [info], form="json", metadata=made.metadata())
    goes_on(tmp_path / "t", [f"{n}.split" for n in range(20)])


def test_a_state_folder_with_fewer_digits_is_read(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    table.state(7, [table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])], folder="state-v7")
    assert a_log(str(tmp_path / "t")).snapshot().version == 7


# --- generation B ----------------------------------------------------------------------------------


def test_versions_with_a_state_at_each_are_read_and_go_on(tmp_path: Path) -> None:
    made.generation_b(tmp_path / "t", 3)
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert snapshot.registry == {made.MAPPING_HASH: made.MAPPING}
    goes_on(tmp_path / "t", ["part-1.split", "part-2.split", "part-3.split"])


def test_version_files_after_the_newest_state_are_applied(tmp_path: Path) -> None:
    table = made.generation_b(tmp_path / "t", 3)
    table.version(4, made.remove("part-1.split"), made.add("merged.split", dataChange=False))
    goes_on(tmp_path / "t", ["part-2.split", "part-3.split", "merged.split"])


def test_a_stray_version_below_the_newest_state_changes_nothing(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 3)
    table.version(1, made.add("stray.split"))
    assert a_log(str(tmp_path / "t")).snapshot().version == 3
    goes_on(tmp_path / "t", [f"part-{v}-{n}.split" for v in (1, 2, 3) for n in (1, 2)])


def test_what_a_foreign_state_leaves_out_is_recalled_from_the_versions_before_it(tmp_path: Path) -> None:
    """Batches of streams and skipped splits survive a state of an engine that knows neither."""
    table = made.generation_b(tmp_path / "t", 2)
    skip = {"mergeskip": {"path": "part-1.split", "skipTimestamp": 1, "reason": "damaged"}}
    table.version(3, skip, {"txn": {"appId": "clicks", "version": 7}})
    manifests = [
        table.manifest("manifests/manifest-b.avro", [made.entry("part-1.split"), made.entry("x.split")])
    ]
    table.state(3, manifests, metadata=made.metadata())
    log = a_log(str(tmp_path / "t"))
    snapshot = log.snapshot()
    assert snapshot.base.version == 3
    assert snapshot.txns["clicks"].version == 7
    assert snapshot.skips["part-1.split"].reason == "damaged"
    log.checkpoint()
    log.truncate()
    invalidate()
    later = a_log(str(tmp_path / "t")).snapshot()
    assert later.txns["clicks"].version == 7
    assert set(later.skips) == {"part-1.split"}


# --- protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_protocol_versions_one_to_five_are_read(tmp_path: Path, version: int) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(version), made.metadata())
    table.version(1, made.add("a.split"))
    goes_on(tmp_path / "t", ["a.split"])


def test_a_table_without_a_protocol_is_of_version_one(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.metadata())
    assert a_log(str(tmp_path / "t")).snapshot().protocol.min_reader_version == 1


def test_a_newer_protocol_is_refused_by_its_number(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(6), made.metadata())
    with pytest.raises(ProtocolError, match=r"reader version 6.*1 to 5"):
        a_log(str(tmp_path / "t")).snapshot()
    assert a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"}).snapshot().version == 0


def test_a_state_of_a_newer_protocol_is_refused(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    info = table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])
    table.state(3, [info], metadata=made.metadata(), protocolVersion=6)
    with pytest.raises(ProtocolError, match="reader version 6"):
        a_log(str(tmp_path / "t")).snapshot()


def test_unknown_reader_features_are_refused_by_name(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(4, readerFeatures=["avroState", "telepathy"]), made.metadata())
    with pytest.raises(ProtocolError, match=r"reader features.*telepathy") as refused:
        a_log(str(tmp_path / "t")).snapshot()
    assert "avroState" not in str(refused.value)


def test_unknown_writer_features_are_refused_on_writing_only(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(4, writerFeatures=["checkpoint", "telepathy"]), made.metadata())
    log = a_log(str(tmp_path / "t"))
    snapshot = log.snapshot()
    with pytest.raises(ProtocolError, match=r"writer features.*telepathy"):
        append(log, "a.split", base=snapshot)
    assert not (tmp_path / f"t/_transaction_log/{1:020d}.json").exists()
    unchecked = a_log(str(tmp_path / "t"), {"protocol.checkEnabled": "false"})
    assert append(unchecked, "a.split").version == 1


def test_a_feature_that_appears_while_writing_is_refused_too(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(4), made.metadata())
    log = a_log(str(tmp_path / "t"))
    snapshot = log.snapshot()
    table.version(1, made.protocol(4, writerFeatures=["telepathy"]))
    with pytest.raises(ProtocolError, match="telepathy"):
        append(log, "a.split", base=snapshot)


def test_protocol_features_survive_a_checkpoint_and_a_truncation(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(
        0, made.protocol(4, readerFeatures=["avroState"], writerFeatures=["checkpoint"]), made.metadata()
    )
    table.version(1, made.add("a.split"))
    log = a_log(str(tmp_path / "t"))
    log.checkpoint()
    log.truncate()
    invalidate()
    protocol = a_log(str(tmp_path / "t")).snapshot().protocol
    assert (protocol.reader_features, protocol.writer_features) == (["avroState"], ["checkpoint"])


# --- nulls and what is not known -------------------------------------------------------------------


def test_explicit_nulls_and_absent_fields_mean_the_same(tmp_path: Path) -> None:
    for name, line in (("absent", made.add("a.split")), ("null", made.add_with_nulls("a.split"))):
        table = HandMade(tmp_path / name)
        table.version(0, made.protocol(), made.metadata())
        table.version(1, line)
    absent, null = (a_log(str(tmp_path / n)).snapshot().files().to_pylist() for n in ("absent", "null"))
    assert absent == null


def test_unknown_actions_fields_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata(surprise=1), {"cdc": {"path": "x"}})
    table.version(1, {"add": {**made.add("a.split")["add"], "surprise": {"deep": [1]}}})
    path = table.log / f"{2:020d}.json"
    path.write_bytes(b"\n\n" + json.dumps(made.add("b.split")).encode() + b"\n\n")
    assert read(tmp_path / "t") == ["a.split", "b.split"]
