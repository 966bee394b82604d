"""Maintenance: merging small splits, converting those of the original, deleting files, a long listing."""

from collections.abc import Iterator
from pathlib import Path

from bench.maintenance_work import make_original_table, make_table
from bench.measure import Measured, measure
from bench.report import Row, Target

DEFAULT_ROWS = 400_000
_SPLITS = 200
_ORPHANS = 100_000
_LISTED = 1_000_000
_HERE = "bench.maintenance_work:"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Measure the maintenance of a table of so many log rows."""
    count = rows or DEFAULT_ROWS
    full = count == DEFAULT_ROWS
    splits = _SPLITS if full else 4
    orphans, listed = (_ORPHANS, _LISTED) if full else (count, count)

    def measured(work: str, *arguments: object) -> Measured:
        return measure(_HERE + work, *map(str, arguments), runs=runs)

    make_table(folder / "table", count, splits)
    merged = measured("merge", folder / "table", folder / "merged")
    written = measured("rewrite", folder / "table", folder / "rewritten")
    speed = (Target(written.median_ms / merged.median_ms, 1, "times as fast as writing anew", at_least=True),)
    name = f"merge {splits} splits of {count // splits:,} rows"
    yield Row(name, merged, {"writing anew": written}, speed if full else ())
    originals = splits // 10 or 1
    make_original_table(folder / "original", count, originals)
    converted = measured("convert", folder / "original", folder / "converted")
    yield Row(f"convert {originals} splits of the original, {count // originals:,} rows each", converted)
    yield Row(f"purge {orphans:,} orphans", measured("purge", folder / "table", orphans))
    listing = measured("listing", listed)
    memory = (Target(listing.peak_mb, 200, "MB"),)
    yield Row(f"find the orphans among {listed:,} files", listing, {}, memory if full else ())
