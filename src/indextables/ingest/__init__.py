"""Writes: rows become splits, and splits become one version.

```
anything with rows -> Arrow batches -> partitions -> splits -> uploads -> one commit
```

Until the commit nothing is visible. If anything fails before it, uploaded splits are deleted; if the outcome
of the commit is unknown, nothing is deleted.
"""

from collections.abc import Sequence

from indextables.data_files import open_log
from indextables.ingest.plan import (
    Replace,
    WritePlan,
    covered_splits,
    finish_write,
    has_batch,
    micro_batch_options,
    plan_write,
    removes,
)
from indextables.ingest.splits import SplitUploads
from indextables.ingest.target import Mode, as_reader
from indextables.log.format.actions import Add
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.records import dataclass
from indextables.store import Store

__all__ = [
    "Mode",
    "WritePlan",
    "Replace",
    "SplitUploads",
    "WriteResult",
    "covered_splits",
    "finish_write",
    "has_batch",
    "micro_batch_options",
    "plan_write",
    "removes",
    "write_table",
]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A table after a write, whether the write committed a version, and the splits of that version."""

    log: TransactionLog
    snapshot: Snapshot
    committed: bool
    adds: Sequence[Add] = ()


def write_table(
    store: Store, data: object, *, mode: Mode, partition_by: Sequence[str], options: Options, engine: str
) -> WriteResult:
    """Write rows into the table at the store's root."""
    log = open_log(store, options, engine=engine)
    reader = as_reader(data)
    write_plan, snapshot = plan_write(
        log, reader.schema, mode=mode, partition_by=partition_by, options=options
    )
    if write_plan is None:
        assert snapshot is not None
        return WriteResult(log, snapshot, committed=False)
    uploads = SplitUploads(store, write_plan.target, options)
    try:
        adds = uploads.write(write_plan.convert(reader))
    except BaseException:
        uploads.delete_uncommitted()
        raise
    after, committed = finish_write(log, write_plan, adds, options, snapshot)
    return WriteResult(log, after, committed, adds if committed else ())
