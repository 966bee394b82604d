"""What verifying checksums costs: the same split, read with and without, in turns in one process."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, cast
from unittest.mock import patch

import numpy as np

from bench import logs
from bench.measure import Measured
from bench.report import Row, Target
from indextables.options import Options
from indextables.split import checksum
from indextables.split.footer import Footer, read_footer
from indextables.split.mapping import mapping_for
from indextables.split.parquet import reader
from indextables.split.parquet.reader import RowReader
from indextables.split.writer import SplitWriter
from indextables.store import Store, open_store

DEFAULT_ROWS = 1_000_000
# A difference of a few parts in a hundred takes more runs than other figures.
_LEAST_RUNS = 15
# Verifying may take no more of a scan's processor time than this, by the difference between two scans, which
# varies by a percent or two from run to run, and by the time that is spent in checksums.
_MOST_PERCENT = 3.0

Read = Callable[[RowReader], object]


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Read one split of so many log rows in several ways."""
    count = rows or DEFAULT_ROWS
    store = open_store(folder)
    _write(store, count)
    verified = read_footer(store, "a.split")
    some = np.sort(np.random.default_rng(1).choice(count, min(count, 300), replace=False))
    reads: dict[str, Read] = {
        "scan all columns": lambda split: sum(batch.num_rows for batch in split.scan()),
        "scan one text column": lambda split: sum(batch.num_rows for batch in split.scan(["message"])),
        "scan two small columns": lambda split: sum(
            batch.num_rows for batch in split.scan(["status", "level"])
        ),
        "fetch 300 rows": lambda split: split.fetch(some),
    }
    for name, read in reads.items():
        ours, without, ratio = _in_turns(store, verified, read, max(runs, _LEAST_RUNS))
        share = _verification_percent(store, verified, read, max(runs, _LEAST_RUNS))
        targets = (
            Target(ratio, 1 + _MOST_PERCENT / 100, "times the CPU time without"),
            Target(share, _MOST_PERCENT, "% of the CPU time in checksums"),
        )
        scan = name.startswith("scan")
        yield Row(name, ours, {"unverified": without}, targets if scan and rows is None else ())


def _write(store: Store, count: int) -> None:
    options = Options.parse({"indexing.typemap.message": "text"})
    schema = next(logs.batches(1)).schema
    sink = store.open_upload("a.split")
    with SplitWriter(cast("IO[bytes]", sink), schema, mapping_for(schema, options, ()), options) as writer:
        for batch in logs.batches(count):
            writer.write(batch)
        writer.finish()
    sink.close()


def _in_turns(store: Store, footer: Footer, read: Read, runs: int) -> tuple[Measured, Measured, float]:
    """What it took with and without verification, and the median of the turns' ratio of CPU time."""
    splits = [RowReader(store, footer), RowReader(store, replace(footer, checksums=None))]
    first = [_milliseconds(read, split)[0] for split in splits]
    taken: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for number in range(runs):
        for which in (0, 1) if number % 2 else (1, 0):
            clock, processor = _milliseconds(read, splits[which])
            taken[which].append(clock)
            cpu[which].append(processor)
    ours, without = (
        Measured(
            runs,
            statistics.median(taken[i]),
            min(taken[i]),
            max(taken[i]),
            statistics.median(cpu[i]),
            first[i],
            0,
        )
        for i in (0, 1)
    )
    return ours, without, statistics.median(a / b for a, b in zip(*cpu, strict=True))


def _verification_percent(store: Store, footer: Footer, read: Read, runs: int) -> float:
    """How much of the processor time of a read its checksums take: the median of some runs."""
    split = RowReader(store, footer)
    verification = 0.0

    def timed(data: bytes | memoryview) -> int:
        nonlocal verification
        start = time.thread_time()
        value = checksum.crc32(data)
        verification += time.thread_time() - start
        return value

    shares = []
    with patch.object(reader, "crc32", timed):
        for _ in range(runs):
            verification = 0.0
            processor = _milliseconds(read, split)[1]
            shares.append(100 * 1000 * verification / processor)
    return statistics.median(shares)


def _milliseconds(read: Read, split: RowReader) -> tuple[float, float]:
    start, start_cpu = time.perf_counter(), time.process_time()
    read(split)
    return (time.perf_counter() - start) * 1000, (time.process_time() - start_cpu) * 1000
