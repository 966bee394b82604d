"""Splits that cannot have a required term are skipped before their index is opened; answers stay the same."""

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import metrics, read
from indextables.cache import Cache
from indextables.errors import SplitError
from indextables.predicate import parse_condition
from indextables.read.split_source import close_splits
from indextables.read.table_context import SKIPPED
from indextables.split.footer import read_footer
from indextables.split.query import searcher
from indextables.split.query.searcher import IndexSearcher
from indextables.store import Store, open_store
from tests.read.read_tables import Opened, opened

TEXT = {"indexing.typemap.t": "text", "indexing.typemap.b": "string,text"}
SPLITS = 12
COMMON = ["and", "the", "of"]


def part(number: int, count: int = 200) -> pa.Table:
    rng = random.Random(number)
    words = [f"only{number}", f"pair{number // 2}", *COMMON]
    return pa.Table.from_pylist(
        [
            {
                "id": number * 1000 + i,
                "t": " ".join(rng.choices(words, k=4)),
                "s": f"s{rng.randrange(20)} {number}",
                "u": f"{number:04d}-{rng.getrandbits(64):016x}",
                "b": f"Both {number} {rng.randrange(9)}",
                "n": rng.randrange(100),
            }
            for i in range(count)
        ]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filters") / "t"
    for number in range(SPLITS):
        indextables.write(folder, part(number), options=TEXT)
    return folder


@pytest.fixture
def table(folder: Path, tmp_path: Path) -> Opened:
    close_splits()
    return opened(folder, [], tmp_path / "cache")


def count(table: Opened, condition: str) -> int:
    where = parse_condition(condition, table.snapshot.schema)
    return read.count(table.snapshot, table.store, table.options, where=where)


def opened_indexes(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The splits whose index is opened from now on."""
    found = set()
    real = searcher._open_cached

    def observed(key: Any, store: Any, footer: Any, *more: Any, **named: Any) -> IndexSearcher:
        found.add(footer.path)
        return real(key, store, footer, *more, **named)

    monkeypatch.setattr(searcher, "_open_cached", observed)
    return found


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("t INDEXQUERY 'only3'", 1),
        ("t INDEXQUERY 'ONLY3'", 1),
        ("t INDEXQUERY 'pair2'", 2),
        ("t INDEXQUERY 'only3 AND pair2'", 0),
        ("t INDEXQUERY 'only3 OR pair2'", 3),
        ("t INDEXQUERY '\"only3 the\"'", 1),
        ("t INDEXQUERY '\"only3 th\"*'", 1),
        ("t INDEXQUERY 'absent'", 0),
        ("t INDEXQUERY 't: IN [only1 only2]'", 2),
        ("INDEXQUERYALL('only5')", 1),
        ("u = '0004-0000000000000000'", 0),
        ("u IN ('a', 'b', 'c')", 0),
        ("s = 's1 7'", 1),
        ("s <=> 's1 7'", 1),
        ("b = 'Both 3 1'", 1),
        ("t = 'only3 the and of'", 1),
        ("t INDEXQUERY 'only3' AND n > 50", 1),
        ("t INDEXQUERY 'only3' OR u = 'absent'", 1),
        ("t INDEXQUERY 'only3' OR n > 200", SPLITS),
        ("NOT (t INDEXQUERY 'only3')", SPLITS),
        ("t INDEXQUERY 'only1*'", SPLITS),
        ("t INDEXQUERY 'the -only3'", SPLITS),
    ],
)
def test_only_splits_that_may_have_the_terms_are_opened(
    table: Opened, monkeypatch: pytest.MonkeyPatch, condition: str, most: int
) -> None:
    found = opened_indexes(monkeypatch)
    answer = count(table, condition)
    # Another term passes a filter now and then.
    assert len(found) <= most + 1
    monkeypatch.setattr("indextables.read.split_reader.SplitReader.may_match", lambda *_: True)
    close_splits()
    assert count(table, condition) == answer


def test_rows_aggregates_and_searches_skip_splits_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_splits()
    found = opened_indexes(monkeypatch)
    table = indextables.open(folder, options={"cache.disk.path": str(tmp_path / "cache")})
    rows = table.scan(where="t INDEXQUERY 'only3'", columns=["id"])
    assert {value // 1000 for value in rows["id"].to_pylist()} == {3}
    assert len(found) <= 2
    best = table.search("only7", field="t", columns=["id"], scores=True)
    assert {value // 1000 for value in best["id"].to_pylist()} == {7}
    assert len(found) <= 4
    before = metrics.figures()[SKIPPED].total
    assert table.search("nothing", field="t").num_rows == 0
    assert metrics.figures()[SKIPPED].total > before


def test_scores_are_those_without_filters(folder: Path, tmp_path: Path) -> None:
    options = {"cache.disk.path": str(tmp_path / "cache")}
    for query in ("only3", "only3 OR the", "pair2 the", '"pair2 the"', "only3 OR only9"):
        found = indextables.open(folder, options=options).search(query, field="t", limit=50, scores=True)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("indextables.read.split_reader.SplitReader.may_match", lambda *_: True)
            patched.setattr("indextables.read.split_reader.SplitReader.should_test_filters", lambda *_: False)
            patched.setattr(sys.modules["indextables.read.search"], "_counts", Cache(0))
            plain = indextables.open(folder, options=options).search(query, field="t", limit=50, scores=True)
        assert found.equals(plain), query


def test_a_damaged_filter_is_an_error_that_names_the_split(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    indextables.write(tmp_path / "t", part(0), options=TEXT)
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    (name,) = table.snapshot.files()["path"].to_pylist()
    (place,) = (place for place in read_footer(store, name).term_filters if place.field == "t:t")
    data = bytearray((tmp_path / "t" / name).read_bytes())
    data[place.offset] ^= 1
    (tmp_path / "t" / name).write_bytes(data)
    close_splits()
    with pytest.raises(SplitError, match=rf"{name}: the term filter of 't:t' is damaged"):
        count(table, "t INDEXQUERY 'absent'")


@pytest.mark.parametrize("rows", [200, 20_000])
def test_on_an_object_store_a_filter_comes_with_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    url = f"memory://filters-{tmp_path.name}/t"
    rng = random.Random(rows)
    others = [f"other{n}" for n in range(2000)]
    words = [{"t": " ".join([f"word{n % 1000}", *rng.choices(others, k=12)]), "n": n} for n in range(rows)]
    indextables.write(url, pa.Table.from_pylist(words), options={"indexing.typemap.t": "text"})
    table = opened(url, [], tmp_path / "cache")
    fetched = []
    real = Store.get_ranges

    def get_ranges(self: Any, path: Any, ranges: Any) -> list[bytes]:
        fetched.append(sum(end - start for start, end in ranges))
        return real(self, path, ranges)

    close_splits()
    table.snapshot.files()
    monkeypatch.setattr(Store, "get_ranges", get_ranges)
    assert count(table, "t INDEXQUERY 'absent'") == 0
    if rows > 1000:
        assert len(fetched) == 1
    # Nor is there another request once the index is on the local disk.
    assert count(table, "t INDEXQUERY 'word7'") == -(-(rows - 7) // 1000)
    close_splits()
    fetched.clear()
    assert count(table, "t INDEXQUERY 'word8'") == -(-(rows - 8) // 1000)
    assert len(fetched) == 1, "the footer"


def remote_table(tmp_path: Path, count: int = 400) -> tuple[str, Opened]:
    """A table on an object store whose term filters let every term pass."""
    url = f"memory://passing-{tmp_path.name}/t"
    for number in range(4):
        indextables.write(url, part(number, count), options={**TEXT, "mergeOnWrite.enabled": "false"})
    close_splits()
    return url, opened(url, [], tmp_path / "cache")


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("t INDEXQUERY 'absent'", 0),
        ("t INDEXQUERY 'only3'", 1),
        ("t INDEXQUERY 'only1 AND pair1'", 0),
        ("t INDEXQUERY 'only1 OR only2'", 2),
        ("t INDEXQUERY '\"the only3\"'", 1),
        ("t = 'only2'", 1),
        ("s = 's1 2'", 1),
        ("s IN ('s1 2', 's2 3', 'absent')", 2),
        ("t INDEXQUERY 'only3' OR n > 200", 4),
    ],
)
def test_on_an_object_store_dictionaries_stop_what_filters_let_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, most: int
) -> None:
    _, table = remote_table(tmp_path)
    monkeypatch.setattr("indextables.split.index.term_filter.TermFilter.may_contain_any", lambda *_: True)
    found = opened_indexes(monkeypatch)
    answer = count(table, condition)
    assert len(found) == most
    monkeypatch.setattr("indextables.read.split_reader.SplitReader.may_match", lambda *_: True)
    close_splits()
    assert count(table, condition) == answer


def test_a_search_counts_no_words_of_splits_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = remote_table(tmp_path)
    monkeypatch.setattr("indextables.split.index.term_filter.TermFilter.may_contain_any", lambda *_: True)
    found = opened_indexes(monkeypatch)
    table = indextables.open(url, options={"cache.disk.path": str(tmp_path / "cache")})
    best = table.search("only2", field="t", columns=["id"], limit=500)
    assert {value // 1000 for value in best["id"].to_pylist()} == {2}
    assert len(found) == 1


def test_a_damaged_dictionary_is_an_error_that_names_the_split(tmp_path: Path) -> None:
    url, table = remote_table(tmp_path)
    store = open_store(url)
    damaged = next(name for name in table.snapshot.files()["path"].to_pylist() if _has(store, name, "only3"))
    data = bytearray(store.get(damaged))
    footer = read_footer(store, damaged)
    for file in footer.index_files:
        if file.name.endswith(".term"):
            data[file.pieces[0].offset + file.pieces[0].length // 2] ^= 1
    store.put(damaged, bytes(data))
    close_splits()
    with pytest.raises(SplitError, match=damaged):
        count(table, "t INDEXQUERY 'only3'")


def _has(store: Store, name: str, word: str) -> bool:
    bounds = read_footer(store, name)
    return bounds.min_values["id"].startswith(word.removeprefix("only"))


def test_a_word_too_long_for_the_index_is_found_beside_a_dictionary(tmp_path: Path) -> None:
    url = f"memory://long-{tmp_path.name}/t"
    huge = "z" * 70_000
    texts = [f"word{n} {huge}" if n == 7 else f"word{n}" for n in range(300)]
    indextables.write(url, pa.table({"t": texts}), options={"indexing.typemap.t": "text,string"})
    close_splits()
    table = opened(url, [], tmp_path / "cache")
    assert count(table, f"t = 'word7 {huge}'") == 1
    assert count(table, f"t INDEXQUERY '{huge}'") == 1
    assert count(table, "t INDEXQUERY 'word8'") == 1
    assert count(table, "t INDEXQUERY 'absent'") == 0
