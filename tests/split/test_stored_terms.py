"""The terms of a small split are known from the bytes that are read with its footer."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.split import footer as footers
from indextables.split.footer import Footer, Piece, drop_cached_tails, read_footer, read_ranges, read_tail
from indextables.split.index import files
from indextables.split.index.files import decode_piece
from indextables.split.index.loader import StoredTerms
from indextables.store import Store, open_store
from tests.split.split_files import write_split

INDEXING = {"indexing.typemap.t": "text", "indexing.typemap.s": "string", "indexing.typemap.h": "exact_only"}


def rows(count: int = 3000) -> pa.Table:
    rng = random.Random(count)
    words = [f"word{n}" for n in range(900)] + ["über", "naïve", "zoë"]
    return pa.table(
        {
            "t": [" ".join([*rng.choices(words, k=6), f"row{n}"]) for n in range(count)],
            "s": [f"Value {rng.randrange(400)}" for _ in range(count)],
            "h": [f"{rng.getrandbits(64):x}" for _ in range(count)],
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    drop_cached_tails()
    return open_store(f"memory://stored-{tmp_path.name}/t")


def footer_of(store: Store) -> Footer:
    return read_footer(store, "a.split", tail=read_tail)


def stored_terms(store: Store) -> StoredTerms:
    return StoredTerms(store, footer_of(store))


def dictionary_pieces(footer: Footer) -> list[Piece]:
    return [piece for file in footer.index_files for piece in file.pieces if file.name.endswith(".term")]


def test_every_term_of_the_rows_is_found_and_no_other(store: Store) -> None:
    table = rows()
    write_split(store, "a.split", table, INDEXING)
    stored = stored_terms(store)
    assert stored.are_at_hand
    words = {word for text in table["t"].to_pylist() for word in text.split()}
    values = set(table["s"].to_pylist())
    for field, terms in (("t:t", words), ("s:s", values)):
        assert all(stored.has_any(field, [term]) for term in terms)
        others = {f"{term}{end}" for term in terms for end in ("x", "0")} | {term[:-1] for term in terms}
        assert [other for other in others - terms if stored.has_any(field, [other]) is not False] == []
    assert stored.has_any("t:t", ["absent", "row17"])
    assert stored.has_any("t:t", []) is False


def test_fields_without_a_dictionary_are_unknown(store: Store) -> None:
    write_split(store, "a.split", rows(), INDEXING)
    stored = stored_terms(store)
    assert stored.has_any("h:h", ["absent"]) is None
    assert stored.has_any("t:nothing", ["absent"]) is None


def test_nothing_is_requested_for_a_split_whose_end_was_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_split(store, "a.split", rows(), INDEXING)
    stored = StoredTerms(store, read_footer(store, "a.split"))
    reads: list[object] = []
    monkeypatch.setattr(Store, "get_ranges", lambda *arguments: reads.append(arguments))
    assert not stored.are_at_hand
    assert stored.has_any("t:t", ["word1"]) is None
    assert reads == []


def test_small_dictionaries_come_with_the_footer_and_large_ones_stay_with_their_field(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 1)
    write_split(store, "a.split", rows(), INDEXING)
    footer = footer_of(store)
    others = [p for file in footer.index_files for p in file.pieces if file.name.endswith((".idx", ".pos"))]
    first = min(piece.offset for piece in dictionary_pieces(footer))
    assert first > max(piece.offset for piece in others)
    assert first >= footer.footer_start - footers.tail_bytes(footer.size)
    assert footer.index_files[0].name == footers.META, "files are listed in the same order"
    monkeypatch.setattr(files, "_MAX_LAST_DICTIONARIES", 1000)
    write_split(store, "a.split", rows(), INDEXING)
    footer = footer_of(store)
    positions = [p for file in footer.index_files for p in file.pieces if file.name.endswith(".pos")]
    assert max(piece.offset for piece in dictionary_pieces(footer)) < max(p.offset for p in positions)


def test_pieces_of_a_field_and_of_the_rest_of_a_file_are_joined(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 1)
    write_split(store, "a.split", rows(), INDEXING)
    assert len(dictionary_pieces(footer_of(store))) >= 3
    stored = stored_terms(store)
    assert stored.has_any("t:t", ["row17"])
    assert stored.has_any("s:s", ["Value 1"])
    assert stored.has_any("t:t", ["Value 1"]) is False


def test_a_damaged_dictionary_decides_nothing(store: Store) -> None:
    write_split(store, "a.split", rows(), INDEXING)
    whole = store.get("a.split")
    for piece in dictionary_pieces(footer_of(store)):
        damaged = bytearray(whole)
        damaged[piece.offset + piece.length // 2] ^= 4
        drop_cached_tails()
        store.put("a.split", bytes(damaged))
        assert stored_terms(store).has_any("t:t", ["absent"]) is None


def test_a_piece_in_several_frames_is_decoded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(footers, "BLOCK_BYTES", 5000)
    write_split(store, "a.split", rows(), INDEXING)
    footer = footer_of(store)
    pieces = [piece for piece in dictionary_pieces(footer) if len(piece.blocks) > 1]
    assert pieces
    for piece in pieces:
        (data,) = read_ranges(store, "a.split", footer.size, [(piece.offset, piece.offset + piece.length)])
        assert len(decode_piece("a", piece, data)) == piece.size
    assert stored_terms(store).has_any("t:t", ["row17"])
