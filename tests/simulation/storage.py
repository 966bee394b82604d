"""The simulated object store: consistent after each write, but slow, failing, and seen page by page.

What it promises is what PROTOCOL.md requires of a store: an object is visible as a whole or not at all, a
create fails if there is an object, and a listing that begins after a write shows it. What it does not promise:
a listing is made of pages, each of its own moment; an answer may be lost; a request whose answer is lost may
arrive later; times have one second or one millisecond, and come from clocks that differ and step.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from indextables.errors import CredentialsError, ObjectMissingError, StoreError
from indextables.store.backend import AmbiguousCreateError, ObjectInfo, Sink
from tests.simulation.faults import CRASHES, HOUR_MS, PAUSES, Fault, FaultPlan
from tests.simulation.schedule import Crash, Process, Scheduler, Stop

TABLE = "table"
LOG = f"{TABLE}/_transaction_log/"
_VERSION = re.compile(re.escape(LOG) + r"\d{20}\.json")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its bytes, its time as the store says, and its tag."""

    data: bytes
    modified_ms: int
    etag: str


@dataclass
class StorageTraits:
    """How the store of a run behaves where stores differ."""

    # So many objects are in one page of a listing.
    page: int = 1000
    # Whether a reader may stop a listing after a page, as on object stores; else it is made as a whole.
    stops_early: bool = False
    seconds: bool = False
    # Clocks of the hosts that stamp objects, as offsets in milliseconds.
    offsets: tuple[int, ...] = (0,)
    offset_ms: int = 0
    # Whether a request whose answer is lost may arrive later if it deletes.
    late_deletes: bool = False


class Watcher:
    """Sees every change of the store, at the moment it happens; `epoch` counts tables that were replaced."""

    epoch: int = 0

    def written(self, key: str, data: bytes, process: Process | None) -> None:
        """An object was written."""

    def deleted(self, key: str, process: Process | None) -> None:
        """An object is about to go."""

    def deleted_all(self, process: Process | None) -> None:
        """All objects of one call are gone."""

    def looked(self, process: Process) -> None:
        """A process listed objects."""

    def was_read(self, key: str, process: Process | None) -> None:
        """A process read an object, or listed a folder."""


