"""The splits of each task, and the executor that the task prefers."""

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from indextables.options import Options, reading
from indextables.read.table_context import SplitRef

# Starting a task costs as much as reading this many bytes.
_TASK_BYTES = 4 << 20
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
    found: list[TaskSplits] = []
    total = sum(ref.size + _TASK_BYTES for ref in splits)
    for executor, own in sorted(homes.items(), key=lambda own: own[0] or ""):
        share = sum(ref.size + _TASK_BYTES for ref in own) / total
        if fixed is not None:
            count = -(-len(own) // fixed)
        else:
            waves = _WAVES if total / parallelism > 16 * _TASK_BYTES else 1
            count = max(round(parallelism * waves * share), -(-len(own) // most), 1)
        found += [TaskSplits(group, executor) for group in _balanced(own, min(count, len(own)))]
    return found


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
    """The splits in `count` groups: the largest first, each to the smallest group."""
    groups: list[list[SplitRef]] = [[] for _ in range(count)]
    most = -(-len(splits) // count)
    loads = [(0, number) for number in range(count)]
    for ref in sorted(splits, key=lambda ref: (-ref.size, ref.path)):
        load, number = heapq.heappop(loads)
        groups[number].append(ref)
        if len(groups[number]) < 2 * most:
            heapq.heappush(loads, (load + ref.size + _TASK_BYTES, number))
    return [tuple(group) for group in groups if group]
