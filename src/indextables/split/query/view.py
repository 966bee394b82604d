"""An opened index as conditions see it: its fields, and which rows have a value at all."""

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import tantivy
from tantivy import Query

from indextables.split.footer import positions_of
from indextables.split.mapping import PARTIAL_FIELD, Field, Kind, Mapping
from indextables.split.query.verdict import ALL, NOTHING, Side, either


@dataclass(frozen=True)
class IndexView:
    """One index with the fields of its split.

    `columns` are the columns of the split's rows. `null_counts` says how many rows of a column are
    null, where that is known. `constants` are columns (in lower case) with one value for all rows: those that
    the table is partitioned by. `load` brings the bytes of fields to the disk: whoever asks the index about a
    field has found it by `find`, or loads it.
    """

    index: tantivy.Index
    searcher: tantivy.Searcher
    mapping: Mapping
    columns: pa.Schema
    num_rows: int
    null_counts: Dictionary[str, int] = field(default_factory=dict)
    constants: Dictionary[str, pa.Scalar] = field(default_factory=dict)
    load: Callable[[Sequence[str]], None] = lambda _: None

    @cached_property
    def schema(self) -> tantivy.Schema:
        """Tantivy's schema, which queries are built with."""
        return self.index.schema

    @cached_property
    def _column_names(self) -> dict[str, str]:
        return {name.lower(): name for name in self.columns.names}

    def column(self, name: str) -> pa.Field | None:
        """The column as the split has it, whatever the case of its name; None if it has none."""
        found = self._column_names.get(name.lower())
        return None if found is None else self.columns.field(found)

    def find(self, column: str, *kinds: Kind) -> Field | None:
        """The column's field of one of these kinds, the first kind first, ready to be asked."""
        found = self.mapping.find(column, *kinds)
        if found is not None:
            self.load((found.name,))
        return found

    def load_positions(self, field: Field) -> None:
        """Have what phrases need of a field."""
        self.load((positions_of(field.name),))

    def partial(self, field: Field) -> tantivy.Query:
        """The rows whose value is not wholly in the field."""
        if not field.may_be_partial:
            return NOTHING
        self.load((PARTIAL_FIELD,))
        if not self.searcher.doc_freq(PARTIAL_FIELD, field.name):
            return NOTHING
        return Query.term_query(self.schema, PARTIAL_FIELD, field.name, index_option="basic")

    def present(self, column: str) -> Side:
        """The rows in which a column has a value."""
        nulls = self.null_counts.get(column)
        if nulls == 0:
            return Side(ALL)
        if nulls == self.num_rows:
            return Side(NOTHING)
        for own in self.mapping.of(column):
            if own.fast and own.kind is not Kind.JSON:
                self.load((own.name,))
                return Side(either((Query.exists_query(own.name), self.partial(own))))
        return Side(ALL, ALL)
