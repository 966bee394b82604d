"""An index in pieces: each question brings the fields it asks about to the disk, and no others."""

import io
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tantivy

from indextables.errors import SplitError
from indextables.maintain.figures import components
from indextables.options import Options
from indextables.predicate import Column, Compare, Op, Search, SearchKind, parse_condition
from indextables.split import footer as footers
from indextables.split.footer import Footer, IndexFile, positions_key, read_footer
from indextables.split.index import files
from indextables.split.index.cache import index_cache
from indextables.split.index.cache_entry import CachedPiece
from indextables.split.index.files import unpack
from indextables.split.mapping import Kind
from indextables.split.query.bound_query import SearchFields
from indextables.split.query.filter_pushdown import plan_filter
from indextables.split.query.searcher import IndexSearcher, close_indexes, is_cached, open_index, prewarm
from indextables.split.tantivy_layout import DOC_STORE_FIELD, field_names, field_ranges
from indextables.store import Store, open_store
from tests.split.split_files import opened, write_split

TEXT = {"indexing.typemap.words": "text", "indexing.typemap.doc": "json"}


@pytest.fixture(autouse=True)
def every_field_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 1)
    close_indexes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "t")


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options.parse({"cache.disk.path": str(tmp_path / "cache")})


def rows(count: int = 3000) -> pa.Table:
    numbers = np.random.default_rng(5).integers(0, 50, count)
    return pa.table(
        {
            "id": pa.array(range(count)),
            "number": pa.array(numbers),
            "name": [f"name{n}" for n in numbers],
            "words": [f"line {n} of row{i} is long" for i, n in enumerate(numbers)],
            "doc": [json.dumps({"a": int(n), f"key{n}": {"deep": "yes"}}) for n in numbers],
        }
    )


@pytest.fixture
def split(store: Store) -> Footer:
    write_split(store, "a.split", rows(), TEXT)
    return read_footer(store, "a.split")


def count_by_index(index: IndexSearcher, condition: Any) -> int:
    """How many rows meet a condition, by the index alone."""
    fields = SearchFields(index.footer.schema, (index.footer.mapping,))
    found = plan_filter(condition, index.view, lambda search: fields.bind(search, Options()), Options())
    assert found.residual is None
    return index.count(found.candidates.rows)


def search(column: str, query: str) -> Search:
    return Search(SearchKind.INDEXQUERY, Column((column,)), query)


QUESTIONS: dict[str, Any] = {
    "number": Compare(Op.LT, Column(("number",)), pa.scalar(7)),
    "name": Compare(Op.EQ, Column(("name",)), pa.scalar("name3")),
    "words": search("words", "line AND row17"),
    "phrase": search("words", '"is long"'),
    "doc": search("doc", "doc.key3.deep:yes"),
}


def cached_fields(index: IndexSearcher) -> set[str | None]:
    """The fields whose pieces are all on the disk."""
    pieces = index.footer.pieces
    is_missing = index.lease.is_missing
    return {name for name, own in pieces.items() if not any(is_missing((p.file, p.start)) for p in own)}