@dataclass
class Storage:
    """All objects, and everything that can happen to calls."""

    scheduler: Scheduler
    source: random.Random
    faults: FaultPlan
    traits: StorageTraits
    watcher: Watcher
    replace_table: Callable[[], None]
    max_skew_ms: int
    objects: dict[str, StoredObject] = field(default_factory=dict)
    history: list[tuple[object, ...]] = field(default_factory=list)
    writes: int = 0
    created_version: set[str] = field(default_factory=set)
    # While a late request takes effect: the table, by `Watcher.epoch`, that was there when it was sent.
    arriving_from: int | None = None
    # Acts while no process runs: before the first one begins, and after the last one ended.
    setup: Process | None = None

    @property
    def actor(self) -> Process | None:
        """Who makes the call that runs now."""
        return self.scheduler.current or self.setup

    def begin(self, call: str, key: str) -> Fault | None:
        """A call arrives at the store: its turn, and what goes wrong with it."""
        scheduler = self.scheduler
        process = scheduler.current
        if process is not None and process.crashed:
            raise Crash
        scheduler.step()
        if process is None:
            return None
        name = process.name
        call += _kind_of_call(call, key)
        fault = self.faults.choose(name, call, created_version=name in self.created_version)
        if fault is None:
            self.history.append((scheduler.steps, name, process.operation, call, key, None))
            return None
        if fault in PAUSES:
            self.note(process, call, key, fault)
            self._pause(process, fault)
            return None
        process.faults += 1
        self.note(process, call, key, fault)
        if fault is Fault.CRASH_BEFORE:
            self._crash(process)
        return fault

    def note(self, process: Process, call: str, key: str, result: object) -> None:
        """Add a line to the history."""
        self.history.append((self.scheduler.steps, process.name, process.operation, call, key, result))

    def read(self, key: str) -> StoredObject:
        """An object; missing ones are an error."""
        found = self.objects.get(key)
        if found is None:
            raise ObjectMissingError(f"sim://{key}")
        return found

    def info(self, key: str) -> ObjectInfo:
        """An object as a listing shows it."""
        found = self.read(key)
        return ObjectInfo(key, len(found.data), found.modified_ms, found.etag)

    def write(self, key: str, data: bytes, process: Process | None) -> None:
        """Put an object in place."""
        self.writes += 1
        traits = self.traits
        stamped = int(self.scheduler.now) + traits.offset_ms
        stamped += traits.offsets[self.writes % len(traits.offsets)]
        if traits.seconds:
            stamped -= stamped % 1000
        self.objects[key] = StoredObject(data, stamped, f"{self.writes:x}")
        if process is not None and _VERSION.fullmatch(key):
            self.created_version.add(process.name)
        self.watcher.written(key, data, process)

    def remove(self, key: str, process: Process | None) -> bool:
        """Take an object away."""
        if key not in self.objects:
            return False
        self.watcher.deleted(key, process)
        del self.objects[key]
        return True

    def create(self, key: str, data: bytes, process: Process | None) -> bool:
        """Write an object unless there is one."""
        if key in self.objects:
            return False
        self.write(key, data, process)
        return True

    def apply(self, key: str, fault: Fault | None, effect: Callable[[], None], *, late: bool = True) -> None:
        """Let a change happen: now, never, or later; then the error, if there is one."""
        process = self.scheduler.current
        if fault in (Fault.LATE, Fault.CRASH_LATE, Fault.REPEATED) and late:
            operation = process.operation if process else None
            sent = self.watcher.epoch
            self.scheduler.later(
                10 ** self.source.uniform(1, 4.3), lambda: self._arrive(key, effect, process, operation, sent)
            )
        if fault in (None, Fault.LOST, Fault.CRASH_AFTER, Fault.REPEATED, Fault.PARTLY, Fault.CRASH_PARTLY):
            effect()
        if fault in CRASHES:
            assert process is not None
            self._crash(process)

    def raise_fault(self, key: str, fault: Fault) -> NoReturn:
        """The error that a process sees."""
        if fault is Fault.DENIED:
            raise CredentialsError(f"sim://{key}: the store refused the credentials; renew the credentials")
        raise StoreError(f"sim://{key}: {fault}; repeat the operation")

    def _arrive(
        self,
        key: str,
        effect: Callable[[], None],
        process: Process | None,
        operation: object | None,
        sent: int,
    ) -> None:
        """A request arrives late: it is still one of the operation that sent it."""
        self.history.append((self.scheduler.steps, "-", operation, "arrives late", key, None))
        assert process is not None
        process.operation, now = operation, process.operation
        self.arriving_from = sent
        effect()
        self.arriving_from = None
        process.operation = now

    def _crash(self, process: Process) -> NoReturn:
        process.crashed = True
        raise Crash

    def _pause(self, process: Process, fault: Fault) -> None:
        source = self.source
        if fault is Fault.PAUSE:
            self.scheduler.sleep(10 ** source.uniform(-1, 1.3))
        elif fault is Fault.LONG_PAUSE:
            self.scheduler.sleep(source.choice((0.1, 1.5, 3, 14)) * source.uniform(0.5, 1) * HOUR_MS / 1000)
        elif fault is Fault.CLOCK and abs(process.skew_ms) <= self.max_skew_ms:
            process.skew_ms = int(source.uniform(-1, 1) * self.max_skew_ms)
        elif fault is Fault.STORE_CLOCK:
            self.traits.offset_ms = int(source.choice((-1, 1)) * 10 ** source.uniform(1, 4))
        elif fault is Fault.TABLE_REPLACED:
            self.replace_table()
        if self.scheduler.stopping:
            raise Stop


def _kind_of_call(call: str, key: str) -> str:
    """What a trigger can name beside the call itself: the kind of object that is written."""
    if call == "create" and _VERSION.fullmatch(key):
        return " version"
    if call == "create" and key.endswith("_manifest.avro"):
        return " state"
    if call == "delete" and "/manifests/" in key:
        return " manifests"
    return " pointer" if call == "put" and key.endswith("/_last_checkpoint") else ""


