"""Reading: needles, many hits, counts, groups and scans, beside DuckDB and Lance on the same rows."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.engine_read_work import QUESTIONS, make, make_lance
from bench.measure import Measured, measure
from bench.report import Row, Target

# Targets in milliseconds are for the first size, ratios for both.
DEFAULT_ROWS = (1_000_000, 5_000_000)
_HERE = "bench.engine_read_work:"
_SCANS = ("all", "one_column")


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Ask the same questions of so many log rows."""
    if importlib.util.find_spec("lance") is None:
        print(
            "Lance is not installed (pip install 'indextables[bench]'): its rows are left out",
            file=sys.stderr,
        )
    for count in (rows,) if rows else DEFAULT_ROWS:
        place = folder / str(count)
        place.mkdir()
        yield from _asked(place, count, runs, full=rows is None)


def _asked(folder: Path, count: int, runs: int, *, full: bool) -> Iterator[Row]:
    make(str(folder), count)
    has_lance = importlib.util.find_spec("lance") is not None
    smaller: tuple[Target, ...] = ()
    if has_lance:
        make_lance(str(folder), count)
        share = _size(folder / "table") / _size(folder / "lance")
        smaller = (Target(share, 1, "times the size of Lance's table and index"),)

    def measured(work: str, *arguments: object) -> Measured:
        return measure(_HERE + work, str(folder), *arguments, runs=runs)

    for name, (_, _, lance_query, _) in QUESTIONS.items():
        ours = measured("ours", name)
        beside = measured("lance", name) if has_lance and lance_query is not None else None
        title = f"{name} of {count:,} rows"
        if name in _SCANS:
            plain = measured("datafusion", name)
            limit = Target(ours.median_ms / plain.median_ms, 1.3, "times DataFusion")
            yield Row(f"{title}, beside DataFusion on plain Parquet", ours, plain, (limit,) if full else ())
            continue
        duck = measured("duck", name)
        targets = _targets(name, ours, duck, beside, first=count == DEFAULT_ROWS[0]) if full else ()
        yield Row(f"{title}, beside DuckDB on plain Parquet", ours, duck, targets)
        if beside is not None:
            yield Row(f"{title}, beside Lance", ours, beside, smaller if full and name == "needle" else ())
    for name in ("needle", "count"):
        yield Row(f"{name} of {count:,} rows, nothing cached", measured("ours", name, "cold"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _targets(
    name: str, ours: Measured, duck: Measured, lance: Measured | None, *, first: bool
) -> tuple[Target, ...]:
    faster = Target(duck.median_ms / ours.median_ms, 30, "times DuckDB's speed", at_least=True)
    match name:
        case "needle" if first:
            return (Target(ours.median_ms, 5, "ms"),)
        case "hundred" if lance is not None:
            return (Target(ours.median_ms / lance.median_ms, 2, "times Lance"),)
        case "count" | "groups":
            found = [faster]
            if first:
                found.append(Target(ours.median_ms, 3, "ms"))
            if lance is not None:
                speed = lance.median_ms / ours.median_ms
                found.append(Target(speed, 1, "times Lance's speed", at_least=True))
            return tuple(found)
        case _:
            return ()
