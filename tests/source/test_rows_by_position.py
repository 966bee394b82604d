"""Rows at positions equal the rows of a scan, for files of many writers; few rows cost few bytes."""

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import metrics
from indextables.errors import SourceChangedError, SourceError, UnsupportedSourceError
from indextables.options import Options
from indextables.source import SourceReader, open_source
from indextables.source.locations import Locations
from indextables.source.parquet_file import FileBytes, ParquetFile
from indextables.store import open_store
from indextables.store.handle import FETCHED
from tests.servers.fixtures import StoreUrl

ROWS = 5000


def table(rows: int = ROWS) -> pa.Table:
    draw = random.Random(rows)
    numbers = range(rows)

    def some(make: Any) -> list[Any]:
        return [None if draw.random() < 0.1 else make(i) for i in numbers]

    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "flag": pa.array(some(lambda i: i % 3 == 0), pa.bool_()),
            "small": pa.array(some(lambda i: i % 100 - 50), pa.int8()),
            "ratio": pa.array(some(lambda i: i / 7), pa.float64()),
            "level": pa.array(some(lambda i: ("INFO", "WARN", "ERROR")[i % 3]), pa.string()),
            "message": pa.array(
                some(lambda i: f"message {draw.randbytes(12).hex()} of row {i}"), pa.string()
            ),
            "raw": pa.array(some(lambda i: bytes([i % 256]) * (i % 5)), pa.binary()),
            "amount": pa.array(some(lambda i: decimal.Decimal(i) / 100), pa.decimal128(12, 2)),
            "day": pa.array(some(lambda i: dt.date(2024, 1, 1) + dt.timedelta(i % 400)), pa.date32()),
            "at": pa.array(some(lambda i: i * 1_000_003), pa.timestamp("us", "UTC")),
            "tags": pa.array(some(lambda i: [f"t{i % 7}", None][: i % 3]), pa.list_(pa.string())),
            "client": pa.array(
                some(lambda i: {"ip": f"10.0.0.{i % 256}", "port": i % 99 or None}),
                pa.struct([("ip", pa.string()), ("port", pa.int32())]),
            ),
        }
    )


def write_pyarrow(**settings: Any) -> Callable[..., Any]:
    return lambda path: pq.write_table(table(), path, **settings)


def write_duckdb(path: Any) -> None:
    data = table()  # noqa: F841 - named in the query
    duckdb.sql(f"COPY (FROM data) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


WRITERS = {
    "pyarrow": write_pyarrow(row_group_size=1700, data_page_size=1024),
    "page index": write_pyarrow(row_group_size=1700, data_page_size=1024, write_page_index=True),
    "page v2": write_pyarrow(data_page_version="2.0", data_page_size=900, compression="zstd"),
    "page v2 index": write_pyarrow(data_page_version="2.0", data_page_size=900, write_page_index=True),
    "no dictionary": write_pyarrow(use_dictionary=False, data_page_size=2000, compression="gzip"),
    "dictionary that overflows": write_pyarrow(dictionary_pagesize_limit=600, data_page_size=900),
    "overflow, page v2": write_pyarrow(
        dictionary_pagesize_limit=600, data_page_size=900, data_page_version="2.0", write_page_index=True
    ),
    "int96": write_pyarrow(use_deprecated_int96_timestamps=True, data_page_size=2000),
    "lz4": write_pyarrow(compression="lz4", row_group_size=100),
    "one page": write_pyarrow(compression="none", data_page_size=1 << 30),
    "polars": lambda path: cast("Any", pl.from_arrow(table())).write_parquet(
        path, row_group_size=1111, data_page_size=1500
    ),
    "duckdb": write_duckdb,
}


def open_file(path: Path) -> ParquetFile:
    place = Locations(str(path.parent), open_store).resolve(path.name, encoded=False)
    return ParquetFile(FileBytes(place, path.stat().st_size))


@pytest.mark.parametrize("writer", WRITERS)
def test_rows_by_position_equal_a_scan(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "part.parquet")
    snapshot = open_source("parquet", str(tmp_path))
    reader = SourceReader(snapshot)
    (file,) = snapshot.files
    whole = pa.Table.from_batches(list(reader.read(file)))
    assert whole.num_rows == ROWS
    for name in ("id", "level", "message", "amount", "day", "tags", "client"):
        assert whole[name].to_pylist() == table()[name].to_pylist(), name
    assert whole["at"].cast(pa.int64()).to_pylist() == table()["at"].cast(pa.int64()).to_pylist()
    draw = random.Random(writer)
    choices = [[0], [ROWS - 1], list(range(ROWS)), list(range(1690, 1710))]
    choices += [sorted(draw.sample(range(ROWS), count)) for count in (3, 40, 700)]
    for choice in choices:
        for columns in (None, ["message"], ["client", "id"], ["tags"]):
            positions = np.array(choice, np.int64)
            batches = list(reader.read(file, columns, positions, position_column="_pos", batch_rows=300))
            found = pa.Table.from_batches(batches)
            assert found["_pos"].to_pylist() == choice
            assert max(batch.num_rows for batch in batches) <= 300
            selected = whole.take(pa.array(positions))
            for name in columns or whole.column_names:
                assert found[name].combine_chunks().equals(selected[name].combine_chunks()), (
                    name,
                    choice[:5],
                )


def test_texts_of_few_values_are_no_texts_until_rows_are_selected(tmp_path: Path) -> None:
    """Rows in most pages of a file come from a scan that reads such columns as codes."""
    rows = 9000
    source = tmp_path / "source"
    source.mkdir()
    written = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "level": [None if i % 11 == 0 else ("INFO", "WARN", "ERROR")[i % 3] for i in range(rows)],
            "a.b": [f"dotted {i % 2}" for i in range(rows)],
            "raw": pa.array([bytes([i % 3]) for i in range(rows)], pa.binary()),
            "message": [f"message {i * 7919}" for i in range(rows)],
            "nested": [{"level": f"inner {i % 2}"} for i in range(rows)],
        }
    )
    pq.write_table(
        written, source / "part.parquet", row_group_size=4000, data_page_size=1000, write_page_index=True
    )
    snapshot = open_source("parquet", str(source))
    reader = SourceReader(snapshot)
    opened: Any = reader.open(snapshot.files[0])
    schemas = {
        batch.schema.field("level").type
        for _, batch in opened.scan([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], 512, coded=True)
    }
    assert schemas == {pa.dictionary(pa.int32(), pa.string())}
    for step in (1, 7, 60):
        positions = np.arange(3, rows, step, dtype=np.int64)
        if step < 60:
            assert opened.is_dense(positions, range(6))
        batches = list(reader.read(snapshot.files[0], positions=positions, batch_rows=700))
        assert pa.Table.from_batches(batches).to_pylist() == written.take(pa.array(positions)).to_pylist()


