"""Whole partitions leave the table, in one version; a purge deletes their files later."""

import time
from dataclasses import dataclass

import pyarrow.compute as pc

from indextables.errors import CommitConflictError
from indextables.log.conflict import Draft
from indextables.log.format.files import removes_of
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.listing import distinct_partitions, in_partitions, partition_condition
from indextables.options import log as opt
from indextables.predicate import to_sql

DROP = "DROP PARTITIONS"


@dataclass(frozen=True, slots=True)
class Dropped:
    """What left the table; no version if no partition matched."""

    partitions: int = 0
    splits: int = 0
    bytes: int = 0
    version: int | None = None


def drop_partitions(log: TransactionLog, where: str) -> Dropped:
    """Drop the partitions for which a condition on partition columns is true.

    If another commit changes the same splits meanwhile, the condition is asked again. Splits that are
    appended meanwhile stay: the order is then first the drop, then the append.
    """
    attempts = log.options.get(opt.RETRY_ATTEMPTS)
    for attempt in range(1, attempts + 1):
        try:
            return _drop(log, where)
        except CommitConflictError:
            if attempt == attempts:
                raise
    raise AssertionError("there is at least one attempt")


def _drop(log: TransactionLog, where: str) -> Dropped:
    snapshot = log.snapshot()
    predicate = partition_condition(snapshot, where)
    gone = in_partitions(snapshot, predicate)
    if not gone.num_rows:
        return Dropped()
    draft = Draft(
        operation=DROP,
        removes=removes_of(gone, timestamp=time.time_ns() // 1_000_000),
        parameters={"where": to_sql(predicate)},
    )
    after = log.commit(draft, snapshot)
    total = pc.sum(gone["size"]).as_py() or 0
    return Dropped(distinct_partitions(gone), gone.num_rows, total, after.version)
