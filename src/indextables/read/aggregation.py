"""Aggregation: partial aggregates from the log, from an index or from rows, and their combination.

A partial aggregate has one row for each group. Columns are `g0..` for the groups and, for the aggregate
number `i`, `n<i>` (how many values), `s<i>` (their sum), `low<i>` and `high<i>`. Whole numbers are summed as
decimals, which do not overflow; floats are compared by integers in the same order, with NaN as the greatest.
Distinct values are separate tables, with one row for each pair of group and value.
"""

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.log.pruning import evaluate_metrics
from indextables.predicate import Always, Predicate
from indextables.predicate.evaluate import float_of_order, float_order, same_values, to_int64
from indextables.read.spec import (
    Aggregate,
    AggregateSpec,
    DateHistogram,
    Function,
    Group,
    Histogram,
    RangeBuckets,
    group_column,
)
from indextables.read.split_reader import SplitReader, split_errors
from indextables.read.table_context import TableContext, are_parquet, partition_columns
from indextables.records import dataclass
from indextables.schema.conversion import as_mask, convert_leaves
from indextables.schema.type_info import (
    EXACT,
    NESTED,
    TIMESTAMPS,
    TypeKind,
    from_unscaled,
    has_digits,
    info_of,
    is_int64_ordered,
    kind_of,
    round_half_up,
)
from indextables.schema.values import null_counts, parse_values
from indextables.split.query.index_aggregation import (
    GroupKey,
    IndexGroup,
    Measure,
    MeasureResult,
    can_measure,
    index_groups,
)
from indextables.split.query.row_sets import TRUE, RowSet

_WHOLE = pa.decimal128(38, 0)
# Sums of decimals of this many digits have at most 38 digits, whatever the number of rows.
_NARROW_DIGITS = 28
# Fewer rows are grouped faster in one thread.
_MANY_ROWS = 1 << 16
_LONG = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Partial:
    """The groups of some rows, and the distinct values of each aggregate that counts them."""

    groups: pa.Table
    distinct: dict[int, pa.Table] = field(default_factory=dict)


def from_rows(
    keys: Sequence[pa.Array], values: Sequence[pa.Array | None], aggregates: Sequence[Aggregate], rows: int
) -> Partial:
    """The groups of some rows."""
    columns: dict[str, Any] = {f"g{i}": same_values(key) for i, key in enumerate(keys)}
    distinct: dict[int, pa.Table] = {}
    for i, (aggregate, value) in enumerate(zip(aggregates, values, strict=True)):
        if value is None:
            columns[f"n{i}"] = pa.array(np.ones(rows, np.int64))
            continue
        columns[f"n{i}"] = value.is_valid().cast(pa.int64())
        match aggregate.function:
            case Function.COUNT:
                pass
            case Function.COUNT_DISTINCT:
                own = {f"g{k}": columns[f"g{k}"] for k in range(len(keys))}
                distinct[i] = pairs(pa.table({**own, "v": same_values(value)}))
            case Function.SUM | Function.AVG:
                columns[f"s{i}"] = _summable(value)
            case Function.MIN | Function.MAX:
                columns[f"{bound_name(aggregate)}{i}"] = comparable(value)
            case _:
                assert_never(aggregate.function)
    return Partial(_reduce(pa.table(columns), len(keys)), distinct)


def from_parts(table: pa.Table, keys: int) -> Partial:
    """Partial results that may have several rows for a group."""
    columns = {
        name: same_values(table[name].combine_chunks()) if name[0] == "g" else table[name]
        for name in table.column_names
    }
    return Partial(_reduce(pa.table(columns), keys))


def bound_name(aggregate: Aggregate) -> str:
    """The column of a least or greatest value, without the aggregate's number."""
    return "low" if aggregate.function is Function.MIN else "high"


def comparable(values: pa.Array) -> pa.Array:
    """Values whose minimum and maximum are those of Spark."""
    return float_order(values) if kind_of(values.type) is TypeKind.FLOAT else values


