"""Every byte between a split and its rows has a checksum, and readers compare it."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext

from indextables.errors import SplitError, UnreadableSplitError
from indextables.maintain.figures import components
from indextables.options import Options
from indextables.split import footer as footers
from indextables.split.checksum import add_extension, crc32, is_sealed, seal, split_extension
from indextables.split.footer import Footer, read_footer
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.parquet.pages import page_checksums, page_locations
from indextables.split.parquet.reader import RowReader
from indextables.store import Store, open_store
from tests.split.every_type import logs
from tests.split.split_files import table_of, write_split

ROWS = 3000
OPTIONS = {"write.rowGroupSize": "300K", "write.pageSize": "4K"}


def table() -> Any:
    nested = pa.array([None if i % 7 == 0 else {"a": i, "b": [str(i)] * (i % 3)} for i in range(ROWS)])
    return logs(ROWS).append_column("nested", nested)


TABLE = table()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checksums")
    write_split(open_store(folder), "a.split", TABLE, OPTIONS)
    return folder


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Store:
    (tmp_path / "a.split").write_bytes((folder / "a.split").read_bytes())
    return open_store(tmp_path)


def column_chunks(footer: Footer) -> Iterator[Any]:
    """The place of every column chunk: its path, its first byte and its length."""
    for group in map(footer.parquet.row_group, range(footer.parquet.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            yield column.path_in_schema, start, column.total_compressed_size


def damaged(store: Store, tmp_path: Path, at: Any, flip: int = 0x10) -> RowReader:
    data = bytearray((tmp_path / "a.split").read_bytes())
    data[at] ^= flip
    (tmp_path / "b.split").write_bytes(data)
    return RowReader(store, read_footer(store, "b.split"))


def refused(read: Any) -> None:
    with pytest.raises(SplitError, match=r"b\.split: the rows cannot be read \(.* differs from its checksum"):
        read()


def test_a_flipped_bit_in_any_column_chunk_is_refused_by_scans(store: Store, tmp_path: Path) -> None:
    footer = read_footer(store, "a.split")
    random = np.random.default_rng()
    for path, start, length in column_chunks(footer):
        rows = damaged(store, tmp_path, start + int(random.integers(length)), 1 << int(random.integers(8)))
        top = path.split(".")[0]
        refused(lambda rows=rows, top=top: list(rows.scan([top])))
        refused(lambda rows=rows: list(rows.groups()))
        if top != "_row":
            refused(lambda rows=rows: list(rows.scan()))


def test_a_flipped_bit_is_refused_by_scans_of_an_object_store(store: Store, tmp_path: Path) -> None:
    remote = open_store("memory://checksums")
    _, start, length = next(c for c in column_chunks(read_footer(store, "a.split")) if c[0] == "nested.a")
    damaged(store, tmp_path, start + length // 2)
    remote.put("b.split", (tmp_path / "b.split").read_bytes())
    rows = RowReader(remote, read_footer(remote, "b.split"))
    refused(lambda: list(rows.scan(["nested"])))
    refused(lambda: list(rows.scan()))
    refused(lambda: rows.fetch(np.array([5]), ["nested"]))
    assert pa.Table.from_batches(rows.scan(["status"])).equals(TABLE.select(["status"]))


def test_a_flipped_bit_in_any_page_is_refused_by_fetches(store: Store, tmp_path: Path) -> None:
    footer = read_footer(store, "a.split")
    for path, start, length in column_chunks(footer):
        if "." not in path and path != "_row":
            for at in (0, 3, 12, length // 2, length - 1):
                refused(
                    lambda at=start + at, path=path: damaged(store, tmp_path, at).fetch(
                        np.arange(ROWS), [path]
                    )
                )


def test_pages_that_hold_no_damage_are_still_read(store: Store, tmp_path: Path) -> None:
    _, start, length = next(c for c in column_chunks(read_footer(store, "a.split")) if c[0] == "message")
    rows = damaged(store, tmp_path, start + length - 1)
    assert rows.fetch(np.array([0]), ["message"]).equals(TABLE.select(["message"]).slice(0, 1))


def test_a_damaged_page_index_is_refused(store: Store, tmp_path: Path) -> None:
    footer = read_footer(store, "a.split")
    layout = RowReader(store, footer)._layout
    for name, leaf in layout.flat.items():
        if name == "_row":
            continue
        start, end = layout.page_index_range(0, leaf)
        for at in (start, (start + end) // 2, end - 1):
            refused(lambda at=at, name=name: damaged(store, tmp_path, at).fetch(np.array([1]), [name]))


def test_a_flipped_bit_in_the_footer_is_refused(store: Store, tmp_path: Path) -> None:
    data = (tmp_path / "a.split").read_bytes()
    start = read_footer(store, "a.split").footer_start
    for at in [
        *np.random.default_rng().integers(start, len(data) - 8, 150),
        *range(len(data) - 40, len(data)),
    ]:
        spoilt = bytearray(data)
        spoilt[at] ^= 0x04
        (tmp_path / "b.split").write_bytes(spoilt)
        with pytest.raises(SplitError, match=r"b\.split"):
            read_footer(store, "b.split")


def test_a_footer_that_lost_its_checksum_is_refused(store: Store, tmp_path: Path) -> None:
    data = (tmp_path / "a.split").read_bytes()
    footer, found = split_extension(data[read_footer(store, "a.split").footer_start : -8], 1)
    assert found is not None
    start = read_footer(store, "a.split").footer_start
    (tmp_path / "b.split").write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SplitError, match=r"b\.split: .*its checksum is missing"):
        read_footer(store, "b.split")


def test_a_damaged_chunk_is_not_merged(store: Store, tmp_path: Path) -> None:
    _, start, length = max(column_chunks(read_footer(store, "a.split")), key=lambda c: c[2])
    damaged(store, tmp_path, start + length // 2)
    options = Options.parse(OPTIONS)
    sources = [
        MergeSource.of(store, read_footer(store, name), TABLE.schema) for name in ("a.split", "b.split")
    ]
    sink: Any = store.open_upload("m.split")
    with pytest.raises(UnreadableSplitError, match=r"b\.split.*checksum"):
        merge_splits(sources, sink, TABLE.schema, mapping_for(TABLE.schema, options), options)
    sink.abort()


@pytest.mark.parametrize("made", [2, 3], ids=["of format 2", "of format 3"])
def test_row_groups_that_a_merge_copies_have_checksums(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(footers, "FORMAT_VERSION", made)
        for name in ("1.split", "2.split"):
            write_split(store, name, TABLE, OPTIONS)
    assert (read_footer(store, "1.split").checksums is None) == (made == 2)
    options = Options.parse(OPTIONS)
    sources = [
        MergeSource.of(store, read_footer(store, name), TABLE.schema) for name in ("1.split", "2.split")
    ]
    sink: Any = store.open_upload("a.split")
    merge_splits(sources, sink, TABLE.schema, mapping_for(TABLE.schema, options), options)
    sink.close()
    footer = read_footer(store, "a.split")
    data = (tmp_path / "a.split").read_bytes()
    chunks = [crc32(data[start : start + length]) for _, start, length in column_chunks(footer)]
    assert [c.chunk for group in footer.checksums for c in group] == chunks
    layout = RowReader(store, footer)._layout
    for group in range(footer.parquet.num_row_groups):
        for leaf in layout.flat.values():
            start, end = layout.page_index_range(group, leaf)
            places = page_locations(data[start:end]).tolist()
            _, *pages = page_checksums(data[start:end], len(places))
            assert pages == [crc32(data[at : at + length]) for at, length, _ in places]
    assert table_of(store, "a.split").equals(pa.concat_tables([TABLE, TABLE]))


def test_other_readers_pass_over_the_checksums(tmp_path: Path, store: Store) -> None:
    path = str(tmp_path / "a.split")
    assert pq.read_table(path, page_checksum_verification=True).drop_columns(["_row"]).equals(TABLE)
    assert duckdb.sql(f"SELECT count(*), sum(status) FROM read_parquet('{path}')").fetchall() == [
        (ROWS, sum(TABLE["status"].to_pylist()))
    ]
    context = SessionContext()
    context.register_parquet("t", path, file_extension=".split")
    found = context.sql("SELECT message FROM t WHERE _row = 1234").to_arrow_table()
    assert found["message"].to_pylist() == [TABLE["message"][1234].as_py()]


def test_readers_of_others_can_detect_damage_by_the_checksums_of_parquet(
    tmp_path: Path, store: Store
) -> None:
    _, start, length = next(c for c in column_chunks(read_footer(store, "a.split")) if c[0] == "latency")
    data = bytearray((tmp_path / "a.split").read_bytes())
    data[start + length - 1] ^= 1
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(io.BytesIO(bytes(data)), page_checksum_verification=True)


def test_extensions_survive_and_others_are_not_taken_for_ours() -> None:
    struct = b"\x15\x02\x00"
    for count in (0, 1, 40, 5000):
        assert split_extension(add_extension(struct, list(range(count))), count) == (
            struct,
            list(range(count)),
        )
    assert split_extension(struct, 1) == (struct, None)
    assert split_extension(add_extension(struct, [1, 2]), 1)[1] is None
    assert is_sealed(seal(struct))
    assert not is_sealed(struct)


def test_components_of_a_damaged_index_are_an_error_that_names_the_split(
    store: Store, tmp_path: Path
) -> None:
    footer = read_footer(store, "a.split")
    data = (tmp_path / "a.split").read_bytes()
    for file in footer.index_files:
        piece = file.pieces[-1]
        spoilt = bytearray(data)
        spoilt[piece.offset + piece.length // 2] ^= 1
        (tmp_path / "b.split").write_bytes(spoilt)
        if file.name.endswith((".store", ".pos")):
            continue
        with pytest.raises(SplitError, match=rf"b\.split: the index file {file.name} is damaged"):
            components(store, read_footer(store, "b.split"))
