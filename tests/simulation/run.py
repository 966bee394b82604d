"""One seed, from its first call to the last check.

Real: all code of `indextables.log`, `ingest`, `maintain` (merge, purge, truncate, restore, drop) and the store's
handle, with its own retries, caches and error handling. Simulated: the store behind the handle, clocks, random
numbers, waiting, and thread pools (their tasks run one after the other, in an order chosen by the seed). Stood
in for: the bytes of a split (`splits.py`), the temporary files of a partitioned write, and the job record of a
merge. Not covered: the local disk's and the object stores' own backends, and Spark.
"""

import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from indextables.errors import (
    CommitUnknownError,
    CorruptLogError,
    IndexTablesError,
    OutcomeUnknownError,
    StoreError,
    VersionNotFoundError,
)
from indextables.log.environment import CLOCK_SKEW_MS
from indextables.log.format import checkpoint_files
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.options import Options
from tests.simulation.faults import FaultPlan
from tests.simulation.operations import Author, Checkpoint, Operation, Purge, Read, Truncate, Write, open_log
from tests.simulation.oracle import NESTED, Oracle, VersionRecord
from tests.simulation.scenarios import SCENARIOS, commit_after_json_checkpoint
from tests.simulation.schedule import DAY_MS, START_MS, Crash, Process, Scheduler, Stop, Strategy
from tests.simulation.seams import Current
from tests.simulation.splits import SplitRecord
from tests.simulation.storage import TABLE, Storage, StorageTraits, StoredObject

# The clocks of the processes are off by no more than this: any two of them by less than PROTOCOL.md tolerates.
MAX_SKEW_MS = CLOCK_SKEW_MS * 2 // 5
IMAGES = 12
_LARGE_PARTS = checkpoint_files.ACTIONS_PER_PART
# How many of the runs follow one of the scenarios.
SCENARIO_SHARE = 0.25

_parsed: dict[tuple[tuple[str, str], ...], Options] = {}


@dataclass
class Result:
    """How a run ended."""

    seed: int
    violation: str | None
    history: list[str]
    steps: int
    outcomes: list[str]

    def __str__(self) -> str:
        shown = (
            self.history if len(self.history) <= 400 else [*self.history[:20], "...", *self.history[-380:]]
        )
        return "\n".join([f"seed {self.seed}: {self.violation or 'all invariants hold'}", *shown])


@dataclass
class Image:
    """A table that is there when a run begins."""

    objects: dict[str, StoredObject]
    truth: list[VersionRecord]
    splits: dict[str, SplitRecord]
    writers: dict[int, Operation]
    partition_by: tuple[str, ...]


_images: dict[tuple[int, bool], Image] = {}