def count_pairs(partial: Partial, keys: int) -> Partial:
    """The same groups, with distinct values counted."""
    groups = partial.groups
    tables = []
    for i, pairs_ in partial.distinct.items():
        place = groups.column_names.index(f"n{i}")
        groups = groups.set_column(place, f"n{i}", pa.array(np.zeros(groups.num_rows, np.int64)))
        tables.append(
            pairs_.drop_columns(["v"]).append_column(f"n{i}", pa.array(np.ones(pairs_.num_rows, np.int64)))
        )
    if not tables:
        return partial
    return Partial(_reduce(pa.concat_tables([groups, *tables], promote_options="default"), keys))


def merge(partials: Sequence[Partial], keys: int) -> Partial:
    """Merge several partial results."""
    if len(partials) == 1:
        return partials[0]
    # Arrow groups each chunk on its own first.
    groups = _reduce(pa.concat_tables([p.groups for p in partials]).combine_chunks(), keys)
    distinct = {i: pairs(pa.concat_tables([p.distinct[i] for p in partials])) for i in partials[0].distinct}
    return Partial(groups, distinct)


def _summable(values: pa.Array) -> pa.Array:
    match kind_of(values.type):
        case TypeKind.FLOAT:
            return values.cast(pa.float64())
        case TypeKind.DECIMAL:
            # Arrow's sums of 128 bits wrap around.
            wide = values.type.precision > _NARROW_DIGITS
            scale = values.type.scale
            return values.cast(pa.decimal256(76, scale) if wide else pa.decimal128(38, scale))
        case _:
            return values.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(_WHOLE)


def pairs(table: pa.Table) -> pa.Table:
    """The distinct pairs of group and value, without null values."""
    present = table.filter(table["v"].is_valid())
    flat = _flat_keys(present)
    work = flat.append_column("_first", pa.array(np.arange(flat.num_rows)))
    firsts = work.group_by(flat.column_names).aggregate([("_first", "min")])["_first_min"]
    return present.take(firsts)


def _reduce(table: pa.Table, keys: int) -> pa.Table:
    """One row for each group; without groups, one row."""
    names = [f"g{i}" for i in range(keys)]
    rest = [name for name in table.column_names if name not in names]
    functions = {"n": "sum", "s": "sum", "l": "min", "h": "max"}
    functions_by_column = [(name, functions[name[0]]) for name in rest]
    # Without groups, all rows share one: Arrow groups by at least one column.
    shared = pa.array(np.zeros(table.num_rows, np.int8))
    flat = _flat_keys(table.select(names)) if names else pa.table({"_all": shared})
    work = flat
    for name in rest:
        work = work.append_column(name, table[name])
    work = work.append_column("_first", pa.array(np.arange(table.num_rows)))
    threads = table.num_rows > _MANY_ROWS
    done = work.group_by(flat.column_names, use_threads=threads).aggregate(
        [*functions_by_column, ("_first", "min")]
    )
    columns = {name: table[name].take(done["_first_min"]) for name in names}
    for name, function in functions_by_column:
        result = done[f"{name}_{function}"]
        columns[name] = result if result.type == table[name].type else result.cast(table[name].type)
    return pa.table(columns)


def _flat_keys(keys: pa.Table) -> pa.Table:
    """Columns by which Arrow can group: nested values become text."""
    columns = {}
    for name in keys.column_names:
        column = keys[name]
        kind = kind_of(column.type)
        if kind in NESTED:
            values = convert_leaves(column.combine_chunks(), _without_times).to_pylist()
            column = pa.array([None if value is None else repr(value) for value in values], pa.string())
        elif kind is TypeKind.NULL:
            column = pa.array(np.zeros(len(column), np.int8))
        columns[name] = column
    return pa.table(columns)


def _without_times(values: pa.Array) -> pa.Array:
    """Times as whole numbers: Python has no objects for all of them."""
    if kind_of(values.type) is TypeKind.INTERVAL:
        return values.view(pa.int64())
    return to_int64(values) if is_int64_ordered(values.type) else values


