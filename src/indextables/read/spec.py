"""Specifications of reads: the columns, conditions and order of a scan; the groups of an aggregation."""

import itertools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property
from numbers import Real
from typing import TypeAlias, assert_never

import pyarrow as pa

from indextables.errors import OptionError, PredicateError
from indextables.predicate import Predicate, Search
from indextables.predicate.sql_text import lone_surrogate
from indextables.predicate.traversal import searches_of
from indextables.read.table_context import TableContext
from indextables.records import dataclass
from indextables.schema.type_info import (
    NESTED,
    NUMERIC,
    TIMESTAMPS,
    TypeKind,
    average_type,
    kind_of,
    sum_type,
)
from indextables.split.query.index_view import TermStatistics

_AGGREGATE_TEXT = re.compile(
    r"\s*(?P<function>\w+)\s*\(\s*(?P<distinct>distinct\s+)?(?P<column>\*|`(?:[^`]|``)+`|[^()]*?)\s*\)\s*",
    re.IGNORECASE,
)


def check_limit(limit: int | None) -> None:
    """Refuse a maximum number of rows that is none."""
    try:
        is_valid = limit is None or operator.index(limit) >= 0
    except TypeError:
        is_valid = False
    if not is_valid:
        raise OptionError(f"limit is {limit!r}, but a number of rows, 0 or more, or None for all is expected")


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, Real) for value in values)


