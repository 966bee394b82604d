"""Which files may have rows that match a filter (inclusive), and which have only such rows (strict).

`files` are entries of a snapshot: `partitionValues`, `minValues`, `maxValues`, `stats` and `splitTags` are
read, any of which may be absent. A statistic is ignored if it cannot be read, or if its writer may have
truncated it or ignored a NaN.

For each file, each part of a filter has three results: whether it can be true for a row, whether it can be
false, and whether it can be unknown. NOT exchanges the first two; AND and OR combine them; for a part that
metrics cannot decide, all three are possible. This implements SQL's three-valued logic.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.column_metrics import (
    ColumnMetrics,
    Entries,
    Mask,
    Threshold,
    find_field,
    threshold,
    to_scale,
)
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    TextMatch,
    TextMatchKind,
    Values,
    columns_of,
    conjunction,
    conjuncts,
    has_search,
)
from indextables.records import dataclass
from indextables.schema.conversion import as_mask
from indextables.schema.type_info import DATETIME, TypeKind, is_collated, kind_of
from indextables.schema.values import NULL_PARTITION, parse_values

# The maximum number of comparisons for one IN, and of groups of neighbouring values if there are more.
_IN_BUDGET = 200_000
_IN_GROUPS = 32
# Up to this number of files, each is compared with all values of a long list; for more, it is sorted.
_FEW_FILES = 16
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class TruthMasks(NamedTuple):
    """For each file, whether a condition can be true, false or unknown."""

    true: Mask
    false: Mask
    null: Mask


class Source(Protocol):
    """Files, and the metrics of their columns."""

    @property
    def count(self) -> int:
        """How many files there are."""

    def field_of(self, path: tuple[str, ...]) -> pa.Field | None:
        """The column of the table that a path names."""

    def metrics(self, column: pa.Field) -> ColumnMetrics:
        """The column's bounds."""

    def may_null(self, column: pa.Field) -> Mask:
        """Where it may be null."""

    def may_value(self, column: pa.Field) -> Mask:
        """Where it may have a value."""


def evaluate(predicate: Predicate, source: Source, *, nulls: bool) -> TruthMasks:
    """Evaluate a condition; without `nulls`, whether it can be unknown is not determined."""
    return _Evaluator(source, nulls=nulls).evaluate(predicate)


class _Sides(NamedTuple):
    """How bounds compare with a literal: below, at or above it; unknown bounds may be anywhere."""

    low_below: Mask
    low_to: Mask
    high_above: Mask
    high_from: Mask


