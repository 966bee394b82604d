"""Row groups are copied as they are, and the file around them is an ordinary Parquet file."""

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from hypothesis import given

import indextables
from indextables.errors import UnreadableSplitError
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.parquet import writer
from indextables.split.parquet.metadata import I32, I64, LIST, STRUCT, write_struct
from indextables.split.parquet.pages import page_locations, shift_pages
from indextables.split.parquet.reader import RowReader
from indextables.split.writer import SplitFile
from indextables.store import Store, open_store
from tests.split.split_files import rows_of, table_of, write_split

ROWS = 6000
# A row group holds about two thousand rows; a sixteenth of that is worth copying.
OPTIONS = {"indexing.typemap.message": "text", "write.rowGroupSize": "96K", "write.pageSize": "4K"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def logs(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "level": [("INFO", "WARN", "ERROR")[i % 3] for i in numbers],
            "message": [f"request {i} to host{i % 17} took {i * 7919 % 1000} ms" for i in numbers],
            "tags": [None if i % 5 == 0 else [f"t{i % 7}", f"u{i % 3}"] for i in numbers],
        }
    )


def merged(store: Store, paths: list[Any], schema: Any, options: dict[str, Any] = OPTIONS) -> SplitFile:
    given_options = Options.parse(options)
    sources = [MergeSource.of(store, read_footer(store, path), schema) for path in paths]
    sink: Any = store.open_upload("m.split")
    built = merge_splits(sources, sink, schema, mapping_for(schema, given_options), given_options)
    sink.close()
    return built


def pages_of(path: Path) -> list[bytes]:
    """The bytes of every column chunk but that of the row numbers."""
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    found = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns - 1)):
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            found.append(data[start : start + column.total_compressed_size])
    return found


def test_large_row_groups_are_copied_byte_by_byte(store: Store, tmp_path: Path) -> None:
    parts = [logs(0, ROWS), logs(ROWS, ROWS)]
    for number, part in enumerate(parts):
        write_split(store, f"{number}.split", part, OPTIONS)
    merged(store, ["0.split", "1.split"], parts[0].schema)
    assert pages_of(tmp_path / "m.split") == [
        *pages_of(tmp_path / "0.split"),
        *pages_of(tmp_path / "1.split"),
    ]
    assert table_of(store, "m.split").equals(pa.concat_tables(parts))


def test_other_readers_read_a_file_of_copied_row_groups(store: Store, tmp_path: Path) -> None:
    parts = [logs(0, ROWS), logs(ROWS, ROWS)]
    for number, part in enumerate(parts):
        write_split(store, f"{number}.split", part, OPTIONS)
    merged(store, ["0.split", "1.split"], parts[0].schema)
    path = str(tmp_path / "m.split")
    whole = pa.concat_tables(parts)
    assert pq.read_table(path).drop_columns(["_row"]).equals(whole)
    assert pq.read_table(path)["_row"].to_pylist() == list(range(2 * ROWS))
    # Conditions that page indexes and statistics of row groups narrow.
    chosen = duckdb.sql(f"SELECT n, _row FROM read_parquet('{path}') WHERE n = {ROWS + 7}").fetchall()
    assert chosen == [(ROWS + 7, ROWS + 7)]
    context = SessionContext()
    context.register_parquet("m", path, file_extension=".split")
    found = context.sql(f"SELECT n FROM m WHERE _row BETWEEN {ROWS - 2} AND {ROWS + 1} ORDER BY n")
    assert found.to_arrow_table()["n"].to_pylist() == [ROWS - 2, ROWS - 1, ROWS, ROWS + 1]


def test_single_rows_are_found_in_copied_row_groups(store: Store) -> None:
    parts = [logs(0, ROWS), logs(ROWS, ROWS)]
    for number, part in enumerate(parts):
        write_split(store, f"{number}.split", part, OPTIONS)
    merged(store, ["0.split", "1.split"], parts[0].schema)
    numbers = np.array([0, 999, 1000, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS - 1])
    fetched = rows_of(store, "m.split").fetch(numbers)
    assert fetched.equals(pa.concat_tables(parts).take(numbers).combine_chunks())


def test_small_row_groups_become_large_ones(store: Store) -> None:
    parts = [logs(i * 20, 20) for i in range(40)]
    for number, part in enumerate(parts):
        write_split(store, f"{number}.split", part, OPTIONS)
    merged(store, [f"{number}.split" for number in range(40)], parts[0].schema)
    assert read_footer(store, "m.split").parquet.num_row_groups <= 2
    assert table_of(store, "m.split").equals(pa.concat_tables(parts))


