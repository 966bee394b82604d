"""Tables of IndexTables for Scala become tables of this release, without a change of rows or answers."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import indextables as it
from indextables.errors import PredicateError, StoreError
from indextables.log.snapshot_cache import invalidate
from indextables.maintain import convert as converting
from indextables.maintain import merge as merging
from indextables.maintain.merge import MergeTaskResult
from indextables.split.footer import PARQUET_TAG
from indextables.table import Table

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
VERSIONS = json.loads((GOLDEN / "expected.json").read_text())
LAST = max(map(int, VERSIONS))
QUERY = "message INDEXQUERY 'timeout'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with three splits that another writer wrote."""
    shutil.copytree(GOLDEN / "quickwit-bundles", tmp_path / "t")
    invalidate()
    return tmp_path / "t"


def tags(table: Table) -> list[Any]:
    return [PARQUET_TAG in (each or ()) for each in table.files()["splitTags"].to_pylist()]


def check_versions(path: Path) -> None:
    """All versions that were there before a conversion have their rows and answers."""
    for number, expected in VERSIONS.items():
        table = it.open(path, version=int(number))
        assert sorted(table.scan(["id"])["id"].to_pylist()) == expected["ids"]
        assert {where: table.count(where) for where in expected["counts"]} == expected["counts"]


def test_every_split_is_converted_and_every_version_stays(path: Path) -> None:
    before = it.open(path)
    rows = before.scan().sort_by("id")
    statistics = {each.column: (each.least, each.greatest) for each in before.data_skipping()}
    steps = []
    done = before.convert(progress=lambda finished, total: steps.append((finished, total)))
    assert (done.converted, done.remainder, done.rows) == (3, 0, rows.num_rows)
    assert steps == [(1, 3), (2, 3), (3, 3)]
    after = it.open(path)
    assert after.scan().sort_by("id").equals(rows)
    assert tags(after) == [True, True, True]
    converted = {each.column: (each.least, each.greatest) for each in after.data_skipping()}
    assert {name: converted[name] for name in statistics if statistics[name][0] is not None} == {
        name: bounds for name, bounds in statistics.items() if bounds[0] is not None
    }
    assert after.count(QUERY) == VERSIONS[str(LAST)]["counts"][QUERY]
    check_versions(path)
    assert [e for e in after.history()["operation"].to_pylist() if e == "CONVERT"]


def test_the_indexing_stays_for_later_writes(path: Path) -> None:
    columns = it.open(path).text_columns
    assert columns
    it.open(path).convert()
    it.write(path, it.open(path).scan())
    assert it.open(path).text_columns == columns
    assert it.open(path).count(QUERY) == 2 * VERSIONS[str(LAST)]["counts"][QUERY]


def test_a_table_without_such_splits_is_left_alone(tmp_path: Path) -> None:
    table = it.write(tmp_path / "t", [{"id": 1}])
    assert table.convert().converted == 0
    assert table.refresh().version == table.version
    row = it.sql(f"CONVERT INDEXTABLES '{tmp_path}/t'").to_pylist()[0]
    assert (row["status"], row["splits_converted"]) == ("no_action", 0)


def test_a_conversion_continues_where_it_was_interrupted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting, "_PASS_SPLITS", 1)
    convert_one, calls = converting.run, []

    def interrupted(task: Any, store: Any, options: Any) -> MergeTaskResult:
        calls.append(task.sources[0].path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return convert_one(task, store, options)

    monkeypatch.setattr(converting, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        it.open(path).convert()
    assert tags(it.open(path)).count(True) == 1
    check_versions(path)
    monkeypatch.setattr(converting, "run", convert_one)
    done = it.open(path).convert()
    assert (done.converted, done.remainder) == (2, 0)
    check_versions(path)


def test_a_split_with_another_number_of_rows_than_the_log_says_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_one = merging.run

    def shorter(task: Any, store: Any, options: Any) -> MergeTaskResult:
        result = convert_one(task, store, options)
        if task.sources[0].path == "part-2.split":
            add = msgspec.structs.replace(result.add, num_records=result.add.num_records - 1)
            return dataclasses.replace(result, add=add)
        return result

    monkeypatch.setattr(merging, "run", shorter)
    done = it.open(path).convert()
    assert (done.converted, done.remainder) == (2, 1)
    assert "rows were read, but its entry has" in done.problems[0][1]
    assert sorted(p.name for p in path.glob("*.split") if p.name.startswith("part-")) == [
        "part-1.split",
        "part-2.split",
        "part-3.split",
    ]
    assert len(list(path.glob("*.split"))) == 5, "the file of the rejected split is deleted"
    check_versions(path)


def test_a_damaged_split_stays_and_others_are_converted(path: Path) -> None:
    (path / "part-1.split").write_bytes(b"damaged")
    row = it.sql(f"CONVERT INDEXTABLES '{path}'").to_pylist()[0]
    assert (row["status"], row["splits_converted"], row["splits_left"]) == ("partial_success", 2, 1)
    assert "part-1.split" in row["message"]


def test_a_store_that_fails_ends_the_conversion_and_not_the_table(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(task: Any, store: Any, options: Any) -> None:
        del task, store, options
        raise StoreError("the store is away")

    monkeypatch.setattr(converting, "run", fails)
    with pytest.raises(StoreError, match="the store is away"):
        it.open(path).convert()
    check_versions(path)


def test_sql_converts_and_a_dry_run_does_not(path: Path) -> None:
    version = it.open(path).version
    planned = it.open(path).convert(dry_run=True)
    assert (planned.converted, planned.remainder) == (0, 3)
    row = it.sql(f"CONVERT INDEXTABLES '{path}' DRY RUN").to_pylist()[0]
    assert (row["status"], row["splits_left"], row["splits_converted"]) == ("dry_run", 3, 0)
    assert it.open(path).version == version
    row = it.sql(f"CONVERT INDEXTABLES '{path}'").to_pylist()[0]
    assert (row["status"], row["splits_converted"], row["splits_left"]) == ("success", 3, 0)
    assert row["rows_converted"] == len(VERSIONS[str(LAST)]["ids"])
    check_versions(path)


def test_a_condition_names_partition_columns_only(path: Path) -> None:
    with pytest.raises(PredicateError):
        it.open(path).convert(where="id = 1")
