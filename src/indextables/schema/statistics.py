"""Statistics of a file's columns: minimum, maximum, and number of nulls.

A minimum may be truncated to a prefix, which is still a lower bound; a truncated maximum is rounded up, so
that it is still an upper bound. NaN is the greatest of numbers, as in Spark. Strings are in the order of
their UTF-8 bytes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import OptionError
from indextables.options.declare import Options
from indextables.options.log import STATS_COLUMNS, STATS_MAX_LENGTH, STATS_NUM_COLUMNS, STATS_TRUNCATION
from indextables.schema.type_info import TypeKind, info_of, is_collated, kind_of
from indextables.schema.values import format_values, parse_values

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
    if named := options.get(STATS_COLUMNS):
        by_name = {field.name.lower(): field for field in schema}
        for name in named:
            if name.lower() not in by_name:
                raise OptionError(
                    f"option '{STATS_COLUMNS.key}' names the column {name}, which the table does not have; "
                    f"its columns are {', '.join(schema.names)}"
                )
        names = {name.lower() for name in named}
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
