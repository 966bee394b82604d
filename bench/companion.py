"""Companion indexes beside Spark and DuckDB that scan the same files, and our own table; size, and sync."""

from collections.abc import Iterator
from pathlib import Path

from bench.companion_work import SparkScans, make
from bench.measure import measure, ratio
from bench.report import Row, Target

DEFAULT_ROWS = 5_000_000
_WORK = "bench.companion_work"
_QUESTIONS = ("needle", "hundred", "count", "groups", "percent")


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Ask the same questions of an index, of Spark, of DuckDB and of a table with so many log rows."""
    count, full = rows or DEFAULT_ROWS, rows is None
    sizes = make(str(folder), count)
    with SparkScans(folder) as spark:
        for question in _QUESTIONS:
            scanned = spark.scan(question, runs)
            for state in ("warm", "cold") if full else ("warm",):
                index, table, duck = (
                    measure(f"{_WORK}:{work}", str(folder), question, state, runs=runs)
                    for work in ("index", "table", "duck")
                )
                others = {"our table": table, "DuckDB": duck, "Spark": scanned}
                yield Row(f"{question} of {count:,}, {state}", index, others)
            searched = spark.search(question, runs)
            yield Row(f"{question} of {count:,}, in Spark", searched, {"Spark": scanned})
    built = measure(f"{_WORK}:sync", str(folder), runs=runs)
    written = measure(f"{_WORK}:write", str(folder), runs=runs)
    yield Row(
        f"sync of {count:,} rows",
        built,
        {"write": written},
        (
            Target(ratio(built, written), 1, "times a write of the same rows"),
            Target(sizes["all"] / sizes["delta"], 0.35, "of the source's size, all columns indexed"),
            Target(sizes["text"] / sizes["delta"], 0.2, "of the source's size, text only"),
        )
        if full
        else (),
    )
