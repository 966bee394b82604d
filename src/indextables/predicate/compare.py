"""Comparisons of a column with a literal of another type, as Spark compares them.

Spark widens both sides to a common type. Here the literal is converted instead, so that every value in the
tree has the type of its column: `tiny < 300` is true for every value, `whole > 1.5` is `whole >= 2`,
and a BIGINT equal to a DOUBLE is the range of integers that round to it.
"""

import functools
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.literals import parse_literal
from indextables.predicate.tree import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    Values,
    constant_unless_null,
)
from indextables.schema.calendar import DAY_MICROS, is_utc, to_utc
from indextables.schema.type_info import (
    DATETIME,
    LOCAL_TIMESTAMP,
    NUMERIC,
    UTC_TIMESTAMP,
    TypeKind,
    fixed_width,
    from_unscaled,
    info_of,
    is_signed_integer,
    kind_of,
    sql_name,
    value_type,
)

_INEQUALITIES = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def compare(
    column: Column, column_type: pa.DataType, op: Op, literal: pa.Scalar, *, time_zone: str = "UTC"
) -> Predicate:
    """`column op literal`, where the literal may have any type that Spark can compare with the column's.

    Raises:
        PredicateError: The two cannot be compared, or only by casting the column.
    """
    type_ = value_type(column_type)
    if not literal.is_valid:
        return IsNull(column) if op is Op.NULL_SAFE else Always(None)
    if kind_of(type_) is TypeKind.NULL:
        return Always(False if op is Op.NULL_SAFE else None)
    literal = _parse_text_literal(column, type_, literal, time_zone)
    family, other = kind_of(type_), kind_of(literal.type)
    if family is TypeKind.FLOAT and other in NUMERIC:
        return _compare_float(column, type_, op, float(literal.as_py()))
    if op in _INEQUALITIES and is_signed_integer(type_) and other is TypeKind.DECIMAL:
        beyond = _beyond_bigint(literal.as_py())
        if beyond:
            return Always((beyond > 0) == (op in {Op.LT, Op.LE}))
    if family in {TypeKind.INTEGER, TypeKind.DECIMAL} and other in NUMERIC:
        return _compare_whole(column, type_, op, _number_bounds(type_, literal))
    if family in DATETIME and other in DATETIME:
        return _compare_whole(column, type_, op, _time_bounds(column, type_, literal, time_zone))
    if family is other and family in {TypeKind.STRING, TypeKind.BINARY, TypeKind.BOOLEAN}:
        width = fixed_width(type_)
        if width is not None and len(literal.as_py()) != width:
            raise PredicateError(
                f"{column.name} has values of {width} bytes; compare it with one of this length"
            )
        return Compare(op, column, pa.scalar(literal.as_py(), type_))
    raise PredicateError(_not_comparable(column, type_, literal))


def _beyond_bigint(value: Decimal) -> int:
    """1 if the value is greater than any BIGINT, -1 if it is less, else 0.

    Spark's analyzer folds an inequality between an integer and such a DECIMAL to TRUE or FALSE, also for
    null, while `tiny < 300` is unknown for null.
    """
    return (value > (1 << 63) - 1) - (value < -(1 << 63))


def membership(
    column: Column, column_type: pa.DataType, literals: Iterable[pa.Scalar], *, time_zone: str = "UTC"
) -> Predicate:
    """`column IN (literals)`; as in Spark, one DOUBLE among numbers makes all of them doubles."""
    type_ = value_type(column_type)
    literals = list(literals) if not isinstance(literals, Values) else literals
    family = kind_of(type_)
    same = Values.of(literals)
    if (
        isinstance(same, Values)
        and same.array.type == type_
        and family is not TypeKind.NULL
        and info_of(type_).comparable
    ):
        return _same_type(column, same)
    valid_literals = [
        _parse_text_literal(column, type_, literal, time_zone) for literal in literals if literal.is_valid
    ]
    if family in NUMERIC and any(kind_of(literal.type) is TypeKind.FLOAT for literal in valid_literals):
        valid_literals = [
            pa.scalar(float(literal.as_py()), pa.float64()) if kind_of(literal.type) in NUMERIC else literal
            for literal in valid_literals
        ]
    has_null = len(valid_literals) < len(literals)
    values: list[pa.Scalar] = []
    ranges: list[Predicate] = []
    for literal in valid_literals:
        part = compare(column, type_, Op.EQ, literal, time_zone=time_zone)
        if isinstance(part, Compare):
            values.append(part.value)
        elif part != constant_unless_null(column, False):
            ranges.append(part)
    if has_null and (values or not ranges):
        values.append(pa.scalar(None, type_))
    if not any(value.is_valid for value in values) and not ranges:
        return Always(None) if has_null else constant_unless_null(column, False)
    parts = (
        [In(column, tuple(values)), *ranges] if values else [*ranges, *([Always(None)] if has_null else [])]
    )
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _same_type(column: Column, values: Values) -> Predicate:
    """A condition on values of the column's own type, without conversion."""
    if values.array.null_count < len(values):
        return In(column, values)
    return Always(None) if len(values) else constant_unless_null(column, False)


