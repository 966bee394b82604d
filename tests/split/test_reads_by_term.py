"""Searches that fetch the postings of their terms only: the same answers as with the whole index.

Bytes that were not fetched are wrong on purpose here, so that a search that reads them cannot be right.
"""

import os
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from indextables.errors import SplitError
from indextables.options import Options
from indextables.predicate import Column, Predicate, Search, SearchKind, parse_condition
from indextables.split.footer import Footer, read_footer
from indextables.split.index import files, loader
from indextables.split.query import searcher
from indextables.split.query.bound_query import SearchFields
from indextables.split.query.filter_pushdown import plan_filter
from indextables.split.query.query_compiler import compile_query
from indextables.split.query.searcher import IndexSearcher, close_indexes, open_index
from indextables.split.tantivy_layout import DictionaryFormatError
from indextables.store import Store, open_store
from tests.split.split_files import write_split

INDEXING = {"indexing.typemap.words": "text", "indexing.typemap.doc": "json"}
SEED = int(os.environ.get("INDEXTABLES_SEED", "0")) or random.SystemRandom().randrange(1 << 30)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 1)
    monkeypatch.setattr(files, "TERM_PIECE_BYTES", 100)
    monkeypatch.setattr(files, "_MAX_TERM_PIECES", 1 << 20)
    monkeypatch.setattr(loader, "MIN_POSTINGS_BYTES", 0)
    monkeypatch.setattr(searcher, "create_files", _create_wrong_files)
    close_indexes()


def _create_wrong_files(footer: Footer, folder: Path) -> None:
    for file in footer.index_files:
        (folder / file.name).write_bytes(b"\xa5" * file.size)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "t")


WORDS = ["line", "long", "red", "green", "zebra", "zebras", "über", "naïve", "x1", "x12", "x123"]


def rows(count: int = 4000) -> pa.Table:
    rng = random.Random(3)
    return pa.table(
        {
            "words": [
                " ".join([*rng.choices(WORDS, k=rng.randint(0, 9)), f"row{n}", f"n{n % 60}"])
                for n in range(count)
            ],
            "name": [None if n % 31 == 0 else f"name{n % 97}" for n in range(count)],
            "number": [n % 13 for n in range(count)],
            "doc": [f'{{"a": {n % 5}, "b": "{rng.choice(WORDS)}"}}' for n in range(count)],
        }
    )


@pytest.fixture
def split(store: Store) -> Footer:
    write_split(store, "a.split", rows(), INDEXING)
    return read_footer(store, "a.split")


def search(index: IndexSearcher, condition: Predicate) -> list[int]:
    """The rows that the index finds for a condition, with those that it cannot decide."""
    fields = SearchFields(index.footer.schema, (index.footer.mapping,))
    plan = plan_filter(condition, index.view, lambda each: fields.bind(each, Options()), Options())
    return [int(row) for row in index.rows(plan.candidates.rows)]


def fresh(store: Store, split: Footer) -> IndexSearcher:
    """The index of a split with an empty cache."""
    cache = Path(tempfile.mkdtemp(dir=store.url.removeprefix("file://"), prefix=".cache-"))
    return open_index(store, split, Options.parse({"cache.disk.path": str(cache)}))


def whole(store: Store, split: Footer) -> IndexSearcher:
    index = fresh(store, split)
    index.load(name for name in split.pieces if name is not None)
    return index


def fetched_share(index: IndexSearcher, suffix: str) -> float:
    """How many of the pieces of the field `words` in files with a suffix are in the cache."""
    pieces = loader.parts_of(index.footer, "t:words", suffix)
    return sum(not index.lease.is_missing((piece.file, piece.start)) for piece in pieces) / len(pieces)


