"""The log: reading, pruning, extending and compacting states of many files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.log_work import build, wear
from bench.measure import Measured, measure, ratio
from bench.report import Row, Target

# Files of the largest table; the others keep their proportion to it.
DEFAULT_ROWS = 1_000_000

_PARTITIONS = 1_000
_HERE = "bench.log_work:"
# Who reads the same bytes, and checks nothing.
_BARE = "DataFusion"


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Measure the log on tables made in a folder; `rows` are the files of the largest one."""
    largest = rows or DEFAULT_ROWS
    return _Bench(folder, largest, runs).rows()


class _Bench:
    def __init__(self, folder: Path, largest: int, runs: int) -> None:
        self.folder = folder
        self.largest = largest
        self.runs = runs
        self.partitions = min(_PARTITIONS, largest)
        self._known_bare: dict[Path, Measured] = {}

    def rows(self) -> Iterator[Row]:
        """All measurements, in order."""
        k70, k100, m1 = self._table("70k", 70_000), self._table("100k", 100_000), self._table("1m", 1_000_000)
        read_70k = self._read(k70)
        yield self._row("read 70K", read_70k, self._bare(k70), ms=300)
        yield self._row("read 100K", self._read(k100), self._bare(k100), ms=400, mb=300)
        yield self._row("read 1M", self._read(m1), self._bare(m1), ms=3_000)
        yield from self._manifests()
        yield self._one_partition(m1)
        yield from self._plans(k100)
        yield from self._large_plans(m1)
        yield from self._writes(k70)
        yield from self._json(read_70k)

    def _manifests(self) -> Iterator[Row]:
        """The same files in ten manifests, one after another and at once."""
        files = self._files(100_000)
        table = self._table("10-manifests", 100_000, **{"state.entriesPerManifest": max(files // 10, 1)})
        bare = self._bare(table)
        one = self._read(table, **{"state.read.parallelism": 1})
        yield self._row("read 100K in 10 manifests, one by one", one, bare)
        yield self._row("read 100K in 10 manifests, in parallel", self._read(table), bare, ms=200)

    def _one_partition(self, table: Path) -> Row:
        ours = self._measure("read_partition", table, self.partitions // 2)
        return self._row("one partition of 1M", ours, self._bare(table), ms=100, mb=50)

    def _plans(self, table: Path) -> Iterator[Row]:
        day, split = self.partitions // 2, self._files(100_000) // 2
        works: dict[str, tuple[Any, ...]] = {
            "partition": ("plan_partition", day),
            "statistics": ("plan_statistics", split),
            "both": ("plan_both", day, split),
        }
        for name, (work, *arguments) in works.items():
            ours = self._measure(work, table, *arguments)
            yield self._row(f"plan 100K warm, {name}", ours, self._bare(table), ms=100)

    def _large_plans(self, table: Path) -> Iterator[Row]:
        """Plans of selective queries on the largest table, with the splits as a read needs them."""
        conditions = {"partition": (self.partitions // 2, None), "statistics": (None, self._files(500_000))}
        for name, condition in conditions.items():
            cold = self._measure("plan_cold", table, *condition)
            yield self._row(f"plan 1M cold, {name}", cold, self._bare(table), ms=3_000, mb=1_000)
            warm = self._measure("plan_warm", table, *condition)
            yield self._row(f"plan 1M warm, {name}", warm, self._bare(table), ms=300, mb=1_000)

    def _writes(self, table: Path) -> Iterator[Row]:
        added = self._measure("add_files", table, self._files(100), min(self.partitions, 10))
        yield self._row("add 100 to 70K, state included", added, self._bare(table), ms=100)
        files = self._files(10_000)
        worn = self._table("worn", 30_000)
        wear(worn, adds=files, steps=4, removes=files // 10, partitions=self.partitions)
        compacted = self._measure("compact", worn)
        yield self._row("compact 70K", compacted, self._bare(worn), ms=1_000)

    def _json(self, read_70k: Measured) -> Iterator[Row]:
        for name, files in (("70K", 70_000), ("100K", 100_000), ("1M", 1_000_000)):
            table = self._table(f"json-{name}", files, **{"state.format": "json"})
            bare = self._measure("read_bare_json", table)
            ours = self._read(table)
            targets: tuple[Target, ...] = ()
            if files == 70_000 and self._full:
                targets = (Target(ratio(ours, read_70k), 10, "times the Avro state", at_least=True),)
            yield Row(f"read {name}, JSON checkpoint", ours, {_BARE: bare}, targets)

    # --- parts -----------------------------------------------------------------------------------

    @property
    def _full(self) -> bool:
        """Whether the tables have the sizes that the targets are for."""
        return self.largest == DEFAULT_ROWS

    def _files(self, of_a_million: int) -> int:
        return max(of_a_million * self.largest // DEFAULT_ROWS, 2)

    def _table(self, name: str, files: int, **options: object) -> Path:
        return build(self.folder / name, self._files(files), partitions=self.partitions, **options)

    def _read(self, table: Path, **options: object) -> Measured:
        return self._measure("read", table, options)

    def _bare(self, table: Path) -> Measured:
        """DataFusion alone, reading all manifests of the table."""
        if table not in self._known_bare:
            self._known_bare[table] = self._measure("read_bare", table)
        return self._known_bare[table]

    def _measure(self, work: str, table: Path, *arguments: object) -> Measured:
        return measure(_HERE + work, str(table), *arguments, runs=self.runs)

    def _row(self, name: str, ours: Measured, bare: Measured, *, ms: float = 0, mb: float = 0) -> Row:
        targets = []
        if ms and self._full:
            targets.append(Target(ours.median_ms, ms, "ms"))
        if mb and self._full:
            targets.append(Target(ours.peak_mb, mb, "MB"))
        return Row(name, ours, {_BARE: bare}, tuple(targets))
