"""The work that `bench.engine_read` measures: the same questions put to us, DuckDB, Lance, DataFusion."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datafusion import SessionContext

import indextables
from bench import logs
from bench.measure import Prepare
from indextables import read
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import Column, In, Values, parse_condition
from indextables.read import Aggregate, Function
from indextables.read.split_source import close_splits
from indextables.split.index.cache import index_cache
from indextables.store import Store, open_store

Opened = TypeVar("Opened")

TEXT = {"indexing.typemap.message": "text"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked (`rows`, `one_column`, `count` or `groups`), and of which rows.

    `query` is asked of our index and of Lance's; `condition` of DuckDB, and of Lance where its index has no
    answer (it knows no wildcards).
    """

    what: str
    query: str | None = None
    condition: str = "true"

    @property
    def is_scan(self) -> bool:
        """Whether all rows are read."""
        return self.query is None


def _holding(what: str, word: str) -> Question:
    return Question(what, word, f"message LIKE '%{word}%'")


QUESTIONS = {
    "needle": _holding("rows", logs.NEEDLE),
    "hundred": _holding("rows", logs.HUNDRED),
    "percent": _holding("rows", logs.ONE_PERCENT),
    "half": _holding("rows", logs.HALF),
    "phrase": Question("count", '"connection to"', "message LIKE '%connection to%'"),
    "wildcard": Question("count", "retrans*", r"regexp_matches(message, '\bretrans')"),
    "count": _holding("count", logs.ONE_PERCENT),
    "groups": _holding("groups", logs.ONE_PERCENT),
    "one column": Question("one_column"),
    "all columns": Question("rows"),
}


def make(folder: str, rows: int) -> None:
    """The same rows as a table of ours and as plain Parquet."""
    place = Path(folder)
    indextables.write(place / "table", logs.reader(rows), options=TEXT)
    pq.write_table(logs.table(rows), place / "plain.parquet", compression="zstd")


def make_lance(folder: str, rows: int) -> None:
    """The same rows in Lance with its full-text index, and with positions in it, for phrases."""
    import lance  # noqa: PLC0415 - only where it is installed

    for name, positions in (("lance", False), ("lance-positions", True)):
        data = lance.write_dataset(logs.table(rows), str(Path(folder) / name))
        data.create_scalar_index("message", "INVERTED", with_position=positions)


def ours(folder: str, question: str, state: str = "warm") -> Prepare:
    """A question asked of our table; cold means with nothing open and nothing in the disk cache."""
    options = Options.parse({"cache.disk.path": str(Path(folder) / "cache")})
    store = open_store(Path(folder) / "table")
    snapshot = TransactionLog(store, engine="bench").snapshot()
    snapshot.files()
    asked = QUESTIONS[question]
    where = None if asked.is_scan else parse_condition(f"message INDEXQUERY '{asked.query}'", snapshot.schema)

    def act() -> object:
        match asked.what:
            case "count":
                return read.count(snapshot, store, options, where=where)
            case "groups":
                wanted = [Aggregate(Function.COUNT), Aggregate(Function.AVG, "latency_ms")]
                return read.aggregate(
                    snapshot, store, options, aggregates=wanted, group_by=["level"], where=where
                )
            case _:
                columns = ["status"] if asked.what == "one_column" else None
                return read.scan(snapshot, store, options, columns=columns, where=where).read_all()

    def prepare() -> Callable[[], object]:
        if state == "cold":
            close_splits()
            index_cache(options).flush()
        return act

    return prepare


def duck(folder: str, question: str, state: str = "warm") -> Prepare:
    """The question asked of DuckDB over plain Parquet; cold means by a new connection."""
    asked = QUESTIONS[question]
    what = {
        "count": "count(*)",
        "groups": "level, count(*), avg(latency_ms)",
        "one_column": "status",
        "rows": "*",
    }[asked.what]
    tail = " GROUP BY level" if asked.what == "groups" else ""
    file = Path(folder) / "plain.parquet"
    statement = f"SELECT {what} FROM read_parquet('{file}') WHERE {asked.condition}{tail}"
    connect = _kept(duckdb.connect, state)

    def prepare() -> Callable[[], object]:
        connection = connect()
        return lambda: connection.sql(statement).to_arrow_table()

    return prepare


