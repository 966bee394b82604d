"""Queries as objects match what a text with the same meaning matches, whatever characters values have."""

import datetime as dt
import pickle
import re
from decimal import Decimal
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indextables
from indextables import query as q
from indextables.errors import QuerySyntaxError
from indextables.predicate.query_language import depth_of, parse_query, to_text
from indextables.predicate.tree import Negation, Phrase, Term

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
        lambda: q.term(None),
        lambda: q.term(b"a"),
        lambda: q.term(["a", "b"]),
        lambda: q.phrase(cast(Any, None)),
        lambda: q.one_of("error"),
        lambda: q.one_of(cast(Any, 5)),
        lambda: q.one_of(["a", None]),
        lambda: q.fuzzy("word", distance=cast(Any, "1")),
        lambda: q.phrase("a b", slop=-1),
        lambda: q.regex(cast(Any, re.compile("a"))),
        lambda: q.exists(cast(Any, None)),
        lambda: q.term("a", field=cast(Any, 5)),
        lambda: q.between(1, 2, inclusive=cast(Any, True)),
        lambda: q.between(1, 2, inclusive=cast(Any, (True,))),
        lambda: q.between(1, 2, inclusive=cast(Any, "both")),
        lambda: q.term("a") & cast(Any, None),
        lambda: q.term("a").boost(cast(Any, "2")),
        lambda: q.all_of(cast(Any, ["a", "b"])),
        lambda: q.Query(cast(Any, 5)),
    ],
)
def test_what_is_no_query_is_refused_when_it_is_made(make: Any) -> None:
    with pytest.raises(QuerySyntaxError):
        make()


def test_null_is_no_value_and_the_error_says_what_finds_rows_without_one() -> None:
    with pytest.raises(QuerySyntaxError, match="not None; ~exists"):
        q.term(cast(Any, None), field="status")


def test_values_of_enumerations_numpy_and_addresses_are_their_texts() -> None:
    class Level(StrEnum):
        ERROR = "error"

    assert q.term(Level.ERROR) == "error"
    assert q.term(np.bool_(True), field="f") == "f:true"
    assert q.one_of([np.int64(5), np.float32(1.5)]) == 'IN ["5" "1.5"]'
    assert q.term(np.datetime64("2024-05-01")) == q.term(dt.date(2024, 5, 1))
    assert q.term(ip_address("::1"), field="a") == r"a:\:\:1"
    assert q.between(Decimal("0.10"), dt.time(1, 2)) == '["0.10" TO "01:02:00"]'


def combinations() -> st.SearchStrategy[q.Query]:
    leaves = st.sampled_from(
        [
            q.term("a"),
            q.term("b", field="f"),
            q.phrase("c d"),
            q.prefix("e"),
            q.Query("g h"),
            q.Query("i || j"),
        ]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: q.all_of(*parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: q.any_of(*parts)),
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1] | "k l"),
            inner.map(lambda query: ~query),
            inner.map(lambda query: query.boost(2)),
        ),
        max_leaves=12,
    )


@given(combinations())
def test_the_text_of_a_combination_means_what_was_combined(query: q.Query) -> None:
    node = parse_query(query)
    assert query._parse.node == node
    assert q.all_of(query) == to_text(node)
    assert query._parse.depth == depth_of(node)
    assert pickle.loads(pickle.dumps(query))._parse.node == node


def test_a_combination_is_nested_as_deep_as_a_text_may_be() -> None:
    def nested(levels: int) -> q.Query:
        query = q.term("a")
        for _ in range(levels):
            query = q.term("c") & (query | "b")
        return query

    assert parse_query(nested(100)) == nested(100)._parse.node
    with pytest.raises(QuerySyntaxError, match="nested more than 100 deep"):
        nested(101)
    with pytest.raises(QuerySyntaxError, match="nested more than 100 deep"):
        parse_query(nested(100).replace("a OR", "(a) OR"))


def test_a_query_that_grows_in_a_loop_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [q.term(f"w{n}") for n in range(500)]
    parsed = q.any_of(*words)
    monkeypatch.setattr(q, "parse_query", None)
    query = words[0]
    for word in words[1:]:
        query = query | word
    assert query == parsed


def test_saved_queries_may_be_objects() -> None:
    queries = {"full": q.term("disk") & q.term("full"), "slow": {"query": q.term("slow"), "field": "text"}}
    with indextables.StandingQueries(queries) as standing:
        found = standing.match([{"text": "the disk is full"}, {"text": "slow"}])
    assert found["_matching_queries"].to_pylist() == [["full"], ["slow"]]
