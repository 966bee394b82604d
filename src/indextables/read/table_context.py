"""The table and its splits for a read; picklable, without secrets.

Splits that have no matching row according to filter bundles are skipped.
"""

import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as DictOf
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property, lru_cache, partial, reduce
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import metrics
from indextables.cache import Cache
from indextables.errors import PredicateError, SchemaError, SplitError, StoreError
from indextables.log.format.actions import is_companion
from indextables.log.format.files import has_tag, partition_values
from indextables.log.format.state_manifest import FilterBundle
from indextables.log.snapshot import Snapshot, SnapshotKey, is_own_manifest
from indextables.options import Options, reading
from indextables.predicate import Predicate, Search, columns_of
from indextables.predicate.traversal import fold_constants, has_search, searches_of
from indextables.records import dataclass
from indextables.split.footer import PARQUET_TAG
from indextables.split.index.term_filter import (
    Bits,
    BundleDirectory,
    FilterGroup,
    Keys,
    Mask,
    find_keys,
    split_keys,
)
from indextables.split.mapping import Kind, Mapping
from indextables.split.query.bound_query import BoundQuery, SearchFields
from indextables.split.query.filter_pushdown import SharedPlans
from indextables.split.query.required_terms import (
    AnyTerm,
    Conjunction,
    Disjunction,
    Requirement,
    required_leaves,
    required_terms,
)
from indextables.split.query.row_matcher import required_columns
from indextables.split.quickwit import bundle_mapping
from indextables.store import CacheScope, Store

if TYPE_CHECKING:
    from indextables.source.description import SourceDescription

# Splits that were skipped by their term filters.
SKIPPED = "indextables.read.splits_skipped_by_terms"
# In `splitTags` of an entry without a split: a source file that a companion index does not cover.
UNINDEXED_TAG = "unindexed"


@dataclass(frozen=True, slots=True)
class SplitRef:
    """A split by its entry in the log; `partition` has the value of each partition column."""

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
class ConditionColumns:
    """A condition, and its columns. It is referenced here, since its id is the key of this object.

    `columns` are those of the condition and of its searches. `compared` are those of the condition without
    its searches, in lower case.
    """

    condition: Predicate
    columns: tuple[str, ...]
    compared: frozenset[str]
    has_search: bool


