"""Evaluation over Arrow rows agrees with a plain reading, row by row."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import PredicateError
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
    Values,
    evaluate,
)
from tests.predicate.condition_rows import PREDICATES, ROWS, SCHEMA, table, truth

A = Column(("a",))


def answers(predicate: Any, **columns: Any) -> Any:
    return evaluate(predicate, pa.table(columns)).to_pylist()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.lists(PREDICATES, min_size=1, max_size=6))
def test_every_row_gets_the_answer_of_the_plain_reading(rows: Any, predicates: Any) -> None:
    data = table(rows)
    for predicate in predicates:
        wanted = [truth(predicate, row) for row in rows]
        assert evaluate(predicate, data).to_pylist() == wanted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, ROWS, PREDICATES)
def test_chunks_batches_slices_and_encodings_make_no_difference(
    first: Any, second: Any, predicate: Any
) -> None:
    whole = pa.concat_tables([table(first), table(second)])
    wanted = evaluate(predicate, whole).to_pylist()
    assert len(wanted) == len(first) + len(second)
    by_batch = [answer for batch in whole.to_batches() for answer in evaluate(predicate, batch).to_pylist()]
    assert by_batch == wanted
    assert evaluate(predicate, whole.slice(1)).to_pylist() == wanted[1:]
    encoded = whole.set_column(
        SCHEMA.get_field_index("word"), "word", whole["word"].combine_chunks().dictionary_encode()
    ).set_column(SCHEMA.get_field_index("bytes"), "bytes", whole["bytes"].cast(pa.binary_view()))
    assert evaluate(predicate, encoded).to_pylist() == wanted


def test_nan_equals_nan_and_is_greater_than_infinity() -> None:
    values = [math.nan, math.inf, 1.0, None]
    nan = pa.scalar(math.nan)
    assert answers(Compare(Op.EQ, A, nan), a=values) == [True, False, False, None]
    assert answers(Compare(Op.GT, A, pa.scalar(math.inf)), a=values) == [True, False, False, None]
    assert answers(Compare(Op.LT, A, nan), a=values) == [False, True, True, None]
    assert answers(Compare(Op.LE, A, nan), a=values) == [True, True, True, None]
    assert answers(In(A, (nan,)), a=values) == [True, False, False, None]


def test_the_two_zeros_are_equal_also_in_a_list() -> None:
    for zero in (0.0, -0.0):
        assert answers(Compare(Op.EQ, A, pa.scalar(zero)), a=[0.0, -0.0, None]) == [True, True, None]
        assert answers(In(A, (pa.scalar(zero),)), a=[0.0, -0.0, None]) == [True, True, None]
        assert answers(Compare(Op.LT, A, pa.scalar(zero)), a=[-0.0, -1.0]) == [False, True]


def test_texts_are_ordered_by_their_utf8_bytes() -> None:
    # In UTF-16, as Java holds strings, the emoji would come first.
    assert answers(Compare(Op.LT, A, pa.scalar("\U0001f600")), a=["\uffff", "\U0001f601"]) == [True, False]


def test_a_field_of_a_null_struct_is_null() -> None:
    column = Column(("a", "x"))
    values = pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())]))
    assert answers(IsNull(column), a=values) == [False, True, True]
    assert answers(Compare(Op.EQ, column, pa.scalar(1)), a=values) == [True, None, None]
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], ["x"], mask=pa.array([False, True]))
    assert answers(Compare(Op.EQ, column, pa.scalar(2)), a=hidden) == [False, None]


def test_a_null_in_a_list_leaves_every_other_value_unknown() -> None:
    listed = In(A, (pa.scalar(1), pa.scalar(None, pa.int64())))
    assert answers(listed, a=[1, 2, None]) == [True, None, None]
    assert answers(Not(listed), a=[1, 2, None]) == [False, None, None]


@pytest.mark.parametrize(
    "type_",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_layout_of_text_is_matched(type_: Any) -> None:
    values = pa.array(["abc", "b", None]).cast(type_)
    assert answers(TextMatch(TextMatchKind.CONTAINS, A, "b"), a=values) == [True, True, None]
    assert answers(Like(A, "A_C", ignore_case=True), a=values) == [True, False, None]
    assert answers(Compare(Op.GE, A, pa.scalar("b")), a=values) == [False, True, None]
    assert answers(In(A, (pa.scalar("b"),)), a=values) == [False, True, None]


@pytest.mark.parametrize(
    "type_",
    [pa.uint64(), pa.float16(), pa.decimal32(5, 1), pa.decimal64(9, 1), pa.decimal256(50, 2), pa.int16()],
    ids=str,
)
def test_every_width_of_number_is_compared(type_: Any) -> None:
    values = pa.array([Decimal(1), Decimal(2), None] if pa.types.is_decimal(type_) else [1, 2, None], type_)
    assert answers(Compare(Op.GT, A, pa.scalar(1.5)), a=values) == [False, True, None]
    assert answers(In(A, (pa.scalar(2), pa.scalar(7))), a=values) == [False, True, None]


def test_a_decimal_is_compared_as_the_nearest_double() -> None:
    # The numbers between two doubles; the second is nearer to the larger one by its 32nd digit.
    texts = ["9007199254740993.0000000000000000", "9007199254740993.0000000000000001"]
    values = pa.array(map(Decimal, texts), pa.decimal128(38, 16))
    assert answers(Compare(Op.EQ, A, pa.scalar(9007199254740992.0)), a=values) == [True, False]
    assert answers(Compare(Op.EQ, A, pa.scalar(9007199254740994.0)), a=values) == [False, True]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_time_is_compared_exactly(unit: str) -> None:
    values = pa.array([0, 1, 2, None], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    half = pa.scalar(1_500_000, pa.timestamp("us"))
    assert answers(Compare(Op.GT, A, half), a=values) == [False, False, True, None]
    assert answers(Compare(Op.EQ, A, half), a=values) == [False, False, False, None]
    assert answers(In(A, (half, pa.scalar(2_000_000, pa.timestamp("us")))), a=values) == [
        False,
        False,
        True,
        None,
    ]
    days = pa.array([0, 1, None], pa.int32()).cast(pa.date32()).cast(pa.date64())
    assert answers(Compare(Op.GT, A, half), a=days) == [False, True, None]
    assert answers(Compare(Op.EQ, A, pa.scalar(1, pa.int32()).cast(pa.date32())), a=days) == [
        False,
        True,
        None,
    ]


def test_a_column_of_the_null_type_is_unknown_to_every_comparison() -> None:
    nulls = pa.nulls(2)
    assert answers(Compare(Op.EQ, A, pa.scalar(1)), a=nulls) == [None, None]
    assert answers(Compare(Op.NULL_SAFE, A, pa.scalar(1)), a=nulls) == [False, False]
    assert answers(In(A, (pa.scalar(1),)), a=nulls) == [None, None]
    assert answers(Like(A, "%"), a=nulls) == [None, None]
    assert answers(IsNull(A), a=nulls) == [True, True]


def test_rows_without_columns_are_counted() -> None:
    rows = pa.table({"a": [1, 2, 3]}).select([])
    assert evaluate(And((Always(True), Always(None))), rows).to_pylist() == [None, None, None]
    assert evaluate(Always(True), pa.table({"a": pa.array([], pa.int64())})).to_pylist() == []


def test_a_search_is_asked_of_the_one_who_can_answer() -> None:
    asked = []

    def search(node: Any) -> pa.Array:
        asked.append(node)
        return pa.array([True, False, True])

    node = Search(SearchKind.INDEXQUERY, A, "x")
    both = And((Not(node), Compare(Op.GT, A, pa.scalar(1))))
    assert evaluate(both, pa.table({"a": [1, 2, None]}), search=search).to_pylist() == [False, True, False]
    assert asked == [node]


def test_a_search_nobody_answers_is_refused() -> None:
    with pytest.raises(PredicateError, match="INDEXQUERY on a needs an index"):
        answers(Search(SearchKind.INDEXQUERY, A, "x"), a=[1])


def test_a_search_that_answers_for_other_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="answered 1 bool for 2 rows"):
        evaluate(
            Search(SearchKind.INDEXQUERY, None, "x"),
            pa.table({"a": [1, 2]}),
            search=lambda _: pa.array([True]),
        )


def test_a_missing_column_is_named() -> None:
    with pytest.raises(PredicateError, match="0 columns named 'b'"):
        answers(IsNull(Column(("b",))), a=[1])
    with pytest.raises(PredicateError, match=r"no column 'a\.x'"):
        answers(IsNull(Column(("a", "x"))), a=[1])


def test_letters_are_not_matched_in_numbers() -> None:
    with pytest.raises(PredicateError, match="a is BIGINT; only a STRING"):
        answers(TextMatch(TextMatchKind.STARTS, A, "1"), a=[1])


@pytest.mark.parametrize("span", [10_000, 1 << 40, 1 << 63])
@pytest.mark.parametrize("size", [65, 1_000, 50_000])
def test_a_long_list_of_numbers_has_its_values_and_no_others(span: int, size: int) -> None:
    random = np.random.default_rng(size)
    listed = random.integers(-span, span, size)
    listed[:2] = -span, span - 1
    rows = np.concatenate([listed[::3], listed + 1, random.integers(-(1 << 63), (1 << 63) - 1, 20_000)])
    column = pa.array(rows, mask=random.random(len(rows)) < 0.01)
    found = evaluate(In(A, Values(pa.array(listed))), pa.table({"a": column}))
    values = set(listed.tolist())
    assert found.to_pylist() == [None if row is None else row in values for row in column.to_pylist()]
