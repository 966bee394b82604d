"""Small tables for named tests: rows written by hand, saved through Spark, read back under a name."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


class SmallTables:
    """Saves tables in a folder and asks about them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def save(
        self,
        rows: DataFrame | Sequence[Any],
        schema: str = "",
        *,
        by: Sequence[str] = (),
        splits: int = 1,
        **options: str,
    ) -> str:
        """Save rows as a table of ours; the name of a view of it. Options use `__` for a dot."""
        data = rows if isinstance(rows, DataFrame) else self.spark.createDataFrame(list(rows), schema)
        name = f"desk_{next(_numbers)}"
        given = {key.replace("__", "."): value for key, value in options.items()}
        writer = data.coalesce(1) if splits == 1 else data.repartition(splits)
        writer.write.format("indextables").options(**given).partitionBy(*by).save(self.path(name))
        return self.view(name)

    def view(self, name: str, **options: str) -> str:
        """A view of a saved table, as it is now."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        table = self.spark.read.format("indextables").options(**given).load(self.path(name))
        table.createOrReplaceTempView(name)
        return name

    def path(self, name: str) -> str:
        """Where a table lies."""
        return str(self.folder / name)

    def ask(self, sql: str) -> list[Any]:
        """The answer, sorted by its texts; values alone where there is one column."""
        rows = self.spark.sql(sql).collect()
        found = [row[0] if len(row) == 1 else tuple(row) for row in rows]
        return sorted(
            found, key=lambda row: (row is None, row) if not isinstance(row, tuple) else (False, str(row))
        )

    def failure(self, sql: str) -> str:
        """The sentence with which a query fails."""
        try:
            found = self.spark.sql(sql).collect()
        except PySparkException as error:
            return str(error)
        raise AssertionError(f"{sql} answered {found}")
