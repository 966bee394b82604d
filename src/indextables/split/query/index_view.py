"""The view of an open index for compiling filters: its fields, nulls, and term statistics for scores.

BM25 scores a word that a text of length `len` contains `tf` times as

    idf * (k1 + 1) * tf / (tf + k1 * (1 - b + b * len / average)),  idf = ln(1 + (N - n + 0.5) / (n + 0.5))

where `n` of `N` rows contain the word. Tantivy uses `n`, `N` and the average length of one split.
Multiplying by the idf of the table and dividing by that of the split gives the table's counts exactly. The
table's average length would need the length of each text; it is applied as for a text of the split's average
length that contains the word once.
"""

import json
import math
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeAlias

import pyarrow as pa
import tantivy
from tantivy import Query

from indextables.records import dataclass
from indextables.split.footer import positions_key
from indextables.split.index.loader import Dictionary as TermsOf
from indextables.split.index.loader import FastColumn, IndexPart, TermList
from indextables.split.mapping import PARTIAL_FIELD, Field, Kind, Mapping
from indextables.split.query.row_sets import ALL_ROWS, NO_ROWS, RowSet, union

# A field of an index, and a term in it.
FieldTerm: TypeAlias = tuple[str, str]

# Tantivy's parameters of BM25.
_K1, _B = 1.2, 0.75
# Up to this many terms are always looked up, and up to one for this many rows.
_FEW_TERMS, _ROWS_PER_TERM = 1024, 128


