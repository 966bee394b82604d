"""The virtual columns of a request: searches, highlighted fragments, buckets."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from indextables.errors import PredicateError, SchemaError
from indextables.predicate import Column, Search, SearchKind
from indextables.predicate.names import resolve
from indextables.read import Bucket, DateHistogram, Histogram, RangeBuckets
from indextables.read.aggregation.spec import group_type
from indextables.read.scan_spec import Buckets, Highlight, VirtualColumn

ALL_FIELDS = "_indexall"

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"\s*(-?)\s*([0-9]{1,18})\s*(us|ms|s|m|h|d)\s*")
_LONGEST = 1 << 62


def virtual_columns(given: Iterable[Mapping[str, Any]], schema: pa.Schema) -> dict[str, VirtualColumn]:
    """The virtual columns of a request, by name.

    Raises:
        SchemaError: A column does not exist.
        PredicateError: A column has a type that the function does not take.
    """
    return {each["name"]: _virtual(each, schema) for each in given}


def searches(virtual: Mapping[str, VirtualColumn]) -> dict[str, Search]:
    """The virtual columns that are searches."""
    return {name: found for name, found in virtual.items() if isinstance(found, Search)}


def _virtual(given: Mapping[str, Any], schema: pa.Schema) -> VirtualColumn:
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
    found = make_buckets(kind, column.name, arguments)
    group_type(found, arrow)
    return found


def _searched(path: Sequence[str] | None, schema: pa.Schema) -> Column | None:
    if path is None:
        return None
    if len(path) == 1 and path[0].lower() == ALL_FIELDS and ALL_FIELDS not in map(str.lower, schema.names):
        return None
    return Column(tuple(path))


def make_buckets(kind: str, column: str, arguments: Sequence[Any]) -> Buckets:
    """The buckets of a function's constant arguments.

    Raises:
        PredicateError: An interval is not positive, or ranges are empty or overlap.
    """
    match kind:
        case "histogram":
            return Histogram(column, float(arguments[0]), float(arguments[1]))
        case "date_histogram":
            return DateHistogram(column, microseconds(arguments[0]), _offset(arguments[1]))
        case "range":
            return RangeBuckets(column, tuple(Bucket(n, _bound(a), _bound(b)) for n, a, b in arguments))
        case _:
            pass
    raise PredicateError(f"unknown bucket function '{kind}'")


def _offset(text: str) -> int:
    return microseconds(text, offset=True)


def _bound(value: str | None) -> float | None:
    return None if value is None else float(value)


def microseconds(text: str, *, offset: bool = False) -> int:
    """Parse a duration such as `15m`, `1h` or `7d` as microseconds; an offset may be zero or negative.

    >>> microseconds("15m")
    900000000
    """
    found = _DURATION.fullmatch(text)
    if found is None or (found[1] and not offset):
        raise PredicateError(
            f"'{text}' is not a duration; give a whole number and a unit (us, ms, s, m, h or d), as 15m"
        )
    length = int(found[2]) * _UNITS[found[3]]
    if length > _LONGEST or (length == 0 and not offset):
        raise PredicateError(f"'{text}' is not a duration that buckets can have")
    return -length if found[1] else length
