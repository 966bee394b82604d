"""Rows by number are the rows at these numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import SplitError
from indextables.split.footer import read_footer
from indextables.split.parquet.metadata import (
    BINARY,
    DOUBLE,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    read_struct,
    write_struct,
)
from indextables.split.parquet.reader import RowReader
from indextables.store import open_store
from tests.split.every_type import every_type, logs
from tests.split.split_files import rows_of, write_split

ROWS = 12_000
SMALL = {"write.rowGroupSize": "400k", "write.pageSize": "2k"}


def wide_table() -> Any:
    table = logs(ROWS)
    numbers = np.arange(ROWS)
    few = pa.array(np.where(numbers % 3 == 0, None, numbers % 5), from_pandas=True)
    lists = pa.array([None if i % 7 == 0 else list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int32()))
    structs = pa.array([None if i % 11 == 0 else {"a": i, "b": {"c": str(i)}} for i in range(ROWS)])
    texts = pa.array(["" if i % 2 else None for i in range(ROWS)])
    table = table.append_column("few", few.cast(pa.int16())).append_column("lists", lists)
    table = table.append_column("structs", structs).append_column("empty", texts)
    return table.append_column("span", pa.array(numbers).cast(pa.duration("us")))


TABLE = wide_table()


@pytest.fixture(scope="module", params=["local", "memory"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RowReader:
    url = tmp_path_factory.mktemp("rows") if request.param == "local" else "memory://rows"
    store = open_store(url)
    write_split(store, "a.split", TABLE, SMALL)
    return rows_of(store, "a.split")


def test_there_are_several_row_groups_and_pages(rows: RowReader) -> None:
    assert rows._footer.parquet.num_row_groups >= 3


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, ROWS - 1), max_size=40),
    st.lists(st.sampled_from([*TABLE.column_names, "_row"]), unique=True),
)
def test_fetched_rows_are_those_of_the_table(rows: RowReader, wanted: Any, columns: Any) -> None:
    numbers = np.array(sorted(wanted), np.int64)
    found = rows.fetch(numbers, columns)
    expected = TABLE.append_column("_row", pa.array(np.arange(ROWS))).take(pa.array(numbers)).select(columns)
    assert found.column_names == columns
    if columns:
        assert found.num_rows == len(numbers)
    for name in columns:
        assert found[name].combine_chunks().equals(expected[name].combine_chunks()), name


@pytest.mark.parametrize(
    "numbers", [np.arange(ROWS), np.arange(0, ROWS, 2), np.arange(5000, 5100), np.array([ROWS - 1])]
)
def test_many_rows_are_fetched_as_well(rows: RowReader, numbers: Any) -> None:
    assert rows.fetch(numbers).equals(TABLE.take(pa.array(numbers)))
    assert pa.Table.from_batches(rows.batches(numbers, ["ts", "lists"])).equals(
        TABLE.take(pa.array(numbers)).select(["ts", "lists"])
    )


def test_a_scan_gives_all_rows_in_order(rows: RowReader) -> None:
    assert pa.Table.from_batches(rows.scan()).equals(TABLE)
    assert pa.Table.from_batches(rows.scan(["status", "_row"], batch_rows=100))["_row"].to_pylist() == list(
        range(ROWS)
    )


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (4000, 9001), (ROWS - 1, ROWS), (ROWS, ROWS), (10, 10), (0, 10**9)]
)
def test_a_scan_can_be_of_a_range(rows: RowReader, start: int, end: int) -> None:
    found = pa.Table.from_batches(
        rows.scan(["structs"], start=start, end=end), pa.schema([TABLE.schema.field("structs")])
    )
    assert found.equals(TABLE.select(["structs"]).slice(start, max(0, end - start)))


def test_a_scan_of_no_columns_counts_the_rows(rows: RowReader) -> None:
    assert sum(batch.num_rows for batch in rows.scan([])) == ROWS


def test_unknown_columns_and_rows_are_errors(rows: RowReader) -> None:
    with pytest.raises(SplitError, match="no column 'nope'; the columns are"):
        rows.fetch(np.array([1]), ["nope"])
    with pytest.raises(SplitError, match=f"no row {ROWS}"):
        rows.fetch(np.array([ROWS]))


def test_every_type_is_fetched_as_it_was(tmp_path: Path) -> None:
    store, table = open_store(tmp_path), every_type()
    write_split(store, "a.split", table)
    found = rows_of(store, "a.split").fetch(np.array([0, 3, 7]))
    assert found.schema == table.schema
    expected = table.take([0, 3, 7])
    for name in table.column_names:
        if name in ("float", "double"):
            assert [repr(v) for v in found[name].to_pylist()] == [repr(v) for v in expected[name].to_pylist()]
        else:
            assert found[name].combine_chunks().equals(expected[name].combine_chunks()), name


def test_a_split_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", logs(100))
    footer = read_footer(store, "a.split")
    (tmp_path / "a.split").write_bytes(b"x" * 50)
    with pytest.raises(SplitError, match="50 bytes instead of"):
        RowReader(store, footer)


def test_a_split_that_is_cut_while_it_is_open_is_an_error_not_a_crash(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", logs(3000))
    rows = RowReader(store, read_footer(store, "a.split"))
    assert rows.fetch(np.array([5])).num_rows == 1
    with (tmp_path / "a.split").open("r+b") as file:
        file.truncate(100)
    for read in (
        lambda: rows.fetch(np.array([6])),
        lambda: list(rows.scan()),
        lambda: list(rows.scan(["level"])),
    ):
        with pytest.raises(SplitError, match=r"a\.split: .*was truncated since it was opened"):
            read()


def test_damaged_pages_are_an_error_that_names_the_split(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", logs(3000))
    data = bytearray((tmp_path / "a.split").read_bytes())
    data[4:60_000] = bytes(59_996)
    (tmp_path / "b.split").write_bytes(data)
    rows = RowReader(store, read_footer(store, "b.split"))
    with pytest.raises(SplitError, match=r"b\.split: the rows cannot be read"):
        rows.fetch(np.arange(3000))
    with pytest.raises(SplitError, match=r"b\.split: the rows cannot be read"):
        list(rows.scan())


NUMBERS = st.integers(-(2**63), 2**63 - 1).map(lambda n: (I64, n))
LEAVES = (
    NUMBERS
    | st.binary(max_size=20).map(lambda b: (BINARY, b))
    | st.sampled_from([(TRUE, None), (FALSE, None), (DOUBLE, 1.5)])
)
FIELDS = st.integers(1, 40)
STRUCTS = st.recursive(
    st.dictionaries(FIELDS, LEAVES, max_size=4),
    lambda inner: st.dictionaries(
        FIELDS,
        LEAVES | inner.map(lambda s: (STRUCT, s)) | st.lists(inner, max_size=20).map(lambda s: (LIST, (STRUCT, s)))
        | st.lists(st.integers(-100, 100), max_size=20).map(lambda n: (LIST, (I32, n))),
        max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip


@given(STRUCTS)
def test_thrift_structs_survive(values: Any) -> None:
    data = write_struct(values)
    assert read_struct(data) == (values, len(data))


def test_few_rows_of_several_row_groups_come_together(rows: RowReader) -> None:
    numbers = np.arange(10, ROWS, 500)
    assert [batch.num_rows for batch in rows.batches(numbers, ["level"])] == [len(numbers)]
    assert list(rows.batches(np.zeros(0, np.int64), ["level"])) == []


def test_a_column_is_compressed_by_what_suits_it() -> None:
    store = open_store("memory://compressed")
    random = np.random.default_rng(1)
    phrases = ["".join(random.choice(list("abcdefghij klmnopq"), 60)) for _ in range(6)]
    texts = pa.array([" ".join(random.choice(phrases, 12)) for _ in range(ROWS)])
    write_split(store, "a.split", TABLE.set_column(TABLE.column_names.index("message"), "message", texts), {})
    group = rows_of(store, "a.split")._footer.parquet.row_group(0)
    used = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert used["message"].compression == "LZ4"
    assert used["trace_id"].compression == "ZSTD"
    assert used["level"].compression == "UNCOMPRESSED"
    assert not used["message"].is_stats_set
    assert used["trace_id"].is_stats_set


@pytest.fixture(scope="module", params=["local", "memory"])
def large_rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows of 100 KB each, but a few."""
    url = tmp_path_factory.mktemp("large") if request.param == "local" else "memory://large"
    store = open_store(url)
    texts = [f"{i} " + ("x" if i % 7 else "longer ") * (100_000 if i % 10 else 5) for i in range(200)]
    table = pa.table({"id": range(200), "text": texts, "other": [t[:20] for t in texts]})
    write_split(store, "a.split", table, {"indexing.typemap.text": "text", "write.rowGroupSize": "4M"})
    return table, rows_of(store, "a.split")


