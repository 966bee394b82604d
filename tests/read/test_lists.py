"""Lists of values and chains of ranges: the same answer as a plain reading, whatever their length."""

import datetime as dt
import decimal
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.options import Options
from indextables.predicate import And, Column, Compare, In, Not, Op, Or, Values, parse_condition
from indextables.predicate.operands import combine
from indextables.read.split_source import close_splits
from tests.read.read_oracle import compared
from tests.read.read_tables import Opened, opened

ROWS = 3000
SIZES = [1, 2, 15, 17, 100, 1_000, 5_000]
MAKERS = {
    "n": (pa.int32(), lambda i: i * 3),
    "big": (pa.int64(), lambda i: i * 10**12 - 2**62),
    "f": (pa.float64(), lambda i: [0.0, -0.0, float("nan"), float("inf")][i] if i < 4 else i / 4),
    "g": (pa.float32(), lambda i: i / 2),
    "d": (pa.decimal128(12, 2), lambda i: decimal.Decimal(i) / 4),
    "wide": (pa.decimal128(30, 3), lambda i: decimal.Decimal(i) * 10**20),
    "day": (pa.date32(), lambda i: dt.date(1900, 1, 1) + dt.timedelta(i)),
    "ts": (pa.timestamp("us", "UTC"), lambda i: dt.datetime(1960, 1, 1, tzinfo=dt.UTC) + dt.timedelta(0, i)),
    "s": (pa.string(), lambda i: f"name-{i}"),
    "h": (pa.string(), lambda i: f"key-{i}"),
    "t": (pa.string(), lambda i: f"some word{i}"),
    "ip": (pa.string(), lambda i: f"10.0.{i >> 8}.{i & 255}" if i < 60_000 else f"no address {i}"),
    "plain": (pa.string(), lambda i: f"x{i}"),
    "raw": (pa.binary(), lambda i: f"bytes {i}".encode()),
    "flag": (pa.bool_(), lambda i: bool(i % 2)),
    "part": (pa.int32(), lambda i: i % 7),
}
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in MAKERS.items())])
OPTIONS = {
    "indexing.typemap.t": "text",
    "indexing.typemap.h": "exact_only",
    "indexing.typemap.ip": "ip",
    "indexing.storeonlyfields": "plain",
    "indexing.nonfastfields": "big",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    rng = random.Random(5)
    rows = [
        {
            "id": i,
            **{
                name: None if rng.random() < 0.1 else make(rng.randint(0, 4000))
                for name, (_, make) in MAKERS.items()
            },
        }
        for i in range(ROWS)
    ]
    place = tmp_path_factory.mktemp("lists")
    indextables.write(
        place / "t", pa.Table.from_pylist(rows, schema=SCHEMA), options=OPTIONS, partition_by=["part"]
    )
    return opened(place / "t", rows, place / "cache")


def is_in(value: Any, keys: set[Any], has_null: bool) -> bool | None:
    if value is None:
        return None
    if key_of(value) in keys:
        return True
    return None if has_null else False


def key_of(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("column", MAKERS)
def test_lists_of_any_length_hold_what_a_plain_reading_finds(table: Opened, column: str, seed: int) -> None:
    rng = random.Random(seed)
    kind, make = MAKERS[column]
    for size in SIZES:
        values = [make(rng.randint(0, 12_000)) for _ in range(size)]
        has_null = rng.random() < 0.3
        literals = pa.array([*values, None] if has_null else values, kind)
        keys = {key_of(value) for value in pa.array(values, kind).to_pylist()}
        answers = {row["id"]: is_in(row[column], keys, has_null) for row in table.rows}
        condition = In(Column((column,)), Values(literals))
        assert table.ids(condition) == [i for i, answer in answers.items() if answer is True], size
        assert table.count(condition) == sum(answer is True for answer in answers.values())
        assert table.ids(Not(condition)) == [i for i, answer in answers.items() if answer is False], size


@pytest.mark.parametrize("column", ["n", "s", "part"])
def test_a_list_of_a_hundred_thousand_values_is_answered(table: Opened, column: str) -> None:
    kind, make = MAKERS[column]
    values = pa.array([make(i) for i in range(0, 200_000, 2)], kind)
    keys = set(values.to_pylist())
    condition = In(Column((column,)), Values(values))
    assert table.ids(condition) == [row["id"] for row in table.rows if row[column] in keys]
    assert table.count(Not(condition)) == sum(
        row[column] is not None and row[column] not in keys for row in table.rows
    )


@pytest.mark.parametrize(("count", "by_index"), [(10, True), (500, False)])
def test_a_long_list_of_numbers_is_looked_up_in_the_column_and_not_in_the_index(
    table: Opened, tmp_path: Path, count: int, by_index: bool
) -> None:
    close_splits()
    options = Options.parse({"cache.disk.path": str(tmp_path)})
    fresh = Opened(table.rows, table.store, table.snapshot, options)
    wanted = range(0, 30 * count, 30)
    condition = In(Column(("n",)), Values(pa.array(wanted, pa.int32())))
    assert fresh.ids(condition) == [row["id"] for row in table.rows if row["n"] in wanted]
    assert any(path.is_file() for path in tmp_path.rglob("*")) == by_index


def test_a_list_of_neighbouring_numbers_is_one_range(table: Opened) -> None:
    condition = In(Column(("n",)), tuple(pa.array(range(300, 2_300), pa.int32())))
    assert table.ids(condition) == [
        r["id"] for r in table.rows if r["n"] is not None and 300 <= r["n"] < 2_300
    ]


@pytest.mark.parametrize("column", ["n", "big", "f", "d", "day", "ts"])
@pytest.mark.parametrize("count", [2, 17, 200])
def test_chains_of_ranges_are_answered_as_each_range_alone(
    table: Opened, column: str, count: int, seed: int
) -> None:
    rng = random.Random(seed)
    kind, make = MAKERS[column]
    own = Column((column,))
    parts: list[Any] = []
    ranges = []
    for _ in range(count):
        low = rng.randint(4, 4_000)
        low, high = make(low), make(low + rng.randint(0, 3))
        ops = rng.choice([Op.GT, Op.GE]), rng.choice([Op.LT, Op.LE])
        ranges.append((ops, low, high))
        parts.append(
            And((Compare(ops[0], own, pa.scalar(low, kind)), Compare(ops[1], own, pa.scalar(high, kind))))
        )
    parts.append(Compare(Op.EQ, own, pa.scalar(make(77), kind)))
    ranges.append(((Op.GE, Op.LE), make(77), make(77)))
    known = [
        (
            row["id"],
            any(
                compared(o[0], row[column], low) and compared(o[1], row[column], high)
                for o, low, high in ranges
            ),
        )
        for row in table.rows
        if row[column] is not None
    ]
    assert table.ids(Or(tuple(parts))) == [i for i, inside in known if inside]
    assert table.ids(Not(Or(tuple(parts)))) == [i for i, inside in known if not inside]


def test_many_equalities_joined_by_or_become_one_list(table: Opened) -> None:
    wanted = list(range(0, 3_000, 30))
    text = " OR ".join([*(f"n = {value}" for value in wanted), "s = 'name-5'"])
    condition: Any = parse_condition(text, SCHEMA)
    assert any(isinstance(part, In) and len(part.values) == len(wanted) for part in condition.parts)
    assert table.ids(condition) == [
        row["id"] for row in table.rows if row["n"] in set(wanted) or row["s"] == "name-5"
    ]


def test_a_joined_list_keeps_a_null_among_its_values() -> None:
    own = Column(("n",))
    parts = [Compare(Op.EQ, own, pa.scalar(value, pa.int32())) for value in range(20)]
    found = combine(Or, [*parts, In(own, (pa.scalar(None, pa.int32()), pa.scalar(50, pa.int32())))])
    assert isinstance(found, In)
    assert found.array.null_count == 1
    assert len(found.values) == 22


def test_a_list_of_literals_of_several_types_is_answered(table: Opened) -> None:
    literals = (pa.scalar(3, pa.int64()), pa.scalar(6.0, pa.float64()), pa.scalar(decimal.Decimal("9.0")))
    condition = In(Column(("n",)), literals)
    assert condition.array is None
    assert table.ids(condition) == [row["id"] for row in table.rows if row["n"] in {3, 6, 9}]