QUERIES = [
    "row17",
    "absent",
    "line AND row40",
    "row1 OR row2 OR row3",
    "NOT line",
    "line AND NOT long",
    '"red green"',
    '"row7 n7"',
    '"red zebra"~2',
    '"zebra red zebra"~3',
    "zeb*",
    "row39*",
    "x1?",
    "x*3",
    "*bra",
    "zebro~1",
    "/row1[0-3]5/",
    "words:[row10 TO row12]",
    "words:>zebra",
    "words:<green",
    '"long row3"*',
    '"row3 n"*',
    '"zebra row1"*',
    "words: IN [row5 row6 über]",
    "doc.b:zebra",
    "name:name5",
    "number:3",
]
CONDITIONS = [
    "name = 'name5'",
    "name IN ('name1', 'name96', 'nobody')",
    "name <> 'name5'",
    "name IS NULL",
    "name LIKE 'name9%'",
    "name LIKE '%e96'",
    "name LIKE 'name_1'",
    "name > 'name95'",
    "name BETWEEN 'name20' AND 'name22'",
    "NOT (name = 'name3' OR name IS NULL)",
    "name = 'name3' AND number = 4",
]


def conditions(schema: pa.Schema) -> dict[str, Predicate]:
    texts = [f"words INDEXQUERY '{query}'" for query in QUERIES]
    rng = random.Random(SEED)
    simple = [*texts, *CONDITIONS]
    mixed = [
        f"({rng.choice(simple)}) {rng.choice(['AND', 'OR', 'AND NOT'])} ({rng.choice(simple)})"
        for _ in range(60)
    ]
    return {text: parse_condition(text, schema) for text in [*simple, *mixed]}


def test_cold_searches_find_what_the_whole_index_finds(store: Store, split: Footer) -> None:
    complete = whole(store, split)
    wanted = conditions(split.schema)
    expected = {text: search(complete, condition) for text, condition in wanted.items()}
    assert sum(map(bool, expected.values())) > len(expected) / 2
    for text, condition in wanted.items():
        assert search(fresh(store, split), condition) == expected[text], (text, SEED)


def test_searches_one_after_the_other_find_what_the_whole_index_finds(store: Store, split: Footer) -> None:
    complete = whole(store, split)
    wanted = list(conditions(split.schema).items())
    expected = {text: search(complete, condition) for text, condition in wanted}
    random.Random(SEED).shuffle(wanted)
    index = fresh(store, split)
    for text, condition in wanted:
        assert search(index, condition) == expected[text], (text, SEED)


def test_scores_are_those_of_the_whole_index(store: Store, split: Footer) -> None:
    def best(index: IndexSearcher, query: str) -> list[tuple[int, float]]:
        condition = Search(SearchKind.INDEXQUERY, Column(("words",)), query)
        fields = SearchFields(split.schema, (split.mapping,))
        found = compile_query(fields.bind(condition, Options()), index.view).true.rows
        top = index.top(found, 20)
        return list(zip(top.rows.tolist(), top.scores.tolist(), strict=True))

    complete = whole(store, split)
    for query in ("zebra", "zebra OR row17", '"red green"', "line AND long", "absent OR über"):
        expected = best(complete, query)
        assert expected
        assert best(fresh(store, split), query) == expected
    words = [("t:words", "zebra"), ("t:words", "absent"), ("t:words", "row17")]
    complete = whole(store, split)
    expected_counts = complete.term_statistics(words)
    assert fresh(store, split).term_statistics(words) == expected_counts


@pytest.mark.parametrize(
    ("query", "most", "positions"),
    [("row17", 0.05, 0), ("row17 OR row18", 0.05, 0), ("row39*", 0.2, 0), ('"row17 n17"', 0.1, 0.1)],
)
def test_only_the_pieces_of_the_terms_are_fetched(
    store: Store, split: Footer, query: str, most: float, positions: float
) -> None:
    index = fresh(store, split)
    assert fetched_share(index, ".idx") == 0
    assert search(index, parse_condition(f"words INDEXQUERY '{query}'", split.schema))
    assert 0 < fetched_share(index, ".idx") <= most
    assert fetched_share(index, ".pos") <= positions
    assert fetched_share(index, ".term") == 1


