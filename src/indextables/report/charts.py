"""Data of the charts: bars, and lines over versions.

Text is HTML, so that it keeps its size on a phone; only lines are SVG, which may be stretched.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from indextables.sizes import format_size

# The most points of a line, and the most of them that are marked.
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
        """What happened, and the table after it."""
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
    """Lay out a figure over versions; versions that did more than add rows are marked, and the last one.

    Args:
        points: at least two, in the order of their versions.
        value: the figure.
        text: how a figure is shown.
        label: what the figure is.
    """
    drawn = _sample(points, _MAX_POINTS)
    maximum = max(value(point) for point in drawn) or 1
    first, last = points[0].version, points[-1].version

    def place(point: Point) -> tuple[float, float]:
        return 100 * (point.version - first) / max(last - first, 1), 100 * (1 - value(point) / maximum)

    marked = _sample([point for point in drawn if not point.appends], _MAX_MARKS)
    if points[-1].appends:
        marked.append(points[-1])
    return LineChart(
        label=label,
        maximum=text(maximum),
        points=" ".join(f"{x:.2f},{y:.2f}" for x, y in map(place, drawn)),
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
