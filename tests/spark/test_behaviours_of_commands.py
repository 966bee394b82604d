"""Behaviours that are easily got wrong: what commands do to a table, seen through queries."""

import datetime as dt
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import Row

import indextables
from tests.spark.small_tables import SmallTables


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> SmallTables:
    return SmallTables(spark, tmp_path)


# Version files that a test can read and change.
PLAIN_LOG: dict[str, Any] = {"checkpoint.enabled": "false", "transaction.compression.enabled": "false"}


def written(desk: SmallTables, parts: list[int | None], *, times: int = 1, **options: object) -> str:
    """A table with two rows for each part, appended some times, so that each part has as many splits."""
    name = f"t_{abs(hash(desk.folder))}"
    for step in range(times):
        ids = [step * 100 + number for number in range(2 * len(parts))]
        rows = pa.table({"id": ids, "part": pa.array([part for part in parts for _ in (0, 1)], pa.int32())})
        indextables.write(desk.path(name), rows, partition_by=["part"], options=options)
    return desk.view(name)


def only(desk: SmallTables, sql: str) -> Row:
    (row,) = desk.spark.sql(sql).collect()
    return row


def live(desk: SmallTables, name: str) -> list[str]:
    return sorted(indextables.open(desk.path(name)).files()["path"].to_pylist())


