"""Reads one split with filters; uses its index if that costs less than reading the columns."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from indextables import metrics
from indextables.errors import IndexCacheError, SplitError
from indextables.options import reading
from indextables.predicate import (
    Always,
    And,
    Compare,
    In,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    TextMatch,
)
from indextables.predicate.evaluate import evaluate
from indextables.predicate.traversal import has_search, longest_list
from indextables.read.split_source import Numbers, ParquetSplit, SplitSource, open_split
from indextables.read.table_context import SKIPPED, SplitRef, TableContext
from indextables.records import dataclass
from indextables.schema.conversion import as_mask
from indextables.split.parquet.reader import RowReader
from indextables.split.query.bound_query import BoundQuery
from indextables.split.query.filter_pushdown import FilterPlan
from indextables.split.query.index_view import IndexView, TermStatistics
from indextables.split.query.query_compiler import compile_query
from indextables.split.query.required_terms import Requirement, required_fields
from indextables.split.query.row_matcher import Mask, match_rows
from indextables.split.query.row_sets import NO_ROWS, RowSet
from indextables.split.query.searcher import IndexSearcher
from indextables.split.query.value_queries import few_lookups
from indextables.split.tantivy_layout import column_of
from indextables.store import Store


class _Reader(Protocol):
    table: TableContext
    ref: SplitRef


R = TypeVar("R", bound=_Reader)
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def split_errors(table: TableContext, ref: SplitRef) -> Iterator[None]:
    """Raise errors of Arrow and Tantivy as SplitError; Tantivy's are ValueErrors."""
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        raise SplitError(
            f"{table.url}/{ref.path}: the split cannot be read or searched "
            f"({type(error).__name__}: {error}); if the file is intact, this is a defect of indextables"
        ) from error