@dataclass(frozen=True)
class TableContext:
    """The table of a read, independent of the splits; picklable, without secrets."""

    url: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    options: Options
    # For a companion index: its source.
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
        """The fields without cached values: compiled queries cannot be pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def filter_plans(self) -> SharedPlans:
        """The filter plans of the query, which are shared by its splits."""
        return SharedPlans()

    @cached_property
    def _conditions(self) -> dict[int, "ConditionColumns"]:
        return {}

    def condition_columns(self, condition: Predicate) -> "ConditionColumns":
        """The columns of a condition, computed once for all splits."""
        if (columns := self._conditions.get(id(condition))) is None:
            names = [self.column(column.path[0]).name for column in columns_of(condition)]
            for search in searches_of(condition):
                names += required_columns(self.bound_query(search))
            own = frozenset(column.path[0].lower() for column in columns_of(condition))
            columns = ConditionColumns(condition, tuple(names), own, has_search(condition))
            self._conditions[id(condition)] = columns
        return columns

    @cached_property
    def _requirements(self) -> dict[tuple[int, int], tuple[Predicate, Mapping, Requirement | None]]:
        return {}

    def required_terms(self, condition: Predicate, mapping: Mapping) -> Requirement | None:
        """The terms that a split with this mapping needs for a condition; cached."""
        key = (id(condition), id(mapping))
        if (entry := self._requirements.get(key)) is None:
            required = required_terms(condition, mapping, self.bound_query)
            entry = self._requirements[key] = (condition, mapping, required)
        return entry[2]

    @cached_property
    def _folds(self) -> dict[tuple[object, ...], Predicate]:
        return {}

    def fold(self, where: Predicate, constants: DictOf[str, pa.Scalar]) -> Predicate:
        """The condition with constant columns of a split replaced by their values.

        Splits with the same values get the same object, so that they share cached results for it.
        """
        own = self.condition_columns(where).compared.intersection(constants)
        if not own:
            return where
        key = (id(where), *((name, constants[name]) for name in sorted(own)))
        if (folded := self._folds.get(key)) is None:
            folded = self._folds[key] = fold_constants(where, constants)
        return folded

    @cached_property
    def fields_by_name(self) -> dict[str, pa.Field]:
        """The columns by their names in lower case."""
        by_name: dict[str, pa.Field] = {}
        for column in self.schema:
            by_name.setdefault(column.name.lower(), column)
        return by_name

    @cached_property
    def _missing(self) -> dict[int, tuple[pa.Schema, dict[str, pa.Scalar]]]:
        return {}

    def missing_columns(self, own: pa.Schema) -> dict[str, pa.Scalar]:
        """Nulls for the columns that a split with this schema does not have, by name in lower case."""
        if (entry := self._missing.get(id(own))) is None:
            names = {name.lower() for name in own.names}
            nulls = {n: pa.scalar(None, f.type) for n, f in self.fields_by_name.items() if n not in names}
            entry = self._missing[id(own)] = (own, nulls)
        return entry[1]

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
                f"'{column}' is not indexed as text, so it cannot be highlighted; index it as text: "
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
        """The fields of these columns, in this order, with the table's names; None for all columns."""
        return self.schema if columns is None else pa.schema([self.column(name) for name in columns])


# --- filter bundles ---------------------------------------------------------------------------------

# The directory of a bundle lists its splits; one range for each term of a condition tests that term in all of
# them, before any of them is opened (PROTOCOL.md, "Filter bundles"). Splits that are in no bundle, such as
# those after the newest state, are tested when they are opened.

_logger = logging.getLogger(__name__)

# With fewer splits, opening them takes no longer than testing bundles.
_FEW_SPLITS = 4
# About the bytes that opening a split reads: directories with more bytes per split are not read.
_SPLIT_BYTES = 64 << 10
# Bundles with up to this many bytes besides their directory are read completely.
_WHOLE_BYTES = 128 << 10
# Terms that need more bytes than this of one bundle are not tested.
_MAX_READ_BYTES = 8 << 20
# The maximum size of cached directories and pages in this process.
_MAX_CACHE_BYTES = 64 << 20

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
RequirementOf = Callable[[Mapping], Requirement | None]


@dataclass(frozen=True, slots=True)
class _OpenBundle:
    """A directory, and the bytes before it if the bundle is small."""

    directory: BundleDirectory
    start: int
    data: bytes

    @property
    def nbytes(self) -> int:
        return self.directory.nbytes + len(self.data)


_bundles: Cache[tuple[CacheScope, str], _OpenBundle] = Cache(weigh=lambda bundle: bundle.nbytes)
_pages: Cache[tuple[CacheScope, str, int], Bits] = Cache(weigh=lambda page: int(page.nbytes))


def drop_cached_bundles() -> None:
    """Release the cached parts of bundles, and plans."""
    _bundles.clear()
    _pages.clear()
    _plans.clear()


