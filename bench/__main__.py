"""`python -m bench [part ...]`: measure, and print figures, targets and ratios."""

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench.report import Row, table

# Each part is a module with `run(folder, *, rows, runs)`, which yields rows.
PARTS = {
    "log": "bench.log",
    "engine-write": "bench.engine_write",
    "engine-read": "bench.engine_read",
    "checksums": "bench.checksums",
    "maintenance": "bench.maintenance",
    "startup": "bench.startup",
    "spark": "bench.spark",
}

_LIBRARIES = ("datafusion", "pyarrow", "numpy", "tantivy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for. A missed target is said, but is no failure: machines differ."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    machine = _machine()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    found: dict[str, list[Row]] = {}
    for part in asked.parts or PARTS:
        found[part] = _run(part, asked.rows, asked.runs)
        print(f"\n{part}: medians of {asked.runs} runs\n\n{table(found[part])}", flush=True)
    if asked.json:
        values = {part: [row.values() for row in rows] for part, rows in found.items()}
        asked.json.write_text(json.dumps({"machine": machine, "parts": values}, indent=2) + "\n")
    missed = [row.name for rows in found.values() for row in rows if not all(t.met for t in row.targets)]
    if missed:
        print(f"\ntargets missed: {', '.join(missed)}")
    return 0


def _run(part: str, rows: int | None, runs: int) -> list[Row]:
    found = []
    with tempfile.TemporaryDirectory(prefix="indextables-bench-") as folder:
        for row in importlib.import_module(PARTS[part]).run(Path(folder), rows=rows, runs=runs):
            found.append(row)
            print(f"  {row.name}: {row.ours.median_ms:,.1f} ms", file=sys.stderr, flush=True)
    return found


def _machine() -> dict[str, str]:
    named = {"cores": str(os.cpu_count()), "load": f"{os.getloadavg()[0]:.1f}"}
    named["Python"] = platform.python_version()
    return named | {library: version(library) for library in _LIBRARIES}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the engine.")
    parser.add_argument("parts", nargs="*", help=f"which parts: {', '.join(PARTS)}")
    parser.add_argument(
        "--rows", type=_positive, help="size of a part's largest table; targets need the default"
    )
    parser.add_argument("--runs", type=_positive, default=5, help="runs a median is taken of (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there for programs")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number from 1 on")
    return number


if __name__ == "__main__":
    sys.exit(main())