class _Evaluator:
    def __init__(self, source: Source, *, nulls: bool) -> None:
        self._source = source
        self._nulls = nulls

    def evaluate(self, predicate: Predicate) -> TruthMasks:
        match predicate:
            case And(parts):
                return self._combine(parts, every=True)
            case Or(parts):
                return self._combine(parts, every=False)
            case Not(part):
                inner = self.evaluate(part)
                return TruthMasks(inner.false, inner.true, inner.null)
            case Always(value):
                return TruthMasks(
                    self._all(value is True), self._all(value is False), self._all(value is None)
                )
            case IsNull(column):
                return self._is_null(column)
            case Compare(op, column, value):
                return self._compare(op, column, value)
            case In():
                return self._in(predicate)
            case TextMatch(kind, column, text):
                return self._text(kind, column, text)
            case Like():
                return self._like(predicate)
            case Search() | NestedCondition():
                return self._unknown()

    def _all(self, value: bool) -> Mask:  # noqa: FBT001 - the value itself
        return np.full(self._source.count, value, dtype=np.bool_)

    def _unknown(self) -> TruthMasks:
        return TruthMasks(self._all(True), self._all(True), self._all(True))

    def _combine(self, parts: Sequence[Predicate], *, every: bool) -> TruthMasks:
        true, false, null = self._all(every), self._all(not every), self._all(False)
        for part in parts:
            one = self.evaluate(part)
            true = true & one.true if every else true | one.true
            false = false | one.false if every else false & one.false
            null = null | one.null
        return TruthMasks(true, false, null)

    def _is_null(self, column: Column) -> TruthMasks:
        field = self._source.field_of(column.path)
        if field is None:
            return TruthMasks(self._all(True), self._all(True), self._all(False))
        return TruthMasks(self._source.may_null(field), self._source.may_value(field), self._all(False))

    def _of_values(self, field: pa.Field, metrics: ColumnMetrics, true: Mask, false: Mask) -> TruthMasks:
        """The result of a condition that is unknown for null, and otherwise true or false."""
        may_value = self._source.may_value(field)
        null = self._source.may_null(field) if self._nulls else self._all(True)
        return TruthMasks(metrics.spread(true) & may_value, metrics.spread(false) & may_value, null)

    def _compare(self, op: Op, column: Column, value: pa.Scalar) -> TruthMasks:
        if not value.is_valid:
            if op is Op.NULL_SAFE:
                return self._is_null(column)
            return TruthMasks(self._all(False), self._all(False), self._all(True))
        field = self._source.field_of(column.path)
        point = None if field is None else threshold(value, field.type)
        if field is None or point is None:
            return self._null_safe(column, self._unknown()) if op is Op.NULL_SAFE else self._unknown()
        metrics = self._source.metrics(field)
        if metrics.low is None or metrics.high is None:
            every = np.ones(metrics.count, dtype=np.bool_)
            true, false = every, every
        else:
            true, false = _compare_bounds(op, metrics, point)
        verdict = self._of_values(field, metrics, true, false)
        return self._null_safe(column, verdict) if op is Op.NULL_SAFE else verdict

    def _null_safe(self, column: Column, equal: TruthMasks) -> TruthMasks:
        """`<=>` is false, not unknown, for a null beside a value."""
        return TruthMasks(equal.true, equal.false | self._is_null(column).true, self._all(False))

    def _in(self, condition: In) -> TruthMasks:
        if not condition.values:
            return TruthMasks(self._all(False), self._all(True), self._all(True))
        field = self._source.field_of(condition.column.path)
        if field is None:
            return self._unknown()
        array = condition.array
        present = (
            Values(array.drop_null()) if array is not None else [v for v in condition.values if v.is_valid]
        )
        metrics = self._source.metrics(field)
        if metrics.low is None or metrics.high is None or _is_long_and_unordered(condition, field.type):
            verdict = self._unknown()
        elif (many := _many(condition, field.type, metrics)) is not None:
            verdict = self._of_values(field, metrics, *_among_many(metrics, many))
        else:
            points = [threshold(value, field.type) for value in present]
            usable = [point for point in points if point is not None]
            whole = len(usable) == len(points)
            verdict = self._of_values(field, metrics, *_among(metrics, usable)) if whole else self._unknown()
        # If the list has a null, the result for values that are not in it is unknown.
        if len(present) < len(condition.values):
            return TruthMasks(verdict.true, self._all(False), self._all(True))
        return verdict

    def _text(self, kind: TextMatchKind, column: Column, text: str) -> TruthMasks:
        field = self._source.field_of(column.path)
        if field is None or kind_of(field.type) is not TypeKind.STRING:
            return self._unknown()
        metrics = self._source.metrics(field)
        if metrics.texts is not None:
            tests = {
                TextMatchKind.STARTS: pc.starts_with,
                TextMatchKind.ENDS: pc.ends_with,
                TextMatchKind.CONTAINS: pc.match_substring,
            }
            matches = as_mask(tests[kind](metrics.texts, text))
            return self._of_values(field, metrics, matches, ~matches)
        if kind is not TextMatchKind.STARTS or metrics.low is None or metrics.high is None:
            return self._unknown()
        return self._of_values(field, metrics, *_starting(metrics, text))

    def _like(self, like: Like) -> TruthMasks:
        parts = _like_parts(like)
        field = self._source.field_of(like.column.path)
        if parts is None or field is None or kind_of(field.type) is not TypeKind.STRING:
            return self._unknown()
        prefix = "".join(parts[: next((i for i, p in enumerate(parts) if p in (_ANY, _ONE)), len(parts))])
        if len(prefix) == len(parts):
            return self._compare(Op.EQ, like.column, pa.scalar(prefix))
        if parts[len(prefix) :] == [_ANY]:
            return self._text(TextMatchKind.STARTS, like.column, prefix)
        metrics = self._source.metrics(field)
        if metrics.texts is not None:
            meaning = "".join({_ANY: ".*", _ONE: "."}.get(part) or re.escape(part) for part in parts)
            matches = as_mask(pc.match_substring_regex(metrics.texts, f"(?s)^(?:{meaning})$"))
            return self._of_values(field, metrics, matches, ~matches)
        starts = self._text(TextMatchKind.STARTS, like.column, prefix)
        return TruthMasks(starts.true, self._all(True), self._all(True))


