"""The report: one HTML page about a table's health, with figures, charts and recommendations.

Text of charts is HTML, so that it keeps its size on a phone; only lines are SVG, which may be stretched.
"""

import datetime as dt
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from indextables.maintain.figures import StateFigures
from indextables.maintain.purge import PurgeOutcome
from indextables.records import dataclass
from indextables.sizes import format_size
from indextables.split.index.cache import CacheStats
from indextables.table import Table

# The maximum number of points of a line, and of marked points.
_MAX_POINTS = 240
_MAX_MARKS = 80


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its length, the figure beside it, and its tooltip."""

    name: str
    value: float
    text: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class Point:
    """Size and splits of the table at one version."""

    version: int
    bytes: int
    splits: int
    operation: str
    time: dt.datetime

    @property
    def appends(self) -> bool:
        """Whether the version only added rows, as most do."""
        return self.operation == "WRITE"

    @property
    def tooltip(self) -> str:
        """The operation of the version, and the table after it."""
        return (
            f"version {self.version} ({self.time:%Y-%m-%d %H:%M} UTC): {self.operation}, then "
            f"{format_size(self.bytes)} in {self.splits} splits"
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked point of a line, in percent of the width and the height."""

    x: float
    y: float
    point: Point


@dataclass(frozen=True, slots=True)
class LineChart:
    """One figure over versions: the points of the line, the marks, and the labels."""

    label: str
    maximum: str
    points: str
    marks: tuple[Mark, ...]
    first: int
    last: int
    span: str


def line_chart(
    points: Sequence[Point], value: Callable[[Point], float], text: Callable[[float], str], label: str
) -> LineChart:
    """Lay out a figure over versions; marks the last version, and versions that did more than add rows.

    Args:
        points: at least two, in the order of their versions.
        value: the figure.
        text: how a figure is shown.
        label: the name of the figure.
    """
    sample = _sample(points, _MAX_POINTS)
    maximum = max(value(point) for point in sample) or 1
    first, last = points[0].version, points[-1].version

    def place(point: Point) -> tuple[float, float]:
        return 100 * (point.version - first) / max(last - first, 1), 100 * (1 - value(point) / maximum)

    marked = _sample([point for point in sample if not point.appends], _MAX_MARKS)
    if points[-1].appends:
        marked.append(points[-1])
    return LineChart(
        label=label,
        maximum=text(maximum),
        points=" ".join(f"{x:.2f},{y:.2f}" for x, y in map(place, sample)),
        marks=tuple(Mark(*place(point), point) for point in marked),
        first=first,
        last=last,
        span=_span(points),
    )


