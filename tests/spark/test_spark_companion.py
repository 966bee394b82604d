"""Companion indexes in Spark: built by its executors, and read as Spark reads the source."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

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
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def build(spark: SparkSession, source: Path, index: Path, clauses: str = "") -> dict[str, Any]:
    (row,) = spark.sql(
        f"BUILD INDEXTABLES COMPANION FOR PARQUET '{source}' INDEXING MODES ('message':'text') {clauses} "
        f"AT LOCATION '{index}'"
    ).collect()
    return row.asDict()


def test_an_index_is_built_by_executors_and_read_as_spark_reads_the_source(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
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


def test_a_sync_reads_what_is_new_and_freshness_reads_all(spark: SparkSession, tmp_path: Path) -> None:
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


def test_what_would_change_an_index_is_refused(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    indextables.companion(source, at=index)
    companion = spark.read.format("indextables").load(str(index))
    with pytest.raises(PySparkException, match="a write is not possible for the companion index"):
        companion.limit(1).write.format("indextables").mode("append").save(str(index))
    for text, says in (
        (
            f"DROP INDEXTABLES PARTITIONS FROM '{index}' WHERE day = 'd1'",
            "dropping partitions is not possible for the companion index",
        ),
        (
            f"DELETE FROM indextables.`{index}` WHERE day = 'd1'",
            "a delete is not possible for the companion index",
        ),
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
    stream = spark.readStream.format("indextables").load(str(index)).writeStream.format("noop")
    with pytest.raises(PySparkException, match="read the changes of its source"):
        stream.trigger(availableNow=True).start().awaitTermination()


def test_commands_run_on_an_index(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    build(spark, source, index, "TARGET INPUT SIZE 1")
    splits = indextables.open(index).files().num_rows
    assert splits == 6
    rows = spark.read.format("indextables").load(str(index))
    expected = sorted(map(tuple, spark.read.parquet(str(source)).collect()), key=str)
    (merged,) = spark.sql(f"MERGE SPLITS '{index}'").collect()
    assert "success" in str(merged).lower()
    assert indextables.open(index).files().num_rows == 3
    assert sorted(map(tuple, rows.collect()), key=str) == expected
    assert rows.where("message INDEXQUERY 'disk'").count() == 24
    for statement in (
        f"PREWARM INDEXTABLES CACHE '{index}'",
        f"DESCRIBE INDEXTABLES HISTORY '{index}'",
        f"DESCRIBE INDEXTABLES STATE '{index}'",
        f"DESCRIBE INDEXTABLES TRANSACTION LOG '{index}'",
        f"DESCRIBE INDEXTABLES COMPONENT SIZES '{index}'",
        f"DESCRIBE INDEXTABLES DATA SKIPPING STATS '{index}'",
        f"CHECKPOINT INDEXTABLES '{index}'",
        f"PURGE INDEXTABLE '{index}' DRY RUN",
        f"PURGE INDEXTABLE '{index}'",
    ):
        assert spark.sql(statement).count() >= 1, statement
    spark.sql(f"SET INDEXTABLES TABLE ROOT 'copy' = '{source}' AT '{index}'").collect()
    assert [
        row.root_name for row in spark.sql(f"DESCRIBE INDEXTABLES TABLE ROOTS AT '{index}'").collect()
    ] == ["copy"]
    read = spark.read.format("indextables").option("companion.tableRootDesignator", "copy").load(str(index))
    assert read.count() == 60
    spark.sql(f"UNSET INDEXTABLES TABLE ROOT 'copy' AT '{index}'").collect()
    assert rows.count() == 60
    buckets = (
        rows.selectExpr("indextables_histogram(id, 20) AS b").groupBy("b").count().orderBy("b").collect()
    )
    assert [row["count"] for row in buckets] == [20, 20, 20]


@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A Parquet table of the session catalog, whose property names its companion index."""
    words = "array('disk full', 'all well', 'Disk slow', 'login failed', null)"
    frame = spark.range(40).selectExpr("id", f"{words}[id % 5] AS message", "concat('d', id % 2) AS day")
    frame.write.option("path", str(tmp_path / "named")).format("parquet").saveAsTable("named_source")
    index = tmp_path / "index"
    spark.sql(f"ALTER TABLE named_source SET TBLPROPERTIES ('indextables.companion.indexroot' = '{index}')")
    build(spark, tmp_path / "named", index)
    yield index
    spark.sql("DROP TABLE named_source")


