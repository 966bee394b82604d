"""Cold reads from an object store that is 20 to 50 ms away: requests, bytes, round trips and time.

Every run starts with nothing in memory and an empty cache on disk; libraries are loaded and connections open.
"""

import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import indextables
from bench import logs
from bench.measure import Prepare, measure
from bench.report import Row, Target
from bench.slow_proxy import RESET, SlowProxy, Traffic
from indextables import diagnostics
from indextables.options import Options
from indextables.store import open_store
from tests.servers import s3

DEFAULT_ROWS = 1_000_000
_SPLITS = 200
_FEW_SPLITS = 10
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
        needle = f"message INDEXQUERY '{logs.NEEDLE}'"
        trace = f"trace_id = '{data['trace_id'][self.count // 2].as_py()}'"
        absent = "message INDEXQUERY 'xyzzynowhere'"
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
                elif self.full:
                    times = Target(row.ours.median_ms / first[title], 1.5, "times one split")
                    row = Row(row.name, row.ours, row.others, (times, *row.targets))
                yield row

    def _targets(self, found: Traffic, name: str, sizes: dict[str, int]) -> tuple[Target, ...]:
        if name == "one":
            share = 100 * found.bytes / sizes[name]
            return Target(found.round_trips, 6, "round trips"), Target(share, 2, "% of the bytes")
        return (Target(found.megabytes, 20, "MB"),)

    def _row(self, title: str, name: str, where: str, targets) -> Row:
        measured = measure(
            "bench.lake:ask", str(self.folder), f"s3://{s3.BUCKET}/{name}",
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


def ask(folder: str, url: str, options: dict[str, str], where: str, port: int) -> Prepare:
    """A cold question: nothing is cached in memory or on disk."""
    numbers = count()

    def prepare():
        diagnostics.flush_searchers()
        diagnostics.invalidate_log_cache()
        cache = Path(folder) / f"cache-{next(numbers)}-{abs(hash(where))}"
        own = {**options, "cache.disk.path": str(cache)}
        # The connections are open, and the libraries loaded.
        open_store(url, Options.parse(own)).exists("nothing")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{RESET}"):
            pass

        def act() -> object:
            table = indextables.open(url, options=own)
            return table.scan(where=where) if where else table.count()

        return act

    return prepare
