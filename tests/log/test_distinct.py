"""Telling texts apart by their ends."""

import uuid
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indextables.log.snapshot import certainly_distinct

LONG = st.text(min_size=28, max_size=70)


@given(st.lists(LONG | st.text(max_size=8), max_size=30), st.integers(0, 5))
def test_texts_of_which_two_are_equal_are_never_called_distinct(texts: Any, copies: Any) -> None:
    doubled = texts + texts[:copies]
    chunked = pa.chunked_array([doubled[:7], doubled[7:]], pa.string())
    if certainly_distinct(chunked):
        assert len(set(doubled)) == len(doubled)


def test_two_equal_texts_are_found_across_chunks_and_slices() -> None:
    paths = [f"day=2024-01-01/part-{uuid.uuid4()}.split" for _ in range(1_000)]
    chunk = pa.array(paths)
    assert certainly_distinct(pa.chunked_array([chunk.slice(0, 300), chunk.slice(300)]))
    assert not certainly_distinct(pa.chunked_array([chunk.slice(0, 301), chunk.slice(300)]))


def test_the_names_of_a_large_table_are_told_apart() -> None:
    paths = [f"part-{number:05d}-{uuid.uuid4()}-c000.split" for number in range(50_000)]
    assert certainly_distinct(pa.chunked_array([paths]))


def test_what_cannot_be_told_by_the_ends_is_left_open() -> None:
    same_end = "x" * 40
    assert not certainly_distinct(pa.chunked_array([["a" + same_end, "b" + same_end]]))
    assert not certainly_distinct(pa.chunked_array([["a", "b"]]))


def test_no_text_and_one_text_are_distinct() -> None:
    assert certainly_distinct(pa.chunked_array([], pa.string()))
    assert certainly_distinct(pa.chunked_array([pa.array([], pa.string()), pa.array(["a"])]))
