"""The metrics of a column in each file: its bounds, and whether there can be nulls and values."""

import json
import re
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.nested import list_parts, lookup, owners_of
from indextables.log.pruning.literals import to_scale
from indextables.records import dataclass
from indextables.schema.statistics import PARQUET_TAG
from indextables.schema.type_info import TypeKind, is_collated, kind_of
from indextables.schema.values import parse_values

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


def as_mask(array: pa.Array, *, null: bool = False) -> Mask:
    """Convert a boolean Arrow array to a NumPy array."""
    filled = pc.fill_null(array, null) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


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
        stats, places = self._column("stats"), np.flatnonzero(self.ours)
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
        silent = self.ours
        for bound in bounds:
            silent = silent & as_mask(bound.is_null())
        places = np.flatnonzero(silent)
        if len(places):
            mask[places] = self._some_not_null(column.name, places)
        return mask

    @cached_property
    def ours(self) -> Mask:
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
        foreign = ~self.ours
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
