"""Which files may have rows that match a filter (inclusive), and which have only such rows (strict).

`files` are entries of a snapshot: `partitionValues`, `minValues`, `maxValues`, `stats` and `splitTags` are
read, any of which may be absent. A statistic is ignored if it cannot be read, or if its writer may have
truncated it or ignored a NaN.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.pruning.columns import ColumnMetrics, Entries, Mask, as_mask, find_field
from indextables.log.pruning.literals import to_scale
from indextables.log.pruning.tree import evaluate
from indextables.predicate import And, Predicate, columns_of, conjuncts, has_search
from indextables.records import dataclass
from indextables.schema.type_info import DATETIME, TypeKind, is_collated, kind_of
from indextables.schema.values import NULL_PARTITION, parse_values

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
    return _joined(mine), _joined(others)


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


# By the identity of the list, as long as it lives.
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
        listed = ref(files, lambda _: _read_entries.pop(key, None))
        read = _ReadEntries(listed, schema, columns, [Entries(batch, schema, columns) for batch in batches])
        _read_entries[key] = read
    return read.batches


def _joined(parts: list[Predicate]) -> Predicate | None:
    if len(parts) > 1:
        return And(tuple(parts))
    return parts[0] if parts else None


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
    ends = _Ends.joined([ends for ends in batch_ends if ends is not None])
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
    def joined(cls, parts: Sequence["_Ends"]) -> "_Ends":
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
