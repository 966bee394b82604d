"""Modules that Spark loads by name: its Python workers load packages that start with `pyspark`.

`DefaultSource` is the data source `indextables` of sessions without the bridge; the bridge has its own.
"""

from indextables.spark.python_source import IndexTablesSource as DefaultSource

__all__ = ["DefaultSource"]
