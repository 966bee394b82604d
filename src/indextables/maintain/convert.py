"""Convert a table of IndexTables for Scala in place: each of its splits becomes a Parquet split.

No row changes. As in a merge, one version replaces some sources by converted splits. Earlier versions refer
to the sources, which stay until a purge deletes them, so time travel still works. After an interruption, run
the conversion again: it converts the remaining splits.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.data_files import delete_uncommitted
from indextables.log.conflict import Draft
from indextables.log.environment import local_time_ms
from indextables.log.format import files as file_lists
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.maintain import merge as merging
from indextables.maintain.figures import in_partitions, partition_condition
from indextables.maintain.jobs import Progress, TaskSet
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.predicate import Predicate
from indextables.records import dataclass
from indextables.split.footer import PARQUET_TAG
from indextables.store import Store
from indextables.table_properties import indexing_options, indexing_properties

CONVERT = "CONVERT"
# The maximum number of splits in one commit of a conversion.
_PASS_SPLITS = 64


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion.

    Attributes:
        converted: the number of splits that were converted.
        remainder: the number of splits of IndexTables for Scala that the chosen partitions still have.
        rows: the number of rows in the converted splits.
        bytes_before: the size of these splits before.
        bytes_after: their size now.
        versions: the versions that were committed.
        problems: splits that could not be converted, with the reason.
    """

    converted: int
    remainder: int
    rows: int
    bytes_before: int
    bytes_after: int
    versions: tuple[int, ...]
    problems: tuple[tuple[str, str], ...]


def originals(snapshot: Snapshot, where: Predicate | None) -> pa.Table:
    """Return the splits of IndexTables for Scala in the chosen partitions, the oldest first."""
    file_list = in_partitions(snapshot, where)
    other = [PARQUET_TAG not in (tags or ()) for tags in file_list["splitTags"].to_pylist()]
    return file_list.filter(pa.array(other, pa.bool_())).sort_by("modificationTime")


def condition(snapshot: Snapshot, where: str | None) -> Predicate | None:
    """Parse a condition on partition columns."""
    return None if where is None else partition_condition(snapshot, where)


def keep_indexing(log: TransactionLog) -> None:
    """Write the indexing of the columns into the properties of the table, for later writes."""
    snapshot = log.snapshot()
    log.check_writable(snapshot)
    properties = dict(indexing_options(snapshot).values)
    if not properties or indexing_properties(snapshot.metadata):
        return
    configuration = {**(snapshot.metadata.configuration or {}), **properties}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=configuration)
    log.commit(Draft(operation=CONVERT, metadata=metadata), snapshot)


def planned_conversion(log: TransactionLog, where: Predicate | None) -> Conversion:
    """Return the number and size of the splits that a conversion would convert."""
    splits = originals(log.snapshot(), where)
    return Conversion(0, splits.num_rows, 0, sum(splits["size"].to_pylist()), 0, (), ())


def plan_conversion(
    log: TransactionLog, options: Options, where: Predicate | None, *, owner: int | None = None
) -> TaskSet | Conversion:
    """Plan a conversion: the tasks of its first splits, or its result if there are none.

    Args:
        log: the table.
        options: how splits are written.
        where: a condition on partition columns; None for the whole table.
        owner: the id of the process that the job depends on, if that is not this one.
    """
    if originals(log.snapshot(), where).num_rows:
        keep_indexing(log)
    return _plan_pass(log, options, where, merging.MergeOutcome(), owner=owner)


def finish_conversion(
    log: TransactionLog,
    options: Options,
    merge_pass: merging.MergePass,
    results: Iterable[merging.MergeTaskResult],
) -> TaskSet | Conversion:
    """Commit converted splits; returns the tasks of the next ones, or the result."""
    outcome = merging.finish_pass(log, options, merge_pass, results)
    where = merge_pass.merge_options.where
    if outcome.new_splits == merge_pass.before.new_splits:
        return _conversion(log, where, outcome)
    return _plan_pass(log, options, where, outcome, job=merge_pass.job)


