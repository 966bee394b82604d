"""Prewarm: copies indexes to the local disk and into memory before the first search."""

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from indextables.errors import CommandError, IndexTablesError, StoreError
from indextables.log.snapshot import Snapshot
from indextables.maintain.figures import in_partitions, partition_condition
from indextables.maintain.jobs import Job, JobKind, start
from indextables.maintain.merge import MergeContext
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.predicate.tree import suggestion
from indextables.records import dataclass
from indextables.split.footer import PARQUET_TAG, read_footer
from indextables.split.query.searcher import prewarm as warm_split
from indextables.split.tantivy_layout import INDEX_COMPONENTS
from indextables.store import Store
from indextables.store.backend import Backoff

_ALIASES = {
    "TERM_DICT": "TERM",
    "TERM_DICTIONARY": "TERM",
    "FAST_FIELD": "FASTFIELD",
    "POSTING_LISTS": "POSTINGS",
    "POSITION_LISTS": "POSITIONS",
    "FIELD_NORM": "FIELDNORM",
    "DOC_STORE": "STORE",
}
_BACKOFF = Backoff(base_ms=100, max_ms=5000)


@dataclass(frozen=True, slots=True)
class PrewarmTask:
    """Splits to warm, the parts and columns of their indexes, and the executor that reads them."""

    splits: tuple[tuple[str, int], ...]
    parts: tuple[str, ...]
    columns: tuple[str, ...]
    at_once: int
    home: str | None = None


@dataclass(frozen=True, slots=True)
class PrewarmResult:
    """The result of a task, and the host on which it ran."""

    host: str
    splits: int = 0
    bytes: int = 0
    retries: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class PrewarmPlan:
    """The tasks, newest splits first; and columns that were skipped, since they have no index."""

    tasks: tuple[PrewarmTask, ...]
    parts: tuple[str, ...]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    splits: int


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """The parts of an index by any of their names."""
    components = []
    for name in names:
        part = _ALIASES.get(name.upper(), name.upper())
        if part not in INDEX_COMPONENTS:
            all_names = (*INDEX_COMPONENTS, *_ALIASES)
            hint = suggestion(name, all_names) or ";"
            raise CommandError(f"there is no segment {name}{hint} segments are {', '.join(INDEX_COMPONENTS)}")
        components.append(part)
    return tuple(dict.fromkeys(components))


def plan_prewarm(
    snapshot: Snapshot,
    options: Options,
    *,
    segments: Sequence[str] = (),
    fields: Sequence[str] = (),
    where: str | None = None,
    parallelism: int | None = None,
    home: Callable[[str], str | None] | None = None,
) -> PrewarmPlan:
    """Which splits to warm; splits of the original are skipped, since their indexes cannot be copied.

    `home` returns the executor that will read a split: its cache is warmed.
    """
    by_default = options.get(opt.PREWARM_SEGMENTS), options.get(opt.PREWARM_FIELDS)
    parts = parts_of(segments or by_default[0])
    if parallelism is not None and parallelism < 1:
        raise CommandError(f"a parallelism of {parallelism} warms nothing; give 1 or more")
    at_once = parallelism or options.get(opt.PREWARM_PER_TASK)
    predicate = None if where is None else partition_condition(snapshot, where)
    files = in_partitions(snapshot, predicate).sort_by([("modificationTime", "descending")])
    field_names = fields or by_default[1]
    columns, left_out = _columns(snapshot, field_names, options)
    if field_names and not columns:
        # No columns with an index are left; an empty list would mean all columns.
        return PrewarmPlan((), parts, (), left_out, 0)
    ours = [PARQUET_TAG in (tags or ()) for tags in files["splitTags"].to_pylist()]
    files = files.filter(pa.array(ours, pa.bool_()))
    splits = list(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True))
    homes: dict[str | None, list[tuple[str, int]]] = {}
    for split in splits:
        homes.setdefault(None if home is None else home(split[0]), []).append(split)
    tasks = tuple(
        PrewarmTask(tuple(own[start : start + at_once]), parts, columns, at_once, name)
        for name, own in homes.items()
        for start in range(0, len(own), at_once)
    )
    return PrewarmPlan(tasks, parts, columns, left_out, len(splits))


