"""Which tables are refused, by name, and how a table comes by the features that its splits need."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.commands import COMMANDS, TableArgument
from indextables.errors import CommitConflictError, ProtocolError
from indextables.log.conflict import Draft
from indextables.log.format import version_file
from indextables.log.format.actions import Add, Protocol
from indextables.log.snapshot_cache import invalidate
from indextables.maintain import on_write
from indextables.options import Options
from tests import command_uses
from tests.log_tables.build import a_log, a_table, append, on_old_protocol, split
from tests.maintenance_tables import appended, log_of

OURS: dict[str, Any] = {"split_tags": ["parquet"]}


def actions_of(table: Path, version: int) -> list[Any]:
    path = table / f"_transaction_log/{version:020d}.json"
    return version_file.decode(path.read_bytes(), "x")


def rewritten(table: Path, version: int, change: Callable[..., dict[Any, Any]]) -> None:
    """A version file with each of its lines changed, as another engine might have written it."""
    path = table / f"_transaction_log/{version:020d}.json"
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    path.write_bytes(b"".join(json.dumps(change(line)).encode() + b"\n" for line in lines))
    invalidate()


def without_features(line: dict[str, Any]) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}} if "protocol" in line else line


def test_a_new_table_requires_the_feature_of_its_splits(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{"id": 1}])
    protocol = it.open(tmp_path / "t")._snapshot.protocol
    assert protocol == Protocol(
        min_reader_version=5,
        min_writer_version=5,
        reader_features=["parquetSplits"],
        writer_features=["parquetSplits"],
    )


def test_the_first_split_of_ours_upgrades_the_table_in_the_same_version(tmp_path: Path) -> None:
    log = on_old_protocol(str(tmp_path / "t"))
    append(log, "original.split")
    assert log.snapshot().protocol.min_reader_version == 4
    after = append(log, split("ours.split", **OURS))
    assert after.protocol.reader_features == after.protocol.writer_features == ["parquetSplits"]
    version = actions_of(tmp_path / "t", after.version)
    assert [a.path for a in version if isinstance(a, Add)] == ["ours.split"]
    assert [a for a in version if isinstance(a, Protocol)] == [after.protocol]
    again = append(log, split("more.split", **OURS))
    assert not any(isinstance(a, Protocol) for a in actions_of(tmp_path / "t", again.version))


def test_an_upgrade_keeps_the_features_that_a_table_has(tmp_path: Path) -> None:
    log = on_old_protocol(
        str(tmp_path / "t"), reader_features=["skippedFiles"], writer_features=["checkpoint"]
    )
    after = append(log, split("ours.split", **OURS))
    assert after.protocol.reader_features == ["parquetSplits", "skippedFiles"]
    assert after.protocol.writer_features == ["checkpoint", "parquetSplits"]


@pytest.mark.parametrize(("enabled", "interval"), [("true", "100"), ("true", "0"), ("false", "10")])
def test_an_upgrade_is_followed_by_a_state_that_says_so_to_releases_that_read_states_only(
    tmp_path: Path, enabled: str, interval: str
) -> None:
    on_old_protocol(str(tmp_path / "t"))
    log = a_log(str(tmp_path / "t"), {"checkpoint.enabled": enabled, "checkpoint.interval": interval})
    after = append(log, split("ours.split", **OURS))
    invalidate()
    read = a_log(str(tmp_path / "t")).snapshot()
    assert read.base.version == after.version
    assert read.base.state.protocol_version == 5
    assert read.protocol == after.protocol


@pytest.mark.parametrize("form", ["avro", "json"])
def test_states_and_checkpoints_carry_the_features(tmp_path: Path, form: str) -> None:
    log = a_table(str(tmp_path / "t"), {"state.format": form})
    append(log, split("ours.split", **OURS))
    log.checkpoint()
    log.truncate()
    invalidate()
    assert a_log(str(tmp_path / "t")).snapshot().protocol.reader_features == ["parquetSplits"]


def test_a_state_of_a_table_of_the_original_leaves_it_to_the_original(tmp_path: Path) -> None:
    log = on_old_protocol(str(tmp_path / "t"))
    append(log, "original.split")
    log.checkpoint()
    protocol = log.snapshot().protocol
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (
        4,
        4,
        None,
    )


def test_two_writers_that_both_upgrade_do_not_conflict(tmp_path: Path) -> None:
    log = on_old_protocol(str(tmp_path / "t"))
    base = log.snapshot()
    append(log, split("one.split", **OURS), base=base)
    after = append(log, split("two.split", **OURS), base=base)
    assert after.num_files == 2
    assert not any(isinstance(a, Protocol) for a in actions_of(tmp_path / "t", after.version))


def test_a_change_of_the_protocol_by_hand_still_conflicts_with_another_one(tmp_path: Path) -> None:
    log = on_old_protocol(str(tmp_path / "t"))
    base = log.snapshot()
    append(log, split("one.split", **OURS), base=base)
    with pytest.raises(CommitConflictError, match="protocol"):
        log.commit(Draft(operation="UPGRADE", protocol=Protocol(min_reader_version=4)), base)


def test_a_table_of_an_earlier_release_is_read_and_gains_the_feature_with_the_next_write(
    tmp_path: Path,
) -> None:
    it.write(tmp_path / "t", [{"id": 1}])
    rewritten(tmp_path / "t", 0, without_features)
    assert it.open(tmp_path / "t").count() == 1
    it.write(tmp_path / "t", [{"id": 2}], mode="append")
    table = it.open(tmp_path / "t")
    assert table.count() == 2
    assert table._snapshot.protocol.reader_features == ["parquetSplits"]


def test_a_restore_never_takes_a_feature_back(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{"id": 1}])
    rewritten(tmp_path / "t", 0, without_features)
    it.write(tmp_path / "t", [{"id": 2}], mode="overwrite")
    it.open(tmp_path / "t").restore(version=1)
    assert it.open(tmp_path / "t")._snapshot.protocol.reader_features == ["parquetSplits"]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"minReaderVersion": 5, "minWriterVersion": 5, "readerFeatures": ["rowTracking"]}, "reader features.*rowTracking"),
        ({"minReaderVersion": 6, "minWriterVersion": 5}, "reader version 6"),
        ({"minReaderVersion": 6, "minWriterVersion": 6, "readerFeatures": ["rowTracking"]}, "reader features.*rowTracking"),
    ],
)  # fmt: skip
def test_what_this_release_cannot_read_is_refused_by_name(
    tmp_path: Path, said: dict[str, Any], refused: str
) -> None:
    it.write(tmp_path / "t", [{"id": 1}])
    rewritten(tmp_path / "t", 0, lambda line: {"protocol": said} if "protocol" in line else line)
    with pytest.raises(ProtocolError, match=refused):
        it.open(tmp_path / "t")


def test_an_unknown_writer_feature_is_refused_for_writing_only(tmp_path: Path) -> None:
    for n in range(3):
        it.write(tmp_path / "t", [{"id": n}], mode="append")
    said = {"minReaderVersion": 5, "minWriterVersion": 5, "writerFeatures": ["rowTracking"]}
    rewritten(tmp_path / "t", 0, lambda line: {"protocol": said} if "protocol" in line else line)
    table = it.open(tmp_path / "t")
    assert table.count() == 3
    before = sorted(tmp_path.rglob("*"))
    for change in (
        lambda: it.write(tmp_path / "t", [{"id": 9}], mode="append"),
        table.merge,
        lambda: table.restore(version=1),
    ):
        with pytest.raises(ProtocolError, match=r"writer features.*rowTracking"):
            change()
    assert sorted(tmp_path.rglob("*")) == before, "a split was written for nothing"


def test_a_write_is_refused_before_its_rows_are_read(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{"id": 1}])
    said = {"minReaderVersion": 5, "minWriterVersion": 6}
    rewritten(tmp_path / "t", 0, lambda line: {"protocol": said} if "protocol" in line else line)

    def rows() -> Iterator[Any]:
        yield pytest.fail("a row was read")

    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(ProtocolError, match="writer version 6"):
        it.write(tmp_path / "t", pa.RecordBatchReader.from_batches(schema, rows()), mode="append")


def test_a_merge_that_a_write_starts_leaves_alone_a_table_that_it_may_not_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(3):
        it.write(tmp_path / "t", [{"id": n}], mode="append")
    said = {"minReaderVersion": 5, "minWriterVersion": 5, "writerFeatures": ["rowTracking"]}
    rewritten(tmp_path / "t", 0, lambda line: {"protocol": said} if "protocol" in line else line)
    before = sorted(tmp_path.rglob("*"))
    options = {"mergeOnWrite.enabled": True, "mergeOnWrite.minBatchesToTrigger": 1}
    on_write.merge_now(log_of(tmp_path / "t"), Options.parse(options), processors=1)
    assert "rowTracking" in caplog.text
    assert sorted(tmp_path.rglob("*")) == before


# --- companion tables of the original ---------------------------------------------------------------


def companion(table: Path) -> Path:
    appended(table, 2)
    configured = {"indextables.companion.enabled": "true"}

    def change(line: dict[str, Any]) -> dict[str, Any]:
        if "metaData" in line:
            line["metaData"]["configuration"] = {**line["metaData"]["configuration"], **configured}
        return line

    for file in (table / "_transaction_log").glob("*.json"):
        rewritten(table, int(file.stem), change)
    return table


@pytest.mark.parametrize("opening", [c.openings[0] for c in COMMANDS if c.table is TableArgument.REQUIRED])
def test_every_command_refuses_a_companion_table_of_the_original(opening: Any, tmp_path: Path) -> None:
    table = companion(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ProtocolError, match="companion table of IndexTables for Scala"):
        it.sql(
            command_uses.USES[opening].sql.format(table), options={"cache.disk.path": str(tmp_path / "cache")}
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_companion_table_of_the_original_is_neither_read_nor_written(tmp_path: Path) -> None:
    table = companion(tmp_path / "t")
    with pytest.raises(ProtocolError, match="companion table of IndexTables for Scala"):
        it.open(table)
    with pytest.raises(ProtocolError, match="companion table of IndexTables for Scala"):
        it.write(table, [{"id": 1}], mode="append")


def test_splits_of_a_companion_are_refused_without_the_flag_too(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, split("c.split", companion_source_files=["part-0.parquet"]))
    with pytest.raises(ProtocolError, match="companion table of IndexTables for Scala"):
        log.snapshot().files()
