"""Tables of every type with awkward values, the same rows as a table of ours and as plain Parquet."""

import datetime as dt
import decimal
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import indextables

D = decimal.Decimal
NAN, INFINITY = float("nan"), float("inf")

_SPOT = pa.struct(
    [("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.float64()), ("e", pa.date32())]))]
)

# Columns whose names need quotes in SQL, clash with other names, or are escaped in paths and indexes.
UNUSUAL: dict[str, pa.DataType] = {
    "spot.a": pa.int32(),
    "with space": pa.string(),
    "back`tick": pa.int32(),
    'quo"ted': pa.string(),
    "it's": pa.int32(),
    "select": pa.string(),
    "ünï ☃": pa.int32(),
    "x\\y": pa.string(),
    "50%/=#?": pa.int32(),
    "long" * 50: pa.int32(),
}
_UNUSUAL_STRUCT = pa.struct(
    [("x\\y", pa.int32()), ("a.b", pa.string()), ("from", pa.int32()), ("ü `☃", pa.int32())]
)

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("real", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 18)),
        ("flag", pa.bool_()),
        ("name", pa.string()),
        ("words", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("MixedCase", pa.int32()),
        ("spot", _SPOT),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.int32())),
        ("points", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        *UNUSUAL.items(),
        ("odd keys", _UNUSUAL_STRUCT),
    ]
)


