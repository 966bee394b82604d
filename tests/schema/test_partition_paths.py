"""Partition folders hold any text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.schema.values import escape_path, parse_partition_path, partition_path, unescape_path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_any_text_comes_back_and_is_one_part_of_a_path(text: Any) -> None:
    escaped = escape_path(text)
    assert unescape_path(escaped) == text
    assert not set(escaped) & set('/\\=:?*"<>|#\0\n')
    assert escaped not in (".", "..")


@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=3))
def test_folders_name_their_columns_and_values(values: Any) -> None:
    assert parse_partition_path(partition_path(values) + "/part-1.split") == values


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("", ""), ("2024-01-01", "2024-01-01"), ("a/b", "a%2Fb"), ("100%", "100%25"), ("a=b", "a%3Db"), ("é", "é"), (".", "%2E"),
     ("10:30", "10%3A30"), (" x ", "%20x%20"), ("a.b c", "a.b c"), ("\x85", "%C2%85")],
)  # fmt: skip
def test_only_what_could_be_misread_is_escaped(text: str, escaped: str) -> None:
    assert escape_path(text) == escaped


def test_folders_that_were_never_escaped_are_read() -> None:
    assert parse_partition_path("day=2024-01-01/note=50% off/x.split") == [
        ("day", "2024-01-01"),
        ("note", "50% off"),
    ]
    assert parse_partition_path("x.split") == []
