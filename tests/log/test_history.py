"""Looking back: versions, times, what was done, and what changed since."""

import os
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import OptionError, TableNotFoundError, VersionNotFoundError
from indextables.log.format.names import Listing
from indextables.log.history import Changes
from indextables.log.segment import earliest, reachable
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.store import ObjectInfo
from tests.log_tables import generations as made
from tests.log_tables.build import (
    Clock,
    a_log,
    a_table,
    append,
    merge,
    overwrite,
    paths_of,
    remove,
    split,
)


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


@pytest.fixture
def log(tmp_path: Path) -> TransactionLog:
    """Versions 0 to 4: made, two appends, an overwrite, a merge; a second apart."""
    log = a_table(str(tmp_path / "t"), clock=Clock(now=1_700_000_000_000, step=1000))
    append(log, "a.split", "b.split", parameters={"mode": "append"}, user_metadata="first")
    append(log, "c.split")
    overwrite(log, "d.split", "e.split")
    merge(log, ["d.split", "e.split"], "f.split")
    return log


EXPECTED = {
    0: [],
    1: ["a.split", "b.split"],
    2: ["a.split", "b.split", "c.split"],
    3: ["d.split", "e.split"],
    4: ["f.split"],
}


# --- versions and times ----------------------------------------------------------------------------


@pytest.mark.parametrize("states", [(), (2,), (1, 3), (4,)])
def test_every_version_is_read_with_and_without_states(tmp_path: Path, states: Any) -> None:
    log = a_table(str(tmp_path / "t"))
    steps = [
        lambda: append(log, "a.split", "b.split"),
        lambda: append(log, "c.split"),
        lambda: overwrite(log, "d.split", "e.split"),
        lambda: merge(log, ["d.split", "e.split"], "f.split"),
    ]
    for version, step in enumerate(steps, start=1):
        step()
        if version in states:
            log.checkpoint(compact=False)
    for reader in (log, a_log(str(tmp_path / "t"), {"transaction.cache.enabled": "false"})):
        for version, expected in EXPECTED.items():
            snapshot = reader.snapshot(version=version)
            assert snapshot.version == version
            assert paths_of(snapshot) == expected


def test_a_version_that_never_was_names_the_range(log: TransactionLog) -> None:
    for version in (-1, 5, 99):
        with pytest.raises(VersionNotFoundError, match="versions 0 to 4 can be read") as missing:
            log.snapshot(version=version)
        assert (missing.value.earliest, missing.value.latest) == (0, 4)


def test_after_truncation_only_the_newest_version_is_reached(log: TransactionLog) -> None:
    log.truncate()
    assert paths_of(log.snapshot(version=4)) == ["f.split"]
    for version in range(4):
        with pytest.raises(VersionNotFoundError, match="versions 4 to 4 can be read"):
            log.snapshot(version=version)
    with pytest.raises(VersionNotFoundError, match="versions 4 to 4"):
        log.snapshot(timestamp=0)


def test_a_time_finds_the_newest_version_of_that_time(log: TransactionLog) -> None:
    times = {entry.version: entry.timestamp for entry in log.history()}
    for version in range(5):
        assert log.snapshot(timestamp=times[version]).version == version
        assert log.snapshot(timestamp=times[version] + 1).version == version
        if version:
            assert log.snapshot(timestamp=times[version] - 1).version == version - 1
    assert log.snapshot(timestamp=times[4] + 10**9).version == 4
    with pytest.raises(VersionNotFoundError, match=r"the version of \d{4}-\d\d-\d\d .* UTC of the table"):
        log.snapshot(timestamp=times[0] - 1)


@pytest.mark.parametrize("truncate", [False, True])
def test_times_are_those_of_commits_not_of_files(log: TransactionLog, tmp_path: Path, truncate: bool) -> None:
    """Files get new times when a table is copied; ours say their own."""
    times = {entry.version: entry.timestamp for entry in log.history()}
    log.checkpoint()
    if truncate:
        log.truncate()
    shutil.copytree(tmp_path / "t", tmp_path / "copy", copy_function=shutil.copy)
    copied = a_log(str(tmp_path / "copy"))
    assert copied.snapshot(timestamp=times[4]).version == 4
    if not truncate:
        assert copied.snapshot(timestamp=times[2]).version == 2


def test_versions_of_other_engines_have_the_times_of_their_files(tmp_path: Path) -> None:
    table = made.generation_b(tmp_path / "t", 3)
    for version in range(4):
        moment = 1_600_000_000 + version * 60
        os.utime(table.log / f"{version:020d}.json", (moment, moment))
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot(timestamp=1_600_000_119_999).version == 1
    assert log.snapshot(timestamp=1_600_000_120_000).version == 2


def test_states_without_version_files_have_their_own_times(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 3)
    log = a_log(str(tmp_path / "t"))
    os.utime(tmp_path / f"t/_transaction_log/{0:020d}.json", (1_600_000_000, 1_600_000_000))
    assert log.snapshot(timestamp=made.WHEN + 2_000).version == 2
    assert log.snapshot(timestamp=made.WHEN + 2_999).version == 2
    assert log.snapshot(timestamp=made.WHEN + 3_000).version == 3


