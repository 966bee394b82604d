"""Files that no version needs are deleted: splits, and old files of the log.

A split stays if any version that can still be read names it, and as long as it is young: a write that is
still running has not named its splits yet. So the order is: first the log forgets versions that have
outlived their retention, then the splits that no remaining version names may go.

```
listing, file by file ─► old enough ─► named by no version ─► batches ─► deleted, with retries
```

The listing is never in memory as a whole; the paths that the log names are, as one Arrow array.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CredentialsError, LogError, OptionError, StoreError
from indextables.log.retention import Expired
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.folder import OwnFolder, split_of
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.store import ObjectInfo, Store, open_store

HOUR_MS = 3_600_000
# So many files of the listing are compared with the log at once, and so many are deleted by one call.
_LISTED = 50_000
_BATCH = 1000
_FIRST_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that may go: one call to storage deletes them."""

    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of a batch."""

    files: int
    bytes: int
    failed: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What a purge has decided before it deletes the first split."""

    retention_hours: float
    before_ms: int
    expired: Expired
    # Sorted.
    named: pa.Array
    version: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PurgeOutcome:
    """What a purge found and deleted; a dry run deletes nothing."""

    orphans_found: int = 0
    orphans_deleted: int = 0
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
        """In one word."""
        if self.dry_run:
            return "DRY_RUN"
        return "PARTIAL_SUCCESS" if self.failed else "SUCCESS"


def retention_of(options: Options, hours: float | None) -> float:
    """For how many hours orphans are kept; refused if that is too short to be safe."""
    kept = options.get(opt.PURGE_RETENTION_HOURS) if hours is None else hours
    least = options.get(opt.PURGE_MIN_RETENTION_HOURS)
    if kept < 0:
        raise OptionError(f"a retention of {kept:g} hours is negative; give 0 or more")
    if kept < least and options.get(opt.PURGE_CHECK):
        raise OptionError(
            f"a retention of {kept:g} hours is below the minimum of {least:g}: splits of a write that still "
            "runs could be deleted; give a longer one, or, if nobody writes now, set "
            "spark.indextables.purge.retentionCheckEnabled=false"
        )
    return kept


def plan_purge(
    log: TransactionLog,
    options: Options,
    *,
    older_than_hours: float | None = None,
    log_hours: float | None = None,
    dry_run: bool = False,
    now_ms: int | None = None,
) -> PurgePlan:
    """Clean the log (a dry run only looks), and learn which splits it names after that."""
    kept = retention_of(options, older_than_hours)
    if log_hours is not None and log_hours < 0:
        raise OptionError(f"a log retention of {log_hours:g} hours is negative; give 0 or more")
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    snapshot = log.snapshot()
    if dry_run:
        found = log.expired(log_hours=log_hours)
        named = log.named_splits(without=found)
    else:
        found = log.clean(log_hours=log_hours)
        named = log.named_splits()
    return PurgePlan(
        kept, int(now - kept * HOUR_MS), found, _relative(named, snapshot), snapshot.version, dry_run
    )


def orphans(store: Store, plan: PurgePlan) -> Iterator[Orphans]:
    """Batches of files that no version names and that are old enough, from the listing."""
    listed = OwnFolder(store).files()
    while chunk := list(islice(listed, _LISTED)):
        old = [info for info in chunk if info.modified_ms < plan.before_ms]
        if not old:
            continue
        splits = pa.array([split_of(info.path) for info in old], pa.string())
        kept = pc.is_in(splits, value_set=_between(plan.named, splits)).to_pylist()
        gone = [info for info, named in zip(old, kept, strict=True) if not named]
        for start in range(0, len(gone), _BATCH):
            yield _batch(gone[start : start + _BATCH])


def delete(store: Store, batch: Orphans, options: Options) -> Deletion:
    """Delete a batch; what fails is tried again, with longer and longer pauses."""
    problem = ""
    for attempt in range(options.get(opt.PURGE_RETRIES) + 1):
        if attempt:
            time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        try:
            store.delete(batch.paths)
        except CredentialsError:
            raise
        except StoreError as error:
            problem = str(error)
        else:
            return Deletion(len(batch.paths), batch.bytes)
    left = [path for path in batch.paths if store.exists(path)]
    if not left:
        return Deletion(len(batch.paths), batch.bytes)
    return Deletion(len(batch.paths) - len(left), 0, len(left), problem)


