"""The measurements of maintenance run: what they find here, on a tiny table, means nothing."""

from pathlib import Path

from bench.maintenance import run


def test_the_maintenance_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = list(run(tmp_path, rows=200, runs=1))
    assert [row.name for row in rows] == [
        "merge 4 splits of 50 rows",
        "convert 1 splits of the original, 200 rows each",
        "purge 200 orphans",
        "find the orphans among 200 files",
    ]
    assert all(row.ours.median_ms > 0 for row in rows)
    # Targets are for full sizes only.
    assert not any(row.targets for row in rows)
