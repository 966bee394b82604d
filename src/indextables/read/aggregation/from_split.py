"""The partial aggregate of one split: from its index if that is exact, else from its rows."""

from collections.abc import Sequence
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicate import Always, Predicate
from indextables.read.aggregation.partials import (
    Partial,
    bound_name,
    comparable,
    from_rows,
    merge,
    pairs,
    same_values,
)
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
from indextables.schema.type_info import TIMESTAMPS, TypeKind, from_unscaled, kind_of
from indextables.split.query.index_aggregation import (
    GroupKey,
    IndexGroup,
    Measure,
    MeasureResult,
    can_measure,
    index_groups,
)
from indextables.split.query.row_sets import TRUE, RowSet

_DAY_US = 86_400_000_000
# Partial results of batches are merged when there are so many groups.
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
