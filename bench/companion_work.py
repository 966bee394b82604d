"""The work that `bench.companion` measures: questions put to an index of a Delta table, and its sync."""

import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import duckdb

import indextables
from bench import logs
from bench.engine_read_work import QUESTIONS, TEXT, ours
from bench.measure import Prepare

# Only the text column, and all columns.
INDEXES = {"text": ("message",), "all": None}


def make(folder: str, rows: int) -> dict[str, int]:
    """The same rows as a Delta table, as its indexes and as a table of ours; returns their sizes in bytes."""
    place = Path(folder)
    deltalake.write_deltalake(place / "delta", logs.reader(rows))
    for name, include in INDEXES.items():
        indextables.companion(place / "delta", at=place / name / "table", include=include, options=TEXT)
    indextables.write(place / "own" / "table", logs.reader(rows), options=TEXT)
    return {
        name: sum(file.stat().st_size for file in (place / name).rglob(pattern))
        for name, pattern in (
            ("delta", "*.parquet"),
            ("text", "*.split"),
            ("all", "*.split"),
            ("own", "*.split"),
        )
    }


def index(folder: str, question: str, state: str) -> Prepare:
    """A question asked of the index."""
    return ours(str(Path(folder) / "all"), question, state)


def table(folder: str, question: str, state: str) -> Prepare:
    """A question asked of a table of ours with the same rows."""
    return ours(str(Path(folder) / "own"), question, state)


def duck(folder: str, question: str, state: str) -> Prepare:
    """A question asked of DuckDB over the files of the Delta table."""
    del state
    asked = QUESTIONS[question]
    what = {"count": "count(*)", "groups": "level, count(*), avg(latency_ms)", "rows": "*"}[asked.what]
    tail = " GROUP BY level" if asked.what == "groups" else ""
    files = Path(folder) / "delta" / "*.parquet"
    statement = f"SELECT {what} FROM read_parquet('{files}') WHERE {asked.condition}{tail}"
    connection = duckdb.connect()

    def prepare() -> Callable[[], object]:
        return lambda: connection.sql(statement).to_arrow_table()

    return prepare


def sync(folder: str) -> Prepare:
    """Build an index of all columns of the Delta table."""
    place = Path(folder)

    def prepare() -> Callable[[], object]:
        shutil.rmtree(place / "built", ignore_errors=True)
        return lambda: indextables.companion(place / "delta", at=place / "built", options=TEXT)

    return prepare


def write(folder: str, rows: int) -> Prepare:
    """Write the same rows to a table of ours."""
    place = Path(folder)

    def prepare() -> Callable[[], object]:
        shutil.rmtree(place / "written", ignore_errors=True)
        return lambda: indextables.write(place / "written", logs.reader(rows), options=TEXT)

    return prepare