@dataclass
class World:
    """Everything of one run."""

    seed: int
    settings: dict[str, str] = field(default_factory=dict)
    violation: str | None = None
    # Which table it begins with.
    image: int = 0
    programs: list[list[Operation]] = field(default_factory=list)
    # Whether it ends with a purge, hours after everything else.
    cleans_at_end: bool = False

    def __post_init__(self) -> None:
        source = random.Random(f"schedule {self.seed}")
        self.scheduler = Scheduler(source, Strategy.choose(source))
        self.oracle = Oracle(self.fail)
        self.storage = Storage(
            self.scheduler,
            random.Random(f"storage {self.seed}"),
            FaultPlan(),
            StorageTraits(),
            self.oracle,
            self.replace_table,
            MAX_SKEW_MS,
        )
        self.oracle.storage = self.storage
        self.setup = Process("setup", lambda _: None, random.Random(f"setup {self.seed}"))
        self.storage.setup = self.setup
        Current.use(self.scheduler, self.storage, self.setup)

    def options(self, extra: Mapping[str, str]) -> Options:
        """The options of the run with others."""
        key = tuple(sorted({**self.settings, **extra}.items()))
        if key not in _parsed:
            _parsed[key] = Options.parse(dict(key))
        return _parsed[key]

    def fail(self, problem: str) -> None:
        """Note that an invariant does not hold; the run ends."""
        if self.violation is None:
            self.violation = problem
            self.scheduler.stopping = True

    def note(self, process: Process, text: str) -> None:
        """Add a line to the history."""
        self.storage.history.append((self.scheduler.steps, process.name, process.operation, "", "", text))

    def replace_table(self) -> None:
        """Somebody deletes the table, if there is one, and makes another one in its place."""
        if not self.oracle.truth:
            return
        self.image = (self.image + self.storage.source.randrange(1, IMAGES)) % IMAGES
        image = image_of(self.image)
        Current.use(self.scheduler, self.storage, self.setup)
        self.storage.objects.clear()
        self.storage.objects.update(image.objects)
        self.oracle.splits.update(image.splits)
        self.oracle.writers.update(image.writers)
        self.oracle.replaced(image.truth)

    def load(self, image: Image) -> None:
        """Begin with a table."""
        self.storage.objects.update(image.objects)
        self.oracle.splits.update(image.splits)
        self.oracle.writers.update(image.writers)
        self.oracle.truth = list(image.truth)

    # --- processes -----------------------------------------------------------------------------------

    def work(self, program: list[Operation]) -> Callable[[Process], None]:
        """What a process does: its operations, again and again started after a crash."""

        def run(process: Process) -> None:
            for operation in program:
                self.perform(process, operation)
                if process.crashed:
                    process.crashed = False
                    process.starts += 1
                    self.scheduler.sleep(process.random.uniform(0, 2))

        return run

    def perform(self, process: Process, operation: Operation) -> None:
        """One operation, and what its caller is told."""
        oracle = self.oracle
        process.operation, process.faults = operation, 0
        operation.epoch, operation.seen, operation.planned = oracle.epoch, len(oracle.truth), False
        began = oracle.epoch
        self.note(process, "begins")
        try:
            version = operation.run(self, process)
        except Crash:
            operation.outcome = "killed"
        except CommitUnknownError as error:
            operation.outcome = f"unknown: {error}"
        except IndexTablesError as error:
            operation.outcome = f"failed: {type(error).__name__}: {error}"
            oracle.failed(operation)
            surprising = isinstance(error, (CorruptLogError, StoreError))
            if "the clock of" in str(error):
                surprising = False  # It was suspended between two looks at a clock, and deleted nothing.
            if isinstance(error, OutcomeUnknownError) and self.settings.get("cloud.maxRetries") == "0":
                # The store said that an object is there, and it was deleted before it could be read back. What
                # that means is not known, and to try again was not allowed (see
                # PROTOCOL.md, "What is needed of a store").
                surprising = False
            if surprising and not process.faults and began == oracle.epoch and not oracle.excused:
                self.fail(f"{operation} fails though no call of it did: {error}")
        else:
            operation.outcome = "done" if version is None else f"done: version {version}"
            if version is not None:
                oracle.acknowledged(operation, version)
        self.note(process, operation.outcome)

    def on_error(self, process: Process, error: BaseException) -> None:
        """An error that is none of ours came out of an operation."""
        where = "".join(traceback.format_exception(error)[-6:])
        self.fail(f"{process.name}, {process.operation}: {type(error).__name__}: {error}\n{where}")

    # --- the end -------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """All is quiet: what was acknowledged is there, every version can be read, and work goes on."""
        self.scheduler.finish_later()
        if self.violation or self.oracle.excused:
            return
        for program in self.programs:
            for operation in program:
                if operation.outcome.startswith("failed"):
                    self.oracle.failed(operation)
        invalidate()
        self.setup.starts += 1
        if not self.oracle.truth:
            return
        self._must(Read("last read"))
        self._read_every_version()
        last = self.oracle.truth[-1]
        if last.closed:
            return
        types: dict[str, Any] = {"new_column": True} if "extra" in last.schema else {}
        append = Write(
            "last append", rows={1_000_000: "a"}, partition_by=tuple(last.partition_columns), **types
        )
        if last.schema["text"] == "long":
            append.text_type = pa.int64()
        operations: tuple[Operation, ...] = (
            append,
            Checkpoint("last checkpoint"),
            Truncate("last truncate"),
        )
        for operation in operations:
            if self.cleans_at_end and operation is operations[-1]:
                # Before the truncation deletes what only a purge can be mistaken about.
                self.scheduler.advance(2 * 3_600_000)
                self._must(Purge("last purge", log_hours=0))
                self.setup.starts += 1
            self._must(operation)
            self.setup.starts += 1
            self._must(Read("last read"))

    def _must(self, operation: Operation) -> None:
        """An operation that nothing disturbs is done."""
        if self.violation:
            return
        try:
            self.perform(self.setup, operation)
        except Stop:
            pass
        except Exception as error:  # noqa: BLE001 - an error that is none of ours
            self.on_error(self.setup, error)
        if not operation.outcome.startswith("done"):
            self.fail(f"a {operation} is not done: {operation.outcome}")

    def _read_every_version(self) -> None:
        """Time travel: what can be reached equals its replay, and its splits are there."""
        if self.violation:
            return
        log = open_log(self.setup, self.options({}))
        oracle = self.oracle
        try:
            for version in log.reachable():
                try:
                    snapshot = log.snapshot(version=version)
                except VersionNotFoundError:
                    continue
                if version in oracle.revived and not self._has_manifests(snapshot):
                    continue  # Nothing is read from a late state (PROTOCOL.md, "Retention").
                if version >= len(oracle.truth):
                    self.fail(f"version {version} can be read, but never appeared")
                    return
                oracle.check_content(snapshot)
                if version in oracle.revived:
                    continue
                lost = [p for p in oracle.truth[version].live if f"{TABLE}/{p}" not in self.storage.objects]
                if lost:
                    self.fail(f"version {version} can be read, but its splits {lost} are gone")
        except Stop:
            pass
        except Exception as error:  # noqa: BLE001 - nothing fails any more
            self.on_error(self.setup, error)

    def _has_manifests(self, snapshot: Snapshot) -> bool:
        """Whether the splits of a snapshot can be listed."""
        try:
            snapshot.files()
        except CorruptLogError:
            return False
        return True