def _sides(metrics: ColumnMetrics, point: Threshold) -> _Sides:
    """Compare both bounds with a literal."""
    low, high = metrics.low, metrics.high
    assert low is not None
    assert high is not None
    if point.point is None:
        no_low, no_high = as_mask(low.is_null()), as_mask(high.is_null())
        every = np.ones(metrics.count, dtype=np.bool_)
        return (
            _Sides(no_low, no_low, every, every) if point.side < 0 else _Sides(every, every, no_high, no_high)
        )
    low_to = as_mask(pc.less_equal(low, point.point), null=True)
    high_above = as_mask(pc.greater(high, point.point), null=True)
    if metrics.open_ended is not None:
        high_above |= metrics.open_ended & _begins(high, point.point.as_py())
    if not point.exact:
        # Between this point and the next, at or below the one means below the other.
        return _Sides(low_to, low_to, high_above, high_above)
    low_below = as_mask(pc.less(low, point.point), null=True)
    high_from = high_above | as_mask(pc.equal(high, point.point), null=True)
    return _Sides(low_below, low_to, high_above, high_from)


def _compare_bounds(op: Op, metrics: ColumnMetrics, point: Threshold) -> tuple[Mask, Mask]:
    """Where a comparison can be true, and where it can be false, for values within the bounds."""
    sides = _sides(metrics, point)
    if op in (Op.LT, Op.GE):
        true, false = sides.low_below, sides.high_from
    elif op in (Op.LE, Op.GT):
        true, false = sides.low_to, sides.high_above
    else:
        true = sides.low_to & sides.high_from if point.exact else np.zeros(metrics.count, dtype=np.bool_)
        false = sides.low_below | sides.high_above if point.exact else np.ones(metrics.count, dtype=np.bool_)
    if op in (Op.GT, Op.GE):
        true, false = false, true
    if point.limit is not None:
        beyond = as_mask(pc.greater(metrics.high, point.limit), null=True)
        beyond |= as_mask(pc.less(metrics.low, -point.limit), null=True)
        true, false = true | beyond, false | beyond
    return true, false


