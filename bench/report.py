"""What a part of the measurements found, as a table for people and as JSON for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.measure import Measured, ratio


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: at most so many milliseconds or megabytes, at least so many times."""

    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def text(self) -> str:
        """The target and the verdict."""
        wanted = f"{'>=' if self.at_least else '<'} {self.limit:g} {self.unit}"
        if self.met:
            return f"{wanted} ok"
        return f"{wanted} MISSED by {abs(self.value / self.limit - 1):.0%}"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, its targets, and the bare library on the same bytes."""

    name: str
    ours: Measured
    bare: Measured | None = None
    targets: tuple[Target, ...] = ()

    def values(self) -> dict[str, Any]:
        """The row for programs."""
        return {
            "name": self.name,
            **asdict(self.ours),
            "bare_ms": self.bare.median_ms if self.bare else None,
            "ratio": ratio(self.ours, self.bare) if self.bare else None,
            "targets": [asdict(target) | {"met": target.met} for target in self.targets],
        }


_HEADINGS = ("", "median ms", "range", "CPU ms", "first ms", "peak MB", "bare ms", "ratio", "target")


def table(rows: Sequence[Row]) -> str:
    """The rows for people, as a Markdown table, so that it can be pasted into a page."""
    cells = [_HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    lines = [
        "| " + " | ".join(_aligned(cell, widths[i], i) for i, cell in enumerate(line)) + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i in _LEFT else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


_LEFT = (0, len(_HEADINGS) - 1)


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in _LEFT else cell.rjust(width)


def _cells(row: Row) -> tuple[str, ...]:
    ours, bare = row.ours, row.bare
    return (
        row.name,
        _number(ours.median_ms),
        f"{_number(ours.least_ms)}-{_number(ours.most_ms)}",
        _number(ours.cpu_ms),
        _number(ours.first_ms),
        _number(ours.peak_mb),
        _number(bare.median_ms) if bare else "",
        f"{ratio(ours, bare):.2g}" if bare else "",
        ", ".join(target.text for target in row.targets),
    )


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