def result_table(parts: Sequence[Partial], spec: AggregateSpec) -> pa.Table:
    """The result of an aggregation: Spark's types, null for groups without values, one row without groups."""
    total = count_pairs(merge(parts, len(spec.groups)), len(spec.groups))
    rows = total.groups
    if not spec.groups and not rows.num_rows:
        return _result_of_no_rows(spec)
    columns = [rows[f"g{i}"] for i in range(len(spec.groups))]
    for i, (aggregate, arrow) in enumerate(zip(spec.aggregates, spec.types, strict=True)):
        columns.append(_result(rows, i, aggregate, arrow, spec.schema.field(len(spec.groups) + i).type))
    cast = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, spec.schema, strict=True)
    ]
    return pa.Table.from_arrays(cast, schema=spec.schema)


def _result_of_no_rows(spec: AggregateSpec) -> pa.Table:
    """The one row of an ungrouped aggregation over no rows."""
    counts = (Function.COUNT, Function.COUNT_DISTINCT)
    values = [
        pa.array([0 if a.function in counts else None], field.type)
        for a, field in zip(spec.aggregates, spec.schema, strict=True)
    ]
    return pa.Table.from_arrays(values, schema=spec.schema)


def _result(
    rows: pa.Table, i: int, aggregate: Aggregate, arrow: pa.DataType | None, result: pa.DataType
) -> pa.ChunkedArray | pa.Array:
    counts = rows[f"n{i}"].fill_null(0)
    match aggregate.function:
        case Function.COUNT | Function.COUNT_DISTINCT:
            return counts
        case Function.SUM:
            return _sum(rows[f"s{i}"], aggregate, result)
        case Function.AVG:
            return _average(rows[f"s{i}"], counts, aggregate, result)
        case Function.MIN | Function.MAX:
            bound = rows[f"{bound_name(aggregate)}{i}"]
            if arrow is not None and kind_of(arrow) is TypeKind.FLOAT:
                return float_of_order(bound.combine_chunks(), arrow)
            return bound
        case _:
            assert_never(aggregate.function)


def _sum(sums: pa.ChunkedArray, aggregate: Aggregate, result: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if kind_of(sums.type) is TypeKind.FLOAT:
        return sums
    values = sums.to_pylist()
    if kind_of(result) is TypeKind.INTEGER:
        whole = [None if value is None else int(value) for value in values]
        if all(value is None or _LONG[0] <= value <= _LONG[1] for value in whole):
            return pa.array(whole, result)
    elif all(value is None or has_digits(value, result.precision, result.scale) for value in values):
        return sums.cast(result)
    raise _overflow("sum", aggregate, result)


def _average(
    sums: pa.ChunkedArray, counts: pa.ChunkedArray, aggregate: Aggregate, result: pa.DataType
) -> pa.Array:
    if kind_of(sums.type) is TypeKind.FLOAT:
        return pc.divide(sums, pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.int64()), counts))
    pairs_ = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    if kind_of(result) is TypeKind.FLOAT:
        return pa.array([float(total) / count if count else None for total, count in pairs_], result)
    averages: list[decimal.Decimal | None] = []
    for total, count in pairs_:
        average = None
        if count:
            average = round_half_up(EXACT.divide(total, decimal.Decimal(count)), result.scale)
            if not has_digits(average, result.precision, result.scale):
                raise _overflow("average", aggregate, result)
        averages.append(average)
    return pa.array(averages, result)


def _overflow(what: str, aggregate: Aggregate, result: pa.DataType) -> PredicateError:
    return PredicateError(
        f"the {what} of '{aggregate.column}' does not fit into {result}; "
        "cast the column to a wider decimal, or to double"
    )


Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

# Decimals of more digits may be truncated in the log.
_MAX_DIGITS = 28