def test_pieces_are_the_files_from_the_first_byte_to_the_last(
    store: Store, split: Footer, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    unpack(store, split, tmp_path / "out")
    for file in split.index_files:
        place = 0
        for piece in file.pieces:
            assert piece.start == place
            place += piece.size
        assert place == (tmp_path / "out" / file.name).stat().st_size
    index = tantivy.Index.open(str(tmp_path / "out"))
    assert index.searcher().num_docs == 3000


def test_what_is_needed_together_stands_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small dictionaries come last, next to the footer.
    monkeypatch.setattr(files, "_MAX_LAST_DICTIONARIES", 0)
    write_split(store, "b.split", rows(), TEXT)
    split = read_footer(store, "b.split")
    ends = []
    for pieces in split.pieces.values():
        own = sorted(pieces, key=lambda piece: piece.offset)
        for one, next_one in pairwise(own):
            assert one.offset + one.length == next_one.offset
        ends.append((own[0].offset, own[-1].offset + own[-1].length))
    ends.sort()
    assert [stop for _, stop in ends[:-1]] == [start for start, _ in ends[1:]], "and there are no gaps"


def test_every_field_has_pieces_and_documents_have_theirs(split: Footer) -> None:
    fields = {field.name for field in split.mapping.fields}
    assert {
        positions_key("t:words"),
        DOC_STORE_FIELD,
        "_row",
        "_partial",
        None,
    } | fields <= split.pieces.keys()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_brings_what_it_asks_about_and_nothing_else(
    store: Store, split: Footer, options: Options, name: Any
) -> None:
    index = open_index(store, split, options)
    assert cached_fields(index) == {None}
    fresh = count_by_index(index, QUESTIONS[name])
    column = {"phrase": "words"}.get(name, name)
    own = {field.name for field in split.mapping.fields_of(column)}
    allowed = own | {None, "_partial"} | ({positions_key("t:words")} if name == "phrase" else set())
    assert cached_fields(index) & own
    assert cached_fields(index) <= allowed
    index.load({*split.pieces} - {None})
    assert count_by_index(index, QUESTIONS[name]) == fresh > 0


def test_answers_do_not_depend_on_what_was_asked_before(
    store: Store, split: Footer, options: Options
) -> None:
    expected = {
        name: count_by_index(open_index(store, split, options), QUESTIONS[name]) for name in QUESTIONS
    }
    close_indexes()
    index_cache(options).flush()
    again = {
        name: count_by_index(open_index(store, split, options), QUESTIONS[name])
        for name in reversed(QUESTIONS)
    }
    assert again == expected


def test_positions_come_with_the_first_phrase(store: Store, split: Footer, options: Options) -> None:
    index = open_index(store, split, options)
    assert count_by_index(index, QUESTIONS["words"]) == 1
    assert positions_key("t:words") not in cached_fields(index)
    assert count_by_index(index, QUESTIONS["phrase"]) == 3000
    assert positions_key("t:words") in cached_fields(index)


def test_row_numbers_and_scores_need_the_row_ids(store: Store, split: Footer, options: Options) -> None:
    index = open_index(store, split, options)
    fields = SearchFields(split.schema, (split.mapping,))
    found = plan_filter(
        QUESTIONS["words"], index.view, lambda search: fields.bind(search, Options()), Options()
    )
    assert "_row" not in cached_fields(index)
    assert index.rows(found.candidates.rows).tolist() == [17]
    assert "_row" in cached_fields(index)
    assert index.top(found.candidates.rows, 3).rows.tolist() == [17]


def test_another_process_finds_what_was_brought(
    store: Store, split: Footer, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_by_index(open_index(store, split, options), QUESTIONS["words"]) == 1
    close_indexes()
    monkeypatch.setattr("indextables.split.index.loader.copy_pieces", None)
    index = open_index(store, split, options)
    assert count_by_index(index, QUESTIONS["words"]) == 1
    with pytest.raises(TypeError):
        count_by_index(index, QUESTIONS["phrase"])


def test_threads_that_need_the_same_field_fetch_it_once(
    store: Store, split: Footer, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Any] = []
    together = threading.Barrier(6)
    real = files.copy_pieces

    def copy(store: Any, footer: Any, folder: Any, pieces: Any) -> list[CachedPiece]:
        copied.extend((piece.file, piece.start) for piece in pieces)
        return real(store, footer, folder, pieces)

    monkeypatch.setattr("indextables.split.index.loader.copy_pieces", copy)
    index = open_index(store, split, options)
    copied.clear()

    def ask(_: int) -> int:
        together.wait()
        return count_by_index(index, QUESTIONS["words"])

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(ask, range(6))) == [1] * 6
    assert len(copied) == len(set(copied)) > 0


def test_only_whoever_asks_about_a_damaged_field_hears_of_it(
    store: Store, split: Footer, options: Options, tmp_path: Path
) -> None:
    data = bytearray((tmp_path / "t" / "a.split").read_bytes())
    piece = max(split.pieces["t:words"], key=lambda piece: piece.length)
    data[piece.offset + piece.length // 2] ^= 0xFF
    (tmp_path / "t" / "a.split").write_bytes(data)
    index = open_index(store, split, options)
    assert count_by_index(index, QUESTIONS["name"]) > 0
    for _ in range(2):
        with pytest.raises(SplitError, match=rf"a\.split.*{piece.file}.* is damaged"):
            count_by_index(index, QUESTIONS["words"])
    assert count_by_index(index, QUESTIONS["number"]) > 0


@pytest.mark.parametrize("what", ["an entry", "all"])
def test_a_cache_that_is_deleted_under_an_open_index_is_made_anew(
    store: Store, split: Footer, options: Options, tmp_path: Path, what: str
) -> None:
    index = open_index(store, split, options)
    assert count_by_index(index, QUESTIONS["words"]) == 1
    gone = index.lease.folder if what == "an entry" else index_cache(options).folder
    # Tantivy may put a lock file there meanwhile.
    shutil.rmtree(gone.rename(tmp_path / "gone"), ignore_errors=True)
    assert count_by_index(index, QUESTIONS["words"]) == 1, "what is mapped is still there"
    again = open_index(store, split, options)
    assert again is not index
    assert count_by_index(again, QUESTIONS["name"]) > 0
    # The first index must not take the new files for its own.
    with pytest.raises(SplitError, match="files that are in use were removed"):
        count_by_index(index, QUESTIONS["number"])
    assert count_by_index(open_index(store, split, options), QUESTIONS["number"]) > 0


def test_a_file_that_is_deleted_under_an_open_index_is_fetched_for_the_next_search(
    store: Store, split: Footer, options: Options
) -> None:
    index = open_index(store, split, options)
    for file in index.lease.folder.glob("*.fast"):
        file.unlink()
    with pytest.raises(SplitError, match="could not be written"):
        count_by_index(index, QUESTIONS["number"])
    assert count_by_index(open_index(store, split, options), QUESTIONS["number"]) > 0


def test_a_full_disk_is_told_and_the_next_try_succeeds(
    store: Store, split: Footer, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(store, split, options)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("indextables.split.index.loader.copy_pieces", full)
        with pytest.raises(SplitError, match=r"No space left.*cache\.disk\.path"):
            count_by_index(index, QUESTIONS["words"])
    assert count_by_index(index, QUESTIONS["words"]) == 1


def test_the_cache_counts_bytes_that_are_there_not_those_that_may_come(
    store: Store, options: Options
) -> None:
    rng = np.random.default_rng(3)
    noise = [" ".join(map(str, rng.integers(0, 1 << 40, 8))) for _ in range(20_000)]
    write_split(
        store,
        "b.split",
        rows(20_000).append_column("noise", [noise]),
        {**TEXT, "indexing.typemap.noise": "text"},
    )
    footer = read_footer(store, "b.split")
    index = open_index(store, footer, options)
    assert count_by_index(index, QUESTIONS["number"]) > 0
    part = index_cache(options).stats()
    assert part.bytes < footer.index_bytes / 3
    assert part.bytes_fetched == index.lease.size < footer.index_bytes / 3
    prewarm(store, footer, options)
    assert index_cache(options).stats().bytes > footer.index_bytes / 2


def test_what_is_at_hand_depends_on_the_columns(store: Store, split: Footer, options: Options) -> None:
    def at_hand(*columns: str) -> bool:
        return is_cached(store, split, options, columns)

    assert not at_hand()
    count_by_index(open_index(store, split, options), QUESTIONS["name"])
    for _ in ("open", "closed"):
        told = at_hand(), at_hand("name"), at_hand("Name"), at_hand("name", "number")
        assert told == (True, True, True, False)
        close_indexes()


def test_prewarming_columns_brings_them_and_no_others(store: Store, split: Footer, options: Options) -> None:
    prewarm(store, split, options, ["TERM"], ["words"])
    assert is_cached(store, split, options, ["words"])
    assert not is_cached(store, split, options, ["name"])
    prewarm(store, split, options, ["TERM"])
    assert is_cached(store, split, options, split.schema.names)


def test_splits_of_format_1_are_read(store: Store, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_format(file: IndexFile) -> dict[str, object]:
        (only,) = file.pieces
        return {
            "name": file.name, "offset": only.offset, "length": only.length,
            "size": only.size, "crc32": only.crc32, "blocks": only.blocks,
        }  # fmt: skip

    with monkeypatch.context() as patched:
        patched.setattr(files, "PIECE_BYTES", 1 << 60)
        patched.setattr(footers, "FORMAT_VERSION", 1)
        patched.setattr(IndexFile, "to_json", first_format)
        write_split(store, "old.split", rows(), TEXT)
    footer = read_footer(store, "old.split")
    assert footer.pieces.keys() == {None}
    old = open_index(store, footer, options)
    write_split(store, "new.split", rows(), TEXT)
    new = open_index(store, read_footer(store, "new.split"), options)
    assert [count_by_index(old, q) for q in QUESTIONS.values()] == [
        count_by_index(new, q) for q in QUESTIONS.values()
    ]
    assert {(c.kind, c.column, c.size) for c in components(store, footer) if c.kind == "term"} == {
        (c.kind, c.column, c.size) for c in components(store, new.footer) if c.kind == "term"
    }


def test_small_fields_are_read_with_everything_else(
    store: Store, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 64 << 10)
    write_split(store, "small.split", rows(100), TEXT)
    footer = read_footer(store, "small.split")
    assert footer.pieces.keys() == {None}
    assert all(len(file.pieces) == 1 for file in footer.index_files)
    index = open_index(store, footer, options)
    assert count_by_index(index, QUESTIONS["words"]) == 1


@pytest.mark.parametrize("columns", [1, 40, 900])
def test_columns_are_found_whatever_their_number_and_names(store: Store, columns: int) -> None:
    names = [f"column_with_a_rather_long_name_{n * 7919 % columns:05}" for n in range(columns)]
    docs = [
        json.dumps({f"p{n}": {"q" * 20: n, f"r{n}": f"text{n}"} for n in range(i % 400)}) for i in range(500)
    ]
    table = pa.table({**{name: pa.array(range(500)) for name in names}, "doc": docs, "é": docs})
    write_split(store, "wide.split", table, {"indexing.typemap.doc": "json", "indexing.typemap.é": "json"})
    with opened(store, "wide.split") as (footer, index):
        assert index.searcher().num_docs == 500
    fast = [file for file in footer.index_files if file.name.endswith(".fast")]
    found = {piece.field for file in fast for piece in file.pieces}
    assert found == {field.name for field in footer.mapping.fields if field.fast} | {"_row", None}
    assert {footer.mapping.find(name, Kind.I64).name for name in names} <= found


def test_a_split_without_any_text_has_components_too(store: Store) -> None:
    write_split(store, "numbers.split", pa.table({"n": pa.array(range(100))}))
    found = components(store, read_footer(store, "numbers.split"))
    assert [c.column for c in found if c.kind == "fastfield"] == ["_row", "n"]


def test_a_file_whose_columns_cannot_be_told_apart_stays_whole(store: Store, options: Options) -> None:
    odd = rows().rename_columns(["id", "number", "doc\x01a", "words", "doc"])
    write_split(store, "odd.split", odd, TEXT)
    footer = read_footer(store, "odd.split")
    fast = [file for file in footer.index_files if file.name.endswith(".fast")]
    assert [piece.field for file in fast for piece in file.pieces] == [None] * len(fast)
    assert {c.column for c in components(store, footer) if c.kind == "fastfield"} == {None}
    index = open_index(store, footer, options)
    assert count_by_index(index, Compare(Op.EQ, Column(("doc\x01a",)), pa.scalar("name3"))) > 0
    assert [count_by_index(index, QUESTIONS[name]) > 0 for name in ("number", "doc", "phrase")] == [True] * 3


@pytest.mark.parametrize("suffix", [".term", ".fast", ".store"])
def test_a_directory_that_cannot_be_understood_is_refused(
    store: Store, split: Footer, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "out").mkdir()
    unpack(store, split, tmp_path / "out")
    fields = field_names((tmp_path / "out" / "meta.json").read_bytes())
    data = next(p for p in (tmp_path / "out").iterdir() if p.suffix == suffix).read_bytes()
    assert field_ranges(suffix, data, len(data), fields)
    for spoilt in (data[: len(data) // 2], b"\xff" * 40, data[-60:-8] + b"\xff" * 8):
        with pytest.raises(SplitError, match="no directory of its fields"):
            field_ranges(suffix, spoilt, len(spoilt), fields)


def test_conditions_on_several_columns_are_fetched_at_once(
    store: Store, split: Footer, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = files.copy_pieces

    def copy(store: Any, footer: Any, folder: Any, pieces: Any) -> list[CachedPiece]:
        calls.append({piece.field for piece in pieces})
        return real(store, footer, folder, pieces)

    monkeypatch.setattr("indextables.split.index.loader.copy_pieces", copy)
    index = open_index(store, split, options)
    calls.clear()
    condition = parse_condition("number < 7 AND name = 'name3' AND words INDEXQUERY 'line'", split.schema)
    assert count_by_index(index, condition) > 0
    assert len(calls) == 1
    assert {
        "t:words",
        split.mapping.fields_of("name")[0].name,
        split.mapping.fields_of("number")[0].name,
    } == calls[0]


def test_a_file_that_shrinks_while_it_is_packed_is_an_error_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.idx"
    path.write_bytes(b"x" * 100)
    cut = files._FileRange(path, None, 0, 200)
    with pytest.raises(SplitError, match=r"a\.idx became shorter"):
        files._pack_piece(cut, io.BytesIO(), pa.Codec("zstd"))
