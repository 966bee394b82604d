"""Conflicts between a commit and other commits since its base. This module does no I/O.

Appends rely on the table's metadata only, so they never conflict with each other. Whatever removes splits
relies on their still being live; that makes a merge, an overwrite or a dropped partition that lost a race
against another removal of the same splits fail, while splits that were appended in between stay (the order is
then: first this commit, then the append). Two concurrent overwrites of the same rows conflict, whether of all
rows, of a partition or of the rows of a condition: one of them should have removed what the other wrote. A
change of the metadata conflicts with any other change of it and, if it changes the schema, the partition
columns or the indexing, with added splits: they were written for the earlier metadata. PROTOCOL.md,
"Conflicts", has the whole table.

A purge deletes files that no version refers to and that are older than its retention. The files of a write
that still runs are referred to by no version either. So a purge first commits a version with the time up to
which it deletes; a commit that started before that version must not add files of that age (PROTOCOL.md,
"Purge"). A `txn` of that version keeps the time in snapshots, for commits that do not see the version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CommitConflictError
from indextables.log.environment import CLOCK_SKEW_MS
from indextables.log.format.actions import (
    REGISTRY_PREFIX,
    Action,
    Add,
    CommitInfo,
    MergeSkip,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from indextables.log.snapshot import Snapshot
from indextables.options.writing import INDEXING_PREFIX
from indextables.records import dataclass

OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A change of a table that is to become one version."""

    operation: str
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    skips: tuple[MergeSkip, ...] = ()
    txns: tuple[Txn, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    # Whether the splits that it adds were there before the operation began, as those of a restore.
    reuses_files: bool = False
    # Paths of live splits that a restore leaves as they are, because its version has them.
    retained_paths: pa.Array | None = None
    # For a change of some rows: whether splits that an overwrite or a restore added can have such rows.
    replaces: Callable[[Sequence[Add]], bool] | None = None

    @property
    def overwrites(self) -> bool:
        """Whether it replaces all rows of the table, by its parameter `mode`."""
        return self.parameters.get("mode") == OVERWRITE


def check_conflicts(draft: Draft, base: Metadata, winners: Sequence[tuple[int, Sequence[Action]]]) -> None:
    """Raise if a version that was committed since the draft's base conflicts with it."""
    changes_metadata = draft.metadata is not None and _differs(draft.metadata, base)
    needed = {remove.path for remove in draft.removes} | _removed_paths(draft, winners)
    adds = {add.path for add in draft.adds}
    applications = {txn.app_id: txn.version for txn in draft.txns}
    for version, actions in winners:
        problem = None
        for action in actions:
            match action:
                case Remove(path=path) if path in needed:
                    problem = f"it removed {path}, which this operation replaces, removes or retains"
                case Add(path=path) if path in adds:
                    problem = f"it added {path}, which this operation adds too"
                case Add(path=path) if changes_metadata:
                    problem = f"it added {path} by the metadata that this operation changes"
                case Metadata():
                    problem = _metadata_problem(draft, base, action)
                case Protocol() if draft.protocol is not None:
                    problem = "it changed the protocol too"
                case CommitInfo(operation=operation) if operation == PURGE:
                    problem = _purge_problem(draft, action)
                case CommitInfo(operation_parameters={"mode": mode}) if mode.startswith(OVERWRITE):
                    problem = _overwrite_problem(draft, mode, actions)
                case Txn(app_id=app, version=batch) if batch >= applications.get(app, batch + 1):
                    problem = f"it committed batch {batch} of application {app} already"
                case _:
                    pass
            if problem is not None:
                raise CommitConflictError(draft.operation, problem, version=version, other=_describe(actions))


def check_batches(draft: Draft, base: Snapshot) -> None:
    """Raise if a streaming batch of the draft is in the table already."""
    for txn in draft.txns:
        last_batch = base.txns.get(txn.app_id)
        if last_batch is not None and last_batch.version >= txn.version:
            raise CommitConflictError(
                draft.operation,
                f"batch {last_batch.version} of application {txn.app_id} was committed already",
                version=base.version,
                other="or one before it",
            )


def check_snapshot(draft: Draft, base: Snapshot, latest: Snapshot) -> None:
    """`check_conflicts` if the versions in between were cleaned up: compares with the newest snapshot."""
    check_since(draft, base.metadata, base.version, latest, purged=purged_before(base))


def check_since(
    draft: Draft, before: Metadata, version: int, latest: Snapshot, *, purged: int | None = None
) -> None:
    """`check_snapshot` if only the version and the metadata of the base are known.

    `purged` is `purged_before` of the base, if it is known.
    """
    check_batches(draft, latest)
    problem = _metadata_problem(draft, before, latest.metadata)
    if problem is None and purged_before(latest) != purged:
        problem = purged_problem(draft.adds, latest)
    if problem is None and (draft.overwrites or draft.replaces is not None):
        problem = "it may have overwritten the same rows: its version file was cleaned up"
    if problem is None and draft.protocol is not None:
        problem = "it may have changed the protocol too: its version file was cleaned up"
    changes_metadata = draft.metadata is not None and _differs(draft.metadata, before)
    files = latest.files() if problem is None and (draft.removes or draft.adds or changes_metadata) else None
    if files is not None:
        live = files["path"].combine_chunks()
        removed = pa.array([remove.path for remove in draft.removes], pa.string())
        added = pa.array([add.path for add in draft.adds], pa.string())
        conflicts = removed.filter(pc.invert(pc.is_in(removed, value_set=live)))
        doubled = added.filter(pc.is_in(added, value_set=live))
        if len(conflicts):
            problem = f"{conflicts[0]} was removed, which this operation replaces or removes too"
        elif len(doubled):
            problem = f"{doubled[0]} was added, which this operation adds too"
        elif changes_metadata and pc.any(pc.greater(files["addedAtVersion"], version)).as_py():
            problem = "splits were added by the metadata that this operation changes"
    if problem is not None:
        raise CommitConflictError(
            draft.operation, problem, version=latest.version, other="or one before it, cleaned up since"
        )


def without_registry(configuration: Mapping[str, str] | None) -> dict[str, str]:
    """A table's configuration without the document mappings that commits register in it."""
    return {k: v for k, v in (configuration or {}).items() if not k.startswith(REGISTRY_PREFIX)}


def _overwrite_problem(draft: Draft, mode: str, actions: Sequence[Action]) -> str | None:
    """Why another overwrite before this operation is a conflict; None if it is not."""
    if draft.overwrites:
        return "it overwrote the table too" if mode == OVERWRITE else "it overwrote rows of this table"
    added = [action for action in actions if isinstance(action, Add)]
    if draft.replaces is not None and added and draft.replaces(added):
        return "it overwrote rows that this operation replaces too"
    return None


def _removed_paths(draft: Draft, winners: Sequence[tuple[int, Sequence[Action]]]) -> set[str]:
    """The paths among `retained_paths` that other commits removed."""
    if draft.retained_paths is None:
        return set()
    removed = [action.path for _, actions in winners for action in actions if isinstance(action, Remove)]
    return set(
        draft.retained_paths.filter(
            pc.is_in(draft.retained_paths, value_set=pa.array(removed, pa.string()))
        ).to_pylist()
    )


def _purge_problem(draft: Draft, purge: CommitInfo) -> str | None:
    """Why a purge before this operation is a conflict; None if it is not."""
    if draft.reuses_files and draft.adds:
        return f"that purge may have deleted {draft.adds[0].path}, which this operation restores"
    return purge_problem(draft.adds, purge)


def _metadata_problem(draft: Draft, base: Metadata, changed: Metadata) -> str | None:
    if changed.id != base.id:
        return "it replaced the table by another one"
    # A restore restores the metadata of its version, even if it adds nothing.
    if not draft.adds and draft.metadata is None and not draft.reuses_files:
        return None
    if changed.schema_string != base.schema_string:
        return "it changed the table's schema"
    if (changed.partition_columns or []) != (base.partition_columns or []):
        return "it changed the table's partition columns"
    if _indexing(changed) != _indexing(base):
        return "it changed how the table's columns are indexed"
    if draft.metadata is None:
        return None
    if without_registry(changed.configuration) != without_registry(base.configuration):
        return "it changed the table's configuration"
    if (changed.name, changed.description) != (base.name, base.description):
        return "it changed the table's name or description"
    return None


def _differs(one: Metadata, other: Metadata) -> bool:
    """Whether splits that were written for one metadata may be invalid for the other."""
    return (
        one.schema_string != other.schema_string
        or (one.partition_columns or []) != (other.partition_columns or [])
        or _indexing(one) != _indexing(other)
    )


def _indexing(metadata: Metadata) -> dict[str, str]:
    """The indexing options in the table's configuration."""
    return {k: v for k, v in (metadata.configuration or {}).items() if k.startswith(INDEXING_PREFIX)}


def _describe(actions: Sequence[Action]) -> str:
    info = next((a for a in actions if isinstance(a, CommitInfo)), None)
    if info is None:
        return "written by another engine"
    when = datetime.fromtimestamp(info.timestamp / 1000, tz=UTC).isoformat(timespec="seconds")
    return f"{info.operation} at {when}"


PURGE = "PURGE"
# The application of the `txn` in versions of purges.
_PURGES = "indextables.purge"
_BEFORE = "before"
_RETENTION = "retentionHours"


def purge_parameters(before_ms: int, retention_hours: float) -> dict[str, str]:
    """The parameters of a purge's version: files up to this time are deleted."""
    return {_BEFORE: str(before_ms), _RETENTION: f"{retention_hours:g}"}


def purge_txn(before_ms: int, base: Snapshot) -> Txn:
    """The `txn` of a purge's version: the time up to which files are deleted, or one that is later."""
    last = base.txns.get(_PURGES)
    return Txn(app_id=_PURGES, version=before_ms if last is None else max(before_ms, last.version + 1))


def purged_before(snapshot: Snapshot) -> int | None:
    """The time up to which purges before a version delete files; None if it has none of this release."""
    last = snapshot.txns.get(_PURGES)
    return None if last is None else last.version


def purged_problem(adds: Iterable[Add], newest: Snapshot) -> str | None:
    """Why splits that were written for an earlier version cannot be added to the newest; None if they can."""
    before_ms = purged_before(newest)
    oldest = _oldest(adds)
    if before_ms is None or oldest is None or oldest.modification_time - CLOCK_SKEW_MS > before_ms:
        return None
    return f"a purge since may have deleted {oldest.path}: it is older, and no version referred to it then"


def purge_problem(adds: Iterable[Add], purge: CommitInfo) -> str | None:
    """Why splits cannot be added after a purge that is newer than their write's base; None if they can."""
    oldest = _oldest(adds)
    if oldest is None:
        return None
    before_text = purge.operation_parameters.get(_BEFORE, "")
    if (
        before_text.isascii()
        and before_text.isdigit()
        and oldest.modification_time - CLOCK_SKEW_MS > int(before_text[:20])
    ):
        return None
    return f"that purge may have deleted {oldest.path}: it is older, and no version referred to it then"


def _oldest(adds: Iterable[Add]) -> Add | None:
    return min(adds, key=lambda add: add.modification_time, default=None)
