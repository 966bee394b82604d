"""Reading: needles, many hits, counts, groups and scans, beside others on the same rows, warm and cold."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import paimon
from bench.engine_read_work import QUESTIONS, Question, make, make_lance
from bench.measure import Measured, measure, ratio
from bench.report import Row, Target

# Targets in milliseconds are for the first size, ratios for both.
DEFAULT_ROWS = (1_000_000, 5_000_000)
# How many values the lists have that are asked for.
LISTS = (1_000, 10_000, 100_000)
_WORK = "bench.engine_read_work"
# A warm question is asked for so long before it is measured.
_WARM_SECONDS = 1


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Ask the same questions of so many log rows."""
    others = {"DuckDB": "duck", "Lance": "lance", "DataFusion": "datafusion"}
    if importlib.util.find_spec("lance") is None:
        del others["Lance"]
        print(
            "Lance is not installed (pip install 'indextables[bench]'): its figures are left out",
            file=sys.stderr,
        )
    interpreter = paimon.python()
    for count in (rows,) if rows else DEFAULT_ROWS:
        place = folder / str(count)
        place.mkdir()
        make(str(place), count)
        if "Lance" in others:
            make_lance(str(place), count)
        if interpreter is not None:
            measure("bench.paimon_work:make", str(place), runs=1, python=interpreter)
        # What was written goes to the disk now, not while questions are measured.
        os.sync()
        yield from _Bench(place, count, runs, others, interpreter, full=rows is None).rows()


class _Bench:
    def __init__(
        self,
        folder: Path,
        count: int,
        runs: int,
        others: Mapping[str, str],
        paimon_python: Path | None,
        *,
        full: bool,
    ) -> None:
        self.paimon_python = paimon_python
        self.folder = folder
        self.count = count
        self.runs = runs
        self.others = others
        self.full = full

    def rows(self) -> Iterator[Row]:
        """Every question warm, then every question cold."""
        for state in ("warm", "cold"):
            for name, question in QUESTIONS.items():
                ours = self._measured("ours", name, state)
                others = {
                    other: self._measured(work, name, state)
                    for other, work in self.others.items()
                    if question.is_scan or other != "DataFusion"
                }
                # Its index knows no wildcards, and it has no regular expressions either.
                if self.paimon_python is not None and name != "wildcard":
                    others["PyPaimon"] = self._paimon(question, state, self.paimon_python)
                targets = self._targets(name, ours, others) if self.full and state == "warm" else ()
                yield Row(f"{name} of {self.count:,}, {state}", ours, others, targets)

        yield from self._lists()

    def _lists(self) -> Iterator[Row]:
        """Long lists of values, beside reading the column and looking its values up in the list."""
        for size in LISTS:
            ours = measure(f"{_WORK}:listed", str(self.folder), size, runs=self.runs)
            column = measure(f"{_WORK}:column_and_list", str(self.folder), size, runs=self.runs)
            limit = Target(ratio(ours, column), 1.2, "times reading and filtering the column")
            name = f"list of {size:,} values of {self.count:,}, warm"
            yield Row(name, ours, {"column": column}, (limit,) if self.full else ())

    def _measured(self, work: str, name: str, state: str) -> Measured:
        warm = _WARM_SECONDS if self.full and state == "warm" else 0
        return measure(f"{_WORK}:{work}", str(self.folder), name, state, runs=self.runs, warm_seconds=warm)

    def _paimon(self, question: Question, state: str, python: Path) -> Measured:
        work, warm = "bench.paimon_work:ask", _WARM_SECONDS if self.full and state == "warm" else 0
        asked = (str(self.folder), question.what, question.query, state)
        return measure(work, *asked, runs=self.runs, warm_seconds=warm, python=python)

    def _targets(self, name: str, ours: Measured, others: Mapping[str, Measured]) -> tuple[Target, ...]:
        found = list(targets(name, ours, others, in_ms=self.count == DEFAULT_ROWS[0]))
        if name == "needle" and "Lance" in others:
            share = _size(self.folder / "table") / _size(self.folder / "lance")
            found.append(Target(share, 1, "times the size of Lance's table and index"))
        return tuple(found)


def targets(name: str, ours: Measured, others: Mapping[str, Measured], *, in_ms: bool) -> Iterator[Target]:
    """What a warm question should take, alone (in milliseconds) and beside others."""
    limits = {"needle": 5, "count": 3, "groups": 3}
    if in_ms and name in limits:
        yield Target(ours.median_ms, limits[name], "ms")
    if name in ("count", "groups"):
        yield Target(1 / ratio(ours, others["DuckDB"]), 30, "times DuckDB's speed", at_least=True)
        if "Lance" in others:
            yield Target(1 / ratio(ours, others["Lance"]), 1, "times Lance's speed", at_least=True)
    if name == "hundred" and "Lance" in others:
        yield Target(ratio(ours, others["Lance"]), 2, "times Lance")
    if "DataFusion" in others:
        yield Target(ratio(ours, others["DataFusion"]), 1.3, "times DataFusion")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