def quoted(*path: str) -> str:
    """A column, or a field within a struct, as SQL writes it."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def _moments() -> list[dt.datetime]:
    """Around changes of clocks, leap days, the epoch; with microseconds."""
    texts = (
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00",
        "2024-02-29T12:30:00.000001",
        "2024-03-10T06:59:59.999999",
        "2024-03-10T07:00:00",
        "2024-03-31T00:59:59",
        "2024-03-31T01:00:00",
        "2024-10-27T00:30:00",
        "2024-10-27T01:30:00",
        "2024-11-03T05:30:00",
        "2024-11-03T06:30:00",
        "2024-12-31T23:59:59.999999",
        "2025-01-01T00:00:00",
        "1901-01-01T00:00:00",
        "2262-04-12T00:00:00.5",
        "2024-06-15T12:00:00.123456",
        "2024-06-15T12:00:00.123457",
    )
    return [dt.datetime.fromisoformat(text) for text in texts]


_TEXTS = [
    "alpha",
    "Alpha",
    "ALPHA",
    "beta",
    "gamma delta",
    "delta",
    "état",
    "x" * 200,
    "",
    " ",
    "null",
    "10",
    "9",
]
_ODD = [
    "a*b",
    "a?b",
    "100%",
    "under_score",
    "back\\slash",
    "it's",
    'say "hi"',
    "C:\\dir\\file.txt",
    "a:b",
    "alpha ",
]
_VOCABULARY = ["alpha", "beta", "gamma", "delta", "error", "timeout", "retry", "server7", "état", "x9"]

POOLS: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 127],
    "small": [-32768, -7, 0, 1, 9, 10, 32767],
    "whole": [-2147483648, -5, 0, 1, 2, 3, 9, 10, 100, 2147483647],
    "big": [-(1 << 63), -1, 0, 1, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 42],
    "single": [NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 3.4028234663852886e38, 0.10000000149011612],
    "real": [NAN, INFINITY, -INFINITY, 0.0, -0.0, 0.1, 0.30000000000000004, -2.5, 1e300, 5e-324, 42.0],
    "price": [D("0.00"), D("1.10"), D("-1.10"), D("9.99"), D("10.00"), D("99999999.99"), D("-99999999.99")],
    "huge": [D("0"), D("0.1"), D("0.100000000000000001"), D("-3"), D("12345678901234567890.123456789")],
    "flag": [True, False],
    "name": _TEXTS + _ODD,
    "raw": [b"", b"\x00", b"abc", b"\xff\xfe", b"abd"],
    "day": [
        dt.date(1969, 12, 31),
        dt.date(1970, 1, 1),
        dt.date(2024, 2, 29),
        dt.date(2024, 3, 10),
        dt.date(2024, 12, 31),
        dt.date(2025, 1, 1),
        dt.date(1900, 1, 1),
    ],
    "moment": [moment.replace(tzinfo=dt.UTC) for moment in _moments()],
    "local": _moments(),
    "MixedCase": [1, 2, 3, 4],
    **{
        name: [-3, 0, 1, 2, 7] if pa.types.is_int32(kind) else _TEXTS + _ODD for name, kind in UNUSUAL.items()
    },
}

# Columns that a table may be partitioned by.
PARTITIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("name",),
    ("tiny",),
    ("day",),
    ("flag", "small"),
    ("MixedCase",),
    ("price",),
    ("moment",),
    ("50%/=#?",),
    ("with space", "x\\y"),
    ("select", "ünï ☃"),
)
# Folders of tables: the last part of their names.
FOLDERS = ("", " with space", "%20", " ü☃", "'", "+&=,;", "[a]", "{b}", "#", "`$(x)")


# How columns may be indexed, which must not change any answer.
INDEXING: tuple[dict[str, str], ...] = (
    {},
    {"indexing.nonfastfields": "whole,real,day,moment,flag"},
    {"indexing.storeonlyfields": "whole,name,spot,price"},
    {"indexing.typemap.name": "text"},
    {"indexing.typemap.name": "exact_only"},
    {"indexing.typemap.name": "string,text", "indexing.json.mode": "minimal"},
)
# Columns that come with the second write, in tables whose schema grows.
_LATER = ["small", "spot", "local"]


@dataclass(frozen=True)
class Pair:
    """The same rows, once as a table of ours and once as plain Parquet, as views of a session."""

    ours: str
    plain: str
    partitions: tuple[str, ...]
    seed: int


def rows(rng: random.Random, count: int, first: int) -> pa.Table:
    """Random rows; a tenth of all values is null, and columns are null throughout now and then."""
    empty = {name for name in SCHEMA.names if name != "id" and rng.random() < 0.03}
    columns = {
        field.name: pa.array(
            [None if field.name in empty else _value(field.name, rng, first + i) for i in range(count)],
            field.type,
        )
        for field in SCHEMA
    }
    return pa.table(columns, schema=SCHEMA)


def _value(column: str, rng: random.Random, number: int) -> Any:
    if column == "id":
        return number
    if rng.random() < 0.1:
        return None
    match column:
        case "words":
            return sentence(rng)
        case "spot":
            inner = None if rng.random() < 0.2 else {"d": _of("real", rng), "e": _of("day", rng)}
            return {"a": _of("MixedCase", rng), "b": _of("name", rng), "c": inner}
        case "tags":
            return [_of("name", rng) for _ in range(rng.randrange(4))]
        case "attrs":
            return [(key, _of("whole", rng)) for key in rng.sample(["k", "K", "other", ""], rng.randrange(4))]
        case "odd keys":
            return {
                field.name: _of("MixedCase" if pa.types.is_int32(field.type) else "name", rng)
                for field in _UNUSUAL_STRUCT
            }
        case "points":
            return [{"x": _of("MixedCase", rng), "y": _of("name", rng)} for _ in range(rng.randrange(3))]
        case _:
            pass
    return rng.choice(POOLS[column])


def _of(column: str, rng: random.Random) -> Any:
    return None if rng.random() < 0.15 else rng.choice(POOLS[column])


def sentence(rng: random.Random) -> str:
    """A few words, now and then in capitals, between blanks and signs."""
    picked = [rng.choice(_VOCABULARY) for _ in range(rng.randrange(6))]
    cased = [word.upper() if rng.random() < 0.2 else word for word in picked]
    return rng.choice([" ", ", ", "-", "  "]).join(cased)


def make_pair(
    spark: SparkSession, folder: Path, seed: int, *, count: int, writes: int = 3, through_spark: bool = False
) -> Pair:
    """Make a table and its twin.

    Args:
        seed: decides the rows and how the table is partitioned.
        count: how many rows.
        writes: how many appends make the table; each adds splits. Every fourth table has at least four
            splits, with their term filters in bundles.
        through_spark: whether Spark writes the table, or plain Python.
    """
    rng = random.Random(seed)
    partitions = PARTITIONS[seed % len(PARTITIONS)]
    options = {"indexing.typemap.words": "text", **INDEXING[seed % len(INDEXING)]}
    options = {
        key: _without(value, partitions)
        for key, value in options.items()
        if key.removeprefix("indexing.typemap.") not in partitions
    }
    bundled = seed % 4 == 0
    if bundled:
        options["checkpoint.interval"] = "1"
        writes = writes if partitions else max(writes, 4)
    grows = seed % 5 == 2 and "small" not in partitions and not any("fields" in key for key in options)
    names = f"ours_{seed}", f"plain_{seed}"
    table, parquet = folder / (names[0] + FOLDERS[seed % len(FOLDERS)]), folder / names[1]
    parquet.mkdir(parents=True)
    size = count // writes
    for number in range(writes):
        made = rows(rng, size, number * size)
        if grows and number == 0:
            made = made.drop_columns(_LATER)
        file = parquet / f"part-{number}.parquet"
        pq.write_table(made, file)
        more = {**options, "mergeSchema": "true"} if grows and number else options
        if through_spark:
            writer = spark.read.parquet(str(file)).write.format("indextables").options(**more)
            writer.partitionBy(*map(quoted, partitions)).mode("append").save(str(table))
        else:
            indextables.write(table, made, partition_by=partitions, options=more)
    if bundled:
        assert sum(bundle.splits for bundle in indextables.open(table)._log.snapshot().filter_bundles) >= 4
    if seed % 7 == 3:
        indextables.open(table).merge()
    ours = spark.read.format("indextables").load(str(table))
    ours.createOrReplaceTempView(names[0])
    plain = spark.read.option("mergeSchema", "true").parquet(str(parquet))
    plain.select(*map(quoted, ours.columns)).createOrReplaceTempView(names[1])
    return Pair(*names, partitions, seed)


def _without(listed: str, partitions: tuple[str, ...]) -> str:
    """A list without the columns that a table is partitioned by: those have no index."""
    return ",".join(name for name in listed.split(",") if name not in partitions)
