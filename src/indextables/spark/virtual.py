"""Columns that a query adds to a table: searches, fragments to show, buckets, the score."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from indextables.errors import PredicateError, SchemaError
from indextables.predicate import Column, Search, SearchKind
from indextables.predicate.names import resolve
from indextables.read import Bucket, DateHistogram, Histogram, RangeBuckets
from indextables.read.aggregates import group_type
from indextables.spark.intervals import microseconds

SCORE = "_score"
ALL_FIELDS = "_indexall"

Buckets: TypeAlias = Histogram | DateHistogram | RangeBuckets


@dataclass(frozen=True, slots=True)
class Highlight:
    """A fragment of a text column around what the query's searches found."""

    column: str


Virtual: TypeAlias = Search | Highlight | Histogram | DateHistogram | RangeBuckets


def virtual_columns(given: Iterable[Mapping[str, Any]], schema: pa.Schema) -> dict[str, Virtual]:
    """The columns that a request defines, by name; refuses those that do not fit the table."""
    return {each["name"]: _virtual(each, schema) for each in given}


def searches(virtual: Mapping[str, Virtual]) -> dict[str, Search]:
    """Those that stand for a search."""
    return {name: found for name, found in virtual.items() if isinstance(found, Search)}


def virtual_type(virtual: Virtual, schema: pa.Schema) -> pa.DataType:
    """The type of a virtual column's values."""
    match virtual:
        case Search():
            return pa.bool_()
        case Highlight():
            return pa.string()
        case _:
            return group_type(virtual, schema.field(virtual.column).type)


def _virtual(given: Mapping[str, Any], schema: pa.Schema) -> Virtual:
    kind: str = given["kind"]
    path: Sequence[str] | None = given.get("column")
    if kind in set(SearchKind):
        return Search(SearchKind(kind), _searched(path, schema), given["query"])
    column, arrow = resolve(schema, path or ())
    if len(column.path) > 1:
        raise SchemaError(f"{column.name} is a field of a struct; {kind} takes a column of the table")
    arguments: Sequence[Any] = given.get("arguments", ())
    if kind == "highlight":
        if not pa.types.is_string(arrow):
            raise PredicateError(f"{column.name} is {arrow}; only a text can be highlighted")
        return Highlight(column.name)
    made = make_buckets(kind, column.name, arguments)
    group_type(made, arrow)
    return made


def _searched(path: Sequence[str] | None, schema: pa.Schema) -> Column | None:
    if path is None:
        return None
    if len(path) == 1 and path[0].lower() == ALL_FIELDS and ALL_FIELDS not in map(str.lower, schema.names):
        return None
    return Column(tuple(path))


def make_buckets(kind: str, column: str, arguments: Sequence[Any]) -> Buckets:
    """The buckets that a function's constants mean; refuses those that make no sense."""
    match kind:
        case "histogram":
            return Histogram(column, float(arguments[0]), float(arguments[1]))
        case "date_histogram":
            return DateHistogram(column, microseconds(arguments[0]), _offset(arguments[1]))
        case "range":
            return RangeBuckets(column, tuple(Bucket(n, _bound(a), _bound(b)) for n, a, b in arguments))
    raise PredicateError(f"there are no buckets of the kind '{kind}'")


def _offset(text: str) -> int:
    return microseconds(text, offset=True)


def _bound(value: str | None) -> float | None:
    return None if value is None else float(value)
