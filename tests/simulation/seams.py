"""The real code, with its clock, random source, thread pools, connections and split builder replaced.

Within `installed()` the modules of `indextables.log`, `ingest`, `maintain`, `store`, `data_files` and `table_properties` see simulated
ones under the same names. They belong to the run that is current, and to the process that runs in it.
"""

import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa
import pytest

from indextables.log import segment
from indextables.log.environment import Environment
from indextables.log.format import checkpoint_files
from indextables.log.format.files import FILES, conform
from indextables.store import Store
from indextables.store.backend import Backend
from indextables.store.location import Location
from tests.simulation import splits
from tests.simulation.schedule import START_MS, Process, Scheduler
from tests.simulation.storage import TABLE, SimulatedBackend, Storage

_PACKAGES = ("log", "ingest", "maintain", "store", "data_files", "table_properties")
SCHEME = "memory://sim-"


class Current:
    """The run that the replaced names belong to."""

    scheduler: Scheduler
    storage: Storage
    setup: Process
    real_splits = False

    @classmethod
    def use(cls, scheduler: Scheduler, storage: Storage, setup: Process) -> None:
        """Let the replaced names belong to a run; a first listing ends where a page of its store does."""
        cls.scheduler, cls.storage, cls.setup = scheduler, storage, setup
        segment._MAX_FIRST_FILES = storage.traits.page

    @classmethod
    def process(cls) -> Process:
        """The process that runs now."""
        return cls.scheduler.current or cls.setup


class SimulatedTime:
    """Stands in for the module `time`."""

    def time_ns(self) -> int:
        """The wall clock of the running process: it may be wrong."""
        return int(Current.scheduler.now + Current.process().skew_ms) * 1_000_000

    def time(self) -> float:
        """The same in seconds."""
        return self.time_ns() / 1e9

    def monotonic(self) -> float:
        """Seconds that no clock setting changes."""
        return (Current.scheduler.now - START_MS) / 1000

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        """Wait; others run meanwhile."""
        Current.scheduler.sleep(seconds)


class SimulatedRandom:
    """Stands in for the modules `random` and `secrets`, and for the random part of `uuid`."""

    def random(self) -> float:
        """Between 0 and 1."""
        return Current.process().random.random()

    def uniform(self, low: float, high: float) -> float:
        """Between two numbers."""
        return Current.process().random.uniform(low, high)

    def token_hex(self, size: int) -> str:
        """Random bytes as text."""
        return Current.process().random.randbytes(size).hex()

    def token_bytes(self, size: int) -> bytes:
        """Random bytes."""
        return Current.process().random.randbytes(size)

    def randbelow(self, limit: int) -> int:
        """A number below a limit."""
        return Current.process().random.randrange(limit)

    def uuid4(self) -> uuid.UUID:
        """A random id."""
        return uuid.UUID(int=Current.process().random.getrandbits(128), version=4)


