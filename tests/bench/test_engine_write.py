"""The measurements of splits run: what they find here, on a tiny table, means nothing."""

from pathlib import Path

from bench.engine_write import run


def test_the_write_part_measures_everything_it_promises(tmp_path: Path) -> None:
    rows = list(run(tmp_path, rows=320, runs=1))
    titles = [row.name.partition(" (")[0] for row in rows]
    assert titles == [
        "write 320 rows",
        "write 1,600 rows",
        "term filters of 320 rows",
        "term filters of 64 rows",
        "term filters of 6 rows",
        "term filters of 1 rows",
        "merge 16 splits of 20 rows",
    ]
    assert list(rows[0].others) == ["bare Tantivy", "Parquet, snappy", "Parquet, zstd"]
    assert "times Parquet with snappy" in rows[0].name
    assert "of other terms of message" in rows[2].name
    assert all(row.ours.median_ms > 0 for row in rows)
    # Targets are for full sizes only.
    assert not any(row.targets for row in rows)
