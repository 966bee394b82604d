"""Literals of SQL as Arrow scalars, casts between them, and the types that a CAST can name.

A cast gives what Spark gives with and without ANSI mode; where the two differ (an overflow, a malformed
text) it is refused.
"""

import decimal
import math
import re
from typing import Any

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.lexer import Cursor, TokenKind
from indextables.predicate.names import suggestion
from indextables.predicate.times import MICROS_PER_DAY, days_of, is_utc, micros_of, utc_of
from indextables.predicate.types import NUMBERS, TIMES, Family, family_of, sql_name

ZONED = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")

_SUFFIX_TYPES = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_NAMED_DOUBLES = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUTHS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
# Enough for any product of two 38-digit numbers; Python's default of 28 digits would round.
_EXACT = decimal.Context(prec=400, Emax=999_999, Emin=-999_999)
_MAX_DIGITS = 38

# So many digits are beyond every type; Python refuses to read thousands.
_ENOUGH_DIGITS = 100
# Types that have a function of their name, as double('NaN').
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
    "TIMESTAMP": ZONED,
}
_TYPES = CASTS | {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "DEC": pa.decimal128(10, 0),
    "NUMERIC": pa.decimal128(10, 0),
    "TIMESTAMP_LTZ": ZONED,
    "TIMESTAMP_NTZ": LOCAL,
}


def number_literal(text: str) -> pa.Scalar:
    """A number as SQL writes it, with its suffix and perhaps a sign before it.

    Without a suffix: an INT if it fits, else a BIGINT, else a DECIMAL; with a point a DECIMAL; with an
    exponent a DOUBLE.
    """
    upper = text.upper()
    if upper[-1] in _SUFFIX_TYPES:
        return integer_literal(int(upper[:-1].lstrip("0")[:_ENOUGH_DIGITS] or "0"), _SUFFIX_TYPES[upper[-1]])
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
    family = family_of(literal.type)
    if family not in NUMBERS:
        raise PredicateError(f"'-' takes a number, not a value of type {sql_name(literal.type)}")
    value = literal.as_py()
    if value is None:
        return literal
    if family is Family.DECIMAL:
        return pa.scalar(value.copy_negate(), literal.type)
    return (
        integer_literal(-value, literal.type) if family is Family.INTEGER else pa.scalar(-value, literal.type)
    )


def _decimal(value: decimal.Decimal) -> pa.Scalar:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _MAX_DIGITS:
        raise PredicateError(f"a DECIMAL has at most {_MAX_DIGITS} digits; this number has {precision}")
    return pa.scalar(value, pa.decimal128(precision, scale))


def parse_double(text: str) -> float | None:
    """A text as Spark casts it to DOUBLE, or None if it is no number."""
    stripped = text.strip()
    found = _DOUBLE.fullmatch(stripped)
    if found:
        return float(found[1])
    sign = -1.0 if stripped.startswith("-") else 1.0
    named = _NAMED_DOUBLES.get(stripped.lower().removeprefix("-").removeprefix("+"))
    return None if named is None else sign * named


def parse_literal(text: str, type_: pa.DataType, zone: str) -> pa.Scalar:
    """A text as a value of a type; texts that ANSI mode would refuse are refused."""
    family = family_of(type_)
    stripped = text.strip()
    value: object = None
    match family:
        case Family.INTEGER if _INTEGER.fullmatch(stripped) and len(stripped) < 40:
            return integer_literal(int(stripped), type_)
        case Family.FLOAT:
            value = parse_double(text)
        case Family.DECIMAL if _DECIMAL.fullmatch(stripped):
            return _round_decimal(decimal.Decimal(stripped), type_)
        case Family.STRING:
            value = text
        case Family.BINARY:
            value = text.encode()
        case Family.BOOLEAN:
            value = _TRUTHS.get(stripped.lower())
        case Family.DATE:
            value = days_of(text)
        case Family.TIMESTAMP:
            value = micros_of(text, zone)
        case Family.LOCAL_TIMESTAMP:
            value = micros_of(text, None)
    if value is None:
        raise PredicateError(f"{_excerpt(text)} is no {sql_name(type_)}")
    if family is Family.DATE and not -(1 << 31) <= days_of(text) < 1 << 31:  # type: ignore[operator]
        raise PredicateError(f"{_excerpt(text)} is beyond the range of DATE")
    return _scalar_in_range(value, type_)