def test_the_range_that_is_named_has_no_holes(tmp_path: Path) -> None:
    """States that outlive their version files can be read, but what lies between them cannot."""
    table = made.generation_a(tmp_path / "t", 6)
    shutil.rmtree(table.log / f"state-v{3:020d}")
    log = a_log(str(tmp_path / "t"))
    assert log.snapshot(version=2).num_files == 4
    with pytest.raises(VersionNotFoundError, match="versions 4 to 6 can be read"):
        log.snapshot(version=3)


# --- the door --------------------------------------------------------------------------------------


def test_a_table_is_opened_at_a_version_or_a_time(log: TransactionLog, tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert indextables.open(path).version == 4
    assert indextables.open(path, version=1).files()["path"].to_pylist() == ["a.split", "b.split"]
    for row in indextables.open(path).history().to_pylist():
        assert indextables.open(path, timestamp=row["timestamp"]).version == row["version"]
        as_text = row["timestamp"].isoformat()
        assert indextables.open(path, timestamp=as_text).version == row["version"]


@pytest.mark.parametrize("millisecond", range(0, 1000, 7))
def test_a_time_is_taken_to_the_millisecond(tmp_path: Path, millisecond: int) -> None:
    """Floating-point seconds lose some of them."""
    moment = datetime(2031, 7, 9, 11, 13, 17, millisecond * 1000, tzinfo=UTC)
    clock = Clock(now=int(moment.replace(microsecond=0).timestamp()) * 1000 + millisecond, step=0)
    a_table(f"memory://exact-{millisecond}/t", clock=clock)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert indextables.open(f"memory://exact-{millisecond}/t", timestamp=elsewhere).version == 0


def test_a_time_without_a_zone_is_utc(log: TransactionLog, tmp_path: Path) -> None:
    moment = datetime.fromtimestamp(log.history()[2].timestamp / 1000, UTC).replace(tzinfo=None)
    assert indextables.open(tmp_path / "t", timestamp=moment).version == 2
    assert indextables.open(tmp_path / "t", timestamp=moment.isoformat()).version == 2


def test_bad_times_and_both_at_once_are_refused(log: TransactionLog, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not both"):
        indextables.open(tmp_path / "t", version=1, timestamp="2024-01-01")
    with pytest.raises(OptionError, match="'yesterday' is not a date and time"):
        indextables.open(tmp_path / "t", timestamp="yesterday")


def test_where_there_is_no_table_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty/_transaction_log").mkdir(parents=True)
    for path in (tmp_path / "nowhere", tmp_path / "empty"):
        with pytest.raises(TableNotFoundError, match="no table at"):
            indextables.open(path)
        log = a_log(str(path))
        assert not log.exists()
        for question in (
            log.history,
            lambda log=log: log.changes(since=0),
            log.truncate,
            log.checkpoint,
            log.clean,
        ):
            with pytest.raises(TableNotFoundError):
                question()


def test_an_open_table_stays_at_its_version_until_it_is_refreshed(
    log: TransactionLog, tmp_path: Path
) -> None:
    table = indextables.open(tmp_path / "t")
    append(log, "g.split")
    assert (table.version, table.files().num_rows) == (4, 1)
    assert (table.refresh().version, table.refresh().files().num_rows) == (5, 2)
    assert repr(table) == f"Table('file://{tmp_path}/t', version=4)"


# --- history ---------------------------------------------------------------------------------------


def test_history_tells_newest_first_what_was_done(log: TransactionLog, tmp_path: Path) -> None:
    entries = log.history()
    assert [e.version for e in entries] == [4, 3, 2, 1, 0]
    assert [e.operation for e in entries] == ["MERGE SPLITS", "OVERWRITE", "WRITE", "WRITE", "CREATE TABLE"]
    assert entries[3].parameters == {"mode": "append"}
    assert entries[3].user_metadata == "first"
    assert entries[3].metrics["numAddedFiles"] == 2
    assert entries[1].metrics["numRemovedFiles"] == 3
    assert [e.version for e in log.history(2)] == [4, 3]
    table = indextables.open(tmp_path / "t").history(1)
    assert table.column_names == [
        "version", "timestamp", "operation", "parameters", "metrics", "engine", "user_metadata", "token",
    ]  # fmt: skip
    assert table["engine"].to_pylist() == ["test"]


def test_history_shows_what_versions_of_other_engines_did(tmp_path: Path) -> None:
    table = made.generation_b(tmp_path / "t", 1)
    table.version(2, made.remove("part-1.split"), made.add("x.split"))
    table.version(3, made.remove("x.split", dataChange=False), made.add("y.split", dataChange=False))
    table.version(4, made.remove("y.split"))
    table.version(5, {"mergeskip": {"path": "z", "skipTimestamp": 1, "reason": "r"}})
    operations = [e.operation for e in a_log(str(tmp_path / "t")).history()]
    assert operations == ["UNKNOWN", "DELETE", "MERGE SPLITS", "OVERWRITE", "WRITE", "CREATE TABLE"]


def test_history_goes_as_far_back_as_files_do(log: TransactionLog) -> None:
    log.truncate()
    assert [(e.version, e.operation) for e in log.history()] == [(4, "MERGE SPLITS")]


# --- changes ---------------------------------------------------------------------------------------


def changed(changes: Changes) -> tuple[list[str], list[str]]:
    return sorted(changes.added["path"].to_pylist()), sorted(changes.removed.to_pylist())


def test_changes_are_net(log: TransactionLog) -> None:
    assert changed(log.changes(since=0)) == (["f.split"], [])
    assert changed(log.changes(since=1)) == (["f.split"], ["a.split", "b.split"])
    assert changed(log.changes(since=2)) == (["f.split"], ["a.split", "b.split", "c.split"])
    assert changed(log.changes(since=3)) == (["f.split"], ["d.split", "e.split"])
    assert changed(log.changes(since=4)) == ([], [])
    assert changed(log.changes(since=-1)) == (["f.split"], [])
    assert (log.changes(since=2).since, log.changes(since=2).version) == (2, 4)


def test_changes_since_a_time(log: TransactionLog) -> None:
    times = {entry.version: entry.timestamp for entry in log.history()}
    assert changed(log.changes(since_timestamp=times[3])) == (["f.split"], ["d.split", "e.split"])
    assert changed(log.changes(since_timestamp=times[4] + 5)) == ([], [])
    assert log.changes(since_timestamp=times[3] - 1).since == 2
    with pytest.raises(VersionNotFoundError):
        log.changes(since_timestamp=times[0] - 1)


def test_changes_need_exactly_one_start(log: TransactionLog) -> None:
    for wrong in ({}, {"since": 1, "since_timestamp": 5}):
        with pytest.raises(OptionError, match="give one of them"):
            log.changes(**wrong)


def test_a_merge_shows_by_its_flag(log: TransactionLog) -> None:
    changes = log.changes(since=3)
    assert changes.added["dataChange"].to_pylist() == [False]
    append(log, "g.split")
    flags = dict(
        zip(*(log.changes(since=3).added[c].to_pylist() for c in ("path", "dataChange")), strict=True)
    )
    assert flags == {"f.split": False, "g.split": True}


def test_changes_after_compaction_read_the_versions_not_the_states(log: TransactionLog) -> None:
    before = changed(log.changes(since=2))
    log.checkpoint()
    invalidate()
    assert changed(log.changes(since=2)) == before


def test_changes_after_cleaning_compare_the_two_lists(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split", "b.split")
    append(log, "c.split")
    log.checkpoint()
    remove(log, "a.split")
    append(log, "d.split")
    log.checkpoint()
    append(log, "e.split")
    for version in (0, 1, 3):
        (tmp_path / f"t/_transaction_log/{version:020d}.json").unlink()
    invalidate()
    assert changed(log.changes(since=2)) == (["d.split", "e.split"], ["a.split"])
    assert changed(log.changes(since=4)) == (["e.split"], [])
    assert changed(log.changes(since=3)) == (["d.split", "e.split"], []), "its own file is not needed"
    for gone in (0, 1):
        with pytest.raises(VersionNotFoundError):
            log.changes(since=gone)


def test_changes_before_or_after_all_versions_are_refused(log: TransactionLog) -> None:
    for since in (-2, 5):
        with pytest.raises(VersionNotFoundError, match=f"version {since} "):
            log.changes(since=since)


def test_a_path_that_went_and_came_back_did_not_change(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    remove(log, "a.split")
    append(log, split("a.split", size=99))
    assert changed(log.changes(since=1)) == ([], [])
    assert changed(log.changes(since=2)) == (["a.split"], [])
    assert changed(log.changes(since=0)) == (["a.split"], [])
    remove(log, "a.split")
    assert changed(log.changes(since=1)) == ([], ["a.split"])
    assert changed(log.changes(since=2)) == ([], [])


def test_changes_of_a_state_only_table_compare_its_states(tmp_path: Path) -> None:
    made.generation_a(tmp_path / "t", 3)
    added, removed = changed(a_log(str(tmp_path / "t")).changes(since=1))
    assert added == ["part-2-1.split", "part-2-2.split", "part-3-1.split", "part-3-2.split"]
    assert removed == []


def test_a_hostile_version_number_is_not_counted_up_to() -> None:
    def info(path: str) -> ObjectInfo:
        return ObjectInfo(path, 1, 1)

    listing = Listing.of(
        [
            info("00000000000000000000.json"),
            info("00000000000000000001.json"),
            info("00000000000000000003.json"),
            info("state-v999999999999/_manifest.avro"),
            info("00000001000000000000.json"),
        ]
    )
    assert list(reachable(listing)) == [0, 1, 999999999999, 1000000000000]
    assert earliest(listing) == 999999999999


def test_names_that_are_no_numbers_of_64_bits_or_no_plain_digits_are_passed_over() -> None:
    names = [
        "99999999999999999999.json",
        chr(0x660) * 20 + ".json",
        "state-v99999999999999999999/_manifest.avro",
    ]
    assert Listing.of(ObjectInfo(name, 1, 1) for name in names) == Listing()