@pytest.mark.parametrize("columns", [["id", "text", "other"], ["text"], ["id"]])
def test_batches_have_no_more_bytes_than_allowed(large_rows: Any, columns: list[str]) -> None:
    table, rows = large_rows
    most = 1 << 20
    for batches in (
        list(rows.scan(columns, batch_rows=32768, batch_bytes=most)),
        list(rows.batches(np.arange(200), columns, batch_bytes=most)),
    ):
        assert pa.Table.from_batches(batches).equals(table.select(columns))
        assert max(batch.nbytes for batch in batches) <= most
    some = np.arange(0, 200, 3)
    batches = list(rows.batches(some, columns, batch_bytes=most))
    assert pa.Table.from_batches(batches).equals(table.select(columns).take(some))
    assert max(batch.nbytes for batch in batches) <= most


def test_few_large_rows_of_several_row_groups_are_not_fetched_together(
    large_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows = large_rows
    fetched = []
    real = RowReader.fetch
    monkeypatch.setattr(
        RowReader, "fetch", lambda self, n, c: fetched.append(real(self, n, c)) or fetched[-1]
    )
    some = np.arange(1, 200, 2)
    list(rows.batches(some, ["text"], batch_bytes=1 << 20))
    assert len(fetched) > 3
    assert max(part.nbytes for part in fetched) < 6 << 20, "a row group, and no more"


def test_a_single_row_may_be_larger_than_a_batch(large_rows: Any) -> None:
    table, rows = large_rows
    batches = list(rows.scan(["text"], batch_bytes=1000))
    assert pa.Table.from_batches(batches).equals(table.select(["text"]))
    assert max(batch.num_rows for batch in batches if batch.nbytes > 1000) == 1
