"""The work that `bench.engine_read` measures: the same questions put to us, DuckDB, Lance, DataFusion."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from datafusion import SessionContext

import indextables
from bench import logs
from bench.measure import Prepare
from indextables import read
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import parse_condition
from indextables.read import Aggregate, Function
from indextables.read.sources import close_sources
from indextables.split.index.cache import index_cache
from indextables.store import open_store

TEXT = {"indexing.typemap.message": "text"}

# name -> (our condition, DuckDB's condition, Lance's query or None, what is asked)
QUESTIONS = {
    "needle": (logs.NEEDLE, f"message LIKE '%{logs.NEEDLE}%'", logs.NEEDLE, "rows"),
    "hundred": (logs.HUNDRED, f"message LIKE '%{logs.HUNDRED}%'", logs.HUNDRED, "rows"),
    "percent": (logs.ONE_PERCENT, f"message LIKE '%{logs.ONE_PERCENT}%'", logs.ONE_PERCENT, "rows"),
    "half": (logs.HALF, f"message LIKE '%{logs.HALF}%'", logs.HALF, "rows"),
    "count": (logs.ONE_PERCENT, f"message LIKE '%{logs.ONE_PERCENT}%'", logs.ONE_PERCENT, "count"),
    "phrase": ('"connection to"', "message LIKE '%connection to%'", None, "count"),
    "wildcard": ("retrans*", "regexp_matches(message, '\\bretrans')", None, "count"),
    "groups": (logs.ONE_PERCENT, f"message LIKE '%{logs.ONE_PERCENT}%'", logs.ONE_PERCENT, "groups"),
    "all": (None, "true", None, "rows"),
    "one_column": (None, "true", None, "one_column"),
}


def make(folder: str, rows: int) -> None:
    """The same rows as a table of ours and as plain Parquet."""
    place = Path(folder)
    indextables.write(place / "table", logs.reader(rows), options=TEXT)
    pq.write_table(logs.table(rows), place / "plain.parquet", compression="zstd")


def make_lance(folder: str, rows: int) -> None:
    """The same rows in Lance with its full-text index."""
    import lance  # noqa: PLC0415 - only where it is installed

    data = lance.write_dataset(logs.table(rows), str(Path(folder) / "lance"))
    data.create_scalar_index("message", "INVERTED", with_position=False)


def ours(folder: str, question: str, warm: str = "warm") -> Prepare:
    """A question asked of our table; cold means with nothing open and nothing in the disk cache."""
    options = Options.parse({"cache.disk.path": str(Path(folder) / "cache")})
    store = open_store(Path(folder) / "table")
    snapshot = TransactionLog(store, engine="bench").snapshot()
    snapshot.files()
    text, _, _, kind = QUESTIONS[question]
    where = None if text is None else parse_condition(f"message INDEXQUERY '{text}'", snapshot.schema)

    def act() -> object:
        match kind:
            case "count":
                return read.count(snapshot, store, options, where=where)
            case "groups":
                wanted = [Aggregate(Function.COUNT), Aggregate(Function.AVG, "latency_ms")]
                return read.aggregate(
                    snapshot, store, options, aggregates=wanted, group_by=["level"], where=where
                )
            case _:
                columns = ["status"] if kind == "one_column" else None
                return read.scan(snapshot, store, options, columns=columns, where=where).read_all()

    def prepare() -> Callable[[], object]:
        if warm == "cold":
            close_sources()
            index_cache(options).flush()
        return act

    return prepare


def duck(folder: str, question: str) -> Prepare:
    """The question asked of DuckDB over plain Parquet."""
    connection = duckdb.connect()
    file = str(Path(folder) / "plain.parquet")
    _, condition, _, kind = QUESTIONS[question]
    what = {
        "count": "count(*)",
        "groups": "level, count(*), avg(latency_ms)",
        "one_column": "status",
        "rows": "*",
    }[kind]
    tail = " GROUP BY level" if kind == "groups" else ""
    statement = f"SELECT {what} FROM read_parquet('{file}') WHERE {condition}{tail}"
    return lambda: lambda: connection.sql(statement).to_arrow_table()


def lance(folder: str, question: str) -> Prepare:
    """The question asked of Lance with its full-text index."""
    import lance as library  # noqa: PLC0415 - only where it is installed

    data = library.dataset(str(Path(folder) / "lance"))
    _, _, text, kind = QUESTIONS[question]
    query = {"query": text, "columns": ["message"]}

    def act() -> object:
        match kind:
            case "count":
                return (
                    data.scanner(
                        full_text_query=query, columns=["status"], disable_scoring_autoprojection=True
                    )
                    .to_table()
                    .num_rows
                )
            case "groups":
                found = data.scanner(
                    full_text_query=query,
                    columns=["level", "latency_ms"],
                    disable_scoring_autoprojection=True,
                ).to_table()
                return found.group_by("level").aggregate([("latency_ms", "mean"), ("latency_ms", "count")])
            case _:
                return data.scanner(full_text_query=query).to_table()

    return lambda: act


def datafusion(folder: str, question: str) -> Prepare:
    """A full scan by DataFusion of plain Parquet."""
    context = SessionContext()
    context.register_parquet("plain", str(Path(folder) / "plain.parquet"))
    what = "status" if QUESTIONS[question][3] == "one_column" else "*"
    return lambda: lambda: context.sql(f"SELECT {what} FROM plain").to_arrow_table()
