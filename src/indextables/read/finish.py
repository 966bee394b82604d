"""Partial results as the answer: Spark's types, nulls for groups without values, one row without groups."""

import decimal
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.read.aggregates import Aggregate, Function
from indextables.read.partials import Partial, bound_name, counted_pairs, float_of_order, merged
from indextables.read.request import Request

_LONG = (-(1 << 63), (1 << 63) - 1)


def finished(parts: Sequence[Partial], request: Request) -> pa.Table:
    """The answer to an aggregate."""
    whole = counted_pairs(merged(parts, len(request.groups)), len(request.groups))
    rows = whole.groups
    if not request.groups and not rows.num_rows:
        return _nothing(request)
    columns = [rows[f"g{i}"] for i in range(len(request.groups))]
    for i, (aggregate, arrow) in enumerate(zip(request.aggregates, request.types, strict=True)):
        columns.append(
            _result(rows, i, aggregate, arrow, request.results.field(len(request.groups) + i).type)
        )
    cast = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, request.results, strict=True)
    ]
    return pa.Table.from_arrays(cast, schema=request.results)


def _nothing(request: Request) -> pa.Table:
    """One row of an aggregate over no rows."""
    counts = (Function.COUNT, Function.COUNT_DISTINCT)
    values = [
        pa.array([0 if a.function in counts else None], field.type)
        for a, field in zip(request.aggregates, request.results, strict=True)
    ]
    return pa.Table.from_arrays(values, schema=request.results)


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
            return _average(rows[f"s{i}"], counts, result)
        case _:
            bound = rows[f"{bound_name(aggregate)}{i}"]
            if arrow is not None and pa.types.is_floating(arrow):
                return float_of_order(bound.combine_chunks(), arrow)
            return bound


def _sum(sums: pa.ChunkedArray, aggregate: Aggregate, result: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_floating(sums.type):
        return sums
    limits = _LONG if pa.types.is_integer(result) else (1 - 10**result.precision, 10**result.precision - 1)
    scale = 0 if pa.types.is_integer(result) else result.scale
    values = sums.to_pylist()
    for value in values:
        if value is not None and not limits[0] <= value.scaleb(scale) <= limits[1]:
            raise PredicateError(
                f"the sum of '{aggregate.column}' does not fit into {result}; "
                "cast the column to a wider decimal, or to double"
            )
    if pa.types.is_integer(result):
        return pa.array([None if value is None else int(value) for value in values], result)
    return sums.cast(result)


def _average(sums: pa.ChunkedArray, counts: pa.ChunkedArray, result: pa.DataType) -> pa.Array:
    if pa.types.is_floating(sums.type):
        return pc.divide(sums, pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.int64()), counts))
    found: list[object] = []
    with decimal.localcontext(prec=80):
        for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True):
            if total is None or not count:
                found.append(None)
            elif pa.types.is_floating(result):
                found.append(float(total) / count)
            else:
                unit = decimal.Decimal(1).scaleb(-result.scale)
                found.append((total / count).quantize(unit, decimal.ROUND_HALF_UP))
    return pa.array(found, result)
