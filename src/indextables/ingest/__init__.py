"""Rows become splits, and splits become one version.

```
anything with rows -> Arrow batches -> partitions -> splits -> uploads -> one commit
```

Until the commit nothing is visible. If anything fails before it, what was uploaded is deleted again; if it
cannot be told whether the commit happened, nothing is deleted.
"""

import time
from collections.abc import Sequence

from indextables.errors import CommitUnknownError, IndexTablesError, TableExistsError, TableNotFoundError
from indextables.ingest.incoming import as_reader
from indextables.ingest.splits import SplitUploads
from indextables.ingest.target import Mode, Target, existing_table, new_table
from indextables.log.actions import Add, Remove, Txn
from indextables.log.conflict import Draft
from indextables.log.files import removes_of
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options import writing as opt
from indextables.schema.stored import cast_stream
from indextables.store import Store

__all__ = ["Mode", "write_table"]


def write_table(
    store: Store, data: object, *, mode: Mode, partition_by: Sequence[str], options: Options, engine: str
) -> tuple[TransactionLog, Snapshot]:
    """Write rows into the table at the store's root, and the snapshot after that."""
    log = TransactionLog(store, options, engine=engine)
    snapshot = _existing(log)
    if snapshot is not None and mode is Mode.ERROR:
        raise TableExistsError(store.url)
    if snapshot is not None and (mode is Mode.IGNORE or _has_batch(snapshot, options)):
        return log, snapshot
    reader = as_reader(data)
    if snapshot is None:
        target = new_table(reader.schema, partition_by, options, now_ms=time.time_ns() // 1_000_000)
        log.check_store()
    else:
        target = existing_table(snapshot, reader.schema, partition_by, options, mode)
    uploads = SplitUploads(store, target, options)
    try:
        adds = uploads.write(cast_stream(reader, target.schema))
        return log, _commit(log, snapshot, target, tuple(adds), mode, options)
    except CommitUnknownError:
        raise
    except BaseException:
        uploads.withdraw()
        raise


def _commit(
    log: TransactionLog,
    snapshot: Snapshot | None,
    target: Target,
    adds: tuple[Add, ...],
    mode: Mode,
    options: Options,
) -> Snapshot:
    metadata = target.metadata
    if snapshot is None:
        assert metadata is not None
        snapshot, metadata = _created(log, target, mode), None
    removes: tuple[Remove, ...] = ()
    if mode is Mode.OVERWRITE:
        removes = removes_of(snapshot.files(), timestamp=time.time_ns() // 1_000_000)
    if not adds and not removes and metadata is None:
        return snapshot
    app = options.get(opt.TXN_APP_ID)
    draft = Draft(
        operation="OVERWRITE" if mode is Mode.OVERWRITE else "WRITE",
        adds=adds,
        removes=removes,
        metadata=metadata,
        txns=(Txn(app_id=app, version=options.get(opt.TXN_VERSION)),) if app else (),
        parameters={"mode": mode.value, "partitionBy": ",".join(target.partition_columns)},
        user_metadata=options.get(opt.USER_METADATA),
    )
    return log.commit(draft, snapshot)


def _created(log: TransactionLog, target: Target, mode: Mode) -> Snapshot:
    """The new table; or the one that somebody made in the meantime, if the rows fit it."""
    assert target.metadata is not None
    made = log.create(target.metadata)
    if made is not None:
        return made
    other = log.snapshot()
    if mode is Mode.ERROR:
        raise TableExistsError(log.store.url)
    if other.schema != target.schema or other.partition_columns != target.partition_columns:
        raise IndexTablesError(
            f"another writer made a table at {log.store.url} with other columns at the same time; "
            "nothing was written; write again to append to it"
        )
    return other


def _existing(log: TransactionLog) -> Snapshot | None:
    try:
        return log.snapshot()
    except TableNotFoundError:
        return None


def _has_batch(snapshot: Snapshot, options: Options) -> bool:
    """Whether the batch that this write brings is in the table already."""
    app = options.get(opt.TXN_APP_ID)
    known = snapshot.txns.get(app) if app else None
    return known is not None and known.version >= options.get(opt.TXN_VERSION)
