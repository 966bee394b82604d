"""The work that `bench.maintenance` measures."""

import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import tantivy

import indextables
from bench.logs import batches
from bench.measure import Prepare
from indextables.log.conflict import Draft
from indextables.log.format.actions import Add, Format, Metadata
from indextables.log.retention import ExpiredFiles
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import purge as purging
from indextables.schema.spark import from_arrow
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

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
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


# --- tables of IndexTables for Scala ----------------------------------------------------------------------

_MAPPING = [
    {"name": "status", "type": "i64", "stored": True, "indexed": True, "fast": True},
    {"name": "level", "type": "text", "tokenizer": "raw", "stored": True, "indexed": True, "fast": True},
    {
        "name": "message",
        "type": "text",
        "tokenizer": "default",
        "stored": True,
        "indexed": True,
        "fast": False,
    },
]


def make_original_table(folder: Path, rows: int, splits: int) -> None:
    """A table with splits as IndexTables for Scala writes them, of three columns of the log rows."""
    whole = pa.Table.from_batches(batches(rows)).select(["status", "level", "message"])
    size = -(-rows // splits)
    folder.mkdir()
    adds = []
    for number, start in enumerate(range(0, rows, size)):
        part = whole.slice(start, size)
        target = folder / f"part-{number}.split"
        _write_bundle(folder / f"index-{number}", target, part)
        adds.append(
            Add(
                path=target.name,
                size=target.stat().st_size,
                num_records=part.num_rows,
                data_change=True,
                doc_mapping_json=json.dumps(_MAPPING),
            )
        )
    log = TransactionLog(open_store(folder), engine="bench")
    created = log.create(
        Metadata(id="bench", schema_string=from_arrow(whole.schema), partition_columns=[], format=Format())
    )
    assert created is not None
    log.commit(Draft(operation="WRITE", adds=tuple(adds)), created)


def _write_bundle(work: Path, target: Path, rows: pa.Table) -> None:
    """Write an index of Tantivy as one file, with the positions of its parts at the end."""
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("status", stored=True, indexed=True, fast=True)
    builder.add_text_field("level", stored=True, tokenizer_name="raw", fast=True)
    builder.add_text_field("message", stored=True)
    work.mkdir()
    writer = tantivy.Index(builder.build(), str(work)).writer(64_000_000, 1)
    for row in rows.to_pylist():
        writer.add_json(json.dumps(row))
    writer.commit()
    writer.wait_merging_threads()
    body, places = b"", {}
    for path in sorted(work.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            data = path.read_bytes()
            places[path.name] = {"start": len(body), "end": len(body) + len(data)}
            body += data
    meta = struct.pack("<II", 403_881_646, 1) + json.dumps({"files": places}).encode()
    target.write_bytes(body + meta + struct.pack("<I", len(meta)) + b"hot" + struct.pack("<I", 3))
    shutil.rmtree(work)


def convert(table: str, work: str) -> Prepare:
    """Convert all splits of a copy of a table of IndexTables for Scala."""

    def prepare() -> Callable[[], object]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(table, work)
        return indextables.open(work).convert

    return prepare
