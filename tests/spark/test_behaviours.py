"""Behaviours that are easily got wrong: what queries mean. Commands are in test_behaviours_of_commands."""

import datetime as dt
import decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from tests.spark.small_tables import SmallTables

D = decimal.Decimal
LOGS = "id INT, part INT, day DATE, level STRING, message STRING, score DOUBLE, at TIMESTAMP"


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallTables:
    return SmallTables(spark, tmp_path_factory.mktemp("behaviours"))


@pytest.fixture(scope="module")
def logs(desk: SmallTables) -> str:
    """Seven rows in partitions 9, 10 and null; `message` is text."""
    rows = [
        (1, 9, dt.date(2024, 1, 1), "info", "service started on host7", 1.0),
        (2, 9, dt.date(2024, 1, 1), "error", "connection refused by host7", 2.0),
        (3, 10, dt.date(2024, 1, 2), "error", "connection timeout after retry", None),
        (4, 10, dt.date(2024, 1, 2), "warn", "retry of connection", 4.0),
        (5, 10, None, None, None, 5.0),
        (6, None, dt.date(2024, 2, 1), "info", "service stopped", 6.0),
        (7, None, dt.date(2024, 2, 1), "warn", "unknown host", 7.0),
    ]
    timed = [(*row, dt.datetime(2024, 1, 1, row[0], 30, 0, row[0])) for row in rows]  # noqa: DTZ001
    return desk.save(
        timed, LOGS, by=["part"], indexing__typemap__message="text", indexing__nonfastfields="score"
    )


# --- 1-3: what is wrong is said ---------------------------------------------------------------------------

MALFORMED = "message INDEXQUERY 'retry AND ('"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM {t} WHERE {bad}",
        "SELECT count(*) FROM {t} WHERE {bad}",
        "SELECT level, max(id) FROM {t} WHERE {bad} GROUP BY level",
        "SELECT id FROM {t} WHERE {bad} AND message INDEXQUERY 'host7'",
        "SELECT id FROM {t} WHERE {bad} OR id = 1",
    ],
)
def test_a_malformed_query_is_refused_before_any_task(
    desk: SmallTables, spark: SparkSession, logs: str, sql: str
) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("malformed", "")
    try:
        said = desk.failure(sql.format(t=logs, bad=MALFORMED))
    finally:
        jobs = list(tracker.getJobIdsForGroup("malformed"))
        spark.sparkContext._jsc.sc().clearJobGroup()
    assert "retry AND (" in said
    assert "Traceback" not in said
    assert jobs == []
    assert desk.ask(f"SELECT id FROM {logs} WHERE message INDEXQUERY 'retry'") == [3, 4]


@pytest.mark.parametrize("what", ["id", "count(*)"])
@pytest.mark.parametrize(
    "condition", ["message INDEXQUERY 'nosuch:x'", "message INDEXQUERY 'retry AND nosuch:x'"]
)
def test_an_unknown_field_is_refused_with_those_there_are(
    desk: SmallTables, logs: str, what: str, condition: str
) -> None:
    said = desk.failure(f"SELECT {what} FROM {logs} WHERE {condition}")
    assert "nosuch" in said
    assert "message" in said
    assert "level" in said


# --- 4, 5: views and common table expressions ---------------------------------------------------------------


