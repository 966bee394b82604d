"""Writing by path: the four modes, partitions, overwrites that replace what they cover, schemas."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import indextables
from tests.split.every_type import sized_rows


@pytest.fixture
def days(spark: SparkSession) -> DataFrame:
    """Nine rows, three for each of the days a, b and c."""
    return spark.range(9).selectExpr(
        "id", "substr('abc', id % 3 + 1, 1) AS day", "concat('row ', id) AS text"
    )


def ids(path: str) -> list[Any]:
    return sorted(indextables.open(path).scan(columns=["id"])["id"].to_pylist())


def versions(path: str) -> int:
    return indextables.open(path).version


def writer(frame: DataFrame, mode: str = "append", **options: str) -> Any:
    return frame.write.format("indextables").mode(mode).options(**options)


def test_each_mode_does_to_a_table_what_it_says(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days, "errorifexists").save(path)
    with pytest.raises(AnalysisException, match="a table exists at"):
        writer(days, "errorifexists").save(path)
    writer(days, "ignore").save(path)
    assert ids(path) == list(range(9))
    writer(days, "append").save(path)
    assert ids(path) == sorted([*range(9), *range(9)])
    writer(days.limit(2), "overwrite").save(path)
    assert len(ids(path)) == 2


def test_a_write_is_one_version(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days.repartition(4)).save(path)
    before = versions(path)
    writer(days.repartition(4), "overwrite").save(path)
    assert versions(path) == before + 1
    assert indextables.open(path).history()["operation"][0].as_py() == "OVERWRITE"


def test_rows_of_a_partition_share_splits_of_its_folder(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    table = indextables.open(path)
    assert table.partition_columns == ("day",)
    folders = {entry.split("/")[0] for entry in table.files()["path"].to_pylist()}
    assert folders == {"day=a", "day=b", "day=c"}
    assert ids(path) == list(range(9))


def test_other_partition_columns_than_the_tables_are_refused(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    with pytest.raises(AnalysisException, match=r"is partitioned by \(day\), not by \(id\)"):
        writer(days).partitionBy("id").save(path)


@pytest.mark.parametrize("by", ["option", "session"])
def test_a_dynamic_overwrite_replaces_only_partitions_that_get_rows(
    spark: SparkSession, days: DataFrame, tmp_path: Path, by: str
) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    new = days.where("day = 'b'").limit(1)
    if by == "option":
        writer(new, "overwrite", partitionOverwriteMode="dynamic").save(path)
    else:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            writer(new, "overwrite").save(path)
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(path) == [0, 1, 2, 3, 5, 6, 8]


def test_replace_where_replaces_what_its_condition_covers(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    writer(days.where("id = 1"), "overwrite", replaceWhere="day >= 'b'").save(path)
    assert ids(path) == [0, 1, 3, 6]


def test_replace_where_refuses_a_condition_that_cuts_through_splits(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days.coalesce(1)).save(path)
    before = versions(path)
    with pytest.raises(AnalysisException, match="covers only some rows of 1 splits"):
        writer(days.where("id = 1"), "overwrite", replaceWhere="id = 1").save(path)
    assert versions(path) == before


def test_replace_where_takes_whole_splits_by_their_statistics(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days.where("id < 5").coalesce(1)).save(path)
    writer(days.where("id >= 5").coalesce(1)).save(path)
    writer(days.where("id = 7"), "overwrite", replaceWhere="id >= 5").save(path)
    assert ids(path) == [0, 1, 2, 3, 4, 7]


def test_replace_where_refuses_rows_outside_of_its_condition(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    with pytest.raises(Exception, match="do not match the condition of replaceWhere"):
        writer(days, "overwrite", replaceWhere="day = 'b'").save(path)
    assert ids(path) == list(range(9))


def test_an_append_is_checked_by_name_and_order_does_not_matter(
    spark: SparkSession, days: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    writer(days).save(path)
    writer(spark.createDataFrame([("moved", 9)], "text string, ID long")).save(path)
    rows = indextables.open(path).scan(where="id = 9").to_pylist()
    assert rows == [{"id": 9, "day": None, "text": "moved"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [("id long, other string", "no column other"), ("id string", "column id is int64 in the table")],
)
def test_an_append_that_does_not_fit_is_refused_by_name_before_any_task(
    spark: SparkSession, days: DataFrame, tmp_path: Path, columns: str, message: str
) -> None:
    path = str(tmp_path / "t")
    writer(days).save(path)
    bad = spark.createDataFrame([], columns)
    with pytest.raises(AnalysisException, match=message):
        writer(bad).save(path)


def test_merge_schema_adds_columns_that_are_null_in_older_rows(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days.limit(1)).save(path)
    writer(days.limit(1).withColumn("extra", F.lit(5)), mergeSchema="true").save(path)
    assert sorted(indextables.open(path).scan()["extra"].to_pylist(), key=str) == [5, None]


def test_overwrite_schema_replaces_columns_and_partitions(
    spark: SparkSession, days: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    writer(days).partitionBy("day").save(path)
    with pytest.raises(AnalysisException, match="no column other"):
        writer(spark.range(2).withColumnRenamed("id", "other"), "overwrite").save(path)
    writer(spark.range(2).withColumnRenamed("id", "other"), "overwrite", overwriteSchema="true").save(path)
    assert indextables.open(path).schema.names == ["other"]
    assert indextables.open(path).partition_columns == ()


def test_every_type_that_can_be_stored_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.sql(
        "SELECT cast(1 AS tinyint) a, cast(2 AS smallint) b, 1.5f c, double('NaN') d, cast(3.25 AS decimal(38,3)) e,"
        " date'0001-01-01' f, timestamp'2020-01-02 03:04:05.123456' g, timestamp_ntz'2020-01-02 03:04:05.123456' h,"
        " true i, X'00FF' j, array(1, null) k, map('x', 1) l, named_struct('p', 1, 'q', null) m, cast(null AS string) n"
    )
    writer(rows).save(path)
    back = spark.read.format("indextables").load(path)
    assert [f.dataType for f in back.schema] == [f.dataType for f in rows.schema]
    assert str(back.collect()) == str(rows.collect())


def test_session_confs_reach_the_writer_and_options_win(
    spark: SparkSession, days: DataFrame, tmp_path: Path
) -> None:
    spark.conf.set("spark.indextables.commit.userMetadata", "from the session")
    try:
        writer(days).save(str(tmp_path / "t"))
        writer(days, **{"spark.indextables.commit.userMetadata": "from the call"}).save(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.indextables.commit.userMetadata")
    told = indextables.open(tmp_path / "t").history()["user_metadata"].to_pylist()
    assert told[:2] == ["from the call", "from the session"]


def test_unknown_options_are_errors(days: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'mergeSchema'"):
        writer(days, mergeSchemas="true").save(str(tmp_path / "t"))


def test_optimized_writes_leave_one_split_where_tasks_would_leave_many(
    days: DataFrame, tmp_path: Path
) -> None:
    scattered = days.repartition(5)
    writer(scattered).partitionBy("day").save(str(tmp_path / "plain"))
    optimized = {"write.optimizeWrite.enabled": "true"}
    writer(scattered, **optimized).partitionBy("day").save(str(tmp_path / "hash"))
    balanced = {**optimized, "write.optimizeWrite.distributionMode": "balanced"}
    writer(scattered, **balanced).save(str(tmp_path / "balanced"))
    assert indextables.open(tmp_path / "plain").files().num_rows > 3
    assert indextables.open(tmp_path / "hash").files().num_rows == 3
    assert indextables.open(tmp_path / "balanced").files().num_rows == 1


@pytest.mark.parametrize(("target", "rows"), [("2M", 20_000), ("8M", 50_000), ("16M", 90_000)])
def test_all_splits_of_a_task_but_the_last_have_the_target_size(
    spark: SparkSession, tmp_path: Path, target: str, rows: int
) -> None:
    pq.write_table(sized_rows(rows), tmp_path / "rows.parquet", row_group_size=rows)
    source = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    options = {"write.optimizeWrite.targetSplitSize": target, "indexing.typemap.message": "text"}
    writer(source, **options).save(str(tmp_path / "t"))
    table = indextables.open(tmp_path / "t")
    *full, _ = [size / 2**20 / float(target[:-1]) for size in table.files()["size"].to_pylist()]
    assert full
    assert all(0.8 < share < 1.2 for share in full), full
    assert table.count() == rows


def test_a_batch_is_written_once_however_often_it_is_sent(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for _ in range(2):
        writer(days, **{"txn.appId": "stream", "txn.version": "7"}).save(path)
    assert ids(path) == list(range(9))


def test_results_that_spark_keeps_are_dropped_by_a_write(
    spark: SparkSession, days: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    writer(days).save(path)
    kept = spark.read.format("indextables").load(path).cache()
    assert kept.count() == 9
    writer(days).save(path)
    assert spark.read.format("indextables").load(path).count() == 18
    kept.unpersist()


def test_a_table_of_no_rows_has_its_columns(spark: SparkSession, days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer(days.where("false")).save(path)
    assert spark.read.format("indextables").load(path).columns == ["id", "day", "text"]
    assert indextables.open(path).count() == 0


def test_partition_values_of_any_kind_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    odd = [(1, "a/b=c %20 ü"), (2, None), (3, ""), (4, "x" * 50)]
    writer(spark.createDataFrame(odd, "id long, part string")).partitionBy("part").save(path)
    back = indextables.open(path).scan()
    got = dict(zip(back["id"].to_pylist(), back["part"].to_pylist(), strict=True))
    assert {k: got[k] for k in (1, 2, 4)} == {1: "a/b=c %20 ü", 2: None, 4: "x" * 50}
    assert got[3] in ("", None)


def test_what_plain_python_wrote_spark_appends_to(days: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    indextables.write(
        path,
        pa.table({"id": [100], "day": ["a"], "text": ["first"]}),
        options={"indexing.typemap.text": "text"},
    )
    writer(days).save(path)
    assert indextables.open(path).search("row", field="text", limit=100).num_rows == 9


def test_names_of_columns_may_be_anything(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.sql(
        "SELECT id AS `a.b`, concat('x', id) AS `größe 東`, struct(id AS `c d`) AS `e``f`, id % 2 AS `part of it`"
        " FROM range(4)"
    )
    shuffled = {"write.optimizeWrite.enabled": "true"}
    writer(rows, **shuffled).partitionBy("`part of it`").save(path)
    table = spark.read.format("indextables").load(path)
    assert sorted(table.collect()) == sorted(rows.collect())
    assert table.where("`a.b` = 3 AND `e``f`.`c d` > 1 AND `part of it` = 1").count() == 1
    assert table.groupBy("part of it").count().count() == 2
    keys = spark.sql("SELECT 1 AS `part of it`, 'yes' AS found")
    assert table.join(keys, "part of it").where("found = 'yes'").count() == 2
    writer(rows.where("`part of it` = 0").limit(1), "overwrite", replaceWhere="`part of it` = 0").save(path)
    assert indextables.open(path).count() == 3


def test_rows_without_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="the rows have no columns"):
        writer(spark.range(1).select()).save(str(tmp_path / "t"))