def _span(points: Sequence[Point]) -> str:
    first, last = points[0].time, points[-1].time
    if first.date() == last.date():
        return f"{first:%Y-%m-%d %H:%M} to {last:%H:%M}"
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _sample(points: Sequence[Point], most: int) -> list[Point]:
    """Return points at even distances, the last one among them."""
    step = max(1, -(-len(points) // most))
    return list(points[::-step])[::-1]


_MAX_ROWS = 20
# Splits below this size are worth merging, if a partition has several of them.
_SMALL_SPLIT = 64 << 20
# The number of small splits, or of versions since the last checkpoint, from which advice is given.
_MANY = 8
_OLD_CHECKPOINT = 50


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, its role, and the share of splits with its minimum and maximum."""

    name: str
    type: str
    role: str
    coverage: float
    minimum: str | None
    maximum: str | None


@dataclass(frozen=True, slots=True)
class TableHealth:
    """All figures of the report."""

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
    time: dt.datetime


def table_health(table: Table) -> TableHealth:
    """Collect the figures. The table's folder is listed; nothing is changed."""
    files = table.files()
    history = table.history().to_pylist()
    size = pc.sum(files["size"]).as_py() or 0
    names = _partitions(files)
    return TableHealth(
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
        history=tuple(history[:_MAX_ROWS]),
        state=table.state(),
        skipped=table.skipped_splits,
        orphans=table.purge(dry_run=True),
        cache=table.cache_statistics(),
        time=dt.datetime.now(dt.UTC),
    )


def _partitions(files: pa.Table) -> list[str]:
    """Return the partition of each split: the values of its partition columns."""
    return [
        " / ".join("null" if value is None else str(value) for _, value in entry or ()) or "the whole table"
        for entry in files["partitionValues"].to_pylist()
    ]


def _columns(table: Table) -> Iterator[Column]:
    """Return the columns in the order of the schema."""
    partitions, texts = set(table.partition_columns), set(table.text_columns)
    for column in table.data_skipping():
        role = "partition" if column.column in partitions else "text" if column.column in texts else ""
        coverage = column.with_bounds / column.splits if column.splits else 0.0
        yield Column(column.column, column.data_type, role, coverage, column.least, column.greatest)


def _by_size(files: pa.Table) -> Iterator[Bar]:
    """Return the number of splits by size, in steps of a factor of four."""
    sizes = np.maximum(files["size"].to_numpy(), 1)
    steps = np.floor(np.log2(sizes) / 2).astype(int) if len(sizes) else np.zeros(0, int)
    for step in range(steps.min(), steps.max() + 1) if len(steps) else ():
        count = int((steps == step).sum())
        name = f"{format_size(4**step)} - {format_size(4 ** (step + 1))}"
        size_text = format_size(int(sizes[steps == step].sum()))
        yield Bar(name, count, f"{count:,}", f"{plural(count, 'split')} of {name}, {size_text} together")


def _by_partition(files: pa.Table, names: list[str]) -> Iterator[Bar]:
    sums: dict[str, list[int]] = {}
    for name, size in zip(names, files["size"].to_pylist(), strict=True):
        entry = sums.setdefault(name, [0, 0])
        entry[0] += size
        entry[1] += 1
    largest = sorted(sums.items(), key=lambda item: -item[1][0])[:_MAX_ROWS]
    for name, (size, count) in largest:
        shown = f"{format_size(size)} in {plural(count, 'split')}"
        yield Bar(name, size, shown, f"{name}: {shown}")


def _mergeable(files: pa.Table, names: list[str]) -> int:
    """Return the number of small splits that share their partition with another small one."""
    small: dict[str, int] = {}
    for name, size in zip(names, files["size"].to_pylist(), strict=True):
        small[name] = small.get(name, 0) + (size < _SMALL_SPLIT)
    return sum(count for count in small.values() if count > 1)


def _growth(history: list[dict[str, Any]], splits: int, size: int) -> Iterator[Point]:
    """Return size and splits version by version, the newest first, as far as the history has metrics."""
    for entry in history:
        yield Point(entry["version"], size, splits, entry["operation"], entry["timestamp"])
        figures = dict(entry["metrics"])
        if "numAddedBytes" not in figures:
            return
        size -= figures["numAddedBytes"] - figures["numRemovedBytes"]
        splits -= figures["numAddedFiles"] - figures["numRemovedFiles"]


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "split"), plural(1200, "split")
    ('1 split', '1,200 splits')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# --- advice ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation, its reason, and the command for it."""

    title: str
    reason: str
    command: str


def advice_for(health: TableHealth) -> Iterator[Advice]:
    """Return recommendations for the table; none if it is in good shape."""
    path = shlex.quote(health.url.removeprefix("file://"))
    if health.mergeable >= _MANY:
        yield Advice(
            "Merge small splits",
            f"{health.mergeable:,} splits are smaller than {format_size(_SMALL_SPLIT)} and could be merged: "
            "every search opens each of them.",
            f"indextables merge {path}",
        )
    yield from _checkpoint_advice(health, path)
    orphans = health.orphans
    advice = []
    if orphans.orphans_found:
        advice.append(f"{plural(orphans.orphans_found, 'file')} ({format_size(orphans.bytes_found)})")
    if orphans.log_files_found:
        advice.append(f"{plural(orphans.log_files_found, 'log file')}")
    if advice:
        yield Advice(
            "Purge unreferenced files",
            f"No retained version refers to {' and '.join(advice)}.",
            f"indextables purge {path}",
        )
    if health.skipped:
        yield Advice(
            "Look at unreadable splits",
            f"{plural(health.skipped, 'split')} could not be read by a merge, and are excluded from merging "
            "until their cool-down ends; the log has the reasons.",
            f"indextables describe {path} log",
        )


def _checkpoint_advice(health: TableHealth, path: str) -> Iterator[Advice]:
    command = f"indextables checkpoint {path}"
    state = health.state
    if state.version is None:
        if health.version >= _MANY:
            reason = f"There is none: a reader replays {health.version + 1} versions to open the table."
            yield Advice("Write a checkpoint", reason, command)
    elif health.version - state.version >= _OLD_CHECKPOINT:
        behind = health.version - state.version
        reason = f"The newest checkpoint is {behind} versions old; a reader replays them."
        yield Advice("Write a checkpoint", reason, command)
    elif state.needs_compaction:
        reason = (
            f"The checkpoint has {state.num_tombstones} tombstones and {state.num_manifests} manifests; a "
            "compacted one is read faster."
        )
        yield Advice("Compact the checkpoint", reason, command)


__all__ = ["report_page"]

_TEMPLATE = "report.html.jinja"
_MAX_COLUMNS = 40


def report_page(table: Table) -> str:
    """Return the report on a table, as a self-contained HTML page."""
    health = table_health(table)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(_TEMPLATE).render(
        health=health,
        name=health.url.removeprefix("file://"),
        advice=list(advice_for(health)),
        tiles=_tiles(health),
        growth=_growth_charts(health),
        partitions_title=_partitions_title(health),
        max_columns=_MAX_COLUMNS,
        plural=plural,
        format_size=format_size,
    )


def _tiles(health: TableHealth) -> list[tuple[str, str]]:
    average = format_size(health.bytes / health.splits) if health.splits else "-"
    return [
        (f"{health.rows:,}", "rows" if health.rows != 1 else "row"),
        (format_size(health.bytes), "on storage"),
        (f"{health.splits:,}", f"splits in {plural(health.partitions, 'partition')}"),
        (average, "a split, on average"),
    ]


def _growth_charts(health: TableHealth) -> list[LineChart]:
    if len(health.growth) < 2:
        return []
    return [
        line_chart(health.growth, lambda point: point.bytes, format_size, "Size"),
        line_chart(health.growth, lambda point: point.splits, lambda count: f"{count:,.0f}", "Splits"),
    ]


def _partitions_title(health: TableHealth) -> str:
    shown = len(health.by_partition)
    title = "Partitions"
    if shown < health.partitions:
        title = f"Largest {shown} of {health.partitions:,} partitions"
    return f"{title} by {' / '.join(health.partition_columns)}" if health.partition_columns else title
