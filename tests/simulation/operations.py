"""What processes do: each operation calls the same functions as a user's call does."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from indextables import data_files
from indextables.errors import (
    CommitUnknownError,
    IndexTablesError,
    ObjectMissingError,
    VersionNotFoundError,
)
from indextables.ingest import Mode, write_table
from indextables.log.changes import CHANGE_TYPE, COMMIT_VERSION, INSERT
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.merge import MergeOptions, merge
from indextables.maintain.metadata_changes import drop_partitions, restore, truncate
from indextables.maintain.purge import purge
from indextables.options import Options
from indextables.options.log import CLEANUP_MAX_VERSIONS
from indextables.read.stream import Offset, TableStream
from indextables.store import Store, open_store
from indextables.table import Table
from tests.simulation.oracle import Oracle, VersionRecord
from tests.simulation.schedule import Process
from tests.simulation.seams import SCHEME, Current
from tests.simulation.storage import LOG, TABLE

if TYPE_CHECKING:
    from tests.simulation.run import World

PARTITIONS = ("a", "b")
# How old orphans must be before a purge deletes them; no operation of a run takes as long.
PURGE_HOURS = 8.0
# How often a micro-batch comes before its driver gives up.
_RESTARTS = 4


def open_table(process: Process, options: Options) -> Store:
    """The table, as a process opens it."""
    return open_store(f"{SCHEME}{process.alias}/{TABLE}", options)


def open_log(process: Process, options: Options) -> TransactionLog:
    """The table's log, as a process opens it."""
    return data_files.open_log(open_table(process, options), options, engine=process.name)


@dataclass(eq=False)
class Operation:
    """One call of a process."""

    kind: str
    options: dict[str, str] = field(default_factory=dict)
    # Filled in when it begins: the number of versions there were, and which table.
    seen: int = 0
    epoch: int = 0
    # Whether it has written a split: from then on it belongs to one table.
    planned: bool = False
    # An operation that makes several versions may fail after the first.
    all_or_nothing: bool = True
    outcome: str = "not begun"

    # Whether it uploads splits, and names them in a version after that.
    writes: ClassVar[bool] = False
    # Whether all that it deletes depends on the age of files.
    cleans: ClassVar[bool] = False
    # Whether it reads the newest version anew when another process was faster, whatever table that is of then.
    begins_again: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.kind

    def run(self, world: "World", process: Process) -> int | None:
        """Do it; the version that it made, if it made one whose effect is checked."""
        raise NotImplementedError

    def problem(
        self, oracle: Oracle, record: VersionRecord, came: set[int], went: set[int], rows: set[int]
    ) -> str | None:
        """What is wrong with a version that this operation made: by default it changes no row."""
        return f"rows {sorted(came)} came and {sorted(went)} went" if came or went else None

    def parsed(self, world: "World", extra: Mapping[str, str] | None = None) -> Options:
        """The options of the run, with those of this operation."""
        return world.options({**self.options, **(extra or {})})


