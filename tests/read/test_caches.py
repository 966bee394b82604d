"""Caches of reading: seen and emptied."""

import importlib
import multiprocessing
import os
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables import diagnostics, read
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import parse_condition
from indextables.read import Aggregate, Function, table_context
from indextables.read.spec import aggregate_spec
from indextables.read.table_context import plan_splits
from indextables.split.index.cache import index_cache
from indextables.store import Store, open_store
from tests.read.read_tables import Opened, opened

TEXT = {"indexing.typemap.t": "text"}


@pytest.fixture
def table(tmp_path: Path) -> Opened:
    for n in range(4):
        indextables.write(tmp_path / "t", [{"id": n, "k": "ab"[n % 2], "t": f"word{n} all"}], options=TEXT)
    return opened(tmp_path / "t", [], tmp_path / "cache")


def count_matches(table: Opened, text: str) -> int:
    return table.count(parse_condition(f"t INDEXQUERY '{text}'", table.snapshot.schema))


def test_the_first_search_fills_the_disk_cache_and_the_next_needs_no_copy(table: Opened) -> None:
    diagnostics.flush_disk_cache(options=table.options)
    assert count_matches(table, "all") == 4
    before = index_cache(table.options).stats()
    assert (before.entries, before.misses) == (4, 4)
    diagnostics.flush_searchers()
    assert count_matches(table, "all") == 4
    after = index_cache(table.options).stats()
    assert (after.misses, after.hits) == (4, before.hits + 4)


def _recorded(name: str, method: Any, calls: list[Any]) -> Callable[..., Any]:
    def call(store: Any, *args: Any, **more: Any) -> Any:
        calls.append((name, *args))
        return method(store, *args, **more)

    return call


def test_a_second_count_only_looks_for_newer_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**TEXT, "cache.disk.path": str(tmp_path / "cache")}
    for n in range(12):
        indextables.write(tmp_path / "t", [{"id": n, "t": f"word{n} all"}], options=options)
    invalidate()
    where = "t INDEXQUERY 'all' AND id >= 2"
    assert indextables.open(tmp_path / "t", options=options).count(where) == 10
    calls: list[Any] = []
    for name in ("get", "get_range", "get_ranges", "head", "exists", "list"):
        monkeypatch.setattr(Store, name, _recorded(name, getattr(Store, name), calls))
    assert indextables.open(tmp_path / "t", options=options).count(where) == 10
    assert {name for name, *_ in calls} == {"list"}
    assert len(calls) == 2, "of versions and of states"


def test_flushing_empties_the_disk_cache_and_the_next_search_still_answers(table: Opened) -> None:
    assert count_matches(table, "all") == 4
    assert index_cache(table.options).stats().entries == 4
    diagnostics.flush_disk_cache(options=table.options)
    assert index_cache(table.options).stats().entries == 0
    assert count_matches(table, "word2") == 1


def _count_in_child(folder: Any, cache: Any, answer: Any) -> None:
    table = opened(folder, [], cache)
    answer.put(count_matches(table, "all"))


def _read_and_fork(folder: Any, cache: Any, answer: Any) -> None:
    table = opened(folder, [], cache)
    assert count_matches(table, "all") == 4
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=_count_in_child, args=(folder, cache, answer))
    child.start()
    child.join(timeout=60)
    if child.exitcode is None:
        child.kill()
    os._exit(0 if child.exitcode == 0 else 1)


def test_a_forked_child_reads_with_handles_of_its_own(table: Opened, tmp_path: Path) -> None:
    # The process that forks is a new one: this one has threads of other tests, whose locks a child would inherit.
    spawn = multiprocessing.get_context("spawn")
    answer = spawn.Queue()
    parent = spawn.Process(target=_read_and_fork, args=(tmp_path / "t", tmp_path / "cache", answer))
    parent.start()
    assert answer.get(timeout=120) == 4
    parent.join(timeout=60)
    assert parent.exitcode == 0


def test_a_small_cache_still_answers(table: Opened) -> None:
    tight = Options.parse({"cache.disk.maxSize": "1K", "cache.maxSize": "1K"}).over(table.options)
    where = parse_condition("t INDEXQUERY 'all'", table.snapshot.schema)
    assert read.count(table.snapshot, table.store, tight, where=where) == 4
    assert read.scan(table.snapshot, table.store, tight, where=where).read_all().num_rows == 4


def test_an_aggregation_is_pickled_without_secrets_and_its_parts_can_be_added(table: Opened) -> None:
    options = Options.parse({"aws.secretKey": "hush-hush"}).over(table.options)
    plan = plan_splits(table.snapshot, None, options)
    context, splits = plan.table, plan.splits
    sent = pickle.dumps((aggregate_spec(context, [Aggregate(Function.SUM, "id")], ["k"], None), splits))
    assert b"hush-hush" not in sent
    spec, refs = pickle.loads(sent)
    totals = Counter[str]()
    for part in (refs[:3], refs[3:]):
        for batch in read.execute(spec, part, table.store):
            totals.update({row["k"]: row["sum(id)"] for row in batch.to_pylist()})
    assert totals == {"a": 2, "b": 4}


