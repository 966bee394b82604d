"""Queries as objects match what a text with the same meaning matches, whatever characters values have."""

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import indextables
from indextables import query as q
from indextables.errors import QuerySyntaxError
from indextables.predicate.query_language import parse_query
from indextables.predicate.query_tree import Negation, Phrase, Term

ODD = (
    "AND",
    "NOT",
    "-x",
    "a:b",
    "a*",
    "wh?",
    "(c)",
    "[d TO e]",
    "~",
    "a~1",
    "x^2",
    "/r/",
    "\\",
    '"',
    "a b",
    "::1",
)


@pytest.mark.parametrize("value", ODD)
def test_a_value_is_searched_as_it_is(tmp_path: Path, value: str) -> None:
    table = indextables.write(tmp_path / "t", [{"id": n, "tag": odd} for n, odd in enumerate(ODD)])
    for query in (q.term(value), q.phrase(value), q.one_of([value]), q.term(value, field="tag")):
        found = table.search(query, field="tag", limit=None)
        assert found["tag"].to_pylist() == [value], query
    assert table.search(~q.term(value, field="tag") & q.exists("tag"), limit=None).num_rows == len(ODD) - 1


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_texts_of_users_never_change_the_meaning_of_a_query(word: Any, words: Any) -> None:
    assert parse_query(q.term(word)) == Term(word)
    assert parse_query(q.phrase(words)) == Phrase(words)
    assert parse_query(~q.term(word, field="a\\.b")) == Negation(Term(word, ("a.b",)))


def test_operators_combine_queries_and_texts() -> None:
    a, b = q.term("a"), q.term("b")
    assert (a & b & "c OR d") == "a AND b AND (c OR d)"
    assert ("c" | a) == "c OR a"
    assert ("c" & a) == "c AND a"
    assert ~(a | b).boost(2) == "NOT (a OR b)^2.0"
    assert q.all_of(a) == "a"
    assert q.any_of(a, b, "c") == "a OR b OR c"
    assert repr(a & b) == "Query('a AND b')"
    assert pickle.loads(pickle.dumps(a | b)) == a | b
    assert isinstance(pickle.loads(pickle.dumps(a)), q.Query)


def test_values_are_written_as_queries_have_them() -> None:
    assert q.between(1, 5, field="n", inclusive=(False, True)) == 'n:{"1" TO "5"]'
    assert q.between(upper=dt.date(2024, 5, 1), field="d", inclusive=(True, False)) == 'd:[* TO "2024-05-01"}'
    assert q.between(field="d") == "d:*"
    assert q.between() == q.everything() == "*"
    assert q.one_of([True, 3], field="user.flag") == 'user.flag:IN ["true" "3"]'
    assert q.prefix("ti*", field="m") == r"m:ti\**"
    assert q.fuzzy("word", distance=2) == "word~2"
    assert q.regex("a/b") == r"/a\/b/"


@pytest.mark.parametrize(
    "make",
    [
        lambda: q.term(""),
        lambda: q.prefix(""),
        lambda: q.regex(""),
        lambda: q.one_of([]),
        lambda: q.fuzzy("word", distance=3),
        lambda: q.phrase("a b", slop=2, prefix=True),
        q.all_of,
        lambda: q.term("a").boost(0),
        lambda: q.Query("a AND"),
        lambda: q.term("a") & "b OR",
    ],
)
def test_what_is_no_query_is_refused_when_it_is_made(make: Any) -> None:
    with pytest.raises(QuerySyntaxError):
        make()


def test_saved_queries_may_be_objects() -> None:
    queries = {"full": q.term("disk") & q.term("full"), "slow": {"query": q.term("slow"), "field": "text"}}
    with indextables.StandingQueries(queries) as standing:
        found = standing.match([{"text": "the disk is full"}, {"text": "slow"}])
    assert found["_matching_queries"].to_pylist() == [["full"], ["slow"]]
