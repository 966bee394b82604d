"""Conditions as programs make them: thousands of parts, in parentheses within parentheses."""

import random
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.errors import PredicateError
from indextables.predicate import Column, Predicate, Search, SearchKind, parse_condition, to_sql
from indextables.predicate.traversal import depth_of
from tests.read.read_oracle import holds
from tests.read.read_tables import Opened, opened

ROWS: list[dict[str, Any]] = [
    {"id": i, "n": i % 50 if i % 9 else None, "m": i % 11, "s": f"v{i % 13}", "t": f"a{i % 5} b{i % 3}"}
    for i in range(300)
]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("n", pa.int64()), ("m", pa.int64()), ("s", pa.string()), ("t", pa.string())]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    place = tmp_path_factory.mktemp("deep")
    data = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    indextables.write(place / "t", data, options={"indexing.typemap.t": "text"})
    return opened(place / "t", ROWS, place / "cache")


def leaf(rng: random.Random) -> str:
    return rng.choice(
        [
            f"n = {rng.randint(0, 60)}",
            f"m < {rng.randint(0, 12)}",
            f"n BETWEEN {rng.randint(0, 30)} AND {rng.randint(20, 60)}",
            f"s = 'v{rng.randint(0, 15)}'",
            f"NOT s LIKE '%{rng.randint(0, 9)}'",
            f"n IN ({rng.randint(0, 9)}, {rng.randint(10, 60)})",
            "n IS NULL",
            f"t INDEXQUERY 'a{rng.randint(0, 6)}'",
        ]
    )


def agree(table: Opened, text: str) -> Predicate:
    condition = parse_condition(text, SCHEMA)
    wanted = [row["id"] for row in table.rows if holds(condition, row) is True]
    assert table.ids(condition) == wanted
    assert table.count(condition) == len(wanted)
    return condition


@pytest.mark.parametrize("operator", ["OR", "AND"])
@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_two_thousand_parts_are_answered_however_they_are_grouped(
    table: Opened, operator: str, side: str, seed: int
) -> None:
    rng = random.Random(seed)
    parts = [
        leaf(rng) if i < 40 else f"n {'=' if operator == 'OR' else '<>'} {1000 + i}" for i in range(2_000)
    ]
    rng.shuffle(parts)
    text = f" {operator} ".join(parts)
    if side == "left":
        text = "(" * (len(parts) - 2) + parts[0] + f" {operator} " + f") {operator} ".join(parts[1:])
    elif side == "right":
        text = f" {operator} (".join(parts) + ")" * (len(parts) - 1)
    agree(table, text)


@pytest.mark.parametrize("count", [499, 500])
def test_five_hundred_nots_are_read(table: Opened, count: int) -> None:
    condition = agree(table, "NOT (" * count + "n = 3" + ")" * count)
    assert depth_of(condition) == count % 2
    agree(table, "NOT " * count + "n = 3")


def test_trees_of_random_shape_are_answered_and_written_back(table: Opened, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        texts = [leaf(rng) for _ in range(rng.randint(2, 60))]
        while len(texts) > 1:
            one, other = texts.pop(rng.randrange(len(texts))), texts.pop(rng.randrange(len(texts)))
            texts.append(f"{rng.choice(['', 'NOT '])}({one} {rng.choice(['AND', 'OR'])} {other})")
        condition = agree(table, texts[0])
        assert table.ids(parse_condition(to_sql(condition), SCHEMA)) == table.ids(condition)


def alternating(depth: int) -> str:
    text = "n = 1"
    for level in range(depth):
        text = f"m = {level % 11} {'AND' if level % 2 else 'OR'} ({text})"
    return text


def test_ninety_levels_are_answered_and_more_than_a_hundred_refused(table: Opened) -> None:
    agree(table, alternating(90))
    with pytest.raises(PredicateError, match="nested more than 100 deep"):
        parse_condition(alternating(300), SCHEMA)


def test_a_query_of_two_thousand_words_is_answered(table: Opened) -> None:
    words = " OR ".join(f"a{i}" for i in range(3, 2_003))
    assert table.ids(Search(SearchKind.INDEXQUERY, Column(("t",)), words)) == [
        row["id"] for row in ROWS if row["t"].startswith(("a3", "a4"))
    ]


@pytest.mark.parametrize("text", ["s = 'a\ud800'", "t INDEXQUERY 'a\udfff'", "`\ud800` = 1"])
def test_text_that_is_not_utf8_is_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="lone surrogate"):
        parse_condition(text, SCHEMA)
