"""Merges small splits into larger ones.

Each partition's small splits are packed, oldest first, into groups of about the target size; each group
becomes one split. One version replaces the sources of some groups by the merged splits; no row changes. A
damaged split stays live, is excluded from its group and not tried again for a day (`mergeskip`). After an
error of storage the group is not merged, while others continue; a split that could not be read from storage
is tried again after some minutes.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import IO, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.data_files import add_action, delete_uncommitted, split_path
from indextables.errors import (
    CommitConflictError,
    IndexTablesError,
    ObjectMissingError,
    OptionError,
    SplitError,
    StoreError,
    UnavailableSplitError,
    UnreadableSplitError,
)
from indextables.log.conflict import Draft
from indextables.log.environment import local_time_ms
from indextables.log.format import files as file_lists
from indextables.log.format.actions import Add, MergeSkip
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.log.transaction_log import MERGE, TransactionLog
from indextables.maintain import jobs
from indextables.maintain.figures import in_partitions, partition_condition
from indextables.maintain.jobs import Progress, TaskSet
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.options.writing import MERGE_HEAP_SIZE, with_heap_size
from indextables.predicate import Predicate
from indextables.records import dataclass
from indextables.schema.values import parse_values
from indextables.source.companion import CompanionProperties, field_mapping
from indextables.source.description import IndexedRows, SourceDescription, StoredPositions
from indextables.split.footer import PARQUET_TAG, POSITIONS, Footer, read_footer
from indextables.split.mapping import Mapping, mapping_for
from indextables.split.merge import MergeSource, merge_splits, source_error
from indextables.split.parquet.reader import BATCH_BYTES, RowReader
from indextables.split.quickwit import bundle_rows
from indextables.store import Store
from indextables.table_properties import indexing_options, indexing_properties


@dataclass(frozen=True, slots=True)
class MergeContext:
    """The table, for tasks; without secrets."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mapping: Mapping
    # For a companion index: the source with the rows of its splits.
    source: SourceDescription | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, options: Options) -> "MergeContext":
        """The context of a snapshot."""
        companion, partitions = CompanionProperties.of(snapshot), snapshot.partition_columns
        if companion is not None:
            mapping = field_mapping(
                snapshot.schema, indexing_properties(snapshot.metadata), companion, partitions
            )
            return cls(snapshot.schema, partitions, mapping, companion.description(options))
        effective = options.over(indexing_options(snapshot))
        return cls(snapshot.schema, partitions, mapping_for(snapshot.schema, effective, partitions))


@dataclass(frozen=True, slots=True)
class MergeInput:
    """A split that a merge or a conversion reads, with the necessary values of its entry in the log."""

    path: str
    size: int
    is_parquet: bool
    num_records: int | None = None
    # For a companion split: its source files according to the log, and the version of the source.
    contents: tuple[str, ...] = ()
    source_version: int | None = None

    @classmethod
    def of(cls, add: Add) -> "MergeInput":
        """The input from the `add` action of a split."""
        return cls(
            add.path,
            add.size,
            PARQUET_TAG in (add.split_tags or ()),
            add.num_records,
            tuple(add.companion_source_files or ()),
            add.companion_delta_version,
        )


def open_merge_input(
    store: Store, ref: MergeInput, context: MergeContext, values: dict[str, str | None], options: Options
) -> MergeSource:
    """Open a split for a merge; raises UnreadableSplitError or UnavailableSplitError."""
    if not ref.is_parquet:
        return MergeSource(ref.path, lambda: _original(store, ref, context, values, options))
    try:
        footer = read_footer(store, ref.path, ref.size)
    except (SplitError, StoreError, OSError) as error:
        raise source_error(ref.path, error) from error
    if context.source is None:
        return MergeSource.of(store, footer, context.schema)
    return _companion(store, ref, footer, context.source, context.schema)


