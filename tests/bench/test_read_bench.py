"""The questions of the reading part have the same answers on both sides: what is compared is the same work."""

from typing import Any

import pytest

from bench.engine_read import LISTS, run, targets
from bench.engine_read_work import (
    QUESTIONS,
    column_and_list,
    datafusion,
    duck,
    lance,
    listed,
    make,
    make_lance,
    ours,
)
from bench.measure import Measured

ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("read-bench")
    make(str(place), ROWS)
    return str(place)


@pytest.fixture(scope="module")
def lance_rows(folder):
    pytest.importorskip("lance", reason="Lance comes with the extra `bench`")
    make_lance(folder, ROWS)


def answer(found):
    """The number of rows, or the one number that was asked for."""
    if isinstance(found, int):
        return found
    return found.column(0)[0].as_py() if found.num_columns == 1 and found.num_rows == 1 else found.num_rows


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_sides_answer_the_same(folder, question):
    assert answer(ours(folder, question)()()) == answer(duck(folder, question)()())


@pytest.mark.parametrize("question", QUESTIONS)
def test_lance_answers_the_same(folder, lance_rows, question):
    assert answer(lance(folder, question)()()) == answer(ours(folder, question)()())


@pytest.mark.parametrize("question", [name for name, asked in QUESTIONS.items() if asked.is_scan])
def test_scans_read_every_row_on_both_sides(folder, question):
    read: list[Any] = [ours(folder, question)()(), datafusion(folder, question)()()]
    assert [rows.num_rows for rows in read] == [ROWS, ROWS]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_cold_question_has_the_same_answer(folder, question):
    assert answer(ours(folder, question, "cold")()()) == answer(ours(folder, question)()())
    assert answer(duck(folder, question, "cold")()()) == answer(duck(folder, question)()())


def test_a_list_finds_the_rows_whose_values_it_has(folder):
    for size in (1, 10, ROWS):
        count: Any = column_and_list(folder, size)()()
        assert listed(folder, size)()() == count.as_py() >= size
    assert listed(folder, ROWS)()() == ROWS


def test_every_question_is_asked_warm_and_cold(tmp_path, monkeypatch):
    took = Measured(1, 4.0, 4.0, 4.0, 4.0, 4.0, 1.0)
    monkeypatch.setattr("bench.engine_read.measure", lambda *_, **__: took)
    rows = list(run(tmp_path, rows=100, runs=1))
    lists = [f"list of {size:,} values of 100, warm" for size in LISTS]
    questions = [f"{name} of 100, {state}" for state in ("warm", "cold") for name in QUESTIONS]
    assert [row.name for row in rows] == [*questions, *lists]
    assert all("DuckDB" in row.others for row in rows if row.name in questions)
    assert all("column" in row.others for row in rows if row.name in lists)
    assert [row.name for row in rows if "DataFusion" in row.others] == [
        f"{name} of 100, {state}" for state in ("warm", "cold") for name in ("one column", "all columns")
    ]


def test_targets_in_milliseconds_are_for_a_million_rows():
    took = Measured(1, 4.0, 4.0, 4.0, 4.0, 4.0, 1.0)
    slower = Measured(1, 400.0, 400.0, 400.0, 400.0, 400.0, 1.0)
    assert [t.unit for t in targets("count", took, {"DuckDB": slower}, in_ms=True)] == [
        "ms",
        "times DuckDB's speed",
    ]
    assert [t.unit for t in targets("count", took, {"DuckDB": slower, "Lance": slower}, in_ms=False)] == [
        "times DuckDB's speed",
        "times Lance's speed",
    ]
