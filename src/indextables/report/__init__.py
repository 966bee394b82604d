"""The report: one HTML page about a table's health, with recommendations."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from indextables.report.health import LineChart, TableHealth, advice_for, line_chart, plural, table_health
from indextables.sizes import format_size
from indextables.table import Table

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
        growth=_growth(health),
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


def _growth(health: TableHealth) -> list[LineChart]:
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