def max_terms(num_rows: int) -> int:
    """The number of terms up to which lookups are faster than evaluating all rows."""
    return max(_FEW_TERMS, num_rows // _ROWS_PER_TERM)


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """The number of rows, the document frequency of terms, and the average length of fields."""

    rows: int
    frequencies: Dictionary[FieldTerm, int]
    lengths: Dictionary[str, float] = field(default_factory=dict)

    def factor(self, field: str, words: Sequence[str], split: "SplitCounts") -> float:
        """The factor for the score of some terms in a split.

        A phrase has the weight of its terms together. Terms without statistics keep the weight of the split.
        """
        keys = [(field, word) for word in words]
        if any(key not in self.frequencies for key in keys):
            return 1.0
        own = sum(idf(split.num_rows, split.frequency(key)) for key in keys)
        whole = sum(idf(self.rows, self.frequencies[key]) for key in keys)
        average, length = self.lengths.get(field), split.average_length(field, words)
        norm = 1.0 if not average or not length else (1 + _K1) / (1 + _K1 * (1 - _B + _B * length / average))
        return whole / own * norm


class SplitCounts(Protocol):
    """The statistics of a single split."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""

    def frequency(self, key: FieldTerm) -> int:
        """How many rows have a word in a field."""

    def average_length(self, field: str, words: Sequence[str]) -> float | None:
        """How many tokens a row has in a field on average; unknown if it has none of the words."""


def idf(rows: int, frequency: int) -> float:
    """The weight of a term with this document frequency."""
    return math.log1p((max(rows - frequency, 0) + 0.5) / (frequency + 0.5))


def sum_statistics(parts: Iterable[TermStatistics], rows: int) -> TermStatistics:
    """The statistics of several splits, scaled up to a number of rows."""
    counted = 0
    frequencies: dict[FieldTerm, int] = {}
    tokens: dict[str, float] = {}
    having: dict[str, int] = {}
    for part in parts:
        counted += part.rows
        for name, length in part.lengths.items():
            tokens[name] = tokens.get(name, 0.0) + length * part.rows
            having[name] = having.get(name, 0) + part.rows
        for key, count in part.frequencies.items():
            frequencies[key] = frequencies.get(key, 0) + count
    if counted < rows and counted:
        frequencies = {key: round(count * rows / counted) for key, count in frequencies.items()}
    lengths = {name: count / having[name] for name, count in tokens.items() if having[name]}
    return TermStatistics(max(rows, counted), frequencies, lengths)


@dataclass(slots=True)
class ViewDependencies:
    """The properties of an index that a compiled filter depends on, besides the schemas of index and split.

    `partial`: the fields that were looked up in `_partial`, and whether rows are listed there. `nulls`: the
    columns, and whether none of their values are null, some, or all. `parts`: what is needed of the index.
    `variable`: the columns (in lower case) that have no constant value. `is_shareable` is false if the
    compiled form depends on anything else, as terms of the index.
    """

    partial: dict[str, tuple[Field, bool]] = field(default_factory=dict)
    nulls: dict[str, "Nulls"] = field(default_factory=dict)
    parts: set[IndexPart] = field(default_factory=set)
    variable: set[str] = field(default_factory=set)
    is_shareable: bool = True

    def hold_for(self, view: "IndexView") -> bool:
        """Whether the same condition has the same compiled form for another index; fetches its parts."""
        if any(name in view.constants for name in self.variable):
            return False
        if any(view.nulls(name) is not nulls for name, nulls in self.nulls.items()):
            return False
        view.load(self.parts)
        return all((view.partial(own) is not NO_ROWS) is has_rows for own, has_rows in self.partial.values())


class PartLoader(Protocol):
    """Fetches parts of an index that are not on the local disk."""

    def __call__(self, parts: Iterable[IndexPart]) -> None:
        """Fetch parts, and those that were collected with `need`."""

    def fetch(self, part: IndexPart) -> None:
        """Fetch one part."""

    def need(self, parts: Iterable[IndexPart]) -> None:
        """Collect parts, which are fetched with the next ones."""


class Nulls(Enum):
    """How many values of a column are null."""

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True)
class IndexView:
    """One index with the fields of its split, through which filters are compiled.

    Conditions are compiled through its methods, not through `searcher`, so that `dependencies` records the
    properties that the compiled form depends on.

    `columns` are the columns of the split's rows. `null_counts` is the number of nulls of columns, where it
    is known. `constants` are columns (in lower case) with one value for all rows: the partition columns.
    `load` fetches parts of the index into the disk cache: code that creates a query collects the parts that
    it needs (`find`, `need`, `need_terms`), which are fetched when the query is complete. With `statistics`,
    scores are those of the whole table. Scored terms are added to `words`. `lengths` caches average lengths.
    `ranks` says that rows are scored: a filter needs no scores, and its queries may be simpler.
    """

    index: tantivy.Index
    searcher: tantivy.Searcher
    mapping: Mapping
    columns: pa.Schema
    num_rows: int
    load: PartLoader
    null_counts: Dictionary[str, int] = field(default_factory=dict)
    constants: Dictionary[str, pa.Scalar] = field(default_factory=dict)
    statistics: TermStatistics | None = None
    words: set[FieldTerm] | None = None
    ranks: bool = False
    lengths: dict[str, float | None] = field(default_factory=dict)
    dependencies: ViewDependencies | None = None
    # Tantivy's schema as text: equal texts number the fields in the same way.
    index_schema: str = ""

    @cached_property
    def schema(self) -> tantivy.Schema:
        """Tantivy's schema, for the construction of queries."""
        return self.index.schema

    @cached_property
    def _column_names(self) -> dict[str, str]:
        return {name.lower(): name for name in self.columns.names}

    def column(self, name: str) -> pa.Field | None:
        """The column of the split; names are compared without case. None if there is none."""
        column = self._column_names.get(name.lower())
        return None if column is None else self.columns.field(column)

    def find(self, column: str, *kinds: Kind) -> Field | None:
        """The column's field of one of these kinds, in order of preference; the whole field is needed."""
        field = self.mapping.find(column, *kinds)
        if field is not None:
            self.need(field.name)
        return field

    def need(self, *parts: IndexPart) -> None:
        """Fetch parts of the index when the query is complete."""
        if self.dependencies is not None:
            self.dependencies.parts.update(parts)
        self.load.need(parts)

    def need_terms(self, field: Field, terms: Iterable[str], *, positions: bool = False) -> None:
        """Fetch the rows of some terms when the query is complete, and their positions for phrases."""
        self.need(TermList(field.name, tuple(dict.fromkeys(terms)), positions))

    def need_positions(self, field: Field) -> None:
        """Fetch all positions of a field when the query is complete."""
        self.need(positions_key(field.name))

    def constant(self, column: str) -> pa.Scalar | None:
        """The value of a column that has one value for all rows; None for other columns."""
        value = self.constants.get(column.lower())
        if self.dependencies is not None:
            self.dependencies.variable.add(column.lower())
            self.dependencies.is_shareable = self.dependencies.is_shareable and value is None
        return value

    def is_slow_lookup(self, count: int) -> bool:
        """Whether looking up this many terms is slower than evaluating all rows."""
        if count <= _FEW_TERMS:
            return False
        if self.dependencies is not None:
            self.dependencies.is_shareable = False
        return count > max_terms(self.num_rows)

    def terms_with_prefix(self, field: Field, start: str) -> list[str]:
        """The terms of a field that begin with a text."""
        if self.dependencies is not None:
            self.dependencies.is_shareable = False
        self.load.fetch(TermsOf(field.name))
        return [term for term, _ in self.searcher.terms_with_prefix(field.name, start)]

    def partial(self, field: Field) -> tantivy.Query:
        """The rows whose value is incomplete in the field."""
        if not field.may_be_partial:
            return NO_ROWS
        self.load.fetch(TermsOf(PARTIAL_FIELD))
        has_rows = bool(self.searcher.doc_freq(PARTIAL_FIELD, field.name))
        if self.dependencies is not None:
            self.dependencies.partial[field.name] = (field, has_rows)
        if not has_rows:
            return NO_ROWS
        self.need(PARTIAL_FIELD)
        query = Query.term_query(self.schema, PARTIAL_FIELD, field.name, index_option="basic")
        return Query.const_score_query(query, 0.0)

    def with_score(self, query: tantivy.Query, field: str, words: Sequence[str]) -> tantivy.Query:
        """A query for a term or a phrase, with the score of the table's statistics."""
        if self.dependencies is not None and (self.words is not None or self.statistics is not None):
            self.dependencies.is_shareable = False
        if self.words is not None:
            self.words.update((field, word) for word in words)
        if self.statistics is None:
            return query
        factor = self.statistics.factor(field, words, self)
        return query if factor == 1.0 else Query.boost_query(query, factor)

    def frequency(self, key: FieldTerm) -> int:
        """How many rows have a word in a field."""
        self.load((TermsOf(key[0]),))
        return self.searcher.doc_freq(*key)

    def average_length(self, field: str, words: Sequence[str]) -> float | None:
        """How many tokens a row has in a field on average; unknown if no row has one of the words."""
        if field not in self.lengths:
            word = next((word for word in words if self.frequency((field, word))), None)
            if word is None:
                return None
            self.lengths[field] = self._explained_length(field, word)
        return self.lengths[field]

    def _explained_length(self, field: str, word: str) -> float | None:
        """The average length, from Tantivy's explanation of a score."""
        self.load((TermList(field, (word,)),))
        query = Query.term_query(self.schema, field, word, "basic")
        (_, address), *_ = self.searcher.search(query, limit=1, count=False).hits
        parts = [json.loads(query.explain(self.searcher, address).to_json())]
        while parts:
            part = parts.pop()
            if part["description"].startswith("avgdl"):
                return float(part["value"])
            parts += part.get("details") or ()
        return None

    def nulls(self, column: str) -> Nulls:
        """How many values of a column are null; some, if the number is unknown."""
        count = self.null_counts.get(column)
        nulls = Nulls.NONE if count == 0 else Nulls.ALL if count == self.num_rows else Nulls.SOME
        if self.dependencies is not None:
            self.dependencies.nulls[column] = nulls
        return nulls

    def present(self, column: str) -> RowSet:
        """The rows in which a column is not null."""
        nulls = self.nulls(column)
        if nulls is Nulls.NONE:
            return RowSet(ALL_ROWS)
        if nulls is Nulls.ALL:
            return RowSet(NO_ROWS)
        for own in self.mapping.fields_of(column):
            if own.fast and own.kind is not Kind.JSON:
                self.need(FastColumn(own.name))
                return RowSet(union((Query.exists_query(own.name), self.partial(own))))
        return RowSet(ALL_ROWS, ALL_ROWS)