def test_a_few_rows_before_a_large_row_group_do_not_stand_alone(store: Store) -> None:
    parts = [logs(0, 20), logs(20, ROWS), logs(20 + ROWS, 20), logs(40 + ROWS, ROWS)]
    for number, part in enumerate(parts):
        write_split(store, f"{number}.split", part, OPTIONS)
    merged(store, [f"{number}.split" for number in range(4)], parts[0].schema)
    metadata = read_footer(store, "m.split").parquet
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert min(rows) > 20
    assert table_of(store, "m.split").equals(pa.concat_tables(parts))


def test_a_damaged_page_is_not_copied(store: Store, tmp_path: Path) -> None:
    part = logs(0, ROWS)
    for number in range(2):
        write_split(store, f"{number}.split", part, OPTIONS)
    path = tmp_path / "1.split"
    column = pq.read_metadata(path).row_group(1).column(2)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(UnreadableSplitError, match=r"1\.split"):
        merged(store, ["0.split", "1.split"], part.schema)


def test_every_row_group_is_given_with_its_rows(store: Store) -> None:
    table = logs(0, ROWS)
    write_split(store, "a.split", table, OPTIONS)
    groups = list(RowReader(store, read_footer(store, "a.split")).groups())
    assert len(groups) == 3
    assert pa.concat_tables(group.rows for group in groups).equals(table)
    assert sum(group.encoded.rows for group in groups) == ROWS


places = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(0, 2**31 - 1), st.integers(0, 2**33)), max_size=40
)


@given(places, st.integers(0, 2**40), st.booleans())
def test_a_moved_page_index_says_the_same_of_other_places(locations: Any, by: Any, sizes: Any) -> None:
    items = [{1: (I64, a), 2: (I32, b), 3: (I64, c)} for a, b, c in locations]
    more = {2: (LIST, (I64, [1, 300]))} if sizes else {}
    index = write_struct({1: (LIST, (STRUCT, items)), **more})
    after = shift_pages(index, by)
    assert page_locations(after).tolist() == [[a + by, b, c] for a, b, c in locations]
    assert after == write_struct(
        {1: (LIST, (STRUCT, [{**item, 1: (I64, item[1][1] + by)} for item in items])), **more}
    )


def test_an_empty_split_is_a_parquet_file(store: Store, tmp_path: Path) -> None:
    write_split(store, "e.split", logs(0, 1).slice(1), OPTIONS)
    assert pq.read_table(io.BytesIO((tmp_path / "e.split").read_bytes())).num_rows == 0


def test_decimals_are_integers_and_splits_with_decimals_as_bytes_are_read_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases stored decimals of any length as bytes."""
    types = [pa.decimal128(digits, 2) for digits in (5, 9, 10, 18, 19, 38)]
    rows = 4000

    def numbers(start: int) -> pa.Table:
        own = [
            None if i % 13 == 0 else Decimal((-1) ** i * (i * 7919 % 99_999)).scaleb(-2)
            for i in range(start, start + rows)
        ]
        columns = {f"d{each.precision}": pa.array(own, pa.decimal128(9, 2)).cast(each) for each in types}
        return pa.table({"n": pa.array(range(start, start + rows), pa.int64()), **columns})

    options = {"write.rowGroupSize": "16K", "write.pageSize": "4K"}
    settings = writer._settings
    with monkeypatch.context() as patch:
        patch.setattr(
            writer,
            "_settings",
            lambda *given: settings(*given) | {"store_decimal_as_integer": False, "column_encoding": None},
        )
        indextables.write(tmp_path, numbers(0), options=options)
    indextables.write(tmp_path, numbers(rows), options=options)
    both = pa.concat_tables([numbers(0), numbers(rows)])

    def stored() -> set[tuple[str, ...]]:
        files = (
            pq.ParquetFile(tmp_path / path).metadata
            for path in indextables.open(tmp_path).files()["path"].to_pylist()
        )
        return {tuple(file.row_group(0).column(i).physical_type for i in range(1, 7)) for file in files}

    bytes_, integers = "FIXED_LEN_BYTE_ARRAY", ("INT32", "INT32", "INT64", "INT64")
    assert stored() == {(bytes_,) * 6, (*integers, bytes_, bytes_)}
    for _ in range(2):
        table = indextables.open(tmp_path)
        assert table.scan().sort_by("n").equals(both)
        # Single rows are read by page.
        chosen = [0, 1, 13, rows - 1, rows, 2 * rows - 1]
        few = table.scan(where=f"n IN ({', '.join(map(str, chosen))})").sort_by("n")
        assert few.equals(both.take(pa.array(chosen)))
        value = both["d18"][1].as_py()
        expected = [
            n for n, d in zip(both["n"].to_pylist(), both["d18"].to_pylist(), strict=True) if d == value
        ]
        assert sorted(table.scan(["n"], f"d18 = {value} AND d38 = {value}")["n"].to_pylist()) == expected
        table.merge()
    assert stored() == {(*integers, bytes_, bytes_)}