def image_of(number: int) -> Image:
    """A table that older operations have left: number 0 is none."""
    key = (number, Current.real_splits)
    if key in _images:
        return _images[key]
    outer = (Current.scheduler, Current.storage, Current.setup) if hasattr(Current, "scheduler") else None
    world = World(-number)
    source = random.Random(f"image {number}")
    partition_by = ("part",) if number % 2 else ()
    author = Author(source, partition_by)
    world.settings = {
        "checkpoint.enabled": source.choice(("true", "false")),
        "checkpoint.interval": "3",
        "state.compaction.tombstoneThreshold": source.choice(("0.1", "10")),
    }
    world.scheduler.now = START_MS - 45 * DAY_MS
    kinds = ["append"] * 4 + ["overwrite", "merge", "checkpoint", "drop partition", "overwrite partitions"]
    plan = ["append", "append"] + [source.choice(kinds) for _ in range(source.randrange(2, 9))]
    for n, kind in enumerate(plan if number else []):
        operation = author.operation(kind)
        if isinstance(operation, Write):
            operation.rows = {
                -(100 * number + 10 * n + m): p for m, p in enumerate(operation.rows.values(), 1)
            }
        world.perform(world.setup, operation)
        world.scheduler.advance(source.choice((1, 20, 90)) * 3_600_000)
        assert world.violation is None, world.violation
    if number % 3 == 2:
        for name in ("_transaction_log/00000000000000000000.json", "a.split"):
            world.storage.objects[f"{NESTED}{name}"] = StoredObject(b"", START_MS - 44 * DAY_MS, name)
    truth = [replace(record, operation=None) for record in world.oracle.truth]
    made = Image(dict(world.storage.objects), truth, world.oracle.splits, world.oracle.writers, partition_by)
    _images[key] = made
    if outer is not None:
        Current.use(*outer)
    return made


def make_images() -> None:
    """Make all tables that runs may begin with; they are kept."""
    for number in range(IMAGES):
        image_of(number)


