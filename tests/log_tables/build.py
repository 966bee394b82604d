"""Small tables made by the engine itself, with a clock and dice that the test holds."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from indextables.log.conflict import Draft
from indextables.log.environment import Environment
from indextables.log.format import version_file
from indextables.log.format.actions import Add, Format, Metadata, Protocol, Remove
from indextables.log.format.names import version_file as version_path
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import MERGE, TransactionLog
from indextables.options import Options
from indextables.store import Store, open_store
from tests.log_tables.watched import WatchedStore

WHEN = 1_775_007_000_000
HOUR = 3_600_000
MAPPING = '[{"fast":true,"indexed":true,"name":"id","stored":true,"type":"i64"}]'

_numbers = itertools.count(1)


@dataclass
class Clock:
    """Time as the test says; every look at it may move it on."""

    now: int = WHEN
    step: int = 1000
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> int:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def env(clock: Clock | None = None, *, jitter: float = 1.0) -> Environment:
    """Environment whose waits cost no time."""
    clock = clock or Clock()
    return Environment(
        now_ms=clock, store_time_ms=lambda _: clock(), sleep=clock.sleep, jitter=lambda: jitter
    )


def schema_string(columns: Mapping[str, str] | None = None) -> str:
    """A schema as Spark writes it."""
    columns = columns or {"id": "long", "text": "string"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def metadata(
    columns: Mapping[str, str] | None = None, partition_by: Iterable[str] = (), **changes: Any
) -> Metadata:
    """The metadata of a new table."""
    facts: dict[str, Any] = {
        "id": f"table-{next(_numbers)}",
        "schema_string": schema_string(columns),
        "partition_columns": list(partition_by),
        "format": Format(),
        "configuration": {},
        "created_time": WHEN,
    }
    return Metadata(**{**facts, **changes})


def a_log(
    where: Store | WatchedStore | str,
    options: Mapping[str, object] | None = None,
    *,
    clock: Clock | None = None,
    jitter: float = 1.0,
) -> TransactionLog:
    """A handle on the log of a table; by default without states of its own accord."""
    checked = Options.parse({"checkpoint.enabled": "false", **(options or {})})
    store: Any = open_store(where, checked) if isinstance(where, str) else where
    return TransactionLog(store, checked, engine="test", env=env(clock, jitter=jitter))


def a_table(
    where: Store | WatchedStore | str,
    options: Mapping[str, object] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    clock: Clock | None = None,
) -> TransactionLog:
    """A new table at version 0."""
    log = a_log(where, options, clock=clock)
    assert log.create(metadata(columns, partition_by)) is not None
    return log


def on_old_protocol(where: str, **features: list[str]) -> TransactionLog:
    """A new table at version 0 as the original makes it: protocol 4, without our features."""
    log = a_log(where)
    protocol = Protocol(min_reader_version=4, min_writer_version=4, **features)
    data = version_file.encode([protocol, metadata()], compress=True)
    log.store.create(f"_transaction_log/{version_path(0)}", data)
    return log


def split(path: str, size: int = 10, **changes: Any) -> Add:
    """A split of ten rows."""
    facts: dict[str, Any] = {
        "path": path,
        "partition_values": {},
        "size": size,
        "modification_time": WHEN,
        "data_change": True,
        "num_records": 10,
        "doc_mapping_json": MAPPING,
    }
    return Add(**{**facts, **changes})


def gone(path: str, size: int | None = 10, *, data_change: bool = True) -> Remove:
    return Remove(path=path, size=size, deletion_timestamp=WHEN, data_change=data_change)


def append(log: TransactionLog, *adds: Add | str, base: Snapshot | None = None, **changes: Any) -> Snapshot:
    """One append."""
    drafted = tuple(split(a) if isinstance(a, str) else a for a in adds)
    return log.commit(Draft(operation="WRITE", adds=drafted, **changes), base or log.snapshot())


def remove(log: TransactionLog, *paths: str, base: Snapshot | None = None, **changes: Any) -> Snapshot:
    """One deletion of splits."""
    draft = Draft(operation="DROP PARTITIONS", removes=tuple(gone(p) for p in paths), **changes)
    return log.commit(draft, base or log.snapshot())


def overwrite(log: TransactionLog, *adds: str, base: Snapshot | None = None) -> Snapshot:
    """One overwrite of the whole table."""
    base = base or log.snapshot()
    draft = Draft(
        operation="OVERWRITE",
        adds=tuple(split(a) for a in adds),
        removes=tuple(gone(p) for p in paths_of(base)),
        parameters={"mode": "overwrite"},
    )
    return log.commit(draft, base)


def merge(log: TransactionLog, sources: Iterable[str], target: str, base: Snapshot | None = None) -> Snapshot:
    """One merge."""
    draft = Draft(
        operation=MERGE,
        adds=(split(target, data_change=False),),
        removes=tuple(gone(p, data_change=False) for p in sources),
    )
    return log.commit(draft, base or log.snapshot())


def paths_of(snapshot: Snapshot) -> list[str]:
    """The live paths, sorted; none twice."""
    paths = snapshot.files()["path"].to_pylist()
    assert len(set(paths)) == len(paths), "a path is listed twice"
    return sorted(paths)
