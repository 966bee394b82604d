"""Plans a write before its rows are written, and commits it as one version afterwards.

```
plan_write ─► WritePlan ─► splits, in this process or in many ─► finish_write ─► one version
```

A plan can be sent to other processes. It has the version from which it was computed, and the splits that an
overwrite removes: all, those of some partitions, or those that a condition covers. The commit checks that no
later version conflicts with it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from indextables.data_files import delete_uncommitted
from indextables.errors import (
    CommitConflictError,
    CommitUnknownError,
    IndexTablesError,
    LogError,
    OptionError,
    PredicateError,
    SchemaError,
    TableExistsError,
    TableNotFoundError,
)
from indextables.ingest.target import Mode, Target, existing_table, new_table
from indextables.log.commit import check_uploads
from indextables.log.conflict import OVERWRITE, Draft, check_since, purged_before, purged_problem
from indextables.log.environment import HOUR_MS, local_time_ms
from indextables.log.format.actions import Add, Metadata, Remove, Txn
from indextables.log.format.files import from_adds, partition_values, removes_of
from indextables.log.pruning import evaluate_metrics, prune
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options import writing as opt
from indextables.options.maintenance import PURGE_MIN_RETENTION_HOURS
from indextables.predicate import Predicate, evaluate, parse_condition, to_sql
from indextables.predicate.addresses import compare_addresses
from indextables.records import dataclass
from indextables.schema.conversion import cast_stream
from indextables.source.companion import refuse_companion
from indextables.table_properties import address_columns


class Replace(StrEnum):
    """What an overwrite removes."""

    NOTHING = "nothing"
    ALL = "all"
    PARTITIONS = "partitions"
    WHERE = "where"


def removes(
    snapshot: Snapshot, replace: Replace, where: Predicate | None, adds: Sequence[Add]
) -> tuple[Remove, ...]:
    """The actions that remove the replaced splits."""
    match replace:
        case Replace.NOTHING:
            return ()
        case Replace.ALL:
            files = snapshot.files()
        case Replace.PARTITIONS:
            files = _same_partitions(snapshot, adds)
        case _:
            assert where is not None
            files = covered_splits(snapshot, where)
    return removes_of(files, timestamp=local_time_ms())


def replacement_test(
    snapshot: Snapshot, replace: Replace, where: Predicate | None, adds: Sequence[Add]
) -> Callable[[Sequence[Add]], bool] | None:
    """A test whether concurrently added splits have rows to replace; None if that needs no test."""

    def in_partitions(others: Sequence[Add]) -> bool:
        if not snapshot.partition_columns:
            return True  # the whole table is one partition
        return not set(_partitions(snapshot, adds)).isdisjoint(_partitions(snapshot, others))

    def matching_condition(others: Sequence[Add]) -> bool:
        files = from_adds(others, version=snapshot.version, timestamp=0)
        return bool(pc.any(prune(files, where, snapshot.schema, snapshot.partition_columns)).as_py())

    match replace:
        case Replace.PARTITIONS:
            return in_partitions
        case Replace.WHERE:
            return matching_condition
        case _:
            return None


def covered_splits(snapshot: Snapshot, where: Predicate) -> pa.Table:
    """The splits for all of whose rows the condition is true; an error if it is true for part of a split."""
    files = snapshot.files(where)
    evaluation = evaluate_metrics(files, where, snapshot.schema, snapshot.partition_columns)
    partly = files.filter(pc.and_not(evaluation.inclusive, evaluation.strict))
    if partly.num_rows:
        by = ", ".join(snapshot.partition_columns) or "none"
        raise PredicateError(
            f"{to_sql(where)} covers only some rows of {partly.num_rows} splits (one is {partly['path'][0]}) "
            f"according to the log, and a split is replaced or deleted as a whole; give a condition "
            f"that covers whole partitions (the partition columns: {by}), or read, filter and overwrite "
            "the table"
        )
    return files.filter(evaluation.strict)


def check_rows(batches: Iterator[pa.RecordBatch], where: Predicate) -> Iterator[pa.RecordBatch]:
    """The unchanged batches; an error if a row does not match the condition on the replaced rows."""
    for batch in batches:
        outside = batch.num_rows - (pc.sum(evaluate(where, batch)).as_py() or 0)
        if outside:
            raise IndexTablesError(
                f"{outside} of {batch.num_rows} rows do not match the condition of replaceWhere, "
                f"{to_sql(where)}; write only rows that do"
            )
        yield batch


def _same_partitions(snapshot: Snapshot, adds: Sequence[Add]) -> pa.Table:
    """The splits in the partitions of the new ones; partition values are compared by value, not as text."""
    files = snapshot.files()
    columns = snapshot.partition_columns
    if not columns:
        return files
    new = set(_partitions(snapshot, adds))
    return files.filter(pa.array([values in new for values in _partitions(snapshot, files)], pa.bool_()))


def _partitions(snapshot: Snapshot, splits: pa.Table | Sequence[Add]) -> list[tuple[object, ...]]:
    """The partition of each split, by values that are equal if they are equal in SQL."""
    if not isinstance(splits, pa.Table):
        splits = from_adds(splits, version=snapshot.version, timestamp=0)
    remedy = "overwrite the whole table instead"
    typed = partition_values(splits, snapshot.schema, snapshot.partition_columns, remedy=remedy)
    columns = [[_comparable(value) for value in column.to_pylist()] for column in typed.values()]
    return list(zip(*columns, strict=True))


def _comparable(value: object) -> str | None:
    """The value for comparison: NaN equals NaN, -0.0 equals 0.0 (PROTOCOL.md, "Partition values")."""
    if value is None:
        return None
    return str(value + 0.0) if isinstance(value, float) else str(value)


# The maximum number of attempts for a streaming batch that replaces all rows.
_OVERWRITES = 20


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A planned write: its target, what it replaces, and the version from which it was planned."""

    target: Target
    mode: Mode
    replace: Replace
    where: Predicate | None
    only_matching: bool
    base: SnapshotKey | None
    before: Metadata | None

    def convert(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert rows to the table's columns; raises for a row that does not match the write's condition."""
        rows = cast_stream(batches, self.target.schema)
        return check_rows(rows, self.where) if self.only_matching and self.where is not None else rows


def plan_write(
    log: TransactionLog,
    incoming: pa.Schema,
    *,
    mode: Mode,
    partition_by: Sequence[str],
    options: Options,
    declared: pa.Schema | None = None,
    replace: Replace | None = None,
    where: Callable[[pa.Schema], Predicate] | None = None,
) -> tuple[WritePlan | None, Snapshot | None]:
    """Check a write against the table, and plan it; the plan is None if there is nothing to write.

    `declared` are the columns with which a catalog created a table that has no log yet. `replace` is what an
    overwrite replaces; by default it follows from the options, and without them it is the whole table.
    `where` returns, for a table's schema, the condition on the rows that are replaced.
    """
    snapshot = _existing(log)
    if snapshot is None:
        now_ms = local_time_ms()
        target = new_table(incoming, partition_by, options, now_ms=now_ms, declared=declared)
        log.check_store()
        # Nothing is replaced here, but a concurrent first write may commit rows before this one.
        replaced = _replace_mode(mode, options) if replace is None or replace is Replace.ALL else replace
        replace_where = options.get(opt.REPLACE_WHERE)
        condition = None if where is None else where(target.schema)
        if replaced is Replace.WHERE and replace_where is not None:
            condition = parse_condition(replace_where, target.schema)
        return WritePlan(target, mode, replaced, condition, False, None, None), None
    if mode is Mode.ERROR:
        raise TableExistsError(log.store.url)
    if mode is Mode.IGNORE or has_batch(snapshot, options):
        return None, snapshot
    log.check_writable(snapshot)
    _check_repaired(log, snapshot)
    refuse_companion(snapshot, "a write")
    replace_where = options.get(opt.REPLACE_WHERE)
    if replace_where is not None and mode is not Mode.OVERWRITE:
        raise OptionError("replaceWhere replaces rows, so it needs the mode overwrite")
    only_matching = False
    condition = None if where is None else where(snapshot.schema)
    if replace is None or replace is Replace.ALL:
        replace = _replace_mode(mode, options)
        if replace is Replace.WHERE:
            assert replace_where is not None
            condition, only_matching = parse_condition(replace_where, snapshot.schema), True
    if condition is not None:
        condition = compare_addresses(condition, address_columns(snapshot))
        covered_splits(snapshot, condition)
    # Remaining rows keep their indexes, so only an overwrite of all rows may change the indexing.
    whole = Mode.OVERWRITE if replace is Replace.ALL else Mode.APPEND
    if whole is Mode.APPEND and mode is Mode.OVERWRITE and options.get(opt.OVERWRITE_SCHEMA):
        raise OptionError("overwriteSchema replaces the schema of all rows, so all rows must be overwritten")
    target = existing_table(snapshot, incoming, partition_by, options, whole)
    write_plan = WritePlan(target, mode, replace, condition, only_matching, snapshot.key, snapshot.metadata)
    return write_plan, snapshot


def _check_repaired(log: TransactionLog, snapshot: Snapshot) -> None:
    """Refuse a table without splits whose repair was interrupted: a purge would delete them after a write."""
    if snapshot.version == 0 and log.is_unfinished_repair():
        raise LogError(
            f"a repair of the table at {snapshot.url} was interrupted before its splits were in the log; run "
            "REPAIR INDEXFILES TRANSACTION LOG again, then write"
        )


def finish_write(
    log: TransactionLog,
    write_plan: WritePlan,
    adds: Sequence[Add],
    options: Options,
    base: Snapshot | None = None,
) -> tuple[Snapshot, bool]:
    """Commit the splits of a planned write; returns the table after it, and whether it committed a version.

    `base` is the snapshot from which it was planned, if this process has it.

    If the write fails, its splits are deleted only if certainly no version refers to them: before a commit
    was attempted, and after one that failed with `not_committed`.

    A streaming batch that replaces all rows does not depend on the replaced rows: after a conflict it is
    retried, unless a purge since may have deleted its splits.
    """
    for attempts in range(_OVERWRITES - 1, -1, -1):
        try:
            draft, base = _make_draft(log, write_plan, adds, options, base)
        except BaseException:
            delete_uncommitted(log.store, [add.path for add in adds])
            raise
        if draft is None:
            return base, False
        try:
            return log.commit(draft, base), True
        except CommitConflictError:
            newest = log.snapshot()
            lost = purged_before(newest) != purged_before(base) and purged_problem(adds, newest)
            if attempts and not lost and _can_follow(write_plan, newest, options):
                write_plan, base = _replace_base(write_plan, newest), newest
                continue
            delete_uncommitted(log.store, [add.path for add in adds])
            raise
        except IndexTablesError as error:
            if error.not_committed:
                delete_uncommitted(log.store, [add.path for add in adds])
            raise
    raise AssertionError("the last attempt returns or raises")


def _can_follow(write_plan: WritePlan, newest: Snapshot, options: Options) -> bool:
    """Whether a batch can be retried after a conflict: it replaces all rows, and the columns are the same."""
    before, now = write_plan.before, newest.metadata
    return (
        write_plan.replace is Replace.ALL
        and options.get(opt.TXN_APP_ID) is not None
        and write_plan.target.metadata is None
        and before is not None
        and (before.id, before.schema_string) == (now.id, now.schema_string)
        and (before.partition_columns or []) == (now.partition_columns or [])
        and not has_batch(newest, options)
    )


def _replace_base(write_plan: WritePlan, base: Snapshot) -> WritePlan:
    """The plan of the same write, based on another snapshot with the same columns."""
    return dataclasses.replace(write_plan, base=base.key, before=base.metadata)


def _make_draft(
    log: TransactionLog, write_plan: WritePlan, adds: Sequence[Add], options: Options, base: Snapshot | None
) -> tuple[Draft | None, Snapshot]:
    """The draft of a planned write and its base snapshot; the draft is None if there is nothing to commit.

    In the mode `ignore`, the splits are deleted if another writer created the table meanwhile.
    """
    if write_plan.base is None:
        assert write_plan.target.metadata is not None
        base = _create(log, write_plan.target.metadata)
        if base is None:
            base = log.snapshot()
            _check_repaired(log, base)
            again = _plan_again(write_plan, base, options)
            if again is None:
                delete_uncommitted(log.store, [add.path for add in adds])
                return None, base
            # If the table was replaced by another one, its folder may have been deleted with these splits.
            check_uploads(log.store, adds)
            if (problem := purged_problem(adds, base)) is not None:
                raise CommitConflictError(
                    "WRITE", problem, version=base.version, other="or one before it, of another first write"
                )
            write_plan = again
        else:
            write_plan = dataclasses.replace(
                write_plan, target=dataclasses.replace(write_plan.target, metadata=None)
            )
    elif base is None:
        base = log.snapshot_of(write_plan.base)
    metadata = write_plan.target.metadata
    draft = _draft(write_plan, metadata, adds, options)
    if base is None:
        # The version was cleaned up while the rows were written: check against the newest version.
        assert write_plan.before is not None
        assert write_plan.base is not None
        if write_plan.replace is not Replace.NOTHING:
            raise IndexTablesError(
                f"version {write_plan.base[0]} of the table at {log.store.url}, which this write was to "
                "replace, was cleaned up meanwhile; nothing was changed; write again"
            )
        base = log.snapshot()
        check_since(draft, write_plan.before, write_plan.base[0], base)
        check_uploads(log.store, adds)
    removals = removes(base, write_plan.replace, write_plan.where, adds)
    if not adds and not removals and metadata is None:
        return None, base
    draft = _draft(write_plan, metadata, adds, options, removals)
    if has_old_split(adds, options):
        check_uploads(log.store, adds)
    overlap = replacement_test(base, write_plan.replace, write_plan.where, adds)
    return dataclasses.replace(draft, replaces=overlap), base


def has_old_split(adds: Sequence[Add], options: Options) -> bool:
    """Whether a split is older than half the shortest retention of a purge."""
    oldest = min((add.modification_time for add in adds), default=None)
    limit_ms = options.get(PURGE_MIN_RETENTION_HOURS) * HOUR_MS / 2
    return oldest is not None and local_time_ms() - oldest >= limit_ms


def _create(log: TransactionLog, metadata: Metadata) -> Snapshot | None:
    """Create the table; returns None if it exists already.

    If it is unknown whether version 0 was created, no rows are affected: it has none.
    """
    try:
        return log.create(metadata)
    except CommitUnknownError as error:
        failed = LogError(
            f"it is unknown whether an empty table was created at {log.store.url} ({error.cause}); no rows "
            "were written; write again"
        )
        failed.not_committed = True
        raise failed from error


def _plan_again(write_plan: WritePlan, other: Snapshot, options: Options) -> WritePlan | None:
    """Plan a first write again, for a table that another writer created at the same time.

    None if there is nothing to write. The splits exist already, so the other table must have the same
    columns, partitions and indexing.
    """
    if write_plan.mode is Mode.ERROR:
        raise TableExistsError(other.url)
    if write_plan.mode is Mode.IGNORE or has_batch(other, options):
        return None
    replace = _replace_mode(write_plan.mode, options)
    whole = Mode.OVERWRITE if replace is Replace.ALL else Mode.APPEND
    ours = write_plan.target
    try:
        target = existing_table(other, ours.schema, ours.partition_columns, options, whole)
    except SchemaError as error:
        raise _other_table(other.url, str(error)) from error
    same = (
        target.schema == ours.schema
        and target.partition_columns == ours.partition_columns
        and target.mapping == ours.mapping
    )
    if not same or replace is Replace.WHERE:
        raise _other_table(other.url, "its columns, partitions or indexing differ")
    return WritePlan(target, write_plan.mode, replace, None, False, other.key, other.metadata)


def _other_table(url: str, problem: str) -> IndexTablesError:
    return IndexTablesError(
        f"another writer created a table at {url} at the same time, and this write does not fit it "
        f"({problem}); nothing was written; write again"
    )


def _draft(
    write_plan: WritePlan,
    metadata: Metadata | None,
    adds: Sequence[Add],
    options: Options,
    removals: tuple[Remove, ...] = (),
) -> Draft:
    app = options.get(opt.TXN_APP_ID)
    parameters = {"mode": write_plan.mode.value, "partitionBy": ",".join(write_plan.target.partition_columns)}
    if write_plan.mode is Mode.OVERWRITE and write_plan.replace is not Replace.ALL:
        # Only an overwrite of the whole table conflicts with every other overwrite.
        parameters["mode"] = f"{OVERWRITE} {write_plan.replace.value}"
    if write_plan.where is not None:
        parameters["where"] = to_sql(write_plan.where)
    return Draft(
        operation="OVERWRITE" if write_plan.mode is Mode.OVERWRITE else "WRITE",
        adds=tuple(adds),
        removes=removals,
        metadata=metadata,
        txns=(Txn(app_id=app, version=options.get(opt.TXN_VERSION)),) if app else (),
        parameters=parameters,
        user_metadata=options.get(opt.USER_METADATA),
    )


def _replace_mode(mode: Mode, options: Options) -> Replace:
    if mode is not Mode.OVERWRITE:
        return Replace.NOTHING
    if options.get(opt.REPLACE_WHERE) is not None:
        return Replace.WHERE
    return Replace.PARTITIONS if options.get(opt.PARTITION_OVERWRITE) == "dynamic" else Replace.ALL


def micro_batch_options(options: Options) -> Options:
    """The options of a write of a micro-batch: in complete mode it replaces all rows of the table.

    Raises:
        OptionError: the options say that it replaces some of them.
    """
    if options.is_set(opt.REPLACE_WHERE):
        raise OptionError(
            "option 'replaceWhere' has no effect on a stream, whose complete result replaces the whole "
            "table; leave it out, or write with foreachBatch"
        )
    return Options.parse({opt.PARTITION_OVERWRITE.key: "static"}).over(options)


def _existing(log: TransactionLog) -> Snapshot | None:
    try:
        return log.snapshot()
    except TableNotFoundError:
        return None


def has_batch(snapshot: Snapshot, options: Options) -> bool:
    """Whether the streaming batch of this write is in the table already."""
    app = options.get(opt.TXN_APP_ID)
    last_batch = snapshot.txns.get(app) if app else None
    return last_batch is not None and last_batch.version >= options.get(opt.TXN_VERSION)