def test_scores_of_older_splits_are_right_after_only_the_terms_were_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Their postings begin with the number of tokens, and are one piece.
    monkeypatch.setattr(files, "TOKENS_BYTES", 0)
    monkeypatch.setattr(files, "TERM_PIECE_BYTES", 1 << 30)
    write_split(store, "old.split", rows(), INDEXING)
    split = read_footer(store, "old.split")
    words = [("t:words", "zebra")]

    def best(index: IndexSearcher, query: str) -> list[tuple[int, float]]:
        fields = SearchFields(split.schema, (split.mapping,))
        search = Search(SearchKind.INDEXQUERY, Column(("words",)), query)
        top = index.top(compile_query(fields.bind(search, Options()), index.view).true.rows, 20)
        return list(zip(top.rows.tolist(), top.scores.tolist(), strict=True))

    complete = whole(store, split)
    for query in ('"long row3"* OR zebra', '"long row3"*', "zebra"):
        index = fresh(store, split)
        assert best(index, query) == best(complete, query)
        assert best(index, "zebra") == best(complete, "zebra")
        assert index.term_statistics(words) == complete.term_statistics(words)


def test_a_field_that_is_in_use_is_fetched_whole(store: Store, split: Footer) -> None:
    index = fresh(store, split)
    for n in range(loader._MAX_TERM_READS):
        assert search(index, parse_condition(f"words INDEXQUERY 'row{n}'", split.schema)) == [n]
    assert fetched_share(index, ".idx") < 1
    assert search(index, parse_condition("words INDEXQUERY 'row999'", split.schema)) == [999]
    assert fetched_share(index, ".idx") == 1


def test_terms_of_an_unknown_dictionary_are_searched_in_the_whole_field(
    store: Store, split: Footer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: object) -> None:
        raise DictionaryFormatError("a term dictionary has an unknown version")

    monkeypatch.setattr(loader, "TermDictionary", unknown)
    index = fresh(store, split)
    assert search(index, parse_condition("words INDEXQUERY 'row17'", split.schema)) == [17]
    assert fetched_share(index, ".idx") == 1


def test_a_cache_that_is_deleted_meanwhile_is_reported(store: Store, split: Footer) -> None:
    index = fresh(store, split)
    shutil.rmtree(index.lease.folder)
    with pytest.raises(SplitError, match="could not be written to the cache"):
        search(index, parse_condition("words INDEXQUERY 'row17'", split.schema))


def test_threads_that_search_for_many_terms_do_not_disturb_each_other(
    store: Store, split: Footer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_MAX_REMEMBERED", 8)
    monkeypatch.setattr(loader, "_MAX_TERM_READS", 1 << 30)
    index = fresh(store, split)

    def work(first: int) -> None:
        for n in range(first, 4000, 97):
            assert search(index, parse_condition(f"words INDEXQUERY 'row{n}'", split.schema)) == [n]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


def test_a_damaged_piece_stops_the_searches_that_need_it_only(
    store: Store, split: Footer, tmp_path: Path
) -> None:
    index = fresh(store, split)
    search(index, parse_condition("words INDEXQUERY 'row17'", split.schema))
    pieces = loader.parts_of(split, "t:words", ".idx")
    (own, *_) = (piece for piece in pieces if not index.lease.is_missing((piece.file, piece.start)))
    data = bytearray((tmp_path / "t" / "a.split").read_bytes())
    data[own.offset + own.length // 2] ^= 0xFF
    (tmp_path / "t" / "a.split").write_bytes(data)
    index = fresh(store, split)
    with pytest.raises(SplitError, match=r"a\.split.*\.idx is damaged"):
        search(index, parse_condition("words INDEXQUERY 'row17'", split.schema))
    assert search(index, parse_condition("words INDEXQUERY 'row3333'", split.schema)) == [3333]


def test_small_fields_are_fetched_whole(store: Store, split: Footer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MIN_POSTINGS_BYTES", 1 << 30)
    index = fresh(store, split)
    assert search(index, parse_condition("words INDEXQUERY 'row17'", split.schema)) == [17]
    assert fetched_share(index, ".idx") == 1


def test_pieces_are_bounded_in_number(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_TERM_PIECES", 7)
    write_split(store, "b.split", rows(), INDEXING)
    split = read_footer(store, "b.split")
    assert len(loader.parts_of(split, "t:words", ".idx")) == 7
    assert np.ptp([piece.size for piece in loader.parts_of(split, "t:words", ".idx")][:-1]) == 0
