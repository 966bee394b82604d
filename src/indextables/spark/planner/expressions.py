"""Filter pushdown: Spark's expressions as conditions, where both give the same result.

Spark has added its casts already, so both sides of a comparison have the same type. Spark evaluates all other
expressions on the rows that a scan returns.
"""

import base64
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate import (
    Always,
    And,
    IsNull,
    Op,
    Or,
    Predicate,
    Search,
    TextMatchKind,
    Values,
    membership,
)
from indextables.predicate.operands import (
    ColumnOperand,
    ConditionOperand,
    LiteralOperand,
    Operand,
    combine,
    comparison,
    condition_of,
    in_list,
    is_null,
    negate,
    text_match,
)
from indextables.predicate.tree import resolve
from indextables.records import dataclass
from indextables.schema.spark import to_arrow
from indextables.schema.type_info import TYPE_INFO, TypeKind, is_collated, kind_of

Expression: TypeAlias = Mapping[str, Any]

_COMPARISONS = {
    "=": Op.EQ,
    "<=>": Op.NULL_SAFE,
    "<": Op.LT,
    "<=": Op.LE,
    ">": Op.GT,
    ">=": Op.GE,
}
_TEXT_MATCHES = {
    "STARTS_WITH": TextMatchKind.STARTS,
    "ENDS_WITH": TextMatchKind.ENDS,
    "CONTAINS": TextMatchKind.CONTAINS,
}
# Types whose values compare as in Spark; intervals, times of day and nested types do not.
_COMPARABLE = frozenset(kind for kind, info in TYPE_INFO.items() if info.comparable)
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


class NotPushableError(Exception):
    """Only Spark can evaluate the expression."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that names in an expression refer to: the table's, and virtual columns of searches."""

    schema: pa.Schema
    searches: Mapping[str, Search] = field(default_factory=dict)


def condition(expression: Expression, scope: Scope) -> Predicate | None:
    """An expression as a condition; None if Spark has to evaluate it."""
    try:
        return condition_of(_operand(expression, scope))
    except (NotPushableError, PredicateError):
        return None


def conditions(expressions: Sequence[Expression], scope: Scope) -> list[Predicate | None]:
    """Expressions as conditions; None for each that Spark has to evaluate."""
    return [condition(expression, scope) for expression in expressions]


def _operand(expression: Expression, scope: Scope) -> Operand:
    match expression["kind"]:
        case "col":
            return _column(expression["path"], scope)
        case "lit":
            return LiteralOperand(literal(expression), 0)
        case "cast":
            return _widening_cast(expression, scope)
        case "op" if "list" in expression:
            return ConditionOperand(_in_packed_list(expression, scope), 0)
        case "op":
            return ConditionOperand(_predicate(expression["op"], expression["args"], scope), 0)
        case _:
            pass
    raise NotPushableError


def _column(path: Sequence[str], scope: Scope) -> Operand:
    if len(path) == 1 and (search := scope.searches.get(path[0])) is not None:
        return ConditionOperand(search, 0)
    column, arrow = resolve(scope.schema, path)
    outer = scope.schema.field(column.path[0])
    if kind_of(arrow) not in _COMPARABLE or _is_special(outer, column.path):
        return _NullTestOperand(column, arrow, 0)
    return ColumnOperand(column, arrow, 0)


@dataclass(frozen=True, slots=True)
class _NullTestOperand(ColumnOperand):
    """A column that can only be tested for null."""


def _is_special(outer: pa.Field, path: Sequence[str]) -> bool:
    """Whether a column's values are stored in another type, or compared by a collation."""
    field = outer
    for name in path[1:]:
        field = field.type.field(field.type.get_field_index(name))
    if is_collated(outer) or is_collated(field):
        return True
    tag = (field.metadata or {}).get(b"indextables.type", b"").decode()
    return bool(tag) and not tag.startswith(("varchar", "char"))


def _predicate(name: str, args: Sequence[Expression], scope: Scope) -> Predicate:
    if name in _COMPARISONS or name == "<>":
        left, right = (_comparable(_operand(arg, scope)) for arg in args)
        if name == "<>":
            return negate(comparison(Op.EQ, left, right, "UTC"))
        return comparison(_COMPARISONS[name], left, right, "UTC")
    if name in _TEXT_MATCHES:
        left, right = (_comparable(_operand(arg, scope)) for arg in args)
        return text_match(_TEXT_MATCHES[name], left, _text(right))
    match name:
        case "AND" | "OR":
            parts = [condition_of(_operand(arg, scope)) for arg in args]
            return combine(And if name == "AND" else Or, parts)
        case "NOT":
            return negate(condition_of(_operand(args[0], scope)))
        case "IS_NULL" | "IS_NOT_NULL":
            null_test = _null_test(_operand(args[0], scope))
            return null_test if name == "IS_NULL" else negate(null_test)
        case "IN":
            return _in_list(_comparable(_operand(args[0], scope)), args[1:], scope)
        case "ALWAYS_TRUE" | "ALWAYS_FALSE":
            return Always(name == "ALWAYS_TRUE")
        case "BOOLEAN_EXPRESSION" if len(args) == 1:
            return condition_of(_operand(args[0], scope))
    raise NotPushableError