def test_a_source_is_searched_by_its_own_name(spark: SparkSession, named: Path, tmp_path: Path) -> None:
    def ids(query: str) -> list[int]:
        return [row.id for row in spark.sql(query).collect()]

    search = "SELECT id FROM named_source WHERE message INDEXQUERY 'disk' ORDER BY id"
    having = [number for number in range(40) if number % 5 in (0, 2)]
    assert ids(search) == having
    assert "indextables" in spark.sql(search)._jdf.queryExecution().optimizedPlan().toString()
    assert ids("SELECT id FROM named_source WHERE * INDEXQUERY 'slow' AND day = 'd1' ORDER BY id") == [
        7,
        17,
        27,
        37,
    ]
    assert ids(
        "WITH w AS (SELECT id, message AS m FROM named_source) SELECT id FROM w WHERE m INDEXQUERY 'login' AND id < 9"
    ) == [3, 8]
    assert ids(
        "SELECT a.id FROM named_source a JOIN named_source b ON a.id = b.id + 1 "
        "WHERE b.message INDEXQUERY 'full' AND a.id < 12 ORDER BY a.id"
    ) == [1, 6, 11]
    assert ids(
        "SELECT id FROM range(9) WHERE id IN (SELECT id FROM named_source WHERE message INDEXQUERY 'full')"
    ) == [0, 5]
    scores = spark.sql("SELECT id, score() AS s FROM named_source WHERE message INDEXQUERY 'full'").collect()
    assert len(scores) == 8
    assert min(row.s for row in scores) > 0
    frame = spark.table("named_source").where("message INDEXQUERY 'disk'")
    assert frame.count() == len(having)
    groups = frame.groupBy("day").count().orderBy("day").collect()
    assert [row["count"] for row in groups] == [8, 8]
    # Without a search the table itself is read.
    assert "indextables" not in spark.table("named_source")._jdf.queryExecution().optimizedPlan().toString()
    # Rows that are not indexed yet are found, too.
    spark.sql("INSERT INTO named_source VALUES (100, 'disk gone', 'd0')")
    assert ids(search) == [*having, 100]
    spark.conf.set("spark.indextables.companion.freshness", "synced")
    try:
        assert ids(search) == having
    finally:
        spark.conf.unset("spark.indextables.companion.freshness")


ONE_VERSION = {
    "anti join": "SELECT id FROM named_source a LEFT ANTI JOIN named_source b ON a.id = b.id WHERE a.message INDEXQUERY 'disk'",
    "searched side is the other": "SELECT id FROM named_source a LEFT ANTI JOIN (SELECT * FROM named_source WHERE "
    "message INDEXQUERY 'disk') b ON a.id = b.id WHERE a.message LIKE '%isk%'",
    "not in": "SELECT id FROM named_source WHERE message INDEXQUERY 'disk' AND id NOT IN (SELECT id FROM named_source)",
    "scalar subquery": "SELECT id FROM named_source WHERE message INDEXQUERY 'disk' AND id > (SELECT max(id) FROM named_source)",
    "except": "SELECT id FROM named_source WHERE message INDEXQUERY 'disk' EXCEPT SELECT id FROM named_source",
    "common table expression": "WITH c AS (SELECT id FROM named_source), d AS (SELECT * FROM named_source WHERE "
    "message INDEXQUERY 'disk') SELECT id FROM d WHERE id NOT IN (SELECT id FROM c)",
    "view": "SELECT id FROM all_of_source a LEFT ANTI JOIN named_source b ON a.id = b.id WHERE a.message INDEXQUERY 'disk'",
    "lateral subquery": "SELECT a.id FROM (SELECT * FROM named_source WHERE message INDEXQUERY 'disk') a, "
    "LATERAL (SELECT count(*) AS n FROM named_source b WHERE b.id = a.id) WHERE n = 0",
}