class InlineExecutor:
    """Stands in for `ThreadPoolExecutor`: tasks run at once, in an order chosen by the run."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: object, **named: object) -> "Future[Any]":
        """Run a task."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 - the caller sees it when it asks
            done.set_exception(error)
        return done

    def map(self, call: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        """Run tasks; results in their order."""
        arguments = list(zip(*items, strict=False))
        order = list(range(len(arguments)))
        Current.process().random.shuffle(order)
        done: dict[int, Future[Any]] = {}
        for n in order:
            done[n] = self.submit(call, *arguments[n])
        return iter([done[n].result() for n in range(len(arguments))])

    def shutdown(self, *_: object, **__: object) -> None:
        """Nothing runs."""


def _as_completed(running: Iterable["Future[Any]"], timeout: float | None = None) -> Iterator["Future[Any]"]:
    return iter(list(running))


def _chance() -> Environment:
    clock, dice = SimulatedTime(), SimulatedRandom()
    return Environment(
        now_ms=lambda: clock.time_ns() // 1_000_000,
        token=lambda: dice.token_hex(16),
        sleep=clock.sleep,
        jitter=dice.random,
    )


def _begin_job(*_: object, **__: object) -> types.SimpleNamespace:
    """Jobs of a simulated merge are in no folder."""
    return types.SimpleNamespace(id="job")


def _ignore_job(*_: object, **__: object) -> None:
    """Progress and end of such a job."""


def _connect(connect: Callable[..., Backend]) -> Callable[..., Backend]:
    def connected(location: Location, *arguments: Any) -> Backend:
        if location.bucket.startswith("sim-"):
            return SimulatedBackend(Current.storage)
        return connect(location, *arguments)

    return connected


def _lists_in_pages(store: Store) -> bool:
    return Current.storage.traits.stops_early


# The entries of manifests by their bytes.
_entries: dict[bytes, pa.Table] = {}


def _remembering(encode: Callable[..., bytes]) -> Callable[..., bytes]:
    """Decoding a manifest costs more than all else, and gives what was encoded: keep that."""

    def encoded(files: pa.Table, **settings: Any) -> bytes:
        data = encode(files, **settings)
        if len(_entries) > 5000:
            _entries.clear()
        _entries[data] = conform(files, FILES.names)
        return data

    return encoded


def _recalling(decode: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    def decoded(data: bytes, rows: int, columns: Sequence[str] | None) -> pa.Table:
        found = _entries.get(data)
        if found is None:
            return decode(data, rows, columns)
        return found if columns is None else found.select(columns)

    return decoded


@contextmanager
def installed(*, real_splits: bool = False) -> Iterator[pytest.MonkeyPatch]:
    """Replace the names, for as long as the body runs."""
    clock, dice = SimulatedTime(), SimulatedRandom()
    stand_ins: dict[str, object] = {
        "time": clock,
        "random": dice,
        "secrets": dice,
        "uuid": dice,
        "ThreadPoolExecutor": InlineExecutor,
        "as_completed": _as_completed,
    }
    packages = (*_PACKAGES, "read", "split") if real_splits else _PACKAGES
    prefixes = tuple(f"indextables.{name}" for name in packages)
    Current.real_splits = real_splits
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if not name.startswith(prefixes):
                continue
            for attribute, stand_in in stand_ins.items():
                if attribute in vars(module):
                    patch.setattr(module, attribute, stand_in)
        from indextables import data_files  # noqa: PLC0415
        from indextables.ingest import splits as ingest_splits  # noqa: PLC0415
        from indextables.log import checkpoint, transaction_log  # noqa: PLC0415
        from indextables.log.format import manifest  # noqa: PLC0415
        from indextables.maintain import jobs, merge  # noqa: PLC0415
        from indextables.store import handle  # noqa: PLC0415

        patch.setattr(handle, "connect", _connect(handle.connect))
        patch.setattr(Store, "lists_in_pages", property(_lists_in_pages))
        # Both are set anew by every run.
        patch.setattr(segment, "_MAX_FIRST_FILES", segment._MAX_FIRST_FILES)
        patch.setattr(checkpoint_files, "ACTIONS_PER_PART", checkpoint_files.ACTIONS_PER_PART)
        patch.setattr(transaction_log, "Environment", _chance)
        for name, stand_in in (
            ("begin", _begin_job),
            *((name, _ignore_job) for name in ("add_work", "batch_done", "progress", "end")),
        ):
            patch.setattr(jobs, name, stand_in)
        patch.setattr(manifest, "_entries", _recalling(manifest._entries))
        patch.setattr(checkpoint, "encode_manifest", _remembering(checkpoint.encode_manifest))  # type: ignore[attr-defined]
        if real_splits:
            patch.setattr(ingest_splits, "SplitWriter", splits.noting_writer(ingest_splits.SplitWriter))  # type: ignore[attr-defined]
            patch.setattr(merge, "merge_splits", splits.noting_merge(merge.merge_splits, TABLE))  # type: ignore[attr-defined]
        else:
            patch.setattr(ingest_splits, "SplitWriter", splits.SplitWriter)
            patch.setattr(ingest_splits, "Spool", splits.Spool)
            patch.setattr(merge, "merge_splits", splits.merge_splits)
            patch.setattr(merge, "read_footer", splits.read_footer)
            patch.setattr(merge, "MergeSource", splits.Source)
            patch.setattr(data_files, "read_filters", splits.read_filters)
        yield patch
