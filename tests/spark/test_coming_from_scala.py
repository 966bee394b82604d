"""What users of IndexTables for Scala bring along: class names, functions, options of a session."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import indextables
from tests.options.test_options import scala_configuration

FORMATS = (
    "io.indextables.spark.core.IndexTables4SparkTableProvider",
    "io.indextables.provider.IndexTablesProvider",
)
EXTENSIONS = (
    "io.indextables.spark.extensions.IndexTables4SparkExtensions",
    "io.indextables.extensions.IndexTablesSparkExtensions",
)


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("logs") / "t")
    rows = spark.createDataFrame([(n, f"hello w{n}") for n in range(20)], "id INT, message STRING")
    rows.write.format(FORMATS[0]).option("spark.indextables.indexing.typemap.message", "text").save(path)
    spark.read.format(FORMATS[1]).load(path).createOrReplaceTempView("scala_logs")
    return path


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[..., Any]]:
    """Set options of the session, and unset them after the test."""
    keys = []

    def set_all(options: Any) -> None:
        for key, value in options.items():
            keys.append(f"spark.indextables.{key}")
            spark.conf.set(keys[-1], value)

    yield set_all
    for key in keys:
        spark.conf.unset(key)


@pytest.mark.parametrize("name", FORMATS)
def test_format_names_of_the_original_are_known(spark: SparkSession, logs: str, name: str) -> None:
    assert spark.read.format(name).load(logs).where("message INDEXQUERY 'w3'").count() == 1
    spark.sql(f"CREATE TABLE by_class USING `{name}` LOCATION '{logs}'")
    try:
        assert spark.sql("SELECT id FROM by_class VERSION AS OF 1").count() == 20
        assert spark.sql("DESCRIBE HISTORY by_class").count() == 2
    finally:
        spark.sql("DROP TABLE by_class")


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_names_of_the_original_are_ours(spark: SparkSession, name: str) -> None:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    ours = loader.loadClass("org.apache.spark.sql.indextables.Extensions")
    assert ours.isAssignableFrom(loader.loadClass(name))


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("tantivy4spark_textsearch(message, 'w3')", 1),
        ("tantivy4spark_indexquery(message, 'hello')", 20),
        ("tantivy4spark_indexquery('message', 'hello')", 20),
        ("tantivy4spark_fieldmatch(id, '1')", 1),
        ("tantivy4spark_indexqueryall('w7')", 1),
    ],
)
def test_functions_of_the_original_search(spark: SparkSession, logs: str, condition: str, count: int) -> None:
    assert spark.sql(f"SELECT id FROM scala_logs WHERE {condition}").count() == count


@pytest.mark.parametrize("least", [0, 1])
def test_buckets_take_a_smallest_number_of_rows_that_changes_nothing(
    spark: SparkSession, logs: str, least: int
) -> None:
    found = spark.sql(
        f"SELECT indextables_histogram(id, 5, 0, {least}) AS b, count(*) AS n FROM scala_logs GROUP BY 1"
    )
    assert sorted(map(tuple, found.collect())) == [(0.0, 5), (5.0, 5), (10.0, 5), (15.0, 5)]


def test_a_larger_smallest_number_of_rows_is_refused(spark: SparkSession, logs: str) -> None:
    with pytest.raises(AnalysisException, match="HAVING count"):
        spark.sql("SELECT indextables_histogram(id, 5, 0, 3) AS b, count(*) FROM scala_logs GROUP BY 1")


def test_a_session_with_a_configuration_of_the_original_reads_writes_and_runs_commands(
    spark: SparkSession, logs: str, settings: Callable[..., Any], tmp_path: Path
) -> None:
    places = (
        "cache.disk.path",
        "cache.directoryPath",
        "indexWriter.tempDirectoryPath",
        "merge.tempDirectoryPath",
    )
    configuration = {
        key: str(tmp_path) if key in places else value
        for key, value in scala_configuration().items()
        if not key.startswith(("aws.", "azure.", "gcp.", "s3.", "databricks."))
    }
    assert len(configuration) > 220
    settings(configuration)
    assert spark.read.format("indextables").load(logs).where("message INDEXQUERY 'w3'").count() == 1
    path = str(tmp_path / "t")
    spark.range(5).write.format("indextables").save(path)
    assert spark.sql(f"MERGE SPLITS '{path}'").count() == 1
    assert spark.read.format("indextables").load(path).count() == 5


def test_typemaps_of_the_session_are_defaults_for_new_columns(
    spark: SparkSession, settings: Callable[..., Any], tmp_path: Path
) -> None:
    settings(
        {
            "indexing.typemap.message": "text",
            "indexing.typemap.other": "text",
            "indexing.typemap.ip": "client, nowhere",
            "indexing.fastfields": "message,elsewhere",
        }
    )
    path = str(tmp_path / "t")
    spark.createDataFrame([("a b", "10.0.0.1")], "message STRING, client STRING").write.format(
        "indextables"
    ).save(path)
    table = indextables.open(path)
    assert table.text_columns == ("message",)
    assert table.count("client = '10.0.0.0/8'") == 1
    # A table that is there is indexed as its properties say.
    plain = str(tmp_path / "plain")
    indextables.write(plain, [{"message": "a b"}])
    spark.createDataFrame([("c d",)], "message STRING").write.format("indextables").mode("append").save(plain)
    assert indextables.open(plain).text_columns == ()
    assert spark.sql(f"MERGE SPLITS '{plain}'").count() == 1
    with pytest.raises(AnalysisException, match="names the column 'third'"):
        spark.createDataFrame([("c d",)], "message STRING").write.format("indextables").option(
            "indexing.typemap.third", "text"
        ).mode("append").save(plain)


def test_options_may_come_from_the_hadoop_configuration(spark: SparkSession, logs: str) -> None:
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set("spark.indextables.read.mode", "no such mode")
    try:
        with pytest.raises(AnalysisException, match=r"read\.mode"):
            spark.read.format("indextables").load(logs).count()
        assert spark.read.format("indextables").option("read.mode", "fast").load(logs).count() == 20
    finally:
        hadoop.unset("spark.indextables.read.mode")


@pytest.mark.parametrize("statement", ["ENABLE INDEXTABLES PROFILER", "DESCRIBE INDEXTABLES PROFILER CACHE"])
def test_commands_without_a_counterpart_say_so(spark: SparkSession, statement: str) -> None:
    with pytest.raises(ParseException, match="there is no profiler"):
        spark.sql(statement)


def test_metrics_of_processes_are_in_the_environment(spark: SparkSession, logs: str) -> None:
    spark.read.format("indextables").load(logs).where("message INDEXQUERY 'w3'").collect()
    found = spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").where("property_type = 'metric'").collect()
    assert any(
        row.property_name.startswith("indextables.") and "count=" in row.property_value for row in found
    )


def test_settings_of_spark_and_hadoop_are_in_the_environment_without_secrets(spark: SparkSession) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.azure.account.key.x", "never-shown")
    hadoop.set("javax.jdo.option.ConnectionURL", "jdbc://h/db?password=never-shown")
    try:
        rows = spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").collect()
    finally:
        hadoop.unset("fs.azure.account.key.x")
        hadoop.unset("javax.jdo.option.ConnectionURL")
    values = {(row.property_type, row.property_name): row.property_value for row in rows}
    assert values["spark", "spark.master"].startswith("local")
    assert values["hadoop", "fs.defaultFS"] == "file:///"
    assert ("hadoop", "fs.azure.account.key.x") in values
    assert "never-shown" not in str(rows)


def _searches(spark: SparkSession) -> int:
    """The number of index searches of the driver, as the environment shows it."""
    found = spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").where(
        "role = 'driver' AND property_name = 'indextables.read.index_ms'"
    )
    return sum(int(row.property_value.rpartition("count=")[2]) for row in found.collect())


def test_metrics_of_the_driver_are_those_of_all_its_planner_processes(spark: SparkSession, logs: str) -> None:
    def search(word: str) -> int:
        return spark.read.format("indextables").load(logs).where(f"message INDEXQUERY '{word}'").count()

    before = _searches(spark)
    # Many at once, so that several processes answer.
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(search, [f"w{n}" for n in range(16)])) == [1] * 16
    after = _searches(spark)
    assert after >= before + 16
    assert _searches(spark) == after


def test_the_catalog_of_the_original_finds_an_index_by_its_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, index = str(tmp_path / "source"), str(tmp_path / "index")
    rows = spark.createDataFrame([(n, f"hello w{n}") for n in range(20)], "id INT, message STRING")
    rows.write.parquet(source)
    indextables.companion(source, at=index, modes={"message": "text"})
    spark.conf.set("spark.sql.catalog.companions", "io.indextables.catalog.IndexTablesCatalog")
    spark.sql(
        f"CREATE TABLE src (id INT, message STRING) USING parquet LOCATION '{source}' "
        f"TBLPROPERTIES ('indextables.companion.indexroot' = '{index}')"
    )
    spark.sql("CREATE TABLE plain_src (id INT) USING parquet")
    try:
        found = spark.sql("SELECT id FROM companions.spark_catalog.default.src WHERE message INDEXQUERY 'w3'")
        assert [row.id for row in found.collect()] == [3]
        with pytest.raises(AnalysisException, match="plain_src has no companion index"):
            spark.sql("SELECT * FROM companions.spark_catalog.default.plain_src")
        with pytest.raises(AnalysisException, match="give its catalog and namespace too"):
            spark.sql("SELECT * FROM companions.default.src")
        with pytest.raises(AnalysisException, match="is read-only"):
            spark.sql("CREATE TABLE companions.spark_catalog.default.other (id INT)")
    finally:
        spark.sql("DROP TABLE src")
        spark.sql("DROP TABLE plain_src")
