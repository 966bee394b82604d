"""Splits that are read together: their filter plans are shared, and their rows are decoded together."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import read
from indextables.errors import SplitError
from indextables.options import Options
from indextables.predicate import parse_condition
from indextables.read.execute import execute
from indextables.read.spec import ScanSpec
from indextables.read.split_source import close_splits
from indextables.read.table_context import plan_splits
from indextables.split.parquet import reader as row_reader
from indextables.split.query import filter_pushdown
from indextables.store import Store
from tests.read.read_tables import Opened, opened

TEXT = {"indexing.typemap.t": "text"}
LONG = "x" * 300
# Splits that differ in what a compiled condition depends on: nulls, dropped terms, columns, tokenizers.
PARTS: tuple[list[dict[str, Any]], ...] = (
    [{"id": 1, "t": "red fish", "s": "a", "n": 1}, {"id": 2, "t": "blue fish", "s": "b", "n": 2}],
    [{"id": 3, "t": "red bird", "s": None, "n": None}, {"id": 4, "t": None, "s": "a", "n": 4}],
    [{"id": 5, "t": None, "s": None, "n": None}, {"id": 6, "t": None, "s": None, "n": None}],
    [{"id": 7, "t": f"red {LONG}", "s": LONG * 200, "n": 7}, {"id": 8, "t": "blue", "s": "a", "n": 8}],
    [{"id": 9, "t": "red fish", "s": "c", "n": 9}, {"id": 10, "t": "redder fish", "s": "a", "n": 1}],
)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("t", pa.string()), ("s", pa.string()), ("n", pa.int32()), ("day", pa.int32())]
)
CONDITIONS = (
    "t INDEXQUERY 'red'",
    "t INDEXQUERY '\"red fish\"'",
    "t INDEXQUERY 'red*'",
    "t INDEXQUERY '\"red fi\"*'",
    "NOT (t INDEXQUERY 'fish')",
    "s = 'a'",
    "s <> 'a'",
    "s IN ('a', 'c')",
    "s IS NULL OR n > 7",
    "n = 1 AND t INDEXQUERY 'fish'",
    "t LIKE '%fish'",
    "late = 5",
    "late IS NULL AND s = 'a'",
    "day = 1 AND s = 'a'",
    "day = 2 OR t INDEXQUERY 'blue'",
)


@pytest.fixture(scope="module", params=[(), ("day",)], ids=["whole", "partitioned"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("t") / "t"
    for number, part in enumerate(PARTS):
        late = [] if number < 3 else [5] * len(part)
        rows = pa.Table.from_pylist([row | {"day": number % 3} for row in part], SCHEMA)
        rows = rows.append_column("late", pa.array(late, pa.int64())) if late else rows
        indextables.write(folder, rows, options={**TEXT, "mergeSchema": "true"}, partition_by=request.param)
    return opened(folder, [], tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("text", CONDITIONS)
def test_splits_read_together_have_the_rows_that_they_have_alone(table: Opened, text: str) -> None:
    where = parse_condition(text, table.snapshot.schema)
    together = read.scan(table.snapshot, table.store, table.options, where=where).read_all()
    splits = plan_splits(table.snapshot, where, table.options).splits
    alone = []
    for ref in splits:
        context = plan_splits(table.snapshot, where, table.options).table
        spec = ScanSpec(context, tuple(context.schema.names), where)
        alone += [row for batch in execute(spec, (ref,), table.store) for row in batch.to_pylist()]
    assert sorted(together.to_pylist(), key=str) == sorted(alone, key=str)
    assert read.count(table.snapshot, table.store, table.options, where=where) == len(alone)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each condition that is compiled for a split."""
    calls: list[int] = []
    real = filter_pushdown.plan_filter
    monkeypatch.setattr(
        filter_pushdown, "plan_filter", lambda *arguments: calls.append(1) or real(*arguments)
    )
    return calls


