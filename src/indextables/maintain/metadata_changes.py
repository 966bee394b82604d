"""Commands that write no splits: RESTORE, DROP PARTITIONS and TRUNCATE TIME TRAVEL."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CommitConflictError, OptionError, SchemaError, SplitError
from indextables.log.conflict import OVERWRITE, Draft, without_registry
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add, Metadata
from indextables.log.format.files import from_adds, removes_of, to_adds
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.figures import (
    distinct_partitions,
    in_partitions,
    missing_paths,
    partition_condition,
    typed_values,
)
from indextables.options import log as opt
from indextables.predicate import evaluate, to_sql
from indextables.records import dataclass
from indextables.source.companion import refuse_companion

RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The splits that a restore added and removed; no version if the table had that content already."""

    restored_version: int
    version: int | None
    splits_restored: int
    splits_removed: int
    bytes_restored: int
    bytes_removed: int


def restore(
    log: TransactionLog, *, version: int | None = None, timestamp: int | None = None
) -> RestoreResult:
    """Make an earlier version (or the newest one of a time, in milliseconds since 1970) the newest.

    Splits that are appended concurrently stay: the order is then first the restore, then the append. A
    concurrent removal of splits of the version is a conflict.
    """
    if (version is None) == (timestamp is None):
        raise OptionError("a restore needs a version or a time: give one of them")
    now = log.snapshot()
    then = log.snapshot(version=version, timestamp=timestamp)
    old, new = then.files(), now.files()
    back = old.filter(pc.invert(pc.is_in(old["path"], value_set=_paths(new))))
    removals = new.filter(pc.invert(pc.is_in(new["path"], value_set=_paths(old))))
    metadata = _metadata_to_restore(then.metadata, now.metadata)
    figures = (back.num_rows, removals.num_rows, _bytes(back), _bytes(removals))
    if not back.num_rows and not removals.num_rows and metadata is None:
        return RestoreResult(then.version, None, *figures)
    _check_present(log, then, back)
    draft = Draft(
        operation=RESTORE,
        adds=tuple(_changing(with_mappings(to_adds(back), then))),
        removes=removes_of(removals, timestamp=local_time_ms()),
        metadata=metadata,
        parameters={"mode": OVERWRITE, "version": str(then.version)},
        reuses_files=True,
        # Without splits that another commit removes, the new version would not be the restored one.
        retained_paths=_paths(old.filter(pc.is_in(old["path"], value_set=_paths(new)))),
    )
    after = log.commit(draft, now)
    return RestoreResult(then.version, after.version, *figures)


def with_mappings(adds: list[Add], snapshot: Snapshot) -> list[Add]:
    """The actions with their document mapping inline, so that they do not depend on a version's registry."""
    return [
        msgspec.structs.replace(add, doc_mapping_json=text, doc_mapping_ref=None)
        if (text := snapshot.registry.get(add.doc_mapping_ref or "")) is not None
        else add
        for add in adds
    ]


def _changing(adds: list[Add]) -> list[Add]:
    """The actions with `dataChange` set: unlike the merge, restoring a merged split changes rows."""
    return [msgspec.structs.replace(add, data_change=True) for add in adds]


def _check_present(log: TransactionLog, then: Snapshot, back: pa.Table) -> None:
    lost = missing_paths(log.store, back["path"].to_pylist())
    if lost:
        raise SplitError(
            f"version {then.version} of {then.url} cannot be restored: {len(lost)} of its {then.num_files} "
            f"splits were deleted since (one is {lost[0]}), most likely by a purge; restore a later version, "
            "or the files from a backup"
        )


def _metadata_to_restore(then: Metadata, now: Metadata) -> Metadata | None:
    """The earlier metadata if it differs in more than document mappings; else None."""
    configuration = without_registry(then.configuration)
    same = (
        then.schema_string == now.schema_string
        and (then.partition_columns or []) == (now.partition_columns or [])
        and configuration == without_registry(now.configuration)
        and (then.name, then.description) == (now.name, now.description)
    )
    return None if same else msgspec.structs.replace(then, configuration=configuration)


def _paths(file_list: pa.Table) -> pa.Array:
    return file_list["path"].combine_chunks()


def _bytes(file_list: pa.Table) -> int:
    return pc.sum(file_list["size"]).as_py() or 0


@dataclass(frozen=True, slots=True)
class TruncateResult:
    """The remaining version, and the numbers of deleted versions and states (or of those to delete)."""

    version: int
    versions: int
    states: int
    dry_run: bool


def truncate(log: TransactionLog, *, dry_run: bool = False) -> TruncateResult:
    """Delete all versions before the newest one from the log; a dry run writes nothing."""
    version, files = log.truncate(dry_run=dry_run)
    return TruncateResult(version, len(files.versions), len(files.states) + len(files.checkpoints), dry_run)


DROP = "DROP PARTITIONS"


@dataclass(frozen=True, slots=True)
class DropResult:
    """The partitions and splits that were dropped; no version if no partition matched."""

    partitions: int = 0
    splits: int = 0
    bytes: int = 0
    version: int | None = None


def drop_partitions(log: TransactionLog, where: str) -> DropResult:
    """Drop the partitions for which a condition on partition columns is true.

    If another commit changes the same splits meanwhile, or an overwrite or a restore adds splits to the same
    partitions, the condition is evaluated again. Splits that are appended concurrently stay: the order is
    then first the drop, then the append.
    """
    attempts = log.options.get(opt.RETRY_ATTEMPTS)
    for attempt in range(1, attempts + 1):
        try:
            return _drop(log, where)
        except CommitConflictError:
            if attempt == attempts:
                raise
    raise AssertionError("there is at least one attempt")


def _drop(log: TransactionLog, where: str) -> DropResult:
    snapshot = log.snapshot()
    refuse_companion(snapshot, "dropping partitions")
    predicate = partition_condition(snapshot, where)
    files = in_partitions(snapshot, predicate)
    if not files.num_rows:
        return DropResult()

    def in_same(others: Sequence[Add]) -> bool:
        added = from_adds(others, version=snapshot.version, timestamp=0)
        try:
            values = typed_values(added, snapshot.schema, snapshot.partition_columns)
        except SchemaError:
            return True  # The table has other partition columns by now.
        return bool(pc.any(evaluate(predicate, values)).as_py())

    draft = Draft(
        operation=DROP,
        removes=removes_of(files, timestamp=local_time_ms()),
        parameters={"where": to_sql(predicate)},
        replaces=in_same,
    )
    after = log.commit(draft, snapshot)
    total = pc.sum(files["size"]).as_py() or 0
    return DropResult(distinct_partitions(files), files.num_rows, total, after.version)
