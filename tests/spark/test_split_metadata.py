"""Where a row comes from, several tables as one, and what tasks have read and written."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import indextables


@pytest.fixture(scope="module")
def paths(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two tables of the same columns, the first with two splits."""
    folder = tmp_path_factory.mktemp("paths")
    first, second = str(folder / "first"), str(folder / "second")
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "concat('w', id, ' word') AS message")
    for path, part in ((first, rows), (second, rows.where("id < 5").coalesce(1))):
        part.write.format("indextables").option("indexing.typemap.message", "text").save(path)
    return first, second


def load(spark: SparkSession, path: list[Any], **options: Any) -> DataFrame:
    return spark.read.format("indextables").options(**options).load(path)


@pytest.mark.parametrize("inline", ["0", "1000"])
def test_metadata_columns_tell_the_split_of_a_row(spark: SparkSession, paths: Any, inline: str) -> None:
    files = indextables.open(paths[0]).files()
    expected = {
        f"file://{paths[0]}/{path}": (path, size, rows)
        for path, size, rows in zip(
            files["path"].to_pylist(), files["size"].to_pylist(), files["numRecords"].to_pylist(), strict=True
        )
    }
    frame = load(spark, paths[0], **{"read.inline.maxRows": inline})
    found = (
        frame.groupBy("_metadata.file_path", "_metadata.file_name", "_metadata.file_size").count().collect()
    )
    assert {row[0]: (row[1], row[2], row[3]) for row in found} == expected
    assert frame.columns == ["id", "message"]
    row = frame.where("message INDEXQUERY 'w3'").select("id", "_metadata").first()
    assert (row.id, row._metadata.file_path in expected) == (3, True)
    names = {row[0] for row in frame.selectExpr("input_file_name()").collect()}
    assert names == set(expected)
    assert frame.where(f"input_file_name() = '{max(expected)}'").count() == expected[max(expected)][2]
    assert (
        frame.where(f"_metadata.file_name = '{expected[max(expected)][0]}'").count()
        == expected[max(expected)][2]
    )


def test_input_file_name_above_a_common_table_expression_is_the_path_of_the_split(
    spark: SparkSession, paths: Any
) -> None:
    load(spark, paths[0]).createOrReplaceTempView("split_rows")
    expected = {
        f"file://{paths[0]}/{path}" for path in indextables.open(paths[0]).files()["path"].to_pylist()
    }
    for query in (
        "WITH x AS (SELECT * FROM split_rows) SELECT input_file_name() FROM x",
        "WITH x AS (SELECT * FROM split_rows), y AS (SELECT * FROM x WHERE id >= 0) SELECT input_file_name() FROM y",
        "WITH x AS (SELECT * FROM split_rows) SELECT explode((SELECT collect_set(input_file_name()) FROM x))",
    ):
        assert {row[0] for row in spark.sql(query).collect()} == expected


def test_input_file_name_of_other_sources_is_theirs(spark: SparkSession, paths: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "p"))
    name = spark.read.parquet(str(tmp_path / "p")).selectExpr("input_file_name()").first()[0]
    assert name.endswith(".parquet")


def test_several_tables_are_loaded_with_some_columns_of_a_schema(spark: SparkSession, paths: Any) -> None:
    reader = spark.read.format("indextables")
    some = reader.schema("message STRING").load(list(paths))
    assert some.columns == ["message"]
    assert some.where("message INDEXQUERY 'w3'").collect() == [("w3 word",), ("w3 word",)]
    swapped = reader.schema("message STRING, id BIGINT").load(list(paths))
    assert sorted(swapped.where("id < 1").collect()) == [("w0 word", 0), ("w0 word", 0)]
    for schema, problem in (("id STRING", "has id BIGINT"), ("nope INT", "has the columns id, message")):
        with pytest.raises(AnalysisException, match=problem):
            reader.schema(schema).load(list(paths)).collect()


def test_several_tables_are_loaded_as_one(spark: SparkSession, paths: Any) -> None:
    both = load(spark, list(paths))
    assert both.count() == 25
    assert both.columns == ["id", "message"]
    assert sorted(row.id for row in both.where("message INDEXQUERY 'w3'").collect()) == [3, 3]
    assert both.where("id = 19").count() == 1
    assert both.agg({"id": "max"}).first()[0] == 19
    assert load(spark, [paths[1]]).count() == 5


def test_rows_of_several_tables_have_files_scores_and_fragments(spark: SparkSession, paths: Any) -> None:
    both = load(spark, list(paths))
    own = {row[0] for path in paths for row in load(spark, path).select("_metadata.file_path").collect()}
    assert {row[0] for row in both.selectExpr("input_file_name()").collect()} == own
    assert {row[0] for row in both.select("_metadata.file_path").collect()} == own
    size = both.select("id", "_metadata").where("id = 19").first()._metadata.file_size
    assert size > 0
    assert both.where("_metadata.file_name LIKE 'part-%' AND _metadata.file_size > 0").count() == 25
    assert both.groupBy("_metadata.file_path").count().agg({"count": "sum"}).first()[0] == 25
    found = both.where("message INDEXQUERY 'w3'").orderBy("_score", "id").selectExpr("highlight(message)")
    texts = [row[0] for row in found.collect()]
    assert len(texts) == 2
    assert all("<b>w3</b>" in text for text in texts)
    joined = both.alias("a").join(load(spark, paths[0]).alias("b"), "id").where("id = 3")
    assert joined.count() == 2


def test_several_tables_have_to_have_the_same_columns(
    spark: SparkSession, paths: Any, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    indextables.write(other, [{"id": 1, "text": "a"}])
    with pytest.raises(
        AnalysisException, match=r"has other columns than the one at .*; load them one by one"
    ):
        load(spark, [paths[0], other])
    with pytest.raises(AnalysisException, match="no table at"):
        load(spark, [paths[0], str(tmp_path / "nowhere")])


def stages(spark: SparkSession, group: str) -> list[Any]:
    """Input and output figures of the stages of a job group: bytes and rows read, bytes and rows written."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    done = [store.lastStageAttempt(number) for job in jobs for number in job.stageIds]
    return [(s.inputBytes(), s.inputRecords(), s.outputBytes(), s.outputRecords()) for s in done]


def test_tasks_show_what_they_read_and_wrote(spark: SparkSession, paths: Any, tmp_path: Path) -> None:
    rows = load(spark, paths[0], **{"read.inline.maxRows": "0"})
    spark.sparkContext.setJobGroup("figures", "a write")
    try:
        rows.write.format("indextables").save(str(tmp_path / "t"))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    figures = stages(spark, "figures")
    read_bytes, read_rows, written_bytes, written_rows = (
        sum(column) for column in zip(*figures, strict=True)
    )
    assert read_rows == 20
    assert read_bytes > 0
    files = indextables.open(tmp_path / "t").files()
    assert written_rows == 20
    assert written_bytes == sum(files["size"].to_pylist())