class BundledFilters:
    """Tests some splits of a snapshot with its filter bundles."""

    def __init__(self, snapshot: Snapshot, files: pa.Table, options: Options, keys: Keys | None) -> None:
        """`files` are the entries of the splits; `keys` their keys (`split_keys`), if they are known."""
        self._keys = keys
        self._log = snapshot.log
        self._bundles = [bundle for bundle in snapshot.filter_bundles if bundle.is_valid]
        self._files = files
        self._at_once = options.get(reading.CONCURRENT_OPENS)

    def may_hold(self, mappings: Sequence[Mapping], own: Rows, required: RequirementOf) -> Mask:
        """Which splits can have a row with the required terms.

        Args:
            mappings: The mappings of the splits.
            own: For each split the number of its mapping.
            required: Returns the terms that a split with a mapping needs; None if it needs none.
        """
        result = np.ones(self._files.num_rows, np.bool_)
        requirements = {
            number: requirement
            for number, mapping in enumerate(mappings)
            if (requirement := required(mapping)) is not None
        }
        if not requirements or not self._is_cheap():
            return result
        keys = split_keys(self._files) if self._keys is None else self._keys
        works = [partial(self._test, bundle, keys, own, requirements) for bundle in self._bundles]
        read = (_bundles.get((self._log.cache_scope, bundle.path)) for bundle in self._bundles)
        if len(works) < 2 or all(bundle is not None and bundle.data for bundle in read):
            return reduce(operator.and_, (work() for work in works), result)
        with ThreadPoolExecutor(min(self._at_once, len(works)), "indextables-filters") as pool:
            return reduce(operator.and_, pool.map(operator.call, works), result)

    def _is_cheap(self) -> bool:
        """Whether testing bundles is cheaper than opening the splits."""
        splits = self._files.num_rows
        missing = (b for b in self._bundles if not _bundles.has((self._log.cache_scope, b.path)))
        return bool(splits >= _FEW_SPLITS and sum(b.directory for b in missing) <= splits * _SPLIT_BYTES)

    def _test(
        self, bundle: FilterBundle, keys: Keys, own: np.ndarray, requirements: dict[int, Requirement]
    ) -> Mask:
        mask: Mask = np.ones(len(keys), np.bool_)
        try:
            opened = self._open(bundle)
            places = find_keys(keys, opened.directory.keys)
            for number, requirement in requirements.items():
                rows = np.flatnonzero((places >= 0) & (own == number))
                if len(rows):
                    test = _BundleTest(self._log, bundle.path, opened, requirement)
                    mask[rows] = test.may_hold()[places[rows]]
        except (SplitError, StoreError) as error:
            # The filters in the splits are used instead.
            _warn(f"{self._log.url}/{bundle.path}", str(error))
        return mask

    def _open(self, bundle: FilterBundle) -> _OpenBundle:
        key = (self._log.cache_scope, bundle.path)
        if (opened := _bundles.get(key)) is None:
            is_small = bundle.size - bundle.directory <= _WHOLE_BYTES
            start = 0 if is_small else bundle.size - bundle.directory
            data = self._log.get_range(bundle.path, start, bundle.size)
            directory = BundleDirectory.decode(data[-bundle.directory :], bundle.size)
            opened = _OpenBundle(directory, start, data if is_small else b"")
            _bundles.put(key, opened, max_weight=_MAX_CACHE_BYTES)
        return opened


@lru_cache(maxsize=64)
def _warn(url: str, problem: str) -> None:
    """Log a warning, once for each bundle: results are the same without it, but slower."""
    _logger.warning("the filter bundle %s is not used: %s", url, problem)


