"""Literals of SQL as Arrow scalars, casts between them, and the types that a CAST can name.

A cast has the result that Spark has in both ANSI and non-ANSI mode; if these differ (an overflow, a malformed
text) it is refused.
"""

import decimal
import math
import re
from typing import Any, assert_never

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.sql_text import Cursor, TokenKind
from indextables.predicate.tree import suggestion
from indextables.schema.calendar import (
    DAY_MICROS,
    is_utc,
    parse_date_literal,
    parse_timestamp_literal,
    to_utc,
)
from indextables.schema.type_info import (
    DATETIME,
    LOCAL_TIMESTAMP,
    MAX_DECIMAL_DIGITS,
    NUMERIC,
    UTC_TIMESTAMP,
    TypeKind,
    has_digits,
    kind_of,
    round_half_up,
    sql_name,
)

_SUFFIX_TYPES = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_NAMED_DOUBLES = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUTHS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
# Numbers with more digits are beyond every type; Python refuses to parse thousands of digits.
_ENOUGH_DIGITS = 100
# Types whose names are also functions, such as double('NaN').
CASTS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 0),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": UTC_TIMESTAMP,
}
_TYPES = CASTS | {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "DEC": pa.decimal128(10, 0),
    "NUMERIC": pa.decimal128(10, 0),
    "TIMESTAMP_LTZ": UTC_TIMESTAMP,
    "TIMESTAMP_NTZ": LOCAL_TIMESTAMP,
}


def number_literal(text: str) -> pa.Scalar:
    """Parse a number of SQL, with an optional suffix and sign.

    Without a suffix: an INT if it fits, else a BIGINT, else a DECIMAL; with a point a DECIMAL; with an
    exponent a DOUBLE.
    """
    upper = text.upper()
    if upper[-1] in _SUFFIX_TYPES:
        digits = upper[:-1].lstrip("-+0")[:_ENOUGH_DIGITS] or "0"
        return integer_literal(int(digits) * (-1 if upper[0] == "-" else 1), _SUFFIX_TYPES[upper[-1]])
    if upper.endswith("BD"):
        return _decimal(decimal.Decimal(upper[:-2]))
    if upper[-1] in "DF" or "E" in upper:
        value = float(upper.rstrip("DF"))
        if math.isinf(value):
            raise PredicateError(f"{text} is beyond the range of DOUBLE")
        return pa.scalar(value, pa.float32() if upper.endswith("F") else pa.float64())
    if "." in upper:
        return _decimal(decimal.Decimal(upper))
    value_ = decimal.Decimal(upper)
    if abs(value_) < 1 << 31 or value_ == -(1 << 31):
        return pa.scalar(int(value_), pa.int32())
    if -(1 << 63) <= value_ < 1 << 63:
        return pa.scalar(int(value_), pa.int64())
    return _decimal(value_)


def integer_literal(value: int, type_: pa.DataType) -> pa.Scalar:
    """A whole number of the type, refused if it does not fit."""
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, OverflowError):
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}") from None


def negate_literal(literal: pa.Scalar) -> pa.Scalar:
    """Minus the number."""
    family = kind_of(literal.type)
    if family not in NUMERIC:
        raise PredicateError(f"'-' takes a number, not a value of type {sql_name(literal.type)}")
    value = literal.as_py()
    if value is None:
        return literal
    if family is TypeKind.DECIMAL:
        return pa.scalar(value.copy_negate(), literal.type)
    return (
        integer_literal(-value, literal.type)
        if family is TypeKind.INTEGER
        else pa.scalar(-value, literal.type)
    )


def _decimal(value: decimal.Decimal) -> pa.Scalar:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > MAX_DECIMAL_DIGITS:
        raise PredicateError(
            f"a DECIMAL has at most {MAX_DECIMAL_DIGITS} digits; this number has {precision}"
        )
    return pa.scalar(value, pa.decimal128(precision, scale))


def parse_double(text: str) -> float | None:
    """A text as Spark casts it to DOUBLE, or None if it is not a number."""
    stripped = text.strip()
    match = _DOUBLE.fullmatch(stripped)
    if match:
        return float(match[1])
    sign = -1.0 if stripped.startswith("-") else 1.0
    value = _NAMED_DOUBLES.get(stripped.lower().removeprefix("-").removeprefix("+"))
    return None if value is None else sign * value


def parse_literal(  # noqa: C901, PLR0912 - one case for each kind of type
    text: str, type_: pa.DataType, zone: str
) -> pa.Scalar:
    """A text as a value of a type; PredicateError for texts that ANSI mode refuses."""
    family = kind_of(type_)
    stripped = text.strip()
    value: object = None
    match family:
        case TypeKind.INTEGER:
            if _INTEGER.fullmatch(stripped) and len(stripped) < 40:
                return integer_literal(int(stripped), type_)
        case TypeKind.FLOAT:
            value = parse_double(text)
        case TypeKind.DECIMAL:
            if _DECIMAL.fullmatch(stripped):
                return _round_decimal(decimal.Decimal(stripped), type_)
        case TypeKind.STRING:
            value = text
        case TypeKind.BINARY:
            value = text.encode()
        case TypeKind.BOOLEAN:
            value = _TRUTHS.get(stripped.lower())
        case TypeKind.DATE:
            value = parse_date_literal(text)
        case TypeKind.TIMESTAMP:
            value = parse_timestamp_literal(text, zone)
        case TypeKind.TIMESTAMP_NTZ:
            value = parse_timestamp_literal(text, None)
        case (
            TypeKind.NULL
            | TypeKind.TIME
            | TypeKind.INTERVAL
            | TypeKind.LIST
            | TypeKind.MAP
            | TypeKind.STRUCT
            | TypeKind.OTHER
        ):
            pass  # conditions have no literals of these types
        case _:
            assert_never(family)
    if value is None:
        raise PredicateError(f"{_excerpt(text)} is not a valid {sql_name(type_)}")
    if family is TypeKind.DATE and not -(1 << 31) <= parse_date_literal(text) < 1 << 31:  # type: ignore[operator]
        raise PredicateError(f"{_excerpt(text)} is beyond the range of DATE")
    return _scalar_in_range(value, type_)


