"""The questions of the reading part have the same answers on both sides: what is compared is the same work."""

import pytest

from bench.engine_read import _targets
from bench.engine_read_work import QUESTIONS, datafusion, duck, make, ours
from bench.measure import Measured

ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("read-bench")
    make(str(place), ROWS)
    return str(place)


def answer(found):
    """The number of rows, or the one number that was asked for."""
    if isinstance(found, int):
        return found
    return found.column(0)[0].as_py() if found.num_columns == 1 and found.num_rows == 1 else found.num_rows


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_sides_answer_the_same(folder, question):
    assert answer(ours(folder, question)()()) == answer(duck(folder, question)()())


@pytest.mark.parametrize("question", ["all", "one_column"])
def test_scans_read_every_row_on_both_sides(folder, question):
    assert ours(folder, question)()().num_rows == datafusion(folder, question)()().num_rows == ROWS


def test_a_cold_question_has_the_same_answer(folder):
    assert answer(ours(folder, "needle", "cold")()()) == answer(ours(folder, "needle")()())


def test_targets_in_milliseconds_are_for_a_million_rows():
    took = Measured(1, 4.0, 4.0, 4.0, 4.0, 4.0, 1.0)
    slower = Measured(1, 400.0, 400.0, 400.0, 400.0, 400.0, 1.0)
    assert [t.unit for t in _targets("count", took, slower, None, first=True)] == [
        "times DuckDB's speed",
        "ms",
    ]
    assert [t.unit for t in _targets("count", took, slower, slower, first=False)] == [
        "times DuckDB's speed",
        "times Lance's speed",
    ]
