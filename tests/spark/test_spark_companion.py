"""Companion indexes in Spark: built by its executors, and read as Spark reads the source."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import indextables

CONDITIONS = (
    "true",
    "message INDEXQUERY 'disk'",
    "message INDEXQUERY 'disk' AND id > 40",
    "id BETWEEN 10 AND 20 OR level IS NULL",
    "day = 'd1' AND level = 'high'",
    "message LIKE '%full%'",
)
EVERY = "WITH STREAMING POLL INTERVAL 5 SECONDS"
# The same conditions as Spark evaluates them on the source.
PLAIN = {"message INDEXQUERY 'disk'": "message RLIKE '(?i)(^|\\\\W)disk(\\\\W|$)'"}


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("companion") / "source"
    words = "array('disk full', 'all well', 'Disk slow', 'login failed', null)"
    spark.range(60).selectExpr(
        "id",
        f"{words}[id % 5] AS message",
        "IF(id % 7 = 0, null, IF(id % 2 = 0, 'high', 'low')) AS level",
        "timestamp_seconds(1700000000 + id * 3600) AS ts",
        "concat('d', id % 3) AS day",
    ).repartition(2).write.partitionBy("day").parquet(str(path))
    return path


def plain(condition: str) -> str:
    for search, comparison in PLAIN.items():
        condition = condition.replace(search, comparison)
    return condition


def build(spark, source: Path, index: Path, clauses: str = "") -> dict:
    (row,) = spark.sql(
        f"BUILD INDEXTABLES COMPANION FOR PARQUET '{source}' INDEXING MODES ('message':'text') {clauses} "
        f"AT LOCATION '{index}'"
    ).collect()
    return row.asDict()


def test_an_index_is_built_by_executors_and_read_as_spark_reads_the_source(spark, source, tmp_path) -> None:
    index = tmp_path / "index"
    planned = build(spark, source, index, "DRY RUN")
    assert (planned["status"], planned["splits_created"], index.exists()) == ("dry_run", 3, False)
    built = build(spark, source, index)
    assert (built["status"], built["splits_created"], built["parquet_files_indexed"]) == ("success", 3, 6)
    assert build(spark, source, index)["status"] == "no_action"
    companion = spark.read.format("indextables").load(str(index))
    rows = spark.read.parquet(str(source))
    assert companion.dtypes == rows.dtypes
    for condition in CONDITIONS:
        expected = rows.where(plain(condition))
        found = companion.where(condition)
        assert sorted(map(tuple, found.collect()), key=str) == sorted(map(tuple, expected.collect()), key=str)
        assert found.count() == expected.count(), condition
        groups = [
            sorted(map(tuple, frame.groupBy("level").agg({"id": "max", "*": "count"}).collect()), key=str)
            for frame in (found, expected)
        ]
        assert groups[0] == groups[1], condition
        first = [tuple(f.orderBy("ts", ascending=False).limit(3).collect()) for f in (found, expected)]
        assert first[0] == first[1], condition


def test_a_sync_reads_what_is_new_and_freshness_reads_all(spark, tmp_path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    frame = spark.range(20).selectExpr("id", "concat('disk ', id) AS message").coalesce(1)
    frame.write.parquet(str(source))
    build(spark, source, index)
    frame.selectExpr("id + 100 AS id", "message").write.mode("append").parquet(str(source))

    def count(**options: str) -> int:
        table = spark.read.format("indextables").options(**options).load(str(index))
        return table.where("message INDEXQUERY 'disk' AND id >= 10").count()

    latest = {"companion.freshness": "latest"}
    assert (count(), count(**latest)) == (10, 30)
    assert build(spark, source, index)["parquet_files_indexed"] == 1
    assert (count(), count(**latest), count(versionAsOf="1")) == (30, 30, 10)


def test_what_would_change_an_index_is_refused(spark, source, tmp_path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index)
    companion = spark.read.format("indextables").load(str(index))
    with pytest.raises(PySparkException, match="a write is not possible for the companion index"):
        companion.limit(1).write.format("indextables").mode("append").save(str(index))
    for text, says in (
        (f"MERGE SPLITS '{index}'", "a merge is not possible"),
        (
            f"BUILD INDEXTABLES COMPANION FOR PARQUET '{source}' AT LOCATION '{index}' {EVERY}",
            "WITH STREAMING never ends",
        ),
        (f"BUILD INDEXTABLES COMPANION FOR DELTA '{source}' AT LOCATION '{index}x'", "no Delta table"),
        (
            f"BUILD INDEXTABLES COMPANION FOR PARQUET '{source}' FROM VERSION 3 AT LOCATION '{index}x'",
            "FROM VERSION is for sources of the format delta or iceberg only",
        ),
    ):
        with pytest.raises(PySparkException, match=says):
            spark.sql(text).collect()