@pytest.mark.parametrize("query", ONE_VERSION.values(), ids=ONE_VERSION)
def test_a_query_that_searches_a_source_reads_one_version_of_it(
    spark: SparkSession, named: Path, tmp_path: Path, query: str
) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW all_of_source AS SELECT * FROM named_source WHERE id >= 0")
    frame = spark.sql(query)
    # Spark has listed the files of the table by now.
    added = pa.table({"id": pa.array([100], pa.int64()), "message": ["disk gone"], "day": ["d0"]})
    pq.write_table(added, tmp_path / "named/added.parquet")
    assert frame.collect() == []
    assert "FileScan" not in frame._jdf.queryExecution().executedPlan().toString()


def test_what_reads_another_state_of_a_searched_source_stays(
    spark: SparkSession, named: Path, tmp_path: Path
) -> None:
    search = "SELECT id FROM named_source a WHERE message INDEXQUERY 'disk' AND {}"
    days = spark.table("named_source").groupBy("day").count().cache()
    days.createOrReplaceTempView("days_of_source")
    try:
        assert days.count() == 2
        joined = spark.sql(search.format("EXISTS (SELECT 1 FROM days_of_source d WHERE d.day = a.day)"))
        assert joined.count() == 16
        assert "InMemoryTableScan" in joined._jdf.queryExecution().executedPlan().toString()
    finally:
        days.unpersist()
    by_path = search.format(f"id IN (SELECT id FROM parquet.`{tmp_path}/named` WHERE id < 5)")
    assert spark.sql(by_path).count() == 2
    spark.sql(
        "CREATE TABLE rows_of_search USING parquet AS "
        + search.format("id < (SELECT max(id) - 29 FROM named_source)")
    )
    try:
        assert sorted(row.id for row in spark.table("rows_of_search").collect()) == [0, 2, 5, 7]
        spark.sql(
            "INSERT INTO named_source SELECT a.id + 100, b.message, b.day FROM rows_of_search a JOIN named_source b "
            "ON a.id = b.id WHERE b.message INDEXQUERY 'full'"
        )
        assert spark.sql(search.format("id > 40")).count() == 2
    finally:
        spark.sql("DROP TABLE rows_of_search")


def test_a_score_is_of_the_searched_side_of_a_self_join(spark: SparkSession, named: Path) -> None:
    rows = spark.sql(
        "SELECT a.id, score() AS s FROM named_source a JOIN named_source b ON a.id = b.id + 1 "
        "WHERE a.message INDEXQUERY 'full'"
    ).collect()
    assert sorted(row.id for row in rows) == [5, 10, 15, 20, 25, 30, 35]
    assert all(row.s > 0 for row in rows)


@pytest.mark.parametrize("what", ["input_file_name()", "_metadata.file_path", "input_file_block_start()"])
def test_the_file_of_a_row_that_an_index_finds_is_refused(
    spark: SparkSession, named: Path, what: str
) -> None:
    with pytest.raises(PySparkException, match=r"does not have the file of a row|has no column _metadata"):
        spark.sql(f"SELECT {what} FROM named_source WHERE message INDEXQUERY 'disk'").collect()


def test_a_source_whose_index_is_not_its_own_is_not_searched(
    spark: SparkSession, named: Path, tmp_path: Path
) -> None:
    def change(index: object) -> None:
        spark.sql(
            f"ALTER TABLE named_source SET TBLPROPERTIES ('indextables.companion.indexroot' = '{index}')"
        )

    search = "SELECT id FROM named_source WHERE message INDEXQUERY 'disk'"
    other = tmp_path / "other"
    spark.range(3).selectExpr("id", "'disk' AS message", "'d0' AS day").write.parquet(str(other))
    build(spark, other, tmp_path / "other_index")
    spark.range(3).write.format("indextables").save(str(tmp_path / "table"))
    for index, says in (
        (tmp_path / "other_index", "it is the index of the table at .*other"),
        (tmp_path / "table", "is not a companion index, but a property of .*named_source names it"),
        (tmp_path / "nothing", "no table"),
    ):
        change(index)
        with pytest.raises(PySparkException, match=says):
            spark.sql(search).collect()
    change(named)
    spark.sql("ALTER TABLE named_source UNSET TBLPROPERTIES ('indextables.companion.indexroot')")
    with pytest.raises(PySparkException, match="cannot be answered here"):
        spark.sql(search).collect()


