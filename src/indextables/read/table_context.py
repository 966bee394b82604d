"""The table and its splits as a read needs them; both can be pickled and hold no secrets."""

from collections.abc import Mapping as DictOf
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError, SplitError
from indextables.log.format.actions import is_companion
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate, Search, columns_of
from indextables.predicate.traversal import fold_constants, has_search, searches_of
from indextables.schema.values import parse_values
from indextables.split.footer import PARQUET_TAG
from indextables.split.mapping import Kind, Mapping
from indextables.split.query.bound_query import BoundQuery, SearchFields
from indextables.split.query.filter_pushdown import SharedPlans
from indextables.split.query.required_terms import Requirement, required_terms
from indextables.split.query.row_matcher import required_columns
from indextables.split.quickwit import bundle_mapping

if TYPE_CHECKING:
from indextables.records import dataclass
    from indextables.source.description import SourceDescription

# In `splitTags` of an entry that is no split: a source file that a companion index does not have.
UNINDEXED_TAG = "unindexed"


@dataclass(frozen=True, slots=True)
class SplitRef:
    """A split as the log names it; `partition` holds the value of each partition column."""

    path: str
    size: int
    footer_start: int | None
    num_records: int | None
    partition: tuple[tuple[str, pa.Scalar], ...]
    is_parquet: bool
    mapping: int
    # The source file that is read in the place of a split (`source.description.UnindexedFile`).
    source_file: str | None = None


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """A condition (kept alive: facts are found by its identity), and what every split needs of it.

    `columns` are those of the condition and of its searches. `compared` are those of the condition without
    its searches, in lower case.
    """

    condition: Predicate
    columns: tuple[str, ...]
    compared: frozenset[str]
    has_search: bool


