"""Literals of conditions as the fields of an index hold values: exactly, or not at all."""

import decimal
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from indextables.split.index.encode import float_values, integer_values
from indextables.split.mapping import Field, Kind
from indextables.split.query.value_leaf import Value

# Literals of another type than the column's are converted one by one; of a longer list rows are looked at.
_MOST_CONVERTED = 1024
# Up to here every whole number has a double of its own.
_WHOLE_DOUBLES = 1 << 53


def as_field_value(value: pa.Scalar, column: pa.DataType, field: Field) -> Value | None:
    """What a field holds for rows equal to the literal; None if that cannot be told exactly."""
    kind = value.type
    if field.kind is Kind.BOOL:
        return bool(value.as_py()) if pa.types.is_boolean(kind) else None
    if field.kind is Kind.F64:
        return _as_double(value)
    if pa.types.is_integer(column):
        return int(value.as_py()) if pa.types.is_integer(kind) else None
    if pa.types.is_decimal(column):
        return _unscaled(value, column.scale)
    if pa.types.is_timestamp(column):
        same = pa.types.is_timestamp(kind) and kind.unit == column.unit and bool(kind.tz) == bool(column.tz)
        return int(value.value) if same else None
    return int(integer_values(pa.array([value], kind))[0].as_py()) if kind == column else None


def as_field_values(values: pa.Array, column: pa.DataType, field: Field) -> pa.Array | None:
    """What a field holds for rows equal to one of the literals, each once; None if that cannot be told."""
    if values.type == column and field.kind is Kind.I64:
        return integer_values(values).unique()
    if values.type == column and field.kind is Kind.F64:
        return pa.array(np.unique(float_values(values)))
    if len(values) > _MOST_CONVERTED:
        return None
    known = [as_field_value(value, column, field) for value in values]
    return None if any(value is None for value in known) else _distinct(known)


def _distinct(values: Sequence[Value | None]) -> pa.Array | None:
    """The values, each once; None if they are whole numbers that no field can hold."""
    try:
        return pa.array(list(dict.fromkeys(values)))
    except (pa.ArrowInvalid, OverflowError):
        return None


def as_json_term(value: pa.Scalar) -> str | None:
    """A literal as a search of JSON would write it; None if there is no such text."""
    found = value.as_py()
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int):
        return str(found)
    return found if isinstance(found, str) and found else None


def _as_double(value: pa.Scalar) -> float | None:
    found = value.as_py()
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, int) and abs(found) > _WHOLE_DOUBLES:
        return None
    return 0.0 if found == 0 else float(found)


def _unscaled(value: pa.Scalar, scale: int) -> int | None:
    found = value.as_py()
    if isinstance(found, bool) or not isinstance(found, (int, decimal.Decimal)):
        return None
    with decimal.localcontext(prec=100):
        scaled = decimal.Decimal(found).scaleb(scale)
        whole = scaled.to_integral_value()
    return int(whole) if whole == scaled else None