def from_log(files: pa.Table, spec: AggregateSpec) -> tuple[Partial | None, Mask]:
    """The partial aggregate of all files whose statistics suffice, and a mask of these files."""
    table = spec.table
    none = np.zeros(files.num_rows, np.bool_)
    partitions = {name.lower() for name in table.partition_columns}
    if any(not isinstance(g, str) or g.lower() not in partitions for g in spec.groups):
        return None, none
    if any(a.function not in _FROM_STATISTICS for a in spec.aggregates) or not files.num_rows:
        return None, none
    evaluation = evaluate_metrics(files, spec.where, table.schema, table.partition_columns)
    sure = as_mask(evaluation.strict) & as_mask(files["numRecords"].is_valid().combine_chunks())
    if not sure.any():
        return None, none
    entries = _LogStatistics(files, table, partitions)
    columns: dict[str, pa.Array] = {
        f"g{i}": entries.partition(str(group)) for i, group in enumerate(spec.groups)
    }
    for i, (aggregate, arrow) in enumerate(zip(spec.aggregates, spec.types, strict=True)):
        answer, certain = entries.answer(aggregate, arrow)
        sure &= certain
        columns.update({f"{name}{i}": values for name, values in answer.items()})
    if not sure.any():
        return None, none
    whole = pa.table(columns).filter(pa.array(sure))
    return from_parts(whole, len(spec.groups)), sure


_FROM_STATISTICS = (Function.COUNT, Function.MIN, Function.MAX)


class _LogStatistics:
    """The statistics in the entries of files."""

    def __init__(self, files: pa.Table, table: TableContext, partitions: set[str]) -> None:
        self.files = files
        self.table = table
        self.partitions = partitions
        self.records = files["numRecords"].combine_chunks().fill_null(0)
        self.values = partition_columns(files, table.schema, table.partition_columns)
        self._stats: list[Mapping[str, int]] | None = None

    def partition(self, column: str) -> pa.Array:
        """A partition column's value in each file."""
        return next(values for name, values in self.values.items() if name.lower() == column.lower())

    def answer(self, aggregate: Aggregate, arrow: pa.DataType | None) -> tuple[dict[str, pa.Array], Mask]:
        """The partial results of an aggregate for each file, and a mask of the files where they are exact."""
        if aggregate.column is None or arrow is None:
            return {"n": self.records}, np.ones(len(self.records), np.bool_)
        if aggregate.column.lower() in self.partitions:
            values = self.partition(aggregate.column)
            counts = pc.if_else(values.is_valid(), self.records, pa.scalar(0, pa.int64()))
            # The partition values of a file without rows do not count.
            values = pc.if_else(pc.greater(self.records, 0), values, pa.scalar(None, values.type))
            return self._with_bound(aggregate, counts, values), np.ones(len(counts), np.bool_)
        nulls = pa.array([stats.get(aggregate.column) for stats in self._null_counts()], pa.int64())
        counts = pc.subtract(self.records, nulls)
        certain = as_mask(nulls.is_valid()) & as_mask(are_parquet(self.files))
        counts = counts.fill_null(0)
        if aggregate.function is Function.COUNT:
            return {"n": counts}, certain
        values, readable = self._bound(aggregate, arrow)
        all_null = as_mask(pc.equal(counts, 0))
        return self._with_bound(aggregate, counts, values), certain & (readable | all_null)

    def _with_bound(self, aggregate: Aggregate, counts: pa.Array, values: pa.Array) -> dict[str, pa.Array]:
        if aggregate.function is Function.COUNT:
            return {"n": counts}
        return {"n": counts, bound_name(aggregate): comparable(values)}

    def _bound(self, aggregate: Aggregate, arrow: pa.DataType) -> tuple[pa.Array, Mask]:
        """The least or greatest value of each file, where the log has it untruncated."""
        if not _whole_in_log(arrow):
            return pa.nulls(len(self.records), arrow), np.zeros(len(self.records), np.bool_)
        side = "minValues" if aggregate.function is Function.MIN else "maxValues"
        entries = [dict(entry or ()) for entry in self.files[side].to_pylist()]
        texts = pa.array([entry.get(aggregate.column) for entry in entries], pa.string())
        parsed = parse_values(texts, arrow)
        return parsed.values, as_mask(texts.is_valid()) & ~parsed.unreadable

    def _null_counts(self) -> list[Mapping[str, int]]:
        if self._stats is None:
            self._stats = [null_counts(text) for text in self.files["stats"].to_pylist()]
        return self._stats


