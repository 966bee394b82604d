"""Dropping partitions: exactly those that the condition names, by typed values."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.errors import PredicateError
from indextables.log.snapshot import Snapshot
from indextables.maintain.metadata_changes import drop_partitions, restore
from tests.maintenance_tables import appended, ids, log_of, splits


def days(folder: Path) -> list[int]:
    return sorted(set(it.open(folder).scan(["day"])["day"].to_pylist()))


def test_ten_is_greater_than_nine(tmp_path: Path) -> None:
    appended(tmp_path, 12)
    dropped = drop_partitions(log_of(tmp_path), "day > 9")
    assert (dropped.partitions, dropped.splits, dropped.version) == (2, 2, 13)
    assert dropped.bytes > 0
    assert days(tmp_path) == list(range(10))


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("day IN (1, 2) OR day = 4", [0, 3]),
        ("NOT (day >= 2)", [2, 3, 4]),
        ("day BETWEEN 1 AND 3", [0, 4]),
        ("day <> 3", [3]),
        ("day IS NOT NULL", []),
    ],
)
def test_a_condition_is_decided_as_in_a_query(tmp_path: Path, where: str, left: list[int]) -> None:
    appended(tmp_path, 5)
    drop_partitions(log_of(tmp_path), where)
    assert days(tmp_path) == left


def test_texts_dates_and_nulls(tmp_path: Path) -> None:
    rows = [
        {"id": n, "city": city, "on": on}
        for n, (city, on) in enumerate(
            [
                ("Aix", dt.date(2024, 1, 9)),
                ("Bern/West", dt.date(2024, 1, 10)),
                (None, dt.date(2024, 1, 10)),
                ("Chur", None),
            ]
        )
    ]
    it.write(tmp_path, rows, partition_by=["city", "on"])
    assert drop_partitions(log_of(tmp_path), "city LIKE 'Bern%' AND on > DATE '2024-01-09'").splits == 1
    assert ids(tmp_path) == [0, 2, 3]
    assert drop_partitions(log_of(tmp_path), "city IS NULL").splits == 1
    assert ids(tmp_path) == [0, 3]


def test_nothing_matching_is_no_version(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    assert drop_partitions(log_of(tmp_path), "day = 77").version is None
    assert it.open(tmp_path).version == 2


def test_the_files_stay_until_a_purge_and_history_says_what_was_done(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    before = splits(tmp_path)
    drop_partitions(log_of(tmp_path), "day = 1")
    assert splits(tmp_path) == before
    newest = it.open(tmp_path).history(1).to_pylist()[0]
    assert (newest["operation"], dict(newest["parameters"])) == ("DROP PARTITIONS", {"where": "day = 1"})


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("id = 1", "id is not decided by a partition.*the partition columns only: day"),
        ("day = 1 OR message = 'x'", "message is not decided"),
        ("message INDEXQUERY 'x'", "message is not decided"),
        ("true", "names no partition column"),
        ("nix = 1", "no column nix"),
        ("day >", "ends too early|missing"),
    ],
)
def test_other_conditions_are_refused_and_change_nothing(tmp_path: Path, where: str, says: str) -> None:
    appended(tmp_path, 2)
    with pytest.raises(PredicateError, match=says):
        drop_partitions(log_of(tmp_path), where)
    assert it.open(tmp_path).version == 2


def test_a_table_without_partitions_has_none_to_drop(tmp_path: Path) -> None:
    appended(tmp_path, 1, partition_by=())
    with pytest.raises(PredicateError, match="is not partitioned"):
        drop_partitions(log_of(tmp_path), "day = 1")


def test_a_lost_race_asks_the_condition_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(tmp_path, 3)
    log = log_of(tmp_path)
    real = log.commit
    raced: list[Any] = []

    def commit(draft: Any, base: Any) -> Snapshot:
        if not raced:
            raced.append(drop_partitions(log_of(tmp_path), "day = 1"))
        return real(draft, base)

    monkeypatch.setattr(log, "commit", commit)
    dropped = drop_partitions(log, "day >= 1")
    assert (dropped.splits, days(tmp_path)) == (1, [0])


def test_splits_that_a_restore_brings_into_the_partition_are_dropped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore keeps the split of day 0, and brings back that of day 1, which the drop has not seen."""
    appended(tmp_path, 2)
    drop_partitions(log_of(tmp_path), "day = 1")
    log = log_of(tmp_path)
    real = log.commit
    raced: list[Any] = []

    def commit(draft: Any, base: Any) -> Snapshot:
        if not raced:
            raced.append(restore(log_of(tmp_path), version=2))
        return real(draft, base)

    monkeypatch.setattr(log, "commit", commit)
    dropped = drop_partitions(log, "day < 5")
    assert raced[0].splits_restored == 1
    assert (dropped.splits, days(tmp_path)) == (2, [])
