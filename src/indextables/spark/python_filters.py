"""Filters as Spark gives them to a data source in Python, as conditions."""

import datetime as dt
import decimal
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from indextables import predicate as own
from indextables.errors import PredicateError
from indextables.predicate.names import resolve

_COMPARISONS: dict[type[Filter], own.Op] = {
    EqualTo: own.Op.EQ,
    EqualNullSafe: own.Op.NULL_SAFE,
    LessThan: own.Op.LT,
    LessThanOrEqual: own.Op.LE,
    GreaterThan: own.Op.GT,
    GreaterThanOrEqual: own.Op.GE,
}
_MATCHES: dict[type[Filter], own.TextMatchKind] = {
    StringStartsWith: own.TextMatchKind.STARTS,
    StringEndsWith: own.TextMatchKind.ENDS,
    StringContains: own.TextMatchKind.CONTAINS,
}
# Values that mean the same in Python and in Spark; a time of Python has a zone of its own making.
_PLAIN = (bool, int, float, str, decimal.Decimal, dt.date)


def condition(wanted: Filter, schema: pa.Schema) -> own.Predicate | None:
    """The condition that a filter means; None if it is not understood."""
    try:
        return _condition(wanted, schema)
    except PredicateError:
        return None


def _condition(wanted: Filter, schema: pa.Schema) -> own.Predicate | None:
    match wanted:
        case Not(child):
            inner = _condition(child, schema)
            return None if inner is None else own.Not(inner)
        case IsNull(path):
            return own.IsNull(resolve(schema, path)[0])
        case IsNotNull(path):
            return own.Not(own.IsNull(resolve(schema, path)[0]))
        case In(path, values):
            column, arrow = resolve(schema, path)
            scalars = _scalars(values)
            return None if scalars is None else own.membership(column, arrow, scalars)
        case StringStartsWith(path, text) | StringEndsWith(path, text) | StringContains(path, text):
            return own.TextMatch(_MATCHES[type(wanted)], resolve(schema, path)[0], text)
        case _ if type(wanted) in _COMPARISONS:
            column, arrow = resolve(schema, wanted.attribute)  # type: ignore[attr-defined]
            scalars = _scalars([wanted.value])  # type: ignore[attr-defined]
            op = _COMPARISONS[type(wanted)]
            return None if scalars is None else own.compare(column, arrow, op, scalars[0])
    return None


def _scalars(values: Sequence[object]) -> list[pa.Scalar] | None:
    plain = all(isinstance(v, _PLAIN) and not isinstance(v, dt.datetime) for v in values)
    return [pa.scalar(value) for value in values] if plain else None
