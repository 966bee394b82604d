"""LIKE, against a reference that looks at one character at a time."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import PredicateError
from indextables.predicate import Column, Like, evaluate
from indextables.predicate.patterns import like_parts, matches, simplify
from tests.predicate.condition_rows import PATTERNS, like

WORD = Column(("word",))
TEXTS = st.lists(st.text(alphabet="aAb%_\\é\n😀.*Σςİi", max_size=8), max_size=10)


def like_answers(texts: Any, pattern: Any, escape: str = "\\", *, ignore_case: bool = False) -> Any:
    return evaluate(
        Like(WORD, pattern, escape, ignore_case), pa.table({"word": pa.array(texts, pa.string())})
    ).to_pylist()


@settings(max_examples=300, deadline=None)
@given(TEXTS, PATTERNS, st.booleans())
@example(["a\nb"], "a_b", False)
@example(["😀"], "_", False)
@example(["İ"], "i%", True)
def test_texts_match_as_in_the_reference(texts: Any, pattern: Any, ignore_case: Any) -> None:
    wanted = [like(text, pattern, ignore_case=ignore_case) for text in texts]
    assert like_answers(texts, pattern, ignore_case=ignore_case) == wanted


@settings(max_examples=300, deadline=None)
@given(TEXTS, PATTERNS)
def test_the_simplest_form_gives_the_same_answer(texts: Any, pattern: Any) -> None:
    rows = pa.table({"word": pa.array([*texts, None], pa.string())})
    original = Like(WORD, pattern)
    assert evaluate(simplify(original, pa.string()), rows) == evaluate(original, rows)


@settings(max_examples=200, deadline=None)
@given(TEXTS, PATTERNS)
def test_patterns_too_long_for_a_regular_expression_match_alike(texts: Any, pattern: Any) -> None:
    assert [matches(text, like_parts(pattern)) for text in texts] == [like(text, pattern) for text in texts]


def test_a_pattern_of_a_megabyte_is_matched() -> None:
    long = "ab" * 500_000
    texts = [long, long + "x", "x" + long, None]
    assert like_answers(texts, "_" + "ab" * 500_000) == [False, False, True, None]
    assert like_answers(texts, "%" + long + "_%") == [False, True, False, None]


@pytest.mark.parametrize("special", list(".^$|()[]{}+*?\\/-&~# \t\r\n\0\x7f\x85\u2028é"))
def test_no_character_is_special_but_percent_and_underscore(special: Any) -> None:
    pattern = special.replace("\\", "\\\\") + "_"
    assert like_answers([special + "x", "yx", special], pattern) == [True, False, False]


@pytest.mark.parametrize(("pattern", "escape"), [("50!%", "!"), ("50%%", "%"), ("50_%", "_")])
def test_any_character_can_be_the_escape(pattern: str, escape: str) -> None:
    assert like_answers(["50%", "501"], pattern, escape) == [True, False]


@pytest.mark.parametrize(("pattern", "problem"), [("a\\", "ends with its escape"), ("a\\b", "is before 'b'")])
def test_patterns_that_spark_refuses_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem):
        like_answers(["a"], pattern)


def test_the_escape_is_one_character() -> None:
    with pytest.raises(PredicateError, match="one character"):
        like_parts("a", "ab")
