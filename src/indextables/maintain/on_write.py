"""The maintenance that a write starts, if options say so: merges, and purges after merges or some writes.

```
commit ─► enough small splits? ─► merge, in the background or not ─► purge
       └► n-th write? ─► purge
```

The write is committed before. Errors here are logged, and a failed merge is listed among the jobs; they do
not affect the table's rows.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from indextables.errors import is_panic
from indextables.limits import cpu_count
from indextables.log.environment import local_time_ms
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.maintain.jobs import TaskSet
from indextables.maintain.merge import (
    MergeOptions,
    MergeOutcome,
    MergePass,
    MergeTaskResult,
    finish_merge,
    plan_merge,
)
from indextables.maintain.purge import purge, retention_of
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.options.maintenance import MERGE_BATCH
from indextables.records import dataclass

_logger = logging.getLogger(__name__)


def check(options: Options) -> None:
    """Check options before the write that are used after it: the target size and the retention."""
    if options.get(opt.MERGE_ON_WRITE):
        MergeOptions.of_size(options.get(opt.MERGE_TARGET))
    if options.get(opt.PURGE_ON_WRITE):
        retention_of(options, options.get(opt.PURGE_SPLIT_HOURS))


@dataclass(frozen=True, slots=True)
class WriteMerge:
    """A merge that a write starts; each batch of merged splits is one version."""

    merge_options: MergeOptions
    batch: int

    def options(self, base: Options) -> Options:
        """The options of the merge."""
        return Options.parse({MERGE_BATCH.key: self.batch}).over(base)


# The target size of the first merge of small splits; the next targets grow by the number of sources.
_FIRST_TARGET = 16 << 20


def merge_to_start(snapshot: Snapshot, options: Options, processors: int) -> WriteMerge | None:
    """The merge that a write starts; None if there is not enough to merge.

    If a merge needs many splits, small targets come first: splits of one size are merged into one of the next
    size, so that merges write only a small multiple of the bytes of the writes.
    """
    if not options.get(opt.MERGE_ON_WRITE):
        return None
    batch = max(1, int(processors * options.get(opt.BATCH_CPU_FRACTION)))
    least, largest = options.get(opt.MIN_SPLITS), options.get(opt.MERGE_TARGET)
    target = _FIRST_TARGET if least > opt.MIN_SPLITS.default else largest
    while True:
        sized = MergeOptions.of_size(min(target, largest))
        tasks = sized.tasks(snapshot, options, MergeOutcome(), local_time_ms())
        enough = len(tasks) >= max(1, batch * options.get(opt.MIN_BATCHES))
        if enough and any(len(task.sources) >= least for task in tasks):
            return WriteMerge(replace(sized, max_new_splits=batch * options.get(opt.BATCHES_AT_ONCE)), batch)
        if target >= largest:
            return None
        target *= least


def purges_after(writes: int, options: Options) -> bool:
    """Whether a purge follows the n-th write to a table."""
    every = options.get(opt.PURGE_AFTER_WRITES)
    return bool(options.get(opt.PURGE_ON_WRITE) and every and writes % every == 0)


@dataclass(frozen=True, slots=True)
class MergeRound:
    """A round of a merge after a write: one merge of at most `mergeOnWrite.maxConcurrentBatches` batches."""

    merge: WriteMerge
    merge_pass: MergePass
    # Whether this round or an earlier one merged splits.
    merged: bool = False


def plan_merge_on_write(
    log: TransactionLog, options: Options, processors: int, *, owner: int | None = None
) -> TaskSet | None:
    """Plan the first round of the merge that a write starts; None if there is not enough to merge."""
    merge = merge_to_start(log.snapshot(), options, processors)
    return None if merge is None else _plan_round(log, options, merge, merged=False, owner=owner)


def finish_merge_on_write(
    log: TransactionLog,
    options: Options,
    state: MergeRound,
    results: Iterable[MergeTaskResult],
    *,
    owner: int | None = None,
) -> TaskSet | None:
    """Commit merged splits; returns further tasks. After the last round, the table may be purged."""
    finished = finish_merge(log, state.merge.options(options), state.merge_pass, results)
    if isinstance(finished, TaskSet):
        return replace(finished, state=replace(state, merge_pass=finished.state))
    jobs.end(state.merge_pass.job)
    for path, reason in finished.skipped + finished.unavailable:
        _logger.warning("the merge after a write to %s skipped %s: %s", log.store.url, path, reason)
    for reason in finished.failed:
        _logger.warning("the merge after a write to %s skipped a group: %s", log.store.url, reason)
    merged = state.merged or finished.new_splits > 0
    again = (
        _plan_round(log, options, state.merge, merged=merged, owner=owner) if finished.new_splits else None
    )
    if again is None and merged and options.get(opt.PURGE_ON_WRITE) and options.get(opt.PURGE_AFTER_MERGE):
        purge_now(log, options)
    return again


def _plan_round(
    log: TransactionLog, options: Options, merge: WriteMerge, *, merged: bool, owner: int | None
) -> TaskSet | None:
    tasks = plan_merge(log, merge.options(options), merge.merge_options, owner=owner)
    if not isinstance(tasks, TaskSet):
        return None
    return replace(tasks, state=MergeRound(merge, tasks.state, merged))


def merge_now(log: TransactionLog, options: Options, *, processors: int | None = None) -> None:
    """Merge and purge in this process, if there is enough to merge; errors are logged."""
    with _log_errors("merge", log.store.url):
        jobs.run_tasks(
            plan_merge_on_write(log, options, processors or cpu_count()),
            lambda state, results: finish_merge_on_write(log, options, state, results),
            log.store,
        )


def purge_now(log: TransactionLog, options: Options) -> None:
    """Purge with the options of a write; errors are logged."""
    with _log_errors("purge", log.store.url):
        purge(
            log,
            options,
            older_than_hours=options.get(opt.PURGE_SPLIT_HOURS),
            log_hours=options.get(opt.PURGE_LOG_HOURS),
        )


@contextmanager
def _log_errors(what: str, url: str) -> Iterator[None]:
    """Log an error of the maintenance instead of raising it: the write would look failed."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        _logger.warning(
            "the %s after a write to %s failed; the write was committed", what, url, exc_info=True
        )


