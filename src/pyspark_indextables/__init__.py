"""What Spark looks for by name: its Python workers load packages that start with `pyspark`.

`DefaultSource` is the data source `indextables` of sessions without the bridge; where there is a bridge, its
own is used.
"""

from indextables.spark.python_source import IndexTablesSource as DefaultSource

__all__ = ["DefaultSource"]