CONDITIONS = (
    None,
    "id >= 3",
    "k = 'a'",
    "k = 'b' AND id < 5",
    "id > 100",
    "t INDEXQUERY 'all'",
    "t INDEXQUERY 'word5'",
)


@pytest.mark.parametrize("limit", [0, 5_000])
def test_a_plan_of_cached_splits_equals_one_that_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    for n in range(9):
        rows = [{"id": n, "k": "ab"[n % 2], "t": f"word{n} all"}]
        # Two mappings: later splits have a further column.
        more = [{**row, "m": n} for row in rows] if n > 5 else rows
        options = {**TEXT, "mergeSchema": "true"}
        indextables.write(tmp_path / "t", more, partition_by=["k"], options=options)
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    table.snapshot.files()
    off = Options.parse({"transaction.cache.enabled": "false"})
    anew = TransactionLog(table.store, off, engine="test").snapshot()
    monkeypatch.setattr(table_context, "_MAX_PLANNED", limit)
    for text in CONDITIONS * 2:
        where = None if text is None else parse_condition(text, table.snapshot.schema)
        expected = plan_splits(anew, where, table.options)
        for files in (None, table.snapshot.files(where)):
            plan = plan_splits(table.snapshot, where, table.options, files)
            assert plan.files == expected.files, text
            assert len(plan.splits) == plan.files.num_rows
            for ref, other in zip(plan.splits, expected.splits, strict=True):
                assert replace(ref, mapping=0) == replace(other, mapping=0), text
                assert plan.table.mappings[ref.mapping] == expected.table.mappings[other.mapping]


def test_a_plan_follows_commits_and_other_options(tmp_path: Path) -> None:
    options = {**TEXT, "cache.disk.path": str(tmp_path / "cache")}
    for n in range(5):
        indextables.write(tmp_path / "t", [{"id": n, "t": "word all"}], options=options)
        table = indextables.open(tmp_path / "t", options=options)
        assert table.count("t INDEXQUERY 'all'") == n + 1
        assert indextables.open(tmp_path / "t").count("t INDEXQUERY 'word'") == n + 1


@pytest.mark.parametrize("rows", [1, 3, 1 << 18])
def test_counts_and_groups_are_the_same_however_splits_are_divided_among_threads(
    table: Opened, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(importlib.import_module("indextables.read.execute"), "_ROWS_PER_THREAD", rows)
    monkeypatch.setattr(importlib.import_module("indextables.read.execute"), "_MERGED_ROWS", rows)
    for _ in range(2):  # closed, and open
        assert count_matches(table, "all") == 4
        groups = read.aggregate(
            table.snapshot, table.store, table.options, aggregates=[Aggregate(Function.COUNT)], group_by=["k"]
        )
        assert sorted(map(tuple, (row.values() for row in groups.to_pylist()))) == [("a", 2), ("b", 2)]


def test_a_table_with_one_mapping_is_described_without_its_list_of_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_manifests() -> Any:
        invalidate()
        paths = []
        log = TransactionLog(open_store(str(tmp_path / "t")), engine="test")
        get = Store.get
        monkeypatch.setattr(Store, "get", lambda store, path: paths.append(path) or get(store, path))
        context = table_context.table_context(log.snapshot(), Options())
        monkeypatch.setattr(Store, "get", get)
        return context, any("manifests/" in path for path in paths)

    for n in range(3):
        indextables.write(tmp_path / "t", [{"id": n, "t": "word"}], options=TEXT)
    indextables.open(tmp_path / "t").checkpoint()
    before, read_any = read_manifests()
    assert not read_any
    assert before.text_columns == ("t",)
    indextables.write(tmp_path / "t", [{"id": 9, "t": "word"}], options=TEXT)
    after, read_any = read_manifests()
    assert after.mappings == before.mappings
    assert not read_any, "the split after the state has the same mapping"
    indextables.write(tmp_path / "t", [{"id": 9, "t": "word", "m": 1}], options={"mergeSchema": "true"})
    other, read_any = read_manifests()
    assert read_any
    assert len(other.mappings) == 2
    assert other.text_columns == ("t",)


def test_references_are_made_for_the_splits_that_are_left_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(8):
        indextables.write(tmp_path / "t", [{"id": n, "t": f"word{n} all"}], options=TEXT)
    indextables.open(tmp_path / "t").checkpoint()
    monkeypatch.setattr(table_context, "_MAX_PLANNED", 0)
    made = []
    refs = table_context._refs
    monkeypatch.setattr(
        table_context, "_refs", lambda files, *more: made.append(len(files)) or refs(files, *more)
    )
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    where = parse_condition("t INDEXQUERY 'word3'", table.snapshot.schema)
    plan = plan_splits(table.snapshot, where, table.options, by_terms=False)
    assert not made
    assert len(plan.without_terms(where).splits) == 1
    assert made == [1]
    assert count_matches(table, "word5") == 1
    assert made == [1, 1]