def cast_literal(literal: pa.Scalar, type_: pa.DataType, zone: str) -> pa.Scalar:
    """The literal as another type."""
    source, target = family_of(literal.type), family_of(type_)
    # Times are read as ticks further down: Python has no objects for the years beyond 9999.
    value: Any = None if source in TIMES else literal.as_py()
    if not literal.is_valid or source is Family.NULL:
        return pa.scalar(None, type_)
    if source is Family.STRING:
        return parse_literal(value, type_, zone)
    if literal.type == type_:
        return literal
    if source in NUMBERS | {Family.BOOLEAN} and target in NUMBERS | {Family.BOOLEAN}:
        return _numeric(value, source, type_)
    if source in {Family.INTEGER, Family.BOOLEAN} and target is Family.STRING:
        return pa.scalar(str(value).lower(), type_)
    if source is Family.DECIMAL and target is Family.STRING:
        return pa.scalar(format(value, "f"), type_)
    moment = _cast_datetime(literal.value, source, target, zone) if source in TIMES else None
    if moment is None:
        raise PredicateError(
            f"a value of type {sql_name(literal.type)} cannot be cast to {sql_name(type_)} here"
        )
    return _scalar_in_range(moment, type_)


def _numeric(value: bool | float | decimal.Decimal, source: Family, type_: pa.DataType) -> pa.Scalar:  # noqa: FBT001
    target = family_of(type_)
    if target is Family.BOOLEAN:
        return pa.scalar(bool(value), type_)
    if target is Family.FLOAT:
        return pa.scalar(float(value), type_)
    if source is Family.FLOAT and not math.isfinite(value):
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}")
    if target is Family.INTEGER:
        return integer_literal(int(value), type_)
    return _round_decimal(decimal.Decimal(repr(value) if source is Family.FLOAT else value), type_)


def _round_decimal(value: decimal.Decimal, type_: pa.DataType) -> pa.Scalar:
    """A decimal rounded half up to the type's scale, refused if it has too many digits then."""
    rounded = value
    if value.adjusted() <= _MAX_DIGITS:
        rounded = value.quantize(decimal.Decimal(1).scaleb(-type_.scale), decimal.ROUND_HALF_UP, _EXACT)
    if value.adjusted() > _MAX_DIGITS or abs(rounded.scaleb(type_.scale, _EXACT)) >= 10**type_.precision:
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}")
    return pa.scalar(rounded, type_)


def _cast_datetime(ticks: int, source: Family, target: Family, zone: str) -> int | None:
    """Days or microseconds of a date or timestamp as another one of them; None for other casts."""
    match source, target:
        case Family.DATE, Family.LOCAL_TIMESTAMP:
            return int(ticks) * MICROS_PER_DAY
        case Family.DATE, Family.TIMESTAMP:
            return utc_of(ticks * MICROS_PER_DAY, zone)
        case Family.LOCAL_TIMESTAMP, Family.TIMESTAMP:
            return utc_of(ticks, zone)
        case Family.LOCAL_TIMESTAMP, Family.DATE:
            return int(ticks // MICROS_PER_DAY)
        case Family.TIMESTAMP, Family.LOCAL_TIMESTAMP if is_utc(zone):
            return int(ticks)
        case Family.TIMESTAMP, Family.DATE if is_utc(zone):
            return int(ticks // MICROS_PER_DAY)
    return None


def _scalar_in_range(value: object, type_: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, OverflowError):
        raise PredicateError(f"{value} is beyond the range of {sql_name(type_)}") from None


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def read_type(cursor: Cursor) -> pa.DataType:
    """The type whose name is under the cursor, which is moved behind it."""
    token = cursor.token
    name = token.text.upper()
    if token.kind is not TokenKind.WORD or name not in _TYPES:
        hint = suggestion(name, _TYPES) or ";"
        raise cursor.error(f"{token.text!r} is no type to cast to{hint} these are: {', '.join(_TYPES)}")
    cursor.take()
    if not pa.types.is_decimal(_TYPES[name]) or not cursor.accept_symbol("("):
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
        raise cursor.error("a number of digits should stand here, as in DECIMAL(10, 2)")
    return int(cursor.take().text)
