"""The planner's decisions, without a JVM."""

import json
import math
import pickle
import re
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indextables
from indextables import diagnostics
from indextables.errors import PredicateError, StoreError
from indextables.maintain import jobs, on_write
from indextables.options import Options
from indextables.predicate import Search, SearchKind, to_sql
from indextables.read import split_source
from indextables.read.spec import SortKey
from indextables.read.split_rows import first_rows
from indextables.read.table_context import SplitRef
from indextables.schema.spark import from_arrow
from indextables.spark.planner import inline, scan_plan
from indextables.spark.planner.dispatch import answer
from indextables.spark.planner.expressions import Scope, condition
from indextables.spark.planner.read_context import microseconds
from indextables.spark.planner.scan_plan import assign_splits
from indextables.spark.planner.write import _stream_options
from indextables.spark.tasks import MESSAGE
from indextables.store import open_store
from indextables.store.remote import RemoteBackend
from tests.read.many_splits import ROWS, many_splits

SCHEMA = pa.schema(
    [
        ("n", pa.int32()), ("long", pa.int64()), ("x", pa.float64()), ("f", pa.float32()), ("d", pa.decimal128(9, 2)), ("s", pa.string()), ("b", pa.bool_()), ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("raw", pa.binary()), ("u", pa.struct([("id", pa.int32())])), ("l", pa.list_(pa.int32())), ("t", pa.time64("us")),
        pa.field("fancy", pa.string(), metadata={b"indextables.type": b"string collate UNICODE_CI"}),
    ]
)  # fmt: skip
SCOPE = Scope(SCHEMA, {"_search": Search(SearchKind.INDEXQUERY, None, "x")})


def col(*path: str) -> dict[Any, Any]:
    return {"kind": "col", "path": list(path)}


def lit(kind: str, value: bool | int | str | None) -> dict[Any, Any]:
    return {"kind": "lit", "type": json.dumps(kind), "value": value}


def op(name: str, *args: Any) -> dict[Any, Any]:
    return {"kind": "op", "op": name, "args": list(args)}


def cast(kind: str, inner: Any) -> dict[Any, Any]:
    return {"kind": "cast", "type": json.dumps(kind), "args": [inner]}


TAKEN = {
    "n = 3": op("=", col("n"), lit("integer", 3)),
    "n > 3": op("<", lit("integer", 3), col("N")),
    "NOT n = 3": op("<>", col("n"), lit("integer", 3)),
    "n IN (1, NULL)": op("IN", col("n"), lit("integer", 1), lit("integer", None)),
    "n > 2": op(">", cast("double", col("n")), lit("double", "2.5")),
    "long = 3": op("=", cast("decimal(20,0)", col("long")), lit("decimal(20,0)", "3")),
    "x = double('nan')": op("=", col("x"), lit("double", "NaN")),
    "d < 1.50BD": op("<", col("d"), lit("decimal(9,2)", "1.50")),
    "s = 'a''b'": op("=", col("s"), lit("string", "a'b")),
    "b = TRUE": op("=", col("b"), lit("boolean", True)),
    "day = DATE '1970-01-02'": op("=", col("day"), lit("date", 1)),
    "NOT u.id IS NULL": op("IS_NOT_NULL", col("u", "id")),
    "l IS NULL": op("IS_NULL", col("l")),
    "t IS NULL": op("IS_NULL", col("t")),
    "fancy IS NULL": op("IS_NULL", col("fancy")),
    "startswith(s, 'a')": op("STARTS_WITH", col("s"), lit("string", "a")),
    "* INDEXQUERY 'x'": op("=", col("_search"), lit("boolean", True)),
    "NOT * INDEXQUERY 'x'": op("NOT", col("_search")),
    "n = 1 AND (n = 2 OR NULL)": op("AND", op("=", col("n"), lit("integer", 1)), op("OR", op("=", col("n"), lit("integer", 2)), lit("boolean", None))),
}  # fmt: skip

