"""Small tables for tests of maintenance, with files of any age."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import indextables as it
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.options import Options
from indextables.store import open_store

TEXT = {"indexing.typemap.message": "text"}
HOUR = 3600.0


def appended(
    folder: Path | str, times: int, rows: Any = 3, partition_by: Any = ("day",), **options: Any
) -> it.Table:
    """A table after some appends; each goes into one partition, whose number it is."""
    table = None
    for n in range(times):
        data = [
            {"id": n * rows + i, "day": n, "message": f"append {n} row {i} said word{i}"} for i in range(rows)
        ]
        table = it.write(folder, data, partition_by=list(partition_by), options={**TEXT, **options})
    assert table is not None
    return table


@contextmanager
def running_job(kind: jobs.JobKind, table: str, options: Options) -> Iterator[jobs.Job]:
    """A job that lasts as long as the block, and fails if the block does."""
    job = jobs.begin(kind, table, options, status=jobs.JobStatus.RUNNING)
    try:
        yield job
    except BaseException as error:
        jobs.end(job.id, str(error))
        raise
    jobs.end(job.id)


def log_of(folder: Path | str, **options: object) -> TransactionLog:
    checked = Options.parse(options)
    return TransactionLog(open_store(folder, checked), checked, engine="test")


def ids(folder: Path | str, version: int | None = None) -> list[int]:
    return sorted(it.open(folder, version=version).scan(["id"])["id"].to_pylist())


def aged(folder: Path, hours: float) -> None:
    """Make every file older."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - hours * HOUR
            os.utime(path, (then, then))


def splits(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*.split")}


def orphan(folder: Path, name: str = "left-over.split", hours: float = 1000) -> Path:
    """A split that no version names."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 100)
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))
    return path
