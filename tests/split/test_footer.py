"""A footer is read whole and checked, or refused by name."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.errors import SplitError
from indextables.split.footer import CHECKSUM_KEY, FOOTER_KEY, RowIdRange, read_footer
from indextables.split.index.files import unpack
from indextables.store import Store, open_store
from tests.split.every_type import logs
from tests.split.split_files import write_split


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    write_split(store, "a.split", logs(500), {"indexing.typemap.message": "text"})
    return store


def test_a_split_cut_anywhere_is_refused_by_name(store: Store, tmp_path: Path) -> None:
    data = (tmp_path / "a.split").read_bytes()
    for length in [0, 3, 11, 12, 100, len(data) // 2, len(data) - 9, len(data) - 1]:
        (tmp_path / "cut.split").write_bytes(data[:length])
        with pytest.raises(SplitError, match=r"cut\.split"):
            read_footer(store, "cut.split")


def test_flipped_bytes_of_the_footer_are_refused_or_harmless(store: Store, tmp_path: Path) -> None:
    data = (tmp_path / "a.split").read_bytes()
    good = read_footer(store, "a.split")
    for at in np.random.default_rng(3).integers(good.footer_start, len(data), 60):
        spoilt = bytearray(data)
        spoilt[at] ^= 0x55
        (tmp_path / "b.split").write_bytes(spoilt)
        try:
            read_footer(store, "b.split")
        except SplitError as error:
            assert "b.split" in str(error)  # noqa: PT017


def test_other_files_are_refused(store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "plain.parquet")
    with pytest.raises(SplitError, match=r"not a split: its footer has no indextables\.split"):
        read_footer(store, "plain.parquet")
    (tmp_path / "text.split").write_bytes(b"hello world, this is text")
    with pytest.raises(SplitError, match="does not end as a Parquet file"):
        read_footer(store, "text.split")


def altered(tmp_path: Path, change: Any) -> None:
    """The split with other words in its footer."""
    file = pq.ParquetFile(tmp_path / "a.split")
    said = json.loads(file.metadata.metadata[FOOTER_KEY])
    said["formatVersion"] = 2  # written by Parquet's own writer, it has no checksum of the footer
    if change is not None:
        said["termFilters"] = []
        said["index"] = said["index"][:1]
        said["index"][0].update(pieces=[[None, 1, 4, 1, 0, []]])
        change(said)
    text = json.dumps(said)
    writer = pq.ParquetWriter(tmp_path / "other.split", file.schema_arrow.remove_metadata())
    writer.write_table(file.read().replace_schema_metadata(None))
    crc = zlib.crc32(text.encode()) if change is not None else 5
    writer.add_key_value_metadata({FOOTER_KEY.decode(): text, CHECKSUM_KEY.decode(): str(crc)})
    writer.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "its checksum differs"),
        (
            lambda s: s.update(formatVersion=5),
            "split format 5 is unknown, this release reads 1 to 4; upgrade",
        ),
        (
            lambda s: s.update(formatVersion=4),
            "source files belong to the format of companion splits only",
        ),
        (lambda s: s.update(numRecords=7), "7 rows are expected, 500 are in the file"),
        (lambda s: s.pop("chunks"), "cannot be understood"),
        (lambda s: s["index"][0].update(pieces=[[None, 1, 10**12, 1, 0, []]]), "outside of the split"),
        (lambda s: s["index"][0].update(name="../x"), "'../x' is not the name of an index file"),
        (lambda s: s["index"][0].update(name="/etc/passwd", pieces=[]), "is not the name of an index file"),
        (lambda s: s["index"][0].update(name="a.term"), "is not the name of an index file"),
        (lambda s: s["index"][0].update(pieces=[]), "has no pieces"),
        (lambda s: s["index"].append(s["index"][0]), "listed twice"),
        (lambda s: s["index"][0].update(pieces=[[None, 5, 4, 1, 0, []]]), "contradict each other"),
        (lambda s: s["index"][0].update(pieces=[[None, 5, 4, 3, 0, [1, 2]]]), "contradict each other"),
        (lambda s: s["index"][0].update(pieces=[[None, 5, 4, 3, 0, [4]]]), "contradict each other"),
        (lambda s: s["index"][0].update(pieces=[[None, -1, 4, -1, 0, []]]), "cannot be understood"),
        (lambda s: s["index"][0].update(pieces=[[None, "1", 4, 1, 0, []]]), "cannot be understood"),
        (lambda s: s["index"][0].update(pieces=[[7, 1, 4, 1, 0, []]]), "cannot be understood"),
        (
            lambda s: s["index"][0].update(pieces=[[None, 17 << 20, 4, 5, 0, [1] * 5]]),
            "more than 16777216 bytes",
        ),
        (
            lambda s: s["index"][0].update(
                name="0" * 32 + ".idx", pieces=[[None, 1 << 41, 4, 1 << 19, 0, [1] * (1 << 19)]]
            ),
            "outside of the split",
        ),
        (lambda s: s.update(chunks=[[1, 1, 500]]), "rows that the split does not have"),
        (lambda s: s.update(chunks=[[1, 0, 250], [1, 250, 250]]), "the same source"),
        (lambda s: s.update(chunks=[[-1, 0, 500]]), "cannot be understood"),
        (lambda s: s.update(numRecords="500"), "cannot be understood"),
        (lambda s: s.update(partitionValues=[]), "cannot be understood"),
        (lambda s: s.update(mapping={"deep": []}), "mapping cannot be understood"),
        (lambda s: s.update(mapping=[{"name": "a"}]), "mapping cannot be understood"),
        (lambda s: s.update(schema="!!!"), "cannot be understood"),
        (lambda s: s.update(termFilters=[["t:a", 4, 0]]), "the term filter of 't:a' has 0 blocks"),
        (
            lambda s: s.update(termFilters=[["t:a", 4, 1 << 21]]),
            "the term filter of 't:a' has 2097152 blocks",
        ),
        (
            lambda s: s.update(termFilters=[["t:a", 10**9, 1]]),
            "term filter of 't:a' lies outside of the split",
        ),
        (lambda s: s.update(termFilters=[["t:a", 4, 1 << 20]]), "term filter of 't:a' lies outside of the"),
        (lambda s: s.update(termFilters=[[7, 4, 1]]), "cannot be understood"),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(
    store: Store, tmp_path: Path, change: Any, said: str
) -> None:
    altered(tmp_path, change)
    with pytest.raises(SplitError, match=rf"other\.split: .*{said}"):
        read_footer(store, "other.split")


@pytest.fixture(params=["one by one", "at once"])
def however_unpacked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small indexes are unpacked file by file, larger ones by threads."""
    if request.param == "at once":
        monkeypatch.setattr("indextables.split.index.files._MIN_BYTES_FOR_THREADS", 0)


