"""Delta logs: what is refused, what is tolerated, and versions by time."""

import base64
import datetime as dt
import json
import os
import pickle
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from indextables.errors import (
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    StoreError,
    UnsupportedSourceError,
)
from indextables.source import SourceReader, open_source
from indextables.source.delta import _B85, _Z85
from indextables.source.snapshot import SourceSnapshot, read_bitmap, read_framed

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "text": [f"row {i}" for i in range(10)]})
MAGIC = (1_681_511_377).to_bytes(4, "little")


def bitmap(positions: list[Any]) -> bytes:
    """Positions below 65536 as an array container."""
    body = (12_346).to_bytes(4, "little") + (1).to_bytes(4, "little")
    body += (
        (0).to_bytes(2, "little") + (len(positions) - 1).to_bytes(2, "little") + (16).to_bytes(4, "little")
    )
    body += np.array(positions, "<u2").tobytes()
    return MAGIC + (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + body


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")


def z85(data: bytes) -> str:
    data += b"\0" * (-len(data) % 4)
    return base64.b85encode(data).decode().translate(str.maketrans(_B85, _Z85))


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "\n".join(json.dumps(action) for action in actions)
    (folder / "_delta_log" / f"{version:020}.json").write_text(text + "\n")


def plain_table(folder: Path) -> dict[str, Any]:
    """A table of one file; its add action."""
    deltalake.write_deltalake(str(folder), ROWS)
    lines = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    return next(action["add"] for line in lines if "add" in (action := json.loads(line)))


def with_vector(folder: Path, vector: dict[str, Any]) -> SourceSnapshot:
    """The table, with a deletion vector on its file."""
    add = plain_table(folder)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 0}
    commit(folder, 1, {"protocol": protocol}, {"remove": remove}, {"add": {**add, "deletionVector": vector}})
    return open_source("delta", str(folder))


def ids(snapshot: Any) -> list[int]:
    reader = SourceReader(snapshot)
    return [
        i for file in snapshot.files for batch in reader.read(file, ["id"]) for i in batch["id"].to_pylist()
    ]


def test_an_inline_deletion_vector_hides_rows(tmp_path: Path) -> None:
    data = bitmap([1, 4, 9])
    snapshot = with_vector(
        tmp_path,
        {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 3},
    )
    assert ids(snapshot) == [0, 2, 3, 5, 6, 7, 8]
    reader = SourceReader(snapshot)
    (file,) = snapshot.files
    assert reader.count(file) == 7
    (batch,) = reader.read(file, ["id"], np.array([4, 5, 9]), position_column="at")
    assert batch.to_pylist() == [{"id": 5, "at": 5}]
    before = open_source("delta", str(tmp_path), version=0)
    changes = snapshot.changes_since(dict(each.content for each in before.files))
    assert changes.added == []
    assert changes.removed == []
    assert changes.redeleted == [file]
    assert snapshot.changes_since({"gone": ""}).removed == ["gone"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "differs from its checksum"),
        (lambda data: data[:4] + bytes([data[4] ^ 1]) + data[5:], "differs from its checksum"),
        (lambda data: framed(bitmap([1, 4, 77])), "names row 77 of a file with 10 rows"),
        (lambda data: framed(bitmap([1, 4])), "names 2 rows instead of 3"),
        (lambda data: framed(b"nonsense" * 4), "is no deletion vector"),
    ],
)
def test_a_damaged_deletion_vector_is_refused(tmp_path: Path, change: Any, problem: str) -> None:
    whole = framed(bitmap([1, 4, 9]))
    data = change(whole)
    (tmp_path / "dv.bin").write_bytes(b"\x01" + data)
    size = len(data) - 8
    place = {"storageType": "p", "pathOrInlineDv": f"file:{tmp_path}/dv.bin", "offset": 1}
    snapshot = with_vector(tmp_path / "t", {**place, "sizeInBytes": size, "cardinality": 3})
    with pytest.raises(SourceError, match=problem):
        ids(snapshot)
    (tmp_path / "dv.bin").unlink()
    with pytest.raises(SourceChangedError, match="sync again"):
        ids(snapshot)


