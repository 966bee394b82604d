"""`python -m bench [part ...]`: measure, and print figures, targets and ratios."""

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
    "companion": "bench.companion",
    "startup": "bench.startup",
    "spark": "bench.spark",
    "tpch": "bench.tpch",
    "splits": "bench.splits",
    "stream": "bench.stream",
    "lake": "bench.lake",
    "stream-hour": "bench.stream_hour",
}
# Parts that run only if they are named.
_LONG = ("stream-hour",)

_LIBRARIES = ("datafusion", "pyarrow", "numpy", "tantivy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts and print the results. A missed target is reported, but is no failure."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    environment = _environment()
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    results: dict[str, list[Row]] = {}
    for part in options.parts or [part for part in PARTS if part not in _LONG]:
        results[part] = _run(part, options)
        print(f"\n{part}: medians of {options.runs} runs\n\n{table(results[part])}", flush=True)
    if options.json:
        _store(options.json, results, environment)
    missed = [row.name for rows in results.values() for row in rows if not all(t.met for t in row.targets)]
    if missed:
        print(f"\ntargets missed: {', '.join(missed)}")
    return 0


def _store(path: Path, results: Mapping[str, Sequence[Row]], environment: Mapping[str, str]) -> None:
    """Write the figures to a file; those of parts that were not measured now stay."""
    figures = json.loads(path.read_text()) if path.exists() else {"machines": {}, "parts": {}}
    for part, rows in results.items():
        figures["machines"][part] = dict(environment)
        figures["parts"][part] = [row.values() for row in rows]
    path.write_text(json.dumps(figures, indent=1) + "\n")


def _run(part: str, options: argparse.Namespace) -> list[Row]:
    measured = []
    sizes = {"rows": options.rows} | ({"scale": options.scale} if part == "tpch" else {})
    with tempfile.TemporaryDirectory(prefix="indextables-bench-") as folder:
        for row in importlib.import_module(PARTS[part]).run(Path(folder), runs=options.runs, **sizes):
            measured.append(row)
            print(f"  {row.name}: {row.ours.median_ms:,.1f} ms", file=sys.stderr, flush=True)
    return measured


def _environment() -> dict[str, str]:
    values = {"cores": str(os.cpu_count()), "load": f"{os.getloadavg()[0]:.1f}"}
    values["Python"] = platform.python_version()
    return values | {library: version(library) for library in _LIBRARIES}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the engine.")
    parser.add_argument("parts", nargs="*", help=f"the parts to measure, by default all: {', '.join(PARTS)}")
    parser.add_argument(
        "--rows",
        type=_positive,
        help="the size of the largest table; targets apply to the default only",
    )
    parser.add_argument(
        "--scale", type=_scale, metavar="N", help="the scale factor of the part tpch (default 1)"
    )
    parser.add_argument(
        "--runs",
        type=_positive,
        default=5,
        help="the number of runs for a median (default 5)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures to this file as JSON; those of other parts in it stay",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number from 1 on")
    return number


def _scale(text: str) -> float:
    number = float(text)
    if not 0 < number <= 100:
        raise argparse.ArgumentTypeError(f"{number:g} is not a number above 0, and at most 100")
    return number


if __name__ == "__main__":
    sys.exit(main())
