"""The work that `bench.companion` measures: questions put to an index of a Delta table, and its sync."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

import deltalake
import duckdb
from pyarrow import dataset

import indextables
from bench import logs
from bench.engine_read_work import QUESTIONS, TEXT, ours
from bench.measure import Measured, Prepare

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
    files = Path(folder) / "delta" / "*.parquet"
    statement = _statement(question, f"read_parquet('{files}')", QUESTIONS[question].condition)
    connection = duckdb.connect()

    def prepare() -> Callable[[], object]:
        return lambda: connection.sql(statement).to_arrow_table()

    return prepare


def _statement(question: str, table: str, condition: str) -> str:
    what = {"count": "count(*)", "groups": "level, count(*), avg(latency_ms)", "rows": "*"}
    asked = QUESTIONS[question].what
    tail = " GROUP BY level" if asked == "groups" else ""
    return f"SELECT {what[asked]} FROM {table} WHERE {condition}{tail}"


class SparkScans:
    """A session of Spark that answers questions from the files of the Delta table, or by the index."""

    def __init__(self, folder: Path) -> None:
        """Start the session."""
        from bench import spark_work  # noqa: PLC0415 - other measurements need no session

        self._timed = spark_work.timed
        self._spark = spark_work.session(folder)
        self._spark.read.parquet(*map(str, (folder / "delta").glob("*.parquet"))).createOrReplaceTempView(
            "files"
        )
        index = str(folder / "all" / "table")
        self._spark.read.format("indextables").load(index).createOrReplaceTempView("companion")

    def scan(self, question: str, runs: int) -> Measured:
        """A question answered by a scan with LIKE."""
        return self._measure(_statement(question, "files", QUESTIONS[question].condition), runs)

    def search(self, question: str, runs: int) -> Measured:
        """A question answered by the index."""
        condition = f"message INDEXQUERY '{QUESTIONS[question].query}'"
        return self._measure(_statement(question, "companion", condition), runs)

    def _measure(self, statement: str, runs: int) -> Measured:
        return self._timed(lambda: lambda: self._spark.sql(statement).toArrow(), runs)

    def __enter__(self) -> Self:
        """The session."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Stop the session."""
        self._spark.stop()


def sync(folder: str) -> Prepare:
    """Build an index of all columns of the Delta table."""
    place = Path(folder)

    def prepare() -> Callable[[], object]:
        shutil.rmtree(place / "built", ignore_errors=True)
        return lambda: indextables.companion(place / "delta", at=place / "built", options=TEXT)

    return prepare


def write(folder: str) -> Prepare:
    """Write the rows of the same files to a table of ours."""
    place = Path(folder)
    files = dataset.dataset(list(map(str, (place / "delta").glob("*.parquet"))))

    def prepare() -> Callable[[], object]:
        shutil.rmtree(place / "written", ignore_errors=True)
        return lambda: indextables.write(place / "written", files.scanner().to_reader(), options=TEXT)

    return prepare
