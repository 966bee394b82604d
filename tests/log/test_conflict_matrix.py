"""Every operation against every other one, as the table "Conflicts" of PROTOCOL.md says, on every kind of store."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from indextables.errors import CommitConflictError
from indextables.ingest import Mode, finish_write, plan_write
from indextables.log.conflict import Draft
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add
from indextables.log.snapshot import Snapshot
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.merge import MergeTaskResult, commit_batch
from indextables.maintain.metadata_changes import drop_partitions, restore
from indextables.maintain.purge import purge
from indextables.options import Options
from indextables.store import Store, open_store
from tests.log_tables.build import append, gone, metadata, paths_of, schema_string, split
from tests.servers.fixtures import StoreUrl

PAGE = Path(__file__).parents[2] / "PROTOCOL.md"
OPTIONS = Options.parse({"checkpoint.enabled": "false"})
COLUMNS = {"id": "long", "p": "string"}
ROWS = pa.schema([("id", pa.int64()), ("p", pa.string())])


def matrix() -> dict[tuple[str, str], str]:
    """What the page says: by the operation before and the one after it."""
    text = PAGE.read_text("utf-8").split("### Conflicts", 1)[1]
    lines = re.findall(r"^\|(.+)\|$", text.split("\nWhy:", 1)[0], re.MULTILINE)
    header, _, *body = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {(row[0], then): cell for row in body for then, cell in zip(header[1:], row[1:], strict=True)}


MATRIX = matrix()


class Interrupted(TransactionLog):
    """A log in which another operation happens after this one was planned and before it takes effect."""

    meanwhile: Callable[[], None] | None = None

    def _run_meanwhile(self) -> None:
        hook, self.meanwhile = self.meanwhile, None
        if hook is not None:
            hook()

    def commit(self, draft: Draft, base: Snapshot) -> Snapshot:
        self._run_meanwhile()
        return super().commit(draft, base)

    def check_writable(self, snapshot: Snapshot) -> None:
        super().check_writable(snapshot)
        self._run_meanwhile()


@dataclass(frozen=True)
class Operation:
    """How to do it, and the split it adds, if any."""

    run: Callable[[TransactionLog, str], object]
    adds: bool = True
    # The split it adds; restore brings back an old one.
    fixed: str | None = None

    def added(self, mark: str) -> set[str]:
        return ({self.fixed} if self.fixed else {in_a(mark)}) if self.adds else set()


def in_a(mark: str) -> str:
    return f"p=a/{mark}.split"


def new_split(path: str) -> Add:
    now_ms = local_time_ms()
    return split(path, partition_values={"p": path[2]}, modification_time=now_ms, doc_mapping_json=None)


def write(log: TransactionLog, mark: str, mode: Mode, options: dict[str, str]) -> tuple[Snapshot, bool]:
    checked = Options.parse({"checkpoint.enabled": "false", **options})
    planned, base = plan_write(log, ROWS, mode=mode, partition_by=(), options=checked)
    assert planned is not None
    log.store.put(in_a(mark), b"rows")
    return finish_write(log, planned, [new_split(in_a(mark))], checked, base)


def delete(log: TransactionLog, mark: str) -> Snapshot:
    base = log.snapshot()
    removed = tuple(gone(path) for path in paths_of(base) if path.startswith("p=a/"))
    return log.commit(Draft(operation="DELETE", removes=removed), base)


def merge(log: TransactionLog, mark: str) -> int | None:
    base = log.snapshot()
    sources = tuple(path for path in paths_of(base) if path.startswith("p=a/"))
    log.store.put(in_a(mark), b"rows")
    return commit_batch(log, base, [MergeTaskResult(new_split(in_a(mark)), sources)], log.options, 0)


def change_metadata(log: TransactionLog, mark: str) -> Snapshot:
    base = log.snapshot()
    wider = msgspec.structs.replace(base.metadata, schema_string=schema_string({**COLUMNS, mark: "string"}))
    return log.commit(Draft(operation="ALTER TABLE", metadata=wider), base)


OPERATIONS = {
    "append": Operation(lambda log, mark: write(log, mark, Mode.APPEND, {})),
    "overwrite": Operation(lambda log, mark: write(log, mark, Mode.OVERWRITE, {})),
    "overwrite partitions": Operation(
        lambda log, mark: write(log, mark, Mode.OVERWRITE, {"partitionOverwriteMode": "dynamic"})
    ),
    "overwrite where": Operation(
        lambda log, mark: write(log, mark, Mode.OVERWRITE, {"replaceWhere": "p = 'a'"})
    ),
    "delete": Operation(delete, adds=False),
    "merge": Operation(merge),
    "metadata": Operation(change_metadata, adds=False),
    "restore": Operation(lambda log, mark: restore(log, version=1), fixed="p=a/old.split"),
    "drop": Operation(lambda log, mark: drop_partitions(log, "p = 'a'"), adds=False),
    "truncate": Operation(lambda log, mark: log.truncate(), adds=False),
    "checkpoint": Operation(lambda log, mark: log.checkpoint(), adds=False),
    "purge": Operation(lambda log, mark: purge(log, log.options), adds=False),
    "txn": Operation(
        lambda log, mark: write(log, mark, Mode.APPEND, {"txn.appId": "clicks", "txn.version": "7"})
    ),
}

# What removes every split of partition a that it knows of.
REMOVES = {"overwrite", "overwrite partitions", "overwrite where", "delete", "merge", "restore", "drop"}


def test_the_page_has_a_cell_for_every_pair() -> None:
    assert MATRIX.keys() == {(before, then) for before in OPERATIONS for then in OPERATIONS}
    assert set(MATRIX.values()) == {"both", "conflict", "retry"}


def a_table(store: Store) -> None:
    """Version 1 has an old split in partition a; version 2 has two others there, and one in b."""
    log = TransactionLog(store, OPTIONS, engine="test")
    assert log.create(metadata(COLUMNS, ["p"])) is not None
    for path in ("p=a/old.split", "p=a/one.split", "p=a/two.split", "p=b/other.split"):
        store.put(path, b"rows")
    append(log, new_split("p=a/old.split"))
    draft = Draft(
        operation="OVERWRITE",
        adds=tuple(new_split(path) for path in ("p=a/one.split", "p=a/two.split", "p=b/other.split")),
        removes=(gone("p=a/old.split"),),
        parameters={"mode": "overwrite"},
    )
    log.commit(draft, log.snapshot())


def live(store: Store) -> set[str]:
    invalidate()
    return set(paths_of(TransactionLog(store, OPTIONS, engine="test").snapshot()))


def run_pair(store: Store, before: str, then: str) -> None:
    """One cell: the second operation is planned, the first one is done, the second one goes on."""
    first, second = OPERATIONS[before], OPERATIONS[then]
    a_table(store)
    after_first: list[set[str]] = []

    def meanwhile() -> None:
        first.run(TransactionLog(store, OPTIONS, engine="first"), "first")
        after_first.append(live(store))

    log = Interrupted(store, OPTIONS, engine="second")
    log.meanwhile = meanwhile
    conflict: CommitConflictError | None = None
    try:
        second.run(log, "second")
    except CommitConflictError as error:
        conflict = error
    assert after_first, "the first operation did not happen"
    now = live(store)
    where = f"{before}, then {then}: {sorted(now)}"
    if MATRIX[before, then] == "conflict":
        assert conflict is not None, where
        assert now == after_first[0], where
        for path in second.added("second") - first.added("first") - {"p=a/old.split"}:
            assert not store.exists(path), f"{where}: its file stayed"
    else:
        assert conflict is None, f"{where}: {conflict}"
        assert second.added("second") <= now, where
        if then not in REMOVES or MATRIX[before, then] == "both":
            assert first.added("first") <= now, where
        if then in REMOVES:
            assert not {"p=a/one.split", "p=a/two.split"} & now, where
    for path in now:
        assert store.exists(path), f"{where}: {path} is live and gone"


@pytest.fixture
def stores(make_store_url: StoreUrl) -> Callable[[str], Iterator[Store]]:
    def make(kind: str) -> Iterator[Store]:
        url, options = make_store_url(kind)
        root = open_store(url, Options.parse(options))
        number = 0
        while True:
            yield root.at(f"table-{number}")
            number += 1

    return make


@pytest.mark.parametrize("before", OPERATIONS)
@pytest.mark.parametrize(
    "kind",
    ["local", pytest.param("s3", marks=pytest.mark.server), pytest.param("azure", marks=pytest.mark.server)],
)
def test_every_pair_of_operations_ends_as_the_page_says(
    stores: Callable[[str], Iterator[Store]], kind: str, before: str
) -> None:
    for then, store in zip(OPERATIONS, stores(kind), strict=False):
        run_pair(store, before, then)