def _whole_in_log(arrow: pa.DataType) -> bool:
    """Whether the bounds in the log are exact for a type."""
    if kind_of(arrow) is TypeKind.DECIMAL:
        return bool(arrow.precision <= _MAX_DIGITS)
    return info_of(arrow).bounds and kind_of(arrow) is not TypeKind.STRING


_DAY_US = 86_400_000_000
# Partial results of batches are merged when there are this many groups.
_MERGE_ROWS = 200_000


def split_partial(reader: SplitReader, spec: AggregateSpec) -> Partial:
    """The partial aggregate of one split."""
    with split_errors(spec.table, reader.ref):
        result = _from_index(reader, spec)
        return result if result is not None else _from_rows(reader, spec)


def index_partial(reader: SplitReader, spec: AggregateSpec) -> Partial | None:
    """The partial aggregate of one split from its index; None if the index is not exact for it."""
    with split_errors(spec.table, reader.ref):
        return _from_index(reader, spec)


def index_suffices(reader: SplitReader, spec: AggregateSpec, *, sums_exact: bool) -> bool | None:
    """Whether the index of a split gives the partial aggregate exactly; None if that is unknown in advance.

    Nothing is computed here. `sums_exact` means that doubles represent every sum of the aggregates exactly.
    """
    with split_errors(reader.table, reader.ref):
        condition = reader.fold(spec.where)
        return reader.from_index(condition, lambda: _suffices(reader, spec, condition, sums_exact=sums_exact))


def _suffices(
    reader: SplitReader, spec: AggregateSpec, condition: Predicate, *, sums_exact: bool
) -> bool | None:
    keys, measures = _keys(reader, spec), _measures(reader, spec)
    if keys is None or measures is None:
        return False
    if isinstance(condition, Always):
        if condition.value is not True:
            return None
    elif reader.filter_plan(condition).residual is not None:
        return False
    if keys or any(a.function is Function.COUNT_DISTINCT for a in spec.aggregates):
        return None
    if not can_measure(reader.index, reader.view, list(measures.values())):
        return False
    return True if sums_exact or not any(m.numbers for m in measures.values()) else None


# --- rows -------------------------------------------------------------------------------------------


def _from_rows(reader: SplitReader, spec: AggregateSpec) -> Partial:
    keys = len(spec.groups)
    parts = [empty_partial(spec)]
    waiting = 0
    for batch in reader.batches(spec.columns, spec.where):
        parts.append(_of_batch(batch, spec))
        waiting += parts[-1].groups.num_rows + sum(t.num_rows for t in parts[-1].distinct.values())
        if waiting > _MERGE_ROWS:
            parts, waiting = [merge(parts, keys)], 0
    return merge(parts, keys)


def empty_partial(spec: AggregateSpec) -> Partial:
    """The partial aggregate of no rows, whose columns have their types."""
    batch = pa.schema([spec.table.schema.field(name) for name in spec.columns]).empty_table()
    return _of_batch(batch, spec)


def _of_batch(batch: pa.RecordBatch | pa.Table, spec: AggregateSpec) -> Partial:
    keys = [group_values(group, _array(batch, group_column(group))) for group in spec.groups]
    values = [None if a.column is None else _array(batch, a.column) for a in spec.aggregates]
    return from_rows(keys, values, spec.aggregates, batch.num_rows)


