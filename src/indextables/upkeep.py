"""What keeps a table in shape, and what tells about it: commands as methods, with typed results."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from indextables.errors import OptionError
from indextables.log.checkpoint import Checkpointed
from indextables.log.history import HistoryEntry
from indextables.log.outcome import CommitOutcome
from indextables.log.snapshot import Snapshot
from indextables.log.told import Told
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.maintain.drop_partitions import Dropped, drop_partitions
from indextables.maintain.figures import (
    ColumnSkipping,
    SplitComponents,
    StateFigures,
    column_skipping,
    split_components,
    state_figures,
)
from indextables.maintain.merge import MergeOutcome, MergeWish, merge
from indextables.maintain.partitions import partition_condition
from indextables.maintain.prewarm import PrewarmPlan, Warmed, plan_prewarm, prewarm, warm_as
from indextables.maintain.purge import PurgeOutcome, purge
from indextables.maintain.restore import Restored, restore
from indextables.maintain.truncate import Truncated, truncate
from indextables.options import Options
from indextables.process import Forgotten, forget_logs
from indextables.split.index.cache import index_cache
from indextables.split.index.cache_figures import CacheStats

Progress = Callable[[int, int], None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Upkeep:
    """The methods of a table that do what commands do: to the newest version, whichever one is open."""

    def __init__(self, log: TransactionLog, snapshot: Snapshot) -> None:
        """Use `indextables.open(path)`."""
        self._log = log
        self._snapshot = snapshot
        self._options: Options = log.options

    @property
    def url(self) -> str:
        """Where the table is."""
        return self._snapshot.url

    def cache_statistics(self) -> CacheStats:
        """How full the local cache of indexes is, and what this process asked of it."""
        return index_cache(self._options).stats()

    def state(self) -> StateFigures:
        """How the log's newest state is made up, and whether it should be compacted."""
        return state_figures(self._snapshot, self._options)

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
        moment = None if timestamp is None else milliseconds(timestamp)
        return restore(self._log, version=version, timestamp=moment)

    def prewarm(
        self,
        *,
        where: str | None = None,
        segments: Sequence[str] = (),
        fields: Sequence[str] = (),
        parallelism: int | None = None,
        progress: Progress | None = None,
    ) -> Warmed:
        """Bring indexes to the local disk and into memory before the first search.

        Args:
            where: a condition on partition columns.
            segments: parts of the index (by default TERM and POSTINGS).
            fields: only those of these columns.
            parallelism: how many splits are warmed at once.
            progress: told how many splits are done, and how many there are.
        """
        plan = self._plan_prewarm(where, segments, fields, parallelism)
        return prewarm(plan, self._log.store, self._options, progress)

    def start_prewarm(
        self,
        *,
        where: str | None = None,
        segments: Sequence[str] = (),
        fields: Sequence[str] = (),
        parallelism: int | None = None,
    ) -> jobs.Job:
        """The same in the background; `wait_for_prewarm` waits for it."""
        plan = self._plan_prewarm(where, segments, fields, parallelism)
        return warm_as(plan, self._log.store, self._options)

    def _plan_prewarm(
        self, where: str | None, segments: Sequence[str], fields: Sequence[str], parallelism: int | None
    ) -> PrewarmPlan:
        return plan_prewarm(
            self._log.snapshot(),
            self._options,
            segments=segments,
            fields=fields,
            where=where,
            parallelism=parallelism,
        )

    def wait_for_prewarm(self, job: str | None = None, *, timeout: float = jobs.WAIT_S) -> list[jobs.Job]:
        """Wait until the prewarm jobs of this table have ended, or one of them; what became of them.

        Args:
            job: the id of one.
            timeout: wait at most so many seconds; a job that did not end by then has no `ended`.
        """
        return jobs.wait(jobs.found(jobs.JobKind.PREWARM, self.url, job), timeout)

    def prewarm_jobs(self) -> list[jobs.Job]:
        """The prewarm jobs of this table on this machine, running and recently ended."""
        return jobs.jobs(jobs.JobKind.PREWARM, self.url)

    def merge_jobs(self) -> list[jobs.Job]:
        """The merges of this table on this machine, running and recently ended."""
        return jobs.jobs(jobs.JobKind.MERGE, self.url)

    def components(self, where: str | None = None) -> list[SplitComponents]:
        """The parts of every split by kind and column, with their sizes.

        Args:
            where: a condition on partition columns: only splits of these partitions.
        """
        chosen = None if where is None else partition_condition(self._snapshot, where)
        return list(split_components(self._snapshot, self._log.store, chosen))

    def data_skipping(self) -> list[ColumnSkipping]:
        """For each column: how many splits have statistics that let a query skip them, and the bounds."""
        return column_skipping(self._snapshot)

    def log_actions(self, *, include_all: bool = False) -> list[Told]:
        """The actions of the log, file by file: the newest state and the versions after it.

        Args:
            include_all: those of every version file there is, instead.
        """
        return list(self._log.told(everything=include_all))

    def forget_log(self) -> Forgotten:
        """Forget what this process has read of the table's log; never needed for right answers."""
        return forget_logs(self.url)

    def history(self, limit: int | None = None) -> pa.Table:
        """What was done to the table, newest version first."""
        return _history_table(self._log.history(limit))

    def commit_outcome(self, token: str, *, version: int | None = None) -> CommitOutcome:
        """Whether a commit that ended with `CommitUnknownError` is in the table.

        Args:
            token: the error's `token`.
            version: the error's `version`; with it, a commit that lost its number is known to be absent.

        Returns:
            `committed` is true with the `version`, false if it is absent for good, or None if the version
            does not exist yet: the request may still arrive. Then ask again, or commit anything else.
        """
        return self._log.commit_outcome(token, version=version)


def _hours(span: timedelta | None) -> float | None:
    return None if span is None else span / timedelta(hours=1)


def milliseconds(moment: datetime | str) -> int:
    """Milliseconds since 1970; a time without a zone is UTC."""
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
            "token": pa.array([e.token for e in entries], pa.string()),
        }
    )
