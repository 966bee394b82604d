"""Partial aggregates, which are merged into the result: one row for each group.

Columns are `g0..` for the groups and, for the aggregate number `i`, `n<i>` (how many values), `s<i>` (their
sum), `low<i>` and `high<i>`. Whole numbers are summed as decimals, which do not overflow; floats are compared
by integers in the same order, with NaN as the greatest. Distinct values are separate tables, with one row for
each pair of group and value.
"""

import decimal
from collections.abc import Sequence
from dataclasses import field
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.read.spec import Aggregate, AggregateSpec, Function
from indextables.records import dataclass
from indextables.schema.type_info import EXACT, NESTED, TypeKind, has_digits, kind_of, round_half_up

_WHOLE = pa.decimal128(38, 0)
# Sums of decimals of so many digits have at most 38 digits, whatever the number of rows.
_NARROW_DIGITS = 28
_SIGN = np.int64(-(1 << 63))
_NAN_ORDER = np.int64((1 << 63) - 1)
# Fewer rows are grouped faster in one thread.
_MANY_ROWS = 1 << 16
_LONG = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Partial:
    """The groups of some rows, and the distinct values of each aggregate that counts them."""

    groups: pa.Table
    distinct: dict[int, pa.Table] = field(default_factory=dict)


def float_order(values: pa.Array) -> pa.Array:
    """Integers in the order of the floats: one zero, and one NaN, which is the greatest."""
    floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = floats.view(np.int64)
    order = np.where(bits >= 0, bits, _SIGN - bits)
    order[np.isnan(floats)] = _NAN_ORDER
    return pa.array(order, mask=values.is_null().to_numpy(zero_copy_only=False))


def float_of_order(order: pa.Array, arrow: pa.DataType) -> pa.Array:
    """The floats of order-preserving integers."""
    bits = order.fill_null(0).to_numpy(zero_copy_only=False)
    floats = np.where(bits >= 0, bits, _SIGN - bits).view(np.float64).copy()
    floats[bits == _NAN_ORDER] = np.nan
    return pa.array(floats, mask=order.is_null().to_numpy(zero_copy_only=False)).cast(arrow)


def same_values(values: pa.Array) -> pa.Array:
    """The values, normalised so that values equal in SQL have equal bits: one zero, one NaN."""
    if kind_of(values.type) is not TypeKind.FLOAT:
        return values
    return float_of_order(float_order(values), values.type)


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
            column = pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
        elif kind is TypeKind.NULL:
            column = pa.array(np.zeros(len(column), np.int8))
        columns[name] = column
    return pa.table(columns)


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
