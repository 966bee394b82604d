"""Many small splits become few large ones.

Each partition's small splits are packed, oldest first, into groups of about the target size; each group
becomes one split. A pass is one version: the sources go, the merged splits come, no row changes. A split
that cannot be read stays live and is left alone for a while (`mergeskip`).
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CommitUnknownError, UnreadableSplitError
from indextables.joint import added, split_path, withdraw
from indextables.log import files as file_lists
from indextables.log.actions import Add, MergeSkip
from indextables.log.conflict import Draft
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import MERGE, TransactionLog
from indextables.maintain.sources import MergeFacts, SourceRef, open_source
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.split.merge import Source, merge_splits
from indextables.store import Store

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Splits of one partition that become one, in this order."""

    sources: tuple[SourceRef, ...]
    partition_values: dict[str, str | None]
    facts: MergeFacts = field(repr=False)


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a task: the new split and the paths it holds, and the splits that were left out."""

    add: Add | None
    paths: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What a merge did to the table."""

    merged_splits: int = 0
    new_splits: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    versions: tuple[int, ...] = ()

    def then(self, results: Sequence[Merged], sizes: dict[str, int], version: int | None) -> "MergeOutcome":
        """With one more pass."""
        done = [r for r in results if r.add is not None]
        return MergeOutcome(
            self.merged_splits + sum(len(r.paths) for r in done),
            self.new_splits + len(done),
            self.bytes_before + sum(sizes[path] for r in done for path in r.paths),
            self.bytes_after + sum(r.add.size for r in done if r.add),
            self.skipped + tuple(s for r in results for s in r.skipped),
            self.versions if version is None else (*self.versions, version),
        )


def plan(snapshot: Snapshot, options: Options, *, target_bytes: int, now_ms: int) -> list[MergeTask]:
    """Which splits to merge; nothing is read but the file list."""
    listed = snapshot.files()
    resting = [p for p, skip in snapshot.skips.items() if skip.retry_after and skip.retry_after > now_ms]
    small = pc.less(listed["size"], int(target_bytes * options.get(opt.MERGE_SKIP_THRESHOLD)))
    awake = pc.invert(pc.is_in(listed["path"], value_set=pa.array(resting, pa.string())))
    candidates = listed.filter(pc.and_(small, awake)).sort_by("modificationTime")
    most = options.get(opt.MERGE_MAX_SOURCES)
    by_partition: dict[tuple[tuple[str, str | None], ...], list[SourceRef]] = {}
    for add in file_lists.to_adds(candidates):
        values = tuple((add.partition_values or {}).items())
        by_partition.setdefault(values, []).append(SourceRef.of(add))
    facts = MergeFacts.of(snapshot, options)
    tasks = [
        MergeTask(tuple(group), dict(values), facts)
        for values, refs in by_partition.items()
        for group in _packed(refs, target_bytes, most)
        # A split of the original alone is worth it too: it becomes one of ours.
        if len(group) > 1 or not group[0].ours
    ]
    return sorted(tasks, key=lambda task: -len(task.sources))


def run(task: MergeTask, store: Store, options: Options) -> Merged:
    """Merge one group into a new split; sources that cannot be read are left out."""
    left = list(task.sources)
    skipped: list[tuple[str, str]] = []
    while len(left) > 1 or (left and not left[0].ours):
        try:
            sources = [open_source(store, ref, task.facts, task.partition_values, options) for ref in left]
            add = _merged(task, sources, store, options)
            return Merged(add, tuple(ref.path for ref in left), tuple(skipped))
        except UnreadableSplitError as error:
            skipped.append((error.path, error.problem))
            left = [ref for ref in left if ref.path != error.path]
    return Merged(None, (), tuple(skipped))


def finish(
    log: TransactionLog, snapshot: Snapshot, results: Sequence[Merged], options: Options, now_ms: int
) -> Snapshot:
    """One version: merged splits in, their sources out, unreadable ones marked."""
    gone = pa.array([path for r in results if r.add for path in r.paths], pa.string())
    listed = snapshot.files()
    removed = listed.filter(pc.is_in(listed["path"], value_set=gone))
    adds = tuple(r.add for r in results if r.add is not None)
    skips = tuple(_skips(snapshot, results, options, now_ms))
    if not adds and not skips:
        return snapshot
    draft = Draft(
        operation=MERGE,
        adds=adds,
        removes=file_lists.removes_of(removed, timestamp=now_ms, data_change=False),
        skips=skips,
        parameters={"groups": str(len(adds))},
    )
    return log.commit(draft, snapshot)


def merge(
    log: TransactionLog,
    options: Options,
    *,
    target_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MergeOutcome:
    """Merge until nothing is left to merge, in this process; one version a pass."""
    target = target_bytes or options.get(opt.MERGE_TARGET_SIZE)
    outcome = MergeOutcome()
    for _ in range(options.get(opt.MERGE_MAX_PASSES)):
        snapshot, now_ms = log.snapshot(), time.time_ns() // 1_000_000
        tasks = plan(snapshot, options, target_bytes=target, now_ms=now_ms)
        if not tasks:
            break
        results: list[Merged] = []
        try:
            for number, task in enumerate(tasks):
                results.append(run(task, log.store, options))
                if progress is not None:
                    progress(number + 1, len(tasks))
            after = finish(log, snapshot, results, options, now_ms)
        except CommitUnknownError:
            raise
        except BaseException:
            withdraw(log.store, [r.add.path for r in results if r.add])
            raise
        listed = snapshot.files()
        sizes = dict(zip(listed["path"].to_pylist(), listed["size"].to_pylist(), strict=True))
        outcome = outcome.then(results, sizes, after.version if after is not snapshot else None)
        if not any(r.add for r in results):
            break
    return outcome


def _packed(refs: Sequence[SourceRef], target_bytes: int, most: int) -> Iterator[list[SourceRef]]:
    group: list[SourceRef] = []
    total = 0
    for ref in refs:
        if group and (total + ref.size > target_bytes or len(group) >= most):
            yield group
            group, total = [], 0
        group.append(ref)
        total += ref.size
    if group:
        yield group


def _merged(task: MergeTask, sources: Sequence[Source], store: Store, options: Options) -> Add:
    path = split_path(task.partition_values, f"{uuid.uuid4()}.split")
    facts = task.facts
    with store.open_upload(path) as sink:
        built = merge_splits(
            sources, cast("IO[bytes]", sink), facts.schema, facts.mapping, options, task.partition_values
        )
    return added(path, built, data_change=False)


def _skips(
    snapshot: Snapshot, results: Iterable[Merged], options: Options, now_ms: int
) -> Iterator[MergeSkip]:
    if not options.get(opt.SKIP_TRACKING):
        return
    for path, reason in (s for r in results for s in r.skipped):
        before = snapshot.skips.get(path)
        yield MergeSkip(
            path=path,
            skip_timestamp=now_ms,
            reason=reason,
            operation="merge",
            retry_after=now_ms + options.get(opt.SKIP_COOLDOWN_HOURS) * HOUR_MS,
            skip_count=before.skip_count + 1 if before else 1,
        )
