"""Parses partition values, as logs and folder names have them, to the types of their columns.

Partition columns in the names of folders, `year=2024/team=a%2Fb`, are inferred by the rules of Spark's
`PartitioningUtils`; a test compares them with Spark.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from indextables.errors import SourceError
from indextables.schema.calendar import format_date, parse_date, parse_timestamp, to_utc
from indextables.schema.type_info import UTC_TIMESTAMP, TypeKind, kind_of, round_half_up, storage_kind_of
from indextables.schema.values import NULL_PARTITION

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_DOUBLE = re.compile(r"\s*[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)\s*")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d)?")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_INT, _LONG = 1 << 31, 1 << 63
_NULL, _STRING, _DOUBLE_TYPE = pa.null(), pa.string(), pa.float64()
_INTEGER_DIGITS = {pa.int32(): 10, pa.int64(): 20}
_BOOLEANS = {"true": True, "false": False}


class PartitionSpec(NamedTuple):
    """The partition columns of a folder, and their values for each sub-folder with files."""

    fields: list[pa.Field]
    values: dict[str, dict[str, pa.Scalar]]


def unescape(name: str) -> str:
    """Unescape a name or value of a folder's name.

    >>> unescape("a%2Fb%zz")
    'a/b%zz'
    """
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), name)


def folder_values(folder: str) -> list[tuple[str, str]]:
    """The partition columns in the name of a folder of a table, with the texts of their values.

    >>> folder_values("day=2026-05-01/team=a%2Fb")
    [('day', '2026-05-01'), ('team', 'a/b')]
    """
    parts = [part.partition("=") for part in folder.split("/")]
    return [(unescape(name), unescape(value)) for name, sign, value in parts if sign]


def discover(
    folders: Sequence[str],
    zone: str,
    url: str,
    types: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> PartitionSpec | None:
    """The partitions in the names of folders (relative to the table); None if there are none.

    `types` are those of columns whose types are not inferred, by name in lower case; that of `*` is the type
    of all others.

    Raises SourceError in the same cases as Spark: folders of different depth or with different columns, and
    values that are not of their type.
    """
    values_by_column: dict[str, list[tuple[str, str]]] = {}
    bases = set()
    for folder in folders:
        columns, base = _columns(folder, url)
        bases.add(base)
        if columns:
            values_by_column[folder] = columns
    if not values_by_column:
        return None
    if len(bases) > 1:
        raise SourceError(
            f"{url} has partition folders at different depths ({', '.join(sorted(bases)[:3])}); Spark "
            "refuses that: read each of them as a separate table"
        )
    names = {tuple(name for name, _ in columns) for columns in values_by_column.values()}
    if len(names) > 1:
        shown = "; ".join(", ".join(each) for each in sorted(names)[:3])
        if len({tuple(name.lower() for name in each) for each in names}) == 1:
            raise SourceError(
                f"{url} has folders whose partition columns differ in case ({shown}), of which Spark takes "
                "any: rename the folders"
            )
        raise SourceError(f"{url} has folders with different partition columns ({shown}); Spark refuses that")
    own = next(iter(names))
    fields, values = [], {folder: dict[str, pa.Scalar]() for folder in values_by_column}
    for number, name in enumerate(own):
        texts = {folder: columns[number][1] for folder, columns in values_by_column.items()}
        chosen = types.get(name.lower(), types.get("*"))
        kind = chosen or _common_type([_infer_type(text, zone) for text in dict.fromkeys(texts.values())])
        fields.append(pa.field(name, kind))
        for folder, text in texts.items():
            if chosen is None:
                values[folder][name] = _value(text, kind, zone)
            elif text == NULL_PARTITION:
                values[folder][name] = pa.scalar(None, kind)
            else:
                where = f"the value of the partition column {name} in the folder {folder!r} of {url}"
                values[folder][name] = parse_value(unescape(text), kind, zone, where)
    return PartitionSpec(fields, values)


def _columns(folder: str, url: str) -> tuple[list[tuple[str, str]], str]:
    """The partition columns in a folder's path, outermost first, and the folder above them."""
    parts = folder.split("/") if folder else []
    columns: list[tuple[str, str]] = []
    while parts:
        name, sign, value = parts[-1].partition("=")
        if sign:
            if not name or not value:
                raise SourceError(f"the folder {parts[-1]!r} of {url} has no column or no value")
            columns.append((unescape(name), value))
        elif columns:
            break
        parts.pop()
    return columns[::-1], "/".join(parts) if columns else folder


