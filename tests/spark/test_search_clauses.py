"""A search in every clause of SQL answers as a plain expression does there, which Spark computes over Parquet."""

import datetime as dt
import itertools
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

import indextables
from tests.spark.search_clauses import QUERIES, ours, plain

WORDS = (
    "timeout",
    "Timeout",
    "refused",
    "connection",
    "retry",
    "logout",
    "warn",
    "reading",
    "closed",
    "open",
)
ABOUT = ("an expert of databases", "Expert and novice", "a novice", "nobody", None)
NOTES = pa.schema(
    [
        ("id", pa.int64()),
        ("owner", pa.int32()),
        ("team", pa.string()),
        ("level", pa.string()),
        ("ms", pa.int32()),
        ("day", pa.date32()),
        ("message", pa.string()),
        ("client", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string()), ("floor", pa.int32())])),
    ]
)
OWNERS = pa.schema([("owner", pa.int32()), ("name", pa.string()), ("about", pa.string())])
COUNT, SPLITS = 2000, 4


def notes(seed: int = 12) -> pa.Table:
    """Notes of owners 1 to 24, about one value in ten null."""
    rng = random.Random(seed)

    def row(number: int) -> dict[str, Any]:
        values = {
            "owner": rng.randint(1, 24),
            "team": rng.choice("abc"),
            "level": rng.choice(("INFO", "INFO", "WARN", "ERROR")),
            "ms": rng.randint(0, 999),
            "day": dt.date(2024, 5, 1) + dt.timedelta(days=rng.randint(0, 9)),
            "message": " ".join(rng.choices(WORDS, k=rng.randint(1, 6))),
            "client": f"10.0.{rng.randint(0, 2)}.{rng.randint(1, 20)}",
            "tags": rng.choices(("red", "green", "blue"), k=rng.randint(0, 3)),
            "place": {"city": rng.choice(("Paris", "Rome", None)), "floor": rng.randint(0, 3)},
        }
        return {"id": number, **{key: None if rng.random() < 0.1 else value for key, value in values.items()}}

    return pa.Table.from_pylist([row(number) for number in range(COUNT)], NOTES)


def owners() -> pa.Table:
    """Owners 1 to 28, so that some have no notes, and an owner whose number is null."""
    names = itertools.cycle(("ann", "bob", "cid", None, "dora", "eve"))
    rows = [{"owner": n, "name": next(names), "about": ABOUT[n % len(ABOUT)]} for n in range(1, 29)]
    return pa.Table.from_pylist([*rows, {"owner": None, "name": "ann", "about": "expert"}], OWNERS)


class Clauses:
    """The tables of the queries, with and without an index."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        rows, step = notes(), COUNT // SPLITS
        options = {"indexing.typemap.message": "text", "indexing.typemap.client": "ip"}
        path = str(folder / "notes")
        versions = [
            indextables.write(path, rows.slice(start, step), options=options).version
            for start in range(0, COUNT, step)
        ]
        indextables.write(str(folder / "owners"), owners(), options={"indexing.typemap.about": "text"})
        for name in ("notes", "owners"):
            spark.read.format("indextables").load(str(folder / name)).createOrReplaceTempView(f"our_{name}")
        for name, table in {"notes": rows, "owners": owners(), "first": rows.slice(0, 2 * step)}.items():
            pq.write_table(table, folder / f"{name}.parquet")
            spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(f"plain_{name}")
        self.ours = {
            "notes": "our_notes",
            "owners": "our_owners",
            "first": f"indextables.`{path}` VERSION AS OF {versions[1]}",
        }
        self.plain = {name: f"plain_{name}" for name in ("notes", "owners", "first")}

    def answer(self, statements: str) -> list[Row]:
        """The rows of the last statement; tables that others created are dropped again."""
        *before, query = statements.split("; ")
        try:
            for statement in before:
                self.spark.sql(statement)
            return self.spark.sql(query).collect()
        finally:
            for statement in before:
                if created := re.match(r"CREATE TABLE (\w+)", statement):
                    self.spark.sql(f"DROP TABLE IF EXISTS {created[1]}")

    def compare(self, query: str) -> None:
        new = set(re.findall(r"@(new\w*)", query))
        text = ours(query, self.ours | {name: f"our_{name}" for name in new})
        found = self.answer(text)
        expected = self.answer(plain(query, self.plain | {name: f"plain_{name}" for name in new}))
        assert expected, "a query without an answer compares nothing"
        if is_ordered(query):
            assert found == expected, text
        else:
            assert count(found) == count(expected), text


def is_ordered(query: str) -> bool:
    """Whether the last statement has an ORDER BY outside of all parentheses."""
    outer = query.rpartition("; ")[2]
    while (shorter := re.sub(r"\([^()]*\)", "", outer)) != outer:
        outer = shorter
    return "ORDER BY" in outer


def count(rows: list[Row]) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows)


@pytest.fixture(scope="module")
def clauses(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clauses:
    return Clauses(spark, tmp_path_factory.mktemp("clauses"))


@pytest.mark.parametrize("name", QUERIES)
def test_a_search_in_this_clause_answers_as_a_plain_expression(clauses: Clauses, name: Any) -> None:
    clauses.compare(QUERIES[name])


def test_there_are_a_hundred_queries_and_each_one_has_a_search() -> None:
    assert len(QUERIES) >= 100
    assert all("[[" in query for query in QUERIES.values())
