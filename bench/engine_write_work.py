"""The pieces of work that `bench.engine_write` measures."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from bench import logs
from bench.measure import Prepare
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.index.encode import hash_values
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.writer import SplitWriter
from indextables.store import open_store

SOURCES = 16
OPTIONS = Options.parse({"indexing.typemap.message": "text"})
_ROWS_AT_ONCE = 8192


def make_rows(path: Path, rows: int) -> Path:
    """Log rows in a file that is mapped, so that making them is not part of a measurement."""
    source = logs.reader(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, source.schema) as writer:
        for batch in source:
            writer.write_table(pa.Table.from_batches([batch]), max_chunksize=_ROWS_AT_ONCE)
    return path


def _mapped(path: str | Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_split(
    rows: str | Path, target: str | Path, times: int = 1, start: int = 0, end: int | None = None
) -> int:
    """Write the rows, or some of them, so many times over as one split; gives its size."""
    table = _mapped(rows).slice(start, None if end is None else end - start)
    with (
        Path(target).open("wb") as sink,
        SplitWriter(sink, table.schema, mapping_for(table.schema, OPTIONS), OPTIONS) as writer,
    ):
        for _ in range(times):
            for batch in table.to_batches():
                writer.write(batch)
        return writer.finish().size


def write(rows: str, target: str, times: str) -> Prepare:
    """A split of ours."""
    return lambda: lambda: write_split(rows, target, int(times))


def plain_parquet(rows: str, target: str) -> Prepare:
    """The rows alone, by pyarrow's defaults with zstd."""
    return lambda: lambda: pq.write_table(_mapped(rows), target, compression="zstd")


def bare_tantivy(rows: str, target: str) -> Prepare:
    """The loop that everybody writes, feeding the fields that a split has: a document for each row."""

    def prepare() -> Callable[[], object]:
        folder = Path(target)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        return lambda: _feed(_mapped(rows), folder)

    return prepare


def _feed(table: pa.Table, folder: Path) -> None:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("message", tokenizer_name="default", index_option="position")
    for name in ("level", "service", "host"):
        builder.add_text_field(name, fast=True, tokenizer_name="raw", index_option="basic")
    for name in ("row", "ts", "status", "trace"):
        builder.add_integer_field(name, fast=True)
    builder.add_float_field("latency", fast=True)
    writer = tantivy.Index(builder.build(), path=str(folder)).writer(128 << 20, 1)
    number = 0
    for batch in table.to_batches():
        for message, level, service, host, ts, status, trace, latency in _values(batch):
            document = tantivy.Document()
            document.add_text("message", message)
            document.add_text("level", level)
            document.add_text("service", service)
            document.add_text("host", host)
            document.add_integer("row", number)
            document.add_integer("ts", ts)
            document.add_integer("status", status)
            document.add_integer("trace", trace)
            document.add_float("latency", latency)
            writer.add_document(document)
            number += 1
    writer.commit()
    writer.wait_merging_threads()


def _values(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [batch.column(name) for name in ("message", "level", "service", "host")]
    columns += [
        batch.column("ts").cast(pa.int64()),
        batch.column("status"),
        hash_values(batch.column("trace_id")),
    ]
    latency = batch.column(next(name for name in batch.schema.names if name.startswith("latency")))
    return zip(*(column.to_pylist() for column in [*columns, latency]), strict=True)


def make_sources(rows: Path, folder: Path) -> None:
    """Splits to merge."""
    folder.mkdir()
    count = _mapped(rows).num_rows // SOURCES
    for number in range(SOURCES):
        write_split(rows, folder / f"{number}.split", start=number * count, end=(number + 1) * count)


def merge(folder: str) -> Prepare:
    """All sources into one."""

    def prepare() -> Callable[[], object]:
        store = open_store(folder)
        footers = [read_footer(store, f"{number}.split") for number in range(SOURCES)]
        schema = footers[0].schema
        sources = [MergeSource.of(store, footer, schema) for footer in footers]

        def act() -> object:
            with (Path(folder) / "merged.split").open("wb") as sink:
                return merge_splits(sources, sink, schema, mapping_for(schema, OPTIONS), OPTIONS)

        return act

    return prepare
