"""The work that `bench.maintenance` measures."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import indextables
from bench.logs import batches
from bench.measure import Prepare
from indextables.log.retention import ExpiredFiles
from indextables.maintain import purge as purging
from indextables.store import ObjectInfo, Store, open_store

OPTIONS = {"indexing.typemap.message": "text", "checkpoint.interval": 50}
_DAY_S = 86_400


def make_table(folder: Path, rows: int, splits: int) -> None:
    """A table of so many rows in so many appends."""
    whole = pa.Table.from_batches(batches(rows))
    size = -(-rows // splits)
    for start in range(0, rows, size):
        indextables.write(folder, whole.slice(start, size), options=OPTIONS)


def merge(table: str, work: str) -> Prepare:
    """Merge all splits of a copy of the table."""

    def prepare() -> Callable[[], object]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(table, work)
        opened = indextables.open(work)
        return opened.merge

    return prepare


def rewrite(table: str, work: str) -> Prepare:
    """Write all rows of the table anew."""

    def prepare() -> Callable[[], object]:
        shutil.rmtree(work, ignore_errors=True)
        opened = indextables.open(table)
        return lambda: indextables.write(work, opened.stream(), options=OPTIONS)

    return prepare


def purge(table: str, orphans: str) -> Prepare:
    """Delete files that no version names."""

    def prepare() -> Callable[[], object]:
        folder = Path(table)
        old = time.time() - 30 * _DAY_S
        for number in range(int(orphans)):
            path = folder / f"lost-{number:07d}.split"
            path.write_bytes(b"")
            os.utime(path, (old, old))
        opened = indextables.open(table)

        def act() -> None:
            found = opened.purge().orphans_deleted
            if found != int(orphans):
                raise RuntimeError(f"{found} of {orphans} were deleted")

        return act

    return prepare


class _Listed(Store):
    """A store whose listing is as long as is asked for."""

    __slots__ = ()
    files = 0

    def list(self, prefix: str = "", *, after: str | None = None):
        if prefix or after:
            return
        for number in range(self.files):
            yield ObjectInfo(f"part-{number:032d}.split", 1, 1)


def listing(files: str) -> Prepare:
    """Find the orphans in a long listing, of which every second file is one."""

    def prepare() -> Callable[[], object]:
        named = pa.array([f"part-{n:032d}.split" for n in range(0, int(files), 2)], pa.string())
        plan = purging.PurgePlan(168, 10, ExpiredFiles(), named, 0, "id", dry_run=True)
        store = open_store("memory://listed/table")
        _Listed.files = int(files)
        store.__class__ = _Listed
        return lambda: sum(len(batch.paths) for batch in purging.orphans(store, plan))

    return prepare