def test_an_operator_works_over_a_view_that_filters_and_a_filter_over_that(
    desk: SmallTables, spark: SparkSession, logs: str
) -> None:
    spark.sql(f"CREATE OR REPLACE TEMP VIEW late AS SELECT * FROM {logs} WHERE id > 2")
    spark.sql("CREATE OR REPLACE TEMP VIEW found AS SELECT * FROM late WHERE message INDEXQUERY 'connection'")
    assert desk.ask("SELECT id FROM late WHERE message INDEXQUERY 'connection'") == [3, 4]
    assert desk.ask("SELECT id FROM found WHERE level = 'warn'") == [4]
    assert desk.ask("SELECT id FROM found WHERE message INDEXQUERY 'timeout'") == [3]
    assert desk.ask("SELECT part, count(*) FROM found GROUP BY part") == [(10, 2)]


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("WITH c AS (SELECT * FROM {t} WHERE message INDEXQUERY 'connection') SELECT id FROM c", [2, 3, 4]),
        ("WITH c AS (SELECT * FROM {t}) SELECT id FROM c WHERE message INDEXQUERY 'connection'", [2, 3, 4]),
        (
            (
                "WITH c AS (SELECT * FROM {t} WHERE message INDEXQUERY 'connection') "
                "SELECT id FROM c WHERE message INDEXQUERY 'retry'"
            ),
            [3, 4],
        ),
        (
            (
                "WITH a AS (SELECT * FROM {t} WHERE message INDEXQUERY 'connection'), "
                "b AS (SELECT * FROM a WHERE message INDEXQUERY 'retry') SELECT id FROM b WHERE level = 'error'"
            ),
            [3],
        ),
        (
            (
                "WITH a AS (SELECT * FROM {t} WHERE message INDEXQUERY 'host7'), "
                "b AS (SELECT * FROM {t} WHERE message INDEXQUERY 'connection') SELECT a.id FROM a JOIN b ON a.id = b.id"
            ),
            [2],
        ),
        (
            (
                "SELECT id FROM {t} WHERE message INDEXQUERY 'host7' UNION ALL "
                "SELECT id FROM {t} WHERE message INDEXQUERY 'timeout'"
            ),
            [1, 2, 3],
        ),
        (
            "SELECT id FROM {t} WHERE part IN (SELECT part FROM {t} WHERE message INDEXQUERY 'timeout')",
            [3, 4, 5],
        ),
    ],
)
def test_an_operator_works_in_common_table_expressions_unions_and_subqueries(
    desk: SmallTables, logs: str, sql: str, ids: list[int]
) -> None:
    assert desk.ask(sql.format(t=logs)) == ids


# --- 6-8: and, or, not -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("message INDEXQUERY 'timeout' OR message INDEXQUERY 'started'", [1, 3]),
        ("message INDEXQUERY 'timeout' OR id = 7", [3, 7]),
        ("NOT (message INDEXQUERY 'connection' AND level = 'error')", [1, 4, 6, 7, 5]),
        ("NOT (NOT message INDEXQUERY 'connection')", [2, 3, 4]),
        ("NOT message INDEXQUERY 'connection'", [1, 5, 6, 7]),
        ("message INDEXQUERY 'NOT connection'", [1, 5, 6, 7]),
        ("message INDEXQUERY 'retry -timeout'", [4]),
        ("part = 9 OR message INDEXQUERY 'timeout'", [1, 2, 3]),
        ("part = 9 OR score = 7.0", [1, 2, 7]),
        ("part IS NULL OR message INDEXQUERY 'timeout'", [3, 6, 7]),
        ("NOT (part = 9 OR message INDEXQUERY 'timeout')", [4, 5]),
    ],
)
def test_operators_and_predicates_combine_as_logic_says(
    desk: SmallTables, logs: str, condition: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE {condition}") == sorted(ids)


# --- 9-12: the language ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("*nection", [2, 3, 4]),
        ("retry AND *meout", [3]),
        ("(*arted OR *opped)", [1, 6]),
        ("message:*known", [7]),
        ("level:*arn AND message:ret*", [4]),
        ("conn?ction", [2, 3, 4]),
    ],
)
def test_a_word_may_begin_with_a_wildcard_anywhere(
    desk: SmallTables, logs: str, query: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE message INDEXQUERY '{query}'") == ids


def test_a_search_of_all_fields_is_refused_over_too_many_and_counts_only_what_is_not_qualified(
    desk: SmallTables, spark: SparkSession, logs: str
) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE _indexall INDEXQUERY 'error'") == [2, 3]
    assert desk.ask(f"SELECT id FROM {logs} WHERE indexqueryall('error')") == [2, 3]
    assert desk.ask(f"SELECT id FROM {logs} WHERE * INDEXQUERY 'timeout'") == [3]
    spark.conf.set("spark.indextables.indexquery.indexall.maxUnqualifiedFields", "1")
    try:
        assert "maxUnqualifiedFields" in desk.failure(
            f"SELECT id FROM {logs} WHERE _indexall INDEXQUERY 'error'"
        )
        assert desk.ask(f"SELECT id FROM {logs} WHERE _indexall INDEXQUERY 'level:error'") == [2, 3]
    finally:
        spark.conf.unset("spark.indextables.indexquery.indexall.maxUnqualifiedFields")


def test_textsearch_and_fieldmatch_know_the_fields_from_the_table_alone(desk: SmallTables, logs: str) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE message TEXTSEARCH 'timeout'") == [3]
    assert desk.ask(f"SELECT id FROM {logs} WHERE level FIELDMATCH 'warn'") == [4, 7]
    assert "TEXTSEARCH" in desk.failure(f"SELECT id FROM {logs} WHERE level TEXTSEARCH 'warn'")
    assert "FIELDMATCH" in desk.failure(f"SELECT id FROM {logs} WHERE message FIELDMATCH 'timeout'")


def test_columns_may_be_called_like_operators(desk: SmallTables) -> None:
    name = desk.save(
        [(1, "post", "a"), (2, "straße", "b"), (3, "who@example.com", "c")],
        "id INT, textsearch STRING, fieldmatch STRING",
    )
    assert desk.ask(f"SELECT id FROM {name} WHERE textsearch FIELDMATCH 'post'") == [1]
    assert desk.ask(f"SELECT fieldmatch FROM {name} WHERE textsearch = 'straße'") == ["b"]
    assert desk.ask(f"SELECT id FROM {name} WHERE textsearch FIELDMATCH 'straße'") == [2]
    assert desk.ask(f"SELECT id FROM {name} WHERE textsearch FIELDMATCH '\"who@example.com\"'") == [3]


# --- 13-17: nulls, dates, times, partitions --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("level IS NULL", [5]),
        ("message IS NULL", [5]),
        ("score IS NULL", [3]),
        ("part IS NULL", [6, 7]),
        ("score IS NOT NULL AND part IS NOT NULL", [1, 2, 4, 5]),
        ("message IS NULL OR part IS NULL", [5, 6, 7]),
        ("score IS NULL OR day IS NULL OR level = 'info'", [1, 3, 5, 6]),
    ],
)
def test_nulls_are_found_in_columns_of_every_kind(
    desk: SmallTables, logs: str, condition: str, ids: list[int]
) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE {condition}") == ids


