"""One split's index: row numbers for few and for most rows, verdicts, scores, and what stays open."""

import io
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tantivy import Query

from indextables.errors import SplitError
from indextables.options import Options
from indextables.predicate import And, Column, Compare, In, IsNull, Not, Op, Or, Search, SearchKind
from indextables.split.footer import read_footer
from indextables.split.mapping import Kind, mapping_for
from indextables.split.query import searcher as searching
from indextables.split.query.bound_query import SearchFields
from indextables.split.query.filter_pushdown import FilterPlan, plan_filter
from indextables.split.query.row_sets import ALL_ROWS, NO_ROWS, intersect, subtract, union
from indextables.split.query.searcher import IndexSearcher, close_indexes, open_index, prewarm
from indextables.split.tantivy_layout import INDEX_COMPONENTS
from indextables.split.writer import SplitWriter
from indextables.store import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("t", pa.string()), ("blob", pa.binary())])


def split_of(tmp_path: Path, rows: list[Any], name: str = "a.split", **options: Any) -> Any:
    given = Options.parse({"indexing.typemap.t": "text", "indexing.typemap.s": "string", **options})
    sink = io.BytesIO()
    with SplitWriter(sink, SCHEMA, mapping_for(SCHEMA, given), given) as writer:
        for batch in pa.Table.from_pylist(rows, schema=SCHEMA).to_batches():
            writer.write(batch)
        writer.finish()
    (tmp_path / name).write_bytes(sink.getvalue())
    store = open_store(tmp_path)
    return store, read_footer(store, name), Options.parse({"cache.disk.path": str(tmp_path / "cache")})


@pytest.fixture
def index(tmp_path: Path) -> IndexSearcher:
    rows = [
        {
            "id": n,
            "s": "even" if n % 2 == 0 else None,
            "t": "all " + ("most" if n % 5 else "few"),
            "blob": b"",
        }
        for n in range(4000)
    ]
    return open_index(*split_of(tmp_path, rows))


def term(index: IndexSearcher, text: str) -> Query:
    assert index.view.find("t", Kind.TEXT) is not None
    return Query.term_query(index.view.schema, "t:t", text)


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("all", range(4000)),
        ("few", range(0, 4000, 5)),
        ("most", [n for n in range(4000) if n % 5]),
        ("none", []),
    ],
)
def test_few_hits_and_most_rows_give_the_same_kind_of_numbers(
    index: IndexSearcher, word: str, wanted: Any
) -> None:
    found = index.rows(term(index, word))
    assert found.dtype == np.int64
    assert found.tolist() == list(wanted)
    assert index.count(term(index, word)) == len(wanted)
    assert index.first(term(index, word), 7).tolist() == list(wanted)[:7]


def test_more_hits_than_wanted_are_not_collected(index: IndexSearcher) -> None:
    assert index.rows_up_to(term(index, "most"), 3199) is None
    assert len(index.rows_up_to(term(index, "most"), 3200)) == 3200


def test_all_and_nothing_cost_no_search(index: IndexSearcher) -> None:
    assert (index.count(ALL_ROWS), index.count(NO_ROWS)) == (4000, 0)
    assert len(index.rows(ALL_ROWS)) == 4000
    assert len(index.rows(NO_ROWS)) == 0


def test_sets_of_rows_combine_without_building_queries_where_they_can() -> None:
    some, other = Query.all_query(), Query.all_query()
    assert intersect([ALL_ROWS, some]) is some
    assert intersect([some, NO_ROWS]) is NO_ROWS
    assert intersect([]) is ALL_ROWS
    assert union([some, ALL_ROWS]) is ALL_ROWS
    assert union([NO_ROWS, some]) is some
    assert union([]) is NO_ROWS
    assert subtract(some, NO_ROWS) is some
    assert subtract(some, some) is NO_ROWS
    assert intersect([some, some]) is some
    assert subtract(some, other) is not some


def narrowed(index: IndexSearcher, predicate: Any) -> FilterPlan:
    fields = SearchFields(SCHEMA, (index.view.mapping,))
    return plan_filter(predicate, index.view, lambda s: fields.bind(s, Options()), Options())


EVEN = Compare(Op.EQ, Column(("s",)), pa.scalar("even"))
BLOB = Compare(Op.EQ, Column(("blob",)), pa.scalar(b"x"))
FEW = Search(SearchKind.INDEXQUERY, Column(("t",)), "few")


def test_what_the_index_answers_exactly_leaves_nothing_to_check(index: IndexSearcher) -> None:
    for predicate in (
        EVEN,
        Not(EVEN),
        FEW,
        Not(FEW),
        Or((EVEN, FEW)),
        IsNull(Column(("s",))),
        In(Column(("id",)), (pa.scalar(3), pa.scalar(None, pa.int64()))),
    ):
        assert narrowed(index, predicate).residual is None


