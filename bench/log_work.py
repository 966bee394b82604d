"""The pieces of work of the log's measurements, and the tables they work on."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
from datafusion import SessionContext

from bench.entries import (
    DOC_MAPPING,
    DOC_MAPPING_REF,
    SCHEMA_STRING,
    day_text,
    entries,
    first_id,
)
from bench.measure import Prepare
from indextables.log.checkpoint import checkpoint
from indextables.log.conflict import Draft
from indextables.log.environment import Environment
from indextables.log.format.actions import REGISTRY_PREFIX, Metadata, Remove
from indextables.log.format.files import to_adds
from indextables.log.format.names import LOG_FOLDER, MANIFEST_FOLDER
from indextables.log.format.version_file import unpack
from indextables.log.load import Loader
from indextables.log.snapshot import BaseState
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import And, Column, Compare, Op, Predicate
from indextables.read.table_context import plan_splits, table_context
from indextables.store import open_store

_ENGINE = "indextables bench"

# --- tables ----------------------------------------------------------------------------------------


def build(folder: Path, files: int, *, partitions: int, **options: object) -> Path:
    """A table with a state, or a JSON checkpoint, of so many files at version 0."""
    log = open_log(folder, **options)
    created = log.create(
        Metadata(
            id="bench",
            schema_string=SCHEMA_STRING,
            partition_columns=["day"],
            configuration={REGISTRY_PREFIX + DOC_MAPPING_REF: DOC_MAPPING},
        )
    )
    assert created is not None
    file_list = entries(files, partitions=partitions)
    full = replace(created, base=BaseState(0, file_list=file_list))
    checkpoint(Loader(log.store.at(LOG_FOLDER), log.options), full, Environment(), compact=True)
    return folder


def wear(folder: Path, *, adds: int, steps: int, removes: int, partitions: int) -> Path:
    """Age a table: more files in manifests of their own, and some of the first ones removed."""
    log = open_log(folder, **{"checkpoint.interval": 1, "state.compaction.tombstoneThreshold": 1})
    first = log.snapshot().files().slice(0, removes)
    for step in range(steps):
        more = entries(adds, partitions=partitions, start=(step + 1) * 10_000_000)
        log.commit(Draft(operation="WRITE", adds=tuple(to_adds(more))), log.snapshot())
    gone = zip(first["path"].to_pylist(), first["size"].to_pylist(), strict=True)
    removed = tuple(Remove(path=path, size=size, data_change=True) for path, size in gone)
    log.commit(Draft(operation="DELETE", removes=removed), log.snapshot())
    return folder


def open_log(folder: str | Path, **options: object) -> TransactionLog:
    """The log of a table, as a process that opens it finds it."""
    return TransactionLog(open_store(folder), Options.parse(options), engine=_ENGINE)


# --- work ------------------------------------------------------------------------------------------


def read(folder: str, options: dict[str, object]) -> Prepare:
    """Open a table and list all its live files, nothing being cached."""
    return _cold(lambda: open_log(folder, **options).snapshot().files())


def read_partition(folder: str, day: int) -> Prepare:
    """The same for the files of one partition."""
    where = _on_day(day)
    return _cold(lambda: open_log(folder).snapshot().files(where))


def plan_partition(folder: str, day: int) -> Prepare:
    """The files of one partition, of a table whose list is known already."""
    return _warm(folder, _on_day(day))


def plan_statistics(folder: str, split: int) -> Prepare:
    """The files whose statistics allow one value, of a table whose list is known already."""
    return _warm(folder, Compare(Op.EQ, Column(("id",)), pa.scalar(first_id(split))))


def plan_both(folder: str, day: int, split: int) -> Prepare:
    """The files that a condition on the partition and one on statistics leave."""
    low = Compare(Op.GE, Column(("id",)), pa.scalar(first_id(split)))
    high = Compare(Op.LT, Column(("id",)), pa.scalar(first_id(split + 1)))
    return _warm(folder, And((_on_day(day), low, high)))


def plan_cold(folder: str, day: int | None, split: int | None) -> Prepare:
    """The table and the splits of one partition, or with one value, nothing being cached."""
    where = _condition(day, split)
    return _cold(lambda: _planned(open_log(folder), where))


def plan_warm(folder: str, day: int | None, split: int | None) -> Prepare:
    """The same after an earlier query with another condition of this kind."""
    log = open_log(folder)
    _planned(log, _condition(None if day is None else day + 1, None if split is None else split + 1))
    where = _condition(day, split)
    return lambda: lambda: _planned(log, where)


def _condition(day: int | None, split: int | None) -> Predicate:
    if day is not None:
        return _on_day(day)
    assert split is not None
    return Compare(Op.EQ, Column(("id",)), pa.scalar(first_id(split)))


def _planned(log: TransactionLog, where: Predicate) -> int:
    snapshot = log.snapshot()
    table_context(snapshot, log.options)
    return len(plan_splits(snapshot, where, log.options).splits)


def add_files(folder: str, files: int, partitions: int) -> Prepare:
    """Commit more files to a table and write the state of the new version."""
    adds = tuple(to_adds(entries(files, partitions=partitions, start=900_000_000)))
    fresh = _copies(folder)

    def prepare() -> Callable[[], object]:
        log = open_log(fresh(), **{"checkpoint.interval": 1})
        base = log.snapshot()
        return lambda: log.commit(Draft(operation="WRITE", adds=adds), base)

    return prepare


def compact(folder: str) -> Prepare:
    """Write a compacted state of a table that has tombstones and unsorted manifests."""
    fresh = _copies(folder)

    def prepare() -> Callable[[], object]:
        log = open_log(fresh())
        invalidate()
        return lambda: log.checkpoint(compact=True)

    return prepare


def read_bare(folder: str) -> Prepare:
    """The manifests of a table read by DataFusion alone: unchecked, tombstones and doubles included."""
    manifests = f"{folder}/{LOG_FOLDER}/{MANIFEST_FOLDER}/"
    return lambda: lambda: SessionContext().read_avro(manifests).to_arrow_table()


def read_bare_json(folder: str) -> Prepare:
    """The lines of a JSON checkpoint, unpacked beforehand, read by DataFusion alone."""
    lines = f"{folder}/lines.json"
    log = Path(folder, LOG_FOLDER)
    parts = sorted(log.glob("*.checkpoint.*.*.json")) or sorted(log.glob("*.checkpoint.json"))
    Path(lines).write_bytes(b"".join(unpack(part.read_bytes(), str(part)) for part in parts))
    return lambda: lambda: SessionContext().read_json(lines).to_arrow_table()


def _on_day(day: int) -> Predicate:
    value = pa.scalar(day_text(day)).cast(pa.date32())
    return Compare(Op.EQ, Column(("day",)), value)


def _cold(act: Callable[[], object]) -> Prepare:
    def prepare() -> Callable[[], object]:
        invalidate()
        return act

    return prepare


def _warm(folder: str, where: Predicate) -> Prepare:
    log = open_log(folder)
    log.snapshot().files()
    return lambda: lambda: log.snapshot().files(where)


def _copies(folder: str) -> Callable[[], str]:
    """Gives a new copy of a table each time; the one before is deleted."""
    copy = f"{folder}-copy"
    numbers = count()

    def fresh() -> str:
        # A name of its own each time: the engine's caches know tables by their place.
        shutil.rmtree(copy, ignore_errors=True)
        return str(shutil.copytree(folder, f"{copy}/{next(numbers)}"))

    return fresh
