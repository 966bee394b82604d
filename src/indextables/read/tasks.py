"""What a read is made of: tasks that can be sent elsewhere, each with the splits it reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError, SplitError
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import And, Not, Or, Predicate, Search
from indextables.schema.values import parse_values
from indextables.split.footer import PARQUET_TAG
from indextables.split.mapping import Kind, Mapping
from indextables.split.query.bound_query import BoundQuery, SearchFields
from indextables.split.quickwit import bundle_mapping


@dataclass(frozen=True, slots=True)
class SplitRef:
    """A split as the log names it; `partition` holds the value of each partition column."""

    path: str
    size: int
    footer_start: int | None
    num_records: int | None
    partition: tuple[tuple[str, pa.Scalar], ...]
    ours: bool
    mapping: int


@dataclass(frozen=True)
class TableFacts:
    """What every task must know of its table; picklable, without secrets."""

    url: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    options: Options

    @cached_property
    def fields(self) -> SearchFields:
        """The columns as searches name them."""
        return SearchFields(self.schema, self.mappings, self.partition_columns)

    @cached_property
    def _questions(self) -> dict[Search, BoundQuery]:
        return {}

    def question(self, search: Search) -> BoundQuery:
        """A search operator, its query parsed and its fields resolved; refuses what is malformed."""
        if (found := self._questions.get(search)) is None:
            found = self._questions[search] = self.fields.bind(search, self.options)
        return found

    @cached_property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are searched by words, in every split that has them."""
        having = {name: [m for m in self.mappings if m.fields_of(name)] for name in self.schema.names}
        return tuple(
            name for name, found in having.items() if found and all(m.find(name, Kind.TEXT) for m in found)
        )

    def check_text(self, column: str) -> None:
        """Refuse a column in which no words can be highlighted."""
        if self.mappings and column not in self.text_columns:
            raise PredicateError(
                f"'{column}' is not indexed as text, so nothing in it can be highlighted; index it so: "
                f"spark.indextables.indexing.typemap.{column} = text"
            )

    def column(self, name: str) -> pa.Field:
        """A column by its name, in any case; refuses an unknown one."""
        found = next((f for f in self.schema if f.name.lower() == name.lower()), None)
        if found is None:
            raise SchemaError(f"no column '{name}'; the columns are: {', '.join(self.schema.names)}")
        return found

    def selected(self, columns: Sequence[str] | None) -> pa.Schema:
        """The columns asked for, in that order, in the table's spelling; None takes all."""
        return self.schema if columns is None else pa.schema([self.column(name) for name in columns])


@dataclass(frozen=True)
class ReadTask:
    """Some splits, and what to take from them."""

    table: TableFacts
    splits: tuple[SplitRef, ...]
    columns: tuple[str, ...]
    where: Predicate | None
    limit: int | None = None


def prepare(
    snapshot: Snapshot, where: Predicate | None, options: Options, files: pa.Table | None = None
) -> tuple[TableFacts, list[SplitRef]]:
    """What a read needs to know of the table, and the splits that can hold a row it wants.

    `files` are those splits as the log lists them, if they were listed before. A condition that names
    unknown fields, or has a malformed query, is refused here.
    """
    files = snapshot.files(where) if files is None else files
    mappings, own = _mappings(snapshot, files)
    if not mappings:
        mappings = _registered(snapshot)
    table = TableFacts(snapshot.url, snapshot.schema, snapshot.partition_columns, mappings, options.public())
    check(where, table)
    return table, _refs(files, own, table)


def facts_of(snapshot: Snapshot, options: Options) -> TableFacts:
    """What is to be known of the table as a whole, whichever of its splits are read."""
    mappings, _ = _mappings(snapshot, snapshot.files())
    return TableFacts(
        snapshot.url,
        snapshot.schema,
        snapshot.partition_columns,
        mappings or _registered(snapshot),
        options.public(),
    )


def check(predicate: Predicate | None, table: TableFacts) -> None:
    """Refuse a condition that names unknown fields or has a malformed query, before any split is read."""
    for search in searches_of(predicate):
        table.question(search)


