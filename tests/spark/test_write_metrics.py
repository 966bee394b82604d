"""Metrics of writes and reads on Spark's SQL page, and error messages of failed tasks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import indextables


def figures(
    spark: SparkSession, statement: Callable[..., Any], one: str = "splits written"
) -> dict[Any, Any]:
    """The metrics of the last write, or of what has the metric `one`, on Spark's SQL page, by their names there."""
    statement()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for place in range(executions.size() - 1, -1, -1):
        execution = executions.apply(place)
        values = store.executionMetrics(execution.executionId())
        metrics = [execution.metrics().apply(i) for i in range(execution.metrics().size())]
        found = {m.name(): values.get(m.accumulatorId()) for m in metrics}
        if one in found:
            return {name: value.get() for name, value in found.items() if value.isDefined()}
    raise AssertionError(f"nothing has the metric {one}")


def test_the_sql_page_shows_what_a_write_wrote(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "id % 5 AS part")
    path = str(tmp_path / "t")
    found = figures(spark, lambda: rows.write.format("indextables").partitionBy("part").save(path))
    files = indextables.open(path).files()
    assert found["rows written"] == "100"
    assert found["splits written"] == "10" == str(files.num_rows)
    assert found["partitions written to"] == "5"
    assert found["bytes written"] == str(sum(files["size"].to_pylist()))


def test_the_sql_page_shows_an_insert_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE metrics_of_inserts (id BIGINT) USING indextables LOCATION '{tmp_path}/t'")
    try:
        found = figures(
            spark, lambda: spark.sql("INSERT INTO metrics_of_inserts SELECT id FROM range(0, 7, 1, 1)")
        )
        assert (found["rows written"], found["splits written"], found["partitions written to"]) == (
            "7",
            "1",
            "1",
        )
        nothing = figures(spark, lambda: spark.sql("INSERT INTO metrics_of_inserts SELECT id FROM range(0)"))
        assert (nothing["rows written"], nothing["splits written"]) == ("0", "0")
    finally:
        spark.sql("DROP TABLE metrics_of_inserts")


def test_the_sql_page_shows_the_times_of_each_phase_of_a_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = [{"id": n, "text": f"row {n}"} for n in range(100)]
    indextables.write(path, rows, options={"indexing.typemap.text": "text"})
    reader = spark.read.format("indextables").option("read.inline.maxRows", "0")
    table = reader.load(path).where("text INDEXQUERY 'row' AND id < 7")
    found = figures(spark, table.collect, "splits read")
    assert (found["splits considered"], found["splits read"], found["rows returned by splits"]) == (
        "1",
        "1",
        "7",
    )
    for phase in ("planning time (ms)", "time to open and search indexes (ms)", "time to read rows (ms)"):
        assert int(found[phase].replace(",", "")) >= 0


def sentence(action: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


def damaged(spark: SparkSession, path: str) -> DataFrame:
    spark.range(0, 10, 1, 1).write.format("indextables").save(path)
    (split,) = Path(path).rglob("*.split")
    split.write_bytes(split.read_bytes()[:-50])
    return spark.read.format("indextables").option("read.inline.maxRows", "0").load(path)


def test_a_damaged_split_is_told_in_a_sentence_wherever_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = damaged(spark, str(tmp_path / "t"))
    for action in (
        table.collect,
        table.where("id > 3").count,
        lambda: table.orderBy("id").limit(3).collect(),
    ):
        said = sentence(action)
        assert said.startswith("file:///")
        assert ".split" in said.splitlines()[0]
        assert "Traceback" not in said
        assert "Job aborted" not in said


def test_a_damaged_split_is_told_by_a_write_that_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    table = damaged(spark, str(tmp_path / "t"))
    said = sentence(lambda: table.write.format("indextables").save(str(tmp_path / "copy")))
    assert said.startswith("file:///")
    assert "Traceback" not in said


def test_rows_that_a_write_must_not_bring_are_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 9, 1, 1).selectExpr("id", "id % 3 AS part")
    rows.write.format("indextables").partitionBy("part").save(str(tmp_path / "t"))
    replace = rows.write.format("indextables").mode("overwrite").option("replaceWhere", "part = 1")
    said = sentence(lambda: replace.save(str(tmp_path / "t")))
    assert said == (
        "6 of 9 rows do not match the condition of replaceWhere, part = 1; write only rows that do"
    )


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_an_error_of_someone_else_keeps_its_traceback(spark: SparkSession, tmp_path: Path) -> None:
    def broken(batches: Any) -> Iterator[Any]:
        for _ in batches:
            raise RuntimeError("not ours")
        yield from ()

    rows = spark.range(3).mapInArrow(broken, "id long")
    said = sentence(lambda: rows.write.format("indextables").save(str(tmp_path / "t")))
    assert "RuntimeError: not ours" in said
    assert "Traceback" in said


def test_what_a_task_of_a_command_cannot_do_is_told_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    spark.range(0, 4, 1, 2).write.format("indextables").save(path)
    spark.conf.set("spark.indextables.indexWriter.tempDirectoryPath", str(tmp_path / "nowhere"))
    try:
        said = sentence(lambda: spark.sql(f"MERGE SPLITS '{path}'").collect())
    finally:
        spark.conf.unset("spark.indextables.indexWriter.tempDirectoryPath")
    assert "indexWriter.tempDirectoryPath" in said.splitlines()[0]
    assert "Traceback" not in said
    jobs = spark.sql("DESCRIBE INDEXTABLES MERGE JOBS").collect()
    (job,) = [row for row in jobs if row.table_path == indextables.open(path).url]
    assert (job.status, job.error_message) == ("FAILED", said)