class Function(StrEnum):
    """An aggregate function with Spark's semantics: nulls are ignored, NaN is greater than every number."""

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
        """The name of the result column: `name`, or by default the SQL text of the aggregate."""
        return self.name or f"{self.function}({self.column or '*'})"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Groups numbers by `floor((x - offset) / interval) * interval + offset`, a double."""

    column: str
    interval: float
    offset: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        """Reject an interval that is not positive."""
        if not _are_numbers(self.interval, self.offset):
            raise PredicateError(
                f"interval and offset of a histogram are numbers, not {self.interval!r} and {self.offset!r}"
            )
        if not (math.isfinite(self.interval) and self.interval > 0 and math.isfinite(self.offset)):
            raise PredicateError(f"a histogram needs a positive interval, not {self.interval}")


@dataclass(frozen=True, slots=True)
class DateHistogram:
    """Groups dates and timestamps into intervals of microseconds since 1970, named by their start."""

    column: str
    interval_us: int
    offset_us: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        """Reject an interval that is not positive."""
        if not _are_numbers(self.interval_us, self.offset_us):
            raise PredicateError(
                "interval and offset of a date histogram are numbers of microseconds (3_600_000_000 is an "
                f"hour), not {self.interval_us!r} and {self.offset_us!r}"
            )
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
    """Groups numbers into named ranges that do not overlap; the group of all other numbers is null."""

    column: str
    buckets: tuple[Bucket, ...]
    name: str = ""

    def __post_init__(self) -> None:
        """Reject ranges that are empty, overlap, or have no bound."""
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
    """The column whose values are grouped."""
    return group if isinstance(group, str) else group.column


def group_type(group: Group, arrow: pa.DataType) -> pa.DataType:
    """The type of a group's values.

    Raises:
        PredicateError: The column's type cannot be grouped this way.
    """
    match group:
        case str():
            if kind_of(arrow) is TypeKind.MAP:
                raise PredicateError(f"'{group}' is a map; rows cannot be grouped by maps")
            return arrow
        case DateHistogram():
            if kind_of(arrow) in TIMESTAMPS:
                return arrow
            if kind_of(arrow) is TypeKind.DATE:
                return pa.timestamp("us", "UTC")
            raise PredicateError(
                f"a date histogram needs a date or timestamp, but '{group.column}' is {arrow}"
            )
        case Histogram() | RangeBuckets():
            if kind_of(arrow) not in NUMERIC:
                raise PredicateError(f"'{group.column}' is {arrow}, but buckets need numbers")
            return pa.float64() if isinstance(group, Histogram) else pa.string()


def result_type(aggregate: Aggregate, arrow: pa.DataType | None) -> pa.DataType:
    """The type of an aggregate's result, the same as Spark's.

    Raises:
        PredicateError: The function does not take columns of this type.
    """
    function = aggregate.function
    if function is Function.COUNT:
        return pa.int64()
    if arrow is None:
        raise PredicateError(f"{function} needs a column")
    match function:
        case Function.COUNT_DISTINCT:
            return pa.int64()
        case Function.MIN | Function.MAX:
            if kind_of(arrow) in NESTED:
                raise PredicateError(
                    f"'{aggregate.column}' is {arrow}; {function} needs values with an order"
                )
            return arrow
        case Function.SUM:
            type_ = sum_type(arrow)
        case Function.AVG:
            type_ = average_type(arrow)
        case _:
            assert_never(function)
    if type_ is None:
        raise PredicateError(f"'{aggregate.column}' is {arrow}, but {function} needs numbers")
    return type_


def parse_aggregate(text: str, name: str = "") -> Aggregate:
    """Parse `count(*)`, `max(status)`, `count(distinct user)`; `name` is the result column.

    >>> parse_aggregate("count(distinct user)", "users")
    Aggregate(function=<Function.COUNT_DISTINCT: 'count_distinct'>, column='user', name='users')
    """
    match = _AGGREGATE_TEXT.fullmatch(text)
    word = match["function"].lower() if match else ""
    if match is None or word not in ("count", "sum", "min", "max", "avg"):
        raise PredicateError(
            f"the aggregate '{text}' is not supported; give count(*), count(column), "
            "count(distinct column), sum(column), min(column), max(column) or avg(column)"
        )
    column: str | None = match["column"]
    if column == "*":
        column = None
    elif column and column.startswith("`"):
        column = column[1:-1].replace("``", "`")
    if (column is None and word != "count") or column == "":
        raise PredicateError(f"the aggregate '{text}' needs a column")
    if match["distinct"]:
        if word != "count" or column is None:
            raise PredicateError(f"the aggregate '{text}' is not supported; only count takes distinct")
        return Aggregate(Function.COUNT_DISTINCT, column, name)
    return Aggregate(Function(word), column, name)


@dataclass(frozen=True)
class AggregateSpec:
    """The specification of an aggregation: aggregates, groups and condition; picklable, without secrets.

    `types` are those of the aggregates' columns (None where rows are counted), `schema` is the result's.
    """

    table: TableContext
    aggregates: tuple[Aggregate, ...]
    groups: tuple[Group, ...]
    where: Predicate | None
    types: tuple[pa.DataType | None, ...]
    group_types: tuple[pa.DataType, ...]
    schema: pa.Schema

    @property
    def columns(self) -> list[str]:
        """The columns that are read, without those of the condition."""
        inputs = [a.column for a in self.aggregates if a.column is not None]
        return list(dict.fromkeys([*(group_column(g) for g in self.groups), *inputs]))


def aggregate_spec(
    table: TableContext,
    aggregates: Sequence[Aggregate],
    groups: Sequence[Group],
    where: Predicate | None,
) -> AggregateSpec:
    """The specification of an aggregation over a table.

    Raises:
        SchemaError: A column does not exist.
        PredicateError: A function or group does not take a column of that type, two results have one name,
            or a name cannot be encoded.
    """
    own_groups = tuple(_with_column(group, table.column(group_column(group)).name) for group in groups)
    own = tuple(
        replace(a, name=a.label, column=None if a.column is None else table.column(a.column).name)
        for a in aggregates
    )
    types = tuple(None if a.column is None else table.column(a.column).type for a in own)
    group_types = tuple(group_type(g, table.column(group_column(g)).type) for g in own_groups)
    names = [*map(group_name, own_groups), *(a.label for a in own)]
    if len(set(names)) != len(names):
        raise PredicateError(
            f"two result columns have the same name: {', '.join(names)}; give each aggregate its own name"
        )
    if wrong := [name for name in names if lone_surrogate(name) is not None]:
        raise PredicateError(f"the name of a result column is not valid Unicode: {wrong[0]!r}; rename it")
    result_types = [*group_types, *(result_type(a, t) for a, t in zip(own, types, strict=True))]
    schema = pa.schema(list(zip(names, result_types, strict=True)))
    return AggregateSpec(table, own, own_groups, where, types, group_types, schema)


def _with_column(group: Group, column: str) -> Group:
    return column if isinstance(group, str) else replace(group, column=column, name=group_name(group))


# The virtual column with the relevance of a row.
SCORE = "_score"
# The virtual column with the path, the name and the size of a row's split.
FILE_METADATA = "_metadata"
FILE_METADATA_TYPE = pa.struct(
    [("file_path", pa.string()), ("file_name", pa.string()), ("file_size", pa.int64())]
)
# The length of the fragments in which matches are highlighted, in characters.
FRAGMENT_LENGTH = 150


@dataclass(frozen=True, slots=True)
class Highlight:
    """A virtual column: a fragment of a text column around the matches of the scan's searches."""

    column: str