class _BundleTest:
    """Tests a requirement in all splits of one bundle."""

    def __init__(self, log: Store, path: str, opened: _OpenBundle, requirement: Requirement) -> None:
        self._log = log
        self._path = path
        self._opened = opened
        self._requirement = requirement
        self._read: dict[tuple[int, int], Bits] = {}

    def may_hold(self) -> Mask:
        """Whether each split of the bundle can have the required terms."""
        self._load()
        return self._evaluate(self._requirement)

    def _evaluate(self, requirement: Requirement) -> Mask:
        match requirement:
            case AnyTerm():
                return self._any_term(requirement)
            case Conjunction(parts):
                return reduce(operator.and_, (self._evaluate(part) for part in parts))
            case Disjunction(parts):
                return reduce(operator.or_, (self._evaluate(part) for part in parts))

    def _any_term(self, leaf: AnyTerm) -> Mask:
        mask: Mask = np.ones(len(self._opened.directory.keys), np.bool_)
        if self._is_tested(leaf):
            for group in self._groups(leaf):
                pages = [self._read[group.offset, group.page_of(term)] for term in leaf.terms]
                tests = [group.test(term, page) for term, page in zip(leaf.terms, pages, strict=True)]
                mask[group.members] = reduce(operator.or_, tests)
        return mask

    def _groups(self, leaf: AnyTerm) -> Iterator[FilterGroup]:
        return self._opened.directory.of_field(leaf.field)

    def _is_tested(self, leaf: AnyTerm) -> bool:
        """Whether the pages of a leaf are few enough to be read."""
        if not leaf.terms:
            return False
        pages = {(g.offset, g.page_of(t)): g for g in self._groups(leaf) for t in leaf.terms}
        return sum(_length(group, number) for (_, number), group in pages.items()) <= _MAX_READ_BYTES

    def _load(self) -> None:
        """Read the pages of all terms at once."""
        needed = {
            (group.offset, group.page_of(term)): group
            for leaf in required_leaves(self._requirement)
            if self._is_tested(leaf)
            for group in self._groups(leaf)
            for term in leaf.terms
        }
        scope = self._log.cache_scope
        missing: list[tuple[FilterGroup, int]] = []
        for (offset, number), group in needed.items():
            page = _pages.get((scope, self._path, group.page_range(number)[0]))
            if page is None:
                missing.append((group, number))
            else:
                self._read[offset, number] = page
        missing.sort(key=lambda page: page[0].page_range(page[1]))
        for (group, number), data in zip(missing, self._bytes(missing), strict=True):
            page = self._read[group.offset, number] = group.decode_page(number, data)
            _pages.put((scope, self._path, group.page_range(number)[0]), page, max_weight=_MAX_CACHE_BYTES)

    def _bytes(self, pages: Iterable[tuple[FilterGroup, int]]) -> Sequence[bytes | memoryview]:
        ranges = [group.page_range(number) for group, number in pages]
        if self._opened.data:
            return [self._opened.data[start:end] for start, end in ranges]
        return self._log.get_ranges(self._path, ranges) if ranges else []


def _length(group: FilterGroup, number: int) -> int:
    start, end = group.page_range(number)
    return end - start


# --- planning ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitPlan:
    """The splits that a read needs, with their entries in the log in the same order."""

    table: TableContext
    files: pa.Table
    filters: BundledFilters | None
    # The number of each split's mapping.
    own: Rows
    # The plan that has these splits in some of its rows.
    whole: "_WholePlan | None"
    rows: Rows

    @cached_property
    def splits(self) -> list[SplitRef]:
        """The splits."""
        if self.whole is not None:
            refs = self.whole.refs
            return [refs[row] for row in self.rows.tolist()]
        return _refs(self.files, self.own, self.table.schema, self.table.partition_columns)

    def without_terms(self, where: Predicate | None) -> "SplitPlan":
        """The plan without splits that have no matching row according to filter bundles."""
        mask = None if where is None else self.may_hold(lambda each: self.table.required_terms(where, each))
        if mask is None or mask.all():
            return self
        metrics.record(SKIPPED, int(len(mask) - mask.sum()))
        return self.select(mask)

    def select(self, mask: Mask) -> "SplitPlan":
        """Some of the splits."""
        files = self.files.filter(pa.array(mask))
        return SplitPlan(self.table, files, None, self.own[mask], self.whole, self.rows[mask])

    def may_hold(self, required: RequirementOf) -> Mask | None:
        """Which splits can have the required terms, by filter bundles; None without bundles."""
        return (
            None if self.filters is None else self.filters.may_hold(self.table.mappings, self.own, required)
        )


