"""Values as the log writes them: the text of a partition value or a statistic.

Numbers are decimal (doubles with as few digits as read back the same, `NaN`, `inf`), booleans `true` and
`false`, dates ISO. A timestamp is its microseconds since 1970 in a statistic, and in a partition value an
ISO time with six digits of fraction, which ends in `Z` if the type has a zone: nothing is lost, and
texts sort as times. Reading is wider: it takes what every writer of the original wrote (PROTOCOL.md,
"Partition values").
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from indextables.errors import SchemaError
from indextables.schema.calendar import (
    DAY_MICROS,
    FIRST_PLAIN_DAY,
    LAST_PLAIN_DAY,
    date_text,
    parse_date,
    parse_time,
    time_text,
)

# What Hive and Spark escape, and besides: what a URL or a file system could misread, a dot that would
# make a name mean "here" or "above", a leading or trailing blank.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|&+;,@$!`~\x80-\x9f\u2028\u2029]|^[. ]|[. ]$""")
# The name of a null partition value, in paths and in the log.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_CLOCK = r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_ZONED_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})$"
)
# Beyond this, a count of milliseconds lies after the year 9999: such a number counts microseconds.
_SURELY_MICROS = LAST_PLAIN_DAY * 86_400_000 + 86_400_000

_Mask = npt.NDArray[np.bool_]
_Parse = Callable[[pa.Array], pa.Array]


def escape_path(text: str) -> str:
    """The text as one part of a path.

    >>> escape_path("a/b=50%")
    'a%2Fb%3D50%25'
    """
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def unescape_path(text: str) -> str:
    """The text that was escaped; a percent sign that begins no escape stays as it is."""
    return unquote(text, errors="surrogateescape")


def partition_path(values: Iterable[tuple[str, str]]) -> str:
    """The folder of a partition, relative to the table; empty for no partition columns.

    >>> partition_path([("day", "2024-01-01"), ("city", "Aix/Arc")])
    'day=2024-01-01/city=Aix%2FArc'
    """
    return "/".join(f"{escape_path(name)}={escape_path(value)}" for name, value in values)


def parse_partition_path(path: str) -> list[tuple[str, str]]:
    """The partition columns and values that the folders of a relative path name, in order."""
    found = []
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if equals and name:
            found.append((unescape_path(name), unescape_path(value)))
    return found


class ParsedValues(NamedTuple):
    """Values read from texts; where a text could not be read the value is null and the mask true."""

    values: pa.Array
    unreadable: _Mask


def format_values(array: pa.Array, *, partition: bool = False) -> pa.Array:
    """The text of each value; null stays null.

    >>> format_values(pa.array([1.0, 1e300, float("nan")])).to_pylist()
    ['1.0', '1e+300', 'NaN']
    """
    arrow = array.type
    if pt.is_string(arrow):
        if partition and pc.any(pc.equal(array, NULL_PARTITION)).as_py():
            raise SchemaError(f"the partition value {NULL_PARTITION} cannot be told from null; change it")
        return array
    if pt.is_floating(arrow):
        return _format_floats(array)
    if pt.is_date(arrow):
        return _format_with_arrow(
            array.cast(pa.int32()), FIRST_PLAIN_DAY, LAST_PLAIN_DAY, pa.date32(), date_text
        )
    if pt.is_timestamp(arrow):
        micros = array.cast(pa.timestamp("us", arrow.tz)).cast(pa.int64())
        return _format_times(micros, zoned=arrow.tz is not None) if partition else micros.cast(pa.string())
    if pt.is_duration(arrow):
        return array.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
    if (
        pt.is_integer(arrow)
        or pt.is_boolean(arrow)
        or pt.is_decimal(arrow)
        or pt.is_time(arrow)
        or pt.is_null(arrow)
    ):
        return array.cast(pa.string())
    raise SchemaError(f"values of the type {arrow} have no text in the log; choose another column")


