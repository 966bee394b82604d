"""The query language: what every form means, what is refused and where."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from indextables.errors import QuerySyntaxError
from indextables.predicate.query_language import parse_query, to_text
from indextables.predicate.traversal import FieldUse, fields_of, leaves_of
from indextables.predicate.tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    Fuzzy,
    InSet,
    Negation,
    Phrase,
    Prefix,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)

PAGE = Path(__file__).parents[2] / "docs" / "query-language.md"
MANY, ONE = Wild.MANY, Wild.ONE
A, B, C = Term("a"), Term("b"), Term("c")

# --- trees, written and read back ---------------------------------------------------------------------

_TEXT = st.text(max_size=6) | st.text(alphabet='ab \\"()[]{}:^*?~+-/<>.,&|ANDORTIN\u3000é😀', max_size=6)
_WORD = _TEXT.filter(bool)
_FIELD = st.none() | st.lists(_WORD, min_size=1, max_size=3).map(tuple)


@st.composite
def _wildcards(draw: Any) -> Wildcard:
    parts: list[Any] = []
    for part in draw(st.lists(_WORD | st.sampled_from(Wild), min_size=1, max_size=5)):
        if parts and part is MANY and parts[-1] is MANY:
            continue
        if parts and not isinstance(part, Wild) and not isinstance(parts[-1], Wild):
            continue
        parts.append(part)
    if not any(isinstance(part, Wild) for part in parts) or parts == [MANY]:
        parts = [ONE, *parts]
    if len(parts) == 2 and parts[1] is MANY and not isinstance(parts[0], Wild):
        parts = [*parts, ONE]
    return Wildcard(tuple(parts), draw(_FIELD))


@st.composite
def _ranges(draw: Any) -> Range:
    lower, upper = draw(
        st.tuples(st.none() | _TEXT, st.none() | _TEXT).filter(lambda ends: ends != (None, None))
    )
    return Range(
        lower, upper, lower is None or draw(st.booleans()), upper is None or draw(st.booleans()), draw(_FIELD)
    )


@st.composite
def _phrases(draw: Any) -> Phrase:
    text = draw(_TEXT)
    slop = draw(st.integers(0, 20))
    return Phrase(text, slop, bool(text.strip()) and not slop and draw(st.booleans()), draw(_FIELD))


_REGEXES = st.builds(
    Regex,
    st.lists(st.sampled_from(["a", "/", "\\d", "\\\\", ".", " ", "(b|c)"]), min_size=1).map("".join),
    _FIELD,
)
LEAVES = st.one_of(
    st.builds(Term, _WORD, _FIELD),
    _phrases(),
    st.builds(Prefix, _WORD, _FIELD),
    _wildcards(),
    _REGEXES,
    st.builds(Fuzzy, _WORD, st.integers(1, 2), _FIELD),
    _ranges(),
    st.builds(InSet, st.lists(_TEXT, min_size=1, max_size=3).map(tuple), _FIELD),
    st.builds(Exists, _FIELD.filter(bool)),
    st.just(AllDocs()),
)


def _joined(kind: Any, inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.lists(inner, min_size=2, max_size=3).map(
        lambda parts: kind(
            tuple(leaf for part in parts for leaf in (part.parts if isinstance(part, kind) else (part,)))
        )
    )


QUERIES = st.recursive(
    LEAVES,
    lambda inner: (
        _joined(AllOf, inner)
        | _joined(AnyOf, inner)
        | inner.map(Negation)
        | st.builds(Boost, inner, st.floats(1e-6, 1e6, exclude_min=True))
    ),
    max_leaves=8,
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(QUERIES)
def test_a_tree_written_as_text_reads_back_as_itself(query: Any) -> None:
    assert parse_query(to_text(query)) == query


_SOUP = st.lists(
    st.sampled_from(
        [
            "a",
            "b*",
            "AND",
            "OR",
            "NOT",
            "-",
            "+",
            "(",
            ")",
            '"',
            "[",
            "]",
            "{",
            "}",
            "TO",
            "IN",
            ":",
            "f:",
            " ",
            "  ",
            "~1",
            "~",
            "^2",
            "^",
            "/",
            "\\",
            "*",
            "?",
            ">",
            "<=",
            "1",
            "\u3000",
            "é",
            "&&",
            "||",
            ",",
        ]
    ),
    max_size=14,
).map("".join)


def _parsed_or_refused(text: Any) -> Any:
    try:
        return parse_query(text)
    except QuerySyntaxError as error:
        return error


@settings(max_examples=1500, deadline=10_000)
@given(_SOUP | st.text(max_size=30))
@example("a" * 20_000)
@example("(" * 20_000)
@example("-" * 20_000 + "a")
@example("NOT " * 20_000 + "a")
@example("a OR " * 20_000 + "b")
@example('"' + "\\" * 99_999)
@example("/" + "\\" * 99_998)
@example("\ud800")
def test_any_text_parses_to_a_stable_tree_or_is_refused(text: Any) -> None:
    query = _parsed_or_refused(text)
    if isinstance(query, QuerySyntaxError):
        assert query.position is not None
        assert 0 <= query.position <= len(text)
        assert max(map(len, str(query).split("\n"))) < 250
        return
    assert parse_query(to_text(query)) == query
    for leaf in leaves_of(query):
        assert 0 <= leaf.position < len(text)


# --- what the forms mean ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", A),
        ("  a  ", A),
        ("a b", AllOf((A, B))),
        ("a\tb\u3000c", AllOf((A, B, C))),
        ("a AND b", AllOf((A, B))),
        ("a && b || c", AnyOf((AllOf((A, B)), C))),
        ("a OR b c", AnyOf((A, AllOf((B, C))))),
        ("a b OR c", AnyOf((AllOf((A, B)), C))),
        ("(a OR b) c", AllOf((AnyOf((A, B)), C))),
        ("a (b c)", AllOf((A, B, C))),
        ("NOT a", Negation(A)),
        ("NOT a b", AllOf((Negation(A), B))),
        ("NOT (a b)", Negation(AllOf((A, B)))),
        ("NOT(a)", Negation(A)),
        ("NOT NOT a", Negation(Negation(A))),
        ("-a +b", AllOf((Negation(A), B))),
        ("-a OR b", AnyOf((Negation(A), B))),
        ("a-b a+b", AllOf((Term("a-b"), Term("a+b")))),
        ("and or not", AllOf((Term("and"), Term("or"), Term("not")))),
        ('"AND" \\OR', AllOf((Phrase("AND"), Term("OR")))),
        ('"a b"', Phrase("a b")),
        ('""', Phrase("")),
        ('"a b"~2', Phrase("a b", slop=2)),
        ('"a b"*', Phrase("a b", prefix=True)),
        ('"a * b?"', Phrase("a * b?")),
        ('"say \\"hi\\" \\\\"', Phrase('say "hi" \\')),
        ("time*", Prefix("time")),
        ("a*b?c", Wildcard(("a", MANY, "b", ONE, "c"))),
        ("*out", Wildcard((MANY, "out"))),
        ("a AND *out", AllOf((A, Wildcard((MANY, "out"))))),
        ("a\\*b*", Prefix("a*b")),
        ("a**", Prefix("a")),
        ("?", Wildcard((ONE,))),
        ("*", AllDocs()),
        ("f:*", Exists(("f",))),
        ("f:(* OR a)", AnyOf((Exists(("f",)), Term("a", ("f",))))),
        ("f:a", Term("a", ("f",))),
        ("f: a", Term("a", ("f",))),
        ("f.g.h:a", Term("a", ("f", "g", "h"))),
        ("f\\.g:a", Term("a", ("f.g",))),
        ("my\\ field:a", Term("a", ("my field",))),
        ("f:(a OR g:b c)", AnyOf((Term("a", ("f",)), AllOf((Term("b", ("g",)), Term("c", ("f",))))))),
        ("f:(a (b)) c", AllOf((Term("a", ("f",)), Term("b", ("f",)), C))),
        ("f:a:b", Term("a:b", ("f",))),
        ("http://x.org:80/y?z", Wildcard(("http://x.org:80/y", ONE, "z"))),
        ("state:OR", Term("OR", ("state",))),
        ("n:-5", Term("-5", ("n",))),
        ("n:[1 TO 5]", Range("1", "5", field=("n",))),
        ("n:{1 TO 5]", Range("1", "5", False, True, ("n",))),
        ("n:[1 TO 5}", Range("1", "5", True, False, ("n",))),
        ("n:[* TO 5}", Range(None, "5", True, False, ("n",))),
        ("n:{1 TO *}", Range("1", None, False, True, ("n",))),
        ("n:[* TO *]", Exists(("n",))),
        ('t:["a b" TO "*"]', Range("a b", "*", field=("t",))),
        ("t:[2024-01-01T00:00:00Z TO *]", Range("2024-01-01T00:00:00Z", None, field=("t",))),
        ("n:>5", Range("5", None, False, True, ("n",))),
        ("n:>=-5", Range("-5", None, True, True, ("n",))),
        ("n:< 5", Range(None, "5", True, False, ("n",))),
        ("n:<=5", Range(None, "5", True, True, ("n",))),
        (">5", Range("5", None, False, True)),
        ("s: IN [a b]", InSet(("a", "b"), ("s",))),
        ('s:IN ["a b" c]', InSet(("a b", "c"), ("s",))),
        ("IN [a]", InSet(("a",))),
        ("IN a", AllOf((Term("IN"), A))),
        ("a^2", Boost(A, 2.0)),
        ("(a b)^1.5 c", AllOf((Boost(AllOf((A, B)), 1.5), C))),
        ("-a^2", Negation(Boost(A, 2.0))),
        ("f:(a)^2", Boost(Term("a", ("f",)), 2.0)),
        ("/ti(me|ng)/", Regex("ti(me|ng)")),
        ("f:/a\\/b\\d/", Regex("a/b\\d", ("f",))),
        ("/a b/^2", Boost(Regex("a b"), 2.0)),
        ("tiem~1", Fuzzy("tiem", 1)),
        ("f:tiem~2^3", Boost(Fuzzy("tiem", 2, ("f",)), 3.0)),
        ("~user a~b", AllOf((Term("~user"), Term("a~b")))),
        ("ip:192.168.0.0/16", Term("192.168.0.0/16", ("ip",))),
        ('ip:"2001:db8::/32"', Phrase("2001:db8::/32", field=("ip",))),
        ("ip:2001:db8::1", Term("2001:db8::1", ("ip",))),
        ("ip:192.168.*.*", Wildcard(("192.168.", MANY, ".", MANY), ("ip",))),
        ("ip:[10.0.0.1 TO 10.0.0.9]", Range("10.0.0.1", "10.0.0.9", field=("ip",))),
        ("ünï 日本語 😀", AllOf((Term("ünï"), Term("日本語"), Term("😀")))),
        ("don't", Term("don't")),
        ("user@example.com", Term("user@example.com")),
        ("C:\\\\temp", Term("\\temp", ("C",))),
    ],
)
def test_a_query_means(text: str, wanted: Any) -> None:
    assert parse_query(text) == wanted


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "the query is empty"),
        ("   ", 3, "the query is empty"),
        ("a AND", 5, "a term is missing here"),
        ("a AND OR b", 6, "a term is missing before OR"),
        ("OR a", 0, "a term is missing before OR"),
        ("a OR", 4, "a term is missing here"),
        ("NOT", 3, "a term is missing here"),
        ("a NOT AND b", 6, "a term is missing before AND"),
        ("()", 1, "the parentheses are empty"),
        ("f:()", 3, "the parentheses are empty"),
        ("(a", 0, "this '(' is never closed"),
        ("a)", 1, "there is no '(' for this ')'"),
        (")", 0, "there is no '(' for this ')'"),
        ('a "b', 2, "this quote is never closed"),
        ("a - b", 2, "a lone '-'"),
        ("-", 0, "a lone '-'"),
        ("a +", 2, "a lone '+'"),
        ("a OR +b", 5, "contradicts OR"),
        ("f:", 2, "a value is missing after f:"),
        ("f: AND b", 3, "a value is missing after f:"),
        ("(f:)", 3, "a value is missing after f:"),
        (":a", 0, "a field name is missing"),
        ("::1", 0, "a field name is missing"),
        ("f..g:a", 0, "a field name is missing"),
        ("f*:a", 0, "no wildcards"),
        ('"f":a', 0, "a field name is not quoted"),
        ("a\\", 1, "a backslash ends the query"),
        ("[ERROR] x", 0, "a range is written"),
        ("a]", 1, "a blank or an operator is missing before ']'"),
        ("]", 0, "']' is not expected here"),
        ("n:[1 TO", 2, "a range is written"),
        ("n:[1 TO ]", 8, "the upper bound is missing"),
        ("n:[1 TO 2", 2, "this range is never closed"),
        ("n:[1 2]", 2, "a range is written"),
        ("n:[1* TO 2]", 3, "the lower bound has no wildcards"),
        ("n:>", 3, "the value of the comparison is missing"),
        ("n:>*", 3, "no wildcards"),
        ("s:IN []", 5, "the set is empty"),
        ("s:IN [a", 5, "this set is never closed"),
        ("s:IN [a, b]", 7, "separated by blanks"),
        ("s:IN [a*]", 6, "no wildcards"),
        ("a^", 1, "takes a positive number"),
        ("a^b", 1, "takes a positive number"),
        ("a^0", 1, "takes a positive number"),
        ("a^-1", 1, "takes a positive number"),
        ("a^" + "9" * 400, 1, "takes a positive number"),
        ("a~", 0, "ends in ~1 or ~2"),
        ("a~3", 0, "ends in ~1 or ~2"),
        ("a*~1", 0, "without wildcards"),
        ('"a b"~', 5, "the slop of a phrase"),
        ('"a b"~2*', 7, "no slop"),
        ('""*', 2, "has words"),
        ("/a", 0, "never closed"),
        ("//", 0, "a regular expression is written"),
        ("path:/var/log", 5, "quote a text that begins with '/'"),
        ('a"b"', 1, "a blank or an operator is missing"),
        ("(a)(b)", 3, "a blank or an operator is missing"),
        ("(" * 101 + "a" + ")" * 101, 100, "nested more than 100 deep"),
    ],
)
def test_a_malformed_query_is_refused_at_its_position(text: str, position: int, problem: str) -> None:
    with pytest.raises(QuerySyntaxError, match=re.escape(problem)) as caught:
        parse_query(text)
    assert caught.value.position == position
    message = str(caught.value)
    assert f"(at character {position + 1})" in message
    shown, caret = message.split("\n")[1:]
    if not text.isspace() and position < len(text):
        assert shown[caret.index("^")] == text[position]


def test_a_long_query_is_cut_around_the_position() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query("a " * 5000 + "( " + "b " * 5000)
    _, shown, caret = str(caught.value).split("\n")
    assert shown.strip().startswith("...")
    assert shown.endswith("...")
    assert len(shown) <= 2 + 3 + 100 + 3
    assert shown[caret.index("^")] == "("


def test_a_query_may_be_a_hundred_deep() -> None:
    assert parse_query("(" * 100 + "a" + ")" * 100) == A


def test_every_node_knows_where_it_starts() -> None:
    query: Any = parse_query("x OR f:(a -b^2)")
    assert query.position == 0
    both = query.parts[1]
    assert both.position == 8
    assert [(part.position, type(part)) for part in both.parts] == [(8, Term), (10, Negation)]
    assert both.parts[1].part.position == 11


@pytest.mark.parametrize(
    ("text", "fields", "unqualified"),
    [
        ("a", (), True),
        ("*", (), False),
        ("f:a g.h:b* f:c", (("f",), ("g", "h")), False),
        ("NOT (f:* OR x)^2", (("f",),), True),
        ("f:(a OR >5)", (("f",),), False),
    ],
)
def test_the_fields_of_a_query_are_listed_once_in_order(text: str, fields: Any, unqualified: bool) -> None:
    assert fields_of(parse_query(text)) == FieldUse(fields, unqualified)


# --- the page -------------------------------------------------------------------------------------------


def _spans(heading_contains: str) -> list[list[Any]]:
    """The code spans of the first two cells of the tables under headings of the page that contain a text."""
    rows = []
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line
        elif line.startswith("| `") and heading_contains in heading:
            cells = line.replace("\\|", "\0").strip("| ").split(" | ")[:2]
            rows.append(
                [span.replace("\0", "|") for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
            )
    return rows


@pytest.mark.parametrize("row", _spans("Forms"), ids=lambda row: row[0])
def test_the_page_spells_out_what_a_query_means(row: Any) -> None:
    query, meaning = row
    assert to_text(parse_query(query)) == meaning
    assert parse_query(meaning) == parse_query(query)


@pytest.mark.parametrize("row", _spans("Refused"), ids=lambda row: row[0])
def test_the_page_names_what_is_refused_and_what_to_write(row: Any) -> None:
    refused, *instead = row
    with pytest.raises(QuerySyntaxError):
        parse_query(refused)
    assert instead
    for query in instead:
        parse_query(query)


def test_the_page_has_examples() -> None:
    assert len(_spans("Forms")) > 30
    assert len(_spans("Refused")) > 8
