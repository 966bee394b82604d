"""Texts of values in the log and in partition paths.

Numbers are decimal (doubles with the fewest digits that parse to the same value, `NaN`, `inf`), booleans
`true` and `false`, dates ISO. A timestamp is its microseconds since 1970 in a statistic, and in a partition
value an ISO timestamp with six digits of fraction, which ends in `Z` if the type has a zone. Parsing also
accepts the texts of all other writers (PROTOCOL.md, "Partition values").
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, assert_never
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError
from indextables.schema.calendar import (
    DAY_MICROS,
    FIRST_FOUR_DIGIT_DAY,
    LAST_FOUR_DIGIT_DAY,
    format_date,
    format_timestamp,
    parse_date,
    parse_timestamp,
)
from indextables.schema.type_info import TypeKind, kind_of

# The characters that Hive and Spark escape, those with a meaning in URLs or file systems, and leading or
# trailing dots and blanks.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|&+;,@$!`~\x80-\x9f\u2028\u2029]|^[. ]|[. ]$""")
# The text of a null partition value, in paths and in the log.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_CLOCK = r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_ZONED_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})$"
)
# A larger number would be after the year 9999 as milliseconds, so it is in microseconds.
_SURELY_MICROS = LAST_FOUR_DIGIT_DAY * 86_400_000 + 86_400_000

_Mask = npt.NDArray[np.bool_]
_Parse = Callable[[pa.Array], pa.Array]


def escape_path(text: str) -> str:
    """Escape a text for use as one part of a path.

    >>> escape_path("a/b=50%")
    'a%2Fb%3D50%25'
    """
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def unescape_path(text: str) -> str:
    """The unescaped text; a percent sign that is not part of an escape is unchanged."""
    return unquote(text, errors="surrogateescape")


def partition_path(values: Iterable[tuple[str, str]]) -> str:
    """The folder of a partition, relative to the table; empty for no partition columns.

    >>> partition_path([("day", "2024-01-01"), ("city", "Aix/Arc")])
    'day=2024-01-01/city=Aix%2FArc'
    """
    return "/".join(f"{escape_path(name)}={escape_path(value)}" for name, value in values)


def parse_partition_path(path: str) -> list[tuple[str, str]]:
    """The partition columns and values in a relative path, in order."""
    pairs = []
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if equals and name:
            pairs.append((unescape_path(name), unescape_path(value)))
    return pairs


class ParsedValues(NamedTuple):
    """Values of texts; where a text is malformed the value is null and the mask true."""

    values: pa.Array
    unreadable: _Mask


def format_values(array: pa.Array, *, partition: bool = False) -> pa.Array:
    """The text of each value; null stays null.

    >>> format_values(pa.array([1.0, 1e300, float("nan")])).to_pylist()
    ['1.0', '1e+300', 'NaN']
    """
    arrow = array.type
    match kind_of(arrow):
        case TypeKind.STRING:
            if partition and pc.any(pc.equal(array, NULL_PARTITION)).as_py():
                raise SchemaError(f"the partition value {NULL_PARTITION} means null; change the value")
            return array
        case TypeKind.FLOAT:
            return _format_floats(array)
        case TypeKind.DATE:
            days = array.cast(pa.int32())
            return _format_with_arrow(
                days, FIRST_FOUR_DIGIT_DAY, LAST_FOUR_DIGIT_DAY, pa.date32(), format_date
            )
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ as kind:
            micros = array.cast(pa.timestamp("us", arrow.tz)).cast(pa.int64())
            zoned = kind is TypeKind.TIMESTAMP
            return _format_times(micros, zoned=zoned) if partition else micros.cast(pa.string())
        case TypeKind.INTERVAL:
            return array.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
        case TypeKind.INTEGER | TypeKind.BOOLEAN | TypeKind.DECIMAL | TypeKind.TIME | TypeKind.NULL:
            return array.cast(pa.string())
        case TypeKind.BINARY | TypeKind.LIST | TypeKind.MAP | TypeKind.STRUCT | TypeKind.OTHER:
            raise SchemaError(f"values of the type {arrow} have no text in the log; choose another column")
        case kind:
            assert_never(kind)


def parse_values(texts: pa.Array, arrow: pa.DataType, *, partition: bool = False) -> ParsedValues:
    """The values of texts in the log, of any writer.

    >>> found = parse_values(pa.array(["10", "x", None]), pa.int32())
    >>> found.values.to_pylist(), found.unreadable.tolist()
    ([10, None, None], [False, True, False])
    """
    if partition:
        texts = pc.if_else(pc.equal(texts, NULL_PARTITION), pa.scalar(None, pa.string()), texts)
    values = _parse(texts, arrow)
    if values.null_count == texts.null_count:
        return ParsedValues(values, np.zeros(len(texts), dtype=np.bool_))
    return ParsedValues(values, _mask(pc.and_(values.is_null(), texts.is_valid())))


