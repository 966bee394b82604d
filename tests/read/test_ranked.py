"""Ranked searches: the best rows first, from all splits, with scores and fragments."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import read
from indextables.errors import PredicateError, QuerySyntaxError, UnknownFieldError
from indextables.options import Options
from indextables.predicate import Column, Compare, Op, parse_condition
from indextables.store import open_store
from tests.read.read_tables import Opened, opened

TEXT = {
    "indexing.typemap.body": "text",
    "indexing.typemap.title": "string,text",
    "indexing.typemap.code": "string",
}
ROWS: list[dict[str, Any]] = [
    {"id": 0, "title": "Fox", "body": "the quick brown fox", "code": "A-1", "year": 2020},
    {"id": 1, "title": "Dog", "body": "the lazy dog and the fox and the fox", "code": "B-2", "year": 2021},
    {"id": 2, "title": "Fox den", "body": "nothing here", "code": "C-3", "year": 2022},
    {"id": 3, "title": None, "body": None, "code": None, "year": None},
    {"id": 4, "title": "Cat <b>", "body": "a cat & a fox <tag> jumped", "code": "fox", "year": 2023},
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("search")
    for rows in (ROWS[:2], ROWS[2:]):
        indextables.write(folder / "t", rows, options=TEXT)
    return opened(folder / "t", ROWS, folder / "cache")


def search(table: Opened, query: str, **given: Any) -> Any:
    options = given.pop("options", table.options)
    return read.search(table.snapshot, table.store, options, query=query, **given)


def ids(found: Any) -> Any:
    return found["id"].to_pylist()


def test_rows_come_in_the_order_of_their_scores(table: Opened) -> None:
    found = search(table, "fox", field="body", scores=True)
    scores = found["_score"].to_pylist()
    assert sorted(ids(found)) == [0, 1, 4]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0
    assert found.column_names == ["id", "title", "body", "code", "year", "_score"]


def test_a_limit_keeps_the_best_of_all_splits(table: Opened) -> None:
    everything = search(table, "fox", field="body", scores=True, limit=None)
    for limit in range(4):
        best = search(table, "fox", field="body", scores=True, limit=limit)
        assert best.equals(everything.slice(0, limit))


def test_more_occurrences_score_higher_and_a_boost_changes_the_order(table: Opened) -> None:
    assert ids(search(table, "lazy^10 OR quick", field="body"))[0] == 1
    assert ids(search(table, "lazy OR quick^10", field="body"))[0] == 0


def test_without_a_field_all_text_like_fields_are_searched(table: Opened) -> None:
    assert sorted(ids(search(table, "fox"))) == [0, 1, 2, 4]
    assert ids(search(table, "code:fox")) == [4]


def test_a_condition_lets_rows_pass_without_changing_scores(table: Opened) -> None:
    before = search(table, "fox", field="body", scores=True)
    score = {row["id"]: row["_score"] for row in before.to_pylist()}
    where = Compare(Op.GE, Column(("year",)), pa.scalar(2021))
    after = search(table, "fox", field="body", scores=True, where=where)
    assert sorted(ids(after)) == [1, 4]
    assert all(row["_score"] == score[row["id"]] for row in after.to_pylist())


def test_a_condition_that_only_rows_can_answer_is_checked(table: Opened) -> None:
    where = parse_condition("body ILIKE '%LAZY%'", table.snapshot.schema)
    assert ids(search(table, "fox", field="body", where=where)) == [1]


def test_fragments_mark_the_words_found_and_escape_the_rest(table: Opened) -> None:
    found = search(table, "fox", field="body", columns=["id"], highlight=["body", "title"])
    by_id = {row["id"]: row for row in found.to_pylist()}
    assert by_id[0]["_highlight_body"] == "the quick brown <b>fox</b>"
    assert "&lt;tag&gt;" in by_id[4]["_highlight_body"]
    assert by_id[4]["_highlight_title"] is None
    assert search(table, "nowhere", field="body", columns=["id"], highlight=["body"]).column_names == [
        "id",
        "_highlight_body",
    ]


def test_only_text_columns_can_be_highlighted(table: Opened) -> None:
    with pytest.raises(PredicateError, match="'code' is not indexed as text"):
        search(table, "fox", field="body", highlight=["code"])


def test_a_text_column_that_came_later_or_was_indexed_anew_is_highlighted(tmp_path: Path) -> None:
    text = {"indexing.typemap.a": "text"}
    indextables.write(tmp_path, [{"a": "fox"}], options=text)
    later = {"indexing.typemap.b": "text", "mergeSchema": True}
    wide = indextables.write(tmp_path, [{"a": "fox", "b": "a fox"}], options=later)
    assert wide.text_columns == ("a", "b")
    found = wide.search("fox", columns=[], highlight=["a", "b"]).to_pylist()
    assert sorted(map(str, found)) == sorted(
        str({"_highlight_a": "<b>fox</b>", "_highlight_b": b}) for b in (None, "a <b>fox</b>")
    )
    anew = indextables.write(
        tmp_path, [{"a": "fox", "b": "fox"}], mode="overwrite", options={"indexing.typemap.a": "string"}
    )
    assert anew.text_columns == ("b",)
    with pytest.raises(PredicateError, match="'a' is not indexed as text"):
        anew.search("fox", highlight=["a"])


def test_a_negation_alone_is_every_other_row(table: Opened) -> None:
    assert sorted(ids(search(table, "NOT fox", field="body"))) == [2, 3]


@pytest.mark.parametrize("query", ["nosuch:x", "body:fox AND nosuch:x", "nosuch:*", "nosuch:[a TO b]"])
def test_an_unknown_field_is_an_error_that_lists_the_known_ones(table: Opened, query: str) -> None:
    with pytest.raises(UnknownFieldError, match=r"nosuch.*available fields: id, title, body"):
        search(table, query)


def test_an_unknown_field_is_an_error_in_a_count_too(table: Opened) -> None:
    for condition in ("body INDEXQUERY 'nosuch:x'", "body INDEXQUERY 'fox' OR body INDEXQUERY 'nosuch:x'"):
        with pytest.raises(UnknownFieldError):
            table.count(parse_condition(condition, table.snapshot.schema))


def test_a_malformed_query_does_not_spoil_the_next_one(table: Opened) -> None:
    for query in ("body:[a TO", '"fox', "fox AND"):
        with pytest.raises(QuerySyntaxError):
            search(table, query, field="body")
        with pytest.raises(QuerySyntaxError):
            table.count(parse_condition(f"id = 0 OR body INDEXQUERY '{query}'", table.snapshot.schema))
        assert sorted(ids(search(table, "fox", field="body"))) == [0, 1, 4]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("year:abc", "'abc' is not a value of the column 'year'"),
        ("year:20*", "a prefix cannot be searched in 'year'"),
        ("body:/fox$/", "without \\^ and \\$"),
        ("body:/fo(x/", "cannot be used"),
    ],
)
def test_a_query_that_does_not_fit_its_field_says_so(table: Opened, query: str, words: str) -> None:
    with pytest.raises(QuerySyntaxError, match=words):
        search(table, query)


def test_textsearch_needs_tokens_and_fieldmatch_needs_none(table: Opened) -> None:
    def rows(condition: str) -> list[int]:
        return table.ids(parse_condition(condition, table.snapshot.schema))

    assert rows("body TEXTSEARCH 'fox'") == [0, 1, 4]
    assert rows("code FIELDMATCH 'fox'") == [4]
    assert rows("title TEXTSEARCH 'fox'") == [0, 2]
    assert rows("title FIELDMATCH '\"Fox den\"'") == [2]
    with pytest.raises(PredicateError, match=r"Cannot use TEXTSEARCH on field 'code'.*typemap\.code=text"):
        rows("code TEXTSEARCH 'fox'")
    with pytest.raises(
        PredicateError, match=r"'year', which is not tokenized; use FIELDMATCH or INDEXQUERY$"
    ):
        rows("year TEXTSEARCH '2020'")
    with pytest.raises(PredicateError, match="Cannot use FIELDMATCH on field 'body'"):
        rows("body FIELDMATCH 'fox'")
    with pytest.raises(PredicateError, match="Cannot use TEXTSEARCH"):
        rows("* TEXTSEARCH 'fox'")


def wide_table(tmp_path: Path, columns: int) -> Opened:
    row = {f"c{n}": "word" for n in range(columns)}
    indextables.write(
        tmp_path / "t", [row], options={f"indexing.typemap.c{n}": "text" for n in range(columns)}
    )
    return opened(tmp_path / "t", [row], tmp_path / "cache")


def test_a_search_over_all_fields_is_limited_in_fields(tmp_path: Path) -> None:
    table = wide_table(tmp_path, 11)
    with pytest.raises(PredicateError, match=r"11 fields.*more than the 10 allowed.*maxUnqualifiedFields"):
        search(table, "word AND word")
    assert search(table, "c3:word AND c4:word").num_rows == 1
    assert search(table, "word", field="c3").num_rows == 1
    for limit in ("11", "0"):
        raised = Options.parse({"indexquery.indexall.maxUnqualifiedFields": limit}).over(table.options)
        assert search(table, "word", options=raised).num_rows == 1


def test_words_longer_than_the_token_limit_are_found(tmp_path: Path) -> None:
    long = "b" * 300
    rows = [{"id": 0, "t": f"short {long}"}, {"id": 1, "t": "short"}, {"id": 2, "t": "c" * 70_000}]
    indextables.write(tmp_path / "t", rows, options={"indexing.typemap.t": "text"})
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    assert ids(search(table, long, field="t")) == [0]
    assert ids(search(table, "c" * 70_000, field="t")) == [2]
    assert sorted(ids(search(table, "bb*", field="t"))) == [0]
    assert sorted(ids(search(table, "NOT cc*", field="t"))) == [0, 1]
    assert ids(search(table, f'"short {long}"', field="t")) == [0]


def test_a_phrase_prefix_is_not_cut_at_fifty_words(tmp_path: Path) -> None:
    rows = [{"t": f"see word{n}"} for n in range(200)]
    indextables.write(tmp_path / "t", rows, options={"indexing.typemap.t": "text"})
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    assert search(table, '"see wo"*', field="t", limit=None).num_rows == 200
    assert search(table, "wor*", field="t", limit=None).num_rows == 200


def test_chinese_and_japanese_phrases_are_found(tmp_path: Path) -> None:
    rows = [
        {"id": 0, "t": "東京都に住んでいます"},
        {"id": 1, "t": "京都に行く"},
        {"id": 2, "t": "北京 Tower"},
    ]
    indextables.write(
        tmp_path / "t", rows, options={"indexing.typemap.t": "text", "indexing.tokenizer.t": "cjk"}
    )
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    assert sorted(ids(search(table, "京都", field="t"))) == [0, 1]
    assert ids(search(table, "東京", field="t")) == [0]
    assert ids(search(table, "tower", field="t")) == [2]


def test_stemmed_and_ngram_fields_are_searched_by_their_tokenizers(tmp_path: Path) -> None:
    rows = [{"id": 0, "t": "running shoes", "g": "database"}, {"id": 1, "t": "a ruin", "g": "base"}]
    options = {
        "indexing.typemap.text": "t,g",
        "indexing.tokenizer.t": "en_stem",
        "indexing.tokenizer.g": "ngram_3_4",
    }
    indextables.write(tmp_path / "t", rows, options=options)
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    assert ids(search(table, "runs", field="t")) == [0]
    assert ids(search(table, '"runs sho"*', field="t")) == [0]
    assert sorted(ids(search(table, "ru*", field="t"))) == [0, 1]
    assert ids(search(table, "tabas", field="g")) == [0]
    assert sorted(ids(search(table, "base", field="g"))) == [0, 1]


def test_an_empty_table_can_be_searched(tmp_path: Path) -> None:
    indextables.write(
        tmp_path / "t", pa.table({"t": pa.array([], pa.string())}), options={"indexing.typemap.t": "text"}
    )
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    assert search(table, "x", field="t", scores=True).num_rows == 0
    assert open_store(tmp_path / "t").url


@pytest.mark.parametrize("query", ["foo", "nothing"])
def test_a_search_without_columns_counts_rows(tmp_path: Path, query: str) -> None:
    options = {"indexing.typemap.t": "text"}
    table = indextables.write(tmp_path / "t", [{"id": 1, "t": "foo"}, {"id": 2, "t": "foo"}], options=options)
    rows = 2 if query == "foo" else 0
    assert table.search(query, columns=[]).num_rows == rows
    scored = table.search(query, columns=[], scores=True)
    assert (scored.column_names, scored.num_rows) == (["_score"], rows)
    marked = table.search(query, columns=[], highlight=["t"])
    assert (marked.column_names, marked.num_rows) == (["_highlight_t"], rows)


def test_an_aggregation_of_nothing_is_refused(tmp_path: Path) -> None:
    table = indextables.write(tmp_path / "t", [{"id": 1}, {"id": 2}])
    with pytest.raises(PredicateError, match="no aggregate is given"):
        table.aggregate({})
    assert table.aggregate({}, group_by=["id"]).num_rows == 2