def _plan_pass(
    log: TransactionLog,
    options: Options,
    where: Predicate | None,
    before: merging.MergeOutcome,
    *,
    job: str | None = None,
    owner: int | None = None,
) -> TaskSet | Conversion:
    """Plan the conversion of some splits; returns the result if there are none to try now."""
    snapshot, now_ms = log.snapshot(), local_time_ms()
    waiting = [p for p, skip in snapshot.skips.items() if skip.retry_after and skip.retry_after > now_ms]
    files = originals(snapshot, where)
    files = files.filter(pc.invert(pc.is_in(files["path"], value_set=pa.array(waiting, pa.string()))))
    if not files.num_rows:
        return _conversion(log, where, before)
    context = merging.MergeContext.of(snapshot, options)
    tasks = [
        merging.MergeTask((merging.MergeInput.of(add),), dict(add.partition_values or {}), context)
        for add in file_lists.to_adds(files.slice(0, _PASS_SPLITS))
    ]
    sizes = {ref.path: ref.size for task in tasks for ref in task.sources}
    batches = -(-len(tasks) // options.get(opt.MERGE_BATCH))
    job = jobs.begin_merge(log.store.url, options, len(tasks), batches, job=job, owner=owner)
    merge_options = merging.MergeOptions(options.get(opt.MERGE_TARGET_SIZE), where)
    state = merging.MergePass(merge_options, snapshot.key, now_ms, sizes, before, 1, job, CONVERT)
    public = options.public()
    return TaskSet(_run_task, [(task, public) for task in tasks], state, job=job)


def _run_task(task: tuple[merging.MergeTask, Options], store: Store) -> merging.MergeTaskResult:
    return run(task[0], store, task[1])


def run(task: merging.MergeTask, store: Store, options: Options) -> merging.MergeTaskResult:
    """Convert one split; fails if the number of rows differs from the log, and the split stays unchanged."""
    result = merging.run(task, store, options)
    (source,) = task.sources
    if result.add is None or source.num_records in (None, result.add.num_records):
        return result
    delete_uncommitted(store, [result.add.path])
    problem = f"{result.add.num_records} rows were read, but its entry has {source.num_records}"
    return replace(result, add=None, paths=(), skipped=((source.path, problem),))


def convert(
    log: TransactionLog,
    options: Options,
    where: str | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert the splits of IndexTables for Scala in this process, some at a time.

    Args:
        log: the table.
        options: how splits are written.
        where: a condition on partition columns; by default the whole table.
        dry_run: only report the splits that would be converted, as `remainder`.
        progress: called with the number of finished splits and the number of all.
    """
    chosen = condition(log.snapshot(), where)
    if dry_run:
        return planned_conversion(log, chosen)
    total = originals(log.snapshot(), chosen).num_rows
    before = [0]

    def finish(state: merging.MergePass, results: Iterable[merging.MergeTaskResult]) -> TaskSet | Conversion:
        finished = finish_conversion(log, options, state, results)
        before[0] += len(state.sizes)
        return finished

    def notify(number: int, of: int) -> None:
        del of
        if progress is not None:
            progress(before[0] + number, total)

    return jobs.run_tasks(plan_conversion(log, options, chosen), finish, log.store, notify)


def _conversion(log: TransactionLog, where: Predicate | None, outcome: merging.MergeOutcome) -> Conversion:
    """The result of the passes so far, with the number of remaining splits."""
    return Conversion(
        converted=outcome.new_splits,
        remainder=originals(log.snapshot(), where).num_rows,
        rows=outcome.rows,
        bytes_before=outcome.bytes_before,
        bytes_after=outcome.bytes_after,
        versions=outcome.versions,
        problems=(*outcome.skipped, *outcome.unavailable, *(("", reason) for reason in outcome.failed)),
    )
