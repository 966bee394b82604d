"""Tantivy queries for numbers, dates, booleans and IP addresses: values, sets and ranges."""

import ipaddress
from collections.abc import Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import tantivy
from tantivy import FieldType, Query

from indextables.errors import IndexTablesError, QuerySyntaxError
from indextables.predicate import Values
from indextables.predicate.addresses import LAST_ADDRESS, address_block, address_range, merge_blocks
from indextables.predicate.evaluate import is_consecutive
from indextables.predicate.literals import parse_literal
from indextables.predicate.tree import (
    AllDocs,
    Exists,
    Fuzzy,
    InSet,
    Phrase,
    Prefix,
    QueryLeaf,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)
from indextables.schema.type_info import is_int64_ordered
from indextables.split.index.encode import hash_values, integer_values
from indextables.split.mapping import Field, Kind
from indextables.split.query.index_view import IndexView, max_terms
from indextables.split.query.row_sets import ALL_ROWS, NO_ROWS, IndexAnswer, RowSet, two_valued, union

Value: TypeAlias = int | float | bool
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
_TYPES = {Kind.I64: FieldType.Integer, Kind.HASH: FieldType.Integer, Kind.F64: FieldType.Float}
_I64 = (-(1 << 63), (1 << 63) - 1)
# More ranges cost more than evaluating all rows.
MAX_RANGES = 16


def compile_value(leaf: QueryLeaf, field: Field, view: IndexView) -> IndexAnswer:
    """The answer of the index for a leaf on a field of numbers, dates or booleans."""
    column = view.column(field.column)
    assert column is not None, "a field has its column"

    def value(text: str) -> Value:
        return encode_value(parse_value(text, column.type, field.column), field)

    match leaf:
        case Term(text=text):
            return two_valued(equals_query(view, field, value(text)))
        case Phrase(text=text, slop=0, prefix=False):
            return two_valued(equals_query(view, field, value(text)))
        case InSet(values=values):
            query = in_query(view, field, pa.array(list(dict.fromkeys(map(value, values)))))
            return two_valued(query.rows, query.recheck)
        case Range(lower=lower, upper=upper):
            low = None if lower is None else value(lower)
            high = None if upper is None else value(upper)
            return two_valued(
                range_query(
                    view, field, low, high,
                    lower_inclusive=leaf.lower_inclusive, upper_inclusive=leaf.upper_inclusive,
                )
            )  # fmt: skip
        case Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Exists() | AllDocs():
            raise unsupported_leaf(leaf, field.column, str(column.type))
        case _:
            assert_never(leaf)


def unsupported_leaf(leaf: QueryLeaf, column: str, kind: str) -> QuerySyntaxError:
    """The error of a leaf that needs text, for a column without text."""
    leaf_kind = type(leaf).__name__.lower()
    return QuerySyntaxError(
        f"a {leaf_kind} cannot be searched in '{column}', which holds {kind} values; give a value, a set "
        f"({column}: IN [..]) or a range ({column}:[a TO b], {column}:>a)"
    )


def parse_value(text: str, arrow: pa.DataType, column: str) -> pa.Scalar:
    """A text of a query as a value of the column's type."""
    try:
        scalar = parse_literal(text, arrow, "UTC")
    except IndexTablesError:
        scalar = pa.scalar(None, arrow)
    if not scalar.is_valid:
        raise QuerySyntaxError(
            f"'{text}' is not a value of the column '{column}', which holds {arrow} values"
        )
    return scalar


def encode_value(value: pa.Scalar, field: Field) -> Value:
    """The field value of a value of the column's type."""
    if field.kind is Kind.I64:
        return int(integer_values(pa.array([value], value.type))[0].as_py())
    if field.kind is Kind.F64:
        number = float(value.as_py())
        return 0.0 if number == 0 else number
    return bool(value.as_py())


def equals_query(view: IndexView, field: Field, value: Value) -> tantivy.Query:
    """Rows with exactly this value."""
    if field.kind is Kind.I64 and not _I64[0] <= value <= _I64[1]:
        return NO_ROWS
    if field.indexed:
        return Query.const_score_query(Query.term_query(view.schema, field.name, value, "basic"), 1.0)
    # Without terms, the fast column is scanned.
    return Query.range_query(view.schema, field.name, _TYPES[field.kind], value, value)


def in_query(view: IndexView, field: Field, values: pa.Array) -> RowSet:
    """Rows with one of the distinct field values.

    A range costs a scan of the field's column, so many ranges cost more than evaluating all rows. Then the
    rows between the minimum and the maximum are candidates that need a recheck.
    """
    if field.kind is Kind.BOOL:
        return RowSet(union(equals_query(view, field, value) for value in values.to_pylist()))
    if field.indexed and not view.is_slow_lookup(len(values)):
        return RowSet(Query.term_set_query(view.schema, field.name, values.to_pylist()))
    numbers = np.sort(values.to_numpy(zero_copy_only=False))
    whole = field.kind is not Kind.F64
    first: Mask = np.ones(len(numbers), np.bool_)
    if whole:  # neighbouring whole numbers are one range
        first[1:] = numbers[1:] - 1 != numbers[:-1]
    starts = np.flatnonzero(first)
    if len(starts) <= MAX_RANGES:
        stops = np.append(starts[1:], len(numbers)) - 1
        bounds = zip(numbers[starts].tolist(), numbers[stops].tolist(), strict=True)
        return RowSet(union(range_query(view, field, low, high) for low, high in bounds))
    if not whole and np.isnan(numbers[-1]):
        return RowSet(ALL_ROWS, ALL_ROWS)
    rows = range_query(view, field, numbers[0].item(), numbers[-1].item())
    return RowSet(rows, rows)


