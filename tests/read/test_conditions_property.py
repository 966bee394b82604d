"""Every answer equals that of a plain reading of all rows, whatever the condition and the table's shape."""

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from indextables.predicate import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
)
from indextables.predicate import tree as q
from indextables.predicate.query_language import to_text
from tests.read.read_oracle import holds
from tests.read.read_tables import HUGE, LONG_WORD, SCHEMA, WORDS, generated

NAMES = ["", "a", "A", "ab", "a b", "b", "é", "a%b", "a*b", "zz", "\x00", "C:\\dir", "nothing", HUGE]
LITERALS: dict[str, list[Any]] = {
    "part": ["north", "south/x", "west"],
    "s": NAMES,
    "h": NAMES,
    "plain": NAMES,
    "t": ["alpha", "alpha beta", "", "Gamma-delta"],
    "both": ["alpha", "", "run running"],
    "ip": ["10.0.0.1", "::ffff:10.0.0.1", "nowhere", "2001:db8::1"],
    "n": [-3, 0, 2, 5, 9],
    "big": [0, 2**53, 2**53 + 1, -(2**63), 2**63 - 1],
    "f": [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e300],
    "g": [0.0, 2.5, float("nan")],
    "d": [decimal.Decimal("0.00"), decimal.Decimal("1.25"), decimal.Decimal("-3.00")],
    "wide": [decimal.Decimal(0), decimal.Decimal(10**20)],
    "day": [dt.date(2024, 1, 1), dt.date(2024, 1, 3), dt.date(1960, 5, 5)],
    "ts": [dt.datetime(2024, 1, 2, 5, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 5, 0, 0, 1, tzinfo=dt.UTC)],
    "flag": [True, False],
}
COLUMNS = sorted(LITERALS)
STRINGS = ["part", "s", "h", "plain", "t", "both"]


def scalar(column: Any, value: Any) -> pa.Scalar:
    return pa.scalar(value, SCHEMA.field(column).type)


def literals(column: Any) -> SearchStrategy[Any]:
    return st.sampled_from([*LITERALS[column], None]).map(lambda value: scalar(column, value))


def compare(column: Any) -> SearchStrategy[Any]:
    return st.builds(Compare, st.sampled_from(list(Op)), st.just(Column((column,))), literals(column))


def nested() -> SearchStrategy[Compare | Any]:
    a = st.builds(
        Compare,
        st.sampled_from(list(Op)),
        st.just(Column(("st", "a"))),
        st.sampled_from([0, 2, 7]).map(lambda v: pa.scalar(v, pa.int32())),
    )
    b = st.builds(
        Compare,
        st.sampled_from([Op.EQ, Op.NULL_SAFE, Op.GT]),
        st.just(Column(("st", "b"))),
        st.sampled_from(["x", "x y", ""]).map(pa.scalar),
    )
    return (
        a
        | b
        | st.sampled_from([IsNull(Column(("st", "b"))), IsNull(Column(("st",))), IsNull(Column(("l",)))])
    )


def patterns(column: Any) -> SearchStrategy[TextMatch | Any]:
    texts = st.sampled_from(["a", "b", "%", "_", "*", "?", "a b", "alph", "é", "", "zz", "\\", "lph", "Gam"])
    match = st.builds(TextMatch, st.sampled_from(list(TextMatchKind)), st.just(Column((column,))), texts)
    like = st.lists(
        st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "*", "?", "lpha", "\\\\", "é"]), max_size=4
    ).map("".join)
    return match | st.builds(Like, st.just(Column((column,))), like)


# --- queries ----------------------------------------------------------------------------------------

WORD = st.sampled_from([*WORDS, LONG_WORD, "alph", "alpha-beta", "zeta", "extra", "ALPHA beta"])


def word_leaves(field: Any) -> SearchStrategy[Any]:
    path = st.just(field)
    return st.one_of(
        st.builds(q.Term, WORD, path),
        st.builds(
            q.Phrase, st.lists(WORD, min_size=1, max_size=3).map(" ".join), st.just(0), st.booleans(), path
        ),
        st.builds(
            q.Phrase,
            st.lists(st.sampled_from(["alpha", "beta", "run", "a"]), min_size=1, max_size=4).map(" ".join),
            st.integers(1, 4),
            st.just(False),
            path,
        ),
        st.builds(q.Prefix, st.sampled_from(["al", "ALP", "ex", "r", "é", "run", "extraord"]), path),
        st.builds(
            q.Wildcard,
            st.sampled_from(
                [(q.Wild.MANY, "ta"), ("r", q.Wild.ONE, "n"), ("e", q.Wild.MANY, "ly"), (q.Wild.ONE,)]
            ),
            path,
        ),
        st.builds(q.Regex, st.sampled_from(["[ab].*", "run(ning)?", "e.{3,}y", "[0-9]+"]), path),
        st.builds(
            q.Fuzzy,
            st.sampled_from(["alpah", "bets", "runing", "extraordinarly", "x"]),
            st.integers(1, 2),
            path,
        ),
        st.builds(
            q.Range,
            st.sampled_from(["alpha", "b", None]),
            st.sampled_from(["delta", "run"]),
            st.booleans(),
            st.booleans(),
            path,
        ),
        st.builds(q.InSet, st.lists(WORD, min_size=1, max_size=3).map(tuple), path),
    )


