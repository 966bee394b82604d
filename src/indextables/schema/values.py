"""Texts of values in the log and in partition paths, and statistics of a file's columns.

Numbers are decimal (doubles with the fewest digits that parse to the same value, `NaN`, `inf`), booleans
`true` and `false`, dates ISO. A timestamp is its microseconds since 1970 in a statistic, and in a partition
value an ISO timestamp with six digits of fraction, which ends in `Z` if the type has a zone. Parsing also
accepts the texts of all other writers (PROTOCOL.md, "Partition values").

Statistics are a minimum, a maximum and the number of nulls. A minimum may be truncated to a prefix, which is
still a lower bound; a truncated maximum is rounded up, so that it is still an upper bound. NaN is the
greatest of numbers, as in Spark. Strings are in the order of their UTF-8 bytes.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, assert_never
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import OptionError, SchemaError
from indextables.options.declare import Options
from indextables.options.log import STATS_COLUMNS, STATS_MAX_LENGTH, STATS_NUM_COLUMNS, STATS_TRUNCATION
from indextables.schema.calendar import (
    DAY_MICROS,
    FIRST_FOUR_DIGIT_DAY,
    LAST_FOUR_DIGIT_DAY,
    format_date,
    format_timestamp,
    parse_date,
    parse_timestamp,
)
from indextables.schema.conversion import as_mask
from indextables.schema.type_info import TypeKind, info_of, is_collated, kind_of

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
    return ParsedValues(values, as_mask(pc.and_(values.is_null(), texts.is_valid())))


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
    is_certain &= as_mask(counts.is_valid())
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
    missing = pc.and_(values.is_null(), texts.is_valid())
    if not pc.any(missing).as_py():
        return values
    odd = texts.filter(missing).dictionary_encode()
    limit = 2 ** (number.bit_width - 1)
    read = [parse(text) for text in odd.dictionary.to_pylist()]
    in_range = pa.array([n if n is not None and -limit <= n < limit else None for n in read], number)
    return pc.replace_with_mask(values, missing, in_range.take(odd.indices).cast(values.type))


# The tag of Parquet splits, which this engine writes: their bounds are exact.
PARQUET_TAG = "parquet"

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)


class StatisticsText(NamedTuple):
    """Statistics as in an `add`: `minValues`, `maxValues` and `stats`."""

    min_values: dict[str, str]
    max_values: dict[str, str]
    stats: str | None


class FileStatistics(NamedTuple):
    """The statistics of a file in the log; `trusted` if this engine computed them."""

    min_values: Mapping[str, str] | None
    max_values: Mapping[str, str] | None
    stats: str | None
    trusted: bool


def has_bounds(field: pa.Field) -> bool:
    """Whether statistics have minimum and maximum of a column."""
    return info_of(field.type).bounds and not is_collated(field)


class Statistics:
    """Computes statistics of rows, batch by batch."""

    def __init__(self, schema: pa.Schema, options: Options, partition_columns: Sequence[str] = ()) -> None:
        self._partitions = {name.lower() for name in partition_columns}
        self._fields, self._bounded = _choose(schema, options, self._partitions)
        self._length = options.get(STATS_MAX_LENGTH) if options.get(STATS_TRUNCATION) else None
        self.rows = 0
        self.nulls = dict.fromkeys((field.name for field in self._fields), 0)
        self.nan: set[str] = set()
        # An array of minimum and maximum for each column with a value.
        self.bounds: dict[str, pa.Array] = {}

    def accumulate(self, batch: pa.RecordBatch) -> None:
        """Add rows; the batch has the schema of the statistics."""
        self.rows += batch.num_rows
        for field in self._fields:
            column = batch.column(field.name)
            self.nulls[field.name] += column.null_count
            if field.name in self._bounded:
                self._widen(field.name, column)

    def merge(self, other: "Statistics") -> None:
        """Add statistics of other rows, with the same schema and options."""
        self.rows += other.rows
        self.nan |= other.nan
        for name, nulls in other.nulls.items():
            self.nulls[name] += nulls
        for name, bounds in other.bounds.items():
            self._widen(name, bounds)

    def texts(self) -> StatisticsText:
        """The statistics in the form of the log."""
        least: dict[str, str] = {}
        greatest: dict[str, str] = {}
        for field in self._fields:
            if field.name not in self._bounded:
                continue
            low, high = self._texts_of(field.name)
            if low is not None:
                least[field.name] = low
            if high is not None:
                greatest[field.name] = high
        return StatisticsText(least, greatest, stats_json(self.rows, self.nulls))

    def _widen(self, name: str, column: pa.Array) -> None:
        if kind_of(column.type) is TypeKind.FLOAT:
            nan = pc.is_nan(column)
            if pc.any(nan).as_py():
                self.nan.add(name)
                column = column.filter(pc.invert(nan))
        if len(column) == column.null_count:
            return
        bounds = _min_max(column)
        if (previous := self.bounds.get(name)) is not None:
            bounds = _min_max(pa.concat_arrays([previous, bounds]))
        self.bounds[name] = bounds

    def _texts_of(self, name: str) -> tuple[str | None, str | None]:
        bounds = self.bounds.get(name)
        if bounds is None:
            return ("NaN", "NaN") if name in self.nan else (None, None)
        low, high = format_values(bounds).to_pylist()
        if kind_of(bounds.type) is TypeKind.FLOAT:
            # Some readers order the zeros, so the minimum is the negative zero, and the maximum the positive
            # one.
            low = "-0.0" if float(low) == 0 else low
            high = "NaN" if name in self.nan else "0.0" if float(high) == 0 else high
        elif (
            kind_of(bounds.type) is TypeKind.STRING
            and self._length is not None
            and name.lower() not in self._partitions
        ):
            if self._length == 0:
                return None, None
            low, high = low[: self._length], truncate_up(high, self._length)
        return low, high


def _min_max(column: pa.Array) -> pa.Array:
    """Minimum and maximum as an Arrow array, since Python objects do not exist for all timestamps."""
    bounds = pc.min_max(column)
    return pa.concat_arrays([pa.repeat(bounds["min"], 1), pa.repeat(bounds["max"], 1)])


def stats_json(rows: int, nulls: Mapping[str, int]) -> str:
    """The `stats` of an `add`: the row count, and for each column how many values are null."""
    return json.dumps(
        {"numRecords": rows, "nullCount": dict(nulls)}, separators=(",", ":"), ensure_ascii=False
    )


def truncate_up(text: str, length: int) -> str | None:
    """The text if it is short enough, else a short text that is greater; None if there is none.

    >>> truncate_up("abcd", 3), truncate_up("abc", 3)
    ('abd', 'abc')
    """
    if len(text) <= length:
        return text
    for end in range(length, 0, -1):
        after = ord(text[end - 1]) + 1
        if after <= _LAST_CHARACTER:
            return text[: end - 1] + chr(_SURROGATES[1] if after == _SURROGATES[0] else after)
    return None


def merge_statistics(sources: Sequence[FileStatistics], schema: pa.Schema) -> StatisticsText:
    """The statistics of the rows of several files, from the statistics of the files.

    Values that one file lacks, or that are not trusted, are omitted.
    """
    counts = [_counts(source) for source in sources]
    rows = sum(count[0] for count in counts)
    shared = [name for name in counts[0][1] if all(name in count[1] for count in counts)] if counts else []
    nulls = {name: sum(count[1][name] for count in counts) for name in shared}
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    for field in schema:
        # A file in which the column is always null has no bounds.
        speaking = [s for s, (n, k) in zip(sources, counts, strict=True) if k.get(field.name) != n]
        lows = [(s.min_values or {}).get(field.name) if s.trusted else None for s in speaking]
        highs = [(s.max_values or {}).get(field.name) if s.trusted else None for s in speaking]
        if (low := _extreme(lows, field.type, last=False)) is not None:
            least[field.name] = low
        if (high := _extreme(highs, field.type, last=True)) is not None:
            greatest[field.name] = high
    complete = bool(counts) and all(count[0] >= 0 for count in counts)
    return StatisticsText(least, greatest, stats_json(rows, nulls) if complete else None)


def _choose(schema: pa.Schema, options: Options, partitions: set[str]) -> tuple[list[pa.Field], set[str]]:
    """The columns whose nulls are counted, and those among them that have bounds."""
    if columns := options.get(STATS_COLUMNS):
        by_name = {field.name.lower(): field for field in schema}
        for name in columns:
            if name.lower() not in by_name:
                raise OptionError(
                    f"option '{STATS_COLUMNS.key}' names the column {name}, which the table does not have; "
                    f"its columns are {', '.join(schema.names)}"
                )
        names = {name.lower() for name in columns}
        fields = [field for field in schema if field.name.lower() in names]
        return fields, {field.name for field in fields if has_bounds(field)}
    limit = options.get(STATS_NUM_COLUMNS)
    fields = []
    bounded: set[str] = set()
    for field in schema:
        if limit >= 0 and len(bounded) >= limit:
            break
        if field.name.lower() in partitions:
            continue
        fields.append(field)
        if has_bounds(field):
            bounded.add(field.name)
    return fields, bounded


def null_counts(stats: str | None) -> dict[str, int]:
    """How many nulls each column has, from the statistics of a split; malformed counts are ignored.

    >>> null_counts('{"numRecords": 2, "nullCount": {"a": 1, "b": "x"}}'), null_counts("[]")
    ({'a': 1}, {})
    """
    if not stats:
        return {}
    try:
        counts = json.loads(stats)["nullCount"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: count for name, count in counts if type(count) is int and 0 <= count < 1 << 62}


def _counts(source: FileStatistics) -> tuple[int, dict[str, int]]:
    if not source.trusted or not source.stats:
        return -1, {}
    try:
        parsed = json.loads(source.stats)
        return int(parsed["numRecords"]), {str(k): int(v) for k, v in parsed["nullCount"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return -1, {}


def _extreme(texts: list[str | None], arrow: pa.DataType, *, last: bool) -> str | None:
    if not texts or None in texts:
        return None
    values, unreadable = parse_values(pa.array(texts, pa.string()), arrow)
    if unreadable.any():
        return None
    if kind_of(arrow) is TypeKind.FLOAT:
        numbers = values.to_numpy(zero_copy_only=False)
        # NaN sorts last; the negative zero is less than the positive one.
        order = np.lexsort((~np.signbit(numbers), numbers))
        return texts[int(order[-1 if last else 0])]
    place: int = pc.sort_indices(values)[-1 if last else 0].as_py()
    return texts[place]
