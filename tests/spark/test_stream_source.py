"""A stream from a table: the same rows as the table has, each once, over restarts."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import indextables
from indextables.errors import PredicateError, SchemaError
from indextables.functions import match_queries

TEXT = {"indexing.typemap.text": "text"}


def append(path: str, *numbers: int, **options: Any) -> None:
    rows = [{"id": n, "text": f"row {n} {'red' if n % 2 else 'blue'}", "day": "ab"[n % 2]} for n in numbers]
    indextables.write(path, rows, partition_by=["day"], options={**TEXT, **options})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


class Query:
    """A query over a stream, started again and again from one checkpoint."""

    def __init__(self, frame: Any, folder: Any) -> None:
        self.frame = frame
        self.folder = folder
        self.progress: list[Any] = []
        self.plan = ""

    def run(self) -> list[Any]:
        """The rows of each micro-batch until nothing is left."""
        came = []

        def take(batch: Any, number: Any) -> None:
            del number
            came.append(sorted(tuple(row) for row in batch.collect()))

        writer = self.frame.writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            assert query.awaitTermination(120)
            self.progress = query.recentProgress
            self.plan = query._jsq.explainInternal(False)
            if query.exception() is not None:
                raise query.exception()
        finally:
            query.stop()
        return [batch for batch in came if batch]


def read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.readStream.format("indextables").options(**options).load(path)


def test_rows_come_once_over_restarts(spark: SparkSession, tmp_path: Path, path: str) -> None:
    append(path, 0, 1)
    append(path, 2)
    query = Query(read(spark, path, maxFilesPerTrigger="2").select("id"), tmp_path)
    assert [len(batch) for batch in query.run()] == [2, 1]
    source = query.progress[0]["sources"][0]
    assert source["numInputRows"] == 2
    assert source["metrics"]["numFilesOutstanding"] == "1"
    assert int(source["metrics"]["numBytesOutstanding"]) > 0
    assert json.loads(query.progress[0].json)["sources"][0]["endOffset"]["initial"]
    assert source["description"] == f"indextables {path}"
    assert query.run() == []
    append(path, 3)
    indextables.open(path).merge()
    append(path, 4)
    assert query.run() == [[(3,), (4,)]]
    assert query.run() == []


def test_starts_limits_and_named_tables(spark: SparkSession, tmp_path: Path, path: str) -> None:
    for n in range(3):
        append(path, n)
    spark.sql(f"CREATE TABLE source USING indextables LOCATION '{path}'")
    try:
        named = (
            spark.readStream.option("startingVersion", 2).option("maxVersionsPerTrigger", 1).table("source")
        )
        assert Query(named.select("id"), tmp_path / "a").run() == [[(1,)], [(2,)]]
        changes = spark.readStream.option("readChanges", "true").option("startingVersion", 3).table("source")
        found = Query(changes.select("id", "_change_type", "_commit_version"), tmp_path / "b").run()
        assert found == [[(2, "insert", 3)]]
    finally:
        spark.sql("DROP TABLE source")
    assert Query(read(spark, path, startingVersion="latest"), tmp_path / "c").run() == []
    past = read(spark, path, startingTimestamp="1999-01-01").select("id")
    assert Query(past, tmp_path / "d").run() == [[(0,), (1,), (2,)]]


@pytest.mark.parametrize("start", [{}, {"startingVersion": "latest"}, {"startingTimestamp": "1999-01-01"}])
def test_a_table_of_the_catalog_without_rows_is_streamed_from_its_first_rows_on(
    spark: SparkSession, tmp_path: Path, start: dict[str, str]
) -> None:
    spark.sql(
        "CREATE TABLE arriving (id long, text string) USING indextables OPTIONS ('indexing.typemap.text' 'text')"
    )
    try:
        rows = spark.readStream.options(**start).table("arriving").where("text INDEXQUERY 'red'")
        assert Query(rows.select("id"), tmp_path / "a").run() == []
        writer = rows.select("id").writeStream.option("checkpointLocation", str(tmp_path / "b"))
        query = writer.format("memory").queryName("arrived").start()
        try:
            query.processAllAvailable()
            spark.sql("INSERT INTO arriving VALUES (1, 'red'), (2, 'blue')")
            query.processAllAvailable()
            spark.sql("INSERT INTO arriving VALUES (3, 'red')")
            query.processAllAvailable()
        finally:
            query.stop()
        assert sorted(row.id for row in spark.table("arrived").collect()) == [1, 3]
    finally:
        spark.sql("DROP TABLE arriving")
    with pytest.raises(PySparkException, match="arriving"):
        spark.readStream.table("arriving")


def test_filters_and_searches_are_answered_by_the_index(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    append(path, 0, 1, 2, 3)
    append(path, 5)
    frame = read(spark, path)
    frame.createOrReplaceTempView("rows_of_stream")
    found = frame.where("text INDEXQUERY 'red' AND day = 'b' AND length(text) > 3").select("id")
    query = Query(found, tmp_path / "a")
    assert query.run() == [[(1,), (3,), (5,)]]
    assert "text INDEXQUERY 'red'" in query.plan
    assert "day = 'b'" in query.plan
    assert query.progress[0]["numInputRows"] == 3, "other rows never leave the splits"
    both = spark.sql(
        "SELECT id, text INDEXQUERY 'blue' AS is_blue FROM rows_of_stream WHERE indexqueryall('0 OR 1 OR 2')"
    )
    assert Query(both, tmp_path / "b").run() == [[(0, True), (1, False), (2, True)]]
    named = frame.where("id = 5").selectExpr("input_file_name()", "_metadata.file_path")
    (((name, file_path),),) = Query(named, tmp_path / "d").run()
    assert name == file_path
    assert name.endswith(".split")
    twice = frame.where("text INDEXQUERY 'red'").select("id").union(frame.where("id = 0").select("id"))
    query = Query(twice, tmp_path / "c")
    assert query.run() == [[(0,), (1,), (3,), (5,)]], "one stream, two conditions"
    assert query.progress[0]["numInputRows"] == 4, "the rows of both scans"
    counted = frame.where("text INDEXQUERY 'blue'").groupBy().count()
    writer = counted.writeStream.format("memory").queryName("counted").outputMode("complete")
    started = writer.trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    assert [r[0] for r in spark.table("counted").collect()] == [2]
    with pytest.raises(PySparkException, match="nope"):
        Query(frame.where("text INDEXQUERY 'nope:x'"), tmp_path / "e").run()


def test_joins_and_watermarks(spark: SparkSession, tmp_path: Path) -> None:
    left, right = str(tmp_path / "left"), str(tmp_path / "right")
    for path in (left, right):
        rows = [{"id": n, "at": f"2026-05-01 10:0{n}:00"} for n in range(3)]
        frame = spark.createDataFrame(rows, "id long, at string").selectExpr("id", "timestamp(at) AS at")
        frame.coalesce(1).write.format("indextables").save(path)

    def stream(path: str, name: str) -> DataFrame:
        frame = read(spark, path).withWatermark("at", "1 minute")
        return frame.selectExpr(f"id AS {name}", f"at AS {name}_at")

    joined = stream(left, "l").join(stream(right, "r"), F.expr("l = r AND r_at >= l_at")).select("l", "r")
    query = Query(joined, tmp_path / "a")
    assert query.run() == [[(0, 0), (1, 1), (2, 2)]]
    more = spark.createDataFrame([(7, "2026-05-01 10:09:00")], "id long, at string")
    for path in (left, right):
        more.selectExpr("id", "timestamp(at) AS at").write.format("indextables").mode("append").save(path)
    assert query.run() == [[(7, 7)]]


def test_changes_of_rows_columns_and_history_stop_the_stream(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    append(path, 0, 1)
    query = Query(read(spark, path).select("id"), tmp_path)
    assert query.run() == [[(0,), (1,)]]
    indextables.open(path).drop_partitions("day = 'b'")
    with pytest.raises(PySparkException, match="ignoreDeletes=true"):
        query.run()
    lenient = Query(read(spark, path, ignoreDeletes="true").select("id"), tmp_path)
    append(path, 2)
    assert lenient.run() == [[(2,)]]
    indextables.write(path, [{"id": 3, "day": "a", "more": 1}], options={"mergeSchema": True})
    with pytest.raises(
        PySparkException, match="the column more was added; start the query again, over a new D"
    ):
        lenient.run()
    again = Query(read(spark, path, ignoreDeletes="true").select("id", "more"), tmp_path)
    assert again.run() == [[(3, 1)]]
    append(path, 4)
    append(path, 5)
    indextables.open(path).truncate()
    with pytest.raises(PySparkException, match="failOnDataLoss=false"):
        again.run()
    lossy = read(spark, path, ignoreDeletes="true", failOnDataLoss="false").select("id")
    append(path, 6, **{"checkpoint.enabled": "false"})
    assert Query(lossy, tmp_path).run()[-1][-1] == (6,)


def test_a_stream_continues_behind_more_lost_versions_than_are_read_at_once(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    append(path, 0)
    query = Query(read(spark, path).select("id"), tmp_path)
    assert query.run() == [[(0,)]]
    for n in range(1, 130):
        append(path, n, **{"checkpoint.interval": "50"})
    indextables.open(path).truncate()
    append(path, 130, **{"checkpoint.enabled": "false"})
    with pytest.raises(PySparkException, match="startingVersion=131"):
        query.run()
    lossy = Query(read(spark, path, failOnDataLoss="false").select("id"), tmp_path)
    assert lossy.run() == [[(130,)]]
    append(path, 131, **{"checkpoint.enabled": "false"})
    assert lossy.run() == [[(131,)]]


def test_a_lost_initial_snapshot_names_the_remedy(spark: SparkSession, tmp_path: Path, path: str) -> None:
    append(path, 0, 2)
    append(path, 4)

    def fail_at_the_second_batch(batch: Any, number: Any) -> None:
        batch.collect()
        if number:
            raise RuntimeError("the driver ends here")

    limited = read(spark, path, maxFilesPerTrigger="1").select("id")
    writer = limited.writeStream.foreachBatch(fail_at_the_second_batch).trigger(availableNow=True)
    interrupted = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match="the driver ends here"):
        interrupted.awaitTermination(120)
    assert [row["numInputRows"] for row in interrupted.recentProgress[:1]] == [2]
    append(path, 6)
    indextables.open(path).truncate()
    append(path, 8, **{"checkpoint.enabled": "false"})
    with pytest.raises(PySparkException, match=r"version 2 of the table.*startingVersion=5.*failOnDataLoss"):
        Query(limited, tmp_path).run()
    lossy = read(spark, path, maxFilesPerTrigger="1", failOnDataLoss="false").select("id")
    assert Query(lossy, tmp_path).run() == [[(6,)], [(8,)]]


def test_options_that_have_no_effect_on_a_stream_are_refused(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    append(path, 1)
    for options, problem in (
        ({"versionAsOf": "1"}, "a stream has no version"),
        ({"endingVersion": "1"}, "belongs to reads of changes in Spark"),
        ({"maxFilesPerTrigger": "0"}, "of at least 1"),
        ({"startingVersion": "9"}, "cannot start at version 9"),
        ({"startingTimestamp": "2999-01-01"}, "which is in the future"),
        ({"txn.appId": "x"}, "belongs to writes"),
    ):
        with pytest.raises(PySparkException, match=problem):
            Query(read(spark, path, **options), tmp_path / str(options)[2:8]).run()
    with pytest.raises(PySparkException, match="belongs to streams from a table"):
        spark.read.format("indextables").option("maxFilesPerTrigger", "1").load(path).collect()
    with pytest.raises(PySparkException, match="no table at"):
        read(spark, path + "-not-there")


def test_standing_queries_run_on_streams_and_on_other_rows(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    append(path, 0, 1, 2, 3)
    saved = {"red": "red", "three": {"query": "3", "field": "text"}, "day": "day:b AND NOT 1"}
    expected = [(0, []), (1, ["red"]), (2, []), (3, ["red", "three", "day"])]
    matched = match_queries(read(spark, path), saved).select("id", "_matching_queries")
    assert Query(matched, tmp_path).run() == [expected]
    rows = match_queries(spark.read.format("indextables").load(path), saved).orderBy("id").collect()
    assert [(row.id, row._matching_queries) for row in rows] == expected
    assert rows[0].day == "a"
    # Before the first row comes.
    for bad in ("((", "nope:x"):
        with pytest.raises(PredicateError, match="the standing query 'bad' cannot be evaluated"):
            match_queries(read(spark, path), {"good": "x", "bad": bad})
    vectors = spark.createDataFrame([("red", Vectors.dense([1.0]))], ["text", "vector"])
    assert [row._matching_queries for row in match_queries(vectors, {"red": "red"}).collect()] == [["red"]]
    with pytest.raises(SchemaError, match="there is a column _matching_queries already"):
        match_queries(matched, saved)