def test_a_date_is_compared_with_a_text_alike_in_partitions_and_in_rows(desk: SmallTables) -> None:
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 2, 1), None]
    rows = [(number, day, day) for number, day in enumerate(days)]
    name = desk.save(rows, "id INT, part DATE, day DATE", by=["part"])
    for condition in (
        "{} = '2024-01-02'",
        "{} >= '2024-01-02'",
        "{} IN ('2024-01-01', '2024-02-01')",
        "{} < '2024-02'",
    ):
        expected = desk.ask(f"SELECT id FROM {name} WHERE {condition.format('day')}")
        assert expected
        assert desk.ask(f"SELECT id FROM {name} WHERE {condition.format('part')}") == expected
    assert desk.ask(f"SELECT count(*) FROM {name} WHERE part = day") == [3]


def test_microseconds_survive_and_compare_exactly(desk: SmallTables, logs: str) -> None:
    assert desk.ask(f"SELECT CAST(at AS STRING) FROM {logs} WHERE id = 3") == ["2024-01-01 03:30:00.000003"]
    assert desk.ask(f"SELECT id FROM {logs} WHERE at = TIMESTAMP'2024-01-01 03:30:00.000003'") == [3]
    assert desk.ask(f"SELECT id FROM {logs} WHERE at > TIMESTAMP'2024-01-01 03:30:00.000003' AND id < 5") == [
        4
    ]
    assert desk.ask(f"SELECT id FROM {logs} WHERE at = TIMESTAMP'2024-01-01 03:30:00'") == []


def test_numbers_of_partitions_compare_as_numbers(desk: SmallTables, logs: str) -> None:
    assert desk.ask(f"SELECT id FROM {logs} WHERE part > 9") == [3, 4, 5]
    assert desk.ask(f"SELECT id FROM {logs} WHERE part < 10") == [1, 2]
    assert desk.ask(f"SELECT max(part), min(part) FROM {logs}") == [(10, 9)]


# --- 18-23: aggregates -----------------------------------------------------------------------------------------


def test_a_struct_that_is_always_null_breaks_no_aggregate(desk: SmallTables) -> None:
    name = desk.save([(1, None), (2, None)], "id INT, s STRUCT<a: INT, b: STRING>")
    assert desk.ask(f"SELECT count(*), count(s), count(s.a), max(s.a), sum(id) FROM {name}") == [
        (2, 0, 0, None, 3)
    ]


def test_a_group_by_after_a_date_histogram_over_the_same_view_is_its_own(
    desk: SmallTables, logs: str
) -> None:
    hours = f"SELECT indextables_date_histogram(at, '4h') AS t, count(*) FROM {logs} GROUP BY indextables_date_histogram(at, '4h')"
    assert [count for _, count in desk.ask(hours)] == [3, 4]
    assert desk.ask(f"SELECT part, count(*) FROM {logs} GROUP BY part") == [(10, 3), (9, 2), (None, 2)]