@dataclass(frozen=True)
class TableContext:
    """What a read needs of its table, whichever splits it reads; picklable, without secrets."""

    url: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    options: Options
    # Of a companion index: the table whose rows it has.
    source: "SourceDescription | None" = None

    @cached_property
    def fields(self) -> SearchFields:
        """The fields that searches may name."""
        return SearchFields(self.schema, self.mappings, self.partition_columns)

    @cached_property
    def _bound_queries(self) -> dict[Search, BoundQuery]:
        return {}

    def bound_query(self, search: Search) -> BoundQuery:
        """A search operator with its query parsed and its fields resolved.

        Raises:
            QuerySyntaxError: The query is malformed.
            PredicateError: It names an unknown field.
        """
        if (query := self._bound_queries.get(search)) is None:
            query = self._bound_queries[search] = self.fields.bind(search, self.options)
        return query

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: compiled queries cannot be pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def filter_plans(self) -> SharedPlans:
        """The filter plans of the query, which its splits share."""
        return SharedPlans()

    @cached_property
    def _conditions(self) -> dict[int, "ConditionFacts"]:
        return {}

    def facts_of(self, condition: Predicate) -> "ConditionFacts":
        """What is needed of a condition for every split, computed once."""
        if (facts := self._conditions.get(id(condition))) is None:
            names = [self.column(column.path[0]).name for column in columns_of(condition)]
            for search in searches_of(condition):
                names += required_columns(self.bound_query(search))
            own = frozenset(column.path[0].lower() for column in columns_of(condition))
            facts = ConditionFacts(condition, tuple(names), own, has_search(condition))
            self._conditions[id(condition)] = facts
        return facts

    @cached_property
    def _required(self) -> dict[tuple[int, int], tuple[Predicate, Mapping, Requirement | None]]:
        return {}

    def required_terms(self, condition: Predicate, mapping: Mapping) -> Requirement | None:
        """The terms that a split with this mapping needs for a condition; computed once for both."""
        key = (id(condition), id(mapping))
        if (known := self._required.get(key)) is None:
            required = required_terms(condition, mapping, self.bound_query)
            known = self._required[key] = (condition, mapping, required)
        return known[2]

    @cached_property
    def _folded(self) -> dict[tuple[object, ...], Predicate]:
        return {}

    def fold(self, where: Predicate, constants: DictOf[str, pa.Scalar]) -> Predicate:
        """The condition with constant columns of a split replaced by their values.

        Splits with the same values have the same object, so that they share what is computed for it.
        """
        own = self.facts_of(where).compared.intersection(constants)
        if not own:
            return where
        key = (id(where), *((name, constants[name]) for name in sorted(own)))
        if (folded := self._folded.get(key)) is None:
            folded = self._folded[key] = fold_constants(where, constants)
        return folded

    @cached_property
    def fields_by_name(self) -> dict[str, pa.Field]:
        """The columns by their names in lower case."""
        by_name: dict[str, pa.Field] = {}
        for each in self.schema:
            by_name.setdefault(each.name.lower(), each)
        return by_name

    @cached_property
    def _missing(self) -> dict[int, tuple[pa.Schema, dict[str, pa.Scalar]]]:
        return {}

    def missing_columns(self, own: pa.Schema) -> dict[str, pa.Scalar]:
        """Nulls for the columns that a split with this schema does not have, by name in lower case."""
        if (known := self._missing.get(id(own))) is None:
            names = {name.lower() for name in own.names}
            nulls = {n: pa.scalar(None, f.type) for n, f in self.fields_by_name.items() if n not in names}
            known = self._missing[id(own)] = (own, nulls)
        return known[1]

    @cached_property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are indexed as text in every split that has them."""
        having = {name: [m for m in self.mappings if m.fields_of(name)] for name in self.schema.names}
        return tuple(
            name
            for name, mappings in having.items()
            if mappings and all(m.find(name, Kind.TEXT) for m in mappings)
        )

    def check_text(self, column: str) -> None:
        """Reject a column that is not indexed as text.

        Raises:
            PredicateError: The matches in the column cannot be highlighted.
        """
        if self.mappings and column not in self.text_columns:
            raise PredicateError(
                f"'{column}' is not indexed as text, so nothing in it can be highlighted; index it so: "
                f"spark.indextables.indexing.typemap.{column} = text"
            )

    def column(self, name: str) -> pa.Field:
        """A column by its name, ignoring case.

        Raises:
            SchemaError: There is no such column.
        """
        field = self.fields_by_name.get(name.lower())
        if field is None:
            raise SchemaError(f"no column '{name}'; the columns are: {', '.join(self.schema.names)}")
        return field

    def select_fields(self, columns: Sequence[str] | None) -> pa.Schema:
        """The fields of these columns, in this order, as the table names them; None for all columns."""
        return self.schema if columns is None else pa.schema([self.column(name) for name in columns])


def plan_splits(
    snapshot: Snapshot, where: Predicate | None, options: Options, files: pa.Table | None = None
) -> tuple[TableContext, list[SplitRef]]:
    """The table, and the splits that may hold a row for which the condition is true.

    Args:
        snapshot: The version to read.
        where: The condition; None for all rows.
        options: Options of the read.
        files: The entries of those splits in the log, if they were listed before.

    Raises:
        QuerySyntaxError: A search is malformed.
        PredicateError: A search names an unknown field.
    """
    files = snapshot.files(where) if files is None else files
    mappings, own = _mappings(snapshot, files)
    if not mappings:
        mappings = _registered(snapshot)
    table = _context(snapshot, mappings, options)
    for search in searches_of(where):
        table.bound_query(search)
    return table, _refs(files, own, table)


def table_context(snapshot: Snapshot, options: Options) -> TableContext:
    """The table as a whole, whichever of its splits are read."""
    mappings, _ = _mappings(snapshot, snapshot.files())
    return _context(snapshot, mappings or _registered(snapshot), options)


def _context(snapshot: Snapshot, mappings: tuple[Mapping, ...], options: Options) -> TableContext:
    return TableContext(
        snapshot.url,
        snapshot.schema,
        snapshot.partition_columns,
        mappings,
        options.public(),
        _source(snapshot, options) if is_companion(snapshot.protocol) else None,
    )


def _source(snapshot: Snapshot, options: Options) -> "SourceDescription | None":
    # Reading other tables is imported for companion indexes only: most tables are none.
    from indextables.source.companion import CompanionProperties

    companion = CompanionProperties.of(snapshot)
    return None if companion is None else companion.description(options)


def _refs(files: pa.Table, own: list[int], table: TableContext) -> list[SplitRef]:
    values = partition_values(files, table.schema, table.partition_columns)
    columns = [files[name].to_pylist() for name in ("path", "size", "footerStartOffset", "numRecords")]
    parquet = are_parquet(files).to_pylist()
    unindexed = has_tag(files, UNINDEXED_TAG).to_pylist()
    sources = files["companionSourceFiles"].to_pylist() if any(unindexed) else []
    names = table.partition_columns
    return [
        SplitRef(
            path, size, start, records,
            tuple((name, values[name][row]) for name in names), parquet[row], own[row],
            sources[row][0] if unindexed[row] else None,
        )
        for row, (path, size, start, records) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def are_parquet(files: pa.Table) -> pa.Array:
    """Which entries are Parquet splits, and not splits that the original wrote."""
    return has_tag(files, PARQUET_TAG)


def has_tag(files: pa.Table, tag: str) -> pa.Array:
    """Which entries have a tag."""
    tags = files["splitTags"].combine_chunks() if files.num_rows else pa.array([], pa.list_(pa.string()))
    tagged = pc.list_parent_indices(tags).filter(pc.equal(pc.list_flatten(tags), tag))
    mask = np.zeros(files.num_rows, np.bool_)
    mask[tagged.to_numpy()] = True
    return pa.array(mask)


def partition_values(files: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The value of each partition column in each split, typed."""
    if not columns:
        return {}
    entries = [dict(entry or ()) for entry in files["partitionValues"].to_pylist()]
    arrays: dict[str, pa.Array] = {}
    for name in columns:
        texts = pa.array([entry.get(name) for entry in entries], pa.string())
        parsed = parse_values(texts, schema.field(name).type, partition=True)
        if parsed.unreadable.any():
            row = int(parsed.unreadable.argmax())
            raise SchemaError(
                f"the partition value '{texts[row]}' of the column '{name}' in {files['path'][row]} is not "
                f"a {schema.field(name).type}; the log was written by another system: rewrite that partition"
            )
        arrays[name] = parsed.values
    return arrays