def _in_list(left: Operand, items: Sequence[Expression], scope: Scope) -> Predicate:
    """`left IN (items)`; literals of one type, of which there may be very many, are read together."""
    types = {item["type"] if item["kind"] == "lit" else None for item in items}
    if isinstance(left, ColumnOperand) and len(types) == 1 and None not in types:
        values = Values(literals([item["value"] for item in items], str(types.pop())))
        return membership(left.column, left.type, values)
    return in_list(left, [_comparable(_operand(item, scope)) for item in items], "UTC")


def _in_packed_list(expression: Expression, scope: Scope) -> Predicate:
    """`column IN (a long list)`."""
    left = _comparable(_operand(expression["args"][0], scope))
    values = Values(packed_literals(expression["list"]))
    if isinstance(left, ColumnOperand):
        return membership(left.column, left.type, values)
    return in_list(left, [LiteralOperand(value, 0) for value in values], "UTC")


def packed_literals(packed: Mapping[str, Any]) -> pa.Array:
    """The values of a long list, as the bridge packs them."""
    arrow, plain = _spark_type(packed["type"])
    family = kind_of(arrow)
    if not plain or family not in _READERS:
        raise NotPushableError
    if "numbers" in packed:
        numbers = pa.array(np.frombuffer(base64.b64decode(packed["numbers"]), "<i8"))
        integers = pa.int32() if arrow.bit_width == 32 else pa.int64()
        whole = arrow if family is TypeKind.INTEGER else integers
        values = numbers.cast(whole).cast(arrow)
    else:
        buffers = [pa.py_buffer(base64.b64decode(packed[name])) for name in ("offsets", "bytes")]
        count = len(buffers[0]) // 8 - 1
        values = pa.LargeStringArray.from_buffers(count, *buffers).cast(pa.string())
        if values.type != arrow:
            raise NotPushableError
    return pa.concat_arrays([values, pa.nulls(1, arrow)]) if packed["has_null"] else values


def _null_test(operand: Operand) -> Predicate:
    if isinstance(operand, _NullTestOperand):
        return IsNull(operand.column)
    return is_null(operand)


def _comparable(operand: Operand) -> Operand:
    if isinstance(operand, _NullTestOperand):
        raise NotPushableError
    return operand


def _text(operand: Operand) -> str | None:
    if not isinstance(operand, LiteralOperand) or kind_of(operand.scalar.type) is not TypeKind.STRING:
        raise NotPushableError
    return None if not operand.scalar.is_valid else str(operand.scalar.as_py())


def _widening_cast(expression: Expression, scope: Scope) -> Operand:
    """A column cast to a wider type: comparing it is comparing the column itself."""
    inner = _comparable(_operand(expression["args"][0], scope))
    target, _ = _spark_type(expression["type"])
    if isinstance(inner, ColumnOperand) and _widens(inner.type, target):
        return inner
    raise NotPushableError


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast maps distinct values to distinct values, in the same order."""
    before, after = kind_of(source), kind_of(target)
    match before, after:
        case TypeKind.INTEGER, TypeKind.INTEGER:
            return bool(source.bit_width <= target.bit_width)
        case TypeKind.INTEGER, TypeKind.FLOAT:
            return bool(target.bit_width == 64)
        case TypeKind.INTEGER, TypeKind.DECIMAL:
            return bool(target.precision - target.scale >= _DIGITS[source.bit_width])
        case TypeKind.DECIMAL, TypeKind.DECIMAL:
            whole = source.precision - source.scale
            return bool(target.scale >= source.scale and target.precision - target.scale >= whole)
        case TypeKind.FLOAT, TypeKind.FLOAT:
            return bool(source.bit_width <= target.bit_width)
        case _:
            pass
    return False


# --- literals ---------------------------------------------------------------------------------------


def literal(expression: Expression) -> pa.Scalar:
    """A literal in Catalyst's form: days, microseconds, and as text the numbers that JSON would round."""
    return literals([expression["value"]], expression["type"])[0]


def literals(values: Sequence[Any], type_: str) -> pa.Array:
    """Literals of one type."""
    arrow, plain = _spark_type(type_)
    if all(value is None for value in values):
        return pa.nulls(len(values), arrow)
    family = kind_of(arrow)
    if not plain or family not in _READERS:
        raise NotPushableError
    read = _READERS[family]
    return pa.array([None if value is None else read(value) for value in values], arrow)


_READERS: Mapping[TypeKind, Callable[[Any], object]] = {
    TypeKind.BOOLEAN: bool,
    TypeKind.INTEGER: int,
    TypeKind.FLOAT: float,
    TypeKind.DECIMAL: decimal.Decimal,
    TypeKind.STRING: str,
    TypeKind.BINARY: base64.b64decode,
    TypeKind.DATE: int,
    TypeKind.TIMESTAMP: int,
    TypeKind.TIMESTAMP_NTZ: int,
}


@lru_cache(maxsize=256)
def _spark_type(text: str) -> tuple[pa.DataType, bool]:
    """A type as `DataType.json` writes it, and whether it is stored as itself."""
    schema = {"type": "struct", "fields": [{"name": "value", "type": json.loads(text)}]}
    field = to_arrow(json.dumps(schema)).field(0)
    return field.type, not field.metadata
