"""Changes of a table in Spark: options of a read, the table function, and the same rows as in Python."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader

import indextables


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Versions 1 and 2 append, 3 merges, 4 overwrites."""
    path = str(tmp_path_factory.mktemp("changes") / "t")
    options = {"indexing.typemap.text": "text"}
    indextables.write(path, [{"id": 1, "text": "red row"}, {"id": 2, "text": "blue row"}], options=options)
    indextables.write(path, [{"id": 3, "text": "red again"}])
    indextables.open(path).merge()
    indextables.write(path, [{"id": 4, "text": "all new"}], mode="overwrite")
    return path


@pytest.fixture(scope="module")
def named(spark: SparkSession, path: str) -> Iterator[str]:
    spark.sql(f"CREATE TABLE changed USING indextables LOCATION '{path}'")
    yield "changed"
    spark.sql("DROP TABLE changed")


ALL = [(1, "insert", 1), (1, "insert", 2), (2, "insert", 3), (4, "delete", 1), (4, "delete", 2)]
ALL = [*ALL, (4, "delete", 3), (4, "insert", 4)]


def shown(frame: DataFrame) -> list[Any]:
    return sorted(tuple(r) for r in frame.select("_commit_version", "_change_type", "id").collect())


def read(spark: SparkSession, **options: int) -> DataFrameReader:
    return spark.read.format("indextables").option("readChanges", "true").options(**options)


def test_options_of_a_read_choose_the_versions(spark: SparkSession, path: str) -> None:
    frame = read(spark, startingVersion=0).load(path)
    assert shown(frame) == ALL
    assert frame.columns == ["id", "text", "_change_type", "_commit_version", "_commit_timestamp"]
    expected = indextables.open(path).changes(-1).sort_by([("_commit_version", "ascending")])
    assert sorted(r._commit_timestamp.timestamp() for r in frame.collect()) == sorted(
        t.timestamp() for t in expected["_commit_timestamp"].to_pylist()
    )
    assert shown(read(spark, startingVersion=2, endingVersion=3).load(path)) == [(2, "insert", 3)]
    stamps = dict(zip(*indextables.open(path).history().select([0, 1]).to_pydict().values(), strict=True))
    second = stamps[2].strftime("%Y-%m-%d %H:%M:%S.%f")
    found = read(spark, startingTimestamp=second, endingTimestamp=second).load(path)
    assert shown(found) == [(2, "insert", 3)]


def test_changes_until_a_time_have_the_columns_of_that_time(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = indextables.write(path, [{"id": 1}])
    until = table.history()["timestamp"][0].as_py().strftime("%Y-%m-%d %H:%M:%S.%f")
    indextables.write(path, [{"id": 2, "more": "x"}], options={"mergeSchema": True})
    frame = read(spark, startingVersion=0).option("endingTimestamp", until).load(path)
    assert frame.columns[0] == "id"
    assert "more" not in frame.columns
    assert shown(frame) == [(1, "insert", 1)]


def test_rows_that_a_range_inserts_and_deletes_have_both_changes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for n in range(3):
        mode = "overwrite" if n == 2 else "append"
        indextables.write(
            path, [{"id": n, "text": "red row"}], mode=mode, options={"indexing.typemap.text": "text"}
        )
    deletes = [(3, "delete", 0), (3, "delete", 1)]
    expected = [(1, "insert", 0), (2, "insert", 1), *deletes, (3, "insert", 2)]
    frame = read(spark, startingVersion=0).load(path)
    for _ in range(2):
        assert shown(frame) == expected
        assert shown(frame.where("text INDEXQUERY 'red' AND _change_type = 'delete'")) == deletes
        # A condition that only rows can answer: it is evaluated in tasks.
        assert shown(frame.where("reverse(_change_type) = 'eteled'")) == deletes
        assert shown(frame.where("reverse(text) = 'wor der'")) == expected
    stream = spark.readStream.format("indextables").option("readChanges", "true").option("startingVersion", 0)
    came: list[Any] = []
    for condition in ("TRUE", "_change_type = 'delete'"):
        rows = stream.load(path).where(condition)
        writer = rows.writeStream.foreachBatch(lambda batch, _: came.append(shown(batch)))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert [batch for batch in came if batch] == [expected, deletes]


def test_filters_searches_and_aggregates_are_pushed(spark: SparkSession, path: str, named: str) -> None:
    frame = read(spark, startingVersion=0).load(path)
    where = "text INDEXQUERY 'red' AND _change_type = 'insert'"
    assert shown(frame.where(where)) == [(1, "insert", 1), (2, "insert", 3)]
    plan = frame.where("_commit_version = 2")._jdf.queryExecution().executedPlan().toString()
    assert "_commit_version = 2] RuntimeFilters" in plan
    counts = frame.groupBy("_change_type").count().collect()
    assert {r[0]: r[1] for r in counts} == {"insert": 4, "delete": 3}
    both = f"SELECT count(*) FROM {named} t JOIN indextables_changes('{named}', 4) c ON t.id = c.id"
    assert spark.sql(both).collect()[0][0] == 1, "a table and its changes in one query are two things"


def test_the_table_function_takes_names_paths_versions_and_times(
    spark: SparkSession, path: str, named: str
) -> None:
    select = "SELECT * FROM indextables_changes"
    assert shown(spark.sql(f"{select}('{named}', 0)")) == ALL
    assert shown(spark.sql(f"{select}('default.{named}', 1, 3)")) == ALL[:3]
    assert shown(spark.sql(f"{select}('{path}', 2, 2)")) == [(2, "insert", 3)]
    assert shown(spark.sql(f"{select}('{path}', '1999-01-01', current_timestamp())")) == ALL
    assert shown(spark.sql(f"{select}('{path}', DATE '1999-01-01')")) == ALL
    assert shown(spark.sql(f"{select}('{path}', current_timestamp() - INTERVAL 1 HOUR)")) == ALL
    assert (
        shown(spark.read.option("readChanges", "true").option("startingVersion", 4).table(named)) == ALL[3:]
    )


def test_ranges_and_arguments_that_make_no_sense_are_refused(
    spark: SparkSession, path: str, named: str
) -> None:
    for options, problem in (
        ({}, "readChanges needs a start"),
        ({"startingVersion": 9}, "after the last one, 4"),
        ({"startingVersion": 1, "startingTimestamp": "2024-01-01"}, "not both"),
        ({"startingVersion": 1, "endingVersion": 3, "endingTimestamp": "2024-01-01"}, "not both"),
        ({"startingVersion": 1, "versionAsOf": 2}, "instead of versionAsOf"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"startingVersion": -3}, "but a version"),
    ):
        with pytest.raises(PySparkException, match=problem):
            read(spark, **options).load(path).collect()
    with pytest.raises(PySparkException, match="add readChanges=true"):
        spark.read.format("indextables").option("startingVersion", 1).load(path).collect()
    for arguments, problem in (
        (f"'{named}'", "not 1 arguments"),
        ("'nowhere', 1", "not a table of indextables"),
        (f"'{named}', true", "versions or times, not BOOLEAN"),
        (f"'{named}', NULL", "versions or times|cannot be null"),
        (f"'{named}', rand()", "have to be constants"),
    ):
        with pytest.raises(PySparkException, match=problem):
            spark.sql(f"SELECT * FROM indextables_changes({arguments})").collect()