def plan_splits(
    snapshot: Snapshot,
    where: Predicate | None,
    options: Options,
    files: pa.Table | None = None,
    *,
    by_terms: bool = True,
) -> SplitPlan:
    """The table, and the splits that may have a row for which the condition is true.

    Args:
        snapshot: The version to read.
        where: The condition; None for all rows.
        options: Options of the read.
        files: The entries of those splits in the log, if they were listed before.
        by_terms: Whether filter bundles are used; scores count the rows of all splits.

    Raises:
        QuerySyntaxError: A search is malformed.
        PredicateError: A search names an unknown field.
    """
    if files is None:
        file_list, selected = snapshot.select(where)
        whole = _whole_plan(snapshot, file_list)
        files = file_list if selected is None else file_list.filter(selected)
        mask = selected if selected is not None else pa.array(np.ones(file_list.num_rows, np.bool_))
        rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    else:
        whole, rows = _plan_with(snapshot, files)
    mappings, own = _mappings(snapshot, files) if whole is None else (whole.mappings, whole.own[rows])
    table = _context(snapshot, mappings or _registered_mappings(snapshot), options)
    for search in searches_of(where):
        table.bound_query(search)
    filters = None
    if snapshot.filter_bundles and files.num_rows:
        filters = BundledFilters(snapshot, files, options, None if whole is None else whole.keys[rows])
    plan = SplitPlan(table, files, filters, own, whole, rows)
    return plan.without_terms(where) if by_terms else plan


# Longer lists are planned again by each query: their references would need much memory.
_MAX_PLANNED = 5_000


@dataclass(frozen=True, slots=True)
class _WholePlan:
    """The plan of all splits of a snapshot whose file list is in the cache."""

    file_list: "ref[pa.Table]"
    mappings: tuple[Mapping, ...]
    own: Rows
    keys: Keys
    refs: list[SplitRef]
    # Changes list a split that was inserted and deleted twice, each time with other partition values.
    has_distinct_paths: bool


_plans: Cache[tuple[CacheScope, SnapshotKey], _WholePlan] = Cache(16)


def _whole_plan(snapshot: Snapshot, file_list: pa.Table) -> _WholePlan | None:
    """The plan of all splits of a snapshot; None if the list is large, not in the cache, or not readable."""
    if not 0 < file_list.num_rows <= _MAX_PLANNED or not snapshot.is_cached(file_list):
        return None
    key = (snapshot.log.cache_scope, snapshot.key)
    plan = _plans.get(key)
    if plan is None or plan.file_list() is not file_list:
        mappings, own = _mappings(snapshot, file_list)
        try:
            refs = _refs(file_list, own, snapshot.schema, snapshot.partition_columns)
        except SchemaError:
            return None  # of a partition that the query need not read
        distinct = len({each.path for each in refs}) == len(refs)
        plan = _WholePlan(ref(file_list), mappings, own, split_keys(file_list), refs, distinct)
        _plans.put(key, plan)
    return plan


def _plan_with(snapshot: Snapshot, files: pa.Table) -> tuple[_WholePlan | None, Rows]:
    """The plan of all splits, if it is in the cache and has these, and the rows of these."""
    plan, none = _plans.get((snapshot.log.cache_scope, snapshot.key)), np.arange(files.num_rows)
    file_list = None if plan is None else plan.file_list()
    if plan is None or file_list is None or not files.num_rows or not plan.has_distinct_paths:
        return None, none
    rows = pc.index_in(files["path"], value_set=file_list["path"].combine_chunks()).combine_chunks()
    return (None, none) if rows.null_count else (plan, rows.to_numpy().astype(np.int64))


def table_context(snapshot: Snapshot, options: Options) -> TableContext:
    """The context of a table, independent of the splits that are read."""
    if (mapping := _only_mapping(snapshot)) is not None:
        return _context(snapshot, (mapping,), options)
    file_list = snapshot.files()
    whole = _whole_plan(snapshot, file_list)
    mappings = _mappings(snapshot, file_list)[0] if whole is None else whole.mappings
    return _context(snapshot, mappings or _registered_mappings(snapshot), options)


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
    # Imported for companion indexes only, since most tables are not companion indexes.
    from indextables.source.companion import CompanionProperties

    companion = CompanionProperties.of(snapshot)
    return None if companion is None else companion.description(options)