@pytest.fixture
def catalogued(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes Parquet tables of the session catalog with companion indexes; takes names and frames."""
    names = []

    def make(name: str, frame: Any, *partitions: str, clauses: str = "", statement: str = "") -> Path:
        names.append(name)
        place, index = tmp_path / name, tmp_path / f"{name}_index"
        if statement:
            frame.coalesce(1).write.parquet(str(place))
            spark.sql(f"{statement} LOCATION '{place}'")
        else:
            writer = frame.coalesce(1).write.option("path", str(place)).format("parquet")
            writer.partitionBy(*partitions).saveAsTable(name)
        build(spark, place, index, clauses)
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('indextables.companion.indexroot' = '{index}')")
        return place

    yield make
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def rows_of(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.sql(query).collect()), key=str)


def disks(spark: SparkSession, rows: int = 8, *more: str) -> DataFrame:
    return spark.range(rows).selectExpr("id", "concat('disk ', id) AS message", *more)


def test_a_source_whose_catalog_has_other_partitions_than_folders_is_not_searched(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    place = catalogued("parted", disks(spark, 8, "concat('d', id % 2) AS day"), "day")
    search = "SELECT id, day FROM parted WHERE message INDEXQUERY 'disk'"
    assert rows_of(spark, search) == rows_of(spark, "SELECT id, day FROM parted")
    spark.sql("ALTER TABLE parted DROP PARTITION (day = 'd0')")
    assert (place / "day=d0").exists()
    with pytest.raises(PySparkException, match="the catalog has no partition for the folder day=d0"):
        spark.sql(search).collect()
    spark.sql("MSCK REPAIR TABLE parted")
    assert rows_of(spark, search) == rows_of(spark, "SELECT id, day FROM parted")
    disks(spark, 3).write.parquet(str(tmp_path / "elsewhere"))
    spark.sql(f"ALTER TABLE parted ADD PARTITION (day = 'd7') LOCATION '{tmp_path}/elsewhere'")
    with pytest.raises(PySparkException, match=r"the partition day=d7 of the catalog is at .*elsewhere"):
        spark.sql(search).collect()
    spark.sql("ALTER TABLE parted DROP PARTITION (day = 'd7')")
    spark.sql(f"ALTER TABLE parted PARTITION (day = 'd1') SET LOCATION '{place}/day=d0'")
    with pytest.raises(PySparkException, match=r"the partition day=d1 of the catalog is at .*day=d0"):
        spark.sql(search).collect()


def test_a_source_that_is_read_with_options_is_not_searched(
    spark: SparkSession, catalogued: Callable[..., Path]
) -> None:
    place = catalogued("globbed", disks(spark))
    disks(spark).write.mode("append").parquet(str(place))
    spark.sql("REFRESH TABLE globbed")
    (name, *_) = (path.name for path in place.glob("*.parquet"))
    search = "message INDEXQUERY 'disk'"
    assert spark.table("globbed").where(search).count() == 16
    # Spark lists the files of a table again only if it does not know them.
    spark.sql("REFRESH TABLE globbed")
    narrow = spark.read.option("pathGlobFilter", name).table("globbed")
    assert 0 < narrow.count() < 16
    with pytest.raises(PySparkException, match=r"(?i)it is read with the option pathGlobFilter"):
        narrow.where(search).count()
    spark.sql("REFRESH TABLE globbed")
    assert spark.table("globbed").where(search).join(narrow, "id").count() == narrow.count() * 2
    statement = (
        "CREATE TABLE deep (id BIGINT, message STRING) USING parquet OPTIONS (recursiveFileLookup 'true')"
    )
    place = catalogued("deep", disks(spark), statement=statement)
    disks(spark).write.parquet(str(place / "below"))
    spark.sql("REFRESH TABLE deep")
    assert spark.table("deep").count() == 16
    with pytest.raises(PySparkException, match="it has the option recursiveFileLookup"):
        spark.table("deep").where(search).count()


def test_columns_that_a_query_does_not_use_may_be_missing_in_the_index(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    place = catalogued("added", disks(spark))
    spark.sql("ALTER TABLE added ADD COLUMNS (level STRING)")
    assert rows_of(spark, "SELECT id FROM added WHERE message INDEXQUERY 'disk'") == [
        (number,) for number in range(8)
    ]
    assert spark.sql("SELECT count(*) AS n FROM added WHERE * INDEXQUERY 'disk' AND id > 1").first().n == 6
    for query in (
        "SELECT * FROM added WHERE message INDEXQUERY 'disk'",
        "SELECT id FROM added WHERE message INDEXQUERY 'disk' AND level IS NULL",
    ):
        with pytest.raises(PySparkException, match=r"has no column level of the type string.*MERGE SCHEMA"):
            spark.sql(query).collect()
    # Both sides of a self join read the index.
    with pytest.raises(PySparkException, match=r"has no column level .* reads it by its index only"):
        spark.sql(
            "SELECT a.id FROM added a JOIN added b ON a.id = b.id "
            "WHERE a.message INDEXQUERY 'disk' AND b.level IS NULL"
        ).collect()
    spark.sql("INSERT INTO added VALUES (100, 'disk x', 'high')")
    assert (100,) in rows_of(spark, "SELECT id FROM added WHERE message INDEXQUERY 'disk'")
    build(spark, place, tmp_path / "added_index", "MERGE SCHEMA")
    assert rows_of(spark, "SELECT * FROM added WHERE message INDEXQUERY 'disk'") == rows_of(
        spark, "SELECT * FROM added"
    )


def test_a_default_in_files_that_lack_a_column_is_that_of_the_catalog(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    place = catalogued("with_default", disks(spark))
    spark.sql("ALTER TABLE with_default ADD COLUMNS (size INT DEFAULT 5)")
    # Another writer does not store the default, so the index has nulls where the catalog's table has 5.
    more = pa.table(
        {"id": pa.array([100], pa.int64()), "message": ["disk x"], "size": pa.array([7], pa.int32())}
    )
    pq.write_table(more, place / "other.parquet")
    build(spark, place, tmp_path / "with_default_index", "MERGE SCHEMA")
    spark.catalog.refreshTable("with_default")
    with pytest.raises(PySparkException, match="no column size of the type int with the default 5"):
        spark.sql("SELECT size FROM with_default WHERE message INDEXQUERY 'disk'").collect()
    (place / "other.parquet").unlink()
    spark.catalog.refreshTable("with_default")
    spark.sql("INSERT INTO with_default VALUES (100, 'disk x', 7)")
    build(spark, place, tmp_path / "with_default_index", "MERGE SCHEMA")
    found = rows_of(spark, "SELECT id, size FROM with_default WHERE message INDEXQUERY 'disk'")
    assert found == rows_of(spark, "SELECT id, size FROM with_default")
    assert {size for _, size in found} == {5, 7}


def test_columns_are_compared_without_regard_to_case(
    spark: SparkSession, catalogued: Callable[..., Path]
) -> None:
    statement = "CREATE TABLE cased (id BIGINT, message STRING, level STRING) USING parquet"
    frame = spark.range(6).selectExpr(
        "id AS ID", "concat('disk ', id) AS Message", "IF(id % 2 = 0, 'high', 'low') AS LEVEL"
    )
    catalogued("cased", frame, statement=statement)
    search = spark.sql("SELECT * FROM cased WHERE message INDEXQUERY 'disk' AND level = 'high'")
    assert search.columns == ["id", "message", "level"]
    assert sorted(map(tuple, search.collect())) == [(n, f"disk {n}", "high") for n in (0, 2, 4)]
    groups = spark.table("cased").where("message INDEXQUERY 'disk'").groupBy("level").count()
    assert sorted(map(tuple, groups.collect())) == [("high", 3), ("low", 3)]
    scored = spark.sql(
        "SELECT highlight(message) AS h, score() AS s FROM cased WHERE message INDEXQUERY 'disk'"
    )
    assert scored.first().s > 0
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(PySparkException, match="has no column message of the type string"):
            spark.sql("SELECT message FROM cased WHERE message INDEXQUERY 'disk'").collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_partition_columns_of_texts_that_look_like_dates_are_searched(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    frame = disks(spark, 6, "concat('2026-05-0', 1 + id % 2) AS day")
    place = catalogued("dated", frame, "day")
    search = "SELECT id, day FROM dated WHERE message INDEXQUERY 'disk' AND day = '2026-05-01'"
    expected = [(number, "2026-05-01") for number in (0, 2, 4)]
    # A query that does not use the column has its answer from any index.
    assert spark.sql("SELECT id FROM dated WHERE message INDEXQUERY 'disk'").count() == 6
    with pytest.raises(PySparkException, match=r"PARTITION TYPES \('day':'string'\)"):
        spark.sql(search).collect()
    build(spark, place, tmp_path / "dated_index", "PARTITION TYPES ('day':'string')")
    assert rows_of(spark, search) == expected
    assert build(spark, place, tmp_path / "dated_index")["status"] == "no_action"
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        build(spark, place, tmp_path / "other_index")
        texts = spark.read.parquet(str(place)).dtypes
    finally:
        spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
    assert spark.read.format("indextables").load(str(tmp_path / "other_index")).dtypes == texts
    with pytest.raises(PySparkException, match="is not the type of a partition column"):
        build(spark, place, tmp_path / "third_index", "PARTITION TYPES ('day':'words')")


def test_times_of_partitions_are_in_the_zone_of_the_session(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = disks(spark, 2, "TIMESTAMP '2026-05-01 10:00:00' + make_interval(0,0,0,0,id) AS t")
    query = "SELECT id, unix_timestamp(t) FROM zoned WHERE {}"
    try:
        place = catalogued("zoned", frame, "t")
        index = spark.read.format("indextables").load(str(tmp_path / "zoned_index"))
        expected = rows_of(spark, query.format("true"))
        found = index.selectExpr("id", "unix_timestamp(t)").collect()
        assert sorted(map(tuple, found)) == expected == [(0, 1777644000), (1, 1777647600)]
        assert rows_of(spark, query.format("message INDEXQUERY 'disk'")) == expected
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        with pytest.raises(PySparkException, match="in the time zone America/New_York, and this session"):
            spark.sql(query.format("message INDEXQUERY 'disk'")).collect()
        # What is not given is as in the last sync; another zone means other values in all splits.
        assert build(spark, place, tmp_path / "zoned_index")["status"] == "no_action"
        again = build(spark, place, tmp_path / "zoned_index", "TIME ZONE 'UTC'")
        assert "another time zone" in again["message"]
        assert rows_of(spark, query.format("message INDEXQUERY 'disk'")) == rows_of(
            spark, query.format("true")
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_the_catalog_of_indexes_does_not_answer_for_a_clone(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    catalogued("cloned", disks(spark))
    spark.conf.set("spark.sql.catalog.companions", "io.indextables.catalog.IndexTablesCatalog")
    named = "SELECT count(*) AS n FROM companions.spark_catalog.default.{}"
    assert spark.sql(named.format("cloned")).first().n == 8
    spark.sql(
        f"CREATE TABLE clone USING parquet TBLPROPERTIES ('indextables.companion.indexroot' = "
        f"'{tmp_path}/cloned_index') AS SELECT * FROM cloned WHERE id < 3"
    )
    try:
        with pytest.raises(PySparkException, match=r"it is the index of the table at .*cloned"):
            spark.sql(named.format("clone")).collect()
    finally:
        spark.sql("DROP TABLE clone")


def test_the_region_of_an_index_may_come_from_hadoop(
    spark: SparkSession, catalogued: Callable[..., Path], tmp_path: Path
) -> None:
    catalogued("regional", disks(spark))
    index = tmp_path / "regional_index"
    spark.sql(
        "ALTER TABLE regional SET TBLPROPERTIES ('indextables.companion.indexroot' = '/nothing', "
        f"'indextables.companion.indexroot.eu-test-1' = '{index}')"
    )
    search = "SELECT id FROM regional WHERE message INDEXQUERY 'disk'"
    with pytest.raises(PySparkException, match="no table"):
        spark.sql(search).collect()
    spark.conf.set("spark.hadoop.fs.s3a.endpoint.region", "eu-test-1")
    spark.conf.set("fs.s3a.endpoint.region", "eu-test-1")
    try:
        assert spark.sql(search).count() == 8
    finally:
        spark.conf.unset("spark.hadoop.fs.s3a.endpoint.region")
        spark.conf.unset("fs.s3a.endpoint.region")
    system = spark._jvm.System
    system.setProperty("aws.region", "eu-test-1")
    try:
        assert spark.sql(search).count() == 8
    finally:
        system.clearProperty("aws.region")
