"""Splits: how fast they are written and merged, and how large they are."""

from collections.abc import Iterator
from pathlib import Path

from bench.engine_write_work import SOURCES, filter_figures, make_rows, make_sources, write_split
from bench.measure import Measured, measure
from bench.report import Row, Target

DEFAULT_ROWS = 1_000_000
# The long write, to show that memory does not grow with the rows.
_TIMES = 5
_HERE = "bench.engine_write_work:"
# Term filters are measured in splits of all rows, and of these parts of them.
_SHARES = (1, 5, 50, 250)


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
    others = {"bare Tantivy": bare}
    ratios = {}
    for codec in ("snappy", "zstd"):
        plain = folder / f"{codec}.parquet"
        others[f"Parquet, {codec}"] = measured("plain_parquet", made, plain, codec)
        ratios[codec] = size / plain.stat().st_size
    targets = (
        Target(bare.median_ms / ours.median_ms, 0.8, "times the bare loop", at_least=True),
        # Spark compresses Parquet with Snappy unless a session says otherwise.
        Target(ratios["snappy"], 1.6, "times Parquet with Snappy in size"),
    )
    sizes = ", ".join(f"{ratio:.2f} times Parquet with {codec}" for codec, ratio in ratios.items())
    yield Row(f"write {count:,} rows ({sizes} in size)", ours, others, targets if full else ())
    long = measured("write", made, folder / "b.split", _TIMES)
    flat = (Target(long.peak_mb / ours.peak_mb, 1.2, f"times the memory of {count:,}"),)
    yield Row(f"write {_TIMES * count:,} rows", long, {}, flat if full else ())
    for rows_each in (max(1, count // share) for share in _SHARES):
        yield _filters(made, folder / "filters", rows_each, full=full)
    make_sources(made, folder / "sources")
    merged = measured("merge", folder / "sources")
    speed = (Target(count / merged.median_ms, 500, "rows a millisecond", at_least=True),)
    yield Row(f"merge {SOURCES} splits of {count // SOURCES:,} rows", merged, {}, speed if full else ())


def _filters(made: Path, folder: Path, rows: int, *, full: bool) -> Row:
    """What term filters of splits with so many rows take, and how many other terms pass them."""
    figures = filter_figures(made, folder, rows)
    passing = ", ".join(
        f"{share:.2%} of other terms of {column}" for column, share in figures.passing.items()
    )
    targets = (
        Target(100 * figures.size_share, 2, "% of the split"),
        Target(100 * figures.cpu_share, 5, "% of the write"),
    )
    return Row(f"term filters of {rows:,} rows ({passing} pass)", figures.write, {}, targets if full else ())