def _array(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = batch.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def group_values(group: Group, values: pa.Array) -> pa.Array:
    """The group of each row."""
    match group:
        case Histogram(interval=interval, offset=offset):
            numbers = values.cast(pa.float64(), safe=False)
            steps = pc.floor(pc.divide(pc.subtract(numbers, offset), interval))
            return pc.add(pc.multiply(steps, interval), offset)
        case DateHistogram(interval_us=interval, offset_us=offset):
            return _date_steps(values, interval, offset)
        case RangeBuckets(buckets=buckets):
            names = pa.nulls(len(values), pa.string())
            numbers = values.cast(pa.float64(), safe=False)
            for bucket in buckets:
                inside = pc.is_valid(numbers)
                if bucket.start is not None:
                    inside = pc.and_(inside, pc.greater_equal(numbers, bucket.start))
                if bucket.end is not None:
                    inside = pc.and_(inside, pc.less(numbers, bucket.end))
                names = pc.if_else(inside.fill_null(False), bucket.name, names)
            return names
        case _:
            return values


def _date_steps(values: pa.Array, interval: int, offset: int) -> pa.Array:
    zone = values.type.tz if kind_of(values.type) in TIMESTAMPS else "UTC"
    if kind_of(values.type) is TypeKind.DATE:
        micros = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_US)
    else:
        micros = values.cast(pa.int64())
    numbers = micros.fill_null(0).to_numpy(zero_copy_only=False)
    steps = (numbers - offset) // interval * interval + offset
    missing = micros.is_null().to_numpy(zero_copy_only=False)
    return pa.array(steps, mask=missing).cast(pa.timestamp("us", zone))


# --- the index --------------------------------------------------------------------------------------


def _from_index(reader: SplitReader, spec: AggregateSpec) -> Partial | None:
    condition = reader.fold(spec.where)
    return reader.from_index(condition, lambda: _index_groups(reader, spec))


def _index_groups(reader: SplitReader, spec: AggregateSpec) -> Partial | None:
    keys = _keys(reader, spec)
    measures = _measures(reader, spec)
    condition = reader.fold(spec.where)
    if keys is None or measures is None or (isinstance(condition, Always) and condition.value is not True):
        return None
    rows = TRUE.true
    if not isinstance(condition, Always):
        plan = reader.filter_plan(condition)
        if plan.residual is not None:
            return None
        rows = plan.candidates
    groups = index_groups(reader.index, reader.view, rows, list(keys.values()), list(measures.values()))
    if groups is None:
        return None
    if spec.groups:
        # Grouped by constants alone, the index returns one group, which may have no row.
        groups = [group for group in groups if group.rows]
    distinct = {}
    for i, aggregate in enumerate(spec.aggregates):
        if aggregate.function is Function.COUNT_DISTINCT:
            pairs_ = _distinct(reader, spec, keys, rows, aggregate)
            if pairs_ is None:
                return None
            distinct[i] = pairs_
    return Partial(_table(reader, spec, keys, measures, groups), distinct)