Buckets: TypeAlias = Histogram | DateHistogram | RangeBuckets
VirtualColumn: TypeAlias = Search | Highlight | Buckets


def virtual_type(virtual: VirtualColumn, schema: pa.Schema) -> pa.DataType:
    """The type of a virtual column's values."""
    match virtual:
        case Search():
            return pa.bool_()
        case Highlight():
            return pa.string()
        case Histogram() | DateHistogram() | RangeBuckets():
            return group_type(virtual, schema.field(virtual.column).type)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of ORDER BY."""

    column: str
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True)
class ScanSpec:
    """The rows of a table that match a condition; picklable, without secrets.

    Attributes:
        table: The table.
        columns: Names of the columns to return, virtual ones among them.
        where: The condition; None for all rows.
        virtual: The definitions of virtual columns, by name.
        limit: The maximum number of rows: of each split if there is an order, else of all splits together.
        order: With an order, the first `limit` rows of each split are returned, in any order.
        statistics: Term statistics of the table; with them, scores are comparable between splits.
    """

    table: TableContext
    columns: tuple[str, ...]
    where: Predicate | None = None
    virtual: Mapping[str, VirtualColumn] = field(default_factory=dict)
    limit: int | None = None
    order: tuple[SortKey, ...] = ()
    statistics: TermStatistics | None = None

    @cached_property
    def scored_searches(self) -> tuple[Search, ...]:
        """The searches of scores and fragments: virtual columns, and those in `where` without a NOT."""
        searches = [
            *searches_of(self.where, negated=False),
            *(v for name, v in self.virtual.items() if isinstance(v, Search) and name in self.columns),
        ]
        return tuple(dict.fromkeys(searches))

    @property
    def needs_score(self) -> bool:
        """Whether the score is returned or ordered by."""
        return any(map(self.is_score, [*self.columns, *(key.column for key in self.order)]))

    @property
    def highlighted_columns(self) -> list[str]:
        """The text columns of which fragments are returned."""
        definitions = (self.virtual.get(name) for name in self.columns)
        return [virtual.column for virtual in definitions if isinstance(virtual, Highlight)]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are returned."""
        return pa.schema([pa.field(name, self.type_of(name)) for name in self.columns])

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column, virtual or not."""
        if name in self.virtual:
            return virtual_type(self.virtual[name], self.table.schema)
        if self.is_score(name):
            return pa.float32()
        if self.is_file_metadata(name):
            return FILE_METADATA_TYPE
        return self.table.column(name).type

    def is_score(self, name: str) -> bool:
        """Whether a name is that of the score, and not of a column of the table."""
        return name == SCORE and SCORE not in self.table.schema.names

    def is_file_metadata(self, name: str) -> bool:
        """Whether a name is that of the metadata of splits, and not of a column of the table."""
        return name == FILE_METADATA and FILE_METADATA not in self.table.schema.names

    def _is_computed(self, name: str) -> bool:
        return name in self.virtual or self.is_score(name) or self.is_file_metadata(name)

    @property
    def is_plain(self) -> bool:
        """Whether the scan has neither virtual columns nor an order."""
        return not self.order and not any(map(self._is_computed, self.columns))

    @cached_property
    def read_columns(self) -> Sequence[str]:
        """The columns of the table from which the returned columns are computed."""
        needed: list[str] = []
        for name in self.columns:
            virtual = self.virtual.get(name)
            if virtual is None:
                needed += [] if self._is_computed(name) else [self.table.column(name).name]
            elif not isinstance(virtual, Search):
                needed.append(virtual.column)
        return list(dict.fromkeys(needed))
