"""The splits that a read needs, the tasks that read them, and the executors that the tasks prefer."""

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import replace

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
from indextables.options import Options, reading
from indextables.predicate import Predicate
from indextables.read.table_context import SplitRef
from indextables.records import dataclass

# Opening a split costs as much as reading this many bytes.
_SPLIT_BYTES = 1 << 20
# With more bytes per core, tasks are smaller, so that cores finish at about the same time.
_WAVE_BYTES = 256 << 20
_WAVES = 3


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """The splits of one task, and the executor whose cache holds their indexes, if any."""

    splits: tuple[SplitRef, ...]
    executor: str | None


def assign_splits(
    splits: Sequence[SplitRef],
    parallelism: int,
    executors: Sequence[str],
    options: Options,
    *,
    aggregate: bool = False,
) -> list[TaskSplits]:
    """Assign splits to tasks of about the same size.

    A split is assigned to the executor with the highest hash of executor and split (rendezvous hashing), so
    that only few splits move when executors come and go.
    """
    if not splits:
        return []
    fixed, most = _limits(options, aggregate=aggregate)
    homes: dict[str | None, list[SplitRef]] = {}
    for ref in splits:
        homes.setdefault(preferred_executor(ref.path, executors), []).append(ref)
    tasks: list[TaskSplits] = []
    total = sum(ref.size + _SPLIT_BYTES for ref in splits)
    for executor, own in sorted(homes.items(), key=lambda own: own[0] or ""):
        share = sum(ref.size + _SPLIT_BYTES for ref in own) / total
        if fixed is not None:
            count = -(-len(own) // fixed)
        else:
            waves = _WAVES if total / parallelism > _WAVE_BYTES else 1
            count = max(round(parallelism * waves * share), -(-len(own) // most), 1)
        tasks += [TaskSplits(group, executor) for group in _balanced(own, min(count, len(own)))]
    return tasks


def _limits(options: Options, *, aggregate: bool) -> tuple[int | None, int]:
    if aggregate:
        return (
            options.get(reading.AGGREGATE_SPLITS_PER_TASK),
            options.get(reading.AGGREGATE_MAX_SPLITS_PER_TASK),
        )
    return options.get(reading.SPLITS_PER_TASK), options.get(reading.MAX_SPLITS_PER_TASK)


def preferred_executor(path: str, executors: Sequence[str]) -> str | None:
    """The executor that a split is assigned to."""
    if not executors:
        return None
    return max(
        executors, key=lambda name: hashlib.blake2b(f"{name}\0{path}".encode(), digest_size=8).digest()
    )


def _balanced(splits: Sequence[SplitRef], count: int) -> list[tuple[SplitRef, ...]]:
    """Divide the splits into `count` groups: the largest first, each into the smallest group."""
    groups: list[list[SplitRef]] = [[] for _ in range(count)]
    most = -(-len(splits) // count)
    loads = [(0, number) for number in range(count)]
    for ref in sorted(splits, key=lambda ref: (-ref.size, ref.path)):
        load, number = heapq.heappop(loads)
        groups[number].append(ref)
        if len(groups[number]) < 2 * most:
            heapq.heappush(loads, (load + ref.size + _SPLIT_BYTES, number))
    return [tuple(group) for group in groups if group]


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
        """How many rows the splits have according to the log."""
        return pc.sum(self.files["numRecords"]).as_py() or 0

    @property
    def bytes(self) -> int:
        """The size of the splits, uncompressed if the log has it."""
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
        mask = prune(listed, where, snapshot.schema, snapshot.partition_columns)
        files = listed if mask.true_count == len(mask) else listed.filter(mask)
    return SplitSelection(files, considered, listed.num_rows)


def _live(snapshot: Snapshot) -> int:
    """How many splits are live, without reading their entries."""
    base, delta = snapshot.base, snapshot.delta
    files = 0
    if base.listed is not None:
        files = base.listed.num_rows
    elif base.state is not None:
        files = base.state.num_files
    gone = sum(path not in delta.fresh for path in delta.removed)
    return files - gone + len(delta.added)
