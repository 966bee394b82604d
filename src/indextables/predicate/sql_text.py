"""Writes a condition tree as SQL; parsing the text gives the same condition."""

import math
import re
from collections.abc import Callable, Sequence
from typing import assert_never

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.lexer import OPERATORS
from indextables.predicate.tree import (
    Always,
    And,
    ArrayContains,
    Column,
    Compare,
    Element,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Or,
    Predicate,
    Search,
    Size,
    Step,
    StructField,
    TextMatch,
)
from indextables.schema.calendar import format_date, format_timestamp
from indextables.schema.type_info import TypeKind, kind_of

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    {*OPERATORS, "RLIKE", "REGEXP", "NULL", "TRUE", "FALSE", "CASE", "INTERVAL", "EXISTS", "_INDEXALL"}
)
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def to_sql(predicate: Predicate) -> str:
    """The condition as SQL.

    >>> to_sql(And((Not(IsNull(Column(("a", "b")))), Always(True))))
    'NOT a.b IS NULL AND TRUE'
    """
    return _sql(predicate, _name)


def _sql(predicate: Predicate, name: Callable[[Column], str]) -> str:  # noqa: C901 - one case a kind
    match predicate:
        case And(parts):
            return " AND ".join(_within(part, name, Or, And) for part in parts) or "TRUE"
        case Or(parts):
            return " OR ".join(_within(part, name, Or) for part in parts) or "FALSE"
        case Not(part):
            return f"NOT {_within(part, name, Or, And)}"
        case NestedCondition(column, steps, part):
            value = _nested_value(name(column), steps)
            text = _sql(part, lambda _: value)
            return f"({text})" if isinstance(part, And | Or | Not) else text
        case Always(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case IsNull(column):
            return f"{name(column)} IS NULL"
        case Compare(op, column, value):
            return f"{name(column)} {op.value} {_literal(value)}"
        case In(column, values):
            if not values:
                return f"({name(column)} IS NULL AND NULL)"
            return f"{name(column)} IN ({', '.join(map(_literal, values))})"
        case TextMatch(kind, column, text):
            return f"{kind.value.replace('_', '')}({name(column)}, {_string(text)})"
        case Like(column, pattern, escape, ignore_case):
            operator = "ILIKE" if ignore_case else "LIKE"
            ending = "" if escape == "\\" else f" ESCAPE {_string(escape)}"
            return f"{name(column)} {operator} {_string(pattern)}{ending}"
        case Search(kind, column, query):
            return f"{'*' if column is None else name(column)} {kind.value.upper()} {_string(query)}"


def _nested_value(text: str, steps: Sequence[Step]) -> str:
    """A computed value as SQL writes it."""
    for step in steps:
        match step:
            case StructField(name):
                text = f"{text}.{_part(name)}"
            case Size():
                text = f"size({text})"
            case ArrayContains(item=item):
                text = f"array_contains({text}, {_literal(item)})"
            case Element(position=position, key=key):
                text = f"{text}[{position if key is None else _literal(key)}]"
    return text


def _within(part: Predicate, name: Callable[[Column], str], *looser: type[Predicate]) -> str:
    text = _sql(part, name)
    return f"({text})" if isinstance(part, looser) else text


def _name(column: Column) -> str:
    return ".".join(map(_part, column.path))


def _part(name: str) -> str:
    bare = _BARE.fullmatch(name) and name.upper() not in _RESERVED
    return name if bare else "`" + name.replace("`", "``") + "`"


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _literal(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    match kind_of(value.type):
        case TypeKind.INTEGER:
            return str(value.as_py())
        case TypeKind.FLOAT:
            number = float(value.as_py())
            return f"{number!r}D" if math.isfinite(number) else f"double('{number}')"
        case TypeKind.DECIMAL:
            return f"{value.as_py():f}BD"
        case TypeKind.STRING:
            return _string(value.as_py())
        case TypeKind.BINARY:
            return f"X'{value.as_py().hex()}'"
        case TypeKind.BOOLEAN:
            return str(value.as_py()).upper()
        case TypeKind.DATE:
            days = value.value if value.type == pa.date32() else value.value // 86_400_000
            return f"DATE '{format_date(days)}'"
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            if value.type.unit in _TICKS:
                text = format_timestamp(value.value * _TICKS[value.type.unit], " ")
                return f"TIMESTAMP_NTZ '{text}'" if value.type.tz is None else f"TIMESTAMP '{text}Z'"
        case (
            TypeKind.NULL
            | TypeKind.TIME
            | TypeKind.INTERVAL
            | TypeKind.LIST
            | TypeKind.MAP
            | TypeKind.STRUCT
            | TypeKind.OTHER
        ):
            pass
        case kind:
            assert_never(kind)
    raise PredicateError(f"a value of type {value.type} cannot be written in SQL")
