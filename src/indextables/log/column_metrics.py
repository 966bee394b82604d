"""The metrics of a column in each file, and literals on the scale on which they are compared.

Bounds and literals are compared on one of three scales: whole numbers (integers, booleans, days,
microseconds, and doubles by the order of their bits), decimals of one scale, texts. A literal that lies
between two points of the scale is represented by the point below it. Where Spark would compare in some other
way (a decimal as a double, a date in the session's time zone), nothing is pruned.
"""

import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.records import dataclass
from indextables.schema.calendar import parse_date, parse_timestamp
from indextables.schema.conversion import as_mask, list_parts, lookup, owners_of
from indextables.schema.type_info import TypeKind, from_unscaled, is_collated, kind_of, storage_kind_of
from indextables.schema.values import PARQUET_TAG, parse_values

Mask = npt.NDArray[np.bool_]

# The original writes reliable statistics for these types only; others are ignored.
_FOREIGN_TYPES = (
    *(pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us", "UTC")),
)
# The maximum number of metrics, of all columns and entries, in memory.
_MAX_METRICS = 2_000_000
# The original truncated every text at this length, also numbers, whose bounds then are wrong.
_FOREIGN_CUT = 32
# The original ordered texts by UTF-16; that differs from UTF-8 only if a bound has such a character.
_ASTRAL_ORDER = "[\\x{E000}-\\x{10FFFF}]"


@dataclass(frozen=True)
class ColumnMetrics:
    """The metrics of a column: arrays with `count` elements.

    A null bound is unknown. Where `open_ended`, the upper bound is a prefix of the true one. `codes`, if not
    None, has for each file the position of its metrics; `unsure` marks files without metrics. `texts` are the
    values themselves, if each element has a single value that is a string.
    """

    count: int
    low: pa.Array | None = None
    high: pa.Array | None = None
    open_ended: Mask | None = None
    may_null: Mask | None = None
    may_value: Mask | None = None
    codes: npt.NDArray[np.int64] | None = None
    unsure: Mask | None = None
    texts: pa.Array | None = None

    def spread(self, mask: Mask) -> Mask:
        """Convert a mask over the elements to one over the files."""
        spread = mask if self.codes is None else mask[self.codes]
        return spread if self.unsure is None else spread | self.unsure


@dataclass
class Entries:
    """A batch of file entries, and their metrics of the table's columns."""

    batch: pa.RecordBatch
    schema: pa.Schema
    partition_columns: Sequence[str]
    _metrics: dict[str, ColumnMetrics] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many files there are."""
        return int(self.batch.num_rows)

    def field_of(self, path: tuple[str, ...]) -> pa.Field | None:
        """The column of the table that a filter names; nested columns have no statistics."""
        return find_field(self.schema, path)

    def metrics(self, column: pa.Field) -> ColumnMetrics:
        """The bounds of the column; for nulls see `may_null` and `may_value`."""
        if (metrics := self._metrics.get(column.name)) is None:
            partitioned = any(column.name.lower() == name.lower() for name in self.partition_columns)
            metrics = self._partition(column) if partitioned else self._statistics(column)
            if len(self._metrics) * self.count > _MAX_METRICS:
                self._metrics.clear()
            self._metrics[column.name] = metrics
        return metrics

    def may_null(self, column: pa.Field) -> Mask:
        """Where the column may be null in some row."""
        metrics = self.metrics(column)
        if metrics.may_null is not None:
            return metrics.spread(metrics.may_null)
        mask = np.ones(self.count, dtype=np.bool_)
        stats, places = self._column("stats"), np.flatnonzero(self.has_own_statistics)
        if stats is not None and len(places):
            selected = stats if len(places) == self.count else stats.take(pa.array(places))
            mask[places] = ~as_mask(pc.match_substring_regex(selected, _count_pattern(column.name, "0")))
        return mask

    def may_value(self, column: pa.Field) -> Mask:
        """Where the column may have a value in some row."""
        metrics = self.metrics(column)
        if metrics.may_value is not None:
            return metrics.spread(metrics.may_value)
        mask = np.ones(self.count, dtype=np.bool_)
        bounds = [bound for bound in (metrics.low, metrics.high) if bound is not None]
        # Only a file without bounds can have nulls alone.
        if any(not bound.null_count for bound in bounds):
            return mask
        silent = self.has_own_statistics
        for bound in bounds:
            silent = silent & as_mask(bound.is_null())
        places = np.flatnonzero(silent)
        if len(places):
            mask[places] = self._some_not_null(column.name, places)
        return mask

    @cached_property
    def has_own_statistics(self) -> Mask:
        """Which entries have statistics of this implementation."""
        mask = np.zeros(self.count, dtype=np.bool_)
        tags = self._column("splitTags")
        if tags is None or tags.null_count == len(tags):
            return mask
        offsets, values = list_parts(tags)
        tagged = as_mask(pc.equal(values, PARQUET_TAG))
        if len(tagged) == self.count and (offsets[1:] > offsets[:-1]).all():
            return tagged
        mask[owners_of(offsets, np.flatnonzero(tagged))] = True
        return mask

    def _column(self, name: str) -> pa.Array | None:
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)

    def _partition(self, column: pa.Field) -> ColumnMetrics:
        maps = self._column("partitionValues")
        if maps is None:
            return ColumnMetrics(self.count)
        texts, present = lookup(maps, column.name)
        coded = texts.dictionary_encode(null_encoding="encode")
        parsed = parse_values(coded.dictionary, column.type, partition=True)
        low = None if is_collated(column) else to_scale(parsed.values)
        null = as_mask(parsed.values.is_null())
        return ColumnMetrics(
            len(coded.dictionary),
            low,
            low,
            may_null=null,
            may_value=~null | parsed.unreadable,
            codes=coded.indices.to_numpy().astype(np.int64),
            unsure=None if present.all() else ~present,
            texts=parsed.values if _is_text(column) and not is_collated(column) else None,
        )

    def _statistics(self, column: pa.Field) -> ColumnMetrics:
        least, greatest = self._column("minValues"), self._column("maxValues")
        if least is None or greatest is None or is_collated(column):
            return ColumnMetrics(self.count)
        foreign = ~self.has_own_statistics
        any_foreign = bool(foreign.any())
        if any_foreign and foreign.all() and column.type not in _FOREIGN_TYPES:
            return ColumnMetrics(self.count)
        low_texts, high_texts = lookup(least, column.name)[0], lookup(greatest, column.name)[0]
        if any_foreign:
            low_texts, high_texts = _distrust(low_texts, high_texts, foreign, column.type)
        low = to_scale(parse_values(low_texts, column.type).values)
        high = to_scale(parse_values(high_texts, column.type).values)
        if low is None or high is None:
            return ColumnMetrics(self.count)
        if any_foreign and as_mask(crossed := pc.greater(low, high)).any():
            low, high = (pc.if_else(pc.fill_null(crossed, False), None, bound) for bound in (low, high))
        open_ended = foreign if any_foreign and _is_text(column) else None
        return ColumnMetrics(self.count, low, high, open_ended=open_ended)

    def _some_not_null(self, name: str, places: npt.NDArray[np.int64]) -> Mask:
        """For some entries of this implementation: whether the column has fewer nulls than rows."""
        stats = self._column("stats")
        if stats is None:
            return np.ones(len(places), dtype=np.bool_)
        matches = pc.extract_regex(stats.take(pa.array(places)), _count_pattern(name, "[0-9]+"))
        rows, nulls = (matches.field(part) for part in ("rows", "nulls"))
        return as_mask(pc.or_(matches.is_null(), pc.not_equal(rows, nulls)), null=True)


def _is_text(column: pa.Field) -> bool:
    return kind_of(column.type) is TypeKind.STRING


def _count_pattern(name: str, count: str) -> str:
    """A regular expression for the `stats` of this implementation with a column's number of nulls.

    Quotes within a key are escaped, so an unescaped quote after a comma or brace begins a key.
    """
    key = re.escape(json.dumps(name, ensure_ascii=False))
    head = r'(?s)^\{"numRecords":(?P<rows>[0-9]+),"nullCount":\{(?:.*,)?'
    return head + key + ":(?P<nulls>" + count + ")[,}]"


def find_field(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field | None:
    """The top-level column with this name; regardless of case if that is unambiguous."""
    if len(path) != 1:
        return None
    alike = [column for column in schema if column.name.lower() == path[0].lower()]
    same = [column for column in alike if column.name == path[0]]
    return same[0] if len(same) == 1 else alike[0] if len(alike) == 1 else None


def _distrust(low: pa.Array, high: pa.Array, foreign: Mask, arrow: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Remove bounds of other writers that are not reliable."""
    if arrow not in _FOREIGN_TYPES:
        low, high = (pc.if_else(pa.array(foreign), None, bound) for bound in (low, high))
    elif kind_of(arrow) is TypeKind.FLOAT:
        # Their statistics ignore NaN, which is the greatest value.
        cut = pc.greater_equal(pc.utf8_length(low), _FOREIGN_CUT)
        low = pc.if_else(pc.and_(pa.array(foreign), cut), None, low)
        high = pc.if_else(pa.array(foreign), None, high)
    elif kind_of(arrow) is TypeKind.STRING:
        low, high = (_without_astral_bounds(bound, foreign) for bound in (low, high))
        if (_bytes(high) == ord("?")).any():
            # A surrogate pair that was cut in two was written as a question mark.
            high = pc.if_else(pa.array(foreign), pc.ascii_rtrim(high, "?"), high)
    return low, high


def _without_astral_bounds(texts: pa.Array, foreign: Mask) -> pa.Array:
    if not (_bytes(texts) >= 0x80).any():
        return texts
    odd = pc.match_substring_regex(texts, _ASTRAL_ORDER)
    return pc.if_else(pc.and_(pa.array(foreign), odd), None, texts)


def _bytes(texts: pa.Array) -> npt.NDArray[np.uint8]:
    data = texts.buffers()[2]
    return np.frombuffer(data if data is not None else b"", np.uint8)


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
            return _timestamp_threshold(value, arrow) if literal is column else None
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


def _timestamp_threshold(value: pa.Scalar, arrow: pa.DataType) -> Threshold:
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
