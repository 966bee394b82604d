"""The figures of the page."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.maintain.figures import StateFigures
from indextables.maintain.purge import PurgeOutcome
from indextables.split.index.cache import CacheStats
from indextables.table import Table

_SHOWN = 20
# Below this size, and if there are several of them in a partition, merging is worth it.
SMALL = 64 << 20


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its length, the figure beside it, and what a reader is told of it."""

    name: str
    value: float
    shown: str
    told: str


@dataclass(frozen=True, slots=True)
class Point:
    """The table at one version."""

    version: int
    bytes: int
    splits: int
    operation: str
    time: dt.datetime

    @property
    def appends(self) -> bool:
        """Whether the version only added rows, as most do."""
        return self.operation == "WRITE"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, what it is for, and in how many splits its bounds are known."""

    name: str
    type: str
    role: str
    coverage: float
    least: str | None
    greatest: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the page shows."""

    url: str
    version: int
    rows: int
    splits: int
    bytes: int
    partition_columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    columns: tuple[Column, ...]
    by_size: tuple[Bar, ...]
    by_partition: tuple[Bar, ...]
    partitions: int
    mergeable: int
    growth: tuple[Point, ...]
    history: tuple[dict[str, Any], ...]
    state: StateFigures
    skipped: int
    orphans: PurgeOutcome
    cache: CacheStats
    made: dt.datetime


def table_context(table: Table) -> Facts:
    """Gather the figures; the table's folder is listed, and nothing is changed."""
    files = table.files()
    history = table.history().to_pylist()
    size = pc.sum(files["size"]).as_py() or 0
    names = _partitions(files)
    return Facts(
        url=table.url,
        version=table.version,
        rows=table.count(),
        splits=files.num_rows,
        bytes=size,
        partition_columns=table.partition_columns,
        text_columns=table.text_columns,
        columns=tuple(_columns(table)),
        by_size=tuple(_by_size(files)),
        by_partition=tuple(_by_partition(files, names)),
        partitions=len(set(names)),
        mergeable=_mergeable(files, names),
        growth=tuple(_growth(history, files.num_rows, size))[::-1],
        history=tuple(history[:_SHOWN]),
        state=table.state(),
        skipped=table.skipped_splits,
        orphans=table.purge(dry_run=True),
        cache=table.cache_statistics(),
        made=dt.datetime.now(dt.UTC),
    )


def _partitions(files: pa.Table) -> list[str]:
    """The partition of each split: the values of its columns."""
    return [
        " / ".join("null" if value is None else str(value) for _, value in entry or ()) or "the whole table"
        for entry in files["partitionValues"].to_pylist()
    ]


def _columns(table: Table) -> Iterator[Column]:
    """The columns, as the table has them."""
    partitions, texts = set(table.partition_columns), set(table.text_columns)
    for found in table.data_skipping():
        role = "partition" if found.column in partitions else "text" if found.column in texts else ""
        coverage = found.with_bounds / found.splits if found.splits else 0.0
        yield Column(found.column, found.data_type, role, coverage, found.least, found.greatest)


def _by_size(files: pa.Table) -> Iterator[Bar]:
    """How many splits there are of each size, in steps of four."""
    sizes = np.maximum(files["size"].to_numpy(), 1)
    steps = np.floor(np.log2(sizes) / 2).astype(int) if len(sizes) else np.zeros(0, int)
    for step in range(steps.min(), steps.max() + 1) if len(steps) else ():
        count = int((steps == step).sum())
        name = f"{short(4**step)} - {short(4 ** (step + 1))}"
        held = short(int(sizes[steps == step].sum()))
        yield Bar(name, count, f"{count:,}", f"{counted(count, 'split')} of {name}, {held} together")


def _by_partition(files: pa.Table, names: list[str]) -> Iterator[Bar]:
    sums: dict[str, list[int]] = {}
    for name, size in zip(names, files["size"].to_pylist(), strict=True):
        entry = sums.setdefault(name, [0, 0])
        entry[0] += size
        entry[1] += 1
    largest = sorted(sums.items(), key=lambda item: -item[1][0])[:_SHOWN]
    for name, (size, count) in largest:
        told = f"{short(size)} in {counted(count, 'split')}"
        yield Bar(name, size, told, f"{name}: {told}")


def _mergeable(files: pa.Table, names: list[str]) -> int:
    """How many small splits share their partition with another small one."""
    small: dict[str, int] = {}
    for name, size in zip(names, files["size"].to_pylist(), strict=True):
        small[name] = small.get(name, 0) + (size < SMALL)
    return sum(count for count in small.values() if count > 1)


def _growth(history: list[dict[str, Any]], splits: int, size: int) -> Iterator[Point]:
    """The table version by version, the newest first, as far as the log tells what each changed."""
    for entry in history:
        yield Point(entry["version"], size, splits, entry["operation"], entry["timestamp"])
        figures = dict(entry["metrics"])
        if "numAddedBytes" not in figures:
            return
        size -= figures["numAddedBytes"] - figures["numRemovedBytes"]
        splits -= figures["numAddedFiles"] - figures["numRemovedFiles"]


def counted(number: int, thing: str) -> str:
    """So many things.

    >>> counted(1, "split"), counted(1200, "split")
    ('1 split', '1,200 splits')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def short(size: float) -> str:
    """A size in few letters.

    >>> short(999), short(1536), short(20 << 20)
    ('999 B', '1.5 KB', '20 MB')
    """
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit ends it")
