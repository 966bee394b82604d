"""Reading tables through Spark: every type, versions, figures, statistics, filters that come while a query runs."""

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import indextables
from tests.spark.table_pairs import Pair, event_rows, plain


@pytest.fixture(scope="module")
def pair(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(spark, tmp_path_factory.mktemp("read"), event_rows(), name="read")


def load(spark: SparkSession, path: str | Path, **options: str) -> DataFrame:
    return spark.read.format("indextables").options(**options).load(str(path))


@pytest.mark.parametrize("rows", ["1000", "0"], ids=["inline", "tasks"])
def test_rows_of_every_type_come_back_as_they_are(spark: SparkSession, tmp_path: Path, rows: str) -> None:
    spark.sql(
        """SELECT * FROM VALUES
        (TINYINT(1), 1S, 1, 1L, 1.5F, 2.5D, 1.25BD, CAST(9 AS DECIMAL(38, 10)), true, 'é', X'00FF', DATE '0001-01-01', TIMESTAMP '2024-02-29 12:00:00.123456',
         TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', INTERVAL '1 02:03:04.5' DAY TO SECOND, array(array(1, NULL), NULL),
         map('a', named_struct('x', 1, 'y', array('z'))), named_struct('p', named_struct('q', CAST(NULL AS INT)), 'r', CAST(NULL AS STRING)), CAST('abc' AS VARCHAR(5))),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        AS t(a, b, c, d, e, f, g, h, i, j, k, l, m, n, p, q, r, s, t)"""
    ).write.format("indextables").save(str(tmp_path / "t"))
    frame = load(spark, tmp_path / "t", **{"read.inline.maxRows": rows})
    # Spark's own text of each value: some have no value in Python.
    found = [tuple(r) for r in frame.selectExpr(*(f"CAST({c} AS STRING)" for c in frame.columns)).collect()]
    assert sorted(found, key=repr) == sorted(
        [
            (
                "1", "1", "1", "1", "1.5", "2.5", "1.25", "9.0000000000", "true", "é", "\x00\ufffd", "0001-01-01", "2024-02-29 12:00:00.123456",
                "9999-12-31 23:59:59.999999", "INTERVAL '1 02:03:04.5' DAY TO SECOND", "[[1, null], null]",
                "{a -> {1, [z]}}", "{{null}, null}", "abc",
            ),
            (None,) * 19,
        ],
        key=repr,
    )  # fmt: skip


def test_times_of_day_and_variants_come_back(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT TIME '12:34:56.789' AS t, parse_json('{\"a\": [1, null]}') AS v").write.format(
        "indextables"
    ).save(str(tmp_path / "t"))
    for rows in ("1000", "0"):
        frame = load(spark, tmp_path / "t", **{"read.inline.maxRows": rows})
        assert [tuple(r) for r in frame.selectExpr("CAST(t AS STRING)", "to_json(v)").collect()] == [
            ("12:34:56.789", '{"a":[1,null]}')
        ]


def test_only_the_columns_asked_for_are_read(pair: Pair) -> None:
    plan = pair.plan("SELECT num FROM {t} WHERE level = 'INFO'")
    assert "[num#" in plan
    assert "msg" not in plan
    assert pair.rows("SELECT count(*) FROM (SELECT 1 FROM {t} WHERE level = 'INFO')") == pair.rows(
        "SELECT count(*) FROM {t} WHERE level = 'INFO'"
    )


def test_an_empty_table_reads_as_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    indextables.write(
        tmp_path / "t", pa.table({"a": pa.array([], pa.int64()), "m": pa.array([], pa.string())})
    )
    frame = load(spark, tmp_path / "t")
    assert frame.collect() == []
    assert frame.where("m INDEXQUERY 'x'").count() == 0
    assert frame.selectExpr("count(*)", "max(a)").collect()[0][:] == (0, None)
    assert frame.groupBy("a").count().collect() == []


def test_a_missing_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="no table at"):
        load(spark, tmp_path / "nothing")
    with pytest.raises(AnalysisException, match=r"unknown option 'read\.inlin\.maxrows'; did you mean"):
        load(spark, tmp_path / "nothing", **{"spark.indextables.read.inlin.maxRows": "1"})