def run(task: PrewarmTask, store: Store, options: Options) -> PrewarmResult:
    """Warm the splits of a task in parallel; splits that cannot be read are in the result."""
    started = time.monotonic()
    with ThreadPoolExecutor(task.at_once) as pool:
        results = list(pool.map(lambda split: _warm(store, split, task, options), task.splits))
    return PrewarmResult(
        host=socket.gethostname(),
        splits=sum(problem is None for _, _, problem in results),
        bytes=sum(read for read, _, _ in results),
        retries=sum(retries for _, retries, _ in results),
        failed=tuple(
            (path, problem)
            for (path, _), (_, _, problem) in zip(task.splits, results, strict=True)
            if problem is not None
        ),
        duration_ms=int((time.monotonic() - started) * 1000),
    )


def prewarm(
    plan: PrewarmPlan,
    store: Store,
    options: Options,
    progress: Callable[[int, int], None] | None = None,
) -> PrewarmResult:
    """Warm all of a plan in this process."""
    results = []
    for task in plan.tasks:
        results.append(run(task, store, options))
        if progress is not None:
            progress(sum(r.splits + len(r.failed) for r in results), plan.splits)
    return combine_results(results)


def start_prewarm(plan: PrewarmPlan, store: Store, options: Options) -> Job:
    """Warm all splits of a plan in the background, as a job; the error of a failed job names a split."""

    def work(record: Job) -> None:
        record.total = plan.splits
        raise_failed(prewarm(plan, store, options, record.advance).failed)

    return start(JobKind.PREWARM, store.url, options, work)


def raise_failed(failed: Sequence[tuple[str, str]]) -> None:
    """Raise an error if splits could not be warmed, since a job has no other result."""
    if failed:
        path, problem = failed[0]
        raise CommandError(f"{len(failed)} splits could not be warmed, one is {path}: {problem}")


def combine_results(results: Sequence[PrewarmResult]) -> PrewarmResult:
    """Combine the results of one host."""
    return PrewarmResult(
        results[0].host if results else socket.gethostname(),
        sum(r.splits for r in results),
        sum(r.bytes for r in results),
        sum(r.retries for r in results),
        tuple(f for r in results for f in r.failed),
        sum(r.duration_ms for r in results),
    )


def _warm(
    store: Store, split: tuple[str, int], task: PrewarmTask, options: Options
) -> tuple[int, int, str | None]:
    """The bytes read, the number of retries, and the last error, if all attempts failed."""
    path, size = split
    most = options.get(opt.PREWARM_RETRIES)
    for attempt in range(most + 1):
        try:
            return (
                warm_split(store, read_footer(store, path, size), options, task.parts, task.columns),
                attempt,
                None,
            )
        except StoreError as error:
            if attempt == most:
                return 0, attempt, str(error)
            _BACKOFF.sleep(attempt + 1)
        except IndexTablesError as error:
            return 0, attempt, str(error)
    raise AssertionError("there is at least one attempt")


def _columns(
    snapshot: Snapshot, fields: Sequence[str], options: Options
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    spellings = {name.lower(): name for name in snapshot.schema.names}
    mapping = MergeContext.of(snapshot, options).mapping
    indexed = [spellings[f.lower()] for f in fields if f.lower() in spellings and mapping.fields_of(f)]
    left_out = [f for f in fields if f.lower() not in spellings or not mapping.fields_of(f)]
    strict = options.get(opt.PREWARM_FAIL_ON_MISSING)
    if left_out and strict:
        name = left_out[0]
        if name.lower() in spellings:
            raise CommandError(
                f"the column {name} of the table at {snapshot.url} has no index to warm: partition columns "
                "and columns that are only stored have none; leave it out"
            )
        hint = suggestion(name, snapshot.schema.names) or ";"
        raise CommandError(
            f"the table at {snapshot.url} has no column {name}{hint} its columns are: "
            f"{', '.join(snapshot.schema.names)}"
        )
    return tuple(dict.fromkeys(indexed)), tuple(dict.fromkeys(left_out))
