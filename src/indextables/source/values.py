"""Values that logs and folder names write as text, in the types of their columns."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from indextables.errors import SourceError
from indextables.schema.calendar import parse_date, parse_timestamp
from indextables.schema.type_info import LOCAL_TIMESTAMP, UTC_TIMESTAMP

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_BOOLEANS = {"true": True, "false": False}


def parse_value(text: str, kind: pa.DataType, zone: str, where: str) -> pa.Scalar:
    """A value of a type, from text as Spark writes it; times without a zone are in `zone`.

    Raises SourceError, which names `where`, for text that is no such value.
    """
    try:
        return pa.scalar(_parsed(text, kind, zone), kind)
    except (ValueError, KeyError, InvalidOperation, OverflowError, pa.ArrowException):
        raise SourceError(f"{where} is {text!r}, which is no value of the type {kind}") from None


def _parsed(text: str, kind: pa.DataType, zone: str) -> Any:  # noqa: ANN401 - of the type
    value: Any
    if pa.types.is_string(kind):
        value = text
    elif pa.types.is_binary(kind):
        value = text.encode()
    elif kind in _INTEGERS:
        value = int(text)
    elif pa.types.is_boolean(kind):
        value = _BOOLEANS[text.lower()]
    elif pa.types.is_floating(kind):
        value = float(text)
    elif pa.types.is_decimal128(kind):
        value = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale))
    elif pa.types.is_date32(kind):
        value = parse_date(text)
    elif kind == UTC_TIMESTAMP:
        value = timestamp_micros(text, zone)
    elif kind == LOCAL_TIMESTAMP:
        value = parse_timestamp(text, zoned=False)
    else:
        raise ValueError
    if value is None:
        raise ValueError
    return value


def timestamp_micros(text: str, zone: str) -> int | None:
    """Microseconds since 1970 of a time that may name its zone; None if it is no time."""
    local = parse_timestamp(text, zoned=False)
    if local is None:
        return parse_timestamp(text, zoned=True)
    if zone == "UTC" or not -62_135_596_800_000_000 <= local < 253_402_300_800_000_000:
        return local
    moment = (_EPOCH + timedelta(microseconds=local)).replace(tzinfo=ZoneInfo(zone))
    offset = moment.astimezone(UTC).replace(tzinfo=None) - _EPOCH
    return offset // timedelta(microseconds=1)
