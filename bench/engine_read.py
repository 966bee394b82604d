"""Reading: needles, many hits, counts, groups and scans, beside DuckDB and Lance on the same rows."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.engine_read_work import QUESTIONS, make, make_lance
from bench.measure import Measured, measure
from bench.report import Row, Target

DEFAULT_ROWS = 1_000_000
_HERE = "bench.engine_read_work:"
_SCANS = ("all", "one_column")


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Ask the same questions of so many log rows."""
    count = rows or DEFAULT_ROWS
    full = count == DEFAULT_ROWS
    make(str(folder), count)
    has_lance = importlib.util.find_spec("lance") is not None
    if has_lance:
        make_lance(str(folder), count)
    else:
        print(
            "Lance is not installed (pip install 'indextables[bench]'): its rows are left out",
            file=sys.stderr,
        )

    def measured(work: str, *arguments: object) -> Measured:
        return measure(_HERE + work, str(folder), *arguments, runs=runs)

    for name, (_, _, lance_query, _) in QUESTIONS.items():
        ours = measured("ours", name)
        beside = measured("lance", name) if has_lance and lance_query is not None else None
        if name in _SCANS:
            plain = measured("datafusion", name)
            limit = Target(ours.median_ms / plain.median_ms, 1.3, "times DataFusion")
            yield Row(f"{name}, beside DataFusion on plain Parquet", ours, plain, (limit,) if full else ())
            continue
        duck = measured("duck", name)
        yield Row(
            f"{name}, beside DuckDB on plain Parquet",
            ours,
            duck,
            _targets(name, ours, duck, beside) if full else (),
        )
        if beside is not None:
            yield Row(f"{name}, beside Lance", ours, beside)
    for name in ("needle", "count"):
        yield Row(f"{name}, nothing cached", measured("ours", name, "cold"))


def _targets(name: str, ours: Measured, duck: Measured, lance: Measured | None) -> tuple[Target, ...]:
    match name:
        case "needle":
            return (Target(ours.median_ms, 5, "ms"),)
        case "hundred":
            return (
                (Target(ours.median_ms / lance.median_ms, 2, "times Lance"),)
                if lance
                else (Target(ours.median_ms, 17, "ms"),)
            )
        case "count" | "groups":
            faster = Target(duck.median_ms / ours.median_ms, 30, "times DuckDB's speed", at_least=True)
            return (Target(ours.median_ms, 3, "ms"), faster)
        case _:
            return ()