def searches_of(predicate: Predicate | None) -> Iterator[Search]:
    """Every search operator in a condition."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from searches_of(part)
        case Not(part):
            yield from searches_of(part)
        case Search():
            yield predicate
        case _:
            pass


def _refs(files: pa.Table, own: list[int], table: TableFacts) -> list[SplitRef]:
    values = partition_values(files, table.schema, table.partition_columns)
    columns = [files[name].to_pylist() for name in ("path", "size", "footerStartOffset", "numRecords")]
    ours = is_ours(files).to_pylist()
    names = table.partition_columns
    return [
        SplitRef(
            path, size, start, records,
            tuple((name, values[name][row]) for name in names), ours[row], own[row],
        )
        for row, (path, size, start, records) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def is_ours(files: pa.Table) -> pa.Array:
    """Which entries are splits that this engine wrote."""
    tags = files["splitTags"].combine_chunks() if files.num_rows else pa.array([], pa.list_(pa.string()))
    tagged = pc.list_parent_indices(tags).filter(pc.equal(pc.list_flatten(tags), PARQUET_TAG))
    mask = np.zeros(files.num_rows, np.bool_)
    mask[tagged.to_numpy()] = True
    return pa.array(mask)


def partition_values(files: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The value of each partition column in each split, typed."""
    if not columns:
        return {}
    given = [dict(entry or ()) for entry in files["partitionValues"].to_pylist()]
    found: dict[str, pa.Array] = {}
    for name in columns:
        texts = pa.array([entry.get(name) for entry in given], pa.string())
        parsed = parse_values(texts, schema.field(name).type, partition=True)
        if parsed.unreadable.any():
            row = int(parsed.unreadable.argmax())
            raise SchemaError(
                f"the partition value '{texts[row]}' of the column '{name}' in {files['path'][row]} is not "
                f"a {schema.field(name).type}; the log was written by another system: rewrite that partition"
            )
        found[name] = parsed.values
    return found


def grouped(
    splits: Sequence[SplitRef], parallelism: int, *, size: int | None, most: int
) -> list[tuple[SplitRef, ...]]:
    """The splits of each task: as many as asked for, or one while there are few, then up to `most`."""
    if size is None:
        few = len(splits) <= 2 * parallelism
        size = min(1 if few else -(-len(splits) // (4 * parallelism)), most)
    return [tuple(splits[start : start + size]) for start in range(0, len(splits), size)]


def plan(
    snapshot: Snapshot,
    where: Predicate | None,
    columns: Sequence[str] | None,
    options: Options,
    *,
    parallelism: int = 1,
    limit: int | None = None,
) -> tuple[ReadTask, ...]:
    """The tasks that together read what is asked for, ready to be sent to other processes."""
    table, splits = prepare(snapshot, where, options)
    names = tuple(table.selected(columns).names)
    size, most = options.get(reading.SPLITS_PER_TASK), options.get(reading.MAX_SPLITS_PER_TASK)
    groups = grouped(splits, parallelism, size=size, most=most)
    return tuple(ReadTask(table, group, names, where, limit) for group in groups)


def _mappings(snapshot: Snapshot, files: pa.Table) -> tuple[tuple[Mapping, ...], list[int]]:
    """The document mappings that files have, each once, and which one each file has."""
    if not files.num_rows:
        return (), []
    said = pc.coalesce(files["docMappingJson"], files["docMappingRef"], pa.scalar("[]"))
    marked = pc.binary_join_element_wise(is_ours(files).cast(pa.string()), said, " ")
    coded = pa.chunked_array([marked]) if isinstance(marked, pa.Array) else marked
    coded = coded.combine_chunks().dictionary_encode()
    distinct: dict[Mapping, int] = {}
    places: list[int] = []
    for text in coded.dictionary.to_pylist():
        mine, _, body = text.partition(" ")
        mapping = _mapping(snapshot.registry.get(body, body), snapshot, mine=mine == "true")
        places.append(distinct.setdefault(mapping, len(distinct)))
    return tuple(distinct), np.array(places)[coded.indices.to_numpy()].tolist()


def _registered(snapshot: Snapshot) -> tuple[Mapping, ...]:
    """The mappings that the log remembers, for a table or a part of one that has no splits."""
    found = []
    for text in snapshot.registry.values():
        try:
            found.append(Mapping.from_json(text))
        except SplitError:
            found.append(bundle_mapping(text, snapshot.schema, snapshot.partition_columns))
    return tuple(dict.fromkeys(found))


def _mapping(text: str, snapshot: Snapshot, *, mine: bool) -> Mapping:
    if mine:
        return _our_mapping(text)
    return bundle_mapping(text, snapshot.schema, snapshot.partition_columns)


@lru_cache(maxsize=256)
def _our_mapping(text: str) -> Mapping:
    return Mapping.from_json(text)