def test_bitmaps_of_every_container() -> None:
    """Arrays, bitmaps and runs, in two bitmaps of 32 bits; written by hand as Roaring's format says."""
    array = [3, 70_000]
    bits = list(range(0, 20_000, 2))
    packed = np.packbits(np.isin(np.arange(65_536), bits), bitorder="little").tobytes()
    first = (12_346).to_bytes(4, "little") + (1).to_bytes(4, "little")
    first += (0).to_bytes(2, "little") + (len(bits) - 1).to_bytes(2, "little") + bytes(4) + packed
    runs = (12_347 | 0 << 16).to_bytes(4, "little") + b"\x01"
    runs += (1).to_bytes(2, "little") + (99).to_bytes(2, "little")
    runs += (2).to_bytes(2, "little") + np.array([10, 49, 1000, 49], "<u2").tobytes()
    data = MAGIC + (2).to_bytes(8, "little") + bytes(4) + first + (1).to_bytes(4, "little") + runs
    expected = bits + [(1 << 32) + 65_536 + i for i in [*range(10, 60), *range(1000, 1050)]]
    assert read_bitmap(data, "x", 1 << 40).tolist() == expected
    with pytest.raises(SourceError, match="more than 500 positions"):
        read_bitmap(data, "x", 500)
    for cut in range(len(data) - 8200, len(data), 7):
        with pytest.raises(SourceError, match="x is no deletion vector"):
            read_bitmap(data[:cut], "x", 1 << 40)
    assert read_framed(framed(bitmap([array[0]])), "x", 10).tolist() == [3]


@pytest.mark.parametrize(
    ("protocol", "feature"),
    [
        ({"minReaderVersion": 4, "minWriterVersion": 7}, "reader version 4 of Delta"),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"]}, "variantType"),
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]},
            "catalogManaged",
        ),
    ],
)
def test_an_unknown_feature_is_refused_by_name(
    tmp_path: Path, protocol: dict[str, Any], feature: str
) -> None:
    plain_table(tmp_path)
    commit(tmp_path, 1, {"protocol": protocol})
    with pytest.raises(UnsupportedSourceError, match=feature) as raised:
        open_source("delta", str(tmp_path))
    assert feature in raised.value.feature
    assert ids(open_source("delta", str(tmp_path), version=0)) == list(range(10))


def test_partition_values_of_decimals_have_all_their_digits(tmp_path: Path) -> None:
    texts = ["12345678901234567890.0123456789", "9999999999999999999999999999.9999999999", "1.5"]
    values = pa.array([*map(Decimal, texts), None], pa.decimal128(38, 10))
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [0, 1, 2, 3], "p": values}), partition_by=["p"])
    snapshot = open_source("delta", str(tmp_path))
    rows = [
        row for file in snapshot.files for b in SourceReader(snapshot).read(file) for row in b.to_pylist()
    ]
    assert {row["id"]: row["p"] for row in rows} == dict(enumerate(values.to_pylist()))


