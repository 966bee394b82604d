"""One page about a table's health: what it is made of, how it grew, what to do next."""

from indextables.report.facts import table_context
from indextables.report.page import page_of
from indextables.table import Table

__all__ = ["report_page"]


def report_page(table: Table) -> str:
    """The page, as HTML that needs nothing else."""
    return page_of(table_context(table))
