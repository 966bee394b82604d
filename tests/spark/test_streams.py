"""A stream is written batch by batch, each batch once, however often it comes."""

import json

import pytest
from pyspark.errors import PySparkException

import indextables

SCHEMA = "id long, text string"


@pytest.fixture
def arriving(tmp_path):
    """Three files of two rows each."""
    folder = tmp_path / "arriving"
    folder.mkdir()
    for number in range(3):
        rows = ({"id": 2 * number + i, "text": f"row {2 * number + i}"} for i in range(2))
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    return str(folder)


def read_stream(spark, folder):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)


def test_every_batch_is_a_version_and_a_batch_that_comes_again_is_left_out(spark, tmp_path, arriving):
    path = str(tmp_path / "t")
    came = []

    def write(batch, number):
        options = {"txn.appId": "from-files", "txn.version": number, "indexing.typemap.text": "text"}
        for _ in range(2):  # as after a failure between the write and the checkpoint of the stream
            batch.write.format("indextables").mode("append").options(**options).save(path)
        came.append(number)

    writing = read_stream(spark, arriving).writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert came == [0, 1, 2]
    table = indextables.open(path)
    assert sorted(table.scan()["id"].to_pylist()) == list(range(6))
    assert table.count("text INDEXQUERY '4'") == 1
    assert table.version == 3, "the table, and a version for each batch"


def test_streams_that_are_not_offered_are_refused_by_name(spark, tmp_path, arriving):
    path = str(tmp_path / "t")
    indextables.write(path, [{"id": 1, "text": "row 1"}])
    with pytest.raises(PySparkException, match="indextables does not support streamed"):
        spark.readStream.format("indextables").load(path)
    writing = read_stream(spark, arriving).writeStream.format("indextables")
    with pytest.raises(PySparkException, match=r"use foreachBatch, with txn\.appId and txn\.version"):
        writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start(path)
