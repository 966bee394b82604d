"""Results of a part: a table for people, JSON for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from bench.measure import Measured, ratio


@dataclass(frozen=True, slots=True)
class Target:
    """The limit of a figure: a maximum of milliseconds or megabytes, or a minimum ratio."""

    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def text(self) -> str:
        """The limit, and whether it is met."""
        wanted = f"{'>=' if self.at_least else '<'} {self.limit:g} {self.unit}"
        if self.met:
            return f"{wanted} ok"
        return f"{wanted} MISSED by {abs(self.value / self.limit - 1):.0%}"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, those of others for the same work, by name, and the targets."""

    name: str
    ours: Measured
    others: Mapping[str, Measured] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()

    def values(self) -> dict[str, Any]:
        """Return the row for programs."""
        return {
            "name": self.name,
            **asdict(self.ours),
            "others": {
                name: asdict(other) | {"ratio": ratio(self.ours, other)}
                for name, other in self.others.items()
            },
            "targets": [asdict(target) | {"met": target.met, "text": target.text} for target in self.targets],
        }


Values: TypeAlias = Mapping[str, Any]

# The columns of a row's own figures; a column without a figure in any row is left out.
_FIGURES = {
    "median ms": ("median_ms",),
    "range": ("least_ms", "most_ms"),
    "CPU ms": ("cpu_ms",),
    "first ms": ("first_ms",),
    "peak MB": ("peak_mb",),
}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    return render([row.values() for row in rows])


def render(rows: Sequence[Values]) -> str:
    """Return the values of rows as a Markdown table."""
    figures = [name for name, keys in _FIGURES.items() if any(keys[0] in row for row in rows)]
    others = list(dict.fromkeys(name for row in rows for name in row["others"]))
    headings = ["", *figures, *(text for name in others for text in (f"{name} ms", "ratio")), "target"]
    cells = [headings, *(_cells(row, figures, others) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    left = (0, len(headings) - 1)
    lines = [
        "| " + " | ".join(_aligned(cell, widths[i], left=i in left) for i, cell in enumerate(line)) + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i in left else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _aligned(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)


def _cells(row: Values, figures: Sequence[str], others: Sequence[str]) -> list[str]:
    return [
        row["name"],
        *("-".join(_number(row[key]) for key in _FIGURES[name] if key in row) for name in figures),
        *(cell for name in others for cell in _beside(row["others"].get(name))),
        ", ".join(target["text"] for target in row["targets"]),
    ]


def _beside(other: Values | None) -> tuple[str, str]:
    """What another took, and how many times as long ours took."""
    return (_number(other["median_ms"]), f"{other['ratio']:.2g}") if other else ("", "")


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
