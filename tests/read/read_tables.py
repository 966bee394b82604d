"""Tables for the reading tests: odd values of many types, several splits, partitions, merged ones."""

import datetime as dt
import decimal
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import indextables
from indextables import read
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import merge as merging
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.store import Store, open_store

WORDS = [
    "alpha",
    "beta",
    "Gamma",
    "delta",
    "éclair",
    "run",
    "running",
    "x1",
    "a",
    "ALPHA",
    "naïve",
    "Σigma",
    "42",
]
LONG_WORD = "extraordinarily"
HUGE = "z" * 65_600

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("both", pa.string()),
        ("brief", pa.string()),
        ("loose", pa.string()),
        ("h", pa.string()),
        ("plain", pa.string()),
        ("ip", pa.string()),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(30, 3)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.string())),
        ("j", pa.string()),
    ]
)
INDEXING = {
    "indexing.typemap.t": "text",
    "indexing.typemap.s": "string",
    "indexing.typemap.both": "string,text",
    "indexing.typemap.brief": "text",
    "indexing.tokenLength.brief": "6",
    "indexing.typemap.loose": "text",
    "indexing.indexrecordoption.loose": "basic",
    "indexing.typemap.h": "exact_only",
    "indexing.typemap.ip": "ip",
    "indexing.typemap.j": "json",
    "indexing.storeonlyfields": "plain",
    "indexing.nonfastfields": "big",
}


def _text(rng: random.Random) -> str:
    words = [rng.choice([*WORDS, LONG_WORD]) for _ in range(rng.randint(0, 6))]
    return rng.choice([" ", "-", ", ", "\n"]).join(words)


def _name(rng: random.Random) -> str:
    return rng.choice(
        [
            "",
            "a",
            "A",
            "ab",
            "a b",
            "b",
            "é",
            "a%b",
            "a_b",
            "a*b",
            "a?b",
            "C:\\dir",
            "o'x",
            'q"x',
            "\x00",
            "zz",
        ]
    )


def _json(rng: random.Random) -> str:
    return rng.choice(
        [
            json.dumps({"k": rng.randint(0, 3), "w": rng.choice(["red", "blue"])}),
            json.dumps({"k": rng.choice([1.5, "1", True]), "in": {"x": rng.randint(0, 2)}}),
            json.dumps([1, "red", None]),
            json.dumps({"when": "2024-01-01T00:00:00Z", "a.b": 1}),
            "not json",
            '"red"',
        ]
    )


def _row(rng: random.Random, number: int) -> dict[str, object]:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return {
        "id": number,
        "part": rng.choice(["north", "south/x", None]),
        "s": maybe(_name(rng)) if rng.random() < 0.97 else HUGE,
        "t": maybe(_text(rng)),
        "both": maybe(_text(rng)),
        "brief": maybe(_text(rng)),
        "loose": maybe(_text(rng)),
        "h": maybe(_name(rng)),
        "plain": maybe(_name(rng)),
        "ip": maybe(
            rng.choice(
                [
                    "10.0.0.1",
                    "10.0.1.7",
                    "192.168.3.4",
                    "2001:db8::1",
                    "::ffff:10.0.0.1",
                    "nowhere",
                    "10.1.0.1",
                ]
            )
        ),
        "n": maybe(rng.randint(-3, 5)),
        "big": maybe(rng.choice([0, 1, 2**53 + 1, 2**53, -(2**63), 2**63 - 1, -5])),
        "f": maybe(
            rng.choice([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e300, 3.0])
        ),
        "g": maybe(rng.choice([0.0, -0.0, 0.1, 2.5, float("nan"), float("inf")])),
        "d": maybe(decimal.Decimal(rng.randint(-300, 300)) / 100),
        "wide": maybe(decimal.Decimal(rng.randint(-3, 3)) * 10**20),
        "day": maybe(dt.date(2024, 1, rng.randint(1, 5))),
        "ts": maybe(
            dt.datetime(2024, 1, rng.randint(1, 3), 5, 0, 0, rng.choice([0, 1, 999999]), tzinfo=dt.UTC)
        ),
        "flag": maybe(rng.random() < 0.5),
        "st": maybe({"a": maybe(rng.randint(0, 3)), "b": maybe(rng.choice(["x", "y", "x y"]))}),
        "l": maybe([maybe(rng.choice(["x", "y", "X y"])) for _ in range(rng.randint(0, 3))]),
        "j": maybe(_json(rng)),
    }


class Opened:
    """A table and the same rows as plain Python."""

    def __init__(
        self, rows: list[dict[str, Any]], store: Store, snapshot: Snapshot, options: Options
    ) -> None:
        self.rows = rows
        self.store = store
        self.snapshot = snapshot
        self.options = options

    def __repr__(self) -> str:
        return f"Opened({self.store.url})"

    def ids(self, where: Predicate | None) -> list[int]:
        found = read.scan(self.snapshot, self.store, self.options, columns=["id"], where=where).read_all()
        return sorted(found["id"].to_pylist())

    def count(self, where: Predicate | None) -> int:
        return read.count(self.snapshot, self.store, self.options, where=where)


def opened(folder: Path | str, rows: list[dict[str, Any]], cache: Path) -> Opened:
    options = Options.parse({"cache.disk.path": str(cache)})
    store = open_store(folder)
    snapshot = TransactionLog(store, engine="test").snapshot()
    return Opened(rows, store, snapshot, options)


def generated(folder: Path, kind: str, rows: int = 60, seed: int = 7) -> Opened:
    """A table of so many rows: in one split, in several with partitions or filter bundles, or merged."""
    rng = random.Random(seed)
    made = [_row(rng, number) for number in range(rows)]
    data = pa.Table.from_pylist(made, schema=SCHEMA)
    place = folder / "table"
    parts = {"single": 1, "bundled": 5}.get(kind, 3)
    partitions = ["part"] if kind == "partitioned" else []
    options = {**INDEXING, "checkpoint.interval": "1"} if kind == "bundled" else INDEXING
    for part in range(parts):
        size = -(-rows // parts)
        indextables.write(place, data.slice(part * size, size), partition_by=partitions, options=options)
    if kind == "merged":
        merging.merge(TransactionLog(open_store(place), engine="test"), Options())
    table = opened(place, data.to_pylist(), folder / "cache")
    if kind == "bundled":
        assert sum(bundle.splits for bundle in table.snapshot.filter_bundles) == parts
    if kind == "merged":
        assert table.snapshot.files().num_rows == 1
    return table
