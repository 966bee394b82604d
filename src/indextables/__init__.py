"""Search your lake: tables with full-text indexes, for PySpark and plain Python."""

from indextables.errors import IndexTablesError
from indextables.metrics import figures as metrics_figures
from indextables.table import Table, write
from indextables.table import open_table as open  # noqa: A004 - the public name is short on purpose
from indextables.version import VERSION

__version__ = VERSION

__all__ = ["IndexTablesError", "Table", "__version__", "metrics_figures", "open", "write"]