class SimulatedBackend:
    """The store as one kind of backend; see `indextables.store.backend.Backend`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, key: str) -> bytes:
        """The whole object."""
        self._reading("get", key)
        return self._storage.read(key).data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Parts of an object."""
        self._reading("get", key)
        data = self._storage.read(key).data
        return [data[start:end] for start, end in ranges]

    def head(self, key: str) -> ObjectInfo:
        """Size and time."""
        self._reading("head", key)
        return self._storage.info(key)

    def walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        """Page by page, each of its own moment; they may well show a newer object and miss an older one."""
        storage, last = self._storage, after
        prefix = f"{folder}/" if folder else ""
        began = storage.watcher.epoch
        while True:
            self._reading("list", folder)
            if storage.scheduler.current is not None and began == storage.watcher.epoch:
                storage.watcher.looked(storage.scheduler.current)
            keys = sorted(key for key in storage.objects if key.startswith(prefix) and key > last)
            page = [storage.info(key) for key in keys[: storage.traits.page]]
            yield from page
            if len(keys) <= storage.traits.page:
                return
            last = page[-1].path

    def list_folder(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """One level."""
        found = list(self.walk(folder, ""))
        start = len(folder) + 1 if folder else 0
        objects = [info for info in found if "/" not in info.path[start:]]
        folders = {info.path[: info.path.index("/", start)] for info in found if "/" in info.path[start:]}
        return objects, sorted(folders)

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing one that is there."""
        self._writing("put", key, data)

    def create(self, key: str, data: bytes) -> None:
        """Write an object if there is none."""
        storage = self._storage
        fault = storage.begin("create", key)
        process = storage.actor
        answer: list[bool] = []
        storage.apply(key, fault, lambda: answer.append(storage.create(key, data, process)))
        if fault in (Fault.DENIED, Fault.NO_HANDLES, Fault.ERROR):
            storage.raise_fault(key, fault)
        if fault not in (None, Fault.REPEATED):
            raise AmbiguousCreateError(fault.value)
        if not answer[0]:
            if process is not None:
                storage.note(process, "create", key, "an object is there")
            raise AmbiguousCreateError("an object is there")

    def upload(self, key: str, local_file: str) -> int:
        """Write an object from a local file."""
        with open(local_file, "rb") as source:  # noqa: PTH123
            data = source.read()
        self._writing("upload", key, data)
        return len(data)

    def open_upload(self, key: str) -> Sink:
        """Write an object piece by piece."""
        return _SimulatedSink(self, key)

    def delete(self, keys: Sequence[str], root: str) -> int:
        """Delete objects one after the other, so that a fault may hit half of them."""
        storage = self._storage
        fault = storage.begin("delete", keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more")
        process = storage.actor
        half = fault in (Fault.PARTLY, Fault.CRASH_PARTLY)
        chosen = keys[: len(keys) // 2] if half else keys

        def effect() -> None:
            for key in chosen:
                storage.remove(key, process)
            storage.watcher.deleted_all(process)

        storage.apply(keys[0], fault, effect, late=storage.traits.late_deletes)
        if fault not in (None, Fault.REPEATED):
            storage.raise_fault(keys[0], fault)
        return len(keys)

    def remove_abandoned(self, folder: str, before_ms: int, other_tables: str) -> int:
        """Unfinished uploads are out of sight."""
        return 0

    def _reading(self, call: str, key: str) -> None:
        fault = self._storage.begin(call, key)
        if fault in CRASHES:
            process = self._storage.scheduler.current
            assert process is not None
            self._storage._crash(process)
        if fault not in (None, Fault.REPEATED):
            self._storage.raise_fault(key, fault)
        if call != "list":  # A listing that began in another table shows pages of both.
            self._storage.watcher.was_read(key, self._storage.scheduler.current)

    def _writing(self, call: str, key: str, data: bytes) -> None:
        storage = self._storage
        fault = storage.begin(call, key)
        process = storage.actor
        if fault in (Fault.PARTLY, Fault.CRASH_PARTLY):
            # Half of an upload is never visible.
            fault = Fault.ERROR if fault is Fault.PARTLY else Fault.CRASH_BEFORE
        storage.apply(key, fault, lambda: storage.write(key, data, process))
        if fault not in (None, Fault.REPEATED):
            storage.raise_fault(key, fault)


class _SimulatedSink(Sink):
    """An upload; it is visible when it is closed."""

    def __init__(self, backend: SimulatedBackend, key: str) -> None:
        super().__init__()
        self._backend = backend
        self.key = key
        self._parts: list[bytes] = []

    def _add(self, data: memoryview) -> None:
        self._parts.append(bytes(data))

    def _publish(self) -> None:
        self._backend._writing("upload", self.key, b"".join(self._parts))

    def _discard(self) -> None:
        self._parts.clear()
