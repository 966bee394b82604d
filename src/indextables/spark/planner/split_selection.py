"""The splits that a read needs, by partition values and statistics."""

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.pruning.metrics_evaluator import (
    First,
    evaluate_metrics,
    may_hold_first,
    prune,
    split_partition_conjuncts,
)
from indextables.log.snapshot import Snapshot
from indextables.predicate import Predicate


@dataclass(frozen=True, slots=True)
class SplitSelection:
    """The entries of the splits that may hold a matching row, and how many splits were considered."""

    files: pa.Table
    considered: int
    within_partitions: int

    def metrics(self) -> dict[str, int]:
        """The metrics by their names on Spark's SQL page."""
        return {
            "splitsConsidered": self.considered,
            "splitsPrunedByPartition": self.considered - self.within_partitions,
            "splitsPrunedByStatistics": self.within_partitions - self.files.num_rows,
        }

    @property
    def rows(self) -> int:
        """How many rows the splits have by the log."""
        return pc.sum(self.files["numRecords"]).as_py() or 0

    @property
    def bytes(self) -> int:
        """The size of the splits, uncompressed where the log has it."""
        sizes = pc.coalesce(self.files["uncompressedSizeBytes"], self.files["size"])
        return pc.sum(sizes).as_py() or 0

    def holding_first(self, snapshot: Snapshot, where: Predicate | None, first: First) -> "SplitSelection":
        """Only the splits that may hold one of the first rows of an order."""
        if not self.files.num_rows:
            return self
        certain = evaluate_metrics(self.files, where, snapshot.schema, snapshot.partition_columns).strict
        sure = certain.to_numpy(zero_copy_only=False)
        keep = may_hold_first(self.files, first, sure, snapshot.schema, snapshot.partition_columns)
        return self if keep.all() else replace(self, files=self.files.filter(pa.array(keep)))


def select_splits(snapshot: Snapshot, where: Predicate | None) -> SplitSelection:
    """The splits that may hold a row for which the condition is true."""
    partition, _ = split_partition_conjuncts(where, snapshot.partition_columns)
    listed = snapshot.files(partition)
    considered = listed.num_rows if partition is None else max(_live(snapshot), listed.num_rows)
    files = listed
    if where is not None and listed.num_rows:
        files = listed.filter(prune(listed, where, snapshot.schema, snapshot.partition_columns))
    return SplitSelection(files, considered, listed.num_rows)


def _live(snapshot: Snapshot) -> int:
    """How many splits are live, without reading their entries."""
    base, delta = snapshot.base, snapshot.delta
    known = 0
    if base.listed is not None:
        known = base.listed.num_rows
    elif base.state is not None:
        known = base.state.num_files
    gone = sum(path not in delta.fresh for path in delta.removed)
    return known - gone + len(delta.added)
