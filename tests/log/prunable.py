"""Small files with statistics of ours or of the original's making, and an oracle that looks at every row."""

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from indextables.options import Options
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    TextMatch,
    TextMatchKind,
)
from indextables.schema.values import NULL_PARTITION, PARQUET_TAG, Statistics, format_values

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("h", pa.int16()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(12, 2)),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("ts", UTC),
        ("local", pa.timestamp("us")),
        ("p", pa.int32()),
        ("q", pa.string()),
    ]
)
PARTITIONS = ("p", "q")
_MAP = pa.map_(pa.string(), pa.string())


def column(name: Any) -> Column:
    return Column((name,))


def array_of(values: Any, arrow: Any) -> pa.Array:
    """Dates and timestamps are given as numbers, since Python has not all of them."""
    if pa.types.is_date(arrow):
        return pa.array(values, pa.int32()).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return pa.array(values, pa.int64()).cast(arrow)
    return pa.array(values, arrow)


def batch_of(rows: Any, schema: Any = SCHEMA) -> pa.RecordBatch:
    columns = [array_of([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class File:
    """One file of rows; `partition` are its values of the partition columns."""

    rows: list[Any]
    partition: dict[str, Any]
    maker: str = "ours"

    def full_rows(self) -> list[Any]:
        return [{**row, **self.partition} for row in self.rows]

    def entry(
        self, options: Any = None, schema: Any = SCHEMA, partitions: Any = PARTITIONS
    ) -> dict[Any, Any]:
        rows = self.full_rows()
        texts = {}
        for name, value in self.partition.items():
            text = format_values(array_of([value], schema.field(name).type), partition=True)[0].as_py()
            texts[name] = NULL_PARTITION if text is None and self.maker != "ours" else text
        if self.maker == "ours":
            statistics = Statistics(schema, Options.parse(options), partitions)
            statistics.accumulate(batch_of(rows, schema))
            low, high, stats = statistics.texts()
            tags = [PARQUET_TAG]
        else:
            low, high, stats, tags = *foreign_bounds(self.rows, schema, self.maker), None, None
        return {
            "partitionValues": texts,
            "minValues": low,
            "maxValues": high,
            "stats": stats,
            "splitTags": tags,
        }


def table_of(entries: list[Any]) -> pa.Table:
    def maps(name: str) -> pa.Array:
        return pa.array([None if e[name] is None else list(e[name].items()) for e in entries], _MAP)

    return pa.table(
        {
            "path": pa.array([f"f{n}" for n in range(len(entries))]),
            "partitionValues": maps("partitionValues"),
            "minValues": maps("minValues"),
            "maxValues": maps("maxValues"),
            "stats": pa.array([e["stats"] for e in entries], pa.string()),
            "splitTags": pa.array([e["splitTags"] for e in entries], pa.list_(pa.string())),
        }
    )


# --- the original's statistics ----------------------------------------------------------------------


def foreign_bounds(rows: list[Any], schema: Any, maker: str) -> Any:
    """As the original computed them: `scala` in the older generation, `rust` in the newer."""
    low, high = {}, {}
    for field in schema:
        write = _foreign_text(field.type, maker)
        if write is None or field.name in PARTITIONS:
            continue
        values = [row.get(field.name) for row in rows]
        values = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        if not values:
            continue
        if pa.types.is_string(field.type):
            order = (lambda v: v.encode("utf-16-be")) if maker == "scala" else str.encode
            values.sort(key=order)
        else:
            values.sort()
        low[field.name], high[field.name] = _cut(write(values[0])), _cut(write(values[-1]))
    return {k: v for k, v in low.items() if v}, {k: v for k, v in high.items() if v}


def _cut(text: Any) -> Any:
    units = text.encode("utf-16-le")[:64]
    return units.decode("utf-16-le", errors="replace").replace("\ufffd", "?")


def _foreign_text(arrow: Any, maker: str) -> Any:
    if arrow in (pa.int64(), pa.int32()):
        return str
    if pa.types.is_floating(arrow):
        if maker == "scala":
            return lambda v: repr(v).replace("inf", "Infinity").replace("e", "E")
        return lambda v: "inf" if v == math.inf else "-inf" if v == -math.inf else f"{Decimal(repr(v)):f}"
    if pa.types.is_string(arrow):
        return str
    if pa.types.is_boolean(arrow):
        return lambda v: str(v).lower()
    if pa.types.is_date(arrow):
        if maker == "rust":
            return lambda v: str(v * 86_400_000_000)
        return lambda v: date.fromordinal(v + 719_163).isoformat()
    if arrow == UTC:
        return str
    return None


# --- the oracle -------------------------------------------------------------------------------------


def truth(predicate: Any, row: Any) -> Any:
    """True, False or None (unknown) for a row, as Spark would say."""
    match predicate:
        case Always(value):
            return value
        case And(parts):
            found = [truth(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case IsNull(col):
            return row.get(col.name) is None
        case Compare(op, col, value):
            return compare(op, row.get(col.name), SCHEMA.field(col.name).type, value)
        case In(col, values):
            if not values:
                return False
            return truth(Or(tuple(Compare(Op.EQ, col, value) for value in values)), row)
        case TextMatch(kind, col, text):
            value = row.get(col.name)
            if value is None:
                return None
            tests = {TextMatchKind.STARTS: value.startswith, TextMatchKind.ENDS: value.endswith}
            return tests[kind](text) if kind in tests else text in value
        case Like(col, pattern, escape):
            value = row.get(col.name)
            return None if value is None else like(value, pattern, escape)
        case _:
            pass
    raise AssertionError(predicate)


def like(value: Any, pattern: str, escape: str) -> Any:
    if not pattern:
        return not value
    head, rest = pattern[0], pattern[1:]
    if head == escape and rest:
        return value[:1] == rest[0] and like(value[1:], rest[1:], escape)
    if head == "%":
        return any(like(value[n:], rest, escape) for n in range(len(value) + 1))
    return bool(value) and (head in ("_", value[0])) and like(value[1:], rest, escape)


def compare(op: Op, value: Any, arrow: Any, literal: Any) -> Any:
    held = literal_value(literal)
    if op is Op.NULL_SAFE and (value is None or held is None):
        return value is None and held is None
    if value is None or held is None:
        return None
    left, right = sortable(value, arrow, literal.type), sortable(held, literal.type, arrow)
    return {
        Op.EQ: left == right,
        Op.NULL_SAFE: left == right,
        Op.LT: left < right,
        Op.LE: left <= right,
        Op.GT: left > right,
        Op.GE: left >= right,
    }[op]


def literal_value(literal: Any) -> Any:
    if not literal.is_valid:
        return None
    if pa.types.is_date(literal.type) or pa.types.is_timestamp(literal.type):
        return literal.value
    return literal.as_py()


def sortable(value: Any, own: Any, other: Any) -> Any:
    """A value as Spark compares it with one of another type: as doubles if either is one."""
    if isinstance(value, str):
        if pa.types.is_date(other):
            return (0, (date.fromisoformat(value) - date(1970, 1, 1)).days)
        return (0, value.encode())
    if pa.types.is_floating(own) or pa.types.is_floating(other):
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    return (0, Fraction(value))
