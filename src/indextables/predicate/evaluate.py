"""Evaluates conditions on rows, with Spark's semantics.

Three-valued throughout: a null in the result means unknown. NaN equals NaN and is greater than every
other number, -0.0 equals 0.0, texts are compared by their UTF-8 bytes, and a field of a null struct is
null.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.predicate.compare import compare, membership
from indextables.predicate.patterns import match_like
from indextables.predicate.tree import (
    VALUE,
    Always,
    And,
    ArrayContains,
    Column,
    Compare,
    Element,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    Size,
    Step,
    StructField,
    TextMatch,
    TextMatchKind,
    Values,
    constant_unless_null,
)
from indextables.records import dataclass
from indextables.schema.conversion import convert_leaves
from indextables.schema.type_info import (
    NESTED,
    TypeKind,
    is_int64_ordered,
    kind_of,
    sql_name,
    storage_kind_of,
    value_type,
)

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Fewer ranges are compared one by one.
_FEW_RANGES = 16
# A set of numbers has a flag for each number of its span, if the span is small enough.
_SMALL_SPAN, _SPAN_PER_NUMBER = 1 << 20, 64
# Slots of a hash table per number of a wider span, and the maximum number of bits of the hash.
_PLACES_PER_NUMBER, _MOST_HASH_BITS = 4, 22
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_SIGN = np.int64(_LEAST)
_NAN_ORDER = np.int64(_GREATEST)
_COMPARE = {Op.EQ: pc.equal, Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater, Op.GE: pc.greater_equal}
# Longer lists of numbers are hashed once: Arrow would hash them for every batch.
_FEW_VALUES = 64
_TEXT = {
    TextMatchKind.STARTS: pc.starts_with,
    TextMatchKind.ENDS: pc.ends_with,
    TextMatchKind.CONTAINS: pc.match_substring,
}


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint intervals of integers in order, both ends included."""

    starts: Numbers
    ends: Numbers

    def contains(self, values: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Whether each value lies in one of the intervals; null for null."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        numbers = to_int64(array).fill_null(0).to_numpy(zero_copy_only=False)
        place = np.searchsorted(self.starts, numbers, side="right") - 1
        inside = (place >= 0) & (numbers <= self.ends[np.maximum(place, 0)])
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(inside, pa.bool_(), mask=missing)


class NumberSet:
    """Many 64-bit numbers, prepared once to be looked up in many batches of rows.

    Numbers of a narrow span have one flag each. Numbers of a wide span are in a hash table with one number
    per slot; colliding numbers are in a sorted array, and their slots are flagged.
    """

    def __init__(self, values: pa.Array) -> None:
        numbers = comparable_numbers(values).to_numpy(zero_copy_only=False)
        self._first = numbers.min()
        span = int(numbers.max()) - int(self._first)
        self._table: Numbers | None = None
        if span < max(_SMALL_SPAN, _SPAN_PER_NUMBER * len(numbers)):
            self._flags = np.zeros(span + 2, np.bool_)  # the last flag is that of all numbers beyond the span
            self._flags[numbers - self._first] = True
            return
        bits = min(_MOST_HASH_BITS, (_PLACES_PER_NUMBER * len(numbers)).bit_length())
        self._shift = np.uint64(64 - bits)
        places = self._hash(numbers)
        self._table = np.full(1 << bits, numbers[0])
        self._table[places] = numbers
        others = self._table[places] != numbers
        self._others = np.sort(numbers[others])
        self._flags = np.zeros(1 << bits, np.bool_)
        self._flags[places[others]] = True

    def contains(self, values: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Whether each value is among the numbers; false for null."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        targets = comparable_numbers(array)
        if array.null_count:
            targets = targets.fill_null(0)
        numbers = targets.to_numpy(zero_copy_only=False)
        if self._table is None:
            offsets = (numbers - self._first).view(np.uint64)
            mask = self._flags[np.minimum(offsets, np.uint64(len(self._flags) - 1))]
        else:
            places = self._hash(numbers)
            mask = self._table[places] == numbers
            if len(self._others):
                candidates = np.flatnonzero(self._flags[places])
                nearest = np.searchsorted(self._others, numbers[candidates])
                is_other = self._others[np.minimum(nearest, len(self._others) - 1)] == numbers[candidates]
                mask[candidates[is_other]] = True
        if array.null_count:
            mask &= array.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(mask, pa.bool_())

    def _hash(self, numbers: Numbers) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return (numbers.view(np.uint64) * _HASH_FACTOR) >> self._shift


def is_consecutive(values: pa.Array) -> bool:
    """Whether integers follow each other without a gap, in any order; repeated values are a gap."""
    bounds = pc.min_max(to_int64(values)).as_py()
    return bounds["min"] is not None and bounds["max"] - bounds["min"] == len(values) - values.null_count - 1


def to_int64(values: pa.Array) -> pa.Array:
    """Values of a type that `is_int64_ordered` as 64-bit integers."""
    if storage_kind_of(values.type) is TypeKind.DATE:
        return values.view(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


_NUMBER_FLOATS = (pa.float32(), pa.float64())


def has_numbers(type_: pa.DataType) -> bool:
    """Whether a NumberSet can hold the values of a type."""
    return is_int64_ordered(type_) or type_ in _NUMBER_FLOATS


def comparable_numbers(values: pa.Array) -> pa.Array:
    """64-bit numbers that are equal if and only if the values are equal in SQL: one zero, one NaN."""
    if kind_of(values.type) is not TypeKind.FLOAT:
        return to_int64(values)
    missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    floats = values.cast(pa.float64())
    if values.null_count:
        floats = floats.fill_null(0.0)
    numbers = floats.to_numpy(zero_copy_only=False) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers.view(np.int64), mask=missing)


def float_order(values: pa.Array) -> pa.Array:
    """Integers in the order of the floats: one zero, and one NaN, which is the greatest."""
    floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = floats.view(np.int64)
    order = np.where(bits >= 0, bits, _SIGN - bits)
    order[np.isnan(floats)] = _NAN_ORDER
    return pa.array(order, mask=values.is_null().to_numpy(zero_copy_only=False))


def float_of_order(order: pa.Array, arrow: pa.DataType) -> pa.Array:
    """The floats of order-preserving integers."""
    bits = order.fill_null(0).to_numpy(zero_copy_only=False)
    floats = np.where(bits >= 0, bits, _SIGN - bits).view(np.float64).copy()
    floats[bits == _NAN_ORDER] = np.nan
    return pa.array(floats, mask=order.is_null().to_numpy(zero_copy_only=False)).cast(arrow)


def same_values(values: pa.Array) -> pa.Array:
    """The values, normalised so that values equal in SQL have equal bits: one zero, one NaN."""
    if kind_of(values.type) in NESTED:
        return convert_leaves(values, same_values)
    if kind_of(values.type) is not TypeKind.FLOAT:
        return values
    return float_of_order(float_order(values), values.type)


def range_of(predicate: Predicate) -> tuple[Column, pa.DataType, int, int] | None:
    """The column, its type, and the first and last number of a comparison, or of several joined by AND."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    low, high = _LEAST, _GREATEST
    column: Column | None = None
    type_: pa.DataType | None = None
    for part in parts:
        if not isinstance(part, Compare) or part.op is Op.NULL_SAFE or not part.value.is_valid:
            return None
        if column is None:
            column, type_ = part.column, part.value.type
        if part.column != column or part.value.type != type_ or not is_int64_ordered(part.value.type):
            return None
        value = to_int64(pa.array([part.value], type_))[0].as_py()
        if part.op in {Op.EQ, Op.GE, Op.GT}:
            low = max(low, value + (part.op is Op.GT))
        if part.op in {Op.EQ, Op.LE, Op.LT}:
            high = min(high, value - (part.op is Op.LT))
    return None if column is None else (column, type_, low, high)


def merge_intervals(bounds: Sequence[tuple[int, int]]) -> Intervals:
    """Ranges as disjoint intervals: adjacent ones are merged, empty ones dropped."""
    ordered = sorted((low, high) for low, high in bounds if low <= high)
    joined: list[list[int]] = []
    for low, high in ordered:
        if joined and low <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    starts = np.array([low for low, _ in joined] or [_GREATEST], np.int64)
    ends = np.array([high for _, high in joined] or [_LEAST], np.int64)
    return Intervals(starts, ends)


def evaluate(
    predicate: Predicate,
    rows: pa.RecordBatch | pa.Table,
    *,
    search: Callable[[Search], pa.BooleanArray] | None = None,
) -> pa.BooleanArray:
    """Whether the condition is true, false or unknown (null) for each row.

    Args:
        predicate: The condition. Values may have another type than their column, if Spark compares them.
        rows: The rows, with every column that the condition names.
        search: Evaluates search operators; returns one value for each row.

    Raises:
        PredicateError: A column is missing, types cannot be compared, or search operators are not supported.
    """
    result = _Evaluation(rows, search).of(predicate)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    return result


class _Evaluation:
    def __init__(
        self, rows: pa.RecordBatch | pa.Table, search: Callable[[Search], pa.BooleanArray] | None
    ) -> None:
        self.rows = rows
        self.search = search
        self.columns: dict[Column, Any] = {}

    def of(self, predicate: Predicate) -> Any:  # noqa: ANN401
        match predicate:
            case And(parts):
                return functools.reduce(pc.and_kleene, map(self.of, parts), self.constant(True))
            case Or(parts):
                return functools.reduce(pc.or_kleene, self.alternatives(parts), self.constant(False))
            case Not(part):
                return pc.invert(self.of(part))
            case Always(value):
                return self.constant(value)
            case IsNull(column):
                return pc.is_null(self.values(column))
            case Compare():
                return self.compare(predicate)
            case In():
                return self.is_in(predicate)
            case TextMatch(kind, column, text):
                return _TEXT[kind](self.texts(column), pattern=text)
            case Like(column):
                return match_like(self.texts(column), predicate)
            case NestedCondition(column, steps, part):
                return evaluate(part, pa.table({VALUE.name: apply_steps(self.values(column), steps)}))
            case Search():
                return self.run_search(predicate)

    def alternatives(self, parts: Sequence[Predicate]) -> Iterator[Any]:
        """The parts of an OR; many ranges of one column are one part."""
        ranges: dict[tuple[Column, pa.DataType], list[tuple[Predicate, int, int]]] = defaultdict(list)
        for part in parts:
            value_range = range_of(part) if len(parts) > _FEW_RANGES else None
            if value_range is None:
                yield self.of(part)
            else:
                column, type_, low, high = value_range
                ranges[column, type_].append((part, low, high))
        for (column, type_), intervals in ranges.items():
            values = self.values(column)
            if len(intervals) <= _FEW_RANGES or values.type != type_:
                yield from (self.of(part) for part, _, _ in intervals)
            else:
                yield merge_intervals([(low, high) for _, low, high in intervals]).contains(values)

    def constant(self, value: bool | None) -> Any:  # noqa: ANN401, FBT001
        return pa.repeat(pa.scalar(value, pa.bool_()), self.rows.num_rows)

    def values(self, column: Column) -> Any:  # noqa: ANN401
        """The column in a type that kernels accept: no dictionary, no view, no extension."""
        if column not in self.columns:
            indices = self.rows.schema.get_all_field_indices(column.path[0])
            if len(indices) != 1:
                raise PredicateError(f"the rows have {len(indices)} columns named {column.path[0]!r}")
            values = self.rows.column(indices[0])
            for name in column.path[1:]:
                if kind_of(values.type) is not TypeKind.STRUCT or values.type.get_field_index(name) < 0:
                    raise PredicateError(f"the rows have no column {column.name!r}")
                values = pc.struct_field(values, [values.type.get_field_index(name)])
            plain = _kernel_type(value_type(values.type))
            self.columns[column] = values if values.type == plain else pc.cast(values, plain)
        return self.columns[column]

    def texts(self, column: Column) -> Any:  # noqa: ANN401
        values = self.values(column)
        if kind_of(values.type) is TypeKind.NULL:
            return pc.cast(values, pa.string())
        if kind_of(values.type) is not TypeKind.STRING:
            raise PredicateError(
                f"{column.name} is {sql_name(values.type)}; only a STRING is matched by letters"
            )
        return values

    def compare(self, predicate: Compare) -> Any:  # noqa: ANN401
        op, column, value = predicate.op, predicate.column, predicate.value
        values = self.values(column)
        if not value.is_valid:
            return pc.is_null(values) if op is Op.NULL_SAFE else self.constant(None)
        if value.type != values.type:
            if _kernel_type(value_type(value.type)) != values.type:
                return self.of(compare(column, values.type, op, value))
            value = value.cast(values.type)
        if op is Op.NULL_SAFE:
            return pc.fill_null(_compare_values(Op.EQ, values, value), False)
        return _compare_values(op, values, value)

    def is_in(self, predicate: In) -> Any:  # noqa: ANN401
        values = self.values(predicate.column)
        literals = predicate.array
        if literals is None or _kernel_type(value_type(literals.type)) != values.type:
            return self.of(membership(predicate.column, values.type, predicate.values))
        non_null = literals.drop_null().cast(values.type)
        if not len(non_null):
            empty = not len(literals)
            return self.of(constant_unless_null(predicate.column, False)) if empty else self.constant(None)
        mask = (
            _number_set(predicate).contains(values) if _many_numbers(non_null) else _is_in(values, non_null)
        )
        if len(non_null) < len(literals):
            mask = pc.if_else(mask, True, pa.scalar(None, pa.bool_()))
        if not values.null_count:
            return mask
        return pc.if_else(pc.is_valid(values), mask, pa.scalar(None, pa.bool_()))

    def run_search(self, predicate: Search) -> Any:  # noqa: ANN401
        if self.search is None:
            where = "all fields" if predicate.column is None else predicate.column.name
            raise PredicateError(
                f"{predicate.kind.value.upper()} on {where} needs an index and cannot be evaluated here"
            )
        answer = self.search(predicate)
        if len(answer) != self.rows.num_rows or answer.type != pa.bool_():
            raise ValueError(f"a search answered {len(answer)} {answer.type} for {self.rows.num_rows} rows")
        return answer


def apply_steps(values: Any, steps: Sequence[Step]) -> Any:  # noqa: ANN401
    """The values that steps compute from an array, map or struct column, one for each row."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    for step in steps:
        match step:
            case StructField(name):
                array = pc.struct_field(array, [array.type.get_field_index(name)])
            case Size():
                array = _sizes(array)
            case ArrayContains(matches):
                array = _contains(array, matches)
            case Element(position, matches):
                array = _element(array, position, matches)
    return array


def _sizes(array: pa.Array) -> pa.Array:
    if kind_of(array.type) is TypeKind.MAP:
        sizes = pa.array(np.diff(array.offsets.to_numpy()).astype(np.int32))
        return pc.if_else(array.is_valid(), sizes, pa.scalar(None, pa.int32()))
    return pc.list_value_length(array).cast(pa.int32())


def _children(array: pa.Array) -> tuple[Any, Any, pa.Array]:
    """The start and end of the elements of each row, and the elements of all rows."""
    offsets = array.offsets.to_numpy()
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ends = np.where(valid, offsets[1:], offsets[:-1])
    return offsets[:-1], ends, array.items if kind_of(array.type) is TypeKind.MAP else array.values


def _contains(array: pa.Array, matches: Predicate) -> pa.Array:
    starts, ends, elements = _children(array)
    answers = evaluate(matches, pa.table({VALUE.name: elements}))
    mask = _count_between(answers.fill_null(False), starts, ends) > 0
    unknown = _count_between(answers.is_null(), starts, ends) > 0
    invalid = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(mask, mask=invalid | (unknown & ~mask))


def _count_between(flags: pa.Array, starts: Any, ends: Any) -> Any:  # noqa: ANN401
    """How many flags are set from each start to its end."""
    counts = np.concatenate([[0], np.cumsum(flags.to_numpy(zero_copy_only=False))])
    return counts[ends] - counts[starts]


def _element(array: pa.Array, position: int | None, matches: Predicate | None) -> pa.Array:
    starts, ends, elements = _children(array)
    if position is not None:
        places = starts.astype(np.int64) + position
        return elements.take(pa.array(places, mask=(places < starts) | (places >= ends)))
    assert matches is not None
    answers = evaluate(matches, pa.table({VALUE.name: array.keys})).fill_null(False)
    hits = np.append(np.flatnonzero(answers.to_numpy(zero_copy_only=False)), len(array.keys))
    places = hits[np.searchsorted(hits, starts)]
    return elements.take(pa.array(places, mask=places >= ends))


def _kernel_type(type_: pa.DataType) -> pa.DataType:
    """The type with the same values that all kernels accept."""
    match kind_of(type_):
        case TypeKind.STRING if type_ == pa.string_view():
            return pa.large_string()
        case TypeKind.BINARY if type_ == pa.binary_view():
            return pa.large_binary()
        case TypeKind.FLOAT if type_.bit_width == 16:
            return pa.float32()
        case TypeKind.DECIMAL if type_.bit_width < 128:
            return pa.decimal128(type_.precision, type_.scale)
        case _:
            return type_


def _compare_values(op: Op, values: Any, value: pa.Scalar) -> Any:  # noqa: ANN401
    """The comparison of values with one of their type; NaN is the greatest number."""
    if kind_of(values.type) is not TypeKind.FLOAT:
        return _COMPARE[op](values, value)
    if not math.isnan(value.as_py()):
        result = _COMPARE[op](values, value)
        return pc.or_(result, pc.is_nan(values)) if op in {Op.GT, Op.GE} else result
    match op:
        case Op.EQ | Op.GE:
            return pc.is_nan(values)
        case Op.LT:
            return pc.invert(pc.is_nan(values))
        case _:
            is_nan = pc.is_nan(values)
            return pc.or_(is_nan, pc.invert(is_nan)) if op is Op.LE else pc.and_(is_nan, pc.invert(is_nan))


def _many_numbers(literals: pa.Array) -> bool:
    return len(literals) > _FEW_VALUES and has_numbers(literals.type)


def _number_set(predicate: In) -> NumberSet:
    """The set of a list's values, prepared once for all batches."""
    values = predicate.values
    assert isinstance(values, Values)
    if not isinstance(values.lookup, NumberSet):
        values.lookup = NumberSet(values.array.drop_null())
    return values.lookup


def _is_in(values: Any, targets: pa.Array) -> Any:  # noqa: ANN401
    """Whether each value is in the list (false for null)."""
    if kind_of(values.type) is not TypeKind.FLOAT:
        return pc.is_in(values, value_set=targets)
    # Hashing distinguishes the zeros, and may distinguish kinds of NaN.
    zeros = pa.array([0.0, -0.0], values.type)
    if pc.any(pc.equal(targets, 0.0)).as_py():
        targets = pa.concat_arrays([targets, zeros])
    mask = pc.is_in(values, value_set=targets)
    if pc.any(pc.is_nan(targets)).as_py():
        mask = pc.or_(mask, pc.fill_null(pc.is_nan(values), False))
    return mask