def test_columns_that_came_later_are_null_in_older_splits(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(3).selectExpr("id").write.format("indextables").save(path)
    spark.range(3, 5).selectExpr("id", "named_struct('a', id) AS s", "'x' AS m").write.format(
        "indextables"
    ).option("mergeSchema", "true").option("indexing.typemap.m", "text").mode("append").save(path)
    for rows in ("1000", "0"):
        frame = load(spark, path, **{"read.inline.maxRows": rows})
        assert sorted((r.id, r.s and r.s.a, r.m) for r in frame.collect()) == [
            (0, None, None),
            (1, None, None),
            (2, None, None),
            (3, 3, "x"),
            (4, 4, "x"),
        ]
        assert frame.where("s.a IS NULL").count() == 3
        assert frame.where("m INDEXQUERY 'x'").count() == 2
        found = frame.where("m INDEXQUERY 'x' OR id = 0").selectExpr("id", "highlight(m) AS found")
        assert sorted(tuple(row) for row in found.collect()) == [(0, None), (3, "<b>x</b>"), (4, "<b>x</b>")]


# --- versions --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def versions(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A table of three versions: no rows, one row, two rows; and the moments after each."""
    path = tmp_path_factory.mktemp("versions") / "t"
    moments = []
    for i in range(2):
        indextables.write(path, pa.table({"id": [i]}))
        time.sleep(0.02)
        moments.append(dt.datetime.now(dt.UTC))
        time.sleep(0.02)
    spark.sql(f"CREATE TABLE travelled USING indextables LOCATION '{path}'")
    yield str(path), moments
    spark.sql("DROP TABLE travelled")


def test_an_earlier_version_is_read_by_its_number(spark: SparkSession, versions: Any) -> None:
    path, _ = versions
    latest = indextables.open(path).version
    assert load(spark, path).count() == 2
    assert load(spark, path, versionAsOf=str(latest - 1)).count() == 1
    assert spark.read.option("versionAsOf", latest - 1).table("travelled").count() == 1
    assert spark.sql(f"SELECT count(*) FROM travelled VERSION AS OF {latest - 1}").first()[0] == 1
    assert spark.sql(f"SELECT t.id FROM travelled VERSION AS OF '{latest - 1}' AS t").first()[0] == 0
    assert spark.sql(f"SELECT count(*) FROM indextables.`{path}` VERSION AS OF {latest - 1}").first()[0] == 1
    assert (
        spark.sql(
            f"SELECT count(*) FROM default.travelled VERSION AS OF {latest - 1} a JOIN travelled b ON a.id = b.id"
        ).first()[0]
        == 1
    )


def test_an_earlier_version_is_read_by_its_time_in_the_sessions_zone(
    spark: SparkSession, versions: Any
) -> None:
    path, moments = versions
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        local = (
            moments[0]
            .astimezone(dt.timezone(dt.timedelta(hours=5, minutes=45)))
            .strftime("%Y-%m-%d %H:%M:%S.%f")
        )
        assert load(spark, path, timestampAsOf=local).count() == 1
        assert spark.sql(f"SELECT count(*) FROM travelled TIMESTAMP AS OF '{local}'").first()[0] == 1
        assert (
            spark.sql(
                f"SELECT count(*) FROM indextables.`{path}` TIMESTAMP AS OF TIMESTAMP '{local}'"
            ).first()[0]
            == 1
        )
        assert spark.sql("SELECT count(*) FROM travelled TIMESTAMP AS OF current_timestamp()").first()[0] == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"versionAsOf": "99"}, "version 99"),
        ({"versionAsOf": "soon"}, "whole number"),
        ({"timestampAsOf": "1999-01-01"}, "cannot be read"),
        ({"timestampAsOf": "someday"}, "date and time"),
        ({"versionAsOf": "1", "timestampAsOf": "2024-01-01"}, "not both"),
    ],
)
def test_a_version_that_is_not_there_is_refused(
    spark: SparkSession, versions: Any, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AnalysisException, match=reason):
        load(spark, versions[0], **options)


# --- what Spark is told ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 10 splits in 5 folders."""
    path = tmp_path_factory.mktemp("parts") / "t"
    for half in range(2):
        rows = pa.table(
            {
                "day": [i % 5 for i in range(100)],
                "id": [half * 100 + i for i in range(100)],
                "m": [f"word{i}" for i in range(100)],
            }
        )
        indextables.write(path, rows, partition_by=["day"], options={"indexing.typemap.m": "text"})
    load(spark, path).createOrReplaceTempView("parts")
    return str(path)


