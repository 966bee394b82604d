"""Streams of the data source in Python, called as Spark calls them; the session is that of `session_without_bridge`."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

import indextables
from indextables.errors import OptionError
from indextables.spark.python_source import IndexTablesSource, StreamWriter

SCHEMA = StructType().add("id", "long").add("text", "string")


def batches(*ids: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(
        [{"id": n, "text": f"row {n}"} for n in ids], pa.schema([("id", pa.int64()), ("text", pa.string())])
    )


def source(path: Path, **options: str) -> IndexTablesSource:
    return IndexTablesSource({"path": str(path), "checkpointLocation": "/somewhere", **options})


def write(path: Path, batch: int, *ids: int, overwrite: bool = False) -> None:
    """A micro-batch of two tasks; the writer travels between processes."""
    writer = source(path, **{"txn.appId": "stream"}).streamWriter(SCHEMA, overwrite)
    messages = [pickle.loads(pickle.dumps(writer)).write(batches(n)) for n in ids]
    pickle.loads(pickle.dumps(writer)).commit([*messages, None], batch)


def rows(path: Path, reader: DataSourceStreamReader, start: dict[Any, Any], end: dict[Any, Any]) -> list[Any]:
    found = []
    for partition in reader.partitions(start, end):
        copy = pickle.loads(pickle.dumps(reader))
        found += [n for batch in copy.read(partition) for n in batch.column("id").to_pylist()]
    return sorted(found)


@pytest.mark.skipif(StreamWriter is None, reason="Spark 4.0 has no stream writers for Arrow")
def test_a_micro_batch_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, 0, 1, 2)
    write(path, 1, 3)
    for _ in range(2):
        write(path, 1, 3)
    table = indextables.open(path)
    assert sorted(table.scan()["id"].to_pylist()) == [1, 2, 3]
    assert table.version == 2
    assert len(list(path.rglob("*.split"))) == table.files().num_rows
    write(path, 2, 9, overwrite=True)
    assert indextables.open(path).scan()["id"].to_pylist() == [9]
    with pytest.raises(OptionError, match="'replaceWhere' has no effect on a stream"):
        source(path, **{"txn.appId": "stream", "replaceWhere": "id = 9"}).streamWriter(SCHEMA, True)


@pytest.mark.skipif(StreamWriter is None, reason="Spark 4.0 has no stream writers for Arrow")
def test_a_complete_result_replaces_all_partitions(tmp_path: Path) -> None:
    path = tmp_path / "t"
    indextables.write(path, list(batches(1, 2)), partition_by=["id"])
    options = {"txn.appId": "stream", "partitionOverwriteMode": "dynamic"}
    writer = source(path, **options).streamWriter(SCHEMA, True)
    writer.commit([writer.write(batches(2))], 0)
    assert indextables.open(path).scan()["id"].to_pylist() == [2]


def test_rows_come_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for n in (1, 2, 3):
        indextables.write(path, list(batches(n)))
    reader = source(path, maxFilesPerTrigger="2").streamReader(SCHEMA)
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    second = reader.latestOffset(first, limit)
    assert rows(path, reader, start, first) == [1, 2]
    assert rows(path, reader, first, second) == [3]
    assert reader.latestOffset(second, limit) == second
    indextables.write(path, list(batches(4)))
    again = source(path).streamReader(SCHEMA)
    assert rows(path, again, second, again.latestOffset(second, limit)) == [4]
    assert rows(path, again, again.initialOffset(), first) == [1, 2], "the first batch is repeated as it was"


def test_a_stream_that_ends_has_limits_and_stops_at_its_last_version(tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 calls it")
    path = tmp_path / "t"
    for n in (1, 2, 3):
        indextables.write(path, list(batches(n)))
    reader = cast("Any", source(path, maxFilesPerTrigger="2").streamReader(SCHEMA))
    assert reader.reportLatestOffset() is None
    reader.prepareForTriggerAvailableNow()
    indextables.write(path, list(batches(4)))
    place, limit = {**reader.initialOffset(), "version": 3, "first": 3}, reader.getDefaultReadLimit()
    found = []
    for _ in range(4):
        end = reader.latestOffset(place, limit)
        found.append(rows(path, reader, place, end))
        place = end
    assert found == [[1, 2], [3], [], []]
    assert reader.reportLatestOffset()["version"] == 5


def test_what_it_cannot_do_is_refused(tmp_path: Path) -> None:
    indextables.write(tmp_path / "t", list(batches(1)))
    with pytest.raises(OptionError, match=r"needs the option txn\.appId"):
        source(tmp_path / "t").streamWriter(SCHEMA, False)
    with pytest.raises(OptionError, match=r"needs the bridge, or Spark 4\.2"):
        cast("Any", source(tmp_path / "t").streamReader(SCHEMA)).latestOffset()
    with pytest.raises(OptionError, match="belongs to writes"):
        source(tmp_path / "t", **{"txn.appId": "x"}).streamReader(SCHEMA)
