"""Phrases and their slop: indexes with and without positions answer as the definition does."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

import indextables
from indextables.predicate import Column, Not, Search, SearchKind
from indextables.predicate.tree import Phrase, Prefix, QueryLeaf, Term
from indextables.split.index.tokenizers import Token
from indextables.split.mapping import Field, Kind
from indextables.split.query.row_matcher import TextColumn, TokenTable, match_text
from indextables.split.query.text_queries import matches_with_slop
from tests.read.read_oracle import sloppy
from tests.read.read_tables import opened

ROOT = Path(__file__).parents[2]
INDEXING = {"indexing.typemap.text": "p,q", "indexing.indexrecordoption.q": "basic"}


def random_text(rng: random.Random, alphabet: str, longest: int) -> str:
    return " ".join(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


def test_index_and_rows_agree_with_the_definition_of_slop(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    texts = [random_text(rng, "abcx", 10) for _ in range(500)]
    rows = [{"id": i, "p": text, "q": text} for i, text in enumerate(texts)]
    indextables.write(tmp_path / "t", rows, options=INDEXING)
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    for _ in range(80):
        words, slop = [rng.choice("abc") for _ in range(rng.randint(2, 5))], rng.randint(0, 7)
        wanted = [i for i, text in enumerate(texts) if sloppy(words, text.split(), slop)]
        query = f'"{" ".join(words)}"~{slop}'
        for column in "pq":
            search = Search(SearchKind.INDEXQUERY, Column((column,)), query)
            assert table.ids(search) == wanted, (column, query)
            assert table.count(Not(search)) == len(rows) - len(wanted), (column, query)
        found = indextables.open(tmp_path / "t").search(query, field="p", limit=None)
        assert sorted(found["id"].to_pylist()) == wanted


def test_long_texts_match_with_slop_as_every_assignment_of_words_says(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        words = [rng.choice("abc") for _ in range(rng.randint(2, 4))]
        text = [rng.choice("abcxyz") for _ in range(rng.randint(0, 25))]
        places = {word: [i for i, w in enumerate(text) if w == word] for word in "abc"}
        phrase = [Token(i, word) for i, word in enumerate(words)]
        slop = rng.randint(0, 12)
        assert matches_with_slop(phrase, places, slop) == sloppy(words, text, slop), (words, text, slop)


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ('"a b"~1', "a x b", True),
        ('"a b"~1', "b a", False),
        ('"a b"~2', "b a", True),
        ('"a b c"~1', "a x b x c", False),
        ('"a b c"~2', "a x b x c", True),
        ('"a b c"~1', "a c b c a", True),
        ('"a a"~9', "a b", False),
        ('"a a"~9', "a x x a", True),
        ('"a b a"~2', "b a a", True),
        ('"a b a"~9', "b a", False),
    ],
)
def test_slop_counts_the_moves_between_words(tmp_path: Path, query: str, text: str, found: bool) -> None:
    indextables.write(tmp_path / "t", [{"p": text, "q": text}], options=INDEXING)
    for column in "pq":
        assert indextables.open(tmp_path / "t").search(query, field=column).num_rows == found


def test_the_page_shows_from_which_slop_on_a_text_matches(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "query-language.md").read_text().split("### Slop")[1].split("\n## ")[0]
    shown = re.findall(r'^\| `"(.+?)"` \| (.+?) \| .*?\| (?:`~(\d+)`|never.*) \|$', section, re.MULTILINE)
    assert len(shown) == 8
    for number, (phrase, text, least) in enumerate(shown):
        path = tmp_path / str(number)
        indextables.write(path, [{"p": text, "q": text}], options=INDEXING)
        table = indextables.open(path)
        for slop in range(6):
            expected = bool(least) and slop >= int(least)
            assert table.search(f'"{phrase}"~{slop}', field="p").num_rows == expected, (phrase, text, slop)


def test_regular_expressions_find_in_texts_what_their_tokens_say(seed: int) -> None:
    rng = random.Random(seed)
    # Separators of one tokenizer, the other or both; letters beyond ASCII whose case is ASCII; a null.
    pieces = [
        "ab",
        "A",
        "b_c",
        "ab.c",
        "x1",
        "a" * 40,
        "Kelvin",
        "\u212aelvin",
        "\u017f",
        "\u00e4b",
        "\u0301",
    ]
    blanks = [" ", "-", "_", "\t", "\n", "\x0b", "\x00", "\u00a0", "  ", "(", "\\", ""]

    def text(longest: int) -> str:
        parts = [rng.choice(pieces) + rng.choice(blanks) for _ in range(rng.randint(0, longest))]
        return rng.choice(["", " ", "."]) + "".join(parts)

    texts = pa.array([*(text(6) for _ in range(300)), None, ""], rng.choice([pa.string(), pa.large_string()]))
    for tokenizer in ("default", "whitespace", "en_stem", "cjk", "ngram", "raw"):
        field = Field("t", "t:t", Kind.TEXT, tokenizer=tokenizer)
        column, tokens = TextColumn(texts, field), TokenTable.tokenize(texts.to_pylist(), field)
        for _ in range(60):
            query = text(3) or "ab"
            leaves: list[QueryLeaf] = [
                Term(query),
                Prefix(query),
                Phrase(query),
                Phrase(query, prefix=True),
            ]
            leaf = rng.choice(leaves)
            assert column.match(leaf).tolist() == match_text(leaf, tokens, field).tolist(), (tokenizer, leaf)
