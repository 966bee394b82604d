"""The sources of companion indexes: Delta and Iceberg tables, and folders of Parquet files.

`open_source` gives a `SourceSnapshot`: the schema as Spark reads it, and the files with their partition
values and deleted rows. `SourceReader` reads rows of those files, all or by position.
"""

from indextables.source.reader import SourceReader, open_source
from indextables.source.snapshot import (
    ColumnStatistics,
    FileChanges,
    RowDeletes,
    SourceFile,
    SourceSnapshot,
)

__all__ = [
    "open_source",
    "SourceReader",
    "SourceSnapshot",
    "SourceFile",
    "FileChanges",
    "ColumnStatistics",
    "RowDeletes",
]
