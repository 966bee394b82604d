"""Converts literals to the scale on which the values of a column are compared, if that is exact.

Bounds and literals are compared on one of three scales: whole numbers (integers, booleans, days,
microseconds, and doubles by the order of their bits), decimals of one scale, texts. A literal that lies
between two points of the scale is represented by the point below it. Where Spark would compare in some other
way (a decimal as a double, a date in the session's time zone), nothing is pruned.
"""

import math
import re
import struct
from fractions import Fraction
from typing import Any, NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from indextables.schema.calendar import parse_date, parse_timestamp
from indextables.schema.type_info import TypeKind, from_unscaled, kind_of, storage_kind_of

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Spark compares an integer with a double as doubles: beyond these, integers are rounded on the way.
_EXACT_DOUBLE, _EXACT_FLOAT = 2**53, 2**24
_DIGITS = re.compile(r"-?[0-9]{1,15}")


class Threshold(NamedTuple):
    """A literal on the scale of a column: at `point`, or between it and the next one if not `exact`.

    A point of None is below (`side` -1) or above (`side` 1) every value of the column's type. With a
    `limit`, only columns with bounds between `-limit` and `limit` can be pruned.
    """

    point: pa.Scalar | None
    exact: bool = True
    side: int = 0
    limit: int | None = None

    def sort_key(self) -> Any:  # noqa: ANN401 - whatever the scale's values are in Python
        """A sort key for thresholds of one scale that have a point."""
        assert self.point is not None
        value = self.point.as_py()
        return value.encode() if isinstance(value, str) else value


def to_scale(values: pa.Array) -> pa.Array | None:
    """Values of a column on the scale of its type; None if the type has no scale."""
    arrow = values.type
    match storage_kind_of(arrow):
        case TypeKind.STRING:
            return values
        case TypeKind.FLOAT:
            return _float_order(values)
        case TypeKind.BOOLEAN:
            return values.cast(pa.int8()).cast(pa.int64())
        case TypeKind.DATE:
            return values.cast(pa.int32()).cast(pa.int64())
        case (
            TypeKind.INTEGER | TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ | TypeKind.TIME | TypeKind.INTERVAL
        ):
            return values.cast(pa.int64())
        case TypeKind.DECIMAL:
            return values.cast(pa.decimal128(38, arrow.scale))
        case (
            TypeKind.NULL | TypeKind.BINARY | TypeKind.LIST | TypeKind.MAP | TypeKind.STRUCT | TypeKind.OTHER
        ):
            return None
        case kind:
            assert_never(kind)


def threshold(value: pa.Scalar, arrow: pa.DataType) -> Threshold | None:
    """The literal on the column's scale; None if it cannot be converted exactly."""
    literal, column = kind_of(value.type), storage_kind_of(arrow)
    if literal is TypeKind.STRING:
        return _of_text(value.as_py(), arrow)
    match column:
        case TypeKind.BOOLEAN:
            return _whole(int(value.as_py())) if literal is column else None
        case TypeKind.DATE:
            if literal is not column:
                return None
            is_days = storage_kind_of(value.type) is TypeKind.DATE
            return _whole(value.value if is_days else Fraction(value.value, 86_400_000))
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ | TypeKind.INTERVAL | TypeKind.TIME:
            return _timed(value, arrow) if literal is column else None
        case TypeKind.FLOAT:
            return _among_floats(value, arrow)
        case TypeKind.INTEGER:
            return _among_integers(value)
        case TypeKind.DECIMAL if literal in {TypeKind.INTEGER, TypeKind.DECIMAL}:
            return _among_decimals(Fraction(value.as_py()), arrow.scale)
        case _:
            return None


def _of_text(text: str, arrow: pa.DataType) -> Threshold | None:
    number: int | None = None
    match kind_of(arrow):
        case TypeKind.STRING if arrow == pa.string():
            return Threshold(pa.scalar(text, pa.string()))
        case TypeKind.DATE if arrow == pa.date32():
            number = parse_date(text) if len(text) == 10 else None
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ as kind:
            # A text without a zone is in the zone of the session, which is unknown here.
            naive = parse_timestamp(text, zoned=False) is not None
            if naive == (kind is TypeKind.TIMESTAMP_NTZ):
                number = parse_timestamp(text, zoned=True)
        case TypeKind.INTEGER if _DIGITS.fullmatch(text):
            number = int(text)
        case _:
            pass
    return None if number is None else _whole(number)


def _whole(number: int | Fraction, limit: int | None = None) -> Threshold:
    floor = math.floor(number)
    if floor < _INT64_MIN:
        return Threshold(None, exact=False, side=-1, limit=limit)
    if floor > _INT64_MAX:
        return Threshold(None, exact=False, side=1, limit=limit)
    return Threshold(pa.scalar(floor, pa.int64()), floor == number, limit=limit)


def _timed(value: pa.Scalar, arrow: pa.DataType) -> Threshold:
    return _whole(Fraction(value.value * _PER_SECOND[arrow.unit], _PER_SECOND[value.type.unit]))


def _among_integers(value: pa.Scalar) -> Threshold | None:
    match kind_of(value.type):
        case TypeKind.INTEGER:
            return _whole(value.as_py())
        case TypeKind.DECIMAL:
            return _whole(Fraction(value.as_py()))
        case TypeKind.FLOAT:
            number = float(value.as_py())
        case _:
            return None
    limit = _EXACT_DOUBLE if value.type == pa.float64() else _EXACT_FLOAT
    if math.isfinite(number):
        return _whole(Fraction(number), limit)
    return Threshold(None, exact=False, side=-1 if number < 0 else 1, limit=limit)


def _among_floats(value: pa.Scalar, arrow: pa.DataType) -> Threshold | None:
    match kind_of(value.type):
        case TypeKind.FLOAT:
            number = float(value.as_py())
        case TypeKind.INTEGER | TypeKind.DECIMAL:
            exact = Fraction(value.as_py())
            number = float(exact) if abs(exact) < 2**127 else math.inf
            is_single = arrow == pa.float32() and math.isfinite(number)
            rounded = float(np.float32(number)) if is_single else number
            if not math.isfinite(rounded) or Fraction(rounded) != exact:
                return None
        case _:
            return None
    return Threshold(pa.scalar(_order_of(number), pa.int64()))


def _among_decimals(number: Fraction, scale: int) -> Threshold:
    scaled = number * 10**scale
    floor = math.floor(scaled)
    if abs(floor) >= 10**38:
        return Threshold(None, exact=False, side=-1 if floor < 0 else 1)
    point = from_unscaled(floor, scale)
    return Threshold(pa.scalar(point, pa.decimal128(38, scale)), floor == scaled)


def _order_of(number: float) -> int:
    """The position of a double in the order of all doubles: both zeros are equal, NaN is last."""
    number = math.nan if math.isnan(number) else number + 0.0
    bits: int = struct.unpack("<q", struct.pack("<d", abs(number) if math.isnan(number) else number))[0]
    return bits if bits >= 0 else bits ^ _INT64_MAX


def _float_order(values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(numbers), np.abs(np.float64(np.nan)), numbers).view(np.int64)
    order = np.where(bits >= 0, bits, bits ^ np.int64(_INT64_MAX))
    return pa.array(
        order, pa.int64(), mask=np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
    )