def test_a_condition_is_compiled_once_for_splits_that_are_alike(tmp_path: Path, compiled: list[int]) -> None:
    for number in range(6):
        indextables.write(tmp_path / "t", [{"id": number, "t": f"word{number} all"}], options=TEXT)
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    where = parse_condition("t INDEXQUERY 'all' AND id < 4", table.snapshot.schema)
    assert read.count(table.snapshot, table.store, replace_parallelism(table.options), where=where) == 4
    assert len(compiled) == 1


def test_partitions_with_the_same_value_share_a_compiled_condition(
    tmp_path: Path, compiled: list[int]
) -> None:
    for number in range(6):
        rows = [{"day": number % 2, "t": f"word{number} all"}]
        indextables.write(tmp_path / "t", rows, options=TEXT, partition_by=["day"])
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    where = parse_condition("t INDEXQUERY 'all' AND (day = 0 OR t = 'word1 all')", table.snapshot.schema)
    assert read.count(table.snapshot, table.store, replace_parallelism(table.options), where=where) == 4
    assert len(compiled) == 2


def test_rows_of_many_splits_are_decoded_together_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        rows = [{"id": 100 * number + i, "t": "all" if i % 50 == 7 else f"w{i}"} for i in range(100)]
        indextables.write(tmp_path / "t", rows, options=TEXT)
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    where = parse_condition("t INDEXQUERY 'all'", table.snapshot.schema)
    files = []
    real = row_reader._page_file
    monkeypatch.setattr(row_reader, "_page_file", lambda *arguments: files.append(1) or real(*arguments))
    options = replace_parallelism(table.options)
    rows = read.scan(table.snapshot, table.store, options, where=where).read_all()
    assert sorted(rows["id"].to_pylist()) == [100 * n + i for n in range(40) for i in (7, 57)]
    assert len(files) <= 4
    limited = read.scan(table.snapshot, table.store, options, where=where, limit=5).read_all()
    assert limited.num_rows == 5


def test_a_damaged_page_among_many_splits_is_an_error_that_names_its_split(tmp_path: Path) -> None:
    for number in range(4):
        indextables.write(tmp_path / "t", [{"id": number, "t": f"word{number} all"}], options=TEXT)
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    where = parse_condition("t INDEXQUERY 'all'", table.snapshot.schema)
    path = sorted((tmp_path / "t").glob("*.split"))[2]
    data = bytearray(path.read_bytes())
    data[6] ^= 0xFF
    path.write_bytes(bytes(data))
    close_splits()
    with pytest.raises(SplitError, match=path.name):
        read.scan(table.snapshot, table.store, table.options, where=where).read_all()


def test_a_table_with_compiled_queries_is_pickled_without_them(table: Opened) -> None:
    where = parse_condition("t INDEXQUERY 'red'", table.snapshot.schema)
    plan = plan_splits(table.snapshot, where, table.options)
    context, splits = plan.table, plan.splits
    spec = ScanSpec(context, ("id",), where)
    before = sum(batch.num_rows for batch in execute(spec, splits, table.store))
    copy = pickle.loads(pickle.dumps(spec))
    assert sum(batch.num_rows for batch in execute(copy, splits, table.store)) == before


def replace_parallelism(options: Options) -> Options:
    return replace(options, values={**options.values, "read.parallelism": "1"})


@pytest.mark.parametrize("condition", ["t INDEXQUERY 'word7'", "t INDEXQUERY 'absent'", "s = 'absent'"])
def test_a_cold_count_reads_a_split_in_two_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    name = f"memory://together-{tmp_path.name}/t"
    rows = [{"id": i, "t": f"word{i} all", "s": f"value {i}"} for i in range(50)]
    indextables.write(name, rows, options=TEXT)
    table = opened(name, [], tmp_path / "cache")
    where = parse_condition(condition, table.snapshot.schema)
    table.snapshot.files()
    calls = []
    real = Store.get_ranges
    monkeypatch.setattr(
        Store, "get_ranges", lambda self, path, ranges: calls.append(path) or real(self, path, ranges)
    )
    assert read.count(table.snapshot, table.store, table.options, where=where) == ("7" in condition)
    assert len(calls) <= 2, "the footer; the index with the fields of the condition"
