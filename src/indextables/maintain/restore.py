"""A table becomes what it was at an earlier version, by one more version; no history is lost."""

import time
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import OptionError, SplitError
from indextables.log.conflict import OVERWRITE, Draft, without_registry
from indextables.log.format.actions import Add, Metadata
from indextables.log.format.files import removes_of, to_adds
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.listing import missing

RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What came back and what left; no version if the table was what it should be already."""

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

    Splits that are appended meanwhile stay: the order is then first the restore, then the append.
    """
    if (version is None) == (timestamp is None):
        raise OptionError("a restore needs a version or a time to go back to: give one of them")
    now = log.snapshot()
    then = log.snapshot(version=version, timestamp=timestamp)
    old, new = then.files(), now.files()
    back = old.filter(pc.invert(pc.is_in(old["path"], value_set=_paths(new))))
    gone = new.filter(pc.invert(pc.is_in(new["path"], value_set=_paths(old))))
    metadata = _changed(then.metadata, now.metadata)
    figures = (back.num_rows, gone.num_rows, _bytes(back), _bytes(gone))
    if not back.num_rows and not gone.num_rows and metadata is None:
        return RestoreResult(then.version, None, *figures)
    _check_present(log, then, back)
    draft = Draft(
        operation=RESTORE,
        adds=tuple(with_mappings(to_adds(back), then)),
        removes=removes_of(gone, timestamp=time.time_ns() // 1_000_000),
        metadata=metadata,
        parameters={"mode": OVERWRITE, "version": str(then.version)},
        reuses_files=True,
    )
    after = log.commit(draft, now)
    return RestoreResult(then.version, after.version, *figures)


def with_mappings(adds: list[Add], snapshot: Snapshot) -> list[Add]:
    """Adds that carry their document mapping, so that they can stand in another version's registry."""
    return [
        msgspec.structs.replace(add, doc_mapping_json=text, doc_mapping_ref=None)
        if (text := snapshot.registry.get(add.doc_mapping_ref or "")) is not None
        else add
        for add in adds
    ]


def _check_present(log: TransactionLog, then: Snapshot, back: pa.Table) -> None:
    lost = missing(log.store, back["path"].to_pylist())
    if lost:
        raise SplitError(
            f"version {then.version} of {then.url} cannot be restored: {len(lost)} of its {then.num_files} "
            f"splits were deleted since (one is {lost[0]}), most likely by a purge; restore a later version, "
            "or the files from a backup"
        )


def _changed(then: Metadata, now: Metadata) -> Metadata | None:
    """The earlier metadata, where it differs in more than the document mappings that it registers."""
    configuration = without_registry(then.configuration)
    same = (
        then.schema_string == now.schema_string
        and (then.partition_columns or []) == (now.partition_columns or [])
        and configuration == without_registry(now.configuration)
        and (then.name, then.description) == (now.name, now.description)
    )
    return None if same else msgspec.structs.replace(then, configuration=configuration)


def _paths(listed: pa.Table) -> pa.Array:
    return listed["path"].combine_chunks()


def _bytes(listed: pa.Table) -> int:
    return pc.sum(listed["size"]).as_py() or 0