def parse_values(texts: pa.Array, arrow: pa.DataType, *, partition: bool = False) -> ParsedValues:
    """The values that texts of the log mean, whoever wrote them.

    >>> found = parse_values(pa.array(["10", "x", None]), pa.int32())
    >>> found.values.to_pylist(), found.unreadable.tolist()
    ([10, None, None], [False, True, False])
    """
    if partition:
        texts = pc.if_else(pc.equal(texts, NULL_PARTITION), pa.scalar(None, pa.string()), texts)
    if pt.is_string(arrow):
        values = texts
    elif pt.is_date(arrow):
        values = _parse_dates(texts)
    elif pt.is_timestamp(arrow):
        values = _parse_times(texts, zoned=arrow.tz is not None).cast(arrow)
    elif pt.is_duration(arrow):
        values = _parse_matching(texts, _INTEGER, lambda t: t.cast(pa.int64()), pa.int64()).cast(arrow)
    elif pt.is_integer(arrow):
        values = _parse_matching(texts, _INTEGER, lambda t: t.cast(arrow), arrow)
    elif pt.is_floating(arrow):
        values = _parse_matching(texts, None, lambda t: t.cast(arrow), arrow)
    elif pt.is_decimal(arrow):
        values = _parse_matching(texts, _NUMBER, lambda t: t.cast(arrow), arrow)
    elif pt.is_boolean(arrow):
        values = _parse_matching(texts, None, lambda t: t.cast(arrow), arrow)
    elif pt.is_time(arrow):
        values = _parse_matching(texts, _CLOCK, lambda t: _parse_times_of_day(t, arrow), arrow)
    else:
        values = pa.nulls(len(texts), arrow)
    if values.null_count == texts.null_count:
        return ParsedValues(values, np.zeros(len(texts), dtype=np.bool_))
    return ParsedValues(values, _mask(pc.and_(values.is_null(), texts.is_valid())))


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
    """Arrow's text for numbers of years with four digits, ours for the few others."""
    plain = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    texts = pc.if_else(plain, numbers, None).cast(arrow).cast(pa.string())
    others = pc.invert(pc.fill_null(plain, True))
    if not pc.any(others).as_py():
        return texts
    written = pa.array([wide(n) for n in numbers.filter(others).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, others, written)


def _format_times(micros: pa.Array, *, zoned: bool) -> pa.Array:
    first, last = FIRST_PLAIN_DAY * DAY_MICROS, (LAST_PLAIN_DAY + 1) * DAY_MICROS - 1
    texts = _format_with_arrow(micros, first, last, pa.timestamp("us"), time_text)
    texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts


def _parse_matching(texts: pa.Array, pattern: str | None, parse: _Parse, arrow: pa.DataType) -> pa.Array:
    """All texts at once; if that fails, those of the right shape, so that a few odd ones cost little."""
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

    A date is a whole number of days, which tells the units apart. What two units could mean (a multiple of a
    day's microseconds that is a plausible count of milliseconds as well) is not read.
    """
    counts = texts.cast(pa.int64())
    n = counts.fill_null(0).to_numpy(zero_copy_only=False)
    size = np.abs(n)
    days = np.zeros(len(n), dtype=np.int64)
    known = size <= LAST_PLAIN_DAY
    days[known] = n[known]
    whole_micros = n % DAY_MICROS == 0
    for unit, possible in (
        (DAY_MICROS, whole_micros & (size >= _SURELY_MICROS)),
        (86_400_000, ~whole_micros & (n % 86_400_000 == 0) & (size < _SURELY_MICROS)),
        (86_400, (n % 86_400_000 != 0) & (n % 86_400 == 0) & (size < _SURELY_MICROS // 1000)),
    ):
        here = possible & ~known
        days[here] = n[here] // unit
        known |= here
    known &= _mask(counts.is_valid())
    return pa.array(days.astype(np.int32), mask=~known).cast(pa.date32())


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
    return _parse_remaining(texts, values, pa.int64(), lambda text: parse_time(text, zoned=zoned))


def _parse_remaining(
    texts: pa.Array, values: pa.Array, number: pa.DataType, parse: Callable[[str], int | None]
) -> pa.Array:
    """Read what is left text by text: years of more than four digits, and what is no date at all."""
    left = pc.and_(values.is_null(), texts.is_valid())
    if not pc.any(left).as_py():
        return values
    odd = texts.filter(left).dictionary_encode()
    limit = 2 ** (number.bit_width - 1)
    read = [parse(text) for text in odd.dictionary.to_pylist()]
    held = pa.array([n if n is not None and -limit <= n < limit else None for n in read], number)
    return pc.replace_with_mask(values, left, held.take(odd.indices).cast(values.type))
