"""Splits that cannot match are skipped by filter bundles before they are opened; answers stay the same."""

import logging
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import data_files, diagnostics, metrics
from indextables.errors import StoreError
from indextables.log.format.state_manifest import FilterBundle
from indextables.read import split_source, table_context
from indextables.read.table_context import SKIPPED
from indextables.store import Store

TEXT = {"indexing.typemap.t": "text", "mergeOnWrite.enabled": "false"}
SPLITS = 12
NO_BUNDLES = {"state.filterBundles.enabled": "false"}


def part(number: Any, count: int = 60) -> pa.Table:
    rng = random.Random(number)
    words = [f"only{number}", f"pair{number // 2}", "and", "the"]
    return pa.Table.from_pylist(
        [
            {
                "id": number * 1000 + i,
                "t": " ".join(rng.choices(words, k=4)),
                "s": f"{rng.getrandbits(32):08x} {number}",
                "p": f"p{number % 3}",
            }
            for i in range(count)
        ]
    )


def write(folder: Path, numbers: Any, **options: Any) -> None:
    for number in numbers:
        indextables.write(folder, part(number), options={**TEXT, **options})


def bundles(folder: Path) -> list[Any]:
    return sorted(Path(folder, "_transaction_log", "manifests").glob("filters-*.bin"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve splits in one bundle."""
    folder = tmp_path_factory.mktemp("bundles") / "t"
    write(folder, range(SPLITS))
    indextables.open(folder).checkpoint()
    assert bundles(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows without a bundle."""
    folder = tmp_path_factory.mktemp("plain") / "t"
    write(folder, range(SPLITS), **NO_BUNDLES)
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The paths of splits that are opened."""
    diagnostics.flush_searchers()
    diagnostics.invalidate_log_cache()
    paths = []
    read = split_source._read

    def noting(store: Any, ref: Any) -> Any:
        paths.append(ref.path)
        return read(store, ref)

    monkeypatch.setattr(split_source, "_read", noting)
    return paths


def value(number: int, place: int = 7) -> Any:
    return part(number)["s"][place].as_py()


# Conditions, and the most splits that are opened for them.
CONDITIONS = [
    ("t INDEXQUERY 'only3'", 1),
    ("t INDEXQUERY 'pair2'", 2),
    ("t INDEXQUERY 'absent'", 0),
    ("t INDEXQUERY 'only3 AND only4'", 0),
    ("t INDEXQUERY 'only3 OR only4'", 2),
    ("t INDEXQUERY '\"only3 only4\"'", 0),
    ("t INDEXQUERY 'the AND only5'", 1),
    ("t INDEXQUERY 'onl*'", SPLITS),
    ("NOT (t INDEXQUERY 'only3')", SPLITS),
    ("t INDEXQUERY 'only3' AND t INDEXQUERY 'only4'", 0),
    ("t INDEXQUERY 'only3' OR id = 5000", SPLITS),
    (f"s = '{value(4)}'", 1),
    (f"s IN ('{value(4)}', '{value(9)}', 'absent')", 2),
    (f"s IN ('{value(4)}', 'absent') OR t INDEXQUERY 'only3'", 2),
    (f"s = '{value(4)}' AND t INDEXQUERY 'only3'", 0),
    ("s = 'absent' AND p = 'p1'", 0),
    ("s > 'a'", SPLITS),
]


@pytest.mark.parametrize(("where", "most"), CONDITIONS)
def test_splits_without_the_terms_are_not_opened(
    folder: Path, opened: list[Any], where: str, most: int
) -> None:
    rows = indextables.open(folder).scan(where=where)
    # A filter lets few other terms pass; these are the same in every run.
    assert len(set(opened)) <= most + 1
    assert indextables.open(folder).count(where) == rows.num_rows


@pytest.mark.parametrize("where", [where for where, _ in CONDITIONS])
def test_answers_are_those_of_a_table_without_bundles(folder: Path, plain: Path, where: Any) -> None:
    assert not bundles(plain)
    expected, table = indextables.open(plain), indextables.open(folder)
    key = [("id", "ascending")]
    assert table.scan(where=where).sort_by(key).equals(expected.scan(where=where).sort_by(key))
    assert table.count(where) == expected.count(where)
    groups = table.aggregate({"n": "count(*)", "least": "min(id)"}, group_by=["p"], where=where)
    assert groups.sort_by("p").equals(
        expected.aggregate({"n": "count(*)", "least": "min(id)"}, group_by=["p"], where=where).sort_by("p")
    )


def test_searches_have_the_scores_of_a_table_without_bundles(
    folder: Path, plain: Path, opened: list[Any]
) -> None:
    expected = indextables.open(plain)
    for query in ("only3", "only3 OR only7", "pair2 AND the", "absent", "the"):
        mine = indextables.open(folder).search(query, field="t", scores=True, limit=50)
        assert mine.equals(expected.search(query, field="t", scores=True, limit=50))
    opened.clear()
    diagnostics.flush_searchers()
    indextables.open(folder).search("only8", field="t", scores=True, limit=5)
    assert len(set(opened)) <= 2


def test_splits_after_the_newest_state_are_found(tmp_path: Path, opened: list[Any]) -> None:
    folder = tmp_path / "t"
    write(folder, range(8))
    indextables.open(folder).checkpoint()
    write(folder, [8, 9], **{"checkpoint.enabled": "false"})
    table = indextables.open(folder)
    assert table.count("t INDEXQUERY 'only9'") > 0
    assert table.count("t INDEXQUERY 'only2'") > 0
    assert table.count("t INDEXQUERY 'absent'") == 0


def test_a_removed_split_is_gone_and_a_merged_one_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write(folder, range(8))
    table = indextables.open(folder)
    table.checkpoint()
    before = {where: table.count(where) for where, _ in CONDITIONS}
    table.merge(target_size=1 << 30)
    (bundle,) = _named(folder)
    assert bundle.splits == 1
    assert {where: indextables.open(folder).count(where) for where, _ in CONDITIONS} == before


def _named(folder: Path) -> Sequence[FilterBundle]:
    return indextables.open(folder)._log.snapshot().filter_bundles


def test_small_bundles_are_written_again_with_new_splits(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write(folder, range(25), **{"checkpoint.interval": "5"})
    (bundle,) = _named(folder)
    assert bundle.splits == 25
    assert len(bundles(folder)) > 1  # those of earlier states


def test_a_bundle_is_not_read_for_few_splits(
    folder: Path, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_context.BundledFilters, "_open", lambda *_: pytest.fail("it was read"))
    assert indextables.open(folder).count("id = 3007 AND t INDEXQUERY 'absent'") == 0


@pytest.mark.parametrize("damage", ["missing", "bit", "cut", "empty"])
def test_a_missing_or_damaged_bundle_costs_time_only(
    folder: Path, tmp_path: Path, opened: list[Any], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "t"
    shutil.copytree(folder, copy)
    (bundle,) = [copy / "_transaction_log" / each.path for each in _named(copy)]
    data = bundle.read_bytes()
    if damage == "missing":
        bundle.unlink()
    else:
        # The first page of every group is damaged, whichever the term needs.
        changed = bytes(byte ^ 1 for byte in data[4:]) if damage == "bit" else data[4 : len(data) // 2]
        bundle.write_bytes(b"" if damage == "empty" else data[:4] + changed)
    caplog.set_level(logging.WARNING)
    table = indextables.open(copy)
    assert table.count("t INDEXQUERY 'only3'") == indextables.open(folder).count("t INDEXQUERY 'only3'")
    assert len(set(opened)) >= SPLITS
    assert sum("is not used" in record.message for record in caplog.records) == 1
    # The next compacted state has a whole bundle again.
    write(copy, [20])
    table = indextables.open(copy)
    table.checkpoint()
    (named,) = _named(copy)
    assert named.splits == SPLITS + 1


def test_a_split_that_cannot_be_read_does_not_fail_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t"
    write(folder, range(5), **{"checkpoint.enabled": "false"})
    read = data_files.read_filters
    failed: list[Any] = []

    def failing(store: Any, path: Any, *arguments: Any) -> Any:
        if not failed or failed == [path]:
            failed[:] = [path]
            raise StoreError("no")
        return read(store, path, *arguments)

    monkeypatch.setattr(data_files, "read_filters", failing)
    monkeypatch.setattr(data_files, "_READERS", 1)
    indextables.open(folder).checkpoint()
    (named,) = _named(folder)
    assert named.splits == 4
    assert indextables.open(folder).count("t INDEXQUERY 'only3'") > 0


def test_a_commit_waits_for_the_filters_of_few_splits_and_a_checkpoint_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t"
    write(folder, range(9), **NO_BUNDLES)
    monkeypatch.setattr(data_files, "_MAX_AFTER_COMMIT", 3)
    # The commit after an upgrade compacts the state, whose splits are in no bundle.
    compacting = {"checkpoint.interval": "1", "state.compaction.maxManifests": "1"}
    write(folder, [9], **compacting)
    assert sum(bundle.splits for bundle in _named(folder)) == 3
    write(folder, [10], **compacting)
    assert sum(bundle.splits for bundle in _named(folder)) == 6
    write(folder, [11], **{"checkpoint.interval": "0"})
    indextables.open(folder).checkpoint()
    assert sum(bundle.splits for bundle in _named(folder)) == 12
    assert indextables.open(folder).count("t INDEXQUERY 'only3'") > 0


@pytest.mark.parametrize("before", [False, True])
def test_a_bundle_that_cannot_be_written_does_not_fail_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    folder = tmp_path / "t"
    write(folder, range(5), **{"checkpoint.interval": "4" if before else "0"})
    named = list(_named(folder))
    assert bool(named) is before
    create = Store.create

    def refusing(store: Any, path: Any, data: Any) -> bool:
        if "filters-" in path:
            raise StoreError("the disk is full")
        return create(store, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", refusing)
        write(folder, [5], **{"checkpoint.interval": "1"})
    version = indextables.open(folder).version
    assert (folder / "_transaction_log" / f"state-v{version:020d}" / "_manifest.avro").is_file()
    assert _named(folder) == named
    assert "the disk is full" in caplog.text
    assert indextables.open(folder).count("t INDEXQUERY 'only5'") > 0
    write(folder, [6])
    indextables.open(folder).checkpoint()
    assert sum(bundle.splits for bundle in _named(folder)) == 7


def test_columns_without_a_term_filter_skip_nothing(tmp_path: Path, opened: list[Any]) -> None:
    folder = tmp_path / "t"
    write(folder, range(6), **{"indexing.noTermFilterFields": "t"})
    indextables.open(folder).checkpoint()
    before = _skipped()
    assert indextables.open(folder).count("t INDEXQUERY 'only3'") > 0
    assert _skipped() == before
    assert len(set(opened)) == 6


def _skipped() -> float:
    figures = metrics.figures().get(SKIPPED)
    return figures.total if figures else 0


def test_large_filters_stay_in_the_split(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write(folder, range(5), **{"state.filterBundles.maxFilterSize": "1", "checkpoint.interval": "5"})
    (named,) = _named(folder)
    assert named.splits == 5
    assert named.size < 600
    assert indextables.open(folder).count("t INDEXQUERY 'only3'") > 0


def test_bundles_follow_retention(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write(folder, range(6), **{"checkpoint.interval": "2"})
    old = {path.name for path in bundles(folder)}
    assert len(old) > 1
    for path in bundles(folder):
        os.utime(path, (time.time() - 7200,) * 2)
    table = indextables.open(folder)
    table.truncate()
    (named,) = _named(folder)
    assert [path.name for path in bundles(folder)] == [named.path.rpartition("/")[2]]
    assert table.count("t INDEXQUERY 'only3'") > 0


def test_many_filters_make_several_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    monkeypatch.setattr(data_files, "_LARGE_BUNDLE", 300)
    monkeypatch.setattr(data_files, "_AT_ONCE", 2)
    folder = tmp_path / "t"
    write(folder, range(9), **{"checkpoint.enabled": "false"})
    indextables.open(folder).checkpoint()
    named = _named(folder)
    assert len(named) > 2
    assert sum(bundle.splits for bundle in named) == 9
    opened.clear()
    assert indextables.open(folder).count("t INDEXQUERY 'only3'") > 0
    assert len(set(opened)) <= 2
