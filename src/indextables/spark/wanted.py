"""What a scan of Spark wants of a table's rows; picklable, without secrets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from indextables.predicate import And, Or, Predicate, Search
from indextables.read.request import Request
from indextables.read.tasks import TableFacts
from indextables.spark.virtual import SCORE, Highlight, Virtual, virtual_type
from indextables.split.query.index_view import TermStatistics


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by, as SQL says it."""

    column: str
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Rows:
    """Rows for which a condition is true: their columns, virtual ones among them, and how many.

    With `order`, the first `limit` rows in that order are wanted of each split; else any `limit` rows. With
    `statistics`, scores are comparable between splits.
    """

    table: TableFacts
    columns: tuple[str, ...]
    where: Predicate | None = None
    virtual: Mapping[str, Virtual] = field(default_factory=dict)
    limit: int | None = None
    order: tuple[SortKey, ...] = ()
    statistics: TermStatistics | None = None

    @cached_property
    def scored(self) -> tuple[Search, ...]:
        """The searches that the score and fragments speak of: those that rows are wanted for."""
        found = [
            *_positive(self.where),
            *(v for name, v in self.virtual.items() if isinstance(v, Search) and name in self.columns),
        ]
        return tuple(dict.fromkeys(found))

    @property
    def needs_score(self) -> bool:
        """Whether the score is returned or ordered by."""
        return SCORE in self.columns or any(key.column == SCORE for key in self.order)

    @property
    def highlights(self) -> list[str]:
        """The columns of which fragments are returned."""
        named = (self.virtual.get(name) for name in self.columns)
        return [found.column for found in named if isinstance(found, Highlight)]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as they are returned."""
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
    def plain(self) -> bool:
        """Whether all columns are the table's own, in no order."""
        return not self.order and not any(n in self.virtual or self.is_score(n) for n in self.columns)


@dataclass(frozen=True)
class Groups:
    """Partial results of an aggregate, one row for each group and task."""

    table: TableFacts
    request: Request

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are returned."""
        return self.request.results


def _positive(predicate: Predicate | None) -> Iterator[Search]:
    """The searches under no NOT."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _positive(part)
        case Search():
            yield predicate
        case _:
            pass
