"""The measurements run: what they find here, on tiny tables, means nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.splits import CONDITIONS, FEW_SPLITS

FIGURES = {"median_ms", "least_ms", "most_ms", "cpu_ms", "first_ms"}


def test_the_log_part_measures_everything_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "figures.json"
    assert main(["log", "--rows", "1000", "--runs", "1", "--json", str(found)]) == 0
    rows = {row["name"]: row for row in json.loads(found.read_text())["parts"]["log"]}
    plans = ("plan 1M cold, partition", "plan 1M warm, statistics")
    for promised in ("read 70K", "read 100K", "read 1M", "one partition of 1M", *plans, "compact 70K"):
        assert rows[promised]["others"]["DataFusion"]["ratio"] > 0
    assert all(row[figure] > 0 for row in rows.values() for figure in FIGURES)
    # Targets are for full sizes only.
    assert not any(row["targets"] for row in rows.values())
    printed = capsys.readouterr().out
    assert all(name in printed for name in rows)


def test_the_checksum_part_measures_everything_it_promises(tmp_path: Path) -> None:
    found = tmp_path / "figures.json"
    assert main(["checksums", "--rows", "1000", "--runs", "1", "--json", str(found)]) == 0
    rows = json.loads(found.read_text())["parts"]["checksums"]
    assert [row["name"] for row in rows] == [
        "scan all columns", "scan one text column", "scan two small columns", "fetch 300 rows",
    ]  # fmt: skip
    assert all(row["others"]["unverified"]["cpu_ms"] > 0 for row in rows)


def test_a_part_that_does_not_exist_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["logs"])
    assert "logs" in capsys.readouterr().err


def figures(part: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The figures of a part by name, measured with few rows in a process of its own: it starts a session."""
    found = folder / "figures.json"
    command = [sys.executable, "-m", "bench", part, "--rows", "2000", "--runs", "1", "--json", str(found)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return {row["name"]: row for row in json.loads(found.read_text())["parts"][part]}


@pytest.mark.spark
@pytest.mark.soak
def test_the_spark_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("spark", tmp_path)
    for promised in (
        "write",
        "needle",
        "count by hour",
        "10 best by score",
        "lookup by id",
        "join with 1,000 ids",
        "scan of all columns",
    ):
        assert rows[promised]["others"]["Parquet"]["ratio"] > 0
    assert not any(row["targets"] for row in rows.values())


@pytest.mark.spark
@pytest.mark.soak
def test_the_tpch_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("tpch", tmp_path)
    written = [f"write of {name}" for name in ("customer", "part", "partsupp", "orders", "lineitem")]
    assert list(rows) == [*written, *(f"query {number}" for number in range(1, 23)), "all queries"]
    assert all(row["others"]["Parquet"]["ratio"] > 0 for row in rows.values())
    total = sum(rows[f"query {number}"]["median_ms"] for number in range(1, 23))
    assert rows["all queries"]["median_ms"] == pytest.approx(total)
    assert not any(row["targets"] for row in rows.values())


@pytest.mark.spark
@pytest.mark.soak
def test_the_companion_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("companion", tmp_path)
    for question in ("needle", "hundred", "count", "groups", "percent"):
        assert set(rows[f"{question} of 2,000, warm"]["others"]) == {"our table", "DuckDB", "Spark"}
        assert rows[f"{question} of 2,000, in Spark"]["others"]["Spark"]["ratio"] > 0
    assert rows["sync of 2,000 rows"]["others"]["write"]["cpu_ms"] > 0
    assert not any(row["targets"] for row in rows.values())


@pytest.mark.spark
@pytest.mark.soak
def test_the_part_of_many_splits_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("splits", tmp_path)
    for name in CONDITIONS:
        for splits in FEW_SPLITS:
            assert rows[f"{name}, {splits} splits, Spark"]["median_ms"] > 0
            assert rows[f"{name}, {splits} splits, plain Python"]["cpu_ms"] > 0
    assert rows["one query of 8 clients, 10 splits, Spark"]["runs"] > 1
    assert not any(row["targets"] for row in rows.values())


@pytest.mark.spark
@pytest.mark.soak
def test_the_stream_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("stream", tmp_path)
    assert set(rows) == {
        "sink",
        "source",
        "source with a search",
        "1,000 rows searchable",
        "200 standing queries on 2,000 rows",
    }
    queries = rows["200 standing queries on 2,000 rows"]["others"]
    assert set(queries) == {
        f"{name}, {count}"
        for name in ("RLIKE", "brute force")
        for count in ("20 queries measured", "200 queries extrapolated")
    }
    for name in ("RLIKE", "brute force"):
        measured = queries[f"{name}, 20 queries measured"]["median_ms"]
        assert queries[f"{name}, 200 queries extrapolated"]["median_ms"] == pytest.approx(10 * measured)
    for name in ("sink", "source", "source with a search"):
        assert rows[name]["others"]["Parquet"]["ratio"] > 0
    assert not any(row["targets"] for row in rows.values())


@pytest.mark.server
@pytest.mark.soak
def test_the_lake_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = figures("lake", tmp_path)
    titles = {name.partition(" (")[0] for name in rows}
    questions = ("open", "needle", "one row by id", "absent word")
    assert titles == {
        *(f"{question}, {splits}" for question in questions for splits in ("1 split", "10 splits")),
        *(f"{question}, 100 splits" for question in ("open", "needle", "absent word")),
    }
    assert all("round trips" in name or "simulated" in name for name in rows)
    needle = next(row for name, row in rows.items() if name.startswith("needle, 1 split "))
    assert needle["others"]["DuckDB"]["ratio"] > 0