def cast_literal(literal: pa.Scalar, type_: pa.DataType, zone: str) -> pa.Scalar:
    """The literal as another type."""
    source, target = kind_of(literal.type), kind_of(type_)
    # Timestamps are converted as integers below: Python has no objects for years beyond 9999.
    value: Any = None if source in DATETIME else literal.as_py()
    if not literal.is_valid or source is TypeKind.NULL:
        return pa.scalar(None, type_)
    if source is TypeKind.STRING:
        return parse_literal(value, type_, zone)
    if literal.type == type_:
        return literal
    if source in NUMERIC | {TypeKind.BOOLEAN} and target in NUMERIC | {TypeKind.BOOLEAN}:
        return _numeric(value, source, type_)
    if source in {TypeKind.INTEGER, TypeKind.BOOLEAN} and target is TypeKind.STRING:
        return pa.scalar(str(value).lower(), type_)
    if source is TypeKind.DECIMAL and target is TypeKind.STRING:
        return pa.scalar(format(value, "f"), type_)
    moment = _cast_datetime(literal.value, source, target, zone) if source in DATETIME else None
    if moment is None:
        raise PredicateError(
            f"a value of type {sql_name(literal.type)} cannot be cast to {sql_name(type_)} here"
        )
    return _scalar_in_range(moment, type_)


def _numeric(value: bool | float | decimal.Decimal, source: TypeKind, type_: pa.DataType) -> pa.Scalar:  # noqa: FBT001
    target = kind_of(type_)
    if target is TypeKind.BOOLEAN:
        return pa.scalar(bool(value), type_)
    if target is TypeKind.FLOAT:
        return pa.scalar(float(value), type_)
    if source is TypeKind.FLOAT and not math.isfinite(value):
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}")
    if target is TypeKind.INTEGER:
        return integer_literal(int(value), type_)
    return _round_decimal(decimal.Decimal(repr(value) if source is TypeKind.FLOAT else value), type_)


def _round_decimal(value: decimal.Decimal, type_: pa.DataType) -> pa.Scalar:
    """A decimal rounded half up to the type's scale, refused if it has too many digits then."""
    if value.adjusted() <= MAX_DECIMAL_DIGITS:
        rounded = round_half_up(value, type_.scale)
        if has_digits(rounded, type_.precision, type_.scale):
            return pa.scalar(rounded, type_)
    raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}")


def _cast_datetime(ticks: int, source: TypeKind, target: TypeKind, zone: str) -> int | None:
    """Days or microseconds of a date or timestamp as another one of them; None for other casts."""
    match source, target:
        case TypeKind.DATE, TypeKind.TIMESTAMP_NTZ:
            return int(ticks) * DAY_MICROS
        case TypeKind.DATE, TypeKind.TIMESTAMP:
            return to_utc(ticks * DAY_MICROS, zone)
        case TypeKind.TIMESTAMP_NTZ, TypeKind.TIMESTAMP:
            return to_utc(ticks, zone)
        case TypeKind.TIMESTAMP_NTZ, TypeKind.DATE:
            return int(ticks // DAY_MICROS)
        case TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ if is_utc(zone):
            return int(ticks)
        case TypeKind.TIMESTAMP, TypeKind.DATE if is_utc(zone):
            return int(ticks // DAY_MICROS)
        case _:
            pass
    return None


def _scalar_in_range(value: object, type_: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, OverflowError):
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}") from None


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def read_type(cursor: Cursor) -> pa.DataType:
    """Parse the name of a type at the cursor."""
    token = cursor.token
    name = token.text.upper()
    if token.kind is not TokenKind.WORD or name not in _TYPES:
        hint = suggestion(name, _TYPES) or ";"
        raise cursor.error(f"{token.text!r} is not a type to cast to{hint} these are: {', '.join(_TYPES)}")
    cursor.take()
    if kind_of(_TYPES[name]) is not TypeKind.DECIMAL or not cursor.accept_symbol("("):
        return _TYPES[name]
    precision, scale = _digits(cursor), 0
    if cursor.accept_symbol(","):
        scale = _digits(cursor)
    cursor.expect_symbol(")", "after the digits of DECIMAL")
    if not 1 <= precision <= 38 or scale > precision:
        raise cursor.error("a DECIMAL has 1 to 38 digits, and no more of them behind the point", token.start)
    return pa.decimal128(precision, scale)


def _digits(cursor: Cursor) -> int:
    text = cursor.token.text
    if cursor.token.kind is not TokenKind.NUMBER or not text.isdecimal() or len(text) > 2:
        raise cursor.error("a number of digits is expected here, as in DECIMAL(10, 2)")
    return int(cursor.take().text)