def test_range_buckets_have_their_names_and_may_be_grouped_further(desk: SmallTables, logs: str) -> None:
    bucket = "indextables_range(score, 'low', NULL, 3.0, 'middle', 3.0, 6.0, 'high', 6.0, 50.0, 'none', 50.0, 60.0)"
    found = desk.ask(f"SELECT {bucket} AS b, count(*) FROM {logs} GROUP BY {bucket}")
    assert found == [("high", 2), ("low", 2), ("middle", 2), (None, 1)]
    nested = desk.ask(f"SELECT {bucket} AS b, level, count(*) FROM {logs} GROUP BY {bucket}, level")
    assert ("low", "error", 1) in nested
    assert sum(row[2] for row in nested) == 7
    assert desk.ask(f"SELECT {bucket} AS b, count(*) FROM {logs} WHERE id > 100 GROUP BY {bucket}") == []


@pytest.mark.parametrize("rows", [50_000, 100_000])
def test_a_count_is_exact_whatever_the_limit(desk: SmallTables, spark: SparkSession, rows: int) -> None:
    name = desk.save(spark.range(rows).withColumn("word", F.lit("same")), splits=2)
    assert desk.ask(f"SELECT count(*) FROM {name}") == [rows]
    assert desk.ask(f"SELECT count(*) FROM {name} WHERE word = 'same' LIMIT 1") == [rows]
    assert desk.ask(f"SELECT count(*) FROM (SELECT * FROM {name} LIMIT 777)") == [777]
    assert desk.ask(f"SELECT count(*) FROM {name} WHERE word INDEXQUERY 'same' AND id >= 10") == [rows - 10]


def test_groups_of_partitions_respect_conditions_on_rows(desk: SmallTables, logs: str) -> None:
    assert desk.ask(f"SELECT part, count(*) FROM {logs} WHERE score > 4 GROUP BY part") == [
        (10, 1),
        (None, 2),
    ]
    found = desk.ask(f"SELECT part, count(*) FROM {logs} WHERE message INDEXQUERY 'retry' GROUP BY part")
    assert found == [(10, 2)]


def test_partition_columns_alone_can_be_selected(desk: SmallTables, spark: SparkSession, logs: str) -> None:
    assert desk.ask(f"SELECT part FROM {logs}") == [9, 9, 10, 10, 10, None, None]
    assert desk.ask(f"SELECT DISTINCT part FROM {logs}") == [9, 10, None]
    assert spark.table(logs).select("part").distinct().count() == 3


def test_parts_of_a_sum_of_decimals_may_be_larger_than_its_column_holds(
    desk: SmallTables, spark: SparkSession
) -> None:
    name = desk.save([(1, D("99.99")), (1, D("99.99")), (2, D("0.01"))], "g INT, d DECIMAL(4,2)", splits=2)
    spark.conf.set("spark.indextables.read.inline.maxRows", "0")
    try:
        assert desk.ask(f"SELECT sum(d) FROM {name}") == [D("199.99")]
        assert desk.ask(f"SELECT g, sum(d) FROM {name} GROUP BY g") == [(1, D("199.98")), (2, D("0.01"))]
        assert desk.ask(f"SELECT avg(d) FROM {name}") == [D("66.663333")]
    finally:
        spark.conf.unset("spark.indextables.read.inline.maxRows")


def test_decimals_of_every_precision_come_back_as_they_were(desk: SmallTables, spark: SparkSession) -> None:
    kinds = [(digits, scale) for digits in (1, 9, 10, 17, 18, 19, 38) for scale in (0, min(digits, 5))]
    largest = [D((0, (9,) * digits, -scale)) for digits, scale in kinds]
    rows = [
        (i, *(None if i % 4 == 3 else value.copy_negate() if i % 2 else value for value in largest))
        for i in range(200)
    ]
    schema = ", ".join(["id INT", *(f"d{i} DECIMAL({p},{s})" for i, (p, s) in enumerate(kinds))])
    name = desk.save(rows, schema)
    plain = spark.createDataFrame(rows, schema)
    plain.createOrReplaceTempView("plain_decimals")
    for most in ("0", "10000"):
        spark.conf.set("spark.indextables.read.inline.maxRows", most)
        try:
            assert spark.table(name).orderBy("id").collect() == plain.orderBy("id").collect()
            for i, _ in enumerate(kinds):
                # Spark evaluates what is above the scan.
                query = f"SELECT id, CAST(d{i} AS STRING) t, d{i} IS NULL n, array(d{i}) l FROM {{}} WHERE hash(d{i}) % 2 = 0 OR d{i} IS NULL ORDER BY id"
                ours, expected = (spark.sql(query.format(each)) for each in (name, "plain_decimals"))
                assert (ours.schema, ours.collect()) == (expected.schema, expected.collect())
        finally:
            spark.conf.unset("spark.indextables.read.inline.maxRows")


