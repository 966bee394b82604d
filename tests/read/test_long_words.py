"""Words, values and patterns of extreme length."""

import pyarrow as pa
import pytest

import indextables
from indextables.options.tokenizers import find_tokenizer
from indextables.split.index.encode import rows_with_long_tokens


def test_long_bounds_include_texts_with_the_last_character(tmp_path):
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
def test_words_that_lower_case_makes_longer_than_a_term_are_found(tmp_path, letter, tokenizer):
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


def test_words_within_structs_that_lower_case_makes_longer_than_a_term_are_found(tmp_path):
    structs = pa.array([{"b": "Ⱥ" * 30_000}, {"b": "x"}], pa.struct([("b", pa.string())]))
    data = pa.table({"id": [1, 2], "s": structs})
    table = indextables.write(tmp_path / "t", data, options={"indexing.typemap.s.b": "text"})
    assert table.count(f"s INDEXQUERY 's.b:{'Ⱥ' * 30_000}'") == 1
    assert table.count("s INDEXQUERY 's.b:x'") == 1


def test_ascii_words_of_the_length_of_a_term_are_in_the_index():
    texts = pa.array(["A" * 65_530, "A" * 65_531, "é" * 10_000, "Ⱥ" * 20_000, None])
    found = rows_with_long_tokens(texts, find_tokenizer("default"), 65_530)
    assert found is not None
    assert found.tolist() == [False, True, False, True, False]