def _parse(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    match kind_of(arrow):
        case TypeKind.STRING:
            return texts
        case TypeKind.DATE:
            return _parse_dates(texts)
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ as kind:
            return _parse_times(texts, zoned=kind is TypeKind.TIMESTAMP).cast(arrow)
        case TypeKind.INTERVAL:
            return _parse_matching(texts, _INTEGER, lambda t: t.cast(pa.int64()), pa.int64()).cast(arrow)
        case TypeKind.INTEGER:
            return _parse_matching(texts, _INTEGER, lambda t: t.cast(arrow), arrow)
        case TypeKind.DECIMAL:
            return _parse_matching(texts, _NUMBER, lambda t: t.cast(arrow), arrow)
        case TypeKind.FLOAT | TypeKind.BOOLEAN:
            return _parse_matching(texts, None, lambda t: t.cast(arrow), arrow)
        case TypeKind.TIME:
            return _parse_matching(texts, _CLOCK, lambda t: _parse_times_of_day(t, arrow), arrow)
        case (
            TypeKind.NULL | TypeKind.BINARY | TypeKind.LIST | TypeKind.MAP | TypeKind.STRUCT | TypeKind.OTHER
        ):
            return pa.nulls(len(texts), arrow)
        case kind:
            assert_never(kind)


def _mask(array: pa.Array) -> _Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _format_floats(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    return pc.if_else(pc.equal(texts, "nan"), "NaN", texts)


def _format_with_arrow(
    numbers: pa.Array, first: int, last: int, arrow: pa.DataType, wide: Callable[[int], str]
) -> pa.Array:
    """The texts of dates: by Arrow for years with four digits, by Python for the few others."""
    plain = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    texts = pc.if_else(plain, numbers, None).cast(arrow).cast(pa.string())
    others = pc.invert(pc.fill_null(plain, True))
    if not pc.any(others).as_py():
        return texts
    written = pa.array([wide(n) for n in numbers.filter(others).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, others, written)


def _format_times(micros: pa.Array, *, zoned: bool) -> pa.Array:
    first, last = FIRST_FOUR_DIGIT_DAY * DAY_MICROS, (LAST_FOUR_DIGIT_DAY + 1) * DAY_MICROS - 1
    texts = _format_with_arrow(micros, first, last, pa.timestamp("us"), format_timestamp)
    texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts


def _parse_matching(texts: pa.Array, pattern: str | None, parse: _Parse, arrow: pa.DataType) -> pa.Array:
    """Parse all texts at once; if that fails, those that match the pattern."""
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        pass
    if pattern is None:
        return _parse_by_halves(texts, parse, arrow)
    shaped = pc.match_substring_regex(texts, pattern)
    if not pc.any(shaped).as_py():
        return pa.nulls(len(texts), arrow)
    good = _parse_by_halves(texts.filter(shaped), parse, arrow)
    return pc.replace_with_mask(pa.nulls(len(texts), arrow), pc.fill_null(shaped, False), good)


def _parse_by_halves(texts: pa.Array, parse: _Parse, arrow: pa.DataType) -> pa.Array:
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, arrow)
    half = len(texts) // 2
    return pa.concat_arrays(
        [
            _parse_by_halves(texts.slice(0, half), parse, arrow),
            _parse_by_halves(texts.slice(half), parse, arrow),
        ]
    )


def _parse_times_of_day(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    dated = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return dated.cast(pa.timestamp(arrow.unit)).cast(arrow)


def _parse_dates(texts: pa.Array) -> pa.Array:
    values = _parse_matching(texts, _PLAIN_DATE, lambda t: t.cast(pa.date32()), pa.date32())
    if values.null_count == texts.null_count:
        return values
    values = pc.coalesce(values, _parse_matching(texts, _INTEGER, _days_of_counts, pa.date32()))
    return _parse_remaining(texts, values, pa.int32(), parse_date)


def _days_of_counts(texts: pa.Array) -> pa.Array:
    """Dates that were written as a count since 1970 of days, seconds, milliseconds or microseconds.

    A date is a whole number of days, which identifies the unit. An ambiguous number (a multiple of a day's
    microseconds that is a plausible count of milliseconds as well) is malformed.
    """
    counts = texts.cast(pa.int64())
    n = counts.fill_null(0).to_numpy(zero_copy_only=False)
    size = np.abs(n)
    days = np.zeros(len(n), dtype=np.int64)
    is_certain = size <= LAST_FOUR_DIGIT_DAY
    days[is_certain] = n[is_certain]
    whole_micros = n % DAY_MICROS == 0
    for unit, possible in (
        (DAY_MICROS, whole_micros & (size >= _SURELY_MICROS)),
        (86_400_000, ~whole_micros & (n % 86_400_000 == 0) & (size < _SURELY_MICROS)),
        (86_400, (n % 86_400_000 != 0) & (n % 86_400 == 0) & (size < _SURELY_MICROS // 1000)),
    ):
        here = possible & ~is_certain
        days[here] = n[here] // unit
        is_certain |= here
    is_certain &= _mask(counts.is_valid())
    return pa.array(days.astype(np.int32), mask=~is_certain).cast(pa.date32())


def _parse_times(texts: pa.Array, *, zoned: bool) -> pa.Array:
    values = _parse_matching(texts, _INTEGER, lambda t: t.cast(pa.int64()), pa.int64())
    if values.null_count == texts.null_count:
        return values
    local = _parse_matching(texts, _LOCAL_TIME, lambda t: t.cast(pa.timestamp("us")), pa.timestamp("us"))
    values = pc.coalesce(values, local.cast(pa.int64()))
    if zoned and values.null_count != texts.null_count:
        instants = _parse_matching(
            texts, _ZONED_TIME, lambda t: t.cast(pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")
        )
        values = pc.coalesce(values, instants.cast(pa.int64()))
    return _parse_remaining(texts, values, pa.int64(), lambda text: parse_timestamp(text, zoned=zoned))


def _parse_remaining(
    texts: pa.Array, values: pa.Array, number: pa.DataType, parse: Callable[[str], int | None]
) -> pa.Array:
    """Parse the remaining texts one by one: years of more than four digits, and malformed dates."""
    left = pc.and_(values.is_null(), texts.is_valid())
    if not pc.any(left).as_py():
        return values
    odd = texts.filter(left).dictionary_encode()
    limit = 2 ** (number.bit_width - 1)
    read = [parse(text) for text in odd.dictionary.to_pylist()]
    in_range = pa.array([n if n is not None and -limit <= n < limit else None for n in read], number)
    return pc.replace_with_mask(values, left, in_range.take(odd.indices).cast(values.type))