@pytest.mark.usefixtures("however_unpacked")
def test_an_index_is_unpacked_and_the_checksums_of_the_copies_are_told(store: Store, tmp_path: Path) -> None:
    footer = read_footer(store, "a.split")
    (tmp_path / "out").mkdir()
    told = unpack(store, footer, tmp_path / "out")
    copies = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {name: len(data) for name, data in copies.items()} == {
        file.name: file.size for file in footer.index_files
    }
    assert {(piece.file, piece.start) for piece in told} == {
        (piece.file, piece.start) for file in footer.index_files for piece in file.pieces
    }
    for piece in told:
        assert piece.crc32 == zlib.crc32(copies[piece.file][piece.start : piece.start + piece.size])


@pytest.mark.usefixtures("however_unpacked")
def test_a_damaged_index_file_is_refused_by_name(store: Store, tmp_path: Path) -> None:
    footer = read_footer(store, "a.split")
    data = bytearray((tmp_path / "a.split").read_bytes())
    largest = max((p for file in footer.index_files for p in file.pieces), key=lambda piece: piece.length)
    data[largest.offset + largest.length // 2] ^= 0xFF
    (tmp_path / "b.split").write_bytes(data)
    (tmp_path / "out").mkdir()
    with pytest.raises(SplitError, match=f"b.split.*{largest.file}.* is damaged"):
        unpack(store, read_footer(store, "b.split"), tmp_path / "out")


def test_row_ids_of_several_chunks_become_row_numbers(store: Store) -> None:
    footer = replace(
        read_footer(store, "a.split"),
        row_id_ranges=(RowIdRange(9, 0, 10), RowIdRange(2, 10, 5), RowIdRange(5, 15, 5)),
    )
    ids = np.array([9 << 32, (9 << 32) + 9, 2 << 32, (5 << 32) + 4, (2 << 32) + 4])
    assert footer.row_numbers(ids).tolist() == [0, 9, 10, 19, 14]
