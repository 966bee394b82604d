"""An aggregate as Spark offers it: what of it is answered exactly as Spark would.

Sums are taken only where they cannot overflow, because Spark then fails or wraps around, as its settings say.
Averages of whole numbers are taken only where a double holds their sum, as Spark sums them in doubles.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError
from indextables.predicate import Predicate, Search
from indextables.predicate.names import resolve
from indextables.read import Aggregate, Function, Group
from indextables.read.request import Request, request_for
from indextables.schema.types import TYPE_KEY, is_collated
from indextables.schema.values import parse_values
from indextables.spark.ordering import can_order
from indextables.spark.planner.asked import Asked
from indextables.spark.virtual import SCORE, Highlight

Given: TypeAlias = Mapping[str, Any]

_LONG = 1 << 63
_WHOLE_DOUBLES = 1 << 53
_SUMMED_DIGITS = 28
_PLAIN_TAGS = ("char", "varchar")


class RefusedError(Exception):
    """Spark has to compute this aggregate."""


def requested(given: Given, question: Asked, where: Predicate | None, files: pa.Table) -> Request | None:
    """The aggregate that a request means; None if Spark has to compute it."""
    if not given["groups"] and not given["functions"]:
        return None
    try:
        groups = tuple(_group(each, question) for each in given["groups"])
        functions = [
            _function(each, number, question, files) for number, each in enumerate(given["functions"])
        ]
        found = request_for(question.facts.schema, functions, groups, where)
    except (RefusedError, PredicateError, SchemaError):
        return None
    names = [f"g{i}" for i in range(len(groups))] + [f"a{i}" for i in range(len(functions))]
    fields = [field.with_name(name) for field, name in zip(found.results, names, strict=True)]
    return Request(found.aggregates, found.groups, where, found.types, found.group_types, pa.schema(fields))


def is_distinct(request: Request) -> bool:
    """Whether parts of the answer cannot be added up."""
    return any(a.function is Function.COUNT_DISTINCT for a in request.aggregates)


def spark_schema(request: Request, question: Asked) -> pa.Schema:
    """The answer's columns, with the Spark types that groups have in the table."""
    fields = list(request.results)
    for place, group in enumerate(request.groups):
        if isinstance(group, str):
            fields[place] = question.facts.schema.field(group).with_name(f"g{place}").with_nullable(True)
    return pa.schema(fields)


def _group(expression: Given, question: Asked) -> Group:
    if expression["kind"] != "col" or len(expression["path"]) != 1:
        raise RefusedError
    name = expression["path"][0]
    virtual = question.virtual.get(name)
    if isinstance(virtual, Search | Highlight) or name == SCORE:
        raise RefusedError
    if virtual is not None:
        return virtual
    field = _field(expression["path"], question)
    if pa.types.is_nested(field.type):
        raise RefusedError
    return str(field.name)


def _function(given: Given, number: int, question: Asked, files: pa.Table) -> Aggregate:
    name = f"a{number}"
    if given.get("column") is None:
        return Aggregate(Function.COUNT, None, name)
    column = given["column"]
    if column["kind"] != "col" or len(column["path"]) != 1 or column["path"][0] in question.virtual:
        raise RefusedError
    function = Function(given["function"])
    if given.get("distinct"):
        if function is not Function.COUNT:
            raise RefusedError
        function = Function.COUNT_DISTINCT
    if function is Function.COUNT:
        found, _ = resolve(question.facts.schema, column["path"])
        return Aggregate(function, found.path[0], name)
    field = _field(column["path"], question)
    if not can_order(field.type):
        raise RefusedError
    if function in (Function.SUM, Function.AVG):
        _check_sum(function, field, files)
    return Aggregate(function, str(field.name), name)


def _field(path: Sequence[str], question: Asked) -> pa.Field:
    """A column whose values are what they look like: no collation, no type stored as another."""
    found, _ = resolve(question.facts.schema, path)
    field = question.facts.schema.field(found.path[0])
    tag = (field.metadata or {}).get(TYPE_KEY, b"").decode()
    if is_collated(field) or (tag and not tag.startswith(_PLAIN_TAGS)):
        raise RefusedError
    return field


def _check_sum(function: Function, field: pa.Field, files: pa.Table) -> None:
    if pa.types.is_floating(field.type):
        return
    if pa.types.is_decimal(field.type):
        if field.type.precision > _SUMMED_DIGITS:
            raise RefusedError
        return
    if not pa.types.is_integer(field.type):
        raise RefusedError
    limit = _LONG if function is Function.SUM else _WHOLE_DOUBLES
    rows = pc.sum(files["numRecords"]).as_py() or 0
    if files["numRecords"].null_count:
        raise RefusedError
    if rows << (field.type.bit_width - 1) >= limit and rows * _largest(field, files) >= limit:
        raise RefusedError


def _largest(field: pa.Field, files: pa.Table) -> int:
    """The largest value, positive or negative, that the log allows."""
    largest = 0
    for side in ("minValues", "maxValues"):
        texts = pa.array(
            [dict(entry or ()).get(field.name) for entry in files[side].to_pylist()], pa.string()
        )
        parsed = parse_values(texts, field.type)
        if texts.null_count or parsed.unreadable.any():
            raise RefusedError
        bounds = pc.min_max(parsed.values.cast(pa.int64())).as_py()
        largest = max(largest, *(abs(bound or 0) for bound in bounds.values()))
    return largest