def test_not_over_nulls_leaves_unknown_rows_out(index: IndexSearcher) -> None:
    assert index.rows(narrowed(index, Not(EVEN)).candidates.rows).tolist() == []
    assert len(index.rows(narrowed(index, Or((Not(EVEN), FEW))).candidates.rows)) == 800


def test_only_the_part_that_the_index_cannot_answer_is_checked(index: IndexSearcher) -> None:
    found = narrowed(index, And((FEW, BLOB, EVEN)))
    assert found.residual == BLOB
    assert len(index.rows(found.candidates.rows)) == 400


def test_a_part_that_cannot_be_answered_never_becomes_true(index: IndexSearcher) -> None:
    for predicate in (BLOB, Not(BLOB), Or((FEW, BLOB)), Not(And((FEW, BLOB)))):
        found = narrowed(index, predicate)
        assert found.residual == predicate
        assert found.candidates.uncertain is not NO_ROWS


def test_indexes_stay_open_and_the_longest_unused_is_closed_first(tmp_path: Path) -> None:
    close_indexes()
    rows = [{"id": 1, "s": "a", "t": "b", "blob": None}]
    splits = [split_of(tmp_path, rows, f"{n}.split") for n in range(3)]
    opened = [open_index(*split) for split in splits]
    assert [open_index(*split).lease is one.lease for split, one in zip(splits, opened, strict=True)] == [
        True
    ] * 3
    store, footer, options = splits[0]
    tight = Options.parse({"cache.maxSize": str(opened[0].lease.size)}).over(options)
    assert open_index(store, footer, tight).lease is opened[0].lease
    again = open_index(store, splits[1][1], Options.parse({"cache.maxSize": "1"}).over(options))
    assert again.lease is opened[1].lease
    assert close_indexes() == 3


def test_an_index_in_use_survives_a_flush_by_another(tmp_path: Path) -> None:
    store, footer, options = split_of(tmp_path, [{"id": 1, "s": "a", "t": "hello", "blob": None}])
    opened = open_index(store, footer, options)
    assert searching.index_cache(options).flush().entries == 0  # type: ignore[attr-defined]
    assert opened.count(term(opened, "hello")) == 1


def test_prewarming_reads_the_parts_asked_for(tmp_path: Path) -> None:
    store, footer, options = split_of(tmp_path, [{"id": 1, "s": "a", "t": "hello world", "blob": None}])
    whole = prewarm(store, footer, options, INDEX_COMPONENTS)
    terms = prewarm(store, footer, options, ["TERM"])
    assert 0 < terms < whole
    assert searching.is_cached(store, footer, options, ["t"])


def test_a_damaged_index_is_named_and_not_cached(tmp_path: Path) -> None:
    store, footer, options = split_of(tmp_path, [{"id": 1, "s": "a", "t": "hello", "blob": None}])
    piece = footer.index_files[-1].pieces[0]
    data = bytearray((tmp_path / "a.split").read_bytes())
    data[piece.offset + piece.length // 2] ^= 0xFF
    (tmp_path / "a.split").write_bytes(bytes(data))
    with pytest.raises(Exception, match=r"a\.split.*damaged"):
        open_index(store, footer, options)
    assert not searching.is_cached(store, footer, options, [])


def test_an_index_that_a_stranger_damaged_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums are right: they are those of what the stranger wrote."""
    rows = [{"id": n, "s": f"s{n % 7}", "t": f"word{n % 5} other", "blob": b""} for n in range(200)]
    store, footer, _ = split_of(tmp_path, rows)
    dice = random.Random(7)
    copy = searching.copy_pieces  # type: ignore[attr-defined]

    def damaged(store: Any, footer: Any, folder: Any, pieces: Any) -> list[Any]:
        copied = copy(store, footer, folder, pieces)
        for name in sorted({piece.file for piece in pieces}):
            data = bytearray((folder / name).read_bytes())
            at = dice.randrange(max(0, len(data) - 300), len(data))
            data[at] = dice.randrange(256)
            (folder / name).write_bytes(data)
        whole = {name: (folder / name).read_bytes() for name in {piece.file for piece in copied}}
        return [
            replace(piece, crc32=zlib.crc32(whole[piece.file][piece.start : piece.start + piece.size]))
            for piece in copied
        ]

    monkeypatch.setattr(searching, "copy_pieces", damaged)
    refused = 0
    for attempt in range(25):
        close_indexes()
        options = Options.parse({"cache.disk.path": str(tmp_path / f"cache{attempt}")})
        try:
            index = open_index(store, footer, options)
            index.load({field.name for field in footer.mapping.fields})
            query = Query.term_query(index.view.schema, "t:t", "word1")
            index.rows(query)
            index.top(query, 10)
            index.count(query)
        except SplitError as error:
            assert "a.split" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 5