def _companion(
    store: Store, ref: MergeInput, footer: Footer, source: SourceDescription, schema: pa.Schema
) -> MergeSource:
    """A companion split, whose rows are in files of the source."""
    if footer.source_files is None or len(footer.source_files) != len(ref.contents):
        raise UnreadableSplitError(ref.path, "its source files differ from those in the log")
    positions = StoredPositions(RowReader(store, replace(footer, schema=POSITIONS)))
    rows = IndexedRows(store, source, footer.source_files, schema, positions)

    def columns(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows.read(names, None, BATCH_BYTES)

    return MergeSource(ref.path, lambda: columns(schema.names), footer, store, columns)


def damage(store: Store, ref: MergeInput) -> str | None:
    """Why a split is permanently unreadable; None if the error may be temporary."""
    try:
        size = store.head(ref.path).size
    except ObjectMissingError:
        return "the file is missing"
    except StoreError:
        return None
    return None if size == ref.size else f"the file has {size} bytes, but its entry {ref.size}"


def _original(
    store: Store, ref: MergeInput, context: MergeContext, values: dict[str, str | None], options: Options
) -> Iterator[pa.RecordBatch]:
    """The rows of a Quickwit split, with the partition values, which are only in the log."""
    try:
        for batch in bundle_rows(store, ref.path, context.schema, options, ref.size):
            yield _with_partition(batch, context, values)
    except (SplitError, StoreError, OSError) as error:
        raise source_error(ref.path, error) from error


def _with_partition(
    batch: pa.RecordBatch, context: MergeContext, values: dict[str, str | None]
) -> pa.RecordBatch:
    for name in context.partition_columns:
        field = context.schema.field(name)
        parsed = parse_values(pa.array([values.get(name)], pa.string()), field.type, partition=True)
        column = pa.repeat(parsed.values[0], batch.num_rows)
        batch = batch.set_column(context.schema.get_field_index(name), field, column)
    return batch


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Splits of one partition that are merged into one, in this order."""

    sources: tuple[MergeInput, ...]
    partition_values: dict[str, str | None]
    context: MergeContext = field(repr=False)


@dataclass(frozen=True, slots=True)
class MergeTaskResult:
    """The result of a task: the new split, the paths that it replaces, and excluded splits, with reasons.

    `skipped` are damaged splits, `unavailable` splits that could not be read from storage, `failed` the
    reasons why a whole group could not be merged.
    """

    add: Add | None
    paths: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unavailable: tuple[tuple[str, str], ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The outcome of a merge: merged splits, and excluded splits (see `MergeTaskResult`)."""

    merged_splits: int = 0
    new_splits: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    versions: tuple[int, ...] = ()
    unavailable: tuple[tuple[str, str], ...] = ()
    failed: tuple[str, ...] = ()
    rows: int = 0

    def then(
        self, results: Sequence[MergeTaskResult], sizes: dict[str, int], version: int | None
    ) -> "MergeOutcome":
        """Add the results of one more pass."""
        done = [r for r in results if r.add is not None]
        return MergeOutcome(
            self.merged_splits + sum(len(r.paths) for r in done),
            self.new_splits + len(done),
            self.bytes_before + sum(sizes[path] for r in done for path in r.paths),
            self.bytes_after + sum(r.add.size for r in done if r.add),
            self.skipped + tuple(s for r in results for s in r.skipped),
            self.versions if version is None else (*self.versions, version),
            self.unavailable + tuple(s for r in results for s in r.unavailable),
            self.failed + tuple(reason for r in results for reason in r.failed),
            self.rows + sum(r.add.num_records or 0 for r in done if r.add),
        )


def plan(
    snapshot: Snapshot,
    options: Options,
    *,
    target_bytes: int,
    now_ms: int,
    where: Predicate | None = None,
    max_sources: int | None = None,
) -> list[MergeTask]:
    """Which splits to merge, groups with most splits first; only the file list is read.

    `where` is a condition on partition columns; `max_sources` is the maximum number of splits in a group.
    """
    file_list = in_partitions(snapshot, where)
    cooling_down = [p for p, skip in snapshot.skips.items() if skip.retry_after and skip.retry_after > now_ms]
    small = pc.less(file_list["size"], int(target_bytes * options.get(opt.MERGE_SKIP_THRESHOLD)))
    available = pc.invert(pc.is_in(file_list["path"], value_set=pa.array(cooling_down, pa.string())))
    candidates = file_list.filter(pc.and_(small, available)).sort_by("modificationTime")
    most = max_sources or options.get(opt.MERGE_MAX_SOURCES)
    by_partition: dict[tuple[tuple[str, str | None], ...], list[MergeInput]] = {}
    for add in file_lists.to_adds(candidates):
        values = tuple((add.partition_values or {}).items())
        by_partition.setdefault(values, []).append(MergeInput.of(add))
    context = MergeContext.of(snapshot, options)
    tasks = [
        MergeTask(tuple(group), dict(values), context)
        for values, refs in by_partition.items()
        for group in _pack_groups(refs, target_bytes, most)
        # A single split of the original is merged, too, to convert its format.
        if len(group) > 1 or not group[0].is_parquet
    ]
    return sorted(tasks, key=lambda task: -len(task.sources))


def run(task: MergeTask, store: Store, options: Options) -> MergeTaskResult:
    """Merge one group into a new split; damaged sources are excluded.

    Errors of storage are not raised: the group is not merged, and the result has the reason.
    """
    refs = list(task.sources)
    skipped: list[tuple[str, str]] = []
    while len(refs) > 1 or (refs and not refs[0].is_parquet):
        try:
            sources = [
                open_merge_input(store, ref, task.context, task.partition_values, options) for ref in refs
            ]
            add = _merge_group(task, refs, sources, store, options)
            return MergeTaskResult(add, tuple(ref.path for ref in refs), tuple(skipped))
        except UnreadableSplitError as error:
            skipped.append((error.path, error.problem))
            refs = [ref for ref in refs if ref.path != error.path]
        except UnavailableSplitError as error:
            if (problem := damage(store, next(ref for ref in refs if ref.path == error.path))) is not None:
                skipped.append((error.path, problem))
                refs = [ref for ref in refs if ref.path != error.path]
                continue
            return MergeTaskResult(None, (), tuple(skipped), unavailable=((error.path, error.problem),))
        except (StoreError, OSError) as error:
            return MergeTaskResult(None, (), tuple(skipped), failed=(str(error),))
    return MergeTaskResult(None, (), tuple(skipped))


def finish(
    log: TransactionLog,
    snapshot: Snapshot,
    results: Sequence[MergeTaskResult],
    options: Options,
    now_ms: int,
    operation: str = MERGE,
) -> Snapshot:
    """Commit a version that adds merged splits, removes their sources, and marks unreadable splits."""
    paths = pa.array([path for r in results if r.add for path in r.paths], pa.string())
    file_list = snapshot.files()
    removed = file_list.filter(pc.is_in(file_list["path"], value_set=paths))
    adds = tuple(r.add for r in results if r.add is not None)
    skips = tuple(_skips(snapshot, results, options, now_ms))
    if not adds and not skips:
        return snapshot
    draft = Draft(
        operation=operation,
        adds=adds,
        removes=file_lists.removes_of(removed, timestamp=now_ms, data_change=False),
        skips=skips,
        parameters={"groups": str(len(adds))},
    )
    return log.commit(draft, snapshot)


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The arguments of a merge; the defaults are those of the options."""

    target_bytes: int
    where: Predicate | None = None
    max_new_splits: int | None = None
    max_sources: int | None = None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        options: Options,
        *,
        target_bytes: int | None = None,
        where: str | None = None,
        max_new_splits: int | None = None,
        max_sources: int | None = None,
    ) -> "MergeOptions":
        """Check the arguments; missing ones get their defaults."""
        target = options.get(opt.MERGE_TARGET_SIZE) if target_bytes is None else target_bytes
        if max_new_splits is not None and max_new_splits < 1:
            raise OptionError(f"at most {max_new_splits} merged splits merge nothing; give 1 or more")
        if max_sources is not None and max_sources < 2:
            raise OptionError(f"at most {max_sources} splits per merge merge nothing; give 2 or more")
        condition = None if where is None else partition_condition(snapshot, where)
        return cls(cls.of_size(target).target_bytes, condition, max_new_splits, max_sources)

    @classmethod
    def of_size(cls, target_bytes: int) -> "MergeOptions":
        """The options for merging all splits to about this size."""
        if not isinstance(target_bytes, int):
            raise OptionError(
                f"a target size is a number of bytes, such as {1 << 30} for 1G, not {target_bytes!r}"
            )
        if target_bytes < opt.MIN_MERGE_TARGET:
            raise OptionError(f"a target size of {target_bytes} bytes is too small; give 1M or more")
        return cls(target_bytes)

    def tasks(
        self, snapshot: Snapshot, options: Options, before: MergeOutcome, now_ms: int
    ) -> list[MergeTask]:
        """The tasks that remain after earlier passes, whose outcome is `before`."""
        groups = plan(
            snapshot,
            options,
            target_bytes=self.target_bytes,
            now_ms=now_ms,
            where=self.where,
            max_sources=self.max_sources,
        )
        return groups if self.max_new_splits is None else groups[: self.max_new_splits - before.new_splits]


@dataclass(frozen=True, slots=True)
class MergePass:
    """One pass of a merge between its plan and its commits; tasks may run in other processes meanwhile."""

    merge_options: MergeOptions
    base: SnapshotKey
    now_ms: int
    # The sizes of the splits to merge, by path.
    sizes: dict[str, int]
    before: MergeOutcome
    passes_left: int
    job: str
    operation: str = MERGE


def plan_merge(
    log: TransactionLog, options: Options, merge_options: MergeOptions, *, owner: int | None = None
) -> TaskSet | MergeOutcome:
    """Plan a merge: the tasks of its first pass, or its outcome if there is nothing to merge.

    Args:
        log: the table.
        options: the options of the command.
        merge_options: which splits to merge, and into what.
        owner: the id of the process that the job depends on, if that is not this one.
    """
    passes = options.get(opt.MERGE_MAX_PASSES)
    return _plan_pass(log, options, merge_options, MergeOutcome(), passes, owner=owner)


def finish_merge(
    log: TransactionLog, options: Options, merge_pass: MergePass, results: Iterable[MergeTaskResult]
) -> TaskSet | MergeOutcome:
    """Commit the results of a pass; returns the tasks of the next one, or the outcome of all passes."""
    outcome = finish_pass(log, options, merge_pass, results)
    if outcome.new_splits == merge_pass.before.new_splits:
        return outcome
    # The new splits may be small enough to be merged again.
    return _plan_pass(
        log, options, merge_pass.merge_options, outcome, merge_pass.passes_left, job=merge_pass.job
    )


def _plan_pass(
    log: TransactionLog,
    options: Options,
    merge_options: MergeOptions,
    before: MergeOutcome,
    passes: int,
    *,
    job: str | None = None,
    owner: int | None = None,
) -> TaskSet | MergeOutcome:
    """Plan a pass after earlier ones with the outcome `before`; `passes` is the number of remaining ones."""
    snapshot, now_ms = log.snapshot(), local_time_ms()
    log.check_writable(snapshot)
    tasks = merge_options.tasks(snapshot, options, before, now_ms) if passes else []
    if not tasks:
        return before
    sizes = {ref.path: ref.size for task in tasks for ref in task.sources}
    batches = -(-len(tasks) // options.get(opt.MERGE_BATCH))
    job = jobs.begin_merge(log.store.url, options, len(tasks), batches, job=job, owner=owner)
    state = MergePass(merge_options, snapshot.key, now_ms, sizes, before, passes - 1, job)
    public = options.public()
    return TaskSet(_run_task, [(task, public) for task in tasks], state, job=job)


def _run_task(task: tuple[MergeTask, Options], store: Store) -> MergeTaskResult:
    return run(task[0], store, task[1])


def finish_pass(
    log: TransactionLog,
    options: Options,
    merge_pass: MergePass,
    results: Iterable[MergeTaskResult],
) -> MergeOutcome:
    """Commit the results of a pass, `merge.batchSize` of them in each version.

    Args:
        log: the table.
        options: the options of the command.
        merge_pass: the pass, as planned.
        results: those of its tasks; an iterator runs each task when its result is taken.

    Returns:
        The outcome of all passes so far.
    """
    iterator, size, outcome = iter(results), options.get(opt.MERGE_BATCH), merge_pass.before
    batch: list[MergeTaskResult] = []
    try:
        base = _base_of(log, merge_pass)
        while True:
            batch = []
            for result in islice(iterator, size):
                batch.append(result)
            if not batch:
                return outcome
            committing, batch = batch, []
            version = commit_batch(log, base, committing, options, merge_pass.now_ms, merge_pass.operation)
            jobs.batch_done(merge_pass.job)
            outcome = outcome.then(committing, merge_pass.sizes, version)
    except BaseException:
        # Delete the files of results that were not committed: those of this batch, and existing ones of later
        # ones.
        rest = [*batch, *(iterator if isinstance(results, Sequence) else ())]
        delete_uncommitted(log.store, [result.add.path for result in rest if result.add])
        raise


def merge(
    log: TransactionLog,
    options: Options,
    merge_options: MergeOptions | None = None,
    *,
    progress: Progress | None = None,
) -> MergeOutcome:
    """Merge in this process until nothing is left to merge."""
    merge_options = merge_options or MergeOptions.of(log.snapshot(), options)
    return jobs.run_tasks(
        plan_merge(log, options, merge_options),
        lambda state, results: finish_merge(log, options, state, results),
        log.store,
        progress,
    )


def _base_of(log: TransactionLog, merge_pass: MergePass) -> Snapshot:
    """The snapshot from which a pass was planned, identified by its token."""
    snapshot = log.snapshot_of(merge_pass.base)
    if snapshot is None:
        raise CommitConflictError(
            MERGE,
            f"version {merge_pass.base[0]}, from which it started, was cleaned up meanwhile",
            version=log.snapshot().version,
            other="or one before it",
        )
    return snapshot


def commit_batch(
    log: TransactionLog,
    snapshot: Snapshot,
    results: Sequence[MergeTaskResult],
    options: Options,
    now_ms: int,
    operation: str = MERGE,
) -> int | None:
    """Commit a batch; returns its version, or None if there is nothing to commit."""
    try:
        after = finish(log, snapshot, results, options, now_ms, operation)
    except IndexTablesError as error:
        if error.not_committed:
            delete_uncommitted(log.store, [r.add.path for r in results if r.add])
        raise
    return None if after is snapshot else after.version


def _pack_groups(refs: Sequence[MergeInput], target_bytes: int, most: int) -> Iterator[list[MergeInput]]:
    group: list[MergeInput] = []
    total = 0
    for ref in refs:
        if group and (total + ref.size > target_bytes or len(group) >= most):
            yield group
            group, total = [], 0
        group.append(ref)
        total += ref.size
    if group:
        yield group


def _merge_group(
    task: MergeTask,
    refs: Sequence[MergeInput],
    sources: Sequence[MergeSource],
    store: Store,
    options: Options,
) -> Add:
    path = split_path(task.partition_values, f"{uuid.uuid4()}.split")
    options = with_heap_size(options, MERGE_HEAP_SIZE)
    context = task.context
    started_ms = local_time_ms()
    with store.open_upload(path) as sink:
        built = merge_splits(
            sources, cast("IO[bytes]", sink), context.schema, context.mapping, options, task.partition_values
        )
    add = add_action(path, built, data_change=False, started_ms=started_ms)
    if context.source is None:
        return add
    versions = [ref.source_version for ref in refs if ref.source_version is not None]
    return msgspec.structs.replace(
        add,
        companion_source_files=[content for ref in refs for content in ref.contents],
        companion_delta_version=max(versions, default=None),
    )


def _skips(
    snapshot: Snapshot, results: Iterable[MergeTaskResult], options: Options, now_ms: int
) -> Iterator[MergeSkip]:
    if not options.get(opt.SKIP_TRACKING):
        return
    damaged_ms = options.get(opt.SKIP_COOLDOWN_HOURS) * HOUR_MS
    unavailable_ms = options.get(opt.SKIP_STORAGE_MINUTES) * MINUTE_MS
    cooldowns = [(*s, damaged_ms) for r in results for s in r.skipped]
    cooldowns += [(*s, unavailable_ms) for r in results for s in r.unavailable]
    for path, reason, cooldown_ms in cooldowns:
        before = snapshot.skips.get(path)
        yield MergeSkip(
            path=path,
            skip_timestamp=now_ms,
            reason=reason,
            operation="merge",
            retry_after=now_ms + cooldown_ms,
            skip_count=before.skip_count + 1 if before else 1,
        )
