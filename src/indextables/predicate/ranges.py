"""Many values or ranges of one column, evaluated at once over whole numbers.

Whole numbers here are integers, and what is stored as them: dates, timestamps, times of day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.predicate.tree import And, Column, Compare, Op, Predicate

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Fewer ranges are compared one by one.
FEW = 16
# A flag for each number of a span, if that is no more than this, or than so many times the numbers in it.
_SMALL_SPAN, _SPAN_PER_NUMBER = 1 << 20, 64
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of whole numbers, both ends included, in order, none touching another."""

    starts: Numbers
    ends: Numbers

    def holding(self, values: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Whether each value lies in one of the intervals; null for null."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        numbers = whole_numbers(array).fill_null(0).to_numpy(zero_copy_only=False)
        place = np.searchsorted(self.starts, numbers, side="right") - 1
        inside = (place >= 0) & (numbers <= self.ends[np.maximum(place, 0)])
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(inside, pa.bool_(), mask=missing)


class NumberSet:
    """Many whole numbers, prepared once to be looked for in many batches of rows."""

    def __init__(self, values: pa.Array) -> None:
        numbers = np.unique(whole_numbers(values).to_numpy(zero_copy_only=False))
        self._numbers = numbers
        self._first, self._last = int(numbers[0]), int(numbers[-1])
        self._flags: np.ndarray[Any, np.dtype[np.bool_]] | None = None
        if self._last - self._first < max(_SMALL_SPAN, _SPAN_PER_NUMBER * len(numbers)):
            self._flags = np.zeros(self._last - self._first + 1, np.bool_)
            self._flags[numbers - self._first] = True

    def holding(self, values: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Whether each value is among the numbers; false for null."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        wanted = whole_numbers(array).fill_null(0).to_numpy(zero_copy_only=False)
        inside = (wanted >= self._first) & (wanted <= self._last)
        near = np.where(inside, wanted, self._first)
        if self._flags is not None:
            found = self._flags[near - self._first]
        else:
            found = self._numbers[np.searchsorted(self._numbers, near)] == near
        found = found & inside
        if array.null_count:
            found &= array.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, pa.bool_())


def is_whole(type_: pa.DataType) -> bool:
    """Whether values of the type are whole numbers of 64 bits, in their order."""
    return bool(
        pa.types.is_signed_integer(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_time64(type_)
    )


def whole_numbers(values: pa.Array) -> pa.Array:
    """Values of such a type as 64-bit numbers."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


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
        if part.column != column or part.value.type != type_ or not is_whole(part.value.type):
            return None
        value = whole_numbers(pa.array([part.value], type_))[0].as_py()
        if part.op in {Op.EQ, Op.GE, Op.GT}:
            low = max(low, value + (part.op is Op.GT))
        if part.op in {Op.EQ, Op.LE, Op.LT}:
            high = min(high, value - (part.op is Op.LT))
    return None if column is None else (column, type_, low, high)


def intervals(bounds: Sequence[tuple[int, int]]) -> Intervals:
    """Ranges as disjoint intervals; those that touch are one, those that hold nothing are none."""
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
