"""What a scan returns: columns, virtual columns, condition, order and limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from indextables.predicate import Predicate, Search
from indextables.predicate.traversal import searches_of
from indextables.read.aggregation.spec import DateHistogram, Histogram, RangeBuckets, group_type
from indextables.read.table_context import TableContext
from indextables.split.query.index_view import TermStatistics

# The column that holds the relevance of a row.
SCORE = "_score"
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
        """The searches that scores and fragments refer to: those not negated, and those returned."""
        found = [
            *searches_of(self.where, negated=False),
            *(v for name, v in self.virtual.items() if isinstance(v, Search) and name in self.columns),
        ]
        return tuple(dict.fromkeys(found))

    @property
    def needs_score(self) -> bool:
        """Whether the score is returned or ordered by."""
        return any(map(self.is_score, [*self.columns, *(key.column for key in self.order)]))

    @property
    def highlighted_columns(self) -> list[str]:
        """The text columns of which fragments are returned."""
        found = (self.virtual.get(name) for name in self.columns)
        return [virtual.column for virtual in found if isinstance(virtual, Highlight)]

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
        return self.table.column(name).type

    def is_score(self, name: str) -> bool:
        """Whether a name is the score's, and not that of a column of the table."""
        return name == SCORE and SCORE not in self.table.schema.names

    @property
    def is_plain(self) -> bool:
        """Whether all columns are the table's own, in no order."""
        return not self.order and not any(n in self.virtual or self.is_score(n) for n in self.columns)

    @cached_property
    def read_columns(self) -> Sequence[str]:
        """The columns of the table that are read to make the columns that are returned."""
        needed: list[str] = []
        for name in self.columns:
            virtual = self.virtual.get(name)
            if virtual is None:
                needed += [] if self.is_score(name) else [self.table.column(name).name]
            elif not isinstance(virtual, Search):
                needed.append(virtual.column)
        return list(dict.fromkeys(needed))
