"""Small results that the planner computes itself, because starting a task would take longer."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from indextables.cache import Cache
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import to_sql
from indextables.read.aggregation import (
    Partial,
    from_log,
    index_partial,
    index_suffices,
    result_table,
    split_partial,
)
from indextables.read.execute import aggregate_files, merge_partials
from indextables.read.parallel import each, open_readers, parallelism
from indextables.read.spec import AggregateSpec, ScanSpec
from indextables.read.split_reader import SplitReader
from indextables.read.split_rows import ranked_search, scan_readers
from indextables.read.split_source import is_open, max_open_splits, was_open
from indextables.read.table_context import SplitRef, plan_splits
from indextables.records import dataclass
from indextables.spark.planner.aggregation import sums_fit_doubles
from indextables.store import Store

# At most this many bytes of indexes are fetched for an inline answer.
_MAX_FETCHED_BYTES = 64 << 20
# Ordering or grouping this many rows takes about as long as starting a task.
_MAX_ROWS_READ = 100_000
_MAX_ANSWER_BYTES = 4 << 20
_MAX_CACHED = 16
_LONGEST_PAUSE_S = 1.0

# Estimates in milliseconds. A split whose footer was read is searched; another one is opened first, which
# takes a request and, unless its index is in the disk cache, a part of its bytes: for each column of the
# query its terms, and never more than all of the index.
_SEARCH_MS = 0.1
_OPEN_MS = 3.0
_REMOTE_OPEN_MS = 70.0
_PART_OF_COLUMN = 0.02
_MOST_READ = 0.25
# The share of `cache.maxSize` that is fetched in the background.
_BACKGROUND_SHARE = 4
# Requests of the background at the same time.
_BACKGROUND_OPENS = "8"
_LOCAL_BYTES_PER_MS = 200_000
_REMOTE_BYTES_PER_MS = 50_000
# Estimates of the time to start tasks; the first tasks of a session also start processes.
_TASKS_MS = 150.0
_FIRST_TASKS_MS = 1500.0

_logger = logging.getLogger(__name__)

_answers: Cache[tuple[object, ...], pa.Table] = Cache(_MAX_CACHED)
_tasks_ran = False


def record_tasks() -> None:
    """Record that tasks of this session were planned: later tasks start faster."""
    global _tasks_ran  # noqa: PLW0603 - a fact about the session
    _tasks_ran = True


class _TooSlowError(Exception):
    """Computing an answer takes longer than was estimated."""


class _Budget:
    """Decides by an estimate of the work whether the planner computes a result, and limits the time.

    The planner uses one core. Tasks use all cores, but take time to start.
    """

    def __init__(self, options: Options, cores: int) -> None:
        self._most_ms = options.get(reading.INLINE_TIME)
        self._cores = max(1, cores)
        self._opens = options.get(reading.CONCURRENT_OPENS)
        self._end = time.monotonic() + 2 * self._most_ms / 1000

    def allows(self, store: Store, splits: Sequence[SplitRef], columns: int) -> bool:
        """Whether reading these splits here is estimated to be faster than tasks, and within the limit.

        Args:
            store: The table's store.
            splits: The splits to read.
            columns: How many columns of their indexes are needed.
        """
        closed = [ref for ref in splits if not is_open(store, ref)]
        unread = _index_bytes([ref for ref in closed if not was_open(store, ref)], columns)
        if store.is_local:
            opening = _OPEN_MS * len(closed) + unread / _LOCAL_BYTES_PER_MS
        else:
            opening = _REMOTE_OPEN_MS * -(-len(closed) // self._opens) + unread / _REMOTE_BYTES_PER_MS
        searching = self._searching(splits)
        if searching + opening > self._most_ms or (unread > _MAX_FETCHED_BYTES and not store.is_local):
            return False
        # Splits stay open for later queries, unless there are too many.
        return self._beats_tasks(searching if len(splits) <= max_open_splits() else searching + opening)

    def allows_open(self, splits: Sequence[SplitRef]) -> bool:
        """Whether reading these splits here would be faster than tasks if they were open."""
        return len(splits) <= max_open_splits() and self._beats_tasks(self._searching(splits))

    def _searching(self, splits: Sequence[SplitRef]) -> float:
        return _SEARCH_MS * len(splits)

    def _beats_tasks(self, work: float) -> bool:
        tasks = _TASKS_MS if _tasks_ran else _FIRST_TASKS_MS
        return work <= min(self._most_ms, tasks + work / self._cores)

    def check(self) -> None:
        """Raise _TooSlowError after twice the longest time."""
        if time.monotonic() > self._end:
            raise _TooSlowError


def _index_bytes(splits: Sequence[SplitRef], columns: int) -> float:
    """An estimate of the bytes that a query reads of the indexes of splits that are not in the disk cache."""
    return sum(ref.size for ref in splits) * min(_MOST_READ, _PART_OF_COLUMN * columns)


def _columns_read(spec: ScanSpec | AggregateSpec) -> int:
    """How many columns of the index a query needs."""
    columns = set() if spec.where is None else set(spec.table.condition_columns(spec.where).columns)
    if isinstance(spec, AggregateSpec):
        columns.update(spec.columns)
    return len(columns)


# --- opening in the background ----------------------------------------------------------------------


class _Background:
    """One thread that opens splits which tasks read, for the newest query only."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset in a forked child, which has no thread."""
        self._lock = threading.Lock()
        self._next: Callable[[], Iterator[object]] | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Iterator[object]]) -> None:
        """Do some work step by step, instead of the current work."""
        with self._lock:
            self._next = work
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="indextables-open", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._next = None
                    _logger.debug("no thread opens splits in the background: %s", error)
                else:
                    self._thread = thread

    def stop(self) -> None:
        """Stop the current work after its current step."""
        with self._lock:
            self._next = _nothing

    def wait(self) -> None:
        """Wait until no work is running."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _is_replaced(self) -> bool:
        return self._next is not None

    def _work(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._thread = None
                    return
            began = time.monotonic()
            try:
                for _ in work():
                    if self._is_replaced():
                        break
                    # Calls of the planner have priority: they get at least half of the interpreter's time.
                    time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE_S))
                    began = time.monotonic()
            except Exception as error:  # noqa: BLE001 - opening ahead only saves time; a query reports errors
                _logger.debug("splits were not opened in the background: %s", error)


def _nothing() -> Iterator[object]:
    return iter(())


_background = _Background()
os.register_at_fork(after_in_child=_background.reset)


def stop_opening() -> None:
    """Stop opening splits in the background."""
    _background.stop()


def open_ahead(spec: ScanSpec | AggregateSpec, splits: Sequence[SplitRef], store: Store, cores: int) -> None:
    """Open splits that tasks read now in the background, if later queries can then be computed here."""
    options = spec.table.options
    if any(not ref.is_parquet or ref.source_file is not None for ref in splits):
        return  # their tasks index rows first, which is not done twice
    most_bytes = options.get(reading.OPEN_INDEXES_SIZE) / _BACKGROUND_SHARE
    unread = [ref for ref in splits if not was_open(store, ref)]
    if (
        options.get(reading.INLINE_ROWS)
        and (isinstance(spec, AggregateSpec) or spec.where is not None)
        and len(splits) <= options.get(reading.INLINE_OPEN_SPLITS)
        and not all(is_open(store, ref) for ref in splits)
        and _Budget(options, cores).allows_open(splits)
        and _index_bytes(unread, max(1, _columns_read(spec))) <= most_bytes
    ):
        few = Options.parse({reading.CONCURRENT_OPENS.key: _BACKGROUND_OPENS}).over(options)
        own = replace(spec, table=replace(spec.table, options=few))
        _background.run(partial(_open_each, own, splits, store))


def _open_each(spec: ScanSpec | AggregateSpec, splits: Sequence[SplitRef], store: Store) -> Iterator[object]:
    """Open splits and the parts of their indexes that a query needs."""
    for reader in open_readers(store, splits, spec.table, spec.where):
        if isinstance(spec, AggregateSpec):
            yield index_partial(reader, spec)
        else:
            yield reader.find_candidates(spec.where, spec.limit, spec.table.options.get(reading.INLINE_ROWS))


# --- rows -------------------------------------------------------------------------------------------


def inline_rows(
    spec: ScanSpec, splits: Sequence[SplitRef], store: Store, cores: int
) -> list[pa.RecordBatch] | None:
    """The rows of a scan, if they are few and the planner finds them quickly; else None.

    Args:
        spec: What to return.
        splits: The splits to read.
        store: The table's store.
        cores: How many cores tasks would have.
    """
    options = spec.table.options
    most = options.get(reading.INLINE_ROWS)
    budget = _Budget(options, cores)
    if not most or not budget.allows(store, splits, _columns_read(spec)):
        return None
    try:
        readers = _affordable_readers(spec, splits, store, budget)
        if readers is None:
            return None
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in scan_readers(spec, readers, len(readers)):
            budget.check()
            batches.append(batch)
            size += batch.nbytes
            if size > _MAX_ANSWER_BYTES:
                return None
    except _TooSlowError:
        return None
    return batches


def _affordable_readers(
    spec: ScanSpec, splits: Sequence[SplitRef], store: Store, budget: _Budget
) -> list[SplitReader] | None:
    """Open splits, if together they have few rows; splits without a candidate are skipped."""
    options = spec.table.options
    most = options.get(reading.INLINE_ROWS)
    cost = 0.0
    readers: list[SplitReader] = []
    # Several threads open splits; searching open ones holds the interpreter lock, so one thread is as fast.
    at_once = 1 if all(is_open(store, ref) for ref in splits) else parallelism(options)
    limited = spec.limit is not None and not spec.order
    opened = open_readers(store, splits, spec.table, spec.where, limited=limited, check=budget.check)
    works = (partial(_reader_and_cost, spec, reader, budget) for reader in opened)
    for reader, own in each(works, at_once):
        cost += own
        if cost > most:
            return None
        if own:
            readers.append(reader)
        if spec.limit is not None and not spec.order and cost >= spec.limit and _are_exact(spec, readers):
            break
    return readers


def _are_exact(spec: ScanSpec, readers: Sequence[SplitReader]) -> bool:
    """Whether every row that was counted is returned."""
    return all(reader.index_decides(spec.where) for reader in readers)


def _reader_and_cost(spec: ScanSpec, reader: SplitReader, budget: _Budget) -> tuple[SplitReader, float]:
    budget.check()
    return reader, _cost(spec, reader)


def _cost(spec: ScanSpec, reader: SplitReader) -> float:
    """The number of fetched rows; rows that are only compared have a lower weight."""
    most = spec.table.options.get(reading.INLINE_ROWS)
    limit, row_count = spec.limit, reader.ref.num_records
    if spec.where is None:
        if limit is None:
            return float("inf") if row_count is None else row_count
        if row_count is None or limit > most:
            return float("inf")
        return min(limit, row_count) if not spec.order else limit + row_count * most / _MAX_ROWS_READ
    if limit is not None and ranked_search(spec) is not None and reader.index_decides(spec.where):
        return limit
    if spec.order and limit is not None:
        candidates = reader.count_candidates(spec.where)
        return candidates if candidates <= limit else limit + candidates * most / _MAX_ROWS_READ
    few = reader.find_candidates(spec.where, limit, most)
    return float("inf") if few is None else few


# --- groups -----------------------------------------------------------------------------------------


def can_answer_groups(
    snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store, cores: int
) -> bool:
    """Whether the planner computes an aggregation itself: from the log, indexes, or few rows.

    The result is computed only if that is the only way to determine whether indexes are exact; then it is
    cached.

    Args:
        snapshot: The version to read.
        files: The entries of the splits to read.
        spec: What to compute.
        store: The table's store.
        cores: How many cores tasks would have.
    """
    if _answers.has(_answer_key(snapshot, spec)):
        return True
    rest = _inline_splits(snapshot, files, spec, store, cores)
    if rest is None:
        return False
    exact = True
    sums_exact = sums_fit_doubles(spec, files)
    large = [ref for ref in rest.splits if not rest.is_small(ref)]
    table, where = rest.spec.table, rest.spec.where
    try:
        # The first split determines what the others need.
        for reader in open_readers(store, large, table, where, limited=True, check=rest.budget.check):
            suffices = index_suffices(reader, rest.spec, sums_exact=sums_exact)
            if suffices is False:
                return False
            if suffices is None:
                exact = False
                break
    except _TooSlowError:
        return False
    return exact or inline_groups(snapshot, files, spec, store, cores) is not None


def complete_groups(snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store) -> pa.Table:
    """The result of an aggregation for which `can_answer_groups` was true, without a time limit."""
    # Tasks are not possible any more, so the limit is that for one core.
    groups = inline_groups(snapshot, files, spec, store, cores=1)
    if groups is not None:
        return groups
    plan = plan_splits(snapshot, spec.where, spec.table.options, files)
    return aggregate_files(replace(spec, table=plan.table), plan.files, plan.splits, store)


def inline_groups(
    snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store, cores: int
) -> pa.Table | None:
    """The result of an aggregation, if the planner can compute it quickly; it is cached."""
    key = _answer_key(snapshot, spec)
    if (cached := _answers.get(key)) is not None:
        return cached
    groups = _inline_groups(snapshot, files, spec, store, cores)
    if groups is not None:
        _answers.put(key, groups)
    return groups


def _answer_key(snapshot: Snapshot, spec: AggregateSpec) -> tuple[object, ...]:
    options = spec.table.options.public()
    where = "" if spec.where is None else to_sql(spec.where)
    text = repr((spec.aggregates, spec.groups, where))
    return (snapshot.log.cache_scope, snapshot.key, text, *sorted(options.values.items()))


@dataclass(frozen=True, slots=True)
class _InlineSplits:
    """The splits whose partial aggregate is not in the log, if reading them here is fast enough."""

    spec: AggregateSpec
    statistics: Partial | None
    splits: Sequence[SplitRef]
    budget: _Budget

    def is_small(self, ref: SplitRef) -> bool:
        """Whether reading the rows of a split is cheap enough."""
        return ref.num_records is not None and ref.num_records <= _MAX_ROWS_READ // len(self.splits)

    def partial(self, reader: SplitReader) -> Partial | None:
        """The partial aggregate of one split; None if its index is not exact and it has many rows."""
        self.budget.check()
        if self.is_small(reader.ref):
            return split_partial(reader, self.spec)
        return index_partial(reader, self.spec)


def _inline_splits(
    snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store, cores: int
) -> _InlineSplits | None:
    options = spec.table.options
    if not options.get(reading.INLINE_ROWS):
        return None
    plan = plan_splits(snapshot, spec.where, options, files)
    spec = replace(spec, table=plan.table)
    statistics, complete = from_log(plan.files, spec)
    rest = [ref for ref, done in zip(plan.splits, complete.tolist(), strict=True) if not done]
    budget = _Budget(options, cores)
    if not budget.allows(store, rest, _columns_read(spec)):
        return None
    return _InlineSplits(spec, statistics, rest, budget)


def _inline_groups(
    snapshot: Snapshot, files: pa.Table, spec: AggregateSpec, store: Store, cores: int
) -> pa.Table | None:
    rest = _inline_splits(snapshot, files, spec, store, cores)
    if rest is None:
        return None
    parts: list[Partial] = []
    at_once = 1 if all(is_open(store, ref) for ref in rest.splits) else parallelism(spec.table.options)
    readers = open_readers(store, rest.splits, rest.spec.table, rest.spec.where, check=rest.budget.check)
    try:
        for result in each((partial(rest.partial, reader) for reader in readers), at_once):
            if result is None:
                return None
            parts.append(result)
    except _TooSlowError:
        return None
    first = [] if rest.statistics is None else [rest.statistics]
    return result_table([merge_partials(rest.spec, first, parts)], rest.spec)
