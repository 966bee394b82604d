"""Which version of a table a query reads, and which queries are refused when the table changed under them."""

import itertools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import indextables

# Workers do not find the modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

_numbers = itertools.count()


@pytest.fixture
def ids(spark: SparkSession, tmp_path: Path) -> Any:
    """The path of a table with ids 1 to 3, and a view of it."""
    path = str(tmp_path / "ids")
    indextables.write(path, pa.table({"id": [1, 2, 3]}))
    view = f"snapshot_{next(_numbers)}"
    spark.read.format("indextables").load(path).createOrReplaceTempView(view)
    return path, view


@pytest.fixture
def by_tasks(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.indextables.read.inline.maxRows", "0")
    yield
    spark.conf.unset("spark.indextables.read.inline.maxRows")


# --- one version for a query --------------------------------------------------------------------------

QUERIES = {
    "self join": "SELECT count(*) FROM {v} a FULL JOIN {v} b ON a.id = b.id WHERE a.id IS NULL OR b.id IS NULL",
    "scalar subquery": "SELECT count(*) FROM {v} WHERE id > (SELECT max(id) FROM {v})",
    "not in": "SELECT count(*) FROM {v} WHERE id NOT IN (SELECT id FROM {v})",
    "common table expression": "WITH c AS (SELECT id FROM {v} WHERE id > 0) SELECT count(*) FROM c WHERE id NOT IN (SELECT id FROM {v})",
    "another spelling of the path": "SELECT count(*) FROM {v} WHERE id NOT IN (SELECT id FROM indextables.`file://{p}/`)",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_all_scans_of_a_query_read_one_version_although_rows_come_in_between(
    spark: SparkSession, ids: Any, by_tasks: None, query: Any
) -> None:
    path, view = ids
    data = spark.sql(query.format(v=view, p=path))
    data._jdf.queryExecution().optimizedPlan()
    indextables.write(path, pa.table({"id": [100]}))
    assert data.collect()[0][0] == 0
    assert spark.sql(query.format(v=view, p=path)).collect()[0][0] == 0
    assert spark.table(view).count() == 4


def test_a_commit_while_a_subquery_runs_is_not_seen_by_the_outer_query(
    spark: SparkSession, ids: Any, by_tasks: None, tmp_path: Path
) -> None:
    path, view = ids
    mark = tmp_path / "mark"

    @udf("bigint", useArrow=False)
    def commit(number: Any) -> Any:
        if not mark.exists():
            mark.touch()
            indextables.write(path, pa.table({"id": [100]}))
        return number

    spark.udf.register("commit_while_running", commit)
    sql = f"SELECT id FROM {view} WHERE id >= (SELECT min(commit_while_running(id)) FROM {view})"
    assert sorted(row.id for row in spark.sql(sql).collect()) == [1, 2, 3]
    assert mark.exists()
    assert sorted(row.id for row in spark.sql(sql).collect()) == [1, 2, 3, 100]


def test_a_dataframe_that_ran_keeps_its_version_and_one_made_from_it_reads_the_newest(
    spark: SparkSession, ids: Any, by_tasks: None
) -> None:
    path, view = ids
    data = spark.table(view).where("id > 1")
    assert sorted(row.id for row in data.collect()) == [2, 3]
    indextables.write(path, pa.table({"id": [100]}))
    assert sorted(row.id for row in data.collect()) == [2, 3]
    assert sorted(row.id for row in data.select("id").collect()) == [2, 3, 100]
    assert data.count() == 3


def test_cached_rows_stay_until_spark_is_told(spark: SparkSession, ids: Any) -> None:
    path, view = ids
    data = spark.table(view).where("id > 1").cache()
    try:
        assert data.count() == 2
        indextables.write(path, pa.table({"id": [100]}))
        assert spark.table(view).where("id > 1").count() == 2
    finally:
        data.unpersist()
    assert spark.table(view).where("id > 1").count() == 3


# --- a table that changed ------------------------------------------------------------------------------


def _overwrite(data: DataFrame, path: str, **options: str) -> None:
    data.coalesce(1).write.format("indextables").mode("overwrite").options(**options).save(path)


CHANGED = {
    "t": "bigint",
    "st": "struct<last: string, first: string>",
    "big": "double",
    "d": "integer",
}


@pytest.fixture(scope="module")
def changed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A view of a table, and a DataFrame of it, made before all its columns changed their types."""
    path = str(tmp_path_factory.mktemp("changed") / "table")
    _overwrite(
        spark.sql(
            "SELECT id, timestamp'2024-01-01 00:00:00' t, named_struct('first', 'Ann', 'last', 'Lee') st, "
            "id big, date'2024-01-01' d FROM range(3)"
        ),
        path,
    )
    data = spark.read.format("indextables").load(path)
    data.createOrReplaceTempView("changed_columns")
    _overwrite(
        spark.sql(
            "SELECT id, 5L t, named_struct('last', 'Lee', 'first', 'Ann') st, 2.9D big, 19000 d FROM range(3)"
        ),
        path,
        overwriteSchema="true",
    )
    return path


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT st.first, t, d FROM {v}",
        "SELECT max(big) FROM {v}",
        "SELECT count(*) FROM {v}",
        "SELECT id FROM {v} WHERE t > timestamp'2020-01-01 00:00:00'",
        "SELECT id FROM {v} WHERE d = date'2024-01-01'",
        "SELECT id FROM {v} ORDER BY t LIMIT 1",
        "SELECT a.id FROM {v} a JOIN {v} b ON a.d = b.d",
    ],
)
@pytest.mark.parametrize("inline", ["0", "4096"])
def test_a_view_made_before_its_columns_were_replaced_is_refused(
    spark: SparkSession, changed: str, sql: str, inline: str
) -> None:
    spark.conf.set("spark.indextables.read.inline.maxRows", inline)
    try:
        with pytest.raises(PySparkException) as caught:
            spark.sql(sql.format(v="changed_columns")).collect()
    finally:
        spark.conf.unset("spark.indextables.read.inline.maxRows")
    said = str(caught.value)
    assert "Create the DataFrame or the view again" in said
    assert "the column t was timestamp and is long now" in said
    assert "Traceback" not in said
    fresh = spark.read.format("indextables").load(changed)
    assert [row.t for row in fresh.collect()] == [5, 5, 5]


def test_a_dataframe_with_a_dropped_column_is_refused_without_a_traceback(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    path = str(tmp_path / "dropped")
    _overwrite(spark.sql("SELECT id, id AS gone FROM range(3)"), path)
    data = spark.read.format("indextables").load(path)
    _overwrite(spark.sql("SELECT id FROM range(3)"), path, overwriteSchema="true")
    for read in (data, data.select("gone"), data.where("gone > 1")):
        with pytest.raises(PySparkException) as caught:
            read.collect()
        assert "the column gone is not in the table any more" in str(caught.value)
        assert "Traceback" not in str(caught.value)


def test_a_dataframe_reads_on_after_columns_were_added(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "wider")
    _overwrite(spark.sql("SELECT id FROM range(3)"), path)
    data = spark.read.format("indextables").load(path)
    more = spark.sql("SELECT id, 'x' AS more FROM range(3, 5)").coalesce(1)
    more.write.format("indextables").mode("append").option("mergeSchema", "true").save(path)
    assert sorted(row.id for row in data.collect()) == [0, 1, 2, 3, 4]


def test_a_dataframe_whose_table_is_gone_is_refused_whatever_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "gone")
    indextables.write(path, pa.table({"id": [1, 2, 3]}))
    data = spark.read.format("indextables").load(path)
    assert data.count() == 3
    shutil.rmtree(path)
    for read in (data, data.select("id"), data.where("id = 1"), data.limit(1), data.groupBy("id").count()):
        with pytest.raises(PySparkException, match="no table at"):
            read.collect()
    with pytest.raises(PySparkException, match="no table at"):
        data.count()


def test_a_table_of_a_catalog_that_nobody_wrote_to_is_empty(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE never_written (id INT, message STRING) USING indextables")
    try:
        assert spark.sql("SELECT * FROM never_written").collect() == []
        assert (
            spark.sql("SELECT id FROM never_written WHERE message INDEXQUERY 'x' AND id = 1").collect() == []
        )
        assert spark.table("never_written").count() == 0
        assert spark.sql("SELECT max(id) FROM never_written").collect()[0][0] is None
    finally:
        spark.sql("DROP TABLE never_written")