def few_lookups(field: Field, values: Sequence[pa.Scalar], num_rows: int) -> bool:
    """Whether a list needs only few lookups of terms or ranges of a field, not a scan of most rows."""
    if field.indexed:
        return len(values) <= max_terms(num_rows)
    if len(values) <= MAX_RANGES or field.kind is Kind.BOOL:
        return True
    return isinstance(values, Values) and is_int64_ordered(values.array.type) and is_consecutive(values.array)


def range_query(
    view: IndexView,
    field: Field,
    lower: Value | None,
    upper: Value | None,
    *,
    lower_inclusive: bool = True,
    upper_inclusive: bool = True,
) -> tantivy.Query:
    """Rows with a value between the bounds; None is an open end."""
    if field.kind is Kind.I64:
        if (lower is not None and lower > _I64[1]) or (upper is not None and upper < _I64[0]):
            return NO_ROWS
        lower = None if lower is not None and lower < _I64[0] else lower
        upper = None if upper is not None and upper > _I64[1] else upper
    if field.kind is Kind.BOOL:
        matching_values = [
            v for v in (False, True) if _inside(v, lower, upper, lower_inclusive, upper_inclusive)
        ]
        return union(equals_query(view, field, v) for v in matching_values)
    return Query.range_query(
        view.schema, field.name, _TYPES[field.kind], lower, upper,
        lower_inclusive or lower is None, upper_inclusive or upper is None,
        use_inverted_index=not field.fast,
    )  # fmt: skip


def _inside(value: Any, low: Any, high: Any, low_in: bool, high_in: bool) -> bool:  # noqa: ANN401, FBT001
    above = low is None or value > low or (low_in and value == low)
    return above and (high is None or value < high or (high_in and value == high))


def hash_query(view: IndexView, field: Field, texts: Sequence[str]) -> tantivy.Query:
    """Rows whose value has the hash of one of the texts."""
    return in_query(view, field, hash_values(pa.array(texts, pa.string())).unique()).rows


def compile_address(leaf: QueryLeaf, field: Field, view: IndexView) -> IndexAnswer:
    """The answer of the index for a leaf on a field of IP addresses.

    Values that are not addresses are not in the field; no block or range contains them.
    """
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            return two_valued(_block(view, field, text))
        case InSet(values=values):
            return two_valued(_blocks(view, field, values))
        case Prefix(text=text):
            return two_valued(_block(view, field, text + "*"))
        case Wildcard(parts=parts):
            text = "".join(part.value if isinstance(part, Wild) else part for part in parts)
            return two_valued(_block(view, field, text))
        case Range():
            return two_valued(address_range_query(view, field, *address_range(leaf)))
        case Phrase() | Regex() | Fuzzy() | Exists() | AllDocs():
            raise unsupported_leaf(leaf, field.column, "address")
        case _:
            assert_never(leaf)


def _blocks(view: IndexView, field: Field, texts: Sequence[str]) -> tantivy.Query:
    """Rows with an address of one of the blocks."""
    merged = merge_blocks([address_block(text) for text in texts])
    single = [low for low, high in merged if low == high]
    ranges = (address_range_query(view, field, low, high) for low, high in merged if low < high)
    return union((addresses_query(view, field, single), *ranges))


def _block(view: IndexView, field: Field, text: str) -> tantivy.Query:
    return address_range_query(view, field, *address_block(text))


def address_range_query(view: IndexView, field: Field, low: int, high: int) -> tantivy.Query:
    """Rows with an address between two, both included."""
    if low > high or high < 0 or low > LAST_ADDRESS:
        return NO_ROWS
    first, last = str(ipaddress.IPv6Address(low)), str(ipaddress.IPv6Address(high))
    if low == high:
        return Query.const_score_query(Query.term_query(view.schema, field.name, first, "basic"), 1.0)
    return Query.range_query(
        view.schema, field.name, FieldType.IpAddr, first, last, use_inverted_index=not field.fast
    )


def addresses_query(view: IndexView, field: Field, numbers: Sequence[int]) -> tantivy.Query:
    """Rows with one of the addresses."""
    if not numbers:
        return NO_ROWS
    if not field.indexed or len(numbers) == 1:
        return union(address_range_query(view, field, number, number) for number in numbers)
    texts = [str(ipaddress.IPv6Address(number)) for number in numbers]
    return Query.term_set_query(view.schema, field.name, texts)
