"""The same rows as a table of ours and as plain Parquet, and queries that must answer alike on both."""

import datetime as dt
import decimal
import math
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import indextables

UTC = dt.UTC
START = dt.datetime(2024, 2, 28, 22, tzinfo=UTC)
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "error",
    "timeout",
    "refused",
    "connection",
    "closed",
    "open",
    "retry",
    "warn",
]


def event_rows(count: int = 600, seed: int = 7) -> pa.Table:
    """Rows of many types with nulls, NaN, both zeros, extremes and texts that need care."""
    pick = random.Random(seed)
    odd = [
        "",
        " ",
        "a ",
        "A",
        "ä",
        "a_b%c",
        "it's",
        'say "x"',
        "C:\\temp\\x",
        "a:b",
        "*",
        "?",
        "\u00df",
        "zz" * 40,
    ]

    def maybe(value: Any, share: float = 0.12) -> Any:
        return None if pick.random() < share else value

    def row(i: int) -> dict[Any, Any]:
        return {
            "id": i,
            "tiny": maybe(pick.randint(-128, 127)),
            "small": maybe(pick.choice([-32768, 32767, 0, pick.randint(-5, 5)])),
            "num": maybe(pick.randint(-20, 20)),
            "big": maybe(pick.choice([-(2**63), 2**63 - 1, 0, pick.randint(-(10**12), 10**12)])),
            "real": maybe(pick.choice([math.nan, math.inf, -0.0, 0.0, 1.5, 0.1, -3.25])),
            "x": maybe(pick.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, pick.uniform(-9, 9)])),
            "price": maybe(decimal.Decimal(pick.randint(-99999, 99999)).scaleb(-2)),
            "wide": maybe(decimal.Decimal(pick.randint(-(10**30), 10**30)).scaleb(-8)),
            "flag": maybe(pick.random() < 0.5),
            "day": maybe(dt.date(2024, 2, 27) + dt.timedelta(days=pick.randint(-2, 4))),
            "ts": maybe(START + dt.timedelta(minutes=pick.randint(0, 4000), microseconds=pick.randint(0, 3))),
            "local": maybe(START.replace(tzinfo=None) + dt.timedelta(hours=pick.randint(0, 60))),
            "level": maybe(pick.choice(["INFO", "WARN", "ERROR", "error"])),
            "text": maybe(pick.choice([*odd, pick.choice(WORDS)])),
            "msg": maybe(" ".join(pick.choices(WORDS, k=pick.randint(1, 6)))),
            "raw": maybe(bytes([pick.randint(0, 255) for _ in range(pick.randint(0, 3))])),
            "user": maybe(
                {
                    "id": maybe(pick.randint(0, 9)),
                    "name": maybe(pick.choice(WORDS)),
                    "geo": maybe({"lat": 1.5 * i}),
                }
            ),
            "tags": maybe([maybe(w) for w in pick.choices(WORDS, k=pick.randint(0, 3))]),
            "counts": maybe([(w, pick.randint(0, 3)) for w in set(pick.choices(WORDS, k=2))]),
        }

    return pa.Table.from_pylist([row(i) for i in range(count)], SCHEMA)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("num", pa.int32()),
        ("big", pa.int64()),
        ("real", pa.float32()),
        ("x", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("wide", pa.decimal128(38, 8)),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("level", pa.string()),
        ("text", pa.string()),
        ("msg", pa.string()),
        ("raw", pa.binary()),
        (
            "user",
            pa.struct(
                [("id", pa.int32()), ("name", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))]
            ),
        ),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


class Pair:
    """Two tables of equal rows, as the views `ours` and `plain`."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Any,
        rows: pa.Table,
        *,
        splits: int = 3,
        partition_by: Any = (),
        options: Any = None,
        name: str = "events",
    ) -> None:
        self.spark = spark
        self.path = str(folder / f"{name}_it")
        self.ours, self.plain = f"{name}_ours", f"{name}_plain"
        step = -(-rows.num_rows // splits)
        for start in range(0, rows.num_rows, step):
            indextables.write(
                self.path,
                rows.slice(start, step),
                partition_by=partition_by,
                options=options or {"indexing.typemap.msg": "text"},
            )
        pq.write_table(rows, folder / f"{name}.parquet")
        spark.read.format("indextables").load(self.path).createOrReplaceTempView(self.ours)
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(self.plain)

    def ask(self, query: str, table: str | None = None) -> DataFrame:
        return self.spark.sql(query.replace("{t}", table or self.ours))

    def rows(self, query: str, table: str | None = None) -> list[Any]:
        return [plain(tuple(row)) for row in self.ask(query, table).collect()]

    def same(self, query: str, *, ordered: bool = False) -> Any:
        """The rows of a query, which both tables must agree on."""
        ours, theirs = self.rows(query), self.rows(query, self.plain)
        if not ordered:
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        assert ours == theirs, query
        return ours

    def plan(self, query: str) -> str:
        """What explain shows of the scan."""
        result: str = self.ask(query)._jdf.queryExecution().executedPlan().toString()
        return result


def plain(value: Any) -> Any:
    """A value that is equal to itself: NaN by its name, one zero, doubles without their last digits."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else (float(f"{value:.12g}") + 0.0)
        case dict():
            return tuple(sorted((plain(k), plain(v)) for k, v in value.items()))
        case tuple() | list():
            return tuple(plain(v) for v in value)
        case bytearray():
            return bytes(value)
        case _:
            return value
