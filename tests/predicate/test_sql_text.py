"""Conditions written as SQL and read back; and any text at all."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from indextables.errors import IndexTablesError, PredicateError, QuerySyntaxError
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
    Or,
    Predicate,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
    columns_of,
    evaluate,
    parse_condition,
    to_sql,
)
from indextables.predicate.patterns import simplify
from indextables.predicate.sql_text import TokenKind, tokenize
from indextables.predicate.traversal import conjunction, conjuncts, is_false, is_true
from tests.predicate.condition_rows import (
    PATHS,
    PATTERNS,
    PREDICATES,
    ROWS,
    SCHEMA,
    TEXT_COLUMNS,
    columns,
    scalars,
    shape,
    table,
    values,
)

SLOW = [HealthCheck.too_slow]


@st.composite
def _comparisons(draw: Any) -> Compare:
    column = draw(columns())
    return Compare(draw(st.sampled_from(Op)), column, draw(scalars(PATHS[column.path], null=False)))


@st.composite
def _memberships(draw: Any) -> In:
    column = draw(columns())
    type_ = PATHS[column.path]
    found = draw(st.lists(scalars(type_, null=False), min_size=1, max_size=4))
    return In(column, (*found, *([pa.scalar(None, type_)] if draw(st.booleans()) else [])))


@st.composite
def _likes(draw: Any) -> Predicate:
    found = Like(draw(TEXT_COLUMNS), draw(PATTERNS), "\\", draw(st.booleans()))
    return simplify(found, pa.string())


_LEAVES = st.one_of(
    _comparisons(),
    _memberships(),
    columns().map(IsNull),
    _likes(),
    st.builds(TextMatch, st.sampled_from(TextMatchKind), TEXT_COLUMNS, values(pa.string())),
    st.builds(
        Search,
        st.sampled_from(SearchKind),
        st.none() | columns(),
        st.sampled_from(["a", "it's", 'f:"x y"~2 OR b*', "\\\\ \\'"]),
    ),
)


def _joined(kind: Any, inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.lists(inner, min_size=2, max_size=3).map(
        lambda parts: kind(
            tuple(leaf for part in parts for leaf in (part.parts if isinstance(part, kind) else (part,)))
        )
    )


# Trees as the parser makes them: flat, with values of their column's type and no NOT of a NOT.
WRITTEN = st.recursive(
    _LEAVES,
    lambda inner: (
        _joined(And, inner)
        | _joined(Or, inner)
        | inner.map(lambda part: part.part if isinstance(part, Not) else Not(part))
    ),
    max_leaves=8,
)
BLANKS = st.sampled_from([" ", "\n", "\t ", " /* ' AND /* \" */ */ ", " -- it's OR\n", " /**/ "])


@settings(max_examples=400, deadline=None, suppress_health_check=SLOW)
@given(WRITTEN)
def test_a_condition_written_as_sql_reads_back_as_itself(predicate: Any) -> None:
    assert shape(parse_condition(to_sql(predicate), SCHEMA)) == shape(predicate)


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(WRITTEN, st.data())
def test_blanks_comments_and_case_between_tokens_make_no_difference(predicate: Any, data: Any) -> None:
    pieces = []
    for token in tokenize(to_sql(predicate)):
        text = token.text
        if token.kind is TokenKind.WORD and data.draw(st.booleans()):
            text = text.swapcase()
        pieces += [text, data.draw(BLANKS)]
    assert shape(parse_condition("".join(pieces), SCHEMA)) == shape(predicate)


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(PREDICATES, ROWS)
def test_a_condition_read_back_answers_alike(predicate: Any, rows: Any) -> None:
    data = table(rows)
    text = to_sql(predicate)
    assert evaluate(parse_condition(text, SCHEMA), data) == evaluate(predicate, data), text


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(PREDICATES, ROWS)
def test_is_true_and_is_false_are_never_unknown(predicate: Any, rows: Any) -> None:
    data = table(rows)
    plain = evaluate(predicate, data).to_pylist()
    assert evaluate(is_true(predicate), data).to_pylist() == [answer is True for answer in plain]
    assert evaluate(is_false(predicate), data).to_pylist() == [answer is False for answer in plain]
    asked = parse_condition(f"({to_sql(predicate)}) IS NULL", SCHEMA)
    assert evaluate(asked, data).to_pylist() == [answer is None for answer in plain]


_SOUP = st.lists(
    st.sampled_from(
        [
            "AND",
            "OR",
            "NOT",
            "IN",
            "LIKE",
            "IS",
            "NULL",
            "TRUE",
            "BETWEEN",
            "CAST",
            "AS",
            "INT",
            "DATE",
            "ESCAPE",
            "INDEXQUERY",
            "flag",
            "whole",
            "word",
            "nested",
            ".",
            "*",
            "(",
            ")",
            "=",
            "<",
            "<=>",
            "<>",
            "-",
            "+",
            "'a'",
            "'2024-01-01'",
            "1",
            "1.5",
            "1e3D",
            "5L",
            "``",
            "`word`",
            ":",
            "::",
            "X",
            "contains",
            "double",
            "startswith",
            "DISTINCT",
            "FROM",
            "ANY",
            "'a",
            "--",
            "/*",
            "*/",
            "$$",
            "\\",
            "[",
            "||",
            "é",
            ";",
            "r'x'",
            "0x1",
            "_indexall",
            "DECIMAL",
        ]
    ),
    max_size=12,
)


@settings(max_examples=1500, deadline=10_000)
@given(_SOUP.map(" ".join) | _SOUP.map("".join) | st.text(max_size=30))
@example("(" * 20_000)
@example("NOT " * 20_000 + "flag")
@example("- " * 20_000 + "1")
@example("/*" * 20_000)
@example("'" + "\\" * 99_999)
@example("whole = 1" + "::int" * 10_000)
@example("whole" + ".x" * 20_000)
@example("nested" + " = 1" * 10_000)
@example("price = 1e-999999BD")
@example("price = 1" + "0" * 10_000)
@example("real = 1" + "0" * 5_000 + "D")
@example("price = '1e999999999'")
@example("price = CAST('1e999999' AS DECIMAL(10,2))")
@example("price = CAST('1e-999999' AS DECIMAL(10,2))")
@example("big = '" + "9" * 5_000 + "'")
@example("day = '9999999-01-01'")
@example("moment = '9999999-01-01'")
@example("whole = - '5'")
@example("TRUE :: DATE")
@example("1.5D :: TIMESTAMP")
@example("1 :: DATE")
@example("moment = DATE '5000000-01-01' :: TIMESTAMP")
@example("word = '\\U7FFFFFFF \\uD800'")
@example("word = '\ud800'")
@example("word LIKE '\ud800_'")
@example("`\ud800` = 1")
def test_any_text_is_a_condition_or_is_refused(text: Any) -> None:
    try:
        predicate = parse_condition(text, SCHEMA)
    except (PredicateError, QuerySyntaxError):
        return
    for column in columns_of(predicate):
        assert column.path[0] in SCHEMA.names
    try:
        evaluate(predicate, table([]), search=lambda _: pa.array([], pa.bool_()))
    except IndexTablesError as error:
        pytest.fail(f"{text!r} was read but cannot be evaluated: {error}")


@settings(max_examples=500, deadline=10_000)
@given(_SOUP.map(" ".join) | st.text(max_size=30))
def test_tokens_cover_the_text_but_for_blanks_and_comments(text: Any) -> None:
    try:
        tokens = tokenize(text)
    except PredicateError:
        return
    at = 0
    for token in tokens:
        assert token.text == text[token.start : token.end]
        skipped = text[at : token.start]
        assert not skipped.strip() or skipped.lstrip().startswith(("--", "/*"))
        at = token.end
    assert tokens[-1].kind is TokenKind.END
    assert at == len(text)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a.b", ["word", "symbol", "word"]),
        ("5abc 1e3abc 12 1.5 .5 5. 1e-3 1.5e+3BD 2L", ["word", "word"] + ["number"] * 7),
        ("MERGE SPLITS 's3://x/y' -- tail", ["word", "word", "string"]),
        ("a<=>b<>c!=d::e", ["word", "symbol"] * 4 + ["word"]),
        ("--a\\\nb\nc", ["word"]),
        ("`a``b` rx r'x' R\"y\" $t$z$t$", ["quoted name", "word", "string", "string", "string"]),
    ],
)
def test_a_text_is_cut_into(text: str, kinds: Any) -> None:
    assert [token.kind.value for token in tokenize(text)] == [*kinds, "end"]


def test_a_quoted_name_may_hold_its_quote() -> None:
    assert tokenize("`a``b`")[0].value == "a`b"


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (IsNull(Column(("and",))), "`and` IS NULL"),
        (IsNull(Column(("a b", "c`d"))), "`a b`.`c``d` IS NULL"),
        (Search(SearchKind.TEXTSEARCH, None, "it's"), "* TEXTSEARCH 'it''s'"),
        (Not(Or((Always(None), Always(False)))), "NOT (NULL OR FALSE)"),
        (In(Column(("a",)), ()), "(a IS NULL AND NULL)"),
        (And(()), "TRUE"),
        (
            Compare(Op.EQ, Column(("a",)), pa.scalar(1, pa.timestamp("ms"))),
            "a = TIMESTAMP_NTZ '1970-01-01 00:00:00.001000'",
        ),
    ],
)
def test_a_condition_is_written_as(predicate: Any, text: str) -> None:
    assert to_sql(predicate) == text


def test_a_value_that_sql_cannot_write_is_refused() -> None:
    with pytest.raises(PredicateError, match=r"timestamp\[ns\] cannot be written"):
        to_sql(Compare(Op.EQ, Column(("a",)), pa.scalar(1, pa.timestamp("ns"))))


def test_a_conjunction_is_one_and_of_all_parts() -> None:
    schema = pa.schema([("a", pa.int32())])
    one, two, three = (parse_condition(f"a > {number}", schema) for number in (1, 2, 3))
    assert conjunction([]) is None
    assert conjunction([one]) is one
    assert conjunction([one, And((two, And((three, one))))]) == And((one, two, three, one))
    assert conjuncts(conjunction([And((one, two)), three])) == [one, two, three]
