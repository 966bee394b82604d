"""Purge: deletes splits that no version refers to, and old files of the log (PROTOCOL.md, "Purge").

A split is retained if a readable version refers to it, and while it is young: it may belong to a running
write, whose splits no version refers to yet. The order is:

```
check the writer protocol ─► clean the log by its retention ─► referenced splits
   ─► listing: which files are old enough and unreferenced? ─► commit a version PURGE: "up to this time"
   ─► referenced splits again, if others committed meanwhile ─► for each batch: still unreferenced? ─► delete
```

The version is committed before the first deletion: a write that began before it and has files of that age
fails instead of referring to files that are being deleted (`log.conflict`). Ages follow the store's clock:
times of files are compared with that of an object that the purge writes.

The listing is streamed; only the referenced paths are in memory, as one Arrow array.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CommitConflictError, CredentialsError, OptionError, StoreError
from indextables.log.conflict import PURGE, Draft, purge_parameters, purge_txn
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import check_writable
from indextables.log.format.names import LOG_FOLDER, relative_paths
from indextables.log.retention import ExpiredFiles
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.figures import TableListing, split_of
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.options.log import PROTOCOL_CHECK, RETRY_ATTEMPTS
from indextables.records import dataclass
from indextables.store import ObjectInfo, Store
from indextables.store.backend import Backoff

HOUR_MS = 3_600_000
# How many files of the listing are compared with the log at a time, and how many one call deletes.
_LISTED = 50_000
_BATCH = 1000
_BACKOFF = Backoff(base_ms=200, max_ms=60_000)


@dataclass(frozen=True, slots=True)
class Orphans:
    """A batch of files to delete, with one call to storage."""

    paths: tuple[str, ...]
    bytes: int
    # The number of orphans that are not old enough to be deleted.
    young: int = 0


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result of deleting a batch."""

    files: int
    bytes: int
    failed: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The plan of a purge, before it deletes the first split."""

    retention_hours: float
    before_ms: int
    expired: ExpiredFiles
    # Sorted.
    references: pa.Array
    version: int
    # The table's id, to detect a table that replaced it.
    table_id: str
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PurgeOutcome:
    """The numbers of files that a purge found and deleted; a dry run deletes nothing."""

    orphans_found: int = 0
    orphans_deleted: int = 0
    # Orphans that are too young to be deleted; a running write may be about to commit them.
    young_orphans: int = 0
    bytes_found: int = 0
    bytes_deleted: int = 0
    retention_hours: float = 0.0
    log_files_found: int = 0
    log_files_deleted: int = 0
    states_found: int = 0
    states_deleted: int = 0
    failed: int = 0
    problem: str = ""
    limit_reached: bool = False
    dry_run: bool = False
    duration_ms: int = 0

    @property
    def status(self) -> str:
        """DRY_RUN, SUCCESS, or PARTIAL_SUCCESS if some files could not be deleted."""
        if self.dry_run:
            return "DRY_RUN"
        return "PARTIAL_SUCCESS" if self.failed else "SUCCESS"


def retention_of(options: Options, hours: float | None) -> float:
    """The retention of orphans in hours; an error if it is too short to be safe."""
    retention_hours = options.get(opt.PURGE_RETENTION_HOURS) if hours is None else hours
    least = options.get(opt.PURGE_MIN_RETENTION_HOURS)
    if retention_hours < 0:
        raise OptionError(f"a retention of {retention_hours:g} hours is negative; give 0 or more")
    if retention_hours < least and options.get(opt.PURGE_CHECK):
        raise OptionError(
            f"a retention of {retention_hours:g} hours is below the minimum of {least:g}: splits of a write "
            "that still runs could be deleted; give a longer one, or, if no writer runs now, set "
            "spark.indextables.purge.retentionCheckEnabled=false"
        )
    return retention_hours


def plan_purge(
    log: TransactionLog,
    options: Options,
    *,
    older_than_hours: float | None = None,
    log_hours: float | None = None,
    dry_run: bool = False,
) -> PurgePlan:
    """Clean the log (except in a dry run), and collect the splits that it refers to afterwards."""
    retention = retention_of(options, older_than_hours)
    if log_hours is not None and log_hours < 0:
        raise OptionError(f"a log retention of {log_hours:g} hours is negative; give 0 or more")
    snapshot = log.snapshot()
    if log.options.get(PROTOCOL_CHECK):
        check_writable(snapshot.protocol, snapshot.url)
    # A dry run deletes and writes nothing, so it uses the clock of this machine.
    now = local_time_ms() if dry_run else log.store_time_ms()
    if dry_run:
        expired = log.expired_files(log_hours=log_hours)
        references = log.referenced_splits(without=expired)
    else:
        expired = log.clean(log_hours=log_hours)
        references = log.referenced_splits()
    return PurgePlan(
        retention,
        # At version 0, the splits of a running first write, or repair, may be unreferenced.
        int(now - retention * HOUR_MS) if snapshot.version else 0,
        expired,
        _sort_paths(references, snapshot.url),
        snapshot.version,
        snapshot.metadata.id,
        dry_run,
    )


def commit_purge(log: TransactionLog, plan: PurgePlan) -> PurgePlan:
    """Commit the purge's version; returns the plan with the referenced splits of all versions up to it.

    Purges do not conflict: if another one committed its version first, this one is committed after it.
    """
    attempts = log.options.get(RETRY_ATTEMPTS)
    after: Snapshot | None = None
    while after is None:
        base, attempts = _same_table(plan, log.snapshot()), attempts - 1
        draft = Draft(
            operation=PURGE,
            parameters=purge_parameters(plan.before_ms, plan.retention_hours),
            txns=(purge_txn(plan.before_ms, base),),
        )
        try:
            after = log.commit(draft, base)
        except CommitConflictError:
            if attempts <= 0:
                raise
    if after.version == plan.version + 1:
        return replace(plan, version=after.version)
    return replace(plan, references=_sort_paths(log.referenced_splits(), after.url), version=after.version)


def orphans(store: Store, plan: PurgePlan) -> Iterator[Orphans]:
    """Batches of unreferenced files that are old enough to be deleted; younger ones are only counted."""
    infos = TableListing(store).files()
    while chunk := list(islice(infos, _LISTED)):
        splits = pa.array([split_of(info.path) for info in chunk], pa.string())
        referenced = pc.is_in(splits, value_set=_between(plan.references, splits)).to_pylist()
        unnamed = [info for info, is_referenced in zip(chunk, referenced, strict=True) if not is_referenced]
        old = [info for info in unnamed if info.modified_ms <= plan.before_ms]
        if len(old) < len(unnamed):
            yield Orphans((), 0, len(unnamed) - len(old))
        for start in range(0, len(old), _BATCH):
            yield _batch(old[start : start + _BATCH])


def delete(store: Store, batch: Orphans, options: Options) -> Deletion:
    """Delete a batch; failed deletions are retried with exponential backoff."""
    problem = ""
    for attempt in range(options.get(opt.PURGE_RETRIES) + 1):
        if attempt:
            _BACKOFF.sleep(attempt)
        try:
            store.delete(batch.paths)
        except CredentialsError:
            raise
        except StoreError as error:
            problem = str(error)
        else:
            return Deletion(len(batch.paths), batch.bytes)
    rest = [path for path in batch.paths if store.exists(path)]
    if not rest:
        return Deletion(len(batch.paths), batch.bytes)
    return Deletion(len(batch.paths) - len(rest), 0, len(rest), problem)


def _same_table(plan: PurgePlan, snapshot: Snapshot) -> Snapshot:
    """The snapshot; an error if it belongs to another table than the plan."""
    if snapshot.metadata.id != plan.table_id:
        raise CommitConflictError(
            PURGE,
            "the table was deleted and replaced by another one",
            version=snapshot.version,
            other="of that other table",
        )
    return snapshot


def still_orphans(log: TransactionLog, plan: PurgePlan, batch: Orphans) -> Orphans:
    """The batch without files that versions after the plan refer to."""
    newest = _same_table(plan, log.snapshot())
    if newest.version == plan.version:
        return batch
    added = log.changes(since=plan.version).added["path"].combine_chunks()
    back = set(relative_paths(added, newest.url).to_pylist())
    if not any(split_of(path) in back for path in batch.paths):
        return batch
    remaining = tuple(path for path in batch.paths if split_of(path) not in back)
    return Orphans(remaining, batch.bytes * len(remaining) // len(batch.paths))


def purge(
    log: TransactionLog,
    options: Options,
    *,
    older_than_hours: float | None = None,
    log_hours: float | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PurgeOutcome:
    """Purge in this process; deletes `purge.parallelism` batches in parallel."""
    started = time.monotonic()
    plan = plan_purge(log, options, older_than_hours=older_than_hours, log_hours=log_hours, dry_run=dry_run)
    young, any_orphan = _young_before_any(orphans(log.store, plan))
    if any_orphan and not dry_run:
        plan = commit_purge(log, plan)
    orphan_count = orphan_bytes = 0
    deletions: list[Deletion] = []
    reached = False
    workers = options.get(opt.PURGE_PARALLELISM)

    def work(batch: Orphans) -> Deletion:
        return delete(log.store, still_orphans(log, plan, batch), options)

    with ThreadPoolExecutor(workers, thread_name_prefix="indextables-purge") as pool:
        running: set[Future[Deletion]] = set()
        young = 0 if any_orphan else young
        for batch in limit_batches(orphans(log.store, plan), options) if any_orphan else ():
            if batch is None:
                reached = True
                break
            young += batch.young
            if not batch.paths:
                continue
            orphan_count, orphan_bytes = orphan_count + len(batch.paths), orphan_bytes + batch.bytes
            if progress is not None:
                progress(orphan_count, 0)
            if dry_run:
                continue
            # At most twice as many batches are in memory as are deleted in parallel.
            if len(running) >= 2 * workers:
                done, running = wait(running, return_when="FIRST_COMPLETED")
                deletions += [each.result() for each in done]
            running.add(pool.submit(work, batch))
        deletions += [each.result() for each in running]
    if not dry_run:
        log.store.remove_abandoned(before_ms=plan.before_ms, other_tables=LOG_FOLDER)
    elapsed = int((time.monotonic() - started) * 1000)
    whole = outcome(plan, deletions, orphan_count, orphan_bytes, limit_reached=reached, duration_ms=elapsed)
    return replace(whole, young_orphans=young)


def _young_before_any(batches: Iterator[Orphans]) -> tuple[int, bool]:
    """The number of young orphans before the first one to delete, and whether there is one to delete."""
    young = 0
    for batch in batches:
        if batch.paths:
            return young, True
        young += batch.young
    return young, False


def limit_batches(batches: Iterator[Orphans], options: Options) -> Iterator[Orphans | None]:
    """The batches up to the maximum number of files of one purge; then None, if there are more."""
    room = options.get(opt.PURGE_MOST)
    for batch in batches:
        if len(batch.paths) > room:
            share = batch.bytes * room // len(batch.paths)
            if room:
                yield Orphans(batch.paths[:room], share)
            yield None
            return
        room -= len(batch.paths)
        yield batch


def outcome(
    plan: PurgePlan,
    deletions: Sequence[Deletion],
    orphan_count: int,
    orphan_bytes: int,
    *,
    limit_reached: bool,
    duration_ms: int,
) -> PurgeOutcome:
    """The outcome from the results of all batches; an error if no file could be deleted."""
    deleted, failed = sum(d.files for d in deletions), sum(d.failed for d in deletions)
    problem = next((d.problem for d in deletions if d.failed), "")
    if failed and not deleted:
        raise StoreError(
            f"none of {failed} files could be deleted: {problem}; check the permission to delete, and repeat"
        )
    log_files = len(plan.expired.paths)
    return PurgeOutcome(
        orphans_found=orphan_count,
        orphans_deleted=deleted,
        bytes_found=orphan_bytes,
        bytes_deleted=sum(d.bytes for d in deletions),
        retention_hours=plan.retention_hours,
        log_files_found=log_files,
        log_files_deleted=0 if plan.dry_run else log_files,
        states_found=len(plan.expired.states),
        states_deleted=0 if plan.dry_run else len(plan.expired.states),
        failed=failed,
        problem=problem,
        limit_reached=limit_reached,
        dry_run=plan.dry_run,
        duration_ms=duration_ms,
    )


def _batch(infos: Sequence[ObjectInfo]) -> Orphans:
    return Orphans(tuple(info.path for info in infos), sum(info.size for info in infos))


def _between(references: pa.Array, splits: pa.Array) -> pa.Array:
    """The range of the sorted referenced paths that can contain these paths, which are sorted, too."""
    ends = pc.min_max(splits).as_py()
    start = bisect_left(references, ends["min"], key=_text)
    return references.slice(start, bisect_right(references, ends["max"], lo=start, key=_text) - start)


def _text(value: pa.Scalar) -> str:
    text: str = value.as_py()
    return text


def _sort_paths(references: pa.Array, table_url: str) -> pa.Array:
    """Paths relative to the table, in the order of a listing; some writers store whole URLs of splits."""
    relative = relative_paths(references, table_url)
    return relative.take(pc.array_sort_indices(relative))