@dataclass(eq=False)
class Write(Operation):
    """Rows are written: the mode says what they replace."""

    writes: ClassVar[bool] = True
    mode: Mode = Mode.APPEND
    rows: dict[int, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    text_type: pa.DataType = field(default_factory=pa.string)
    new_column: bool = False
    repeat: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {','.join(f'{row}{part}' for row, part in self.rows.items())}"

    @property
    def partitions(self) -> set[str]:
        """The partitions that get rows."""
        return set(self.rows.values())

    def data(self) -> pa.Table:
        """The rows."""
        texts: Sequence[object] = [str(row) for row in self.rows]
        columns = {
            "id": pa.array(self.rows, pa.int64()),
            "part": pa.array(self.rows.values(), pa.string()),
            "text": pa.array(texts, pa.string()).cast(self.text_type),
        }
        if self.new_column:
            columns["extra"] = pa.array(self.rows, pa.int64())
        return pa.table(columns)

    def run(self, world: "World", process: Process) -> int | None:
        for row in self.rows:
            world.oracle.writers[row] = self
        options = self.parsed(world)
        try:
            return self._write(process, options)
        except CommitUnknownError as error:
            if not self.repeat:
                raise
            first = error
        # A batch of a stream may be written again: it is never in the table twice.
        world.note(process, "repeats its batch")
        self.planned = False  # The table is read again, which may be another one.
        try:
            return self._write(process, options)
        except IndexTablesError as error:
            raise first from error

    def _write(self, process: Process, options: Options) -> int | None:
        written = write_table(
            open_table(process, options),
            self.data(),
            mode=self.mode,
            partition_by=self.partition_by,
            options=options,
            engine=process.name,
        )
        return written.snapshot.version if written.committed and not self.repeat else None

    def problem(
        self, oracle: Oracle, record: VersionRecord, came: set[int], went: set[int], rows: set[int]
    ) -> str | None:
        if record.name == "CREATE TABLE" and not record.added:
            return None
        if came != set(self.rows):
            return f"rows {sorted(came)} came, and {sorted(self.rows)} were written"
        if self.mode in (Mode.IGNORE, Mode.ERROR) and oracle.truth[0].operation is not self:
            return "it wrote into a table that another operation had made"
        if self.mode is not Mode.OVERWRITE:
            return f"rows {sorted(went)} went" if went else None
        return self._overwrite_problem(oracle, record, came, went, rows)

    def _overwrite_problem(
        self, oracle: Oracle, record: VersionRecord, came: set[int], went: set[int], rows: set[int]
    ) -> str | None:
        partitioned = bool(record.partition_columns)
        versions = {
            record.operation: record.version for record in oracle.truth if record.operation is not None
        }
        for row in sorted(rows - came):
            other = oracle.writers[row]
            if partitioned and not self._covers(oracle.partition(row)):
                continue
            at = versions.get(other)
            if at is None:  # It was there when the run began, or when this table took the place of another.
                at = next(record.version for record in oracle.truth if row in oracle.rows(record))
            if at < self.seen:
                return f"row {row} of an earlier version was not replaced"
            if isinstance(other, Write) and other.mode is Mode.OVERWRITE:
                return f"row {row} of another overwrite stands, too ({other})"
        outside = [row for row in went if partitioned and not self._covers(oracle.partition(row))]
        return f"rows {outside} were replaced, and should not have been" if outside else None

    def _covers(self, partition: str) -> bool:
        if "partitionOverwriteMode" in self.options or "replaceWhere" in self.options:
            return partition in self.partitions
        return True


@dataclass(eq=False)
class Read(Operation):
    """The newest version is read, with the rows of every split; sometimes splits are read later."""

    hold_seconds: float = 0.0

    def run(self, world: "World", process: Process) -> int | None:
        oracle = world.oracle
        log = open_log(process, self.parsed(world))
        epoch, floor = oracle.epoch, len(oracle.truth) - 1
        snapshot = log.snapshot()
        if oracle.excused or oracle.epoch != epoch:
            return None
        oracle.check_read(snapshot, floor)
        if self.hold_seconds:
            world.scheduler.sleep(self.hold_seconds)
        if Current.real_splits:
            self.scan(world, Table(log, snapshot), epoch)
            return None
        self.read_splits(world, log, snapshot.files()["path"].to_pylist(), epoch)
        return None

    def scan(self, world: "World", table: Table, epoch: int) -> None:
        """The rows themselves, through a table."""
        oracle = world.oracle
        expected = sorted(oracle.rows(oracle.truth[table.version]).elements())
        try:
            rows = sorted(table.scan(["id"])["id"].to_pylist())
        except IndexTablesError:
            live = oracle.truth[-1].live if oracle.truth else {}
            if oracle.epoch == epoch and any(path not in live for path in oracle.truth[table.version].live):
                return  # Purged since.
            raise
        if rows != expected and oracle.epoch == epoch:
            world.fail(f"version {table.version} has the rows {rows}, not {expected}")

    def read_splits(self, world: "World", log: TransactionLog, paths: list[str], epoch: int) -> None:
        """Every split that is still live must be there."""
        oracle = world.oracle
        for path in paths:
            try:
                log.store.get(path)
            except ObjectMissingError:
                if oracle.epoch == epoch and not oracle.excused and path in oracle.truth[-1].live:
                    world.fail(f"{path} is live, and there is no such file")


@dataclass(eq=False)
class ReadVersion(Operation):
    """An earlier version is read."""

    back: int = 1

    def run(self, world: "World", process: Process) -> int | None:
        oracle = world.oracle
        epoch, version = oracle.epoch, max(len(oracle.truth) - 1 - self.back, 0)
        if not oracle.truth:
            return None
        try:
            snapshot = open_log(process, self.parsed(world)).snapshot(version=version)
        except VersionNotFoundError:
            return None
        if oracle.epoch == epoch and not oracle.excused:
            oracle.check_content(snapshot)
        return None


@dataclass(eq=False)
class StreamWrite(Write):
    """A micro-batch of a stream: whatever becomes of it, its driver starts again and brings it once more.

    As the planner does for Spark: it looks for the batch in the table before it commits, and after a conflict.
    """

    def run(self, world: "World", process: Process) -> int | None:
        for row in self.rows:
            world.oracle.writers[row] = self
        options = self.parsed(world)
        problem: IndexTablesError | None = None
        for _ in range(_RESTARTS):
            try:
                self._write(process, options)
            except IndexTablesError as error:
                world.note(process, f"starts again: {error}")
                self.planned = False  # The next attempt reads the table again, which may be another one.
                # From then on nobody knows what has become of it, unless it is written in the end.
                problem = problem if isinstance(problem, CommitUnknownError) else error
            else:
                return None
        assert problem is not None
        raise problem


@dataclass(eq=False)
class StreamRead(Operation):
    """A stream reads the table and its changes, and is started again from its offsets.

    What it has read adds up to the table at the version that it has reached; a micro-batch that is planned
    again has the same splits. A lossy one leaves out versions that were cleaned up, and nothing else.
    """

    limit: int = 1000
    batches: int = 3
    wait_seconds: float = 0.0
    lossy: bool = False

    def run(self, world: "World", process: Process) -> int | None:
        oracle = world.oracle
        epoch = oracle.epoch
        options = self.parsed(
            world,
            {
                "readChanges": "true",
                "maxFilesPerTrigger": str(self.limit),
                "failOnDataLoss": "false" if self.lossy else "true",
            },
        )
        offset = TableStream(open_log(process, options), options).start(None)
        content: Counter[int] = Counter()
        seen: set[tuple[str, str, int]] = set()
        whole = True
        for _ in range(self.batches):
            # A new driver each time: nothing but the offset is left of the last one.
            stream = TableStream(open_log(process, options), options)
            versions = len(oracle.truth)
            end = Offset.from_json(stream.latest(offset).to_json())
            files = self._files(stream, offset, end)
            again = self._files(TableStream(open_log(process, options), options), offset, end)
            if oracle.epoch != epoch or oracle.excused:
                return None
            if end == offset and offset.version < versions:
                world.fail(f"a stream stands still at {offset}, and the table has {versions} versions")
            if files != again and not (self.lossy and set(again) < set(files)):
                world.fail(
                    f"the micro-batch from {offset} to {end} has other splits when it is planned again"
                )
            self._check_origin(world, offset, files, seen)
            for path, kind, _ in files:
                rows = Counter(oracle.splits[path].rows)
                content = content + rows if kind == INSERT else content - rows
            if self.lossy and oracle.forgotten & {*range(offset.version - 1, end.version)}:
                whole = False
            offset = end
            # Only the initial snapshot, or a version, that was read to its end is a version of the table.
            if whole and not offset.index and offset.version and not offset.initial:
                expected = oracle.rows(oracle.truth[offset.version - 1])
                if +content != expected and oracle.epoch == epoch:
                    lost, extra = (
                        sorted((expected - content).elements()),
                        sorted((content - expected).elements()),
                    )
                    world.fail(
                        f"a stream up to version {offset.version - 1} lacks the rows {lost} and has {extra} besides"
                    )
            if self.wait_seconds:
                world.scheduler.sleep(self.wait_seconds)
        return None

    def _check_origin(
        self,
        world: "World",
        offset: Offset,
        files: Sequence[tuple[str, str, int]],
        seen: set[tuple[str, str, int]],
    ) -> None:
        """Each split is one that its version inserted or deleted, or has at the start, and comes once."""
        truth = world.oracle.truth
        for path, kind, version in files:
            record = truth[version]
            paths = (
                record.live
                if offset.initial and version == offset.first
                else (record.added if kind == INSERT else record.removed)
            )
            if path not in paths or (path, kind, version) in seen:
                world.fail(f"a stream returns {path} as {kind} of version {version}, which is wrong or twice")
            seen.add((path, kind, version))

    def _files(self, stream: TableStream, start: Offset, end: Offset) -> list[tuple[str, str, int]]:
        files = stream.snapshot(start, end).files()
        values = (dict(entry) for entry in files["partitionValues"].to_pylist())
        return [
            (path, entry[CHANGE_TYPE], int(entry[COMMIT_VERSION]))
            for path, entry in zip(files["path"].to_pylist(), values, strict=True)
        ]


@dataclass(eq=False)
class Merge(Operation):
    """Small splits become one."""

    writes: ClassVar[bool] = True

    def run(self, world: "World", process: Process) -> int | None:
        options = self.parsed(world)
        log = open_log(process, options)
        merge(log, options, MergeOptions.of(log.snapshot(), options))
        return None


@dataclass(eq=False)
class Purge(Operation):
    """Old files that no version names go."""

    cleans: ClassVar[bool] = True
    log_hours: float | None = None

    def run(self, world: "World", process: Process) -> int | None:
        options = self.parsed(world, {"purge.retentionCheckEnabled": "false"})
        purge(open_log(process, options), options, older_than_hours=PURGE_HOURS, log_hours=self.log_hours)
        return None


@dataclass(eq=False)
class Truncate(Operation):
    """All versions before the newest go."""

    cleans: ClassVar[bool] = True
    begins_again: ClassVar[bool] = True

    def run(self, world: "World", process: Process) -> int | None:
        truncate(open_log(process, self.parsed(world)))
        return None


@dataclass(eq=False)
class Checkpoint(Operation):
    """A state is written."""

    begins_again: ClassVar[bool] = True
    compact: bool = False

    def run(self, world: "World", process: Process) -> int | None:
        made = open_log(process, self.parsed(world)).checkpoint(compact=self.compact)
        if made.written and not world.oracle.excused:
            world.oracle.state_confirmed(made.version, in_json=made.format == "json")
        return None


@dataclass(eq=False)
class Restore(Operation):
    """An earlier version becomes the newest."""

    back: int = 1
    target: int = 0

    def __str__(self) -> str:
        return f"restore version {self.target}"

    def run(self, world: "World", process: Process) -> int | None:
        if not world.oracle.truth:
            return None
        self.target = max(len(world.oracle.truth) - 1 - self.back, 0)
        return restore(open_log(process, self.parsed(world)), version=self.target).version

    def problem(
        self, oracle: Oracle, record: VersionRecord, came: set[int], went: set[int], rows: set[int]
    ) -> str | None:
        wanted = set(oracle.rows(oracle.truth[self.target]))
        if wanted - rows:
            return f"rows {sorted(wanted - rows)} did not come back"
        old = [row for row in rows - wanted if oracle.version_with(row) < self.seen]
        return f"rows {sorted(old)} did not go" if old else None


@dataclass(eq=False)
class DropPartition(Operation):
    """A partition goes."""

    partition: str = "a"

    def __str__(self) -> str:
        return f"drop partition {self.partition}"

    def run(self, world: "World", process: Process) -> int | None:
        log = open_log(process, self.parsed(world))
        if "part" not in log.snapshot().partition_columns:
            return None
        return drop_partitions(log, f"part = '{self.partition}'").version

    def problem(
        self, oracle: Oracle, record: VersionRecord, came: set[int], went: set[int], rows: set[int]
    ) -> str | None:
        wrong = [row for row in went if oracle.partition(row) != self.partition]
        return f"rows {sorted(came)} came, rows {sorted(wrong)} went" if came or wrong else None


@dataclass(eq=False)
class AddAgain(Operation):
    """Another engine names a live split once more, as some do to refresh its entry; later ones may remove it.

    It is an engine of its own: its version appears in one step.
    """

    def run(self, world: "World", process: Process) -> int | None:
        world.scheduler.step()
        truth = world.oracle.truth
        if not truth or not truth[-1].live or truth[-1].closed:
            return None
        path = process.random.choice(sorted(truth[-1].live))
        data = json.dumps({"add": truth[-1].live[path]}).encode()
        world.storage.create(f"{LOG}{len(truth):020d}.json", data, process)
        return None


@dataclass(eq=False)
class Close(Operation):
    """A newer release writes a version that asks for writers like itself."""

    def run(self, world: "World", process: Process) -> int | None:
        world.scheduler.step()
        truth = world.oracle.truth
        if truth and not truth[-1].closed:
            data = json.dumps({"protocol": {"minReaderVersion": 4, "minWriterVersion": 99}}).encode()
            world.storage.create(f"{LOG}{len(truth):020d}.json", data, process)
        return None


_WEIGHTS = {
    "append": 6,
    "append new column": 1,
    "append batch": 2,
    "overwrite": 3,
    "overwrite partitions": 2,
    "replace where": 2,
    "overwrite schema": 2,
    "overwrite partitioning": 1,
    "overwrite indexing": 1,
    "ignore": 1,
    "error": 1,
    "merge": 4,
    "purge": 3,
    "truncate": 3,
    "checkpoint": 3,
    "restore": 2,
    "drop partition": 2,
    "add again": 1,
    "newer release": 0.2,
    "read": 4,
    "read version": 1,
}


# Kinds of operations that get in each other's way; half of the runs have one of these sets.
_THEMES = (
    ("append", "truncate", "drop partition"),
    ("append", "checkpoint", "truncate", "read"),
    ("restore", "purge", "truncate", "overwrite"),
    ("append", "overwrite schema", "overwrite indexing", "overwrite partitioning"),
    ("overwrite", "overwrite partitions", "replace where", "ignore", "error"),
    ("merge", "append", "purge", "overwrite", "drop partition"),
)


class Author:
    """Writes the programs of a run's processes."""

    def __init__(self, source: random.Random, partition_by: tuple[str, ...]) -> None:
        self._random = source
        self._partition_by = partition_by
        self._rows = 0
        self._batches = 0
        # A run has some kinds of operations only, so that these meet often.
        kinds: Sequence[str] = source.choice(_THEMES)
        if source.random() < 0.5:
            kinds = source.sample(sorted(_WEIGHTS), source.randrange(2, 7))
        self.weights = {kind: _WEIGHTS[kind] for kind in kinds}

    def program(self, length: int) -> list[Operation]:
        """The operations of one process, one after the other."""
        chosen = self._random.choices(list(self.weights), list(self.weights.values()), k=length)
        return [self.operation(kind) for kind in chosen]

    def overtaking(self) -> list[list[Operation]]:
        """Programs of processes of which the first, and perhaps the last, are overtaken by the second one."""
        source = self._random
        slow = source.choice(
            (*self.weights, "append", "drop partition", "drop partition", "restore", "checkpoint")
        )
        commits = source.choices(
            ("append", "append", "overwrite", "drop partition", "merge"), k=source.randrange(1, 4)
        )
        cleanings = source.choice(
            (("truncate",), ("truncate", "purge"), ("purge",), ("checkpoint", "truncate"))
        )
        programs = [[slow], ["append", *commits, *cleanings, *source.choices(list(self.weights), k=1)]]
        if source.random() < 0.5:
            programs.append([source.choice(("checkpoint", "truncate", "append"))])
        return [[self.operation(kind) for kind in kinds] for kinds in programs]

    def operation(self, kind: str) -> Operation:  # noqa: C901, PLR0911 - one for each kind
        """One operation."""
        source = self._random
        match kind:
            case "merge":
                return Merge(kind, all_or_nothing=False)
            case "purge":
                return Purge(kind, log_hours=source.choice((None, 0, 5, 48)))
            case "truncate":
                return Truncate(kind)
            case "checkpoint":
                return Checkpoint(kind, compact=source.random() < 0.5)
            case "restore":
                return Restore(kind, back=source.randrange(1, 6))
            case "drop partition":
                return DropPartition(kind, partition=source.choice(PARTITIONS))
            case "add again":
                return AddAgain(kind)
            case "newer release":
                return Close(kind)
            case "read":
                return Read(kind, hold_seconds=source.choice((0, 0, 0.5)))
            case "stream read":
                return StreamRead(
                    kind,
                    limit=source.choice((1, 2, 1000)),
                    batches=source.randrange(2, 6),
                    wait_seconds=source.choice((0, 0.5, 3)),
                    lossy=source.random() < 0.5,
                )
            case "stream write":
                made = self._write("append batch")
                limit = source.choice(("0", "1", "3"))
                options = {**made.options, CLEANUP_MAX_VERSIONS.key: limit}
                return StreamWrite(kind, options, rows=made.rows, partition_by=made.partition_by)
            case "read version":
                return ReadVersion(kind, back=source.randrange(0, 5))
            case _:
                return self._write(kind)

    def _write(self, kind: str) -> Write:
        source = self._random
        parts = source.sample(PARTITIONS, source.choice((1, 1, 2)))
        rows = {}
        for part in parts:
            self._rows += 1
            rows[self._rows] = part
        made = Write(kind, rows=rows, partition_by=self._partition_by)
        match kind:
            case "append new column":
                made.new_column, made.options = True, {"mergeSchema": "true"}
            case "append batch":
                self._batches += 1
                made.options = {"txn.appId": "stream", "txn.version": str(self._batches)}
                made.repeat = True
            case "overwrite":
                made.mode = Mode.OVERWRITE
            case "overwrite partitions":
                made.mode, made.options = Mode.OVERWRITE, {"partitionOverwriteMode": "dynamic"}
            case "replace where" if self._partition_by:
                self._rows += 1
                made.rows = {self._rows: parts[0]}
                made.mode, made.options = Mode.OVERWRITE, {"replaceWhere": f"part = '{parts[0]}'"}
            case "overwrite schema":
                made.mode, made.text_type = Mode.OVERWRITE, pa.int64()
                made.options = {"overwriteSchema": "true"}
            case "overwrite partitioning":
                made.mode, made.options = Mode.OVERWRITE, {"overwriteSchema": "true"}
                made.partition_by = () if self._partition_by else ("part",)
            case "overwrite indexing":
                made.mode = Mode.OVERWRITE
                made.options = {"overwriteSchema": "true", "indexing.typemap.text": "text"}
            case "ignore":
                made.mode = Mode.IGNORE
            case "error":
                made.mode = Mode.ERROR
            case _:
                pass
        return made