def _mappings(snapshot: Snapshot, files: pa.Table) -> tuple[tuple[Mapping, ...], list[int]]:
    """The distinct document mappings of files, and the number of each file's mapping."""
    if not files.num_rows:
        return (), []
    texts = pc.coalesce(files["docMappingJson"], files["docMappingRef"], pa.scalar("[]"))
    tagged = pc.binary_join_element_wise(are_parquet(files).cast(pa.string()), texts, " ")
    coded = pa.chunked_array([tagged]) if isinstance(tagged, pa.Array) else tagged
    coded = coded.combine_chunks().dictionary_encode()
    distinct: dict[Mapping, int] = {}
    places: list[int] = []
    for text in coded.dictionary.to_pylist():
        mine, _, body = text.partition(" ")
        mapping = _mapping(snapshot.registry.get(body, body), snapshot, mine=mine == "true")
        places.append(distinct.setdefault(mapping, len(distinct)))
    return tuple(distinct), np.array(places)[coded.indices.to_numpy()].tolist()


def _registered(snapshot: Snapshot) -> tuple[Mapping, ...]:
    """The mappings in the log's registry, for a table or a part of one that has no splits."""
    mappings = []
    for text in snapshot.registry.values():
        try:
            mappings.append(Mapping.from_json(text))
        except SplitError:
            mappings.append(bundle_mapping(text, snapshot.schema, snapshot.partition_columns))
    return tuple(dict.fromkeys(mappings))


def _mapping(text: str, snapshot: Snapshot, *, mine: bool) -> Mapping:
    if mine:
        return _our_mapping(text)
    return bundle_mapping(text, snapshot.schema, snapshot.partition_columns)


@lru_cache(maxsize=256)
def _our_mapping(text: str) -> Mapping:
    return Mapping.from_json(text)
