"""The pieces of work that `bench.engine_write` measures."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from bench import logs
from bench.measure import Measured, Prepare
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.index.encode import hash_values
from indextables.split.index.term_filter import FilterWriter, TermFilter, probes
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.writer import SplitWriter
from indextables.store import open_store

SOURCES = 16
OPTIONS = Options.parse({"indexing.typemap.message": "text"})
_ROWS_AT_ONCE = 8192
# The rows in which term filters of smaller splits are measured, and how many filters and other terms.
_FILTERED_ROWS = 200_000
_TESTED_FILTERS = 25
_OTHER_TERMS = 2000


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


@dataclass(frozen=True, slots=True)
class FilterFigures:
    """Writes, the shares of size and CPU time of term filters, and of other terms that pass them."""

    write: Measured
    size_share: float
    cpu_share: float
    passing: dict[str, float]


def filter_figures(made: Path, folder: Path, rows: int) -> FilterFigures:
    """Write splits of so many rows, and measure their term filters."""
    folder.mkdir(exist_ok=True)
    store = open_store(folder)
    splits = max(1, min(_FILTERED_ROWS, _mapped(made).num_rows) // rows)
    times: list[float] = []
    cpu: list[float] = []
    filter_cpu = [0.0]
    write_split(made, folder / "0.split", end=rows)
    with _timed_filters(filter_cpu):
        for number in range(splits):
            start, start_cpu = time.perf_counter(), time.process_time()
            write_split(made, folder / f"{number}.split", start=number * rows, end=(number + 1) * rows)
            times.append(1000 * (time.perf_counter() - start))
            cpu.append(time.process_time() - start_cpu)
    footers = [read_footer(store, f"{number}.split") for number in range(splits)]
    sizes = sum(footer.size for footer in footers)
    filters = [(footer.path, place) for footer in footers for place in footer.term_filters]
    passing: dict[str, list[bool]] = {}
    for path, place in filters[:_TESTED_FILTERS]:
        filter_ = TermFilter(place)
        for probe in probes([f"other{number}" for number in range(_OTHER_TERMS)]):
            passes = filter_.may_contain_any([probe], partial(store.get_ranges, path))
            passing.setdefault(place.field.partition(":")[2], []).append(passes)
    return FilterFigures(
        Measured(
            splits,
            statistics.median(times),
            min(times),
            max(times),
            1000 * statistics.median(cpu),
            times[0],
            0,
        ),
        sum(place.length for _, place in filters) / sizes,
        filter_cpu[0] / sum(cpu),
        {column: statistics.mean(own) for column, own in passing.items()},
    )


@contextmanager
def _timed_filters(spent: list[float]) -> Iterator[None]:
    """Add up the CPU time of the methods that collect and write term filters."""

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            start = time.thread_time()
            try:
                return method(*arguments)
            finally:
                spent[0] += time.thread_time() - start

        return act

    with ExitStack() as stack:
        # An integer's keys are added by `add`, too, which takes next to nothing.
        for name in ("add", "add_integers", "write"):
            stack.enter_context(patch.object(FilterWriter, name, timed(getattr(FilterWriter, name))))
        yield


def plain_parquet(rows: str, target: str, codec: str) -> Prepare:
    """The rows alone, by pyarrow's defaults with a codec."""
    return lambda: lambda: pq.write_table(_mapped(rows), target, compression=codec)


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
