"""The tables of the page about benchmarks are those of the stored figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as program
from bench.measure import Measured
from bench.report import Row, Target, table
from scripts.benchmarks_page import FIGURES, PAGE, page

OURS = Measured(3, 12.5, 9.0, 20.0, 11.0, 30.0, 4.0)
OTHER = Measured(3, 50.0, 40.0, 60.0, 45.0, 70.0, 8.0)
ROW = Row("needle", OURS, {"Parquet": OTHER}, (Target(12.5, 10, "ms"), Target(0.25, 1, "times Parquet")))
TEXT = "# Page\n\n<!-- figures: log -->\n\nold\n\n<!-- end of figures -->\n\nProse.\n"


def figures(*rows: Row) -> dict[Any, Any]:
    return {"machines": {}, "parts": {"log": [row.values() for row in rows]}}


def test_a_table_has_the_stored_figures_and_the_prose_stays() -> None:
    written = page(TEXT, json.loads(json.dumps(figures(ROW))))
    assert table([ROW]) in written
    assert "| needle |        12 | 9.0-20 |     11 |       30 |     4.0 |         50 |  0.25 |" in written
    assert "< 10 ms MISSED by 25%, < 1 times Parquet ok" in written
    assert written.startswith("# Page\n")
    assert written.endswith("Prose.\n")
    assert "old" not in written
    assert page(written, figures(ROW)) == written


def test_a_column_without_figures_is_left_out() -> None:
    stored = figures(ROW)
    for key in ("first_ms", "peak_mb"):
        del stored["parts"]["log"][0][key]
    assert "peak MB" in page(TEXT, figures(ROW))
    assert "peak MB" not in page(TEXT, stored)
    assert "first ms" not in page(TEXT, stored)


def test_a_table_without_figures_and_figures_without_a_table_are_refused() -> None:
    with pytest.raises(ValueError, match="a table of 'log'"):
        page(TEXT, {"machines": {}, "parts": {}})
    with pytest.raises(ValueError, match="no table of spark"):
        page(TEXT, {"machines": {}, "parts": {**figures(ROW)["parts"], "spark": []}})


def test_the_page_of_this_release_has_the_stored_figures() -> None:
    assert page(PAGE.read_text(), json.loads(FIGURES.read_text())) == PAGE.read_text()


def test_figures_of_a_run_replace_those_of_its_parts_only(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    program._store(path, {"log": [ROW], "spark": [ROW]}, {"cores": "2"})
    program._store(path, {"log": [ROW, ROW]}, {"cores": "4"})
    stored = json.loads(path.read_text())
    assert {part: len(rows) for part, rows in stored["parts"].items()} == {"log": 2, "spark": 1}
    assert {part: machine["cores"] for part, machine in stored["machines"].items()} == {
        "log": "4",
        "spark": "2",
    }
