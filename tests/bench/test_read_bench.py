"""The questions of the reading part have the same answers on both sides: what is compared is the same work."""

import json
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from bench import paimon
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
from bench.measure import ROOT, Measured, measure

ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("read-bench")
    make(str(place), ROWS)
    return str(place)


@pytest.fixture(scope="module")
def lance_rows(folder: str) -> None:
    pytest.importorskip("lance", reason="Lance comes with the extra `bench`")
    make_lance(folder, ROWS)


def answer(found: Any) -> Any:
    """The number of rows, or the one number that was asked for."""
    if isinstance(found, int):
        return found
    return found.column(0)[0].as_py() if found.num_columns == 1 and found.num_rows == 1 else found.num_rows


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_sides_answer_the_same(folder: str, question: Any) -> None:
    assert answer(ours(folder, question)()()) == answer(duck(folder, question)()())


@pytest.mark.parametrize("question", QUESTIONS)
def test_lance_answers_the_same(folder: str, lance_rows: None, question: Any) -> None:
    assert answer(lance(folder, question)()()) == answer(ours(folder, question)()())


@pytest.mark.soak
def test_pypaimon_answers_the_same(folder: str) -> None:
    python = paimon.python()
    if python is None:
        pytest.skip("PyPaimon cannot be installed")
    measure("bench.paimon_work:make", folder, runs=1, python=python)
    asked = {name: (q.what, q.query) for name, q in QUESTIONS.items() if name != "wildcard"}
    program = (
        "import json, sys; from bench.paimon_work import answer; folder, asked = json.loads(sys.argv[1]);"
        "print(json.dumps({name: answer(folder, *each) for name, each in asked.items()}))"
    )
    done = subprocess.run(
        [python, "-c", program, json.dumps([folder, asked])], cwd=ROOT, capture_output=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        name: answer(ours(folder, name)()()) for name in asked
    }


def test_pypaimon_is_left_out_where_it_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(venv, "create", fail)
    assert paimon.python(tmp_path / "env") is None
    assert "PyPaimon cannot be installed (no network)" in capsys.readouterr().err
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "complete").write_text(paimon.REQUIREMENT)
    assert paimon.python(tmp_path / "env") == tmp_path / "env" / "bin" / "python"


@pytest.mark.parametrize("question", [name for name, asked in QUESTIONS.items() if asked.is_scan])
def test_scans_read_every_row_on_both_sides(folder: str, question: Any) -> None:
    read: list[Any] = [ours(folder, question)()(), datafusion(folder, question)()()]
    assert [rows.num_rows for rows in read] == [ROWS, ROWS]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_cold_question_has_the_same_answer(folder: str, question: Any) -> None:
    assert answer(ours(folder, question, "cold")()()) == answer(ours(folder, question)()())
    assert answer(duck(folder, question, "cold")()()) == answer(duck(folder, question)()())


def test_a_list_finds_the_rows_whose_values_it_has(folder: str) -> None:
    for size in (1, 10, ROWS):
        count: Any = column_and_list(folder, size)()()
        assert listed(folder, size)()() == count.as_py() >= size
    assert listed(folder, ROWS)()() == ROWS


def test_every_question_is_asked_warm_and_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took = Measured(1, 4.0, 4.0, 4.0, 4.0, 4.0, 1.0)
    monkeypatch.setattr("bench.engine_read.measure", lambda *_, **__: took)
    monkeypatch.setattr("bench.paimon.python", lambda: Path("python"))
    rows = list(run(tmp_path, rows=100, runs=1))
    lists = [f"list of {size:,} values of 100, warm" for size in LISTS]
    questions = [f"{name} of 100, {state}" for state in ("warm", "cold") for name in QUESTIONS]
    assert [row.name for row in rows] == [*questions, *lists]
    assert all("DuckDB" in row.others for row in rows if row.name in questions)
    assert [row.name for row in rows if row.name in questions and "PyPaimon" not in row.others] == [
        f"wildcard of 100, {state}" for state in ("warm", "cold")
    ]
    assert all("column" in row.others for row in rows if row.name in lists)
    assert [row.name for row in rows if "DataFusion" in row.others] == [
        f"{name} of 100, {state}" for state in ("warm", "cold") for name in ("one column", "all columns")
    ]


def test_targets_in_milliseconds_are_for_a_million_rows() -> None:
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