LEFT = [
    op("=", col("n"), col("long")),
    op("=", cast("string", col("n")), lit("string", "3")),
    op("=", cast("integer", col("x")), lit("integer", 3)),
    op("=", cast("float", col("n")), lit("float", "3")),
    op("=", cast("decimal(9,0)", col("long")), lit("decimal(9,0)", "3")),
    op("=", cast("double", col("d")), lit("double", "3")),
    op("=", cast("date", col("ts")), lit("date", 3)),
    op("=", col("fancy"), lit("string collate UNICODE_CI", "a")),
    op("=", col("s"), lit("string collate UNICODE_CI", "a")),
    op("=", col("t"), lit("time(6)", 3)),
    op("=", col("nothing"), lit("integer", 3)),
    op("=", {"kind": "fn", "op": "ABS", "args": [col("n")]}, lit("integer", 3)),
    op("RLIKE", col("s"), lit("string", "a")),
    {"kind": "other", "op": "Whatever"},
    op("AND", op("=", col("n"), lit("integer", 1)), {"kind": "other", "op": "Whatever"}),
]


def test_what_means_the_same_is_taken() -> None:
    found = {text: condition(expression, SCOPE) for text, expression in TAKEN.items()}
    assert {text: part and to_sql(part) for text, part in found.items()} == {text: text for text in TAKEN}


def test_what_only_spark_can_evaluate_is_left() -> None:
    assert [condition(expression, SCOPE) for expression in LEFT] == [None] * len(LEFT)


# --- order -----------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.floats(width=32)), st.one_of(st.none(), st.integers(-3, 3))), min_size=1, max_size=40),
    st.booleans(), st.booleans(), st.booleans(), st.integers(1, 10),
)  # fmt: skip
def test_the_first_rows_of_an_order_are_those_of_a_full_sort(
    rows: Any, up: Any, nulls_first: Any, second_up: Any, count: Any
) -> None:
    columns = {
        "x": pa.array([r[0] for r in rows], pa.float64()),
        "n": pa.array([r[1] for r in rows], pa.int32()),
    }
    order = (SortKey("x", up, nulls_first), SortKey("n", second_up, not nulls_first))
    found = first_rows(columns, order, count)

    def rank(value: Any, ascending: Any, nulls_come_first: bool) -> Any:
        if value is None:
            return (0 if nulls_come_first else 2, 0.0)
        high = math.inf if isinstance(value, float) and math.isnan(value) else float(value)
        nan = isinstance(value, float) and math.isnan(value)
        key = (high, nan)
        return (1, key if ascending else (-high, not nan))

    expected = sorted(
        range(len(rows)),
        key=lambda i: (rank(rows[i][0], up, nulls_first), rank(rows[i][1], second_up, not nulls_first), i),
    )
    assert found.tolist() == expected[:count]


# --- tasks -----------------------------------------------------------------------------------------


def refs(sizes: Any) -> list[Any]:
    return [SplitRef(f"split-{i}", size, None, 1, (), True, 0) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(1, 10**10), max_size=60), st.integers(1, 8), st.integers(0, 3))
def test_every_split_is_in_one_task(sizes: Any, parallelism: Any, executors: Any) -> None:
    names = [f"executor_h_{i}" for i in range(executors)]
    found = assign_splits(refs(sizes), parallelism, names, Options())
    assert sorted(ref.path for task in found for ref in task.splits) == sorted(
        f"split-{i}" for i in range(len(sizes))
    )
    assert all((task.executor in names) if names else task.executor is None for task in found)


def test_tasks_have_about_the_same_size() -> None:
    found = assign_splits(refs([1 << 30, *[1 << 20] * 15]), 2, (), Options())
    large = next(task for task in found if any(ref.size == 1 << 30 for ref in task.splits))
    assert len(large.splits) <= 2


def test_splits_stay_where_they_are_when_an_executor_comes() -> None:
    before = {
        ref.path: task.executor
        for task in assign_splits(refs([1] * 200), 4, ["a", "b", "c"], Options())
        for ref in task.splits
    }
    after = {
        ref.path: task.executor
        for task in assign_splits(refs([1] * 200), 4, ["a", "b", "c", "d"], Options())
        for ref in task.splits
    }
    moved = [path for path in before if before[path] != after[path]]
    assert all(after[path] == "d" for path in moved)
    assert 20 < len(moved) < 90


def test_a_fixed_number_of_splits_in_a_task_is_kept_to() -> None:
    found = assign_splits(refs([1] * 10), 2, (), Options.parse({"read.splitsPerTask": 3}))
    assert sorted(len(task.splits) for task in found) == [2, 2, 3, 3]
    found = assign_splits(refs([1] * 10), 1, (), Options.parse({"read.maxSplitsPerTask": 2}))
    assert [len(task.splits) for task in found] == [2] * 5
    one = Options.parse({"read.aggregate.splitsPerTask": 5})
    assert [len(task.splits) for task in assign_splits(refs([1] * 10), 8, (), one, aggregate=True)] == [5, 5]