# --- in this process -------------------------------------------------------------------------------


@dataclass(slots=True)
class _BackgroundMerge:
    """The merge of a table in the background; `again` is a merge that a later write requested."""

    thread: threading.Thread
    shutdown_timeout: float
    again: Callable[[], None] | None = None


_lock = threading.Lock()
_writes: Counter[str] = Counter()
_running: dict[str, _BackgroundMerge] = {}
_waits_at_exit = False


def _after_fork() -> None:
    """Reset in a forked child: it has no threads of merges, and a thread of the parent may hold the lock."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()
    _writes.clear()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)


def after_write(log: TransactionLog, options: Options) -> None:
    """Start the maintenance after a committed write; errors are logged."""
    url = log.store.url
    with _lock:
        _writes[url] += 1
        writes = _writes[url]
    if options.get(opt.MERGE_ON_WRITE):
        with _log_errors("merge", url):
            if options.get(opt.MERGE_IN_BACKGROUND):
                _start(url, lambda: merge_now(log, options), options.get(opt.SHUTDOWN_TIMEOUT_MS) / 1000)
            else:
                wait_for_merges(url)
                merge_now(log, options)
    if purges_after(writes, options):
        purge_now(log, options)


def wait_for_merges(url: str | None = None) -> None:
    """Wait for the merges of this process in the background, of one table or of all."""
    with _lock:
        runs = [running for table, running in _running.items() if url in (None, table)]
    for running in runs:
        running.thread.join()


def _start(url: str, work: Callable[[], None], shutdown_timeout: float) -> None:
    """Run work in the background; if work for the same table runs already, run this after it."""
    with _lock:
        if (running := _running.get(url)) is not None:
            running.again, running.shutdown_timeout = work, shutdown_timeout
            return
        thread = threading.Thread(
            target=_work, args=(url, work), name="indextables-merge-on-write", daemon=True
        )
        _wait_at_exit()
        # Registered after the start, which may fail; the thread needs the lock to look for its entry.
        thread.start()
        _running[url] = _BackgroundMerge(thread, shutdown_timeout)


def _work(url: str, work: Callable[[], None]) -> None:
    next_work: Callable[[], None] | None = work
    while next_work is not None:
        with _log_errors("merge", url):
            next_work()
        with _lock:
            running = _running[url]
            next_work, running.again = running.again, None
            if next_work is None:
                del _running[url]


def _wait_at_exit() -> None:
    global _waits_at_exit  # noqa: PLW0603 - once in a process
    if not _waits_at_exit:
        # Before `atexit`, when no thread can be started any more: a merge starts threads.
        threading._register_atexit(_leave)  # type: ignore[attr-defined]  # noqa: SLF001
        _waits_at_exit = True


def _leave() -> None:
    started = time.monotonic()
    with _lock:
        merges = list(_running.values())
    for running in merges:
        running.thread.join(max(0.0, running.shutdown_timeout - (time.monotonic() - started)))
