"""A stream into a table: every micro-batch is one version, and is written once, however often it comes."""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import indextables
from indextables.log.transaction_log import TransactionLog
from indextables.store import open_store

SCHEMA = "id long, text string, day string"
TEXT = {"indexing.typemap.text": "text"}


class Input:
    """Files of two rows each, one for each micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        folder.mkdir()
        self.files = 0

    def add(self, files: int = 1) -> None:
        for number in range(self.files, self.files + files):
            rows = ({"id": 2 * number + i, "text": f"row {2 * number + i}", "day": "ab"[i]} for i in range(2))
            (self.folder / f"{number:03}.json").write_text("\n".join(map(json.dumps, rows)))
        self.files += files

    @property
    def ids(self) -> list[int]:
        return list(range(2 * self.files))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


@pytest.fixture
def arriving(spark: SparkSession, tmp_path: Path) -> Input:
    found = Input(spark, tmp_path / "arriving")
    found.add(3)
    return found


def run(writer: DataStreamWriter, checkpoint: Path, target: Any, **options: Any) -> Any:
    """Run a query until nothing is left to read; `target` is a path, or the name of a table."""
    writer = writer.format("indextables").options(**options).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.start(str(target)) if "/" in str(target) else writer.toTable(target)
    try:
        assert query.awaitTermination(120)
        if query.exception() is not None:
            raise query.exception()
    finally:
        query.stop()
    return query


def forget_last_batch(checkpoint: Path) -> int:
    """The checkpoint as a driver leaves it that ends after the table's commit and before Spark's own."""
    last = max(
        (p for p in (checkpoint / "commits").iterdir() if p.name.isdecimal()), key=lambda p: int(p.name)
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    return int(last.name)


def ids(path: Path) -> list[int]:
    return sorted(indextables.open(path).scan(["id"])["id"].to_pylist())


def test_every_batch_is_a_version_and_a_batch_that_comes_again_is_left_out(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    writer = arriving.stream().writeStream.partitionBy("day")
    query = run(writer, checkpoint, path, **TEXT)
    table = indextables.open(path)
    assert (ids(path), table.version, table.partition_columns) == (arriving.ids, 3, ("day",))
    assert table.count("text INDEXQUERY '4'") == 1
    assert table._snapshot.txns[query.id].version == 2
    for _ in range(2):
        assert forget_last_batch(checkpoint) == 2
        run(writer, checkpoint, path, **TEXT)
        assert (ids(path), indextables.open(path).version) == (arriving.ids, 3)
    splits = {p.name for p in path.rglob("*.split")}
    assert len(splits) == table.files().num_rows, "a batch that comes again leaves no files"
    arriving.add()
    run(writer, checkpoint, path, **TEXT)
    assert (ids(path), indextables.open(path).version) == (arriving.ids, 4)
    run(writer, tmp_path / "another", path, **TEXT)
    assert ids(path) == sorted(arriving.ids * 2), "another query has batches of its own"


def test_a_table_of_the_catalog_is_written_once_too(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    checkpoint = tmp_path / "checkpoint"
    writer = arriving.stream().writeStream.partitionBy("day")
    try:
        run(writer, checkpoint, "streamed", **{"mergeOnWrite.enabled": "false"})
        assert sorted(r.id for r in spark.table("streamed").collect()) == arriving.ids
        assert [
            r.day for r in spark.sql("SELECT day, count(*) FROM streamed GROUP BY 1 ORDER BY 1").collect()
        ] == [*"ab"]
        assert forget_last_batch(checkpoint) == 2
        arriving.add()
        run(writer, checkpoint, "streamed", **{"mergeOnWrite.enabled": "false"})
        assert sorted(r.id for r in spark.table("streamed").collect()) == arriving.ids
        path = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / "streamed"
        table = indextables.open(path)
        assert table.version == 4, "the table, and a version for each batch"
        assert len(list(path.rglob("*.split"))) == table.files().num_rows
    finally:
        spark.sql("DROP TABLE IF EXISTS streamed")


def test_a_complete_result_replaces_the_table(spark: SparkSession, tmp_path: Path, arriving: Input) -> None:
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    writer = arriving.stream().groupBy("day").count().writeStream.outputMode("complete")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run(writer, checkpoint, path)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    expected = [{"day": "a", "count": 3}, {"day": "b", "count": 3}]
    table = indextables.open(path)
    assert sorted(table.scan().to_pylist(), key=str) == sorted(expected, key=str)
    forget_last_batch(checkpoint)
    run(writer, checkpoint, path)
    assert indextables.open(path).version == table.version
    indextables.open(path).restore(version=1)
    arriving.add()
    run(writer, checkpoint, path)
    assert {r["count"] for r in indextables.open(path).scan().to_pylist()} == {4}


def test_a_complete_result_replaces_a_table_of_the_catalog_whatever_options_say(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    columns = "day string, count long"
    writer = arriving.stream().groupBy("day").count().writeStream.outputMode("complete")
    spark.sql(f"CREATE TABLE days_counted ({columns}) USING indextables PARTITIONED BY (day)")
    try:
        spark.createDataFrame([("z", 1)], columns).writeTo("days_counted").append()
        run(writer, tmp_path / "c1", "days_counted", partitionOverwriteMode="dynamic")
        assert sorted(map(tuple, spark.table("days_counted").select("day", "count").collect())) == [
            ("a", 3),
            ("b", 3),
        ]
        with pytest.raises(PySparkException, match="'replaceWhere' has no effect on a stream"):
            run(writer, tmp_path / "c2", "days_counted", replaceWhere="day = 'a'")
    finally:
        spark.sql("DROP TABLE IF EXISTS days_counted")


def test_small_splits_are_merged_and_the_log_has_checkpoints(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    path = tmp_path / "t"
    arriving.add(9)
    options = {"mergeOnWrite.async.enabled": "false", "checkpoint.interval": "4"}
    run(arriving.stream().writeStream, tmp_path / "checkpoint", path, **options)
    table = indextables.open(path)
    assert ids(path) == arriving.ids
    operations = table.history()["operation"].to_pylist()
    assert operations.count("WRITE") == 12
    assert operations.count("MERGE SPLITS") == 1, "ten small splits became one"
    assert table.files().num_rows == 3
    assert table.version - (table.state().version or 0) < 5, "few versions are read after a checkpoint"


@pytest.mark.parametrize(
    ("batches", "versions_added", "options"),
    [
        (1, 1, {"checkpoint.interval": "1"}),
        # A merge of ten splits, whose state is the only one.
        (7, 8, {"checkpoint.interval": "100000", "mergeOnWrite.async.enabled": "false"}),
    ],
)
def test_the_log_of_a_stream_has_a_limited_number_of_versions(
    spark: SparkSession,
    tmp_path: Path,
    arriving: Input,
    batches: int,
    versions_added: int,
    options: dict[str, str],
) -> None:
    path, writer = tmp_path / "t", arriving.stream().writeStream
    run(writer, tmp_path / "checkpoint", path)
    first = indextables.open(path).version
    last, state = first + 12_000, first + 2_000
    token = TransactionLog(open_store(str(path)), engine="test").snapshot().token
    files = [path / f"_transaction_log/{version:020d}.json" for version in range(last + 1)]
    for file in files[first + 1 :]:
        base, token = token, uuid.uuid4().hex
        info = {"timestamp": 0, "operation": "WRITE", "baseToken": base, "token": token}
        file.write_text(json.dumps({"commitInfo": info}))
        if file is files[state]:
            indextables.open(path).checkpoint()
    two_hours_ago = time.time() - 2 * 3600
    for version, file in enumerate(files):
        os.utime(file, (two_hours_ago + version - last,) * 2)
    (manifest,) = path.glob("_transaction_log/state-v*/_manifest.avro")
    os.utime(manifest, (two_hours_ago + state - last,) * 2)
    arriving.add(batches)
    run(writer, tmp_path / "checkpoint", path, **options)
    assert ids(path) == arriving.ids
    versions = sorted(int(file.name[:20]) for file in path.glob("_transaction_log/0*.json"))
    assert versions[-1] == last + versions_added
    assert versions[0] == state + 1, "the state before the 10,000 newest is what they are read from"


def test_a_batch_that_another_driver_committed_meanwhile_is_left_out(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    """A driver that was taken for dead commits the batch, before the one that took its place does."""
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    writer = arriving.stream().writeStream
    query = run(writer, checkpoint, path)
    batch = forget_last_batch(checkpoint) + 1
    rows = [{"id": 6, "text": "row 6", "day": "a"}, {"id": 7, "text": "row 7", "day": "b"}]
    indextables.write(path, rows, options={"txn.appId": query.id, "txn.version": batch})
    arriving.add()
    run(writer, checkpoint, path)
    assert ids(path) == arriving.ids


def test_what_a_stream_cannot_do_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, arriving: Input
) -> None:
    path = tmp_path / "t"
    rows = arriving.stream()
    with pytest.raises(PySparkException, match="output mode append or complete"):
        run(rows.groupBy("day").count().writeStream.outputMode("update"), tmp_path / "c1", path)
    with pytest.raises(PySparkException, match="numbers its batches itself"):
        run(rows.writeStream, tmp_path / "c2", path, **{"txn.appId": "mine"})
    with pytest.raises(PySparkException, match="unknown option"):
        run(rows.writeStream, tmp_path / "c3", path, **{"mergeOnWriet.enabled": "true"})
    with pytest.raises(PySparkException, match="belongs to reads"):
        run(rows.writeStream, tmp_path / "c4", path, **{"read.batchSize": "10"})
    indextables.write(path, [{"id": "a text"}])
    with pytest.raises(PySparkException, match="id"):
        run(rows.writeStream, tmp_path / "c5", path)
    with pytest.raises(PySparkException, match=r"(?i)unknown option 'checkpointLocation'"):
        spark.range(1).write.format("indextables").option("checkpointLocation", "/x").save(
            str(tmp_path / "u")
        )