def _refs(files: pa.Table, own: Rows, schema: pa.Schema, names: Sequence[str]) -> list[SplitRef]:
    values = partition_columns(files, schema, names)
    columns = [files[name].to_pylist() for name in ("path", "size", "footerStartOffset", "numRecords")]
    parquet = are_parquet(files).to_pylist()
    numbers, unindexed = own.tolist(), has_tag(files, UNINDEXED_TAG).to_pylist()
    sources = files["companionSourceFiles"].to_pylist() if any(unindexed) else []
    return [
        SplitRef(
            path, size, start, records,
            tuple((name, values[name][row]) for name in names), parquet[row], numbers[row],
            sources[row][0] if unindexed[row] else None,
        )
        for row, (path, size, start, records) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def are_parquet(files: pa.Table) -> pa.Array:
    """Which entries are Parquet splits, and not splits that the original wrote."""
    return has_tag(files, PARQUET_TAG)


def partition_columns(files: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The value of each partition column in each split, typed."""
    remedy = "another engine wrote the log: rewrite that partition"
    return partition_values(files, schema, columns, remedy=remedy)


def _mappings(snapshot: Snapshot, files: pa.Table) -> tuple[tuple[Mapping, ...], Rows]:
    """The distinct document mappings of files, and the number of each file's mapping."""
    texts = files["docMappingRef"]
    if files["docMappingJson"].null_count < files.num_rows or texts.null_count:
        texts = pc.coalesce(files["docMappingJson"], texts, pa.scalar("[]"))
    coded = texts.combine_chunks().dictionary_encode()
    # The same text means another mapping in a split of the original.
    codes = 2 * coded.indices.to_numpy().astype(np.int64) + are_parquet(files).to_numpy(zero_copy_only=False)
    places = np.zeros(2 * len(coded.dictionary), np.int64)
    distinct: dict[Mapping, int] = {}
    for code in np.unique(codes).tolist():
        body = coded.dictionary[code // 2].as_py()
        mapping = _mapping(snapshot.registry.get(body, body), snapshot, own=code % 2 == 1)
        places[code] = distinct.setdefault(mapping, len(distinct))
    return tuple(distinct), places[codes]


def _only_mapping(snapshot: Snapshot) -> Mapping | None:
    """The mapping of all splits, if the log shows that there is one without its list of splits."""
    state, registry = snapshot.base.state, snapshot.registry
    if state is None or len(registry) != 1 or not all(is_own_manifest(each.path) for each in state.manifests):
        return None
    added = {
        add.doc_mapping_json or registry.get(add.doc_mapping_ref or "", "")
        for add, *_ in snapshot.delta.added.values()
    }
    try:
        mappings = {_parse_mapping(text) for text in (*registry.values(), *added)}
    except SplitError:
        return None
    return mappings.pop() if len(mappings) == 1 else None


def _registered_mappings(snapshot: Snapshot) -> tuple[Mapping, ...]:
    """The mappings in the log's registry, for a read without splits."""
    mappings = []
    for text in snapshot.registry.values():
        try:
            mappings.append(Mapping.from_json(text))
        except SplitError:
            mappings.append(bundle_mapping(text, snapshot.schema, snapshot.partition_columns))
    return tuple(dict.fromkeys(mappings))


def _mapping(text: str, snapshot: Snapshot, *, own: bool) -> Mapping:
    if own:
        return _parse_mapping(text)
    return bundle_mapping(text, snapshot.schema, snapshot.partition_columns)


@lru_cache(maxsize=256)
def _parse_mapping(text: str) -> Mapping:
    return Mapping.from_json(text)