def naming_split(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Decorate a method of a reader so that its errors name the split."""

    @wraps(method)
    def wrapper(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with split_errors(self.table, self.ref):
            return method(self, *args, **kwargs)

    return wrapper


def naming_split_in_batches(
    method: Callable[Concatenate[R, P], Iterator[T]],
) -> Callable[Concatenate[R, P], Iterator[T]]:
    """Decorate a generator method of a reader so that its errors name the split."""

    @wraps(method)
    def wrapper(self: R, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with split_errors(self.table, self.ref):
            yield from method(self, *args, **kwargs)

    return wrapper


def cast_column(array: pa.Array, field: pa.Field, table: TableContext, ref: SplitRef) -> pa.Array:
    """Cast values of a split to the type of the table's column."""
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise SplitError(
            f"{table.url}/{ref.path}: the column {field.name} has the type {array.type}, but the table has "
            f"{field.type} ({error}); overwrite the table, or restore a version that fits"
        ) from error


_logger = logging.getLogger(__name__)

_NEVER = Always(False)
# A term filter is requested if it can save reading this many bytes of the index.
_SAVED_BYTES = 256 << 10
# The time in milliseconds that indexes are opened and searched.
INDEX_TIME = "indextables.read.index_ms"
# For longer IN lists an index is not fetched: most rows would be candidates.
_FEW_VALUES = 1024
# A list is hashed for every batch of rows, so long lists are compared with large batches.
_ROWS_PER_VALUE = 8
# Up to this number, rows of several splits are fetched together, and candidates are cached.
FEW_ROWS = 1024
# Up to this many rows of a split are always fetched by page.
_FEW_IN_SPLIT = 64
# From this share of matching rows on, comparing every row is cheaper than collecting hits of the index.
_MANY = 0.25


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Candidate rows from the index; `residual` must be evaluated for the uncertain ones."""

    numbers: Numbers
    residual: Predicate | None
    uncertain: Numbers


@lru_cache(maxsize=16)
def _warn_of_cache(problem: str) -> None:
    """Log a warning, once for each problem: results are correct, but slower."""
    _logger.warning("filters are evaluated on rows, without the index: %s", problem)


class SplitReader:
    """One split of a table."""

    def __init__(self, store: Store, ref: SplitRef, table: TableContext) -> None:
        self.table = table
        self.ref = ref
        self.source: SplitSource = open_split(store, ref, table)
        self._index: IndexSearcher | None = None
        self._view: IndexView | None = None
        self._answers: dict[Search, tuple[Numbers, Numbers]] = {}
        # Candidates by the id of a condition and the limit.
        self._few: dict[tuple[int, int | None], _Candidates] = {}
        self._conditions: list[Predicate] = []
        # By the id of a condition: whether a row can match it.
        self._may_match: dict[int, bool] = {}
        # The columns of the condition that the index is opened for.
        self._searched: Sequence[str] = ()
        self._schemas: dict[tuple[str, ...], pa.Schema] = {}

    @cached_property
    def constants(self) -> dict[str, pa.Scalar]:
        """Columns with one value in all rows: partition columns, and columns that the split does not have."""
        missing = self.table.missing_columns(self.source.schema)
        if not self.ref.partition:
            return missing
        return {**missing, **{name.lower(): value for name, value in self.ref.partition}}

    @property
    def index(self) -> IndexSearcher:
        """The split's index."""
        # Not a cached_property, whose lock all objects share in Python 3.11, while opening sends requests.
        if self._index is None:
            self._index = self.source.index(self.table.options, self._searched)
        return self._index

    @property
    def view(self) -> IndexView:
        """The view of the index that conditions are compiled against."""
        if self._view is None:
            self._view = self.index.view_with(self.constants)
        return self._view

    def bound_query(self, search: Search) -> BoundQuery:
        """A search operator with its query parsed and its fields resolved."""
        return self.table.bound_query(search)

    @naming_split
    def score_search(self, search: Search, statistics: TermStatistics | None) -> RowSet:
        """The rows of a search, scored with the term statistics of the table, or by default of this split."""
        view = replace(self.view, statistics=statistics, ranks=True)
        return compile_query(self.bound_query(search), view).true

    def fold(self, where: Predicate | None) -> Predicate:
        """The condition with the constant columns of this split replaced by their values."""
        if where is None:
            return Always(True)
        condition = self.table.fold(where, self.constants)
        return condition if self.may_match(condition) else _NEVER

    def may_match(self, condition: Predicate) -> bool:
        """Whether a row can match a folded condition, by the term filters of the split."""
        filters = self.source.term_filters
        if filters is None or isinstance(condition, Always):
            return True
        if (may_match := self._may_match.get(id(condition))) is None:
            required = self.table.required_terms(condition, filters.mapping)
            may_match = required is None or self.may_hold(required)
            self._may_match[id(condition)] = may_match
            self._conditions.append(condition)  # keep it alive: its id is a key
            if not may_match:
                metrics.record(SKIPPED, 1)
        return may_match

    def may_hold(self, required: Requirement) -> bool:
        """Whether the split can have a row with the required terms, as far as testing that is cheap.

        If the term dictionaries were read with the footer, and the index is not on the local disk, they are
        tested, too: they are exact, and cost less than opening the index.
        """
        filters = self.source.term_filters
        if filters is None or not self.should_test_filters(required):
            return True
        if not filters.may_hold(required):
            return False
        if not filters.has_dictionaries(required) or self._are_local(required):
            return True
        return filters.dictionaries_may_hold(required)

    def _are_local(self, required: Requirement) -> bool:
        """Whether the fields of required terms are on the local disk."""
        return self.is_index_local([column_of(field) for field in required_fields(required)])

    def should_test_filters(self, required: Requirement) -> bool:
        """Whether testing the term filters is cheap compared with reading the index."""
        filters = self.source.term_filters
        if filters is None:
            return False
        if filters.are_cheap(required):
            return True
        return filters.saved_bytes(required) >= _SAVED_BYTES and not self._are_local(required)

    @naming_split
    def filter_plan(self, where: Predicate) -> FilterPlan:
        """The candidates of a folded condition, and its residual."""
        plan = self.table.filter_plans.find(where, self.view)
        if plan is None:
            plan = self.table.filter_plans.make(where, self.view, self.bound_query, self.table.options)
        return plan

    def fetch_index(self, condition: Predicate) -> None:
        """Fetch the parts of the index for a folded condition, if the index is used for it."""
        if self._should_use_index(condition):
            self.from_index(condition, lambda: self.filter_plan(condition))

    def columns_of(self, condition: Predicate | None) -> Sequence[str]:
        """The columns of a condition and of its searches."""
        return () if condition is None else self.table.condition_columns(condition).columns

    def is_index_local(self, columns: Iterable[str]) -> bool:
        """Whether the index of these columns is on the local disk."""
        return self.source.is_index_local(self.table.options, columns)

    @naming_split_in_batches
    def batches(
        self, columns: Sequence[str], where: Predicate | None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which the condition is true, in order; at most `limit`."""
        condition = self.fold(where)
        if isinstance(condition, Always) and condition.value is not True:
            return
        rest = limit
        for batch in self._matching(columns, condition, limit):
            part = batch if rest is None else batch.slice(0, rest)
            if part.num_rows:
                yield part
            if rest is not None:
                rest -= part.num_rows
                if rest <= 0:
                    return

    def _matching(
        self, columns: Sequence[str], condition: Predicate, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(condition, Always):
            yield from self._scan(columns)
            return
        candidates: _Candidates | None = None
        if self._should_use_index(condition):
            candidates = self.from_index(
                condition, lambda: self._find_candidates(condition, limit, self._max_hits(condition))
            )
        if candidates is None:
            yield from self._filtered_scan(columns, condition)
        elif candidates.residual is None:
            yield from self._fetch(columns, candidates.numbers)
        else:
            yield from self._filter_rows(
                columns, candidates.residual, candidates.numbers, candidates.uncertain
            )

    def _find_candidates(
        self, condition: Predicate, limit: int | None, max_hits: int
    ) -> "_Candidates | None":
        """The candidate rows of the index; None if there are more than `max_hits`."""
        key = (id(condition), limit)
        if (candidates := self._few.get(key)) is not None:
            return candidates if len(candidates.numbers) <= max_hits else None
        candidates = self._search_candidates(condition, limit, max_hits)
        if candidates is not None and len(candidates.numbers) <= FEW_ROWS:
            self._few[key] = candidates
            self._conditions.append(condition)  # keep it alive: its id is a key
        return candidates

    def _search_candidates(
        self, condition: Predicate, limit: int | None, max_hits: int
    ) -> "_Candidates | None":
        plan = self.filter_plan(condition)
        none = np.zeros(0, np.int64)
        if plan.candidates.rows is NO_ROWS:
            return _Candidates(none, None, none)
        if plan.residual is None and limit is not None:
            return _Candidates(self.index.first(plan.candidates.rows, limit), None, none)
        numbers = self.index.rows_up_to(plan.candidates.rows, max_hits)
        if numbers is None or plan.residual is None:
            return None if numbers is None else _Candidates(numbers, None, none)
        uncertain = numbers if plan.candidates.all_uncertain else self.index.rows(plan.candidates.uncertain)
        return _Candidates(numbers, plan.residual, uncertain)

    @naming_split
    def find_few(self, where: Predicate | None, limit: int | None, most: int) -> Numbers | None:
        """The rows for which the condition is true, at most `limit`, if they are few and the index is exact.

        Returns:
            The numbers of the rows; None if there may be more than `most`, or a residual must be evaluated.
        """
        condition = self.fold(where)
        if isinstance(condition, Always):
            return None if condition.value is True else np.zeros(0, np.int64)
        if not self._should_use_index(condition):
            return None
        most = min(most, self._max_hits(condition))
        candidates = self.from_index(condition, lambda: self._find_candidates(condition, limit, most))
        dense = max(_FEW_IN_SPLIT, int(self.source.dense_fraction * self.source.num_records))
        if (
            candidates is None
            or candidates.residual is not None
            or len(candidates.numbers) > min(most, dense)
        ):
            return None
        return candidates.numbers

    @property
    def row_reader(self) -> RowReader | None:
        """The reader of the rows, if the split has them itself, in Parquet."""
        return self.source.rows if isinstance(self.source, ParquetSplit) else None

    def whole(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """A batch of the split's own columns with the requested columns, constant ones included."""
        return self._whole(batch, columns, batch.num_rows)

    def own_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns that are read from the split, as the split names them."""
        return self._own(columns)

    def from_index(self, condition: Predicate, compile_query: Callable[[], T]) -> T | None:
        """The result of `compile_query` on the index; None if the disk cache fails and rows suffice."""
        self._searched = self.columns_of(condition)
        try:
            with metrics.measure(INDEX_TIME):
                return compile_query()
        except IndexCacheError as error:
            if has_search(condition):
                raise
            _warn_of_cache(str(error))
            return None

    @naming_split
    def numbers(self, where: Predicate | None) -> Numbers:
        """The numbers of the rows for which the condition is true."""
        condition = self.fold(where)
        every = np.arange(self.source.num_records, dtype=np.int64)
        if isinstance(condition, Always):
            return every if condition.value is True else every[:0]
        candidates = self.from_index(condition, lambda: self._find_candidates(condition, None, len(every)))
        if candidates is None:
            matching: Numbers = every[self.holds(condition, every)]
            return matching
        if candidates.residual is None or not len(candidates.numbers):
            return candidates.numbers
        wrong = candidates.uncertain[~self.holds(candidates.residual, candidates.uncertain)]
        return np.setdiff1d(candidates.numbers, wrong, assume_unique=True)

    @naming_split_in_batches
    def numbered_batches(
        self, columns: Sequence[str], where: Predicate | None
    ) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """The rows for which the condition is true, in order, with their numbers."""
        numbers = self.numbers(where)
        start = 0
        for batch in self._fetch(columns, numbers):
            if batch.num_rows:
                yield numbers[start : start + batch.num_rows], batch
            start += batch.num_rows

    @naming_split
    def count(self, where: Predicate | None) -> int:
        """How many rows the condition is true for."""
        condition = self.fold(where)
        if isinstance(condition, Always):
            return self.source.num_records if condition.value is True else 0
        counted: int | None = None
        if self._should_use_index(condition):
            counted = self.from_index(condition, lambda: self._count_by_index(condition))
        if counted is None:
            counted = sum(batch.num_rows for batch in self._filtered_scan((), condition))
        return counted

    def _count_by_index(self, condition: Predicate) -> int | None:
        """The count from the index; None if the residual would have to be evaluated for too many rows."""
        plan = self.filter_plan(condition)
        if plan.residual is None:
            return self.index.count(plan.candidates.rows)
        uncertain = self.index.rows_up_to(plan.candidates.uncertain, self._max_hits(condition))
        if uncertain is None:
            return None
        return self.index.count(plan.candidates.certain) + int(self.holds(plan.residual, uncertain).sum())

    @naming_split
    def index_decides(self, where: Predicate | None) -> bool:
        """Whether the index evaluates the condition without a residual."""
        condition = self.fold(where)
        if isinstance(condition, Always):
            return True
        return bool(self.from_index(condition, lambda: self.filter_plan(condition).residual is None))

    @naming_split
    def count_candidates(self, where: Predicate | None) -> int:
        """The number of candidate rows of the condition."""
        condition = self.fold(where)
        if isinstance(condition, Always):
            return self.source.num_records if condition.value is True else 0
        count: int | None = None
        if self._should_use_index(condition):
            count = self.from_index(
                condition, lambda: self.index.count(self.filter_plan(condition).candidates.rows)
            )
        return self.source.num_records if count is None else count

    @naming_split
    def find_candidates(self, where: Predicate | None, limit: int | None, most: int) -> int | None:
        """The number of candidate rows of the condition; None if there are more than `most`.

        With a limit, the index need not find more rows than that, if there is no residual. The rows are
        cached, so that reading them does not search again.
        """
        condition = self.fold(where)
        if isinstance(condition, Always):
            count = self.source.num_records if condition.value is True else 0
            return count if count <= most else None
        if not self._should_use_index(condition):
            return self.source.num_records if self.source.num_records <= most else None
        candidates = self.from_index(condition, lambda: self._find_candidates(condition, limit, most))
        return None if candidates is None else len(candidates.numbers)

    @naming_split
    def rows(self, numbers: Numbers, columns: Sequence[str]) -> pa.Table:
        """Rows by number; the numbers must be ascending."""
        return pa.Table.from_batches(
            self._fetch(columns, numbers, dense=False), self.table.select_fields(columns)
        )

    def _max_hits(self, condition: Predicate) -> int:
        """The number of hits above which comparing every row is cheaper than collecting hits."""
        rows = self.source.num_records
        return rows if self.table.condition_columns(condition).has_search else int(_MANY * rows)

    def _should_use_index(self, condition: Predicate) -> bool:
        """Whether to use the index: a search needs it, it is cached, or it may exclude most rows."""
        if self.table.condition_columns(condition).has_search:
            return True
        if not self._index_excludes_rows(condition):
            return False
        return _selective(condition) or self.is_index_local(self.columns_of(condition))

    def _index_excludes_rows(self, condition: Predicate) -> bool:
        """Whether excluding rows by the index costs less than reading the columns of the condition."""
        match condition:
            case And(parts):
                return any(self._index_excludes_rows(part) for part in parts)
            case Or(parts):
                return all(self._index_excludes_rows(part) for part in parts)
            case Not(part):
                return self._index_excludes_rows(part)
            case In(column, values) if len(column.path) == 1:
                fields = self.table.mappings[self.ref.mapping].fields_of(column.path[0])
                return not fields or any(
                    few_lookups(field, values, self.source.num_records) for field in fields
                )
            case _:
                return True

    # --- rows -----------------------------------------------------------------------------------------

    def _own(self, columns: Sequence[str]) -> list[str]:
        """The columns that are read from the split, as the split names them."""
        own = {name.lower() for name in columns} - self.constants.keys()
        return [name for name in self.source.schema.names if name.lower() in own]

    def _schema_of(self, columns: tuple[str, ...]) -> pa.Schema:
        if columns not in self._schemas:
            self._schemas[columns] = self.table.select_fields(columns)
        return self._schemas[columns]

    def _whole(self, batch: pa.RecordBatch, columns: Sequence[str], rows: int) -> pa.RecordBatch:
        """A batch with the requested columns, constant ones included."""
        own = {name.lower(): i for i, name in enumerate(batch.schema.names)}
        schema = self._schema_of(tuple(columns))
        arrays = []
        for field in schema:
            place = own.get(field.name.lower())
            if place is None:
                constant = self.constants[field.name.lower()]
                arrays.append(_repeat(constant, rows, field.type))
            else:
                arrays.append(cast_column(batch.column(place), field, self.table, self.ref))
        if not arrays:
            return _empty_batch(rows)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _scan(self, columns: Sequence[str], batch_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of the configured size or of `batch_rows`, if that is more."""
        own = self._own(columns)
        size = max(self.table.options.get(reading.BATCH_ROWS), batch_rows)
        if not own:
            for start in range(0, self.source.num_records, size):
                rows = min(size, self.source.num_records - start)
                yield self._whole(_empty_batch(0), columns, rows)
            return
        for batch in self.source.scan(own, size, self.table.options.get(reading.BATCH_BYTES)):
            yield self._whole(batch, columns, batch.num_rows)

    @naming_split_in_batches
    def fetch(self, columns: Sequence[str], numbers: Numbers) -> Iterator[pa.RecordBatch]:
        """Rows by number, in batches; the numbers must be ascending."""
        yield from self._fetch(columns, numbers)

    def _fetch(
        self, columns: Sequence[str], numbers: Numbers, *, dense: bool = True
    ) -> Iterator[pa.RecordBatch]:
        if not len(numbers):
            return
        own = self._own(columns)
        if not own:
            yield self._whole(_empty_batch(0), columns, len(numbers))
        elif dense and len(numbers) > self.source.dense_fraction * self.source.num_records:
            selected = np.zeros(self.source.num_records, np.bool_)
            selected[numbers] = True
            start = 0
            for batch in self._scan(columns):
                yield batch.filter(pa.array(selected[start : start + batch.num_rows]))
                start += batch.num_rows
        else:
            for batch in self.source.fetch(numbers, own, self.table.options.get(reading.BATCH_BYTES)):
                yield self._whole(batch, columns, batch.num_rows)

    # --- residuals ------------------------------------------------------------------------------------

    def _filtered_scan(self, columns: Sequence[str], condition: Predicate) -> Iterator[pa.RecordBatch]:
        """All rows for which the condition is true, by comparing each."""
        read = self._with_needed(columns, condition)
        start = 0
        for batch in self._scan(read, _ROWS_PER_VALUE * longest_list(condition)):
            numbers = np.arange(start, start + batch.num_rows, dtype=np.int64)
            start += batch.num_rows
            keep = self._true(condition, batch, numbers)
            yield (
                _select(batch, columns).filter(pa.array(keep)) if columns else _empty_batch(int(keep.sum()))
            )

    def _filter_rows(
        self, columns: Sequence[str], residual: Predicate, numbers: Numbers, uncertain: Numbers
    ) -> Iterator[pa.RecordBatch]:
        """Rows by number, without those uncertain ones for which the residual is not true."""
        read = self._with_needed(columns, residual)
        start = 0
        for batch in self._fetch(read, numbers):
            own = numbers[start : start + batch.num_rows]
            start += batch.num_rows
            unsure = _among(own, uncertain)
            keep = ~unsure
            if unsure.any():
                keep[unsure] = self._true(residual, batch.filter(pa.array(unsure)), own[unsure])
            yield (
                _select(batch, columns).filter(pa.array(keep)) if columns else _empty_batch(int(keep.sum()))
            )

    @naming_split
    def holds(self, residual: Predicate, numbers: Numbers) -> Mask:
        """For each of these rows, whether the condition is true."""
        read = self._with_needed((), residual)
        masks = [np.zeros(0, np.bool_)]
        start = 0
        for batch in self._fetch(read, numbers):
            own = numbers[start : start + batch.num_rows]
            start += batch.num_rows
            masks.append(self._true(residual, batch, own))
        return np.concatenate(masks)

    def _with_needed(self, columns: Sequence[str], condition: Predicate) -> list[str]:
        """The columns to return, and those that the condition needs."""
        return list(dict.fromkeys([*columns, *self.columns_of(condition)]))

    def _true(self, condition: Predicate, batch: pa.RecordBatch, numbers: Numbers) -> Mask:
        def search(operator: Search) -> pa.Array:
            return pa.array(self._search_in(operator, batch, numbers))

        return as_mask(evaluate(condition, batch, search=search))

    def _search_in(self, operator: Search, batch: pa.RecordBatch, numbers: Numbers) -> Mask:
        if operator not in self._answers:
            side = compile_query(self.bound_query(operator), self.view).true
            self._answers[operator] = self.index.rows(side.certain), self.index.rows(side.uncertain)
        sure, unsure = self._answers[operator]
        mask = _among(numbers, sure)
        uncertain = _among(numbers, unsure)
        if uncertain.any():
            rows = batch.filter(pa.array(uncertain))
            mask[uncertain] = match_rows(self.bound_query(operator), rows, self.view)
        return mask


def _selective(condition: Predicate) -> bool:
    """Whether a condition is usually true for few rows."""
    match condition:
        case And(parts):
            return any(_selective(part) for part in parts)
        case Or(parts):
            return all(_selective(part) for part in parts)
        case Compare(op=op):
            return op in (Op.EQ, Op.NULL_SAFE)
        case In(values=values):
            return len(values) <= _FEW_VALUES
        case _:
            return isinstance(condition, (Like, TextMatch))


def _among(numbers: Numbers, ascending: Numbers) -> Mask:
    if not len(ascending):
        return np.zeros(len(numbers), np.bool_)
    place = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    mask: Mask = ascending[place] == numbers
    return mask


def _repeat(value: pa.Scalar, rows: int, arrow: pa.DataType) -> pa.Array:
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, arrow)


def _select(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    return batch.select(list(columns))


def _empty_batch(rows: int) -> pa.RecordBatch:
    """A batch without columns, with a number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