def figures(frame: DataFrame) -> dict[Any, Any]:
    """The figures of a query's scan, as Spark's SQL page shows them."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    if "AdaptiveSparkPlan" in plan.getClass().getName():
        plan = plan.executedPlan()
    scan = plan.collectLeaves().head()
    if "QueryStage" in scan.getClass().getName():
        scan = scan.plan().collectLeaves().head()
    metrics = scan.metrics()
    names = [name for name in metrics.keys().mkString(",").split(",") if name]
    return {name: metrics.apply(name).value() for name in names}


def test_the_sql_page_shows_what_was_pruned_and_read(spark: SparkSession, parts: str) -> None:
    found = figures(spark.sql("SELECT id FROM parts WHERE day = 3 AND id < 100"))
    assert (
        found["splitsConsidered"],
        found["splitsPrunedByPartition"],
        found["splitsPrunedByStatistics"],
    ) == (10, 8, 1)
    assert (found["splitsRead"], found["rowsRead"]) == (1, 20)
    assert found["bytesRead"] > 0
    tasks = load(spark, parts, **{"read.inline.maxRows": "0"})
    found = figures(tasks.where("m INDEXQUERY 'word7'").select("id"))
    assert (found["splitsConsidered"], found["splitsRead"], found["rowsRead"]) == (10, 10, 2)
    assert found["cacheHits"] + found["cacheMisses"] == 2, "the others are skipped by their term filters"
    again = figures(tasks.where("m INDEXQUERY 'word7'").select("id"))
    assert (again["cacheHits"], again["cacheMisses"]) == (2, 0)


def test_the_first_rows_of_an_order_are_read_from_splits_that_can_hold_them(
    spark: SparkSession, parts: str
) -> None:
    newest = spark.sql("SELECT id FROM parts ORDER BY id DESC LIMIT 3")
    found = figures(newest)
    assert [row.id for row in newest.collect()] == [199, 198, 197]
    # Each day has its ids below 100 in one split, the others in another.
    assert (found["splitsRead"], found["splitsPrunedByStatistics"]) == (5, 5)
    within = spark.sql("SELECT id FROM parts WHERE id < 100 ORDER BY id DESC, day LIMIT 3")
    assert figures(within)["splitsRead"] == 5
    assert [row.id for row in within.collect()] == [99, 98, 97]
    of_a_day = figures(spark.sql("SELECT id FROM parts ORDER BY day, id LIMIT 30"))
    assert (of_a_day["splitsRead"], of_a_day["splitsPrunedByStatistics"]) == (2, 8)
    searched = spark.sql("SELECT id FROM parts WHERE m INDEXQUERY 'word7' ORDER BY id DESC LIMIT 1")
    # How many rows a search finds in a split, the log does not know.
    assert figures(searched)["splitsRead"] == 10
    assert [row.id for row in searched.collect()] == [107]


def optimized_size(frame: DataFrame) -> int:
    """The size by which Spark decides whether a table is broadcast."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, DataFrame]:
    """The same orders in a table of ours and in Parquet by Spark."""
    folder = tmp_path_factory.mktemp("orders")
    rows = spark.range(20_000).selectExpr(
        "id",
        "CAST(hash(id) AS BIGINT) AS customer",
        "CAST(abs(hash(id, 1)) / 1000 AS DECIMAL(15, 2)) AS price",
        "DATE '1992-01-01' + INT(abs(hash(id, 2)) % 2400) AS day",
        "concat_ws(' ', 'furiously special', string(hash(id, 3)), 'deposits sleep', string(hash(id, 4))) AS comment",
    )
    rows.coalesce(1).write.format("indextables").save(str(folder / "ours"))
    rows.coalesce(1).write.parquet(str(folder / "parquet"))
    return load(spark, folder / "ours"), spark.read.parquet(str(folder / "parquet"))


@pytest.mark.parametrize(
    "columns", [["*"], ["id"], ["id", "price"], ["comment"], ["id", "customer", "price", "day"]], ids=str
)
def test_columns_are_estimated_at_their_size_in_parquet(
    orders: tuple[DataFrame, DataFrame], columns: list[str]
) -> None:
    ours, plain_ = (optimized_size(frame.select(*columns)) for frame in orders)
    assert 0.5 < ours / plain_ < 2