def name_leaves(field: Any) -> SearchStrategy[Any]:
    path = st.just(field)
    name = st.sampled_from([n for n in NAMES if n and n != "\x00"])
    return st.one_of(
        st.builds(q.Phrase, name, st.just(0), st.booleans(), path),
        st.builds(
            q.Wildcard,
            st.sampled_from([("a", q.Wild.ONE, "b"), (q.Wild.MANY, "b"), ("a", q.Wild.MANY, "b")]),
            path,
        ),
        st.builds(
            q.Range,
            st.sampled_from(["a", "b", None]),
            st.sampled_from(["ab", "zz"]),
            st.booleans(),
            st.booleans(),
            path,
        ),
        st.builds(q.InSet, st.lists(name, min_size=1, max_size=3).map(tuple), path),
        st.builds(q.Prefix, st.sampled_from(["a", "A", "z"]), path),
    )


def value_leaves(field: str, values: list[Any]) -> SearchStrategy[Any]:
    path = st.just((field,))
    one = st.sampled_from(values)
    ranges = st.tuples(one | st.none(), one, st.booleans(), st.booleans())
    return st.one_of(
        st.builds(q.Phrase, one, st.just(0), st.just(False), path),
        ranges.map(lambda r: q.Range(*r, (field,))),
        st.builds(q.InSet, st.lists(one, min_size=1, max_size=3).map(tuple), path),
    )


def json_leaves() -> SearchStrategy[Any]:
    path = st.sampled_from(
        [
            ("j", "k"),
            ("j", "w"),
            ("j",),
            ("j", "in", "x"),
            ("l",),
            ("st", "a"),
            ("st", "b"),
            ("j", "when"),
            ("j", "a.b"),
        ]
    )
    value = st.sampled_from(["1", "1.5", "red", "blue", "x", "x y", "true", "2024-01-01T00:00:00Z", "3"])
    return st.one_of(
        st.builds(q.Phrase, value, st.just(0), st.just(False), path),
        st.builds(q.InSet, st.lists(value, min_size=1, max_size=2).map(tuple), path),
        st.builds(
            q.Range,
            st.sampled_from(["0", "red", None]),
            st.sampled_from(["1.5", "x", "2"]),
            st.booleans(),
            st.booleans(),
            path,
        ),
        st.builds(q.Prefix, st.sampled_from(["re", "x"]), path),
        st.builds(q.Exists, path),
    )


LEAVES = st.one_of(
    word_leaves(None),
    st.sampled_from([("t",), ("both",), ("brief",), ("loose",)]).flatmap(word_leaves),
    st.sampled_from([("s",), ("h",)]).flatmap(name_leaves),
    value_leaves("n", ["-3", "0", "2", "9"]),
    value_leaves("f", ["0", "1.5", "NaN", "-Infinity"]),
    value_leaves("d", ["1.25", "0", "-3"]),
    value_leaves("day", ["2024-01-01", "2024-01-04"]),
    value_leaves("ts", ["2024-01-02T05:00:00", "2024-01-01T05:00:00.000001"]),
    value_leaves("big", ["9007199254740993", "0", "-9223372036854775808"]),
    value_leaves("ip", ["10.0.0.1", "10.0.0.0/16", "2001:db8::/32", "0.0.0.0/0"]).filter(
        lambda n: not isinstance(n, q.Range)
    ),
    json_leaves(),
    st.builds(q.Exists, st.sampled_from([("t",), ("n",), ("s",), ("big",), ("flag",), ("h",), ("ip",)])),
    st.just(q.AllDocs()),
)


def joined(kind: Any, base: Any) -> Callable[..., Any]:
    return lambda parts: kind(
        tuple(p for part in parts for p in (part.parts if isinstance(part, base) else (part,)))
    )


QUERIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(joined(q.AllOf, q.AllOf)),
        st.lists(inner, min_size=2, max_size=3).map(joined(q.AnyOf, q.AnyOf)),
        st.builds(q.Negation, inner),
        st.builds(q.Boost, inner, st.sampled_from([2.0, 0.5])),
    ),
    max_leaves=4,
)
SEARCHES = st.builds(
    Search,
    st.just(SearchKind.INDEXQUERY),
    st.sampled_from([Column(("t",)), Column(("brief",)), Column(("loose",)), None]),
    QUERIES.map(to_text),
)

CONDITIONS = st.recursive(
    st.one_of(
        st.sampled_from(COLUMNS).flatmap(compare),
        st.sampled_from(COLUMNS).flatmap(
            lambda c: st.builds(
                In, st.just(Column((c,))), st.lists(literals(c), min_size=1, max_size=3).map(tuple)
            )
        ),
        st.builds(IsNull, st.sampled_from([Column((name,)) for name in SCHEMA.names])),
        st.sampled_from(STRINGS).flatmap(patterns),
        nested(),
        SEARCHES,
    ),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=5,
)

KINDS = ["single", "partitioned", "bundled", "merged"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return {kind: generated(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def agree(table: Any, condition: Any) -> None:
    wanted = sorted(row["id"] for row in table.rows if holds(condition, row) is True)
    assert table.ids(condition) == wanted
    assert table.count(condition) == len(wanted)


QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", KINDS)
@given(condition=CONDITIONS)
@QUICK
def test_conditions_are_answered_as_a_plain_reading_of_the_rows(
    tables: dict[Any, Any], kind: str, condition: Any
) -> None:
    agree(tables[kind], condition)


@pytest.mark.parametrize("kind", KINDS)
@given(query=SEARCHES)
@QUICK
def test_queries_find_what_a_plain_reading_finds(tables: dict[Any, Any], kind: str, query: Any) -> None:
    agree(tables[kind], query)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_conditions_on_more_tables(tmp_path: Path, kind: str, seed: int) -> None:
    table = generated(tmp_path, kind, rows=150, seed=seed + 100)

    @given(condition=CONDITIONS)
    @settings(QUICK, max_examples=4000)
    def many(condition: Any) -> None:
        agree(table, condition)

    many()
