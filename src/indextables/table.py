"""A table in plain Python: open it, see what is in it, look back in time."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from indextables import read
from indextables.errors import OptionError
from indextables.ingest import Mode, write_table
from indextables.joint import text_columns
from indextables.log.checkpoint import Checkpointed
from indextables.log.history import HistoryEntry
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.drop_partitions import Dropped, drop_partitions
from indextables.maintain.figures import StateFigures, state_figures
from indextables.maintain.merge import MergeOutcome, MergeWish, merge
from indextables.maintain.prewarm import Warmed, plan_prewarm, prewarm
from indextables.maintain.purge import PurgeOutcome, purge
from indextables.maintain.repair import Repaired
from indextables.maintain.repair import repair as repair_log
from indextables.maintain.restore import Restored, restore
from indextables.maintain.truncate import Truncated, truncate
from indextables.options import Options
from indextables.predicate import Predicate, parse_condition
from indextables.read.aggregate_text import parse_aggregate
from indextables.split.index_cache import CacheStats, index_cache
from indextables.store import open_store
from indextables.version import ENGINE

__all__ = ["Table", "open_table", "repair", "write"]

Progress = Callable[[int, int], None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Table:
    """One version of a table. It does not change when others write; `refresh()` takes the newest."""

    def __init__(self, log: TransactionLog, snapshot: Snapshot) -> None:
        """Use `indextables.open(path)`."""
        self._log = log
        self._snapshot = snapshot
        self._options = log.options

    @property
    def url(self) -> str:
        """Where the table is."""
        return self._snapshot.url

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
        return text_columns(self._snapshot)

    @property
    def skipped_splits(self) -> int:
        """How many splits a merge could not read; they rest for a while."""
        return len(self._snapshot.skips)

    def cache_statistics(self) -> CacheStats:
        """How full the local cache of index parts is, and what this process asked of it."""
        return index_cache(self._options).stats()

    def state(self) -> StateFigures:
        """How the log's newest state is made up, and whether it should be compacted."""
        return state_figures(self._snapshot, self._options)

    # --- upkeep: of the newest version, whichever one is open ---------------------------------------

    def merge(
        self,
        *,
        where: str | None = None,
        target_size: int | None = None,
        max_new_splits: int | None = None,
        max_sources: int | None = None,
        progress: Progress | None = None,
    ) -> MergeOutcome:
        """Merge small splits into large ones.

        Args:
            where: a condition on partition columns: only splits of these partitions.
            target_size: the size in bytes that a merged split should reach.
            max_new_splits: at most so many merged splits.
            max_sources: at most so many splits become one.
            progress: told how many merged splits are done, and how many there will be.
        """
        wish = MergeWish.of(
            self._log.snapshot(),
            self._options,
            target_bytes=target_size,
            where=where,
            max_new_splits=max_new_splits,
            max_sources=max_sources,
        )
        return merge(self._log, self._options, wish, progress=progress)

    def purge(
        self,
        *,
        older_than: timedelta | None = None,
        log_retention: timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PurgeOutcome:
        """Delete files that no version names, and files of the log that have outlived their retention.

        Args:
            older_than: only files older than this (by default a week).
            log_retention: for how long versions can be read that are not the newest (by default 30 days).
            dry_run: only say what would be deleted.
            progress: told how many files were found.
        """
        return purge(
            self._log,
            self._options,
            older_than_hours=_hours(older_than),
            log_hours=_hours(log_retention),
            dry_run=dry_run,
            progress=progress,
        )

    def checkpoint(self) -> Checkpointed:
        """Write a compacted state of the log now."""
        return self._log.checkpoint()

    def truncate(self, *, dry_run: bool = False) -> Truncated:
        """Forget all versions before the newest one."""
        return truncate(self._log, dry_run=dry_run)

    def drop_partitions(self, where: str) -> Dropped:
        """Take partitions out of the table, by a condition on partition columns."""
        return drop_partitions(self._log, where)

    def restore(self, version: int | None = None, *, timestamp: datetime | str | None = None) -> Restored:
        """Make an earlier version the newest one; no history is lost."""
        moment = None if timestamp is None else _milliseconds(timestamp)
        return restore(self._log, version=version, timestamp=moment)

    def prewarm(
        self,
        *,
        where: str | None = None,
        segments: Sequence[str] = (),
        fields: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Warmed:
        """Bring index parts to the local disk and into memory before the first search.

        Args:
            where: a condition on partition columns.
            segments: parts of the index (by default TERM and POSTINGS).
            fields: only those of these columns.
            progress: told how many splits are done, and how many there are.
        """
        plan = plan_prewarm(
            self._log.snapshot(), self._options, segments=segments, fields=fields, where=where
        )
        return prewarm(plan, self._log.store, self._options, progress)

    def history(self, limit: int | None = None) -> pa.Table:
        """What was done to the table, newest version first."""
        return _history_table(self._log.history(limit))

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
    checked = Options.parse(options)
    log = TransactionLog(open_store(path, checked), checked, engine=ENGINE)
    moment = None if timestamp is None else _milliseconds(timestamp)
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
    checked = Options.parse(options)
    log, snapshot = write_table(
        open_store(path, checked),
        data,
        mode=Mode.of(mode),
        partition_by=[partition_by] if isinstance(partition_by, str) else partition_by,
        options=checked,
        engine=ENGINE,
    )
    return Table(log, snapshot)


def repair(source: str, *, at: str | None = None, options: Mapping[str, object] | None = None) -> Repaired:
    """Write the log of a table anew.

    Args:
        source: the log folder (`.../_transaction_log`) of a table; if its log is lost, the table's folder.
        at: the log folder to write, from what can be read of the source. Without it, a lost log is rebuilt
            from the splits, in its place.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    return repair_log(source, at, Options.parse(options), engine=ENGINE)


def _hours(span: timedelta | None) -> float | None:
    return None if span is None else span / timedelta(hours=1)


def _milliseconds(moment: datetime | str) -> int:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise OptionError(
                f"timestamp '{moment}' is not a date and time such as 2024-05-01 or 2024-05-01T12:00:00+02:00"
            ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _history_table(entries: list[HistoryEntry]) -> pa.Table:
    texts = pa.map_(pa.string(), pa.string())
    counts = pa.map_(pa.string(), pa.int64())
    return pa.table(
        {
            "version": pa.array([e.version for e in entries], pa.int64()),
            "timestamp": pa.array([e.timestamp for e in entries], pa.timestamp("ms", tz="UTC")),
            "operation": pa.array([e.operation for e in entries], pa.string()),
            "parameters": pa.array([list(e.parameters.items()) for e in entries], texts),
            "metrics": pa.array([list(e.metrics.items()) for e in entries], counts),
            "engine": pa.array([e.engine for e in entries], pa.string()),
            "user_metadata": pa.array([e.user_metadata for e in entries], pa.string()),
        }
    )
