"""Splits: how fast they are written and merged, and how large they are."""

from collections.abc import Iterator
from pathlib import Path

from bench.engine_write_work import SOURCES, make_rows, make_sources, write_split
from bench.measure import Measured, measure
from bench.report import Row, Target

DEFAULT_ROWS = 1_000_000
# The long write, to show that memory does not grow with the rows.
_TIMES = 5
_HERE = "bench.engine_write_work:"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Measure writing and merging of so many log rows in a folder."""
    count = rows or DEFAULT_ROWS
    full = count == DEFAULT_ROWS
    made = make_rows(folder / "rows.arrow", count)

    def measured(work: str, *arguments: object) -> Measured:
        return measure(_HERE + work, *map(str, arguments), runs=runs)

    bare = measured("bare_tantivy", made, folder / "bare")
    ours = measured("write", made, folder / "a.split", 1)
    size = write_split(made, folder / "a.split")
    plain = measured("plain_parquet", made, folder / "plain.parquet")
    shares = size / (folder / "plain.parquet").stat().st_size
    targets = (
        Target(bare.median_ms / ours.median_ms, 0.8, "times the bare loop", at_least=True),
        Target(shares, 1.7, "times plain Parquet in size"),
    )
    others = {"bare Tantivy": bare, "plain Parquet": plain}
    yield Row(f"write {count:,} rows", ours, others, targets if full else ())
    long = measured("write", made, folder / "b.split", _TIMES)
    flat = (Target(long.peak_mb / ours.peak_mb, 1.2, f"times the memory of {count:,}"),)
    yield Row(f"write {_TIMES * count:,} rows", long, {}, flat if full else ())
    make_sources(made, folder / "sources")
    merged = measured("merge", folder / "sources")
    speed = (Target(count / merged.median_ms, 500, "rows a millisecond", at_least=True),)
    yield Row(f"merge {SOURCES} splits of {count // SOURCES:,} rows", merged, {}, speed if full else ())
