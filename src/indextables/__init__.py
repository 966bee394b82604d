"""Search your lake: tables with full-text indexes, for PySpark and plain Python."""

from indextables.errors import IndexTablesError

__version__ = "0.1.0"

__all__ = ["IndexTablesError", "__version__"]
