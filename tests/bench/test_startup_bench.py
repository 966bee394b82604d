"""The measurements of start-up run; what they find on a busy machine means nothing."""

from pathlib import Path

from bench.startup import run


def test_the_startup_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = list(run(tmp_path, rows=24, runs=1))
    assert [row.name for row in rows] == [
        "indextables --version",
        "indextables --help",
        "import indextables",
        "indextables search",
    ]
    for row in rows:
        assert row.ours.cpu_ms > 0
        assert {"python -c pass", "DuckDB"} <= row.others.keys()
        assert row.targets
