"""Builds and syncs companion indexes: one version of the index for each sync."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Event
from types import MappingProxyType

from indextables.errors import CommitConflictError, IndexTablesError, OptionError, SplitError
from indextables.ingest.plan import has_old_split
from indextables.log.commit import check_uploads
from indextables.log.conflict import Draft, purged_problem
from indextables.log.format.actions import Add, Txn, companion_protocol
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options.maintenance import BACKOFF_MULTIPLIER, MAX_ERRORS
from indextables.records import dataclass
from indextables.source.companion import set_roots
from indextables.source.reader import METADATA_FILES
from indextables.sync.build import BuildContext, build_split, discard
from indextables.sync.plan import SourceGroup, SyncPlan, SyncRequest, plan_sync

OPERATION = "SYNC COMPANION"
# The application in the log's `txn`: syncs are numbered, so that concurrent syncs conflict.
_APPLICATION = "indextables.companion"
# The maximum pause after errors, in seconds.
_LONGEST_PAUSE = 600.0
_logger = logging.getLogger(__name__)
# The maximum number of attempts of a sync after conflicts.
_ATTEMPTS = 10

# Called with the number of finished splits and the number of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class SyncResult:
    """The result of a sync.

    Attributes:
        table_path: the URL of the index.
        source_path: the URL of the source.
        status: "success", "no_action" or "dry_run".
        source_version: the version of the source that the index has now.
        version: the version of the index; None if there is no index yet.
        splits_created: the number of new splits; in a dry run, of splits to build.
        splits_invalidated: the number of removed splits; in a dry run, of splits to remove.
        files_indexed: the number of indexed source files; in a dry run, of files to index.
        source_bytes: the size of these files.
        split_bytes: the size of the new splits.
        duration_ms: how long the sync took.
        message: further messages for the user.
    """

    table_path: str
    source_path: str
    status: str
    source_version: int | str | None
    version: int | None = None
    splits_created: int = 0
    splits_invalidated: int = 0
    files_indexed: int = 0
    source_bytes: int = 0
    split_bytes: int = 0
    duration_ms: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunningSync:
    """A sync between its plan and its commit; picklable, without secrets.

    Attributes:
        plan: the plan.
        started: when the sync began, in seconds.
        attempt: the number of the attempt.
        reused: splits of earlier attempts, by the contents of their files.
    """

    plan: SyncPlan
    started: float
    attempt: int
    reused: Mapping[tuple[str, ...], Add]

    @property
    def pending(self) -> list[SourceGroup]:
        """The splits that are still to be built."""
        return [split for split in self.plan.splits if split.contents not in self.reused]


def sync(
    log: TransactionLog, request: SyncRequest, options: Options, *, progress: Progress | None = None
) -> SyncResult:
    """Build a companion index, or sync it with its source, in this process.

    Raises:
        SourceError: the source cannot be read exactly, or changed meanwhile.
        CommitConflictError: all attempts conflicted with other syncs.
    """
    running = begin(log, request, options)
    while isinstance(running, RunningSync):
        context = BuildContext.of(running.plan)
        pending = running.pending
        built: list[Add] = []
        try:
            for split in pending:
                built.append(build_split(split, context, log.store))
                if progress is not None:
                    progress(len(built), len(pending))
        except BaseException:
            discard(log.store, [*running.reused.values(), *built])
            raise
        running = finish(log, request, options, running, built)
    return running


def follow(
    log: TransactionLog,
    request: SyncRequest,
    options: Options,
    *,
    seconds: float,
    stop: Event,
    roots: Mapping[str, str] = MappingProxyType({}),
    progress: Progress | None = None,
    report: Callable[[SyncResult], None] | None = None,
) -> SyncResult | None:
    """Sync a companion index with its source repeatedly, until `stop` is set.

    A running sync is finished. After an error the pause before the next sync is multiplied by
    `companion.stream.errorBackoffMultiplier`.

    Args:
        log: the log of the index.
        request: the request, without a version.
        options: the options of the build.
        seconds: the pause between two syncs.
        stop: ends the function when it is set.
        roots: table roots, set after the first sync.
        progress: called as splits are built, in each sync.
        report: called with the result of each sync that changed the index.

    Returns:
        The result of the last sync that succeeded.

    Raises:
        OptionError: the request names one version of the source.
        Exception: the error of the last sync, after `companion.stream.maxConsecutiveErrors` failures.
    """
    if request.version is not None or request.dry_run:
        raise OptionError("a continuous sync has no fixed version and no dry run")
    if request.source.endswith(METADATA_FILES) and not request.catalog:
        raise OptionError(
            f"{request.source} is the metadata file of one version of an Iceberg table, which never changes, "
            "so a continuous sync of it is impossible; give the table's name and its catalog, or the folder "
            "of a table of a Hadoop catalog"
        )
    last: SyncResult | None = None
    errors = 0
    while not stop.is_set():
        try:
            result = sync(log, request, options, progress=progress)
            if last is None:
                set_roots(log, roots)
        except Exception as error:
            # An error of a library for one state of the source may not occur with the next one.
            errors += 1
            if errors >= options.get(MAX_ERRORS):
                raise
            _logger.warning("sync %d in a row of %s failed: %s", errors, log.store.url, error)
        else:
            # Only the first sync rebuilds the index.
            request = replace(request, rebuild=False)
            last, errors = result, 0
            _logger.info(
                "companion index %s: %s, version %s", log.store.url, last.status, last.source_version
            )
            if report is not None and last.status != "no_action":
                report(last)
        pause = seconds * options.get(BACKOFF_MULTIPLIER) ** errors
        stop.wait(min(pause, max(seconds, _LONGEST_PAUSE)))
    return last


def begin(log: TransactionLog, request: SyncRequest, options: Options) -> RunningSync | SyncResult:
    """Plan a sync; returns its result if there is nothing to build or commit."""
    return _begin(log, request, options, time.monotonic(), 1, {})


def _begin(
    log: TransactionLog,
    request: SyncRequest,
    options: Options,
    started: float,
    attempt: int,
    built: Mapping[tuple[str, ...], Add],
) -> RunningSync | SyncResult:
    plan = plan_sync(log, request, options)
    new_contents = {split.contents for split in plan.splits}
    reused = {contents: add for contents, add in built.items() if contents in new_contents}
    if reused and not _are_there(log, plan, tuple(reused.values())):
        reused = {}
    discard(log.store, [add for contents, add in built.items() if contents not in reused])
    running = RunningSync(plan, started, attempt, reused)
    if request.dry_run or plan.unchanged:
        return _result(log, running, "dry_run" if request.dry_run else "no_action", (), _version(plan))
    if plan.base is None:
        log.check_store()
    return running


def _are_there(log: TransactionLog, plan: SyncPlan, adds: Sequence[Add]) -> bool:
    """Whether splits of an earlier attempt certainly exist, and stay.

    The folder of the index may have been deleted since, and a purge may delete what no version refers to.
    """
    try:
        check_uploads(log.store, adds)
    except SplitError:
        return False
    return plan.base is None or purged_problem(adds, log.snapshot()) is None


def finish(
    log: TransactionLog, request: SyncRequest, options: Options, running: RunningSync, built: Sequence[Add]
) -> RunningSync | SyncResult:
    """Commit the splits of a sync; after a conflict, return a new plan.

    `built` are the splits of `running.pending`, in the same order. On failure they are deleted if certainly
    no version refers to them.
    """
    plan = running.plan
    adds = {**running.reused, **{s.contents: a for s, a in zip(running.pending, built, strict=True)}}
    try:
        base = _base(log, plan)
        if base is not None:
            ordered = tuple(adds[split.contents] for split in plan.splits)
            if has_old_split(ordered, options):
                check_uploads(log.store, ordered)
            after = log.commit(_draft(plan, base, ordered), base)
            return _result(log, running, "success", ordered, after.version)
    except CommitConflictError:
        if running.attempt >= _ATTEMPTS:
            discard(log.store, list(adds.values()))
            raise
    except IndexTablesError as error:
        if error.not_committed:
            discard(log.store, list(adds.values()))
        raise
    again = _begin(log, request, options, running.started, running.attempt + 1, adds)
    if isinstance(again, RunningSync) and BuildContext.of(again.plan) != BuildContext.of(plan):
        # The splits were built for other columns or another version of the source.
        discard(log.store, list(again.reused.values()))
        again = replace(again, reused={})
    return again


def _base(log: TransactionLog, plan: SyncPlan) -> Snapshot | None:
    """The base of the plan; creates the table for a first sync.

    None if it was cleaned up or created meanwhile.
    """
    if plan.base is not None:
        return log.snapshot_of(plan.base)
    empty = replace(plan.properties, version=None, indexed={})
    return log.create(
        empty.metadata(plan.metadata), operation="CREATE COMPANION", protocol=companion_protocol()
    )


def _draft(plan: SyncPlan, base: Snapshot, adds: tuple[Add, ...]) -> Draft:
    last = base.txns.get(_APPLICATION)
    return Draft(
        operation=OPERATION,
        adds=adds,
        removes=plan.removes,
        metadata=plan.metadata,
        txns=(Txn(app_id=_APPLICATION, version=0 if last is None else last.version + 1),),
        parameters={
            "format": plan.properties.format,
            "source": plan.properties.source,
            "sourceVersion": str(plan.source_version),
        },
    )


def _version(plan: SyncPlan) -> int | None:
    return None if plan.base is None else plan.base[0]


def _result(
    log: TransactionLog, running: RunningSync, status: str, adds: Sequence[Add], version: int | None
) -> SyncResult:
    plan = running.plan
    return SyncResult(
        table_path=log.store.url,
        source_path=plan.properties.location,
        status=status,
        source_version=plan.source_version,
        version=version,
        splits_created=len(plan.splits),
        splits_invalidated=len(plan.removes),
        files_indexed=sum(len(split.files) for split in plan.splits),
        source_bytes=sum(split.bytes for split in plan.splits),
        split_bytes=sum(add.size for add in adds),
        duration_ms=int((time.monotonic() - running.started) * 1000),
        message="; ".join(plan.notes),
    )