def still_orphans(log: TransactionLog, plan: PurgePlan, batch: Orphans) -> Orphans:
    """The batch less what versions committed since the plan have named (a RESTORE can bring a split back)."""
    newest = log.snapshot()
    if newest.version == plan.version:
        return batch
    back = set(log.changes(since=plan.version).added["path"].to_pylist())
    if not any(split_of(path) in back for path in batch.paths):
        return batch
    kept = tuple(path for path in batch.paths if split_of(path) not in back)
    return Orphans(kept, batch.bytes * len(kept) // len(batch.paths))


def purge(
    log: TransactionLog,
    options: Options,
    *,
    older_than_hours: float | None = None,
    log_hours: float | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PurgeOutcome:
    """Delete what no version needs, in this process."""
    started = time.monotonic()
    plan = plan_purge(log, options, older_than_hours=older_than_hours, log_hours=log_hours, dry_run=dry_run)
    found = found_bytes = 0
    deletions: list[Deletion] = []
    reached = False
    workers = options.get(opt.PURGE_PARALLELISM)
    with ThreadPoolExecutor(workers) as pool:
        running: set[Future[Deletion]] = set()
        for batch in bounded(orphans(log.store, plan), options):
            if batch is None:
                reached = True
                break
            found, found_bytes = found + len(batch.paths), found_bytes + batch.bytes
            if progress is not None:
                progress(found, 0)
            if dry_run:
                continue
            running.add(pool.submit(delete, log.store, still_orphans(log, plan, batch), options))
            if len(running) >= 2 * workers:
                done = next(as_completed(running))
                running.remove(done)
                deletions.append(done.result())
        deletions += [done.result() for done in as_completed(running)]
    if not dry_run:
        log.store.remove_abandoned(older_than_hours=plan.retention_hours)
    elapsed = int((time.monotonic() - started) * 1000)
    return outcome(plan, deletions, found, found_bytes, limit_reached=reached, duration_ms=elapsed)


def bounded(batches: Iterator[Orphans], options: Options) -> Iterator[Orphans | None]:
    """The batches up to the most files that one purge deletes; then None, if there are more."""
    left = options.get(opt.PURGE_MOST)
    for batch in batches:
        if len(batch.paths) > left:
            share = batch.bytes * left // len(batch.paths)
            if left:
                yield Orphans(batch.paths[:left], share)
            yield None
            return
        left -= len(batch.paths)
        yield batch


def outcome(
    plan: PurgePlan,
    deletions: Sequence[Deletion],
    found: int,
    found_bytes: int,
    *,
    limit_reached: bool,
    duration_ms: int,
) -> PurgeOutcome:
    """The whole, from the parts; an error if nothing at all could be deleted."""
    deleted, failed = sum(d.files for d in deletions), sum(d.failed for d in deletions)
    problem = next((d.problem for d in deletions if d.failed), "")
    if failed and not deleted:
        raise StoreError(
            f"none of {failed} files could be deleted: {problem}; check the permission to delete, and repeat"
        )
    log_files = len(plan.expired.paths)
    return PurgeOutcome(
        orphans_found=found,
        orphans_deleted=deleted,
        bytes_found=found_bytes,
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


def _between(named: pa.Array, splits: pa.Array) -> pa.Array:
    """The part of the sorted names in which these paths can be: a listing comes sorted, too."""
    ends = pc.min_max(splits).as_py()
    start = bisect_left(named, ends["min"], key=_text)
    return named.slice(start, bisect_right(named, ends["max"], lo=start, key=_text) - start)


def _text(value: pa.Scalar) -> str:
    text: str = value.as_py()
    return text


def _relative(named: pa.Array, snapshot: Snapshot) -> pa.Array:
    """Paths as a listing shows them, sorted: some writers name splits by their whole URL."""
    whole = pc.or_(pc.match_substring(named, "://"), pc.starts_with(named, "/"))
    if pc.any(whole).as_py():
        inside = [_inside(path, snapshot.url) for path in named.filter(whole).to_pylist()]
        named = pc.replace_with_mask(named, whole, pa.array(inside, pa.string()))
    return named.take(pc.array_sort_indices(named))


def _inside(path: str, table: str) -> str:
    """A whole URL, relative to the table; refused if it leads elsewhere, as nothing is sure then."""
    url = open_store(path).url
    if not url.startswith(f"{table}/"):
        raise LogError(
            f"the log of {table} names the split {path}, which is not below the table's folder, so it cannot "
            "be told which files there are needed; nothing was deleted"
        )
    return url.removeprefix(f"{table}/")
