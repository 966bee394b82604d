"""Cached tables and DataFrames: a search reads the table itself, and writes invalidate what is cached."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def logs(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    frame = spark.createDataFrame(
        [(n, f"word{n % 5} error" if n % 3 else "fine") for n in range(60)], "id long, message string"
    )
    path = str(tmp_path / "t")
    frame.write.format("indextables").option("indexing.typemap.message", "text").save(path)
    yield path
    spark.catalog.clearCache()
    spark.catalog.dropTempView("cached_logs")


def load(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("indextables").load(path)


def is_cached(frame: DataFrame) -> bool:
    return "InMemoryRelation" in frame._jdf.queryExecution().executedPlan().toString()


def test_a_cached_table_is_searched(spark: SparkSession, logs: str) -> None:
    load(spark, logs).createOrReplaceTempView("cached_logs")
    spark.sql("CACHE TABLE cached_logs")
    assert spark.catalog.isCached("cached_logs")
    assert spark.sql("SELECT id FROM cached_logs WHERE message INDEXQUERY 'word1'").count() == 8
    assert spark.sql("SELECT id FROM cached_logs WHERE * INDEXQUERY 'error'").count() == 40
    assert spark.sql("SELECT score() FROM cached_logs WHERE message INDEXQUERY 'word1'").count() == 8


def test_a_cached_frame_is_searched_in_each_of_its_forms(spark: SparkSession, logs: str) -> None:
    frame = load(spark, logs).where("id < 30").select("message", "id").cache()
    assert frame.count() == 30
    assert is_cached(frame.groupBy("message").count())
    expected = load(spark, logs).where("id < 30 AND message LIKE 'word1 %'").count()
    assert frame.where("message INDEXQUERY 'word1'").count() == expected
    assert frame.alias("f").where("f.message INDEXQUERY 'word1'").count() == expected
    joined = frame.join(frame.select("id"), "id").where("message INDEXQUERY 'word1'")
    assert joined.count() == expected


def test_a_cached_search_is_used_again_and_searched_again(spark: SparkSession, logs: str) -> None:
    found = load(spark, logs).where("message INDEXQUERY 'error'").cache()
    assert found.count() == 40
    assert is_cached(found.select("id"))
    assert found.where("message INDEXQUERY 'word1'").count() == 8
    assert found.where("* INDEXQUERY 'word1'").count() == 8


def test_a_write_invalidates_a_cached_search(spark: SparkSession, logs: str) -> None:
    found = load(spark, logs).where("message INDEXQUERY 'error'").cache()
    assert found.count() == 40
    more = spark.createDataFrame([(100, "one more error")], "id long, message string")
    more.write.format("indextables").mode("append").save(logs)
    assert load(spark, logs).where("message INDEXQUERY 'error'").count() == 41
    assert found.count() == 41


def test_a_write_stands_when_what_is_cached_cannot_be_refreshed(spark: SparkSession, logs: str) -> None:
    found = load(spark, logs).select("message").cache()
    assert found.count() == 60
    write = spark.range(3).write.format("indextables").mode("overwrite").option("overwriteSchema", "true")
    write.save(logs)
    assert load(spark, logs).count() == 3
