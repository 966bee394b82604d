"""Cold reads from an object store that is 20 to 50 ms away: requests, bytes, round trips and time.

Every run starts with nothing in memory and an empty cache on disk; libraries are loaded and connections open.
A table of 10,000 splits is simulated: the splits are links to 200 on the local disk, and each request takes
as long as one that was recorded. Log, planner and filters are real.
"""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import indextables
from bench import lake_work, logs
from bench.measure import Measured, measure
from bench.report import Row, Target
from bench.slow_proxy import SlowProxy, Traffic
from indextables.options import Options
from indextables.store import open_store
from tests.servers import s3

DEFAULT_ROWS = 1_000_000
_SPLITS = 200
_FEW_SPLITS = 10
_SIMULATED, _FEW_SIMULATED = 10_000, 100
_DELAYS = 500
_INDEXING = {"indexing.typemap.message": "text"}
_UPLOADS = 16


def run(folder: Path, *, rows: int | None, runs: int) -> Iterator[Row]:
    """Write so many log rows in one split and in many, and read them through the proxy."""
    with s3.seaweed(folder) as server, SlowProxy(server.port).running() as proxy:
        bench = _Bench(folder, server, proxy, rows or DEFAULT_ROWS, runs, full=rows is None)
        yield from bench.rows()


class _Bench:
    def __init__(
        self, folder: Path, server: s3.S3Server, proxy: SlowProxy, rows: int, runs: int, *, full: bool
    ) -> None:
        self.folder = folder
        self.server = server
        self.proxy = proxy
        self.count = rows
        self.runs = runs
        self.full = full
        self.splits = _SPLITS if full else _FEW_SPLITS

    def rows(self) -> Iterator[Row]:
        """All measurements, in order."""
        data = logs.table(self.count)
        one = self.folder / "one"
        indextables.write(one, data, options={**_INDEXING})
        many = self.folder / "many"
        step = -(-self.count // self.splits)
        for start in range(0, self.count, step):
            part = data.slice(start, step).combine_chunks()
            indextables.write(many, part, options={**_INDEXING, "mergeOnWrite.enabled": "false"})
        sizes = {name: self._upload(self.folder / name, name) for name in ("one", "many")}
        trace_id = data["trace_id"][self.count // 2].as_py()
        needle = f"message INDEXQUERY '{logs.NEEDLE}'"
        trace = f"trace_id = '{trace_id}'"
        absent = "message INDEXQUERY 'xyzzynowhere'"
        peers = self._peers(data)
        values = {
            "needle": ("message", logs.NEEDLE),
            "one row by id": ("trace_id", trace_id),
            "absent word": ("message", "xyzzynowhere"),
        }
        first: dict[str, float] = {}
        for name, splits in (("one", 1), ("many", self.splits)):
            kind = f"{splits} split{'s' if splits > 1 else ''}"
            yield self._row(
                f"open, {kind}", name, "", lambda found: (Target(found.round_trips, 4, "round trips"),)
            )
            for title, where in (("needle", needle), ("one row by id", trace), ("absent word", absent)):
                row = self._row(
                    f"{title}, {kind}", name, where,
                    lambda found, name=name: self._targets(found, name, sizes),
                )  # fmt: skip
                if name == "one":
                    first[title] = row.ours.median_ms
                    others = {
                        peer: self._peer(work, url, *values[title]) for peer, (work, url) in peers.items()
                    }
                    row = Row(row.name, row.ours, others, row.targets)
                elif self.full:
                    times = Target(row.ours.median_ms / first[title], 1.5, "times one split")
                    row = Row(row.name, row.ours, row.others, (times, *row.targets))
                yield row
        yield from self._simulated(many, needle, absent)

    def _simulated(self, source: Path, needle: str, absent: str) -> Iterator[Row]:
        """The questions asked of many splits in a simulated store."""
        splits = _SIMULATED if self.full else _FEW_SIMULATED
        folder = self.folder / "simulated"
        lake_work.make_simulated(source, folder, splits, needle)
        delays = self.proxy.delays_ms(_DELAYS)
        for title, where in (("open", ""), ("needle", needle), ("absent word", absent)):
            measured = measure(
                "bench.lake_work:ask_simulated", str(self.folder), str(folder), delays, where, runs=self.runs
            )
            targets = (Target(measured.median_ms, 5000, "ms"),) if self.full and where else ()
            yield Row(f"{title}, {splits:,} splits (simulated)", measured, {}, targets)

    def _peers(self, data: pa.Table) -> dict[str, tuple[str, str]]:
        """Others that are asked the same of the same rows, as the function that asks and a URL."""
        folder = self.folder / "parquet"
        folder.mkdir()
        pq.write_table(data, folder / "rows.parquet")
        self._upload(folder, "parquet")
        peers = {"DuckDB": ("ask_duckdb", f"s3://{s3.BUCKET}/parquet/rows.parquet")}
        if importlib.util.find_spec("lance") is not None:
            lake_work.make_lance(self.folder / "lance", data)
            self._upload(self.folder / "lance", "lance")
            peers["Lance"] = ("ask_lance", f"s3://{s3.BUCKET}/lance")
        return peers

    def _peer(self, work: str, url: str, column: str, value: str) -> Measured:
        options = self.server.options(self.proxy.port)
        arguments = (url, options, column, value, self.proxy.port)
        return measure(f"bench.lake_work:{work}", *arguments, runs=self.runs)

    def _targets(self, found: Traffic, name: str, sizes: dict[str, int]) -> tuple[Target, ...]:
        if name == "one":
            share = 100 * found.bytes / sizes[name]
            return Target(found.round_trips, 6, "round trips"), Target(share, 2, "% of the bytes")
        return (Target(found.megabytes, 20, "MB"),)

    def _row(self, title: str, name: str, where: str, targets: Any) -> Row:
        measured = measure(
            "bench.lake_work:ask", str(self.folder), f"s3://{s3.BUCKET}/{name}",
            self.server.options(self.proxy.port), where, self.proxy.port,
            runs=self.runs,
        )  # fmt: skip
        traffic = self.proxy.traffic()
        return Row(f"{title} ({traffic})", measured, {}, targets(traffic) if self.full else ())

    def _upload(self, folder: Path, name: str) -> int:
        """Copy a table into the store, past the proxy; returns the size of its splits."""
        store = open_store(f"s3://{s3.BUCKET}/{name}", Options.parse(self.server.options()))
        files = [path for path in folder.rglob("*") if path.is_file()]
        with ThreadPoolExecutor(_UPLOADS) as pool:
            list(pool.map(lambda path: store.upload(str(path.relative_to(folder)), path), files))
        return sum(path.stat().st_size for path in files if "_transaction_log" not in path.parts)
