"""Statistics of a file's columns: least and greatest value, and how many values are null.

A minimum may be cut to a prefix, which is still a lower bound; a cut maximum is rounded up, so that it
is still an upper bound. NaN is the greatest of numbers, as in Spark. Strings are in the order of their
UTF-8 bytes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from indextables.errors import OptionError
from indextables.options.declare import Options
from indextables.options.log import STATS_COLUMNS, STATS_MAX_LENGTH, STATS_NUM_COLUMNS, STATS_TRUNCATION
from indextables.schema.types import is_collated
from indextables.schema.values import format_values, parse_values

# The tag of splits whose statistics are made here: their bounds can be trusted in every respect.
PARQUET_TAG = "parquet"

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)


class StatisticsText(NamedTuple):
    """Statistics as an `add` carries them: `minValues`, `maxValues` and `stats`."""

    min_values: dict[str, str]
    max_values: dict[str, str]
    stats: str | None


class FileStatistics(NamedTuple):
    """What the log says of a file; `trusted` if its statistics were made here."""

    min_values: Mapping[str, str] | None
    max_values: Mapping[str, str] | None
    stats: str | None
    trusted: bool


def has_bounds(field: pa.Field) -> bool:
    """Whether a least and a greatest value are kept for columns of this type."""
    arrow = field.type
    if pt.is_string(arrow):
        return not is_collated(field)
    kinds = (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_date, pt.is_timestamp)
    return any(is_kind(arrow) for is_kind in kinds)


class Statistics:
    """Statistics of rows, batch by batch; those of parts can be merged."""

    def __init__(self, schema: pa.Schema, options: Options, partition_columns: Sequence[str] = ()) -> None:
        self._partitions = {name.lower() for name in partition_columns}
        self._fields, self._bounded = _choose(schema, options, self._partitions)
        self._length = options.get(STATS_MAX_LENGTH) if options.get(STATS_TRUNCATION) else None
        self.rows = 0
        self.nulls = dict.fromkeys((field.name for field in self._fields), 0)
        self.nan: set[str] = set()
        # One array of a least and a greatest value for each column that has had a value.
        self.bounds: dict[str, pa.Array] = {}

    def accumulate(self, batch: pa.RecordBatch) -> None:
        """Take in rows; the batch has the schema the statistics were made for."""
        self.rows += batch.num_rows
        for field in self._fields:
            column = batch.column(field.name)
            self.nulls[field.name] += column.null_count
            if field.name in self._bounded:
                self._widen(field.name, column)

    def merge(self, other: "Statistics") -> None:
        """Take in the rows of another, which was made for the same schema and options."""
        self.rows += other.rows
        self.nan |= other.nan
        for name, nulls in other.nulls.items():
            self.nulls[name] += nulls
        for name, bounds in other.bounds.items():
            self._widen(name, bounds)

    def texts(self) -> StatisticsText:
        """The statistics as the log writes them."""
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
        if pt.is_floating(column.type):
            nan = pc.is_nan(column)
            if pc.any(nan).as_py():
                self.nan.add(name)
                column = column.filter(pc.invert(nan))
        if len(column) == column.null_count:
            return
        bounds = _min_max(column)
        if (known := self.bounds.get(name)) is not None:
            bounds = _min_max(pa.concat_arrays([known, bounds]))
        self.bounds[name] = bounds

    def _texts_of(self, name: str) -> tuple[str | None, str | None]:
        bounds = self.bounds.get(name)
        if bounds is None:
            return ("NaN", "NaN") if name in self.nan else (None, None)
        low, high = format_values(bounds).to_pylist()
        if pt.is_floating(bounds.type):
            # Both zeros are equal here, but not to every reader: the minimum is the lesser of them.
            low = "-0.0" if float(low) == 0 else low
            high = "NaN" if name in self.nan else "0.0" if float(high) == 0 else high
        elif pt.is_string(bounds.type) and self._length is not None and name.lower() not in self._partitions:
            low, high = low[: self._length], truncate_up(high, self._length)
        return low, high


def _min_max(column: pa.Array) -> pa.Array:
    """The least and the greatest value, without a detour over Python, which has not all timestamps."""
    found = pc.min_max(column)
    return pa.concat_arrays([pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)])


def stats_json(rows: int, nulls: Mapping[str, int]) -> str:
    """The `stats` of an `add`: the row count, and for each column how many values are null."""
    return json.dumps(
        {"numRecords": rows, "nullCount": dict(nulls)}, separators=(",", ":"), ensure_ascii=False
    )


def truncate_up(text: str, length: int) -> str | None:
    """The text if it is short, else a short one that is greater; None if there is none.

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
    """The statistics of rows that were in several files, from those of the files.

    What one file does not say, or cannot be trusted to say, the result does not say either.
    """
    counts = [_counts(source) for source in sources]
    rows = sum(count[0] for count in counts)
    shared = [name for name in counts[0][1] if all(name in count[1] for count in counts)] if counts else []
    nulls = {name: sum(count[1][name] for count in counts) for name in shared}
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    for field in schema:
        # A file in which the column is null throughout has no bounds, and adds none.
        speaking = [s for s, (n, k) in zip(sources, counts, strict=True) if k.get(field.name) != n]
        lows = [(s.min_values or {}).get(field.name) if s.trusted else None for s in speaking]
        highs = [(s.max_values or {}).get(field.name) if s.trusted else None for s in speaking]
        if (low := _extreme(lows, field.type, last=False)) is not None:
            least[field.name] = low
        if (high := _extreme(highs, field.type, last=True)) is not None:
            greatest[field.name] = high
    known = bool(counts) and all(count[0] >= 0 for count in counts)
    return StatisticsText(least, greatest, stats_json(rows, nulls) if known else None)


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
        wanted = {name.lower() for name in named}
        fields = [field for field in schema if field.name.lower() in wanted]
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
    """How many nulls each column has, from the statistics of a split; what cannot be read is not known.

    >>> null_counts('{"numRecords": 2, "nullCount": {"a": 1, "b": "x"}}'), null_counts("[]")
    ({'a': 1}, {})
    """
    if not stats:
        return {}
    try:
        found = json.loads(stats)["nullCount"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: count for name, count in found if type(count) is int and 0 <= count < 1 << 62}


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
    if pt.is_floating(arrow):
        numbers = values.to_numpy(zero_copy_only=False)
        # NaN sorts last; among the zeros the negative one is the lesser.
        order = np.lexsort((~np.signbit(numbers), numbers))
        return texts[int(order[-1 if last else 0])]
    place: int = pc.sort_indices(values)[-1 if last else 0].as_py()
    return texts[place]
