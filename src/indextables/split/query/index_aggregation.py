"""Aggregates from the fast fields of an index, if they are exact.

Tantivy computes in doubles and limits the number of groups. A result that could be rounded or incomplete is
None, and the caller aggregates the rows.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import tantivy
from tantivy import Query

from indextables.records import dataclass
from indextables.split.index.loader import FastColumn
from indextables.split.mapping import Field, Kind
from indextables.split.query.index_view import IndexView
from indextables.split.query.row_sets import ALL_ROWS, NO_ROWS, RowSet, intersect, subtract
from indextables.split.query.searcher import AggregationRefusedError, IndexSearcher

# Tantivy's limit of groups; with this size it reports whether groups are missing.
_MOST_GROUPS = 65_000
# Up to this number every integer has an exact double.
_WHOLE_DOUBLES = 1 << 53
_VALUES = (Kind.STRING, Kind.I64, Kind.F64, Kind.BOOL)
_MEASURED = (Kind.I64, Kind.F64)
# A sample of so many rows has, if there are no more groups than Tantivy's limit, 129 pairs of rows of one
# group or more on average, and practically never as few as this.
_SAMPLED_ROWS = 4096
_FEWEST_PAIRS = 32


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group key: the values of a column, or buckets of them in the units of the field."""

    column: str
    interval: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Measure:
    """The count of a column's values in a group; with `numbers`, also sum, minimum and maximum."""

    column: str
    numbers: bool


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result of a measure; integers for integer fields."""

    count: int
    total: float = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class IndexGroup:
    """One group: its keys as field values (None is null), its number of rows, its measures."""

    keys: tuple[Any, ...]
    rows: int
    measures: tuple[MeasureResult, ...]


class _NotExact(Exception):  # noqa: N818 - not an error: a reason to go over the rows
    """The index cannot give the exact answer."""


def index_groups(
    index: IndexSearcher, view: IndexView, rows: RowSet, keys: Sequence[GroupKey], measures: Sequence[Measure]
) -> list[IndexGroup] | None:
    """The groups of some rows; None if the index cannot compute them exactly."""
    if not rows.exact:
        return None
    try:
        return list(_Groups(index, view, keys, measures).of(rows.rows))
    except _NotExact:
        return None


def can_measure(index: IndexSearcher, view: IndexView, measures: Sequence[Measure]) -> bool:
    """Whether the fields of the measures hold every value; nothing is computed."""
    try:
        _Groups(index, view, (), measures)
    except _NotExact:
        return False
    return True


class _Groups:
    def __init__(
        self, index: IndexSearcher, view: IndexView, keys: Sequence[GroupKey], measures: Sequence[Measure]
    ) -> None:
        self.index = index
        self.view = view
        self.keys = [(key, self._field(key.column, _VALUES)) for key in keys]
        self.measures = [(m, self._field(m.column, _MEASURED if m.numbers else _VALUES)) for m in measures]
        if any(key.interval is not None and field.kind is not Kind.I64 for key, field in self.keys):
            raise _NotExact
        fields = [field for _, field in self.keys] + [field for _, field in self.measures]
        view.need(*(FastColumn(field.name) for field in fields))
        if any(view.partial(field) is not NO_ROWS for field in fields):
            raise _NotExact

    def _field(self, column: str, kinds: Sequence[Kind]) -> Field:
        field = self.view.mapping.find(column, *kinds)
        if field is None or not field.fast:
            raise _NotExact
        return field

    def of(self, query: Query) -> Iterator[IndexGroup]:
        """Every group; rows with null keys are queried separately, since Tantivy skips them."""
        if query is ALL_ROWS and self._has_too_many_groups():
            raise _NotExact
        can_be_null = [
            i for i, (key, _) in enumerate(self.keys) if self.view.null_counts.get(key.column) != 0
        ]
        for count in range(len(can_be_null) + 1):
            for absent in itertools.combinations(can_be_null, count):
                yield from self._with_absent(query, set(absent), can_be_null)

    def _has_too_many_groups(self) -> bool:
        """Whether a sample shows that Tantivy would stop at its limit, after it has counted most rows."""
        keys = [(key, field.name) for key, field in self.keys if field.kind is not Kind.STRING]
        if not keys or self.index.footer.num_records <= 2 * _MOST_GROUPS:
            return False
        sample = self.index.sample([name for _, name in keys], _SAMPLED_ROWS)
        if not sample:
            return False
        columns = zip(keys, zip(*sample, strict=True), strict=True)
        groups = Counter(zip(*(_bucket_numbers(key, values) for (key, _), values in columns), strict=True))
        return sum(count * (count - 1) // 2 for count in groups.values()) < _FEWEST_PAIRS

    def _with_absent(
        self, query: Query, absent: set[int], can_be_null: Sequence[int]
    ) -> Iterator[IndexGroup]:
        parts = [query]
        for i in can_be_null:
            present = Query.exists_query(self.keys[i][1].name)
            parts.append(subtract(ALL_ROWS, present) if i in absent else present)
        selected_rows = intersect(parts)
        if selected_rows is NO_ROWS:
            return
        present_keys = [i for i in range(len(self.keys)) if i not in absent]
        rows = self.index.count(selected_rows) if absent or not present_keys else None
        if rows == 0 and (absent or self.keys):
            return
        answer = self._aggregate(selected_rows, self._request(present_keys))
        for i in present_keys:
            if self.keys[i][0].interval is not None:
                self._check_bounds(answer[f"b{i}"])
        for place, bucket_rows, inner in self._buckets(answer, present_keys, rows):
            key_values = dict(zip(present_keys, place, strict=True))
            yield IndexGroup(
                tuple(key_values.get(i) for i in range(len(self.keys))),
                bucket_rows,
                tuple(self._measure_result(inner, n) for n in range(len(self.measures))),
            )

    def _aggregate(self, query: tantivy.Query, request: dict[str, Any]) -> dict[str, Any]:
        if not request:
            return {}
        try:
            return self.index.aggregate(query, request)
        except AggregationRefusedError as error:
            raise _NotExact from error

    def _request(self, present: Sequence[int]) -> dict[str, Any]:
        request: dict[str, Any] = {}
        for n, (measure, field) in enumerate(self.measures):
            kind = "stats" if measure.numbers else "value_count"
            request[f"m{n}"] = {kind: {"field": field.name}}
        for i in reversed(present):
            key, field = self.keys[i]
            if key.interval is None:
                level: dict[str, Any] = {"terms": {"field": field.name, "size": _MOST_GROUPS}}
            else:
                level = {
                    "histogram": {
                        "field": field.name,
                        "interval": float(key.interval),
                        "offset": float(key.offset % key.interval),
                        "min_doc_count": 1,
                    }
                }
            request = {f"k{i}": {**level, "aggs": request} if request else level}
        for i in present:
            if self.keys[i][0].interval is not None:
                request[f"b{i}"] = {"stats": {"field": self.keys[i][1].name}}
        return request

    def _buckets(
        self, answer: dict[str, Any], present: Sequence[int], rows: int | None
    ) -> Iterator[tuple[tuple[Any, ...], int, dict[str, Any]]]:
        if not present:
            yield (), rows or 0, answer
            return
        level = answer[f"k{present[0]}"]
        if level.get("sum_other_doc_count", 0) or level.get("doc_count_error_upper_bound", 0):
            raise _NotExact
        for bucket in level["buckets"]:
            key = self._key(present[0], bucket["key"])
            for place, inner_rows, inner in self._buckets(bucket, present[1:], bucket["doc_count"]):
                yield (key, *place), inner_rows, inner

    def _key(self, number: int, result: Any) -> Any:  # noqa: ANN401 - a key of any kind
        key, field = self.keys[number]
        if key.interval is not None:
            return int(result)
        match field.kind:
            case Kind.I64:
                if not isinstance(result, int):
                    raise _NotExact
                return result
            case Kind.F64:
                return float(result)
            case Kind.BOOL:
                return bool(result)
            case _:
                return result

    def _check_bounds(self, stats: dict[str, Any]) -> None:
        bounds = [stats["min"], stats["max"]]
        if any(bound is not None and abs(bound) >= _WHOLE_DOUBLES for bound in bounds):
            raise _NotExact

    def _measure_result(self, answer: dict[str, Any], number: int) -> MeasureResult:
        measure, field = self.measures[number]
        result = answer[f"m{number}"]
        if not measure.numbers:
            return MeasureResult(int(result["value"] or 0))
        count = int(result["count"])
        if not count:
            return MeasureResult(0)
        total, low, high = result["sum"], result["min"], result["max"]
        if field.kind is Kind.F64:
            # Tantivy does not order NaN, and does not distinguish infinities from the largest numbers.
            if not math.isfinite(total):
                raise _NotExact
            return MeasureResult(count, total, low, high)
        if max(abs(low), abs(high)) * count >= _WHOLE_DOUBLES:
            raise _NotExact
        return MeasureResult(count, int(total), int(low), int(high))


def _bucket_numbers(key: GroupKey, values: Sequence[float | None]) -> Sequence[float | None]:
    if key.interval is None:
        return values
    return [None if value is None else (value - key.offset) // key.interval for value in values]