def _not_comparable(column: Column, type_: pa.DataType, literal: pa.Scalar) -> str:
    family = kind_of(type_)
    literal_name = sql_name(literal.type)
    problem = f"{column.name} is {sql_name(type_)} and cannot be compared with a value of type {literal_name}"
    if family is TypeKind.STRING:
        return f"{problem}; write the value in quotes"
    if not info_of(type_).comparable:
        return f"{problem}; name a field of it, or search it with INDEXQUERY"
    return f"{problem}; write one of type {sql_name(type_)}"


def _parse_text_literal(column: Column, type_: pa.DataType, literal: pa.Scalar, zone: str) -> pa.Scalar:
    """A text literal parsed as the column's type; other literals are returned unchanged."""
    family = kind_of(type_)
    if kind_of(literal.type) is not TypeKind.STRING or family is TypeKind.STRING:
        return literal
    text = literal.as_py()
    try:
        match family:
            case TypeKind.INTEGER:
                return parse_literal(text, pa.int64(), zone)
            case TypeKind.DECIMAL | TypeKind.FLOAT:  # Spark compares a DECIMAL with a text as DOUBLE
                return parse_literal(text, pa.float64(), zone)
            case TypeKind.TIMESTAMP:
                return parse_literal(text, UTC_TIMESTAMP, zone)
            case TypeKind.TIMESTAMP_NTZ:
                return parse_literal(text, LOCAL_TIMESTAMP, zone)
            case TypeKind.DATE:
                return parse_literal(text, pa.date32(), zone)
            case TypeKind.BOOLEAN | TypeKind.BINARY:
                return parse_literal(text, pa.bool_() if family is TypeKind.BOOLEAN else pa.binary(), zone)
            case (
                TypeKind.NULL
                | TypeKind.STRING
                | TypeKind.TIME
                | TypeKind.INTERVAL
                | TypeKind.LIST
                | TypeKind.MAP
                | TypeKind.STRUCT
                | TypeKind.OTHER
            ):
                pass
            case _:
                assert_never(family)
    except PredicateError as error:
        raise PredicateError(f"{column.name} is {sql_name(type_)}, but {error}") from None
    raise PredicateError(_not_comparable(column, type_, literal))


# --- whole numbers: integers, unscaled decimals, days, ticks ----------------------------------------


class _Bounds:
    """The integers that equal a value: from `first` up to, but without, `after`; may be empty."""

    __slots__ = ("after", "first")

    def __init__(self, first: int, after: int) -> None:
        self.first = first
        self.after = after

    @classmethod
    def of(cls, value: Fraction) -> "_Bounds":
        return cls(math.ceil(value), math.floor(value) + 1)


def _number_bounds(type_: pa.DataType, literal: pa.Scalar) -> _Bounds:
    scale = type_.scale if kind_of(type_) is TypeKind.DECIMAL else 0
    value = literal.as_py()
    if kind_of(literal.type) is TypeKind.FLOAT:
        lowest, highest = _limits(type_)
        return _Bounds(
            _first_where(lowest, highest, lambda whole: _as_double(whole, scale) >= value),
            _first_where(lowest, highest, lambda whole: _as_double(whole, scale) > value),
        )
    if isinstance(value, int):
        whole = value * 10**scale
        return _Bounds(whole, whole + 1)
    return _Bounds.of(Fraction(value) * 10**scale)


def _as_double(whole: int, scale: int) -> float:
    return float(from_unscaled(whole, scale)) if scale else float(whole)


