"""A table in plain Python: open it, read and search it, write to it, and maintain it.

Modules for writing and maintenance are imported by the methods that use them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables import read
from indextables.data_files import open_log
from indextables.errors import OptionError
from indextables.log.history import history_table
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import OPENED, WRITTEN, Options, Where
from indextables.options.maintenance import MAX_WAIT_SECONDS
from indextables.predicate import Predicate
from indextables.read.freshness import read_snapshot
from indextables.read.spec import parse_aggregate
from indextables.read.table_context import table_context
from indextables.schema.calendar import epoch_milliseconds, hours_of
from indextables.store import CredentialsProvider, open_store
from indextables.table_properties import table_condition
from indextables.version import ENGINE

if TYPE_CHECKING:
    from indextables.diagnostics import InvalidationResult
    from indextables.log.checkpoint import CheckpointResult
    from indextables.log.history import CommitOutcome, LogFileActions
    from indextables.maintain.convert import Conversion
    from indextables.maintain.figures import ColumnSkipping, SplitComponents, StateFigures
    from indextables.maintain.jobs import Job, Progress
    from indextables.maintain.merge import MergeOutcome
    from indextables.maintain.metadata_changes import DropResult, RestoreResult, TruncateResult
    from indextables.maintain.prewarm import PrewarmPlan, PrewarmResult
    from indextables.maintain.purge import PurgeOutcome
    from indextables.maintain.repair import RepairResult
    from indextables.source.companion import TableRoot
    from indextables.split.index.cache import CacheStats


class Table:
    """One version of a table.

    Reads return this version, even while others write; `refresh()` opens the newest one. Methods that
    change the table or describe its storage work on the newest version.
    """

    def __init__(self, log: TransactionLog, snapshot: Snapshot) -> None:
        """Use `indextables.open(path)`."""
        self._log = log
        self._snapshot = snapshot
        self._options: Options = log.options

    # --- the table -----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of the table's folder."""
        return self._snapshot.url

    @property
    def version(self) -> int:
        """The version that is open."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow types, partition columns included."""
        return self._snapshot.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        return self._snapshot.partition_columns

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are indexed as text, word by word."""
        return table_context(self._snapshot, self._options).text_columns

    def files(self) -> pa.Table:
        """Return the live splits, one per row: path, size, records, partition values, statistics."""
        return self._snapshot.files()

    def refresh(self) -> "Table":
        """Open the newest version of the same table."""
        return Table(self._log, read_snapshot(self._log))

    # --- reading -------------------------------------------------------------------------------------

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Return the rows that meet a condition.

        Args:
            columns: the columns to return, in this order; by default all.
            where: a SQL condition, search operators included; by default all rows.
            limit: the maximum number of rows; the order is unspecified.
        """
        return self.stream(columns, where, limit).read_all()

    def stream(
        self, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Return the same rows batch by batch, in bounded memory."""
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
        """Return the rows that match a query, the most relevant first.

        Args:
            query: a query in the query language (docs/query-language.md).
            field: the default field for unqualified terms; by default all text-like columns.
            columns: the columns to return; by default all.
            where: a SQL condition that rows must meet as well.
            limit: the maximum number of rows; None for all.
            scores: add the column `_score` (BM25).
            highlight: columns whose matching fragment is added as `_highlight_<column>`.
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
        """Return the number of rows, or of those that meet a condition."""
        return read.count(self._snapshot, self._log.store, self._options, where=self._condition(where))

    def aggregate(
        self,
        aggregates: Mapping[str, str],
        *,
        group_by: Sequence[read.Group] = (),
        where: str | None = None,
    ) -> pa.Table:
        """Return one row for each group: the columns of the group, then the aggregates.

        Args:
            aggregates: aggregate functions by result name: `{"n": "count(*)", "worst": "max(status)"}`.
                The functions are count, sum, min, max, avg and count(distinct column).
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

    # --- changes -------------------------------------------------------------------------------------

    def changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Return the rows that were inserted and deleted after a version or a time, in the order of versions.

        They have the table's columns and `_change_type` (`insert` or `delete`), `_commit_version` and
        `_commit_timestamp`. A merge changes no rows. An overwrite deletes and inserts.

        Args:
            since: a version, whose own changes are not returned (-1 for all changes), or a time: changes that
                were committed after it. A time without a zone is UTC.
            until: the last version, or a time: changes that were committed until then. By default the version
                that is open.
            columns: the columns to return; by default all.
            where: a SQL condition, search operators and the columns of changes included.

        Raises:
            HistoryExpiredError: the files of a version were deleted.
            VersionNotFoundError: there is no such version.
        """
        return self.stream_changes(since, until, columns=columns, where=where).read_all()

    def stream_changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.RecordBatchReader:
        """Return the same rows batch by batch, in bounded memory."""
        from indextables.read.follow import changes_between

        changed = changes_between(self._log, self._snapshot, since, until)
        return read.scan(
            changed,
            self._log.store,
            self._options,
            columns=columns,
            where=None if where is None else table_condition(where, changed),
        )

    def follow(
        self,
        query: str | None = None,
        *,
        field: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        highlight: Sequence[str] = (),
        since: int | None = None,
        interval: float = 1.0,
        timeout: float | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows that new versions insert, as they are committed, like `tail -f`.

        Args:
            query: only rows that match a query in the query language.
            field: the default field for unqualified terms; by default all text-like columns.
            columns: the columns to return; by default all. `_commit_version` may be among them.
            where: a SQL condition that rows must meet as well.
            highlight: columns whose matching fragment is added as `_highlight_<column>`.
            since: the version after which to start; by default the version that is open.
            interval: the polling interval in seconds.
            timeout: stop if no version is committed for this many seconds; by default never.

        Raises:
            QuerySyntaxError: the query is malformed; this and unknown columns are reported immediately.
            HistoryExpiredError: the files of a version were deleted.
            TableReplacedError: the table was deleted and created again.
        """
        from indextables.read.follow import FollowSpec, follow

        rows = FollowSpec(query, field, where, columns, tuple(highlight))
        start, opened = self.version if since is None else since, self._snapshot
        return follow(self._log, opened, self._options, rows, start, interval=interval, timeout=timeout)

    def watch(
        self,
        queries: Mapping[str, object],
        *,
        columns: Sequence[str] | None = None,
        since: int | None = None,
        interval: float = 1.0,
        timeout: float | None = None,
    ) -> Iterator[pa.Table]:
        """Yield rows that new versions insert and that match standing queries.

        The column `_matching_queries` has the ids of the queries that a row matches. Every query is one
        search on the index of each new split. `indextables.since` in the schema's metadata is the version
        after which to start to get the same rows again.

        Args:
            queries: a query in the query language for each id, or a mapping with `query` and `field`.
            columns: the columns to return; by default all.
            since: the version after which to start; by default the version that is open.
            interval: the polling interval in seconds.
            timeout: stop if no version is committed for this many seconds; by default never.

        Raises:
            PredicateError: a query is malformed or names an unknown field.
            HistoryExpiredError, TableReplacedError: as `follow` does.
        """
        from indextables.read.standing import check_queries, standing_queries, watch

        parsed = standing_queries(queries)
        check_queries(parsed, table_context(self._snapshot, self._options), columns)
        start = self.version if since is None else since
        return watch(
            self._log,
            self._snapshot,
            self._options,
            parsed,
            columns=columns,
            since=start,
            interval=interval,
            timeout=timeout,
        )

    # --- history -------------------------------------------------------------------------------------

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the commits of the table, the newest first.

        Args:
            limit: the maximum number of commits.
        """
        return history_table(self._log.history(limit))

    def restore(
        self, version: int | None = None, *, timestamp: datetime | str | None = None
    ) -> "RestoreResult":
        """Commit the content of an earlier version as the newest one; no history is lost.

        Args:
            version: the version to restore.
            timestamp: instead of a version, the newest one at that time; without a zone it is UTC.
        """
        from indextables.maintain.metadata_changes import restore

        moment = None if timestamp is None else epoch_milliseconds(timestamp)
        return restore(self._log, version=version, timestamp=moment)

    def commit_outcome(self, token: str, *, version: int | None = None) -> "CommitOutcome":
        """Find out whether a commit that ended with `CommitUnknownError` is in the table.

        Args:
            token: the error's `token`.
            version: the error's `version`; with it, the result is false if another commit has that version.

        Returns:
            `committed` is true (with the `version`), false if the commit is certainly absent, or None if the
            version does not exist yet: the request may still arrive. Call again later, or after any other
            commit.
        """
        return self._log.commit_outcome(token, version=version)

    # --- maintenance ---------------------------------------------------------------------------------

    def merge(
        self,
        *,
        where: str | None = None,
        target_size: int | None = None,
        max_new_splits: int | None = None,
        max_sources: int | None = None,
        progress: "Progress | None" = None,
    ) -> "MergeOutcome":
        """Merge small splits into large ones.

        Args:
            where: a condition on partition columns: only splits of these partitions.
            target_size: the size in bytes that a merged split should reach.
            max_new_splits: the maximum number of merged splits.
            max_sources: the maximum number of splits that are merged into one.
            progress: called with the number of finished merges and the number of all.
        """
        from indextables.maintain.merge import MergeOptions, merge

        merge_options = MergeOptions.of(
            self._log.snapshot(),
            self._options,
            target_bytes=target_size,
            where=where,
            max_new_splits=max_new_splits,
            max_sources=max_sources,
        )
        return merge(self._log, self._options, merge_options, progress=progress)

    def convert(
        self, *, where: str | None = None, dry_run: bool = False, progress: "Progress | None" = None
    ) -> "Conversion":
        """Convert the splits of IndexTables for Scala into Parquet splits, in place.

        No row changes, and earlier versions can still be read. A conversion that was interrupted continues
        when it is run again.

        Args:
            where: a condition on partition columns: only splits of these partitions.
            dry_run: only report the splits that would be converted, as `remainder`.
            progress: called with the number of finished splits and the number of all.
        """
        from indextables.maintain.convert import convert

        return convert(self._log, self._options, where, dry_run=dry_run, progress=progress)

    def purge(
        self,
        *,
        older_than: timedelta | None = None,
        log_retention: timedelta | None = None,
        dry_run: bool = False,
        progress: "Progress | None" = None,
    ) -> "PurgeOutcome":
        """Delete files that no version refers to, and log files whose retention is over.

        Args:
            older_than: delete only files older than this (by default a week).
            log_retention: how long earlier versions can be read (by default 30 days).
            dry_run: only report what would be deleted.
            progress: called with the number of files found.
        """
        from indextables.maintain.purge import purge

        return purge(
            self._log,
            self._options,
            older_than_hours=hours_of(older_than),
            log_hours=hours_of(log_retention),
            dry_run=dry_run,
            progress=progress,
        )

    def checkpoint(self) -> "CheckpointResult":
        """Write a checkpoint of the log now."""
        return self._log.checkpoint()

    def truncate(self, *, dry_run: bool = False) -> "TruncateResult":
        """Delete all versions before the newest one.

        Args:
            dry_run: only report what would be deleted.
        """
        from indextables.maintain.metadata_changes import truncate

        return truncate(self._log, dry_run=dry_run)

    def drop_partitions(self, where: str) -> "DropResult":
        """Remove whole partitions from the table.

        Args:
            where: a condition on partition columns.
        """
        from indextables.maintain.metadata_changes import drop_partitions

        return drop_partitions(self._log, where)

    # --- companion indexes ---------------------------------------------------------------------------

    def set_root(self, root: str, path: str) -> str:
        """Add a table root: another place with the files of a companion index's source.

        Args:
            root: the name, which `companion.tableRootDesignator` selects.
            path: the location of the files: a folder or a URL.

        Returns:
            A sentence about the change.
        """
        from indextables.source.companion import set_root

        return set_root(self._log, root, path)

    def unset_root(self, name: str) -> str:
        """Remove a table root; returns a sentence about the change."""
        from indextables.source.companion import unset_root

        return unset_root(self._log, name)

    def roots(self) -> "dict[str, TableRoot]":
        """Return the table roots by name: other places with the files of a companion index's source."""
        from indextables.source.companion import table_roots

        return table_roots(self._log)

    # --- caches --------------------------------------------------------------------------------------

    def prewarm(
        self,
        *,
        where: str | None = None,
        segments: Sequence[str] = (),
        fields: Sequence[str] = (),
        parallelism: int | None = None,
        progress: "Progress | None" = None,
    ) -> "PrewarmResult":
        """Load indexes into the local cache before the first search.

        Args:
            where: a condition on partition columns: only splits of these partitions.
            segments: parts of the index (by default TERM and POSTINGS).
            fields: only the parts of these columns.
            parallelism: the number of splits that are loaded at once.
            progress: called with the number of finished splits and the number of all.
        """
        from indextables.maintain.prewarm import prewarm

        plan = self._plan_prewarm(where, segments, fields, parallelism)
        return prewarm(plan, self._log.store, self._options, progress)

    def start_prewarm(
        self,
        *,
        where: str | None = None,
        segments: Sequence[str] = (),
        fields: Sequence[str] = (),
        parallelism: int | None = None,
    ) -> "Job":
        """Prewarm in the background; `wait_for_prewarm` waits for it."""
        from indextables.maintain.prewarm import start_prewarm

        plan = self._plan_prewarm(where, segments, fields, parallelism)
        return start_prewarm(plan, self._log.store, self._options)

    def wait_for_prewarm(self, job: str | None = None, *, timeout: float = MAX_WAIT_SECONDS) -> "list[Job]":
        """Wait until the prewarm jobs of this table have ended, and return them.

        Args:
            job: only the one with this id.
            timeout: the maximum number of seconds to wait; a job that is still running then has no `ended`.
        """
        from indextables.maintain import jobs

        return jobs.wait(jobs.find_jobs(jobs.JobKind.PREWARM, self.url, job), timeout)

    # --- diagnostics ---------------------------------------------------------------------------------

    def state(self) -> "StateFigures":
        """Return size and shape of the newest checkpoint, and whether it should be compacted."""
        from indextables.maintain.figures import state_figures

        return state_figures(self._snapshot, self._options)

    def components(self, where: str | None = None) -> "list[SplitComponents]":
        """Return the parts of every split by kind and column, with their sizes.

        Args:
            where: a condition on partition columns: only splits of these partitions.
        """
        from indextables.maintain.figures import partition_condition, split_components

        chosen = None if where is None else partition_condition(self._snapshot, where)
        return list(split_components(self._snapshot, self._log.store, chosen))

    def data_skipping(self) -> "list[ColumnSkipping]":
        """Return, for each column, the number of splits with statistics, and the minimum and maximum."""
        from indextables.maintain.figures import column_skipping

        return column_skipping(self._snapshot)

    def log_actions(self, *, include_all: bool = False) -> "list[LogFileActions]":
        """Return the actions of the newest checkpoint and of the versions after it, file by file.

        Args:
            include_all: return those of every version file instead.
        """
        return list(self._log.file_actions(everything=include_all))

    @property
    def skipped_splits(self) -> int:
        """The number of splits that a merge could not read, excluded from merging until a cool-down ends."""
        return len(self._snapshot.skips)

    def prewarm_jobs(self) -> "list[Job]":
        """Return the prewarm jobs of this table on this machine, running and recently ended."""
        from indextables.maintain import jobs

        return jobs.jobs(jobs.JobKind.PREWARM, self.url)

    def merge_jobs(self) -> "list[Job]":
        """Return the merge jobs of this table on this machine, running and recently ended."""
        from indextables.maintain import jobs

        return jobs.jobs(jobs.JobKind.MERGE, self.url)

    def cache_statistics(self) -> "CacheStats":
        """Return usage, hits and misses of the local index cache."""
        from indextables.split.index.cache import index_cache

        return index_cache(self._options).stats()

    def invalidate_log_cache(self) -> "InvalidationResult":
        """Drop the table's log from the cache of this process; not needed for correct results."""
        from indextables.diagnostics import invalidate_log_cache

        return invalidate_log_cache(self.url, options=self._options)

    def _plan_prewarm(
        self, where: str | None, segments: Sequence[str], fields: Sequence[str], parallelism: int | None
    ) -> "PrewarmPlan":
        from indextables.maintain.prewarm import plan_prewarm

        return plan_prewarm(
            self._log.snapshot(),
            self._options,
            segments=segments,
            fields=fields,
            where=where,
            parallelism=parallelism,
        )

    def _condition(self, where: str | None) -> Predicate | None:
        return None if where is None else table_condition(where, self._snapshot)

    def __repr__(self) -> str:
        """Show the URL and the version."""
        return f"Table({self.url!r}, version={self.version})"


def open_table(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    options: Mapping[str, object] | None = None,
    credentials: CredentialsProvider | None = None,
) -> Table:
    """Open a table on a local disk or an object store, without Spark.

    Args:
        path: a folder, or a URL (`s3://`, `abfss://`, `gs://`, ...).
        version: the version to open; by default the newest.
        timestamp: instead of a version, open the newest one at that time; without a zone it is UTC.
        options: `spark.indextables.*` options, with or without the prefix.
        credentials: a callable that returns credentials, called again before they expire
            (docs/operations/storage.md).

    Raises:
        TableNotFoundError: there is no table at the path.
        VersionNotFoundError: the version does not exist, or was cleaned up.
    """
    if version is not None and timestamp is not None:
        raise OptionError("give a version or a timestamp, not both")
    checked = Options.parse(options, OPENED)
    log = open_log(open_store(path, checked, credentials=credentials), checked, engine=ENGINE)
    moment = None if timestamp is None else epoch_milliseconds(timestamp)
    return Table(log, read_snapshot(log, version=version, timestamp=moment))


def write(
    path: str | os.PathLike[str],
    data: object,
    *,
    mode: str = "append",
    partition_by: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    credentials: CredentialsProvider | None = None,
) -> Table:
    """Write rows to a table, without Spark, and return the version that was committed.

    Args:
        path: a folder, or a URL (`s3://`, `abfss://`, `gs://`, ...).
        data: an Arrow table, batch or reader, a pandas or Polars frame, anything with the Arrow C stream
            interface, a list of dicts, or a dict of columns.
        mode: what to do if the table exists: `append`, `overwrite`, `error`, or `ignore`.
        partition_by: the columns to partition by, when the table is new.
        options: `spark.indextables.*` options, with or without the prefix.
        credentials: a callable that returns credentials, as in `open`.
    """
    from indextables.ingest import Mode, write_table
    from indextables.maintain import on_write

    checked = Options.parse(options, WRITTEN)
    on_write.check(checked)
    written = write_table(
        open_store(path, checked, credentials=credentials),
        data,
        mode=Mode.of(mode),
        partition_by=[partition_by] if isinstance(partition_by, str) else partition_by,
        options=checked,
        engine=ENGINE,
    )
    if written.committed:
        on_write.after_write(written.log, checked)
    return Table(written.log, written.snapshot)


def repair(
    source: str,
    *,
    at: str | None = None,
    options: Mapping[str, object] | None = None,
    credentials: CredentialsProvider | None = None,
) -> "RepairResult":
    """Write a new transaction log of a table.

    Args:
        source: the log folder (`.../_transaction_log`) of a table; if its log is lost, the table's folder.
        at: the log folder to write, from the readable part of the source. Without it, a lost log is rebuilt
            from the splits, in its place.
        options: `spark.indextables.*` options, with or without the prefix.
        credentials: a callable that returns credentials, as in `open`.
    """
    from indextables.maintain.repair import repair as repair_log

    checked = Options.parse(options, {Where.COMMAND})
    return repair_log(source, at, checked, engine=ENGINE, credentials=credentials)