def test_partition_values_of_a_char_column_are_padded_as_spark_reads_them(tmp_path: Path) -> None:
    deltalake.write_deltalake(
        str(tmp_path), pa.table({"id": [1, 2], "code": ["ab", None]}), partition_by=["code"]
    )
    path = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][1]["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}
            action["metaData"]["schemaString"] = json.dumps(schema)
    commit(tmp_path, 0, *actions)
    snapshot = open_source("delta", str(tmp_path))
    assert {file.partition["code"].as_py() for file in snapshot.files} == {"ab  ", None}


@pytest.mark.parametrize("path", ["../secret.parquet", "a/../../secret.parquet", "%2e%2e/secret.parquet"])
def test_a_relative_path_cannot_leave_the_table(tmp_path: Path, path: str) -> None:
    add = plain_table(tmp_path / "t")
    commit(tmp_path / "t", 1, {"add": {**add, "path": path}})
    with pytest.raises(StoreError, match=r"has a part '\.\.'"):
        ids(open_source("delta", str(tmp_path / "t")))


def test_an_absolute_path_with_dots_is_refused(tmp_path: Path) -> None:
    add = plain_table(tmp_path)
    commit(tmp_path, 1, {"add": {**add, "path": f"file://{tmp_path}/%2e%2e/x.parquet"}})
    with pytest.raises(SourceError, match="is not followed"):
        open_source("delta", str(tmp_path))


def test_an_absolute_path_leads_to_another_store_only_if_allowed(tmp_path: Path) -> None:
    add = plain_table(tmp_path)
    commit(tmp_path, 1, {"add": {**add, "path": "s3://elsewhere/tables/x.parquet"}})
    with pytest.raises(
        SourceError, match=r"refers to s3://elsewhere/tables/x\.parquet, which lies in another store"
    ):
        open_source("delta", str(tmp_path))
    with pytest.raises(SourceError, match="another store"):
        open_source("delta", str(tmp_path), allowed_locations=["s3://elsewhere/other"])
    allowed = open_source("delta", str(tmp_path), allowed_locations=["s3://elsewhere/tables"])
    assert {file.url for file in allowed.files} > {"s3://elsewhere/tables/x.parquet"}


def test_a_missing_commit_is_an_error(tmp_path: Path) -> None:
    for _ in range(3):
        deltalake.write_deltalake(str(tmp_path), ROWS, mode="append")
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    assert len(ids(open_source("delta", str(tmp_path), version=0))) == 10
    for version in (1, 2, None, 7):
        with pytest.raises(SourceNotFoundError):
            open_source("delta", str(tmp_path), version=version)
    with pytest.raises(SourceNotFoundError, match="no Delta table at"):
        open_source("delta", str(tmp_path / "nowhere"))


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    plain_table(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text('{"add": {"path": 7}}\n')
    with pytest.raises(SourceError, match="the log is damaged"):
        open_source("delta", str(tmp_path))
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").write_bytes(b"PAR1nonsensePAR1")
    with pytest.raises(SourceError, match="is not a checkpoint of Delta"):
        open_source("delta", str(tmp_path))


def test_a_file_of_another_size_or_row_count_is_refused(tmp_path: Path) -> None:
    add = plain_table(tmp_path)
    snapshot = open_source("delta", str(tmp_path))
    target = tmp_path / add["path"]
    whole = target.read_bytes()
    target.write_bytes(whole + b"x")
    with pytest.raises(SourceChangedError, match="sync again"):
        ids(snapshot)
    target.write_bytes(whole)
    stats = json.dumps({"numRecords": 11})
    commit(tmp_path, 1, {"add": {**add, "stats": stats}})
    with pytest.raises(SourceChangedError, match="has 10 rows instead of 11"):
        ids(open_source("delta", str(tmp_path)))


def test_versions_by_time(tmp_path: Path) -> None:
    table = deltalake.DeltaTable.create(str(tmp_path), schema=ROWS.schema)
    for version in range(3):
        if version:
            deltalake.write_deltalake(table, ROWS, mode="append")
        os.utime(tmp_path / "_delta_log" / f"{version:020}.json", (1000 + version, 1000 + version))

    def at(second: float) -> int | str | None:
        moment = dt.datetime.fromtimestamp(second, dt.UTC)
        return open_source("delta", str(tmp_path), version=moment).version

    assert [at(1000), at(1000.5), at(1001), at(1002)] == [0, 0, 1, 2]
    for moment in (999, 1003):
        with pytest.raises(SourceNotFoundError, match="has no version at the time"):
            at(moment)


def test_a_snapshot_and_its_files_travel_to_other_processes(tmp_path: Path) -> None:
    plain_table(tmp_path)
    snapshot = pickle.loads(pickle.dumps(open_source("delta", str(tmp_path))))
    assert ids(snapshot) == list(range(10))
    assert SourceReader(snapshot).count(snapshot.files[0]) == 10


def test_an_unknown_column_or_kind_is_refused(tmp_path: Path) -> None:
    plain_table(tmp_path)
    snapshot = open_source("delta", str(tmp_path))
    with pytest.raises(SourceError, match="has no column 'nope'; the columns are id, text"):
        next(SourceReader(snapshot).read(snapshot.files[0], ["nope"]))
    with pytest.raises(SourceError, match="'hudi' is not a format of sources"):
        open_source("hudi", str(tmp_path))
    with pytest.raises(SourceError, match="is not a number or a time"):
        open_source("delta", str(tmp_path), version="main")
