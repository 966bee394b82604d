"""What an aggregate asks: functions of columns, and what rows are grouped by."""

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import pyarrow as pa

from indextables.errors import PredicateError

_NUMBERS = "numbers"


class Function(StrEnum):
    """An aggregate function, with Spark's meaning: nulls are passed over, NaN is above all numbers."""

    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of a column; `count` without a column counts rows. `name` is the result's column."""

    function: Function
    column: str | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the result: as given, or as SQL would write it."""
        return self.name or f"{self.function}({self.column or '*'})"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers in steps: `x` belongs to `floor((x - offset) / interval) * interval + offset`, a double."""

    column: str
    interval: float
    offset: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse steps that lead nowhere."""
        if not (math.isfinite(self.interval) and self.interval > 0 and math.isfinite(self.offset)):
            raise PredicateError(f"a histogram needs a positive interval, not {self.interval}")


@dataclass(frozen=True, slots=True)
class DateHistogram:
    """Dates and timestamps in steps of microseconds, counted from 1970; a group is the start of its step."""

    column: str
    interval_us: int
    offset_us: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse steps that lead nowhere."""
        if self.interval_us <= 0:
            raise PredicateError(f"a date histogram needs a positive interval, not {self.interval_us} us")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A named range: from `start` (included) to before `end`; None is an open end."""

    name: str
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class RangeBuckets:
    """Numbers in named ranges that do not overlap; a number in none of them has a null group."""

    column: str
    buckets: tuple[Bucket, ...]
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse ranges that are empty, overlap, or have no bound."""
        if not self.buckets:
            raise PredicateError("range buckets need at least one range")
        for bucket in self.buckets:
            if bucket.start is None and bucket.end is None:
                raise PredicateError(f"the range '{bucket.name}' has no bound; give it one")
        spans = sorted(
            (-math.inf if b.start is None else b.start, math.inf if b.end is None else b.end, b.name)
            for b in self.buckets
        )
        for start, end, name in spans:
            if not start < end:
                raise PredicateError(f"the range '{name}' is empty: it goes from {start} to {end}")
        for (_, end, name), (start, _, other) in itertools.pairwise(spans):
            if start < end:
                raise PredicateError(f"the ranges '{name}' and '{other}' overlap")


Group: TypeAlias = str | Histogram | DateHistogram | RangeBuckets


def group_name(group: Group) -> str:
    """The name of a group's column in the result."""
    if isinstance(group, str):
        return group
    kind = {Histogram: "histogram", DateHistogram: "date_histogram", RangeBuckets: "range"}[type(group)]
    return group.name or f"{kind}({group.column})"


def group_column(group: Group) -> str:
    """The column that a group is made of."""
    return group if isinstance(group, str) else group.column


def group_type(group: Group, arrow: pa.DataType) -> pa.DataType:
    """The type of a group's values, given that of its column; refuses a column that does not fit."""
    match group:
        case str():
            if pa.types.is_map(arrow):
                raise PredicateError(f"'{group}' is a map; rows cannot be grouped by maps")
            return arrow
        case DateHistogram():
            if pa.types.is_timestamp(arrow):
                return arrow
            if pa.types.is_date32(arrow):
                return pa.timestamp("us", "UTC")
            raise PredicateError(
                f"a date histogram needs a date or timestamp, but '{group.column}' is {arrow}"
            )
        case Histogram() | RangeBuckets():
            if not (pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
                raise PredicateError(f"'{group.column}' is {arrow}, but buckets are made of numbers")
            return pa.float64() if isinstance(group, Histogram) else pa.string()


def result_type(aggregate: Aggregate, arrow: pa.DataType | None) -> pa.DataType:
    """The type of an aggregate's result, as Spark has it; refuses a column that does not fit."""
    function = aggregate.function
    if function in (Function.COUNT, Function.COUNT_DISTINCT):
        if function is Function.COUNT_DISTINCT and arrow is None:
            raise PredicateError("count_distinct needs a column")
        return pa.int64()
    if arrow is None:
        raise PredicateError(f"{function} needs a column")
    if function in (Function.MIN, Function.MAX):
        if pa.types.is_nested(arrow):
            raise PredicateError(f"'{aggregate.column}' is {arrow}; {function} needs values with an order")
        return arrow
    if pa.types.is_decimal(arrow):
        more, digits = (10, 0) if function is Function.SUM else (4, 4)
        precision = min(38, arrow.precision + more)
        return pa.decimal128(precision, min(arrow.scale + digits, precision))
    if pa.types.is_floating(arrow):
        return pa.float64()
    if pa.types.is_integer(arrow):
        return pa.int64() if function is Function.SUM else pa.float64()
    raise PredicateError(f"'{aggregate.column}' is {arrow}, but {function} needs numbers")