def test_a_table_is_broadcast_where_it_is_in_parquet(
    spark: SparkSession, orders: tuple[DataFrame, DataFrame]
) -> None:
    size = optimized_size(orders[1].select("id", "price"))
    key = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(key)
    try:
        for threshold, join in ((2 * size, "BroadcastHashJoin"), (size // 4, "SortMergeJoin")):
            spark.conf.set(key, str(threshold))
            for frame in orders:
                joined = frame.alias("a").join(frame.select("id", "price").alias("b"), "id").select("b.price")
                assert join in joined._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.set(key, str(before))


def test_an_estimate_counts_the_compression_of_files_and_the_splits_and_rows_that_are_left(
    spark: SparkSession, parts: str, orders: tuple[DataFrame, DataFrame]
) -> None:
    whole = optimized_size(load(spark, parts))
    assert optimized_size(load(spark, parts).where("day = 3")) == pytest.approx(whole / 5, rel=0.2)
    assert optimized_size(load(spark, parts).where("day = 99")) == 1
    assert optimized_size(orders[0].limit(400)) < optimized_size(orders[0]) / 20
    key = "spark.sql.sources.fileCompressionFactor"
    before = spark.conf.get(key)
    sizes = [optimized_size(frame.select("id", "day")) for frame in orders]
    spark.conf.set(key, "3.0")
    try:
        scaled = [optimized_size(frame.select("id", "day")) for frame in orders]
    finally:
        spark.conf.set(key, str(before))
    assert scaled == pytest.approx([3 * size for size in sizes], rel=0.01)


def test_splits_are_put_into_few_tasks(spark: SparkSession, parts: str) -> None:
    frame = load(spark, parts, **{"read.inline.maxRows": "0"})
    assert frame.rdd.getNumPartitions() == 2
    one_each = load(spark, parts, **{"read.inline.maxRows": "0", "read.splitsPerTask": "1"})
    assert one_each.rdd.getNumPartitions() == 10


def test_a_join_hands_its_keys_to_the_scan(spark: SparkSession, parts: str) -> None:
    spark.range(3).selectExpr("id AS d", "id AS keep").createOrReplaceTempView("few")
    query = "SELECT p.id FROM parts p JOIN few f ON p.day = f.d WHERE f.keep = 2"
    frame = spark.sql(query)
    assert sorted(r.id for r in frame.collect()) == sorted(i for i in range(200) if i % 5 == 2)
    assert "dynamicpruning" in frame._jdf.queryExecution().executedPlan().toString()


def test_a_small_table_is_broadcast(spark: SparkSession, parts: str) -> None:
    plan = (
        spark.sql("SELECT * FROM parts a JOIN parts b ON a.id = b.id")
        ._jdf.queryExecution()
        .executedPlan()
        .toString()
    )
    assert "BroadcastHashJoin" in plan


def test_distinct_partition_values_and_counts_come_from_the_log(spark: SparkSession, parts: str) -> None:
    assert sorted(r.day for r in spark.sql("SELECT DISTINCT day FROM parts").collect()) == [0, 1, 2, 3, 4]
    assert sorted(tuple(r) for r in spark.sql("SELECT day, count(*) FROM parts GROUP BY day").collect()) == [
        (d, 40) for d in range(5)
    ]
    assert sorted(
        tuple(r) for r in spark.sql("SELECT day, count(*) FROM parts WHERE id < 10 GROUP BY day").collect()
    ) == [(d, 2) for d in range(5)]
    assert spark.sql("SELECT count(*) FROM parts WHERE day = 3").first()[0] == 40
    assert (
        sorted(r.day for r in spark.sql("SELECT day FROM parts WHERE day > 3 OR id = 0").collect())
        == [0] + [4] * 40
    )


def test_session_settings_reach_the_reader_and_options_win(spark: SparkSession, parts: str) -> None:
    spark.conf.set("spark.indextables.read.inline.maxRows", "0")
    try:
        assert load(spark, parts).rdd.getNumPartitions() == 2
        inline = load(spark, parts, **{"read.inline.maxRows": "1000", "read.inline.maxTime": "5000"})
        assert inline.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.indextables.read.inline.maxRows")


def test_secrets_are_in_no_plan(spark: SparkSession, parts: str) -> None:
    frame = load(spark, parts, **{"aws.secretKey": "hush-hush"}).where("id = 3")
    shown = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().executedPlan().toString()
    assert "hush" not in shown


def test_a_table_that_grew_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    indextables.write(path, pa.table({"id": [1]}))
    frame = load(spark, path)
    assert frame.count() == 1
    indextables.write(path, pa.table({"id": [2]}))
    assert frame.count() == 2
    assert sorted(plain(tuple(r)) for r in frame.where("id > 0").collect()) == [(1,), (2,)]


def test_a_table_of_the_original_is_read_and_searched(spark: SparkSession) -> None:
    fixture = Path(__file__).parents[3] / "shared/fixtures/original-0.5.4/04_partitioned"
    if not fixture.is_dir():
        pytest.skip(f"there are no tables of the original at {fixture}")
    table = indextables.open(fixture)
    frame = load(spark, fixture)
    assert frame.count() == table.count() > 0
    assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(
        repr(tuple(row.values())) for row in table.scan().to_pylist()
    )
    column = next(
        f.name for f in table.schema if pa.types.is_string(f.type) and f.name not in table.partition_columns
    )
    word = next(v for v in table.scan([column])[column].to_pylist() if v and v.isalnum())
    assert (
        frame.where(f"{column} INDEXQUERY '{word}'").count()
        == table.count(f"{column} INDEXQUERY '{word}'")
        > 0
    )