def run(seed: int, *, streams: bool = False, formats: bool = False) -> Result:
    """Run one seed; call it within `seams.installed()`. With streams two more processes write and read one.

    With formats each operation has its own format of states, and JSON checkpoints are in small parts.
    """
    source = random.Random(f"plan {seed}")
    number = source.choice((0, *range(IMAGES)))
    image = image_of(number)
    world = World(seed, image=number)
    world.load(image)
    world.settings = _settings(source)
    world.scheduler.now = START_MS
    traits = world.storage.traits
    traits.page = source.choice((2, 4, 8, 1000))
    traits.stops_early = source.random() < 0.5
    traits.seconds = source.random() < 0.5
    traits.late_deletes = source.random() < 0.3
    traits.offsets = source.choice(((0,), (0,), (0, -1500, 700), (-20_000, 20_000)))
    Current.use(world.scheduler, world.storage, world.setup)
    # Deleting a folder while a first write fills it leaves the writer no way to know.
    world.storage.faults = FaultPlan.random(source, replacement=number > 0 and source.random() < 0.08)
    partition_by = image.partition_by if number else source.choice(((), ("part",)))
    author = Author(source, partition_by)
    form = source.random()
    if form < SCENARIO_SHARE:
        scenario = source.choice(SCENARIOS)(author, source)
        world.programs = scenario.programs
        traits.late_deletes = traits.late_deletes or scenario.late_deletes
        # The faults of the scenario come first; few others disturb it.
        world.storage.faults.triggers = (
            scenario.triggers + world.storage.faults.triggers[: source.choice((0, 0, 1))]
        )
    elif form < 0.5:
        world.programs = author.overtaking()
        world.storage.faults.delay("p0", source)
        world.storage.faults.delay("p2", source)
    else:
        count = source.choice((2, 2, 3, 3, 4))
        world.programs = [author.program(source.choice((1, 1, 2, 2, 3))) for _ in range(count)]
    if streams:
        world.programs += [
            [author.operation("stream write") for _ in range(source.randrange(1, 4))],
            [author.operation("stream read") for _ in range(source.randrange(1, 3))],
        ]
    _set_formats(world, author, mixed=formats, streams=streams)
    processes = []
    for n, program in enumerate(world.programs):
        process = Process(f"p{n}", world.work(program), random.Random(f"process {n} {seed}"))
        process.skew_ms = source.choice((0, 0, int(source.uniform(-1, 1) * MAX_SKEW_MS)))
        processes.append(process)
    if source.random() < 0.06:
        _set_wrong_clock(source.choice(processes), world, source)
    world.scheduler.run(processes, world.on_error)
    world.check_end()
    invalidate()
    outcomes = [f"{operation}: {operation.outcome}" for program in world.programs for operation in program]
    return Result(seed, world.violation, _describe(world.storage.history), world.scheduler.steps, outcomes)


def _set_formats(world: World, author: Author, *, mixed: bool, streams: bool) -> None:
    """If they are mixed, draw a format for each operation, and the size of parts, from sources of their own.

    Some of these runs, without streams, have a scenario in place of their programs.
    """
    checkpoint_files.ACTIONS_PER_PART = _LARGE_PARTS
    if not mixed:
        return
    source = random.Random(f"formats {world.seed}")
    checkpoint_files.ACTIONS_PER_PART = source.choice((2, 4, _LARGE_PARTS))
    formats = source.choice((("avro", "json"), ("avro", "json", "json")))
    for program in world.programs:
        for operation in program:
            operation.options = {**operation.options, "state.format": source.choice(formats)}
    world.cleans_at_end = True
    source = random.Random(f"scenario of formats {world.seed}")
    if source.random() < SCENARIO_SHARE / 2 and not streams:
        scenario = commit_after_json_checkpoint(author, source)
        world.programs, world.storage.faults.triggers = scenario.programs, scenario.triggers


def _set_wrong_clock(process: Process, world: World, source: random.Random) -> None:
    """Let a clock be further off than is tolerated: its process must delete nothing that others need.

    What a purge of others deletes depends on the clocks of writers, so then nobody purges.
    """
    process.skew_ms = int(source.choice((-1, 1)) * source.uniform(1.1, 50) * CLOCK_SKEW_MS)
    own = world.programs[int(process.name[1:])]
    for program in world.programs:
        if program is not own and any(operation.writes for operation in own):
            program[:] = [Truncate("truncate") if isinstance(each, Purge) else each for each in program]


def _settings(source: random.Random) -> dict[str, str]:
    return {
        "checkpoint.enabled": source.choice(("true", "true", "false")),
        "checkpoint.interval": source.choice(("1", "2", "3", "5")),
        "transaction.retry.maxAttempts": source.choice(("2", "4", "10")),
        "cloud.maxRetries": source.choice(("0", "0", "1", "2")),
        "state.retry.maxAttempts": source.choice(("1", "2")),
        "state.compaction.tombstoneThreshold": source.choice(("0.1", "10")),
        "state.retention.versions": source.choice(("0", "2")),
        "state.retention.hours": source.choice(("0", "168")),
        "transaction.cache.enabled": source.choice(("true", "true", "false")),
        "state.format": source.choice(("avro",) * 7 + ("json",)),
        "state.entriesPerManifest": source.choice(("2", "50000")),
        "cleanup.maxVersions": source.choice(("0", "0", "2", "5")),
    }


def _describe(history: list[tuple[object, ...]]) -> list[str]:
    lines = []
    for step, process, operation, call, key, result in history:
        where = str(key).removeprefix(f"{TABLE}/").removeprefix("_transaction_log/")
        lines.append(f"{step:>5} {process:<6} {operation or ''!s:<24} {call} {where} {result or ''}".rstrip())
    return lines