# --- 24-27: names, odd values, addresses, nested rows -----------------------------------------------------------


def test_names_may_be_of_mixed_case_and_must_differ(desk: SmallTables, spark: SparkSession) -> None:
    name = desk.save(
        [(1, "Some Words", 5)],
        "Id INT, userName STRING, PartKey INT",
        by=["PartKey"],
        indexing__typemap__userName="text",
    )
    assert spark.table(name).columns == ["Id", "userName", "PartKey"]
    assert desk.ask(f"SELECT id FROM {name} WHERE USERNAME INDEXQUERY 'words' AND partkey = 5") == [1]
    assert desk.ask(f"SELECT username, count(ID) FROM {name} GROUP BY username") == [("Some Words", 1)]
    twice = spark.createDataFrame([(1, 2)], "a INT, b INT").toDF("a", "a")
    with pytest.raises(AnalysisException, match="rename one"):
        twice.write.format("indextables").save(desk.path("twice"))


@pytest.mark.parametrize("text", [False, True])
def test_odd_values_are_found_by_equality(desk: SmallTables, spark: SparkSession, text: bool) -> None:
    values = [
        "C:\\dir\\file.txt",
        'say "hi"',
        "it's",
        "a:b",
        "a AND b",
        "(x)",
        "*",
        "\\",
        "",
        " lead",
        "tab\there",
    ]
    options: dict[str, Any] = {"indexing__typemap__v": "text"} if text else {}
    name = desk.save(list(enumerate(values)), "id INT, v STRING", **options)
    table = spark.table(name)
    for number, value in enumerate(values):
        assert [row.id for row in table.where(F.col("v") == value).select("id").collect()] == [number]
    assert table.where(F.col("v").isin(values[:4])).count() == 4


def test_addresses_are_found_by_network(desk: SmallTables) -> None:
    values = ["192.168.1.7", "192.168.2.9", "10.0.0.1", "2001:db8::1", "2001:db8:1::5", None]
    name = desk.save(list(enumerate(values)), "id INT, ip STRING", indexing__typemap__ip="ip")
    assert desk.ask(f"SELECT ip FROM {name} WHERE id < 5") == sorted(v for v in values if v)
    asked = {
        "ip INDEXQUERY '192.168.0.0/16'": [0, 1],
        "ip INDEXQUERY '192.168.1.*'": [0],
        "ip INDEXQUERY '0.0.0.0/0'": [0, 1, 2],
        "ip INDEXQUERY '\"2001:db8::/32\"'": [3, 4],
        "ip INDEXQUERY 'IN [10.0.0.0/8 192.168.2.0/24]'": [1, 2],
        "ip = '10.0.0.1'": [2],
        "ip IN ('10.0.0.1', '2001:db8::1')": [2, 3],
    }
    for condition, ids in asked.items():
        assert desk.ask(f"SELECT id FROM {name} WHERE {condition}") == ids, condition
    assert "192.*.1.7" in desk.failure(f"SELECT id FROM {name} WHERE ip INDEXQUERY '192.*.1.7'")


def test_nested_rows_come_back_as_they_were(desk: SmallTables, spark: SparkSession) -> None:
    schema = "id INT, m MAP<INT, STRING>, e MAP<STRING, INT>, a ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>, s STRUCT<i: STRUCT<j: INT>>"
    rows = [
        (1, {1: "a", -2: None}, {}, [(1, ["p", None]), (None, [])], ((7,),)),
        (2, {}, {"k": 1}, [], (None,)),
        (3, None, None, None, None),
    ]
    name = desk.save(rows, schema)
    plain = spark.createDataFrame(rows, schema)
    assert spark.table(name).orderBy("id").collect() == plain.orderBy("id").collect()
    assert desk.ask(f"SELECT id FROM {name} WHERE s.i.j = 7") == [1]
    assert desk.ask(f"SELECT id FROM {name} WHERE m[1] = 'a'") == [1]
    assert desk.ask(f"SELECT id FROM {name} WHERE size(a) = 0") == [2]
