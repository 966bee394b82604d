"""Words, values and patterns of extreme length."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

import indextables
from indextables.errors import QuerySyntaxError
from indextables.options.writing import find_tokenizer
from indextables.predicate import patterns
from indextables.predicate.tree import Wild
from indextables.split.index.encode import rows_with_long_tokens
from indextables.split.query.row_matcher import within_edit_distance
from tests.read.read_oracle import edits


def test_long_bounds_include_texts_with_the_last_character(tmp_path: Path) -> None:
    last = "\U0010ffff"
    texts = ["prefix-12345" + last * 2, "prefix-12345", "prefix-12345" + last + "a", "q", "prefix-12346", "p"]
    table = indextables.write(
        tmp_path / "t",
        [{"id": i, "s": text} for i, text in enumerate(texts)],
        options={"indexing.typemap.s": "string"},
    )
    table.prewarm(segments=["TERM", "POSTINGS", "FASTFIELD"])
    for bound in ["prefix-12345" + last * 2 + "z" * 40, "prefix-12345" + "z" * 60, last * 60]:
        below = [i for i, text in enumerate(texts) if text.encode() <= bound.encode()]
        assert table.scan(columns=["id"], where=f"s <= '{bound}'")["id"].to_pylist() == below
        assert table.count(f"s <= '{bound}'") == len(below)
        assert table.count(f"NOT s <= '{bound}'") == len(texts) - len(below)
        query = f's INDEXQUERY \'s:["a" TO "{bound}"]\''
        assert table.scan(columns=["id"], where=query)["id"].to_pylist() == below


@pytest.mark.parametrize("tokenizer", ["default", "whitespace", "en_stem"])
@pytest.mark.parametrize("letter", ["Ⱥ", "İ"])
def test_words_that_lower_case_makes_longer_than_a_term_are_found(
    tmp_path: Path, letter: str, tokenizer: str
) -> None:
    word = letter * 30_000  # 60,000 bytes, and 90,000 in lower case
    table = indextables.write(
        tmp_path / "t",
        [{"id": 1, "t": f"y {word} z"}, {"id": 2, "t": "x"}, {"id": 3, "t": "y z"}],
        options={
            "indexing.typemap.t": "text",
            "indexing.tokenLength.t": "tantivy_max",
            "indexing.tokenizer.t": tokenizer,
        },
    )
    for query in (f"t INDEXQUERY '{word}'", f"t INDEXQUERY '{letter * 2}*'", f"t = 'y {word} z'"):
        assert table.count(query) == 1
    assert table.count("t INDEXQUERY 'y'") == 2


def test_words_within_structs_that_lower_case_makes_longer_than_a_term_are_found(tmp_path: Path) -> None:
    structs = pa.array([{"b": "Ⱥ" * 30_000}, {"b": "x"}], pa.struct([("b", pa.string())]))
    data = pa.table({"id": [1, 2], "s": structs})
    table = indextables.write(tmp_path / "t", data, options={"indexing.typemap.s.b": "text"})
    assert table.count(f"s INDEXQUERY 's.b:{'Ⱥ' * 30_000}'") == 1
    assert table.count("s INDEXQUERY 's.b:x'") == 1


def test_ascii_words_of_the_length_of_a_term_are_in_the_index() -> None:
    texts = pa.array(["A" * 65_530, "A" * 65_531, "é" * 10_000, "Ⱥ" * 20_000, None])
    found = rows_with_long_tokens(texts, find_tokenizer("default"), 65_530)
    assert found is not None
    assert found.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("size", [200, 1200, 20_000])
def test_words_of_any_length_are_found(tmp_path: Path, size: int) -> None:
    word = "a" * size
    rows = [{"id": i, "t": text, "s": text} for i, text in enumerate([word, "x", "é " + word, word + "cb"])]
    options = {"indexing.typemap.t": "text", "indexing.typemap.s": "string"}
    table = indextables.write(tmp_path / "t", rows, options=options)
    for query, words, values in (
        (word, [0, 2], [0]),
        (f"{word}*", [0, 2, 3], [0, 3]),
        (f"*{word}?b", [3], [3]),
        (f"*{word}", [0, 2], [0, 2]),
        (f"*{word[1:]}*c?", [3], [3]),
        (f"{word}z~1", [0, 2], [0]),
    ):
        for column, wanted in (("t", words), ("s", values)):
            where = f"{column} INDEXQUERY '{query}'"
            assert table.scan(columns=["id"], where=where)["id"].to_pylist() == wanted
    assert table.count(f"s LIKE '%{word}_b'") == table.count(f"t LIKE '%{word}_b'") == 1
    assert table.count(f"t INDEXQUERY '{word}aaa*'") == 0


def test_edits_and_patterns_of_long_words_are_those_of_short_ones(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3000):
        one, other = ("".join(rng.choices("ab", k=rng.randint(0, 7))) for _ in range(2))
        for distance in (0, 1, 2):
            assert within_edit_distance(one, other, distance) == (edits(one, other) <= distance), (one, other)
        pieces: list[str | Wild] = [Wild.MANY, Wild.ONE, "a", "b", "ab", "."]
        parts = rng.choices(pieces, k=rng.randint(1, 5))
        expression = "".join(
            {Wild.MANY: ".*", Wild.ONE: "."}[part] if isinstance(part, Wild) else re.escape(part)
            for part in parts
        )
        assert patterns.matches(one, parts) == (re.fullmatch(expression, one) is not None), (one, parts)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (r"\w", ["é", "b"]),
        (r"\d+", ["١٢"]),
        (r"[^\d]", ["é", "b"]),
        (r"[\d_]{1,2}", ["١٢"]),
        (r"\u00e9|\U00000062", ["é", "b"]),
        (r"[\u{e9}]", ["é"]),
        (r"[[:alpha:]]", ["b"]),
        (r"\PL+", ["١٢"]),
        (r"\S\W?", ["é", "b"]),
    ],
)
def test_regular_expressions_mean_the_same_beside_a_long_word(
    tmp_path: Path, expression: str, wanted: list[str]
) -> None:
    words = ["é", "١٢", "b"]
    texts = [*words, *(f"{word} {'x' * 70_000}" for word in words)]
    table = indextables.write(
        tmp_path / "t",
        [{"id": i, "t": text} for i, text in enumerate(texts)],
        options={"indexing.typemap.t": "text"},
    )
    found = table.search(f"/{expression}/", field="t", columns=["id"], limit=None)["id"].to_pylist()
    assert sorted(found) == [i for i in range(6) if words[i % 3] in wanted]


@pytest.mark.parametrize("expression", [r"[\w&&[^b]]", r"[a-z--b]", r"[a[b]]", r"[^\W\d]"])
def test_classes_that_cannot_be_combined_on_rows_are_refused(tmp_path: Path, expression: str) -> None:
    table = indextables.write(
        tmp_path / "t", [{"t": "a " + "x" * 70_000}], options={"indexing.typemap.t": "text"}
    )
    with pytest.raises(QuerySyntaxError, match="combines classes of characters"):
        table.search(f"/{expression}/", field="t")