def lance(folder: str, question: str, state: str = "warm") -> Prepare:
    """The question asked of Lance, of its full-text index where it can; cold means newly opened."""
    import lance as library  # noqa: PLC0415 - only where it is installed

    asked = QUESTIONS[question]
    place = Path(folder) / ("lance-positions" if question == "phrase" else "lance")
    columns = {"count": ["status"], "one_column": ["status"], "groups": ["level", "latency_ms"], "rows": None}
    how = {"columns": columns[asked.what]} | _lance_condition(question)
    opened = _kept(lambda: library.dataset(str(place)), state)

    def prepare() -> Callable[[], object]:
        data = opened()

        def act() -> object:
            found = data.scanner(**how).to_table()
            match asked.what:
                case "count":
                    return found.num_rows
                case "groups":
                    return found.group_by("level").aggregate(
                        [("latency_ms", "mean"), ("latency_ms", "count")]
                    )
                case _:
                    return found

        return act

    return prepare


def _lance_condition(question: str) -> dict[str, object]:
    asked = QUESTIONS[question]
    match question:
        case "wildcard":
            return {"filter": asked.condition.replace("regexp_matches", "regexp_like")}
        case "phrase":
            from lance.query import PhraseQuery  # noqa: PLC0415 - only where it is installed

            query: object = PhraseQuery(asked.query.strip('"'), "message")
        case _ if asked.is_scan:
            return {}
        case _:
            query = {"query": asked.query, "columns": ["message"]}
    return {"full_text_query": query, "disable_scoring_autoprojection": True}


def datafusion(folder: str, question: str, state: str = "warm") -> Prepare:
    """A full scan by DataFusion of plain Parquet; cold means in a new session."""

    def session() -> SessionContext:
        context = SessionContext()
        context.register_parquet("plain", str(Path(folder) / "plain.parquet"))
        return context

    what = "status" if QUESTIONS[question].what == "one_column" else "*"
    opened = _kept(session, state)

    def prepare() -> Callable[[], object]:
        context = opened()
        return lambda: context.sql(f"SELECT {what} FROM plain").to_arrow_table()

    return prepare


def listed(folder: str, size: int) -> Prepare:
    """How many rows have one of so many values of `ts`, spread over the table."""
    snapshot, store, options = _opened(folder)
    where = In(Column(("ts",)), Values(_values_of_ts(folder, size)))
    return lambda: lambda: read.count(snapshot, store, options, where=where)


def column_and_list(folder: str, size: int) -> Prepare:
    """Read the column `ts` and let Arrow look each value up in the same list."""
    snapshot, store, options = _opened(folder)
    values = _values_of_ts(folder, size)

    def act() -> object:
        column = read.scan(snapshot, store, options, columns=["ts"]).read_all()["ts"]
        return pc.sum(pc.is_in(column, value_set=values))

    return lambda: act


def _opened(folder: str) -> tuple[Snapshot, Store, Options]:
    store = open_store(Path(folder) / "table")
    options = Options.parse({"cache.disk.path": str(Path(folder) / "cache")})
    return TransactionLog(store, engine="bench").snapshot(), store, options


def _values_of_ts(folder: str, size: int) -> pa.Array:
    snapshot, store, options = _opened(folder)
    column = read.scan(snapshot, store, options, columns=["ts"]).read_all()["ts"].combine_chunks()
    return column.take(pa.array(np.linspace(0, len(column) - 1, size).astype(np.int64)))


def _kept(open_it: Callable[[], Opened], state: str) -> Callable[[], Opened]:
    """What is opened once when warm, anew for every run when cold."""
    if state == "cold":
        return open_it
    once = open_it()
    return lambda: once
