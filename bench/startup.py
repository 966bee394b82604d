"""Start-up: commands of the program and the import of the package, from the start of a process to its end.

Beside them: Python that does nothing, DuckDB with a query, and the version of ripgrep. Targets are for
CPU time, which other work on the machine changes less.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Measured, measure_command
from bench.report import Row, Target

_PROGRAM = (sys.executable, "-m", "indextables.cli")
_DUCKDB = "import duckdb; duckdb.sql('SELECT 1').fetchall()"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Measure start-up; the search is on a table of so many rows (1,000) in twelve versions."""
    table = str(folder / "table")
    _make_table(table, rows or 1000)
    others = {"python -c pass": measure_command(sys.executable, "-c", "pass", runs=runs)}
    others["DuckDB"] = measure_command(sys.executable, "-c", _DUCKDB, runs=runs)
    if shutil.which("rg") is not None:
        others["rg --version"] = measure_command("rg", "--version", runs=runs)
    for name, command, limit_ms in (
        ("indextables --version", (*_PROGRAM, "--version"), 150),
        ("indextables --help", (*_PROGRAM, "--help"), 150),
        ("import indextables", (sys.executable, "-c", "import indextables"), 250),
        ("indextables search", (*_PROGRAM, "search", table, "timeout"), 400),
    ):
        ours: Measured = measure_command(*command, runs=runs)
        yield Row(name, ours, others, (Target(ours.cpu_ms, limit_ms, "ms of CPU"),))


def _make_table(path: str, rows: int) -> None:
    import indextables  # noqa: PLC0415 - the other commands are measured without it

    options = {"indexing.typemap.message": "text"}
    for version in range(12):
        messages = [f"timeout {version} {row}" for row in range(max(rows // 12, 1))]
        indextables.write(path, {"message": messages}, options=options)