def at_once(desk: SmallTables, *commands: str) -> list[str]:
    """Run commands at the same time; those that succeeded."""
    done: list[str] = []

    def guarded(command: str) -> None:
        with suppress(PySparkException):
            desk.spark.sql(command).collect()
            done.append(command)

    threads = [threading.Thread(target=guarded, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


# --- merges that meet others (section 8, item 11) ---------------------------------------------------------


def test_two_merges_at_once_duplicate_no_row(desk: SmallTables) -> None:
    name = written(desk, [1, 2], times=4)
    expected = desk.ask(f"SELECT id FROM {name}")
    merge = f"MERGE SPLITS '{desk.path(name)}' TARGET SIZE 100M"
    assert at_once(desk, merge, merge)
    assert desk.ask(f"SELECT id FROM {desk.view(name)}") == expected


def test_a_merge_brings_no_dropped_partition_back(desk: SmallTables) -> None:
    name = written(desk, [1, 2], times=4)
    path = desk.path(name)
    drop = f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE part = 1"
    done = at_once(desk, f"MERGE SPLITS '{path}' TARGET SIZE 100M", drop)
    found = desk.ask(f"SELECT part, count(*) FROM {desk.view(name)} GROUP BY part")
    assert found == ([(2, 8)] if drop in done else [(1, 8), (2, 8)])


# --- 16, 17: partitions -----------------------------------------------------------------------------------


def days_of(desk: SmallTables, text: str) -> list[dt.date]:
    """The day that a table reads whose log says it so."""
    name = "days"
    rows = pa.table({"id": [1], "day": pa.array([dt.date(2026, 3, 22)])})
    indextables.write(desk.path(name), rows, partition_by=["day"], options=PLAIN_LOG)
    (version,) = [
        file
        for file in (Path(desk.path(name)) / "_transaction_log").glob("0*.json")
        if "2026-03-22" in file.read_text()
    ]
    lines = []
    for line in version.read_text().splitlines():
        action = json.loads(line)
        if "add" in action:
            action["add"]["partitionValues"]["day"] = text
        if "checksum" not in action:
            lines.append(json.dumps(action))
    version.write_text("\n".join(lines) + "\n")
    return desk.ask(f"SELECT day FROM {desk.view(name)}")


@pytest.mark.parametrize("text", ["2026-03-22", "20534"])
def test_a_date_partition_is_an_iso_date_or_a_count_of_days(desk: SmallTables, text: str) -> None:
    assert days_of(desk, text) == [dt.date(2026, 3, 22)]


def test_a_date_partition_that_is_neither_is_refused(desk: SmallTables) -> None:
    with pytest.raises(PySparkException, match="20260322"):
        days_of(desk, "20260322")


def test_a_command_compares_numbers_of_partitions_as_numbers(desk: SmallTables) -> None:
    name = written(desk, [9, 10, 11, None])
    assert (
        only(desk, f"DROP INDEXTABLES PARTITIONS FROM '{desk.path(name)}' WHERE part > 9").partitions_dropped
        == 2
    )
    assert desk.ask(f"SELECT DISTINCT part FROM {desk.view(name)}") == [9, None]


# --- 28: purge ----------------------------------------------------------------------------------------------


def test_a_purge_keeps_what_a_retained_version_names_however_often_it_runs(desk: SmallTables) -> None:
    name = written(desk, [1, 2], times=2)
    path = desk.path(name)
    before = live(desk, name)
    version = indextables.open(path).version
    only(desk, f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE part = 1")
    for _ in range(2):
        assert only(desk, f"PURGE INDEXTABLE '{path}'").metrics.orphaned_files_deleted == 0
    assert all((Path(path) / file).exists() for file in before)
    assert desk.ask(f"SELECT count(*) FROM {desk.view(name, versionAsOf=str(version))}") == [8]
    assert desk.ask(f"SELECT count(*) FROM {desk.view(name)}") == [4]


# --- 29: merge ----------------------------------------------------------------------------------------------


def test_a_merge_never_crosses_partitions_and_keeps_all_rows(desk: SmallTables) -> None:
    name = written(desk, [1, 2, None], times=3)
    expected = desk.ask(f"SELECT id, part FROM {name}")
    assert only(desk, f"MERGE SPLITS '{desk.path(name)}' TARGET SIZE 100M").metrics.merged_files == 9
    assert len(live(desk, name)) == 3
    assert desk.ask(f"SELECT id, part FROM {desk.view(name)}") == expected
    assert desk.ask(f"SELECT count(*) FROM {name} WHERE part IS NULL") == [6]


def test_a_merge_leaves_a_damaged_split_live(desk: SmallTables) -> None:
    name = written(desk, [1], times=3)
    damaged = live(desk, name)[0]
    (Path(desk.path(name)) / damaged).write_bytes(b"damaged")
    only(desk, f"MERGE SPLITS '{desk.path(name)}' TARGET SIZE 100M")
    assert damaged in live(desk, name)
    assert len(live(desk, name)) == 2
    assert damaged.rpartition("/")[2] in desk.failure(f"SELECT * FROM {desk.view(name)}")


# --- 30: protocol, truncation, repair -------------------------------------------------------------------------


def test_a_newer_protocol_is_refused_by_its_number(desk: SmallTables) -> None:
    name = written(desk, [1], **PLAIN_LOG)
    log = Path(desk.path(name)) / "_transaction_log"
    newest = max(int(file.stem) for file in log.glob("0*.json"))
    protocol = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}
    (log / f"{newest + 1:020d}.json").write_text(json.dumps(protocol) + "\n")
    with pytest.raises(PySparkException, match="99"):
        desk.spark.read.format("indextables").load(desk.path(name)).collect()


def test_a_dry_truncation_agrees_with_the_real_one_and_changes_nothing(desk: SmallTables) -> None:
    name = written(desk, [1], times=4)
    sql = f"TRUNCATE INDEXTABLES TIME TRAVEL '{desk.path(name)}'"
    log = Path(desk.path(name)) / "_transaction_log"
    before = sorted(file.name for file in log.rglob("*"))
    dry = only(desk, sql + " DRY RUN")
    assert sorted(file.name for file in log.rglob("*")) == before
    real = only(desk, sql)
    assert (dry.versions_deleted, dry.files_preserved) == (real.versions_deleted, real.files_preserved)
    assert real.versions_deleted > 0
    assert desk.ask(f"SELECT count(*) FROM {desk.view(name)}") == [8]


def test_a_repair_leaves_out_what_is_missing_and_what_was_overwritten(desk: SmallTables) -> None:
    name = written(desk, [1, 2], times=2)
    path = Path(desk.path(name))
    rows = pa.table({"id": [7, 8], "part": pa.array([1, 2], pa.int32())})
    indextables.write(path, rows, mode="overwrite", partition_by=["part"])
    lost = next(file for file in live(desk, name) if "part=2" in file)
    (path / lost).unlink()
    log = path / "_transaction_log"
    done = only(desk, f"REPAIR INDEXFILES TRANSACTION LOG '{log}' AT LOCATION '{path}_new/_transaction_log'")
    assert (done.valid_splits, done.missing_splits) == (1, 1)
    log.rename(path / "old_log")
    Path(f"{path}_new/_transaction_log").rename(log)
    assert desk.ask(f"SELECT id FROM {desk.view(name)}") == [7]
