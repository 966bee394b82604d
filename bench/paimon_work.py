"""The questions of `bench.engine_read` put to PyPaimon, in an environment of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema
from pypaimon.globalindex.create_global_index import create_global_index

from bench.measure import Prepare

_NAME = "bench.rows"
_OPTIONS = {
    "row-tracking.enabled": "true",
    "data-evolution.enabled": "true",
    "global-index.enabled": "true",
}


def _table(folder: str) -> Any:
    return CatalogFactory.create({"warehouse": f"{folder}/paimon"}).get_table(_NAME)


def make(folder: str) -> Prepare:
    """The rows of the Parquet file as a table with a full-text index of the messages; made once."""
    rows = pq.read_table(Path(folder) / "plain.parquet")
    catalog = CatalogFactory.create({"warehouse": f"{folder}/paimon"})
    if not (Path(folder) / "paimon").exists():
        catalog.create_database("bench", True)
        catalog.create_table(_NAME, Schema.from_pyarrow_schema(rows.schema, options=_OPTIONS), False)
        builder = catalog.get_table(_NAME).new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()
        create_global_index(catalog.get_table(_NAME), "message", "full-text")
    return lambda: lambda: None


def ask(folder: str, what: str, query: str | None, state: str) -> Prepare:
    """Ask for `rows`, `one_column`, `count` or `groups`; a query in quotes is a phrase, none is a scan.

    Cold means with a newly opened table.
    """
    columns = {"count": [], "one_column": ["status"], "groups": ["level", "latency_ms"], "rows": None}[what]
    once = _table(folder)
    count = pq.read_metadata(Path(folder) / "plain.parquet").num_rows

    def prepare() -> Callable[[], object]:
        table = _table(folder) if state == "cold" else once

        def act() -> object:
            found = None if query is None else _search(table, query, count)
            if what == "count":
                return found.results().cardinality()
            builder = table.new_read_builder()
            if columns:
                builder = builder.with_projection(columns)
            scan = builder.new_scan()
            if found is not None:
                scan = scan.with_global_index_result(found)
            rows = builder.new_read().to_arrow(scan.plan().splits())
            if what != "groups":
                return rows
            return rows.group_by("level").aggregate([("latency_ms", "mean"), ("latency_ms", "count")])

        return act

    return prepare


def answer(folder: str, what: str, query: str | None) -> int:
    """The number of rows, or the count that was asked for."""
    found: Any = ask(folder, what, query, "warm")()()
    return found if isinstance(found, int) else found.num_rows


def _search(table: Any, query: str, rows: int) -> Any:
    kind = "match_phrase" if query.startswith('"') else "match"
    search = table.new_full_text_search_builder()
    search.with_query("message", json.dumps({kind: {"query": query.strip('"')}}))
    search.with_limit(rows)  # a limit is required
    return search.execute_local()