def _among(metrics: ColumnMetrics, points: list[Threshold]) -> tuple[Mask, Mask]:
    """Where a value within the bounds can be one of the points, and where it can be none of them."""
    every = np.ones(metrics.count, dtype=np.bool_)
    if len(points) * metrics.count <= _IN_BUDGET or len(points) <= _IN_GROUPS:
        true, false = ~every, every
        for point in points:
            equal, differs = _compare_bounds(Op.EQ, metrics, point)
            true, false = true | equal, false & differs
        return true, false
    if any(point.limit is not None for point in points):
        return every, every
    thresholds = sorted((p for p in points if p.exact and p.point is not None), key=Threshold.sort_key)
    assert metrics.low is not None
    if metrics.low.type == pa.int64():
        return _between(metrics, np.array([point.sort_key() for point in thresholds], dtype=np.int64)), every
    # Only the bounds of groups of neighbouring values are compared: that skips fewer files.
    size = -(-len(thresholds) // _IN_GROUPS)
    true = ~every
    for start in range(0, len(thresholds), size):
        group = thresholds[start : start + size]
        true |= _sides(metrics, group[-1]).low_to & _sides(metrics, group[0]).high_from
    return true, every


def _is_long_and_unordered(condition: In, arrow: pa.DataType) -> bool:
    """Whether a list has many values of a type that cannot be compared with bounds."""
    return len(condition.values) > _IN_GROUPS and to_scale(pa.array([], arrow)) is None


def _many(condition: In, arrow: pa.DataType, metrics: ColumnMetrics) -> pa.Array | None:
    """The values of a long list on the scale of the bounds; None if it is short or of another type."""
    if condition.array is None or len(condition.values) <= _IN_GROUPS or condition.array.type != arrow:
        return None
    assert metrics.low is not None
    points = to_scale(condition.array.drop_null())
    return None if points is None or points.type != metrics.low.type else points


def _among_many(metrics: ColumnMetrics, points: pa.Array) -> tuple[Mask, Mask]:
    """As `_among`, for many points: exact for files with a single value, for others by the bounds."""
    assert metrics.low is not None
    assert metrics.high is not None
    if metrics.count <= _FEW_FILES:
        true = np.array([_any_between(points, metrics, i) for i in range(metrics.count)], dtype=np.bool_)
    elif points.type == pa.int64():
        true = _between(metrics, np.sort(points.to_numpy()))
    else:
        ordered = points.take(pc.sort_indices(points))
        true = np.zeros(metrics.count, dtype=np.bool_)
        size = -(-len(ordered) // _IN_GROUPS)
        for start in range(0, len(ordered), size):
            last = Threshold(ordered[min(start + size, len(ordered)) - 1])
            true |= _sides(metrics, last).low_to & _sides(metrics, Threshold(ordered[start])).high_from
    single = as_mask(pc.equal(metrics.low, metrics.high))
    if metrics.open_ended is not None:
        single &= ~metrics.open_ended
    if not single.any():
        return true, np.ones(metrics.count, dtype=np.bool_)
    is_member = as_mask(pc.is_in(metrics.low, value_set=points))
    return true & ~(single & ~is_member), ~(single & is_member)


def _any_between(points: pa.Array, metrics: ColumnMetrics, file: int) -> bool:
    """Whether one of the points lies within the bounds of one file."""
    assert metrics.low is not None
    assert metrics.high is not None
    low, high = metrics.low[file], metrics.high[file]
    inside = pc.greater_equal(points, low) if low.is_valid else pc.is_valid(points)
    if high.is_valid:
        below = pc.less_equal(points, high)
        if metrics.open_ended is not None and metrics.open_ended[file]:
            below = pc.or_(below, pc.starts_with(points, high.as_py()))
        inside = pc.and_(inside, below)
    return bool(pc.any(inside).as_py())


def _between(metrics: ColumnMetrics, points: npt.NDArray[np.int64]) -> Mask:
    """Where one of the sorted points lies within the bounds."""
    assert metrics.low is not None
    assert metrics.high is not None
    low = metrics.low.fill_null(_LEAST).to_numpy(zero_copy_only=False)
    high = metrics.high.fill_null(_GREATEST).to_numpy(zero_copy_only=False)
    mask: Mask = np.searchsorted(points, low, side="left") < np.searchsorted(points, high, side="right")
    return mask


def _begins(prefixes: pa.Array, text: str) -> Mask:
    """Which of the texts the given one begins with."""
    lengths = pc.unique(pc.utf8_length(prefixes)).to_pylist()
    begins = [text[:n] for n in lengths if n is not None and n <= len(text)]
    return as_mask(pc.is_in(prefixes, pa.array(begins, pa.string())))


def _starting(metrics: ColumnMetrics, text: str) -> tuple[Mask, Mask]:
    """Where a value within the bounds can start with the text, and where it can start otherwise."""
    low_starts, high_starts = (as_mask(pc.starts_with(bound, text)) for bound in (metrics.low, metrics.high))
    low_to = as_mask(pc.less_equal(metrics.low, text), null=True) | low_starts
    high_from = as_mask(pc.greater_equal(metrics.high, text), null=True)
    if metrics.open_ended is not None:
        high_from |= metrics.open_ended & _begins(metrics.high, text)
    return low_to & high_from, ~(low_starts & high_starts)


_ANY, _ONE = "%any", "%one"


def _like_parts(like: Like) -> list[str] | None:
    """The pattern's characters and wildcards; None if metrics cannot decide the pattern."""
    if like.ignore_case or len(like.escape) > 1:
        return None
    parts: list[str] = []
    characters = iter(like.pattern)
    for character in characters:
        if like.escape and character == like.escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", like.escape):
                return None
            parts.append(escaped)
        else:
            parts.append({"%": _ANY, "_": _ONE}.get(character, character))
    return parts


_READ = ("partitionValues", "minValues", "maxValues", "stats", "splitTags")


class MetricsEvaluation(NamedTuple):
    """For each file: whether some row may match (`inclusive`), and whether all rows match (`strict`)."""

    inclusive: pa.BooleanArray
    strict: pa.BooleanArray


def prune(
    files: pa.Table, predicate: Predicate | None, schema: pa.Schema, partition_columns: Sequence[str]
) -> pa.BooleanArray:
    """For each file: whether it may have a row for which the filter is true."""
    return _evaluate(files, predicate, schema, partition_columns, certain=False).inclusive


def evaluate_metrics(
    files: pa.Table, predicate: Predicate | None, schema: pa.Schema, partition_columns: Sequence[str]
) -> MetricsEvaluation:
    """For each file: whether some of its rows may match, and whether all of them match.

    Where `strict` equals `inclusive`, the rows that match can be counted from the log alone.
    """
    return _evaluate(files, predicate, schema, partition_columns, certain=True)


def bounds_may_match(
    predicate: Predicate | None,
    bounds: Mapping[str, tuple[str | None, str | None]],
    schema: pa.Schema,
    partition_columns: Sequence[str],
    *,
    ordered: bool,
) -> bool:
    """Whether a manifest with these bounds of its partition values may have an entry that the filter accepts.

    `ordered` means that the bounds follow the order of the columns' types (`manifest.bounds_of`); other
    writers compare texts that look like numbers as numbers, so their bounds are useless for strings and
    decimals.
    """
    if predicate is None:
        return True
    source = ManifestBounds(bounds, schema, partition_columns, ordered=ordered)
    return bool(evaluate(predicate, source, nulls=False).true[0])


def split_partition_conjuncts(
    predicate: Predicate | None, partition_columns: Sequence[str]
) -> tuple[Predicate | None, Predicate | None]:
    """Split a filter at AND: the parts that use only partition columns, and the others; None if empty."""
    names = {name.lower() for name in partition_columns}
    mine: list[Predicate] = []
    others: list[Predicate] = []
    for part in conjuncts(predicate):
        columns = list(columns_of(part))
        only = bool(columns) and all(len(c.path) == 1 and c.path[0].lower() in names for c in columns)
        (mine if only and not has_search(part) else others).append(part)
    return conjunction(mine), conjunction(others)


def _evaluate(
    files: pa.Table,
    predicate: Predicate | None,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    *,
    certain: bool,
) -> MetricsEvaluation:
    if predicate is None:
        every = pa.array(np.ones(files.num_rows, dtype=np.bool_))
        return MetricsEvaluation(every, every)
    inclusive = [np.zeros(0, dtype=np.bool_)]
    strict = [np.zeros(0, dtype=np.bool_)]
    for entries in _entries_of(files, schema, partition_columns):
        verdict = evaluate(predicate, entries, nulls=certain)
        inclusive.append(verdict.true)
        strict.append(verdict.true & ~verdict.false & ~verdict.null)
    return MetricsEvaluation(pa.array(np.concatenate(inclusive)), pa.array(np.concatenate(strict)))


class _ReadEntries(NamedTuple):
    """The entries of a file list, whose metrics are parsed once for all conditions."""

    files: "ref[pa.Table]"
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    batches: list[Entries]


# By the id of the list, which is removed from the cache with the list.
_read_entries: dict[int, _ReadEntries] = {}


def _entries_of(files: pa.Table, schema: pa.Schema, partition_columns: Sequence[str]) -> list[Entries]:
    key, columns = id(files), tuple(partition_columns)
    read = _read_entries.get(key)
    if (
        read is None
        or read.files() is not files
        or read.schema is not schema
        or read.partition_columns != columns
    ):
        batches = files.select([name for name in _READ if name in files.column_names]).to_batches()
        files_ref = ref(files, lambda _: _read_entries.pop(key, None))
        read = _ReadEntries(
            files_ref, schema, columns, [Entries(batch, schema, columns) for batch in batches]
        )
        _read_entries[key] = read
    return read.batches


# Texts whose order is that of the dates: years of four digits.
_PLAIN_YEAR = r"^[0-9]{4}-"


class ManifestBounds:
    """One manifest, by the least and the greatest partition values of its entries."""

    count = 1

    def __init__(
        self,
        bounds: Mapping[str, tuple[str | None, str | None]],
        schema: pa.Schema,
        partition_columns: Sequence[str],
        *,
        ordered: bool,
    ) -> None:
        self._bounds = bounds
        self._schema = schema
        self._partitions = {name.lower() for name in partition_columns}
        self._ordered = ordered

    def field_of(self, path: tuple[str, ...]) -> pa.Field | None:
        """The column of the table that a filter names."""
        return find_field(self._schema, path)

    def metrics(self, column: pa.Field) -> ColumnMetrics:
        """The column's bounds, if they are reliable."""
        least, greatest = self._bounds.get(column.name, (None, None))
        if (
            column.name.lower() not in self._partitions
            or is_collated(column)
            or least is None
            or greatest is None
        ):
            return ColumnMetrics(1)
        texts = pa.array(
            [None if text == NULL_PARTITION else text for text in (least, greatest)], pa.string()
        )
        if not self._ordered and not _in_order(texts, column.type):
            return ColumnMetrics(1)
        values = to_scale(parse_values(texts, column.type).values)
        if values is None:
            return ColumnMetrics(1)
        low, high = values.slice(0, 1), values.slice(1, 1)
        if as_mask(pc.greater(low, high)).any():
            return ColumnMetrics(1)
        return ColumnMetrics(1, low, high)

    def may_null(self, column: pa.Field) -> Mask:  # noqa: ARG002 - bounds are silent about nulls
        """Always true: bounds do not show nulls."""
        return np.ones(1, dtype=np.bool_)

    def may_value(self, column: pa.Field) -> Mask:  # noqa: ARG002 - absent bounds may just be unknown ones
        """Always true: bounds do not show whether all values are null."""
        return np.ones(1, dtype=np.bool_)


def _in_order(texts: pa.Array, arrow: pa.DataType) -> bool:
    """Whether these bounds follow the type's order: numeric for texts like numbers, else by character.

    False for strings, which may be of both kinds, so that even equal bounds can hide a value; and for
    decimals, which doubles do not represent exactly.
    """
    kind = kind_of(arrow)
    if kind in DATETIME:
        return all(as_mask(pc.match_substring_regex(texts, _PLAIN_YEAR)))
    return kind in {TypeKind.INTEGER, TypeKind.FLOAT, TypeKind.BOOLEAN}


@dataclass(frozen=True, slots=True)
class First:
    """The first `count` rows by a column; equal rows come in any order, or in that of further columns."""

    column: str
    count: int
    ascending: bool
    nulls_first: bool


def may_hold_first(
    files: pa.Table, first: First, certain: Mask, schema: pa.Schema, partition_columns: Sequence[str]
) -> Mask:
    """For each file: whether it may have one of the first rows.

    `certain` is true for files all of whose rows match the query's filter.
    """
    keep = np.ones(files.num_rows, dtype=np.bool_)
    column = find_field(schema, (first.column,))
    if column is None or not files.num_rows:
        return keep
    batch_ends = [_ends(Entries(batch, schema, partition_columns), column) for batch in files.to_batches()]
    if any(ends is None for ends in batch_ends):
        return keep
    ends = _Ends.concat([ends for ends in batch_ends if ends is not None])
    # The bound that comes first in the order, and the one that comes last.
    near, far = (ends.low, ends.high) if first.ascending else (ends.high, ends.low)
    counts = files["numRecords"].combine_chunks()
    sure = certain & ~ends.may_null & as_mask(far.is_valid()) & as_mask(counts.is_valid())
    if first.ascending:
        sure &= ~ends.open_ended
    places = np.flatnonzero(sure)
    direction = "ascending" if first.ascending else "descending"
    order = places[np.asarray(pc.array_sort_indices(far.take(pa.array(places)), order=direction))]
    rows = np.cumsum(counts.take(pa.array(order)).to_numpy(zero_copy_only=False))
    enough = int(np.searchsorted(rows, first.count))
    if enough == len(rows):
        return keep
    limit = far[order[enough]]
    behind = pc.greater(near, limit) if first.ascending else pc.less(near, limit)
    keep = ~as_mask(behind)
    if not first.ascending:
        keep |= ends.open_ended
    return keep | ends.may_null if first.nulls_first else keep


@dataclass(frozen=True, slots=True)
class _Ends:
    """The bounds of a column in each file (null if unknown), and whether it may have nulls."""

    low: pa.Array
    high: pa.Array
    open_ended: Mask
    may_null: Mask

    @classmethod
    def concat(cls, parts: Sequence["_Ends"]) -> "_Ends":
        return cls(
            pa.concat_arrays([part.low for part in parts]),
            pa.concat_arrays([part.high for part in parts]),
            np.concatenate([part.open_ended for part in parts]),
            np.concatenate([part.may_null for part in parts]),
        )


def _ends(entries: Entries, column: pa.Field) -> _Ends | None:
    metrics = entries.metrics(column)
    if metrics.low is None or metrics.high is None:
        return None
    low, high = metrics.low, metrics.high
    if metrics.codes is not None:
        codes = pa.array(metrics.codes)
        low, high = low.take(codes), high.take(codes)
    if metrics.unsure is not None:
        unsure = pa.array(metrics.unsure)
        low, high = (pc.if_else(unsure, pa.scalar(None, end.type), end) for end in (low, high))
    open_ended = np.zeros(entries.count, dtype=np.bool_)
    if metrics.open_ended is not None:
        open_ended = metrics.open_ended if metrics.codes is None else metrics.open_ended[metrics.codes]
    return _Ends(low, high, open_ended, entries.may_null(column))