def _keys(reader: SplitReader, spec: AggregateSpec) -> dict[int, GroupKey] | None:
    """The keys by which the index groups rows, by number of the group; constant columns have none."""
    keys: dict[int, GroupKey] = {}
    for i, group in enumerate(spec.groups):
        column = group_column(group)
        if column.lower() in reader.constants:
            if not isinstance(group, str):
                return None
            continue
        match group:
            case str():
                keys[i] = GroupKey(column)
            case DateHistogram(interval_us=interval, offset_us=offset):
                unit = _DAY_US if kind_of(reader.table.column(column).type) is TypeKind.DATE else 1
                if interval % unit or offset % unit:
                    return None
                keys[i] = GroupKey(column, interval // unit, offset // unit)
            case _:
                return None
    return keys


def _measures(reader: SplitReader, spec: AggregateSpec) -> dict[int, Measure] | None:
    measures: dict[int, Measure] = {}
    for i, aggregate in enumerate(spec.aggregates):
        if aggregate.column is None or aggregate.function is Function.COUNT_DISTINCT:
            continue
        if aggregate.column.lower() in reader.constants:
            return None
        measures[i] = Measure(aggregate.column, aggregate.function is not Function.COUNT)
    return measures


def _distinct(
    reader: SplitReader,
    spec: AggregateSpec,
    keys: dict[int, GroupKey],
    rows: RowSet,
    aggregate: Aggregate,
) -> pa.Table | None:
    column = aggregate.column
    if column is None or column.lower() in reader.constants:
        return None
    groups = index_groups(reader.index, reader.view, rows, [*keys.values(), GroupKey(column)], [])
    if groups is None:
        return None
    columns = _key_columns(reader, spec, keys, groups)
    arrow = reader.table.column(column).type
    columns["v"] = decode_values([group.keys[-1] for group in groups], arrow)
    return pairs(pa.table(columns))


def _table(
    reader: SplitReader,
    spec: AggregateSpec,
    keys: dict[int, GroupKey],
    measures: dict[int, Measure],
    groups: Sequence[IndexGroup],
) -> pa.Table:
    columns = _key_columns(reader, spec, keys, groups)
    places = {i: place for place, i in enumerate(measures)}
    for i, (aggregate, arrow) in enumerate(zip(spec.aggregates, spec.types, strict=True)):
        if i not in places or arrow is None:
            columns[f"n{i}"] = pa.array([group.rows for group in groups], pa.int64())
            continue
        group_results = [group.measures[places[i]] for group in groups]
        columns[f"n{i}"] = pa.array([measured.count for measured in group_results], pa.int64())
        match aggregate.function:
            case Function.COUNT | Function.COUNT_DISTINCT:
                pass
            case Function.SUM | Function.AVG:
                columns[f"s{i}"] = _sums(group_results, arrow)
            case Function.MIN | Function.MAX:
                low = aggregate.function is Function.MIN
                bounds = [measured.low if low else measured.high for measured in group_results]
                columns[f"{bound_name(aggregate)}{i}"] = comparable(decode_values(bounds, arrow))
            case _:
                assert_never(aggregate.function)
    return pa.table(columns)


def _key_columns(
    reader: SplitReader, spec: AggregateSpec, keys: dict[int, GroupKey], groups: Sequence[IndexGroup]
) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    places = {i: place for place, i in enumerate(keys)}
    for i, (group, arrow) in enumerate(zip(spec.groups, spec.group_types, strict=True)):
        if i not in places:
            value = reader.constants[group_column(group).lower()]
            same = pa.repeat(value, len(groups)) if value.is_valid else pa.nulls(len(groups), arrow)
            columns[f"g{i}"] = same_values(same)
            continue
        values = [g.keys[places[i]] for g in groups]
        column = reader.table.column(group_column(group))
        if isinstance(group, DateHistogram) and kind_of(column.type) is TypeKind.DATE:
            values = [None if day is None else day * _DAY_US for day in values]
        columns[f"g{i}"] = decode_values(values, arrow)
    return columns


def _sums(results: Sequence[MeasureResult], arrow: pa.DataType) -> pa.Array:
    totals = [measured.total if measured.count else None for measured in results]
    if kind_of(arrow) is TypeKind.FLOAT:
        return pa.array(totals, pa.float64())
    scale = arrow.scale if kind_of(arrow) is TypeKind.DECIMAL else 0
    exact = [None if t is None else from_unscaled(int(t), scale) for t in totals]
    return pa.array(exact, pa.decimal128(38, scale))


def decode_values(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Convert values of a field to those of its column."""
    match kind_of(arrow):
        case TypeKind.STRING | TypeKind.BOOLEAN:
            return pa.array(values, arrow)
        case TypeKind.FLOAT:
            return pa.array(values, pa.float64()).cast(arrow)
        case TypeKind.DECIMAL:
            exact = [None if v is None else from_unscaled(v, arrow.scale) for v in values]
            return pa.array(exact, arrow)
        case TypeKind.DATE:
            return pa.array(values, pa.int64()).cast(pa.int32()).cast(arrow)
        case TypeKind.TIME:
            numbers = pa.array(values, pa.int64())
            # Fields have 32-bit times in microseconds, and 64-bit times in the unit of the column.
            return (numbers.cast(pa.time64("us")) if arrow.bit_width == 32 else numbers).cast(arrow)
        case TypeKind.INTEGER | TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ | TypeKind.INTERVAL:
            return pa.array(values, pa.int64()).cast(arrow)
        case (
            TypeKind.NULL | TypeKind.BINARY | TypeKind.LIST | TypeKind.MAP | TypeKind.STRUCT | TypeKind.OTHER
        ):
            raise ValueError(f"no field of the index has values of the type {arrow}")
        case kind:
            assert_never(kind)