# --- operations ------------------------------------------------------------------------------------


def ask(operation: str, request: dict[Any, Any], path: Any, **options: Any) -> Any:
    whole = {"options": {"path": str(path), **options}, "parallelism": 2, **request}
    reply, blobs = answer(operation, json.dumps(whole), ())
    decided = {name: value for name, value in json.loads(reply).items() if name != "process_metrics"}
    return decided, blobs


@pytest.fixture
def table(tmp_path: Path) -> Path:
    indextables.write(
        tmp_path / "t",
        pa.table({"id": [1, 2, 3], "m": ["a b", "b", None], "v": [Decimal("1.5"), None, Decimal("2.5")]}),
        options={"indexing.typemap.m": "text"},
    )
    return tmp_path / "t"


def test_a_malformed_search_is_refused_before_anything_is_planned(table: Path) -> None:
    virtual = [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": "a AND"}]
    assert "AND" in ask("accept", {"virtual": virtual, "filters": []}, table)[0]["error"]
    unknown = [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": "zz:a"}]
    assert "zz" in ask("accept", {"virtual": unknown, "filters": []}, table)[0]["error"]


def test_a_small_answer_is_in_the_plan_itself(table: Path) -> None:
    schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    request = {"columns": ["id"], "schema": schema, "filters": [op("=", col("id"), lit("long", 2))]}
    reply, blobs = ask("plan", request, table, **{"read.inline.maxtime": "60000"})
    assert [part["kind"] for part in reply["partitions"]] == ["answer"]
    assert pa.ipc.open_stream(blobs[1]).read_all().to_pydict() == {"id": [2]}
    assert reply["metrics"]["splitsRead"] == 1
    reply, blobs = ask("plan", request, table, **{"read.inline.maxrows": "0"})
    assert [part["kind"] for part in reply["partitions"]] == ["task"]


def test_a_companion_index_is_estimated_at_its_size_before_compression(tmp_path: Path) -> None:
    request = {"columns": ["id"], "filters": []}
    sizes = {}
    for rows in (3, 20_000):
        source, index = tmp_path / f"source-{rows}", tmp_path / f"index-{rows}"
        source.mkdir()
        pq.write_table(pa.table({"id": range(rows), "m": ["disk full"] * rows}), source / "part.parquet")
        indextables.companion(source, at=index, format="parquet", options={"indexing.typemap.m": "text"})
        stored = sum(path.stat().st_size for path in index.rglob("*.split"))
        estimated = ask("estimate", request, index)[0]
        assert estimated["rows"] == rows
        sizes[rows] = estimated["bytes"] / stored
    assert sizes[3] == 1, "of a small split its footer is most"
    assert sizes[20_000] > 1.5


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "t"
    for number in range(12):
        rows = {"id": [number, number + 100], "m": [f"word{number} all", "none"]}
        indextables.write(folder, pa.table(rows), options={"indexing.typemap.m": "text"})
    return folder


SEARCH = {
    "virtual": [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": "all"}],
    "filters": [op("=", col("v1"), lit("boolean", True))],
    "columns": ["id"],
    "schema": '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}',
}


def test_many_splits_are_read_by_the_planner_if_that_is_faster_than_tasks(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply, blobs = ask("plan", SEARCH, many)
    assert [part["kind"] for part in reply["partitions"]] == ["answer"]
    assert sorted(pa.ipc.open_stream(blobs[1]).read_all()["id"].to_pylist()) == list(range(12))
    monkeypatch.setattr(inline, "_tasks_ran", True)
    monkeypatch.setattr(inline, "_SEARCH_MS", 20.0)
    reply, _ = ask("plan", {**SEARCH, "parallelism": 2}, many)
    assert [part["kind"] for part in reply["partitions"]] == ["answer"], "240 ms here, 150 + 120 by tasks"
    reply, _ = ask("plan", {**SEARCH, "parallelism": 100}, many)
    assert {part["kind"] for part in reply["partitions"]} == {"task"}, "240 ms here, 150 + 2 by tasks"


ORIGINAL = Path(__file__).parents[3] / "../shared/fixtures/original-0.5.3/text"


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not here")
def test_a_search_of_many_rows_of_the_original_warns_on_the_driver_that_tasks_index_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = indextables.open(ORIGINAL)
    column = table.schema.names[0]
    field = {"name": column, "type": "string", "nullable": True, "metadata": {}}
    request = {
        "columns": [column],
        "schema": json.dumps({"type": "struct", "fields": [field]}),
        "virtual": [{"name": "v1", "kind": "indexquery", "query": "a OR b"}],
        "filters": [op("=", col("v1"), lit("boolean", True))],
    }
    in_tasks = {"read.inline.maxrows": "0"}
    reply, _ = ask("plan", request, ORIGINAL, **in_tasks)
    assert {part["kind"] for part in reply["partitions"]} == {"task"}
    assert "warnings" not in reply, "these splits are small"
    rows = sum(table.files()["numRecords"].to_pylist())
    monkeypatch.setattr(split_source, "_MANY_ROWS", rows)
    warned: list[str] = []
    monkeypatch.setattr(scan_plan, "_warned", warned)
    (warning,) = ask("plan", request, ORIGINAL, **in_tasks)[0]["warnings"]
    splits = table.files().num_rows
    assert f"tasks index {rows:,} rows of {splits} splits" in warning
    assert re.search(r"how many of the [1-9]\d* tasks are done", warning)
    assert "CONVERT INDEXTABLES" in warning
    monkeypatch.setattr(split_source, "_MANY_ROWS", 1)
    other = {**request, "virtual": [{"name": "v1", "kind": "indexquery", "query": "c OR d"}]}
    assert "warnings" not in ask("plan", other, ORIGINAL, **in_tasks)[0], "once for a table"
    warned.clear()
    assert "warnings" in ask("plan", other, ORIGINAL, **in_tasks)[0]
    warned.clear()
    everything = {**request, "virtual": [], "filters": []}
    assert "warnings" not in ask("plan", everything, ORIGINAL, **in_tasks)[0]


def test_splits_without_the_word_are_in_no_task(many: Path) -> None:
    indextables.open(many).checkpoint()  # it writes a filter bundle
    for query, splits in (
        ("word3", {3}),
        ("word3 OR word5", {3, 5}),
        ("absent", set()),
        ("none", set(range(12))),
    ):
        virtual = [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": query}]
        request = {**SEARCH, "virtual": virtual}
        reply, blobs = ask("plan", request, many, **{"read.inline.maxrows": "0"})
        assert {part["kind"] for part in reply["partitions"]} <= {"task"}
        refs = [ref for blob in blobs[1:] for ref in pickle.loads(blob)]
        assert len(refs) == len(splits)
        count = {"aggregate": {"groups": [], "functions": [{"function": "count"}]}}
        reply, blobs = ask("plan", {**request, **count}, many, **{"read.inline.maxrows": "0"})
        tasks = [
            blob for part, blob in zip(reply["partitions"], blobs[1:], strict=True) if part["kind"] == "task"
        ]
        assert sum(len(pickle.loads(blob)) for blob in tasks) == len(splits)


def test_the_time_that_the_planner_may_take_is_bounded(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds(most: str) -> set[Any]:
        reply, _ = ask("plan", SEARCH, many, **{"read.inline.maxtime": most})
        return {part["kind"] for part in reply["partitions"]}

    assert kinds("1") == {"task"}
    count = {**SEARCH, "aggregate": {"groups": [col("id")], "functions": [{"function": "count"}]}}
    assert not ask("aggregate", count, many, **{"read.inline.maxtime": "1"})[0]["complete"]
    assert ask("aggregate", count, many)[0]["complete"]
    # An estimate that is far too low: after twice the longest time the rest is left to tasks.
    monkeypatch.setattr(inline, "_SEARCH_MS", 0.0)
    assert kinds("0") == {"task"}


def test_large_splits_are_opened_by_the_planner_only_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(count: int, size: int) -> list[Any]:
        return [SplitRef(f"{i}.split", size, None, 1, (), True, 0) for i in range(count)]

    monkeypatch.setattr(inline, "_tasks_ran", True)
    local, remote = open_store(tmp_path), open_store("memory://planner")
    budget = inline._Budget(Options(), 2)
    assert budget.allows(local, large(2, 90 << 20), 1)
    assert budget.allows(local, large(2, 900 << 20), 1), "the terms of one column"
    assert not budget.allows(local, large(2, 900 << 20), 12), "a quarter of all bytes"
    assert budget.allows(local, large(100, 2 << 20), 2)
    assert not budget.allows(local, large(10_000, 2 << 20), 1)
    assert budget.allows(remote, large(8, 2 << 20), 1)
    assert budget.allows(remote, large(8, 90 << 20), 1)
    assert not budget.allows(remote, large(8, 90 << 20), 12), "too many bytes to fetch"
    assert budget.allows(remote, large(100, 2 << 20), 1)
    assert not budget.allows(remote, large(1_000, 2 << 20), 1), "too many requests"


def test_an_index_in_the_disk_cache_need_not_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = [SplitRef(f"{i}.split", 90 << 20, None, 1, (), True, 0) for i in range(8)]
    remote, budget = open_store("memory://planner"), inline._Budget(Options(), 2)
    assert not budget.allows(remote, splits, 12)
    monkeypatch.setattr(inline, "was_open", lambda store, ref: True)
    assert budget.allows(remote, splits, 12)


@pytest.fixture
def thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table of 1,000 splits, whose files are links to one; nothing pauses in the background."""
    monkeypatch.setattr(inline, "_LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(inline, "_tasks_ran", True)
    many_splits(tmp_path / "t", 1_000)
    diagnostics.flush_searchers()
    yield tmp_path / "t"
    diagnostics.flush_searchers()


WORD = {
    **SEARCH,
    "virtual": [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": "word3 AND beta"}],
}
WORD_ROWS = sum(i % 3 == 0 and i % 7 == 3 for i in range(ROWS))
COUNT = {"groups": [], "functions": [{"function": "count"}]}


def kinds_and_rows(table: Path, **options: Any) -> Any:
    reply, blobs = ask("plan", {**WORD, "parallelism": 2}, table, **options)
    kinds = {part["kind"] for part in reply["partitions"]}
    return kinds, pa.ipc.open_stream(blobs[1]).read_all().num_rows if kinds == {"answer"} else None


def test_the_planner_opens_splits_that_tasks_read_and_answers_the_next_query(
    thousand: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"cache.disk.path": str(tmp_path / "cache"), "read.inline.maxrows": "2000"}
    assert kinds_and_rows(thousand, **options) == ({"task"}, None)
    inline._background.wait()
    # However slow the machine is; what is estimated does not depend on it.
    options["read.inline.maxtime"] = "60000"
    monkeypatch.setattr(inline, "_OPEN_MS", 1e9)
    assert kinds_and_rows(thousand, **options) == ({"answer"}, 1_000 * WORD_ROWS)
    request = {**WORD, "aggregate": COUNT, "parallelism": 2}
    assert ask("aggregate", request, thousand, **options)[0]["complete"]


@pytest.mark.parametrize("option", [{"read.inline.openSplits": "999"}, {"cache.maxSize": "1K"}])
def test_options_bound_what_is_opened_in_the_background(
    thousand: Path, tmp_path: Path, option: dict[str, Any]
) -> None:
    options = {"cache.disk.path": str(tmp_path / "cache"), "read.inline.maxrows": "2000", **option}
    assert kinds_and_rows(thousand, **options) == ({"task"}, None)
    assert inline._background._thread is None


def test_opening_in_the_background_ends_with_the_step_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[Any] = []
    begun, more = threading.Event(), threading.Event()

    def work(name: Any, steps: Any = steps) -> Iterator[bool]:
        for number in range(3):
            steps.append((name, number))
            begun.set()
            yield more.wait(timeout=60)

    background = inline._Background()
    background.run(partial(work, "a"))
    assert begun.wait(timeout=60)
    background.run(partial(work, "b"))
    more.set()
    background.wait()
    assert steps == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]
    begun.clear(), more.clear()
    background.run(partial(work, "c"))
    assert begun.wait(timeout=60)
    background.stop()
    more.set()
    background.wait()
    assert steps[4:] == [("c", 0)]


def test_opening_in_the_background_goes_on_after_any_error() -> None:
    steps = []

    def fail() -> Iterator[None]:
        steps.append("failed")
        yield
        raise ValueError("unexpected")

    background = inline._Background()
    background.run(fail)
    background.wait()
    background.run(lambda: iter([steps.append("next")]))
    background.wait()
    assert steps == ["failed", "next"]


def test_a_limit_is_answered_from_the_first_splits(many: Path) -> None:
    reply, blobs = ask("plan", {**SEARCH, "limit": 3}, many)
    assert [part["kind"] for part in reply["partitions"]] == ["answer"]
    assert pa.ipc.open_stream(blobs[1]).read_all().num_rows == 3


def test_small_splits_are_few_tasks() -> None:
    refs = [SplitRef(f"s{i}", 2 << 20, None, 1, (), True, 0) for i in range(100)]
    assert len(assign_splits(refs, 2, (), Options())) == 2
    assert len(assign_splits(refs, 100, (), Options())) == 100


def test_an_average_is_answered_only_completely(table: Path) -> None:
    request = {
        "filters": [],
        "aggregate": {"groups": [], "functions": [{"function": "avg", "column": col("v")}]},
    }
    assert ask("aggregate", request, table)[0]["complete"]
    assert ask("aggregate", request, table, **{"read.inline.maxrows": "0"})[0] == {}


def test_an_aggregate_is_computed_when_the_query_runs_and_not_when_it_is_optimized(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []

    def watched(name: str) -> None:
        original = getattr(inline, name)

        def compute(*arguments: Any) -> Any:
            computed.append(name)
            return original(*arguments)

        monkeypatch.setattr(inline, name, compute)

    watched("index_partial")
    watched("split_partial")
    search = {"virtual": [{"name": "v1", "kind": "indexquery", "column": ["m"], "query": "b"}]}
    filters = {"filters": [{"kind": "op", "op": "=", "args": [col("v1"), lit("boolean", True)]}], **search}
    count: dict[str, Any] = {**filters, "aggregate": {"groups": [], "functions": [{"function": "count"}]}}
    total: dict[str, Any] = {
        **filters,
        "aggregate": {"groups": [], "functions": [{"function": "sum", "column": col("id")}]},
    }
    for most_rows in (inline._MAX_ROWS_READ, 1):
        monkeypatch.setattr(inline, "_MAX_ROWS_READ", most_rows)
        for request in (count, total):
            assert ask("aggregate", request, table)[0]["complete"]
            assert computed == []
    schema = json.dumps({"type": "struct", "fields": []})
    run = {**count, "columns": ["a0"], "schema": schema}
    run["aggregate"] = {**count["aggregate"], "complete": True}
    reply, blobs = ask("plan", run, table)
    assert [each["kind"] for each in reply["partitions"]] == ["answer"]
    assert pa.ipc.open_stream(blobs[1]).read_all()["a0"].to_pylist() == [2]
    assert computed == ["index_partial"]


def test_a_sum_of_longs_is_taken_only_if_the_log_shows_that_it_fits(tmp_path: Path) -> None:
    request = {
        "filters": [],
        "aggregate": {"groups": [], "functions": [{"function": "sum", "column": col("id")}]},
    }
    indextables.write(tmp_path / "small", pa.table({"id": [1, -5, 7]}))
    indextables.write(tmp_path / "large", pa.table({"id": [2**62, 2**62]}))
    assert "schema" in ask("aggregate", request, tmp_path / "small")[0]
    assert ask("aggregate", request, tmp_path / "large")[0] == {}


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    reply, _ = ask("plan", {"columns": [], "schema": "{}", "filters": []}, tmp_path / "none")
    assert "no table at" in reply["error"]
    reply, _ = ask("snapshot", {}, tmp_path / "none")
    assert "no table at" in reply["error"]


def test_a_table_of_a_catalog_without_a_log_has_a_plan_without_partitions(tmp_path: Path) -> None:
    reply, _ = ask("snapshot", {"in_catalog": True}, tmp_path / "none")
    assert reply["version"] == -1
    read = {"columns": [], "schema": "{}", "filters": [], "in_catalog": True, "snapshot": {"version": -1}}
    reply, blobs = ask("plan", read, tmp_path / "none")
    assert reply["partitions"] == []
    assert blobs == [b""] or list(blobs) == [b""]


@pytest.mark.parametrize(
    ("text", "micros"), [("1us", 1), ("15m", 900_000_000), (" 2 h ", 7_200_000_000), ("7d", 604_800_000_000)]
)
def test_lengths_of_time(text: str, micros: int) -> None:
    assert microseconds(text) == micros


@pytest.mark.parametrize("text", ["", "h", "1", "-1h", "0s", "1.5h", "1w", "9999999999999999d"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(PredicateError, match="duration"):
        microseconds(text)


def test_offsets_may_be_zero_or_before() -> None:
    assert (microseconds("0s", offset=True), microseconds("-1h", offset=True)) == (0, -3_600_000_000)


def test_equal_rows_stay_in_their_order() -> None:
    columns = {"n": pa.array([1, 1, 1])}
    assert (
        first_rows(columns, (SortKey("n", ascending=False, nulls_first=True),), 2).tolist()
        == np.arange(2).tolist()
    )


def test_columns_that_are_never_null_are_answered_too(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        ]
    )
    indextables.write(tmp_path / "t", pa.table({"id": [1], "s": [{"a": 2}]}, schema=schema))
    spark = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}},{"name":"s","type":{"type":"struct","fields":[{"name":"a","type":"integer","nullable":false,"metadata":{}}]},"nullable":true,"metadata":{}}]}'
    _, blobs = ask("plan", {"columns": ["id", "s"], "schema": spark, "filters": []}, tmp_path / "t")
    assert pa.ipc.open_stream(blobs[1]).read_all().to_pylist() == [{"id": 1, "s": {"a": 2}}]


@pytest.mark.parametrize(
    ("statement", "added"),
    [
        ("FLUSH INDEXTABLES SEARCHER CACHE", {"settings": False, "empties": "splits"}),
        ("FLUSH INDEXTABLES DISK CACHE", {"settings": False, "empties": "splits"}),
        ("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE", {"settings": False, "empties": "logs"}),
        ("DESCRIBE INDEXTABLES ENVIRONMENT", {"settings": True}),
        ("DESCRIBE INDEXTABLES STATE '/FLUSH/CACHE/INVALIDATE/ENVIRONMENT'", {"settings": False}),
    ],
)
def test_a_command_declares_what_the_bridge_does_for_it(statement: str, added: dict[str, Any]) -> None:
    reply, _ = ask("command_schema", {"statement": statement}, "")
    del reply["schema"]
    assert reply == added


@pytest.mark.parametrize(
    ("options", "maximum"),
    [({}, "10000"), ({"purge.txLogRetentionHours": "720"}, None), ({"cleanup.maxVersions": "3"}, "3")],
)
def test_a_micro_batch_limits_versions_unless_the_stream_the_table_or_the_session_sets_a_retention(
    options: Any, maximum: str | None
) -> None:
    """The bridge sends the options of all three as one."""
    batch = _stream_options(Options.parse(options), {"stream": {"app": "a", "batch": 1}}, merges=True)
    assert batch.values.get("cleanup.maxversions") == maximum
    assert (batch.values["mergeonwrite.enabled"], batch.values["checkpoint.interval"]) == ("true", "20")
    assert _stream_options(Options.parse(options), {}) == Options.parse(options), "a batch write"


@pytest.mark.parametrize(
    "key",
    [
        "companion.parquet.azure.endpoint",
        "companion.parquet.azure.authorityHost",
        "spark.indextables.companion.parquet.gcp.endpoint",
        "companion.parquet.aws.endpoint",
        "aws.endpoint",
        "s3.endpoint",
        "s3.serviceUrl",
        "aws.credentialsProviderClass",
        "azure.identityEndpoint",
        "fs.s3a.bucket.b.endpoint",
        "fs.s3a.aws.credentials.provider",
    ],
)
def test_a_catalog_keeps_no_option_that_decides_where_credentials_go(table: Path, key: str) -> None:
    reply, _ = ask("schema", {"catalog_options": [key, "path"]}, table)
    assert re.search("decides where its readers' credentials go|in clear text", reply["error"])
    kept = [
        "path",
        "aws.region",
        "aws.forcePathStyle",
        "azure.accountName",
        "indexing.typemap.m",
        "s3.partSize",
    ]
    assert "error" not in ask("schema", {"catalog_options": [*kept]}, table)[0]


def test_a_catalog_names_no_host_that_gets_the_credentials_of_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise AssertionError("a request was made")

    monkeypatch.setattr(RemoteBackend, "get", unreachable)
    secret = {"azure.bearertoken": "a-token"}
    source = {"name": "s", "location": "abfss://c@acme.dfs.core.windows.net/s"}
    for operation, request in (("schema", {"catalog_options": ["path"]}), ("companion", source)):
        reply, _ = ask(operation, request, "abfss://c@storage.evil.example/t", **secret)
        assert "names the host storage.evil.example, which is none of Azure's" in reply["error"]
        with pytest.raises(AssertionError, match="a request was made"):
            ask(operation, request, "abfss://c@acme.dfs.core.windows.net/t", **secret)
        trusted = {**secret, "azure.endpoint": "https://storage.evil.example"}
        with pytest.raises(AssertionError, match="a request was made"):
            ask(operation, request, "abfss://c@storage.evil.example/t", **trusted)


@pytest.mark.parametrize("error", [StoreError("503 slow down"), OSError("no more files")])
def test_a_commit_does_not_fail_because_of_the_merge_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    purges = {"purgeonwrite.enabled": "true", "purgeonwrite.triggerafterwrites": "1"}
    options = {"mergeonwrite.enabled": "true", **purges}
    schema = pa.schema([("id", pa.int64())])
    request = {"own": [], "schema": from_arrow(schema), "mode": "append"}
    _, (function, planned) = ask("write", request, tmp_path / "t", **options)
    write, _ = pickle.loads(function)
    (task,) = write(iter([pa.record_batch({"id": [1, 2]}, schema)]))
    monkeypatch.setattr(on_write, "merge_to_start", fails)
    committed = {"options": {"path": str(tmp_path / "t"), **options}, "parallelism": 2, "writes": 1}
    reply = json.loads(answer("commit", json.dumps(committed), [planned, task.to_pylist()[0][MESSAGE]])[0])
    assert (reply["version"], reply["metrics"]["rowsWritten"]) == (1, 2)
    assert (reply["maintenance"]["merge"], reply["maintenance"]["purge"]) == (False, True)
    assert str(error) in reply["warnings"][0]
    assert indextables.open(tmp_path / "t").count() == 2


def test_waiting_for_jobs_holds_no_planner_process(tmp_path: Path) -> None:
    job = jobs.begin(jobs.JobKind.PREWARM, f"file://{tmp_path}", Options(), total=3)
    started = time.monotonic()
    request = {"statement": f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{job.id}' TIMEOUT 3000", "options": {}}
    reply, blobs = answer("command_plan", json.dumps(request), ())
    planned = json.loads(reply)
    assert (planned["done"], len(blobs)) == (False, 2)
    assert 0 < planned["pause"] <= 1000
    reply, blobs = answer("command_finish", json.dumps({**request, "task_executors": []}), blobs[1:])
    assert json.loads(reply)["done"] is False
    jobs.end(job.id)
    reply, blobs = answer("command_finish", json.dumps({**request, "task_executors": []}), blobs[1:])
    assert json.loads(reply)["done"] is True
    assert pa.ipc.open_stream(blobs[0]).read_all()["status"].to_pylist() == ["COMPLETED"]
    assert time.monotonic() - started < 1000
    running = jobs.begin(jobs.JobKind.PREWARM, f"file://{tmp_path}", Options(), total=3)
    late = {**request, "statement": f"WAIT FOR INDEXTABLES PREWARM JOBS JOB '{running.id}' TIMEOUT 1"}
    reply, blobs = answer("command_plan", json.dumps(late), ())
    while not json.loads(reply)["done"]:
        time.sleep(json.loads(reply)["pause"] / 1000)
        reply, blobs = answer("command_finish", json.dumps({**late, "task_executors": []}), blobs[1:])
    assert pa.ipc.open_stream(blobs[0]).read_all()["status"].to_pylist() == ["TIMEOUT (was: WAITING)"]
    jobs.end(running.id)


def test_a_delete_compares_addresses_as_addresses(tmp_path: Path) -> None:
    options = {"indexing.typemap.ip": "ip"}
    indextables.write(tmp_path / "t", {"ip": ["10.0.0.200", "10.0.0.201"]}, options=options)
    indextables.write(tmp_path / "t", {"ip": ["10.0.0.4", "10.0.0.5"]}, options=options)
    reply, _ = ask("delete", {"filters": [op("<", col("ip"), lit("string", "10.0.0.30"))]}, tmp_path / "t")
    # Bounds of texts do not show which splits have such addresses alone.
    assert "covers only some rows of 2 splits" in reply["error"]
    assert indextables.open(tmp_path / "t").count() == 4