def _infer_type(text: str, zone: str) -> pa.DataType:
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -_INT <= number < _INT:
            return pa.int32()
        if -_LONG <= number < _LONG:
            return pa.int64()
    digits = _decimal_digits(text)
    if digits is not None:
        return pa.decimal128(digits, 0)
    if _DOUBLE.fullmatch(text):
        return _DOUBLE_TYPE
    unescaped = unescape(text)
    if _TIMESTAMP.fullmatch(unescaped) and timestamp_micros(unescaped, zone) is not None:
        return UTC_TIMESTAMP
    if parse_date(text) is not None:
        return pa.date32()
    return _NULL if text == NULL_PARTITION else _STRING


def _decimal_digits(text: str) -> int | None:
    """The precision of an integer, as Java's BigDecimal parses it; None unless it has at most 38 digits."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    scale = len(match[3] or "") - int(match[4] or 0)
    digits = len((match[2] + (match[3] or "")).lstrip("0")) or 1
    if scale > 0 or digits - scale > 38:
        return None
    return digits - scale


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    common = kinds[0]
    for kind in kinds[1:]:
        common = _wider(common, kind)
    return common


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if other in (one, _NULL):
        return one
    if one == _NULL:
        return other
    pair = {one, other}
    if pair == {pa.int32(), pa.int64()}:
        return pa.int64()
    if pair == {pa.int32(), _DOUBLE_TYPE}:
        return _DOUBLE_TYPE
    if pair == {pa.date32(), UTC_TIMESTAMP}:
        return UTC_TIMESTAMP
    digits = [
        each.precision if kind_of(each) is TypeKind.DECIMAL else _INTEGER_DIGITS.get(each)
        for each in (one, other)
    ]
    if digits[0] is not None and digits[1] is not None:
        return pa.decimal128(max(digits[0], digits[1]), 0)
    return _STRING


def _value(text: str, kind: pa.DataType, zone: str) -> pa.Scalar:
    if text == NULL_PARTITION:
        return pa.scalar(None, kind)
    readers: Mapping[pa.DataType, Callable[[], object]] = {
        _STRING: lambda: unescape(text),
        _DOUBLE_TYPE: lambda: float(
            text.strip().rstrip("fFdD") if "N" not in text and "I" not in text else text
        ),
        pa.date32(): lambda: parse_date(text),
        UTC_TIMESTAMP: lambda: _micros(text, zone),
    }
    if kind in readers:
        return pa.scalar(readers[kind](), kind)
    return pa.scalar(Decimal(text) if kind_of(kind) is TypeKind.DECIMAL else int(text), kind)


def _micros(text: str, zone: str) -> int | None:
    micros = timestamp_micros(unescape(text), zone)
    if micros is None and (days := parse_date(text)) is not None:
        return timestamp_micros(f"{format_date(days)} 00:00:00", zone)
    return micros


def parse_value(text: str, kind: pa.DataType, zone: str, where: str) -> pa.Scalar:
    """A value of a type, from text as Spark writes it; times without a zone are in `zone`.

    Raises SourceError with `where` for an invalid text.
    """
    try:
        return pa.scalar(_parse_as(text, kind, zone), kind)
    except (ValueError, KeyError, InvalidOperation, OverflowError, pa.ArrowException):
        raise SourceError(f"{where} is {text!r}, which is no value of the type {kind}") from None


def _parse_as(text: str, kind: pa.DataType, zone: str) -> Any:  # noqa: ANN401 - of the type
    value: Any
    match storage_kind_of(kind):
        case TypeKind.STRING:
            value = text
        case TypeKind.BINARY:
            value = text.encode()
        case TypeKind.INTEGER:
            value = int(text)
        case TypeKind.BOOLEAN:
            value = _BOOLEANS[text.lower()]
        case TypeKind.FLOAT:
            value = float(text)
        case TypeKind.DECIMAL:
            value = round_half_up(Decimal(text), kind.scale)
        case TypeKind.DATE:
            value = parse_date(text)
        case TypeKind.TIMESTAMP:
            value = timestamp_micros(text, zone)
        case TypeKind.TIMESTAMP_NTZ:
            value = parse_timestamp(text, zoned=False)
        case _:
            raise ValueError
    if value is None:
        raise ValueError
    return value


def timestamp_micros(text: str, zone: str) -> int | None:
    """The microseconds since 1970 of a time, with or without a zone; None if the text is not a time."""
    local = parse_timestamp(text, zoned=False)
    if local is None:
        return parse_timestamp(text, zoned=True)
    if not -62_135_596_800_000_000 <= local < 253_402_300_800_000_000:
        return local
    return to_utc(local, zone)