def test_no_positions_give_no_rows(tmp_path: Path) -> None:
    WRITERS["pyarrow"](tmp_path / "part.parquet")
    snapshot = open_source("parquet", str(tmp_path))
    assert list(SourceReader(snapshot).read(snapshot.files[0], positions=np.empty(0, np.int64))) == []


@pytest.mark.server
@pytest.mark.parametrize(("index", "most"), [(True, 90_000), (False, 215_000)])
def test_few_rows_cost_few_bytes(make_store_url: StoreUrl, tmp_path: Path, index: bool, most: int) -> None:
    """A row of a file of ten megabytes: a page of 1024 rows, or without a page index a column of a row group."""
    url, options = make_store_url("s3")
    size = 60_000
    messages = pa.array([random.Random(i).randbytes(40).hex() for i in range(size)])
    rows = pa.table({"id": pa.array(range(size)), "message": messages, "other": messages})
    pq.write_table(
        rows,
        tmp_path / "x.parquet",
        data_page_size=16 << 10,
        use_dictionary=False,
        compression="none",
        row_group_size=2500,
        write_page_index=index,
    )
    read = Options.parse(options)
    open_store(url, read).upload("x.parquet", tmp_path / "x.parquet")
    snapshot = open_source("parquet", url, read)
    reader = SourceReader(snapshot)
    (file,) = snapshot.files
    reader.open(file)
    before = metrics.figures()[FETCHED].total
    (batch,) = reader.read(file, ["message"], np.array([31_234]))
    fetched = metrics.figures()[FETCHED].total - before
    assert batch.to_pylist() == [{"message": messages[31_234].as_py()}]
    assert 0 < fetched < most < file.size


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    WRITERS["pyarrow"](path)
    snapshot = open_source("parquet", str(tmp_path))
    pq.write_table(table(10), path)
    with pytest.raises(SourceChangedError, match="was replaced; the source changed: sync again"):
        next(SourceReader(snapshot).read(snapshot.files[0]))
    path.unlink()
    with pytest.raises(SourceChangedError, match="is not there any more; the source changed: sync again"):
        next(SourceReader(snapshot).read(snapshot.files[0]))


def test_a_position_behind_the_last_row_is_refused(tmp_path: Path) -> None:
    WRITERS["pyarrow"](tmp_path / "part.parquet")
    snapshot = open_source("parquet", str(tmp_path))
    reader = SourceReader(snapshot)
    with pytest.raises(SourceChangedError, match=f"has {ROWS} rows, and no row {ROWS}"):
        next(reader.read(snapshot.files[0], positions=np.array([3, ROWS])))
    with pytest.raises(SourceError, match="ascending and distinct"):
        next(reader.read(snapshot.files[0], positions=np.array([3, 3])))


@pytest.mark.parametrize("cut", [0, 3, 11, 200, 5000])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, cut: int) -> None:
    WRITERS["page index"](tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "part").write_bytes(data[: len(data) - 1 - cut] if cut < 5000 else data[:5000])
    with pytest.raises(SourceError):
        open_file(tmp_path / "part")


def test_damaged_bytes_are_refused_or_read(tmp_path: Path) -> None:
    """No damage crashes the process or raises anything but our errors; each byte of the footer is changed."""
    pq.write_table(table(60), tmp_path / "whole", write_page_index=True, data_page_size=200)
    data = (tmp_path / "whole").read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    draw = random.Random(5)
    path = tmp_path / "part"
    refused = 0
    for place in draw.sample(range(len(data) - 8 - footer, len(data) - 8), 150):
        damaged = bytearray(data)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            opened = open_file(path)
            columns = list(range(len(opened.schema)))
            opened.fetch(np.array([0, 30, 59]), columns, list(range(opened.metadata.num_columns)))
        except (SourceError, SourceChangedError):
            refused += 1
    assert refused > 20


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    WRITERS["pyarrow"](tmp_path / "part.parquet")
    data = (tmp_path / "part.parquet").read_bytes()
    (tmp_path / "part.parquet").write_bytes(data[:-4] + b"PARE")
    with pytest.raises(UnsupportedSourceError, match="Parquet encryption is not supported") as raised:
        open_source("parquet", str(tmp_path))
    assert raised.value.feature == "Parquet encryption"
