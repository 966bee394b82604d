"""A table in plain Python: open it, see what is in it, look back in time."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from indextables import read
from indextables.errors import OptionError
from indextables.ingest import Mode, write_table
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import on_write
from indextables.maintain.repair import Repaired
from indextables.maintain.repair import repair as repair_log
from indextables.options import OPENED, WRITTEN, Options, Where
from indextables.predicate import Predicate, parse_condition
from indextables.read.aggregate_text import parse_aggregate
from indextables.read.tasks import facts_of
from indextables.store import open_store
from indextables.upkeep import Upkeep, milliseconds
from indextables.version import ENGINE

__all__ = ["Table", "open_table", "repair", "write"]


class Table(Upkeep):
    """One version of a table. It does not change when others write; `refresh()` takes the newest."""

    @property
    def version(self) -> int:
        """The version that is open."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, as Arrow types; partition columns included."""
        return self._snapshot.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns the table is partitioned by."""
        return self._snapshot.partition_columns

    def files(self) -> pa.Table:
        """The live splits, one a row: path, size, records, partition values, statistics."""
        return self._snapshot.files()

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """The rows for which a condition is true.

        Args:
            columns: what to return, in this order; by default all columns.
            where: a SQL condition, search operators included; by default all rows.
            limit: no more rows than this; which ones is not said.
        """
        return self.stream(columns, where, limit).read_all()

    def stream(
        self, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The same rows batch by batch, in bounded memory."""
        return read.scan(
            self._snapshot,
            self._log.store,
            self._options,
            columns=columns,
            where=self._condition(where),
            limit=limit,
        )

    def search(
        self,
        query: str,
        *,
        field: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = 10,
        scores: bool = False,
        highlight: Sequence[str] = (),
    ) -> pa.Table:
        """The rows that match a query, the most relevant first.

        Args:
            query: in the query language (docs/query-language.md).
            field: the column that unqualified terms speak of; by default all text-like ones.
            columns: what to return; by default all columns.
            where: a SQL condition that rows must meet besides.
            limit: how many rows; None for all.
            scores: add the column `_score` (BM25).
            highlight: columns of which the matching fragment is added, as `_highlight_<column>`.
        """
        return read.search(
            self._snapshot,
            self._log.store,
            self._options,
            query=query,
            field=field,
            columns=columns,
            where=self._condition(where),
            limit=limit,
            scores=scores,
            highlight=highlight,
        )

    def count(self, where: str | None = None) -> int:
        """How many rows a condition is true for; without one, how many there are."""
        return read.count(self._snapshot, self._log.store, self._options, where=self._condition(where))

    def aggregate(
        self,
        aggregates: Mapping[str, str],
        *,
        group_by: Sequence[read.Group] = (),
        where: str | None = None,
    ) -> pa.Table:
        """One row for each group: the groups' columns, then the aggregates.

        Args:
            aggregates: what to compute under which name: `{"n": "count(*)", "worst": "max(status)"}`.
                Functions are count, sum, min, max, avg and count(distinct column).
            group_by: columns, or buckets (`indextables.Histogram`, `DateHistogram`, `RangeBuckets`).
            where: a SQL condition.
        """
        return read.aggregate(
            self._snapshot,
            self._log.store,
            self._options,
            aggregates=[parse_aggregate(text, name) for name, text in aggregates.items()],
            group_by=group_by,
            where=self._condition(where),
        )

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are searched by words."""
        return facts_of(self._snapshot, self._options).text_columns

    @property
    def skipped_splits(self) -> int:
        """How many splits a merge could not read; they rest for a while."""
        return len(self._snapshot.skips)

    def refresh(self) -> "Table":
        """The newest version of the same table."""
        return Table(self._log, self._log.snapshot())

    def _condition(self, where: str | None) -> Predicate | None:
        return None if where is None else parse_condition(where, self.schema)

    def __repr__(self) -> str:
        """Say where and which version."""
        return f"Table({self.url!r}, version={self.version})"


def open_table(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    options: Mapping[str, object] | None = None,
) -> Table:
    """Open a table where it is: on a local disk or an object store, without Spark.

    Args:
        path: a folder, or a URL (`s3://`, `abfss://`, `gs://`, ...).
        version: an earlier version; by default the newest.
        timestamp: the newest version of that time, instead of a version. A time without a zone is UTC.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    if version is not None and timestamp is not None:
        raise OptionError("give a version or a timestamp, not both")
    checked = Options.parse(options, OPENED)
    log = TransactionLog(open_store(path, checked), checked, engine=ENGINE)
    moment = None if timestamp is None else milliseconds(timestamp)
    return Table(log, log.snapshot(version=version, timestamp=moment))


def write(
    path: str | os.PathLike[str],
    data: object,
    *,
    mode: str = "append",
    partition_by: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
) -> Table:
    """Write rows to a table, without Spark; the table as it is after that.

    Args:
        path: a folder, or a URL (`s3://`, `abfss://`, `gs://`, ...).
        data: an Arrow table, batch or reader, a pandas or Polars frame, anything with the Arrow C stream
            interface, a list of dicts, or a dict of columns.
        mode: when there is a table already: `append`, `overwrite`, `error`, or `ignore`.
        partition_by: columns whose values become folders; only when the table is new.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    checked = Options.parse(options, WRITTEN)
    on_write.check(checked)
    written = write_table(
        open_store(path, checked),
        data,
        mode=Mode.of(mode),
        partition_by=[partition_by] if isinstance(partition_by, str) else partition_by,
        options=checked,
        engine=ENGINE,
    )
    if written.committed:
        on_write.after_write(written.log, checked)
    return Table(written.log, written.snapshot)


def repair(source: str, *, at: str | None = None, options: Mapping[str, object] | None = None) -> Repaired:
    """Write the log of a table anew.

    Args:
        source: the log folder (`.../_transaction_log`) of a table; if its log is lost, the table's folder.
        at: the log folder to write, from what can be read of the source. Without it, a lost log is rebuilt
            from the splits, in its place.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    return repair_log(source, at, Options.parse(options, {Where.COMMAND}), engine=ENGINE)
