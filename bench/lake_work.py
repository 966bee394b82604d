"""Cold questions of `bench lake`: asked of our tables, of a table in a simulated store, and of others."""

import os
import random
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset as ds

import indextables
from bench.measure import Prepare
from bench.slow_proxy import RESET
from indextables import data_files, diagnostics
from indextables.log.conflict import Draft
from indextables.log.format.files import to_adds
from indextables.options import Options
from indextables.store import open_store
from indextables.store.handle import Store
from indextables.store.local import LocalBackend

# The bandwidth of a connection, as the proxy has it.
BYTES_PER_SECOND = 100e6


def ask(folder: str, url: str, options: dict[str, str], where: str, port: int) -> Prepare:
    """A cold question: nothing is cached in memory or on disk."""
    numbers = count()

    def prepare() -> Callable[[], object]:
        diagnostics.flush_searchers()
        diagnostics.invalidate_log_cache()
        cache = Path(folder) / f"cache-{next(numbers)}-{abs(hash(where))}"
        own = {**options, "cache.disk.path": str(cache)}
        # The connections are open, and the libraries loaded.
        open_store(url, Options.parse(own)).exists("nothing")
        reset(port)

        def act() -> object:
            table = indextables.open(url, options=own)
            return table.scan(where=where) if where else table.count()

        return act

    return prepare


def reset(port: int) -> None:
    """Let the proxy count from now on."""
    if port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{RESET}"):
            pass


# --- a simulated store ------------------------------------------------------------------------------


def make_simulated(source: Path, target: Path, splits: int, where: str) -> None:
    """A table of so many splits: links to those of another table; the rows of a condition are in one of them.

    Its log and its filter bundles are written as those of any table.
    """
    table = indextables.open(source)
    matching = {each.path for each in _splits_of(table, where)}
    entries = to_adds(table._log.snapshot().files())
    others = [add for add in entries if add.path not in matching]
    chosen = [add for add in entries if add.path in matching][:1]
    chosen += [others[number % len(others)] for number in range(splits - len(chosen))]
    dice = random.Random(17)
    adds = []
    for add in chosen:
        name = f"part-{UUID(int=dice.getrandbits(128))}.split"
        target.mkdir(exist_ok=True)
        os.link(source / add.path, target / name)
        adds.append(replace_path(add, name))
    log = data_files.open_log(open_store(target), Options(), engine="bench")
    created = log.create(table._log.snapshot().metadata)
    assert created is not None
    log.commit(Draft(operation="WRITE", adds=tuple(adds)), created)
    log.checkpoint()


def replace_path(add: Any, path: str) -> Any:
    """The same split at another path."""
    import msgspec  # noqa: PLC0415 - the worker of a measurement needs it not

    return msgspec.structs.replace(add, path=path)


def _splits_of(table: Any, where: str) -> Sequence[Any]:
    from indextables.predicate import parse_condition  # noqa: PLC0415
    from indextables.read.split_reader import SplitReader  # noqa: PLC0415
    from indextables.read.table_context import plan_splits  # noqa: PLC0415

    snapshot = table._log.snapshot()
    condition = parse_condition(where, snapshot.schema)
    plan = plan_splits(snapshot, condition, Options())
    store = open_store(table.url)
    return [ref for ref in plan.splits if SplitReader(store, ref, plan.table).count(condition)]


def ask_simulated(folder: str, url: str, delays_ms: list[float], where: str) -> Prepare:
    """A cold question of a table on the local disk whose store seems to be far away.

    Each request takes as long as one of those that were recorded, and its bytes as long as on a connection.
    """
    dice = random.Random(17)

    def slowly(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: object) -> object:
            result = method(*arguments)
            parts = result if isinstance(result, list) else [result]
            size = max((len(part) for part in parts if isinstance(part, bytes)), default=0)
            time.sleep(dice.choice(delays_ms) / 1000 + size / BYTES_PER_SECOND)
            return result

        return call

    for name in ("get", "get_ranges", "head"):
        setattr(LocalBackend, name, slowly(getattr(LocalBackend, name)))
    walk = LocalBackend.walk
    LocalBackend.walk = lambda *arguments: iter(slowly(lambda *a: list(walk(*a)))(*arguments))  # type: ignore[method-assign]
    for name, value in (("is_local", False), ("lists_in_pages", True)):
        setattr(Store, name, property(lambda _, value=value: value))
    Store.local_path = lambda *_: None  # type: ignore[method-assign]
    return ask(folder, url, {}, where, 0)


# --- others -----------------------------------------------------------------------------------------


def make_lance(folder: Path, data: pa.Table) -> None:
    """The rows in Lance, with an index of the words and one of the ids."""
    import lance  # noqa: PLC0415 - only where it is installed

    dataset = lance.write_dataset(data, str(folder))
    dataset.create_scalar_index("message", "INVERTED", with_position=False)
    dataset.create_scalar_index("trace_id", "BTREE")


def ask_lance(url: str, options: dict[str, str], column: str, value: str, port: int) -> Prepare:
    """The question asked of Lance, newly opened."""
    import lance  # noqa: PLC0415 - only where it is installed

    storage = {
        "aws_access_key_id": options["aws.accessKey"],
        "aws_secret_access_key": options["aws.secretKey"],
        "aws_region": options["aws.region"],
        "aws_endpoint": options["aws.endpoint"],
        "allow_http": "true",
    }
    text = {"full_text_query": {"query": value, "columns": [column]}, "disable_scoring_autoprojection": True}
    how: dict[str, Any] = text if column == "message" else {"filter": f"{column} = '{value}'"}

    def prepare() -> Callable[[], object]:
        reset(port)
        return lambda: lance.dataset(url, storage_options=storage).scanner(**how).to_table()

    return prepare


def ask_duckdb(url: str, options: dict[str, str], column: str, value: str, port: int) -> Prepare:
    """The question asked of DuckDB over a Parquet file, which Arrow reads from the store."""
    import duckdb  # noqa: PLC0415 - it takes long to import
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415

    files = S3FileSystem(
        access_key=options["aws.accessKey"],
        secret_key=options["aws.secretKey"],
        region=options["aws.region"],
        endpoint_override=options["aws.endpoint"],
        scheme="http",
    )
    condition = f"contains({column}, '{value}')" if column == "message" else f"{column} = '{value}'"

    def prepare() -> Callable[[], object]:
        connection = duckdb.connect()
        reset(port)

        def act() -> object:
            rows = ds.dataset(url.removeprefix("s3://"), filesystem=files)
            return connection.from_arrow(rows).filter(condition).to_arrow_table()

        return act

    return prepare
