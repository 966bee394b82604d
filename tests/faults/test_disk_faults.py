"""Whatever single call of the file system fails, no acknowledged row is lost and the table stays usable.

Each operation runs once to count its calls, and then once for each way in which each call can fail. `make test`
takes a share of them, another one for each operation; `make soak` takes all.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.diagnostics import flush_searchers, invalidate_log_cache
from indextables.errors import CommitUnknownError, IndexTablesError
from tests.faults.disk_calls import FAULTS, DiskCalls, Fault, files_below

OPTIONS = {"checkpoint.interval": "3", "transaction.retry.baseDelayMs": "1", "indexing.typemap.t": "text"}
ROWS = {0, 1, 2, 3, 4}
# In make test every so manieth fault; a prime, so that all kinds of calls and faults come up.
SHARE = 41

Ids = frozenset[int]
Work = Callable[[Path], object]


def row(n: int) -> dict[str, object]:
    return {"id": n, "p": n % 2, "t": f"word{n} all"}


def write(path: Path, *ids: int, **more: Any) -> object:
    return indextables.write(path, [row(n) for n in ids], options=OPTIONS, **more)


def opened(path: Path) -> indextables.Table:
    return indextables.open(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with states, several splits in each partition, removed splits and an orphan, all of them old."""
    path = tmp_path_factory.mktemp("base") / "t"
    write(path, 90, 91, partition_by=["p"])
    write(path, 0, mode="overwrite")
    for n in (1, 2, 3, 4):
        write(path, n)
    orphan = next(path.glob("p=0/*.split"))
    shutil.copy(orphan, orphan.with_name("orphan.split"))
    old = time.time() - 400 * 86_400
    for file in path.rglob("*"):
        os.utime(file, (old, old))
    return path


# What is done, and the rows afterwards if it is acknowledged.
OPERATIONS: dict[str, tuple[Work, Ids]] = {
    "first write": (lambda path: write(path, 10, 11, partition_by=["p"]), frozenset({10, 11})),
    "append": (lambda path: write(path, 10), frozenset({*ROWS, 10})),
    "overwrite": (lambda path: write(path, 20, 21, mode="overwrite"), frozenset({20, 21})),
    "merge": (lambda path: opened(path).merge(), frozenset(ROWS)),
    "checkpoint": (lambda path: opened(path).checkpoint(), frozenset(ROWS)),
    "purge": (lambda path: opened(path).purge(), frozenset(ROWS)),
    "truncate": (lambda path: opened(path).truncate(), frozenset(ROWS)),
    "drop": (lambda path: opened(path).drop_partitions("p = 1"), frozenset({0, 2, 4})),
    "read": (lambda path: (ids(path), opened(path).count("t INDEXQUERY 'all'")), frozenset(ROWS)),
}


def ids(path: Path) -> list[int]:
    return sorted(opened(path).scan(["id"])["id"].to_pylist())


def forget() -> None:
    flush_searchers()
    invalidate_log_cache()


def run(base: Path, tmp_path: Path, operation: str, failing: int | None, fault: Fault) -> DiskCalls:
    """Do an operation with one call failing, and see that the table survived."""
    work, after = OPERATIONS[operation]
    before: Ids = frozenset() if operation == "first write" else frozenset(ROWS)
    path = tmp_path / f"{operation.replace(' ', '-')}-{failing}-{fault.name}"
    if before:
        shutil.copytree(base, path)
    forget()
    calls = DiskCalls(str(path), failing, fault)
    outcome = "acknowledged"
    with calls.watching():
        try:
            work(path)
        except CommitUnknownError:
            outcome = "unknown"
        except IndexTablesError as error:
            outcome = f"refused: {error}"
    allowed = {"acknowledged": {after}, "unknown": {before, after}}.get(outcome, {before})
    try:
        found = survived(path, allowed)
        write(path, 77)
        assert ids(path) == sorted({*found, 77})
        opened(path).purge()
        forget()
        assert ids(path) == sorted({*found, 77})
        assert opened(path).count("t INDEXQUERY 'all'") == len(found) + 1
    except Exception as error:
        files = files_below(path) if path.exists() else []
        raise AssertionError(
            f"{operation}, {calls.failed} {fault}: {outcome}; then {error!r}; {files}"
        ) from error
    shutil.rmtree(path)
    return calls


def survived(path: Path, allowed: set[Ids]) -> list[int]:
    """The rows of a table, which must be among the allowed ones, as caches have them and as the disk has them."""
    seen = []
    for look in (lambda: None, forget):
        look()
        try:
            seen.append(ids(path))
        except indextables.IndexTablesError:
            if frozenset() not in allowed:  # no table yet
                raise
            seen.append([])
    assert seen[0] == seen[1]
    assert frozenset(seen[0]) in allowed
    assert len(seen[0]) == len(set(seen[0])), "rows are there twice"
    return seen[0]


def faults(base: Path, tmp_path: Path, operation: str) -> list[tuple[int, Fault]]:
    """Every way in which a call of an operation can fail."""
    calls = run(base, tmp_path, operation, None, Fault.BEFORE).seen
    return [(n, fault) for n, (kind, _) in enumerate(calls) for fault in FAULTS[kind]]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_table_survives_a_failing_call(base: Path, tmp_path: Path, operation: Any) -> None:
    tried: Counter[Fault] = Counter()
    for n, fault in faults(base, tmp_path, operation)[list(OPERATIONS).index(operation) :: SHARE]:
        run(base, tmp_path, operation, n, fault)
        tried[fault] += 1
    assert tried


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_table_survives_every_failing_call(base: Path, tmp_path: Path, operation: Any) -> None:
    lost = []
    tried = 0
    for n, fault in faults(base, tmp_path, operation):
        tried += 1
        try:
            run(base, tmp_path, operation, n, fault)
        except AssertionError as error:
            lost.append(str(error))
    assert not lost, f"{len(lost)} of {tried} faults:\n" + "\n".join(lost)