def _first_where(lowest: int, highest: int, reached: Callable[[int], bool]) -> int:
    """The smallest number in the range for which a monotone test holds; one past the range if none does."""
    low, high = lowest, highest + 1
    while low < high:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


@functools.lru_cache(maxsize=1024)
def _limits(type_: pa.DataType) -> tuple[int, int]:
    """The smallest and largest integer of a type."""
    if kind_of(type_) is TypeKind.DECIMAL:
        limit = int(10**type_.precision) - 1
        return -limit, limit
    bits = type_.bit_width
    if kind_of(type_) is TypeKind.INTEGER and str(type_).startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _time_bounds(column: Column, type_: pa.DataType, literal: pa.Scalar, zone: str) -> _Bounds:
    family, other = kind_of(type_), kind_of(literal.type)
    if family is not TypeKind.TIMESTAMP and other is TypeKind.TIMESTAMP and not is_utc(zone):
        raise PredicateError(
            f"{column.name} is {sql_name(type_)} and would need the time zone {zone} to be compared with a "
            f"TIMESTAMP; write the value as {sql_name(type_)} '...'"
        )
    micros = _micros(literal)
    if family is TypeKind.TIMESTAMP and other is not TypeKind.TIMESTAMP:
        micros = Fraction(to_utc(int(micros), zone))
    if family is TypeKind.DATE:
        per_day = 1 if type_ == pa.date32() else 86_400_000
        return _Bounds.of(micros * per_day / DAY_MICROS)
    return _Bounds.of(micros * _TICKS[type_.unit] / _TICKS["us"])


def _micros(literal: pa.Scalar) -> Fraction:
    if kind_of(literal.type) is TypeKind.DATE:
        days = Fraction(literal.value) / (1 if literal.type == pa.date32() else 86_400_000)
        return days * DAY_MICROS
    return Fraction(literal.value) * _TICKS["us"] / _TICKS[literal.type.unit]


def _scalar(type_: pa.DataType, whole: int) -> pa.Scalar:
    if kind_of(type_) is TypeKind.DECIMAL:
        return pa.scalar(from_unscaled(whole, type_.scale), type_)
    if type_ == pa.date64():
        return pa.scalar(whole, pa.int64()).cast(type_)
    return pa.scalar(whole, type_)


def _compare_whole(column: Column, type_: pa.DataType, op: Op, bounds: _Bounds) -> Predicate:
    """The comparison of integers; a constant if the bounds are outside of the type."""
    lowest, highest = _limits(type_)
    first, last = bounds.first, bounds.after - 1

    def at_bound(op: Op, whole: int) -> Predicate:
        if lowest <= whole <= highest:
            return Compare(op, column, _scalar(type_, whole))
        return constant_unless_null(column, (whole > highest) == (op in {Op.LT, Op.LE}))

    match op:
        case Op.LT | Op.GE:
            return at_bound(op, first)
        case Op.LE | Op.GT:
            return at_bound(op, last)
        case Op.EQ | Op.NULL_SAFE:
            pass
        case _:
            assert_never(op)
    first, last = max(first, lowest), min(last, highest)
    if first > last:
        return Always(False) if op is Op.NULL_SAFE else constant_unless_null(column, False)
    if first == last:
        return Compare(op, column, _scalar(type_, first))
    within = (Compare(Op.GE, column, _scalar(type_, first)), Compare(Op.LE, column, _scalar(type_, last)))
    return And((Not(IsNull(column)), *within)) if op is Op.NULL_SAFE else And(within)


# --- floating point ---------------------------------------------------------------------------------


def _compare_float(column: Column, type_: pa.DataType, op: Op, value: float) -> Predicate:
    """The comparison with a double; a FLOAT column is compared with its nearest float."""
    narrow: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
    with np.errstate(over="ignore", under="ignore"):
        nearest = narrow(value)
    scalar = pa.scalar(nearest, type_)
    if math.isnan(value) or float(nearest) == value:
        return Compare(op, column, scalar)
    below = float(nearest) < value
    match op:
        case Op.EQ:
            return constant_unless_null(column, False)
        case Op.NULL_SAFE:
            return Always(False)
        case Op.LT | Op.LE:
            return Compare(Op.LE if below else Op.LT, column, scalar)
        case _:
            return Compare(Op.GT if below else Op.GE, column, scalar)
