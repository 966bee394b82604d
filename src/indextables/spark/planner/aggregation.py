"""Aggregate pushdown: which aggregations of Spark are computed here, with the same result.

Sums are pushed only where they cannot overflow: then Spark fails or wraps around, depending on its settings.
Averages of integers are pushed only where a double holds their sum exactly: Spark sums them in doubles.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError
from indextables.predicate import Predicate, Search
from indextables.predicate.tree import resolve
from indextables.read.spec import (
    FILE_METADATA,
    SCORE,
    Aggregate,
    AggregateSpec,
    Function,
    Group,
    Highlight,
    aggregate_spec,
)
from indextables.read.split_rows import can_order
from indextables.schema.type_info import NESTED, TYPE_KEY, TypeKind, is_collated, kind_of
from indextables.schema.values import parse_values
from indextables.spark.planner.expressions import NotPushableError
from indextables.spark.planner.read_context import ReadContext, Request

_LONG = 1 << 63
_EXACT_DOUBLES = 1 << 53
_MAX_SUM_DIGITS = 28
_TEXT_TYPES = ("char", "varchar")


def pushed_spec(
    aggregation: Request, context: ReadContext, where: Predicate | None, files: pa.Table
) -> AggregateSpec | None:
    """The specification of an aggregation that Spark offers; None if Spark has to compute it."""
    if not aggregation["groups"] and not aggregation["functions"]:
        return None
    try:
        groups = tuple(_group(each, context) for each in aggregation["groups"])
        functions = [
            _function(each, number, context, files) for number, each in enumerate(aggregation["functions"])
        ]
        spec = aggregate_spec(context.table, functions, groups, where)
    except (NotPushableError, PredicateError, SchemaError):
        return None
    names = [f"g{i}" for i in range(len(groups))] + [f"a{i}" for i in range(len(functions))]
    fields = [field.with_name(name) for field, name in zip(spec.schema, names, strict=True)]
    return replace(spec, schema=pa.schema(fields))


def must_be_complete(aggregation: Request, spec: AggregateSpec) -> bool:
    """Whether Spark cannot combine partial results of the aggregation into the result.

    Distinct counts cannot be added. Spark splits an average into sum and count. It would cast partial sums of
    decimals to the type of the column, which may be too small for them.
    """
    return (
        any(a.function is Function.COUNT_DISTINCT for a in spec.aggregates)
        or any(each["function"] == "avg" for each in aggregation["functions"])
        or any(
            a.function is Function.SUM and kind_of(spec.schema.field(a.name).type) is TypeKind.DECIMAL
            for a in spec.aggregates
        )
    )


def sums_fit_doubles(spec: AggregateSpec, files: pa.Table) -> bool:
    """Whether doubles hold every sum of the aggregated columns exactly, by the bounds in the log."""
    names = {a.column for a in spec.aggregates if a.function is not Function.COUNT and a.column is not None}
    try:
        return all(_sum_fits(spec.table.column(name), files, _EXACT_DOUBLES) for name in names)
    except NotPushableError:
        return False


def _sum_fits(field: pa.Field, files: pa.Table, limit: int) -> bool:
    """Whether the sum of an integer column is below a limit, by the bounds in the log."""
    if kind_of(field.type) is not TypeKind.INTEGER or files["numRecords"].null_count:
        return False
    rows = pc.sum(files["numRecords"]).as_py() or 0
    return bool(rows << (field.type.bit_width - 1) < limit or rows * _largest(field, files) < limit)


def spark_schema(spec: AggregateSpec) -> pa.Schema:
    """The columns of the result, with the Spark types that groups have in the table."""
    fields = list(spec.schema)
    for place, group in enumerate(spec.groups):
        if isinstance(group, str):
            fields[place] = spec.table.schema.field(group).with_name(f"g{place}").with_nullable(True)
    return pa.schema(fields)


def _group(expression: Request, context: ReadContext) -> Group:
    if expression["kind"] != "col" or len(expression["path"]) != 1:
        raise NotPushableError
    name = expression["path"][0]
    virtual = context.virtual.get(name)
    if isinstance(virtual, Search | Highlight) or name in (SCORE, FILE_METADATA):
        raise NotPushableError
    if virtual is not None:
        return virtual
    field = _field(expression["path"], context)
    if kind_of(field.type) in NESTED:
        raise NotPushableError
    return str(field.name)


def _function(call: Request, number: int, context: ReadContext, files: pa.Table) -> Aggregate:
    name = f"a{number}"
    if call.get("column") is None:
        return Aggregate(Function.COUNT, None, name)
    column = call["column"]
    if column["kind"] != "col" or len(column["path"]) != 1 or column["path"][0] in context.virtual:
        raise NotPushableError
    function = Function(call["function"])
    if call.get("distinct"):
        if function is not Function.COUNT:
            raise NotPushableError
        function = Function.COUNT_DISTINCT
    if function is Function.COUNT:
        resolved, _ = resolve(context.table.schema, column["path"])
        return Aggregate(function, resolved.path[0], name)
    field = _field(column["path"], context)
    if not can_order(field.type):
        raise NotPushableError
    if function in (Function.SUM, Function.AVG):
        _check_sum(function, field, files)
    return Aggregate(function, str(field.name), name)


def _field(path: Sequence[str], context: ReadContext) -> pa.Field:
    """A column without collation whose values are stored in its own type."""
    resolved, _ = resolve(context.table.schema, path)
    field = context.table.schema.field(resolved.path[0])
    tag = (field.metadata or {}).get(TYPE_KEY, b"").decode()
    if is_collated(field) or (tag and not tag.startswith(_TEXT_TYPES)):
        raise NotPushableError
    return field


def can_order_by(path: Sequence[str], context: ReadContext) -> bool:
    """Whether rows are ordered by a column as Spark orders them."""
    if len(path) != 1:
        return False
    (name,) = path
    if name not in context.table.schema.names:
        return name == SCORE
    try:
        return can_order(_field(path, context).type)
    except NotPushableError:
        return False


def _check_sum(function: Function, field: pa.Field, files: pa.Table) -> None:
    limit = _LONG if function is Function.SUM else _EXACT_DOUBLES
    match kind_of(field.type):
        case TypeKind.FLOAT:
            fits = True
        case TypeKind.DECIMAL:
            fits = field.type.precision <= _MAX_SUM_DIGITS
        case TypeKind.INTEGER:
            fits = _sum_fits(field, files, limit)
        case _:
            fits = False
    if not fits:
        raise NotPushableError


def _largest(field: pa.Field, files: pa.Table) -> int:
    """The largest absolute value by the bounds in the log."""
    largest = 0
    for side in ("minValues", "maxValues"):
        texts = pa.array(
            [dict(entry or ()).get(field.name) for entry in files[side].to_pylist()], pa.string()
        )
        parsed = parse_values(texts, field.type)
        if texts.null_count or parsed.unreadable.any():
            raise NotPushableError
        bounds = pc.min_max(parsed.values.cast(pa.int64())).as_py()
        largest = max(largest, *(abs(bound or 0) for bound in bounds.values()))
    return largest
