"""The search operators in SQL and in the DataFrame API: wherever a condition can stand, and nowhere a guess."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

import indextables
from indextables.functions import fieldmatch, highlight, indexquery, indexqueryall, score, textsearch
from tests.spark.table_pairs import Pair

TEXTS = [
    "connection refused by host", "timeout while waiting", "connection timeout", "disk full", None, "all is well", "refused again, timeout",
    "it's a quote", 'she said "stop now"', "host down",
]  # fmt: skip


def log_rows() -> pa.Table:
    count = 40
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "msg": pa.array([TEXTS[i % len(TEXTS)] for i in range(count)]),
            "level": pa.array([["ERROR", "INFO", None, "WARN"][i % 4] for i in range(count)]),
            "host": pa.array([f"10.0.{i % 3}.{i}" for i in range(count)]),
            "textsearch": pa.array([f"user{i % 5}@example.org" for i in range(count)]),
            "day": pa.array([f"2024-0{1 + i % 3}-01" for i in range(count)]),
            "size": pa.array([i * 10 for i in range(count)], pa.int32()),
            "doc": pa.array([{"title": TEXTS[i % len(TEXTS)], "n": i % 4} for i in range(count)]),
        }
    )


def having(*words: str) -> set[Any]:
    """The ids of rows whose message has one of the words."""
    return {i for i in range(40) if any(w in (TEXTS[i % len(TEXTS)] or "") for w in words)}


ALL = set(range(40))
TIMEOUT, REFUSED = having("timeout"), having("refused")
ERRORS = {i for i in range(40) if i % 4 == 0}


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(
        spark,
        tmp_path_factory.mktemp("operators"),
        log_rows(),
        options={"indexing.typemap.msg": "text", "indexing.typemap.host": "ip"},
        partition_by=("day",),
        splits=2,
        name="logs",
    )


def ids(logs: Pair, condition: str, table: Any = None) -> set[Any]:
    return {row[0] for row in logs.rows(f"SELECT id FROM {{t}} WHERE {condition}", table)}


CONDITIONS = {
    "msg INDEXQUERY 'timeout'": TIMEOUT,
    "msg indexquery 'timeout'": TIMEOUT,
    'msg IndexQuery "timeout"': TIMEOUT,
    "`msg` INDEXQUERY 'timeout'": TIMEOUT,
    "{t}.msg INDEXQUERY 'timeout'": TIMEOUT,
    "msg TEXTSEARCH 'timeout'": TIMEOUT,
    "level FIELDMATCH 'ERROR'": ERRORS,
    "NOT msg INDEXQUERY 'timeout'": ALL - TIMEOUT,
    "msg NOT INDEXQUERY 'timeout'": ALL - TIMEOUT,
    "NOT NOT msg INDEXQUERY 'timeout'": TIMEOUT,
    "msg INDEXQUERY 'timeout' OR msg INDEXQUERY 'refused'": TIMEOUT | REFUSED,
    "msg INDEXQUERY 'timeout' AND msg INDEXQUERY 'refused'": TIMEOUT & REFUSED,
    "msg INDEXQUERY 'timeout OR refused'": TIMEOUT | REFUSED,
    "msg INDEXQUERY 'timeout refused'": TIMEOUT & REFUSED,
    "msg INDEXQUERY 'timeout AND NOT refused'": TIMEOUT - REFUSED,
    "msg INDEXQUERY '-timeout'": ALL - TIMEOUT,
    "msg INDEXQUERY 'NOT timeout'": ALL - TIMEOUT,
    "msg INDEXQUERY '*out'": TIMEOUT,
    "msg INDEXQUERY 'connection AND *out'": TIMEOUT & having("connection"),
    "msg INDEXQUERY '(*out OR *fused)'": TIMEOUT | REFUSED,
    "msg INDEXQUERY 'msg:*out'": TIMEOUT,
    "msg INDEXQUERY 'level:ERROR'": ERRORS,
    "msg INDEXQUERY 'timeout AND level:ERROR'": TIMEOUT & ERRORS,
    "msg INDEXQUERY 'timeout' OR level = 'ERROR'": TIMEOUT | ERRORS,
    "NOT (msg INDEXQUERY 'timeout' AND level = 'ERROR')": ALL - (TIMEOUT & ERRORS) - {i for i in TIMEOUT if i % 4 == 2},
    "msg INDEXQUERY 'timeout' AND length(msg) % 2 = 0": {i for i in TIMEOUT if len(TEXTS[i % 10]) % 2 == 0},
    "msg INDEXQUERY 'timeout' OR id % 7 = 0": TIMEOUT | {i for i in ALL if i % 7 == 0},
    "day = '2024-01-01' OR msg INDEXQUERY 'timeout'": TIMEOUT | {i for i in ALL if i % 3 == 0},
    "day = '2024-01-01' AND msg INDEXQUERY 'timeout'": TIMEOUT & {i for i in ALL if i % 3 == 0},
    "* INDEXQUERY 'timeout'": TIMEOUT,
    "* INDEXQUERY 'msg:timeout'": TIMEOUT,
    "(* INDEXQUERY 'ERROR')": ERRORS,
    "NOT * INDEXQUERY 'ERROR'": ALL - ERRORS,
    "_indexall INDEXQUERY 'ERROR'": ERRORS,
    "_INDEXALL indexquery 'ERROR'": ERRORS,
    "{t}._indexall INDEXQUERY 'ERROR'": ERRORS,
    "indexqueryall('ERROR')": ERRORS,
    "IndexQueryAll('ERROR') AND msg INDEXQUERY 'timeout'": TIMEOUT & ERRORS,
    "indexquery(msg, 'timeout')": TIMEOUT,
    "msg INDEXQUERY '\"connection timeout\"'": having("connection timeout"),
    "msg INDEXQUERY '\"she said\"'": having("she said"),
    "msg INDEXQUERY 'it\\'s'": having("it's"),
    "msg INDEXQUERY 'time' 'out'": TIMEOUT,
    "textsearch FIELDMATCH '\"user3@example.org\"'": {i for i in ALL if i % 5 == 3},
    "doc INDEXQUERY 'doc.title:timeout'": set(),
    "doc.n = 3": {i for i in ALL if i % 4 == 3},
    "doc INDEXQUERY 'doc.n:3'": {i for i in ALL if i % 4 == 3},
    "host INDEXQUERY '\"10.0.1.0/24\"'": {i for i in ALL if i % 3 == 1},
    "host = '10.0.1.1'": {1},
    "coalesce(msg INDEXQUERY 'timeout', true)": TIMEOUT,
    "(msg INDEXQUERY 'timeout') = (level = 'ERROR')": {i for i in ALL if i % 4 != 2 and (i in TIMEOUT) == (i in ERRORS)},
    "CASE WHEN id < 20 THEN msg INDEXQUERY 'timeout' ELSE level = 'ERROR' END": {i for i in ALL if (i in TIMEOUT if i < 20 else i in ERRORS)},
}  # fmt: skip


def test_operators_find_their_rows_in_any_condition(logs: Pair) -> None:
    for condition, expected in CONDITIONS.items():
        assert ids(logs, condition) == expected, condition


def test_operators_work_in_the_conditions_of_data_frames(logs: Pair) -> None:
    frame = logs.spark.table(logs.ours)
    assert {
        r.id for r in frame.where("msg INDEXQUERY 'timeout' AND level = 'ERROR'").collect()
    } == TIMEOUT & ERRORS
    assert {r.id for r in frame.filter(expr("NOT msg INDEXQUERY 'timeout'")).collect()} == ALL - TIMEOUT
    assert {
        r.id for r in frame.where(indexquery("msg", "timeout") & ~fieldmatch("level", "ERROR")).collect()
    } == TIMEOUT - ERRORS
    assert {
        r.id for r in frame.where(textsearch(col("msg"), "it's") | indexqueryall("ERROR")).collect()
    } == having("it's") | ERRORS


def test_parameters_can_be_queries(logs: Pair) -> None:
    query = f"SELECT id FROM {logs.ours} WHERE msg INDEXQUERY :words AND level = :level"
    assert {
        r.id for r in logs.spark.sql(query, args={"words": "timeout", "level": "ERROR"}).collect()
    } == TIMEOUT & ERRORS
    assert {
        r.id
        for r in logs.spark.sql(
            f"SELECT id FROM {logs.ours} WHERE msg INDEXQUERY ?", args=["timeout"]
        ).collect()
    } == TIMEOUT


def test_literals_identifiers_and_comments_are_left_alone(logs: Pair) -> None:
    row = logs.rows(
        """SELECT 'msg INDEXQUERY ''timeout''' AS a, "x TEXTSEARCH 'y'" AS b, -- msg INDEXQUERY 'z'
           id AS indexquery, /* msg INDEXQUERY 'q' */ textsearch, `textsearch` AS `a INDEXQUERY 'b'`
           FROM {t} WHERE textsearch = 'user3@example.org' AND id = 3"""
    )
    assert row == [
        ("msg INDEXQUERY 'timeout'", "x TEXTSEARCH 'y'", 3, "user3@example.org", "user3@example.org")
    ]
    assert logs.rows("SELECT indexquery FROM (SELECT id AS indexquery FROM {t}) WHERE indexquery = 4") == [
        (4,)
    ]


QUERIES = {
    "SELECT id FROM (SELECT * FROM {t} WHERE level = 'ERROR') WHERE msg INDEXQUERY 'timeout'": TIMEOUT & ERRORS,
    "WITH a AS (SELECT * FROM {t} WHERE msg INDEXQUERY 'timeout') SELECT id FROM a": TIMEOUT,
    "WITH a AS (SELECT * FROM {t}) SELECT id FROM a WHERE msg INDEXQUERY 'timeout'": TIMEOUT,
    "WITH a AS (SELECT * FROM {t} WHERE msg INDEXQUERY 'timeout'), b AS (SELECT * FROM a WHERE msg INDEXQUERY 'refused') SELECT id FROM b": TIMEOUT & REFUSED,
    "WITH a AS (SELECT * FROM {t} WHERE msg INDEXQUERY 'timeout'), b AS (SELECT * FROM {t} WHERE msg INDEXQUERY 'refused') SELECT a.id FROM a JOIN b ON a.id = b.id": TIMEOUT & REFUSED,
    "SELECT id FROM ({t}) WHERE msg INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT id FROM (SELECT * FROM {t} UNION ALL SELECT * FROM {t}) WHERE msg INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT id FROM (SELECT * FROM {t} UNION ALL SELECT * FROM {t}) WHERE * INDEXQUERY 'ERROR'": ERRORS,
    "SELECT l.id FROM {t} l JOIN {p} r ON l.id = r.id WHERE l.msg INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT l.id FROM {p} l JOIN {t} r ON l.id = r.id AND r.msg INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT l.id FROM {t} l JOIN {t} r ON l.msg = r.msg AND l.id = r.id WHERE l.msg INDEXQUERY 'level:ERROR'": ERRORS - having("all is") - {i for i in ALL if TEXTS[i % 10] is None} | (ERRORS & having("all is")),
    "SELECT l.id FROM {t} l JOIN {p} r ON l.level = r.level AND l.id = r.id WHERE l.level FIELDMATCH 'ERROR'": ERRORS,
    "SELECT l.id FROM {p} l LEFT JOIN {t} r ON l.id = r.id AND r.id < 20 WHERE r.msg INDEXQUERY 'timeout'": {i for i in TIMEOUT if i < 20},
    "SELECT l.id FROM {p} l LEFT JOIN {t} r ON l.id = r.id AND r.id < 20 WHERE NOT r.msg INDEXQUERY 'timeout'": ALL - {i for i in TIMEOUT if i < 20},
    "SELECT l.id FROM {t} l JOIN {t} r ON l.id = r.id WHERE l.msg INDEXQUERY 'timeout' OR r.msg INDEXQUERY 'refused'": TIMEOUT | REFUSED,
    "SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE msg INDEXQUERY 'timeout')": TIMEOUT,
    "SELECT id FROM {t} o WHERE EXISTS (SELECT 1 FROM {t} i WHERE i.id = o.id AND i.msg INDEXQUERY 'timeout')": TIMEOUT,
    "SELECT id FROM {t} WHERE msg INDEXQUERY 'timeout' EXCEPT SELECT id FROM {t} WHERE level FIELDMATCH 'ERROR'": TIMEOUT - ERRORS,
    "SELECT key FROM (SELECT id AS key, msg AS words FROM {t}) WHERE words INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT id FROM (SELECT id, msg FROM {t} ORDER BY id LIMIT 20) WHERE msg INDEXQUERY 'timeout'": {i for i in TIMEOUT if i < 20},
    "SELECT id FROM (SELECT id, msg, row_number() OVER (ORDER BY id) AS r FROM {t}) WHERE r <= 20 AND msg INDEXQUERY 'timeout'": {i for i in TIMEOUT if i < 20},
    "SELECT id FROM {t} GROUP BY id, msg HAVING msg INDEXQUERY 'timeout'": TIMEOUT,
    "SELECT id FROM (SELECT id, msg INDEXQUERY 'timeout' AS found FROM {t}) WHERE found": TIMEOUT,
    "SELECT id FROM (SELECT id, CASE WHEN msg INDEXQUERY 'timeout' THEN 'y' ELSE 'n' END AS k FROM {t}) WHERE k = 'y'": TIMEOUT,
    "SELECT id FROM {t} WHERE doc.title = 'timeout while waiting' AND msg INDEXQUERY 'timeout'": having("timeout while"),
}  # fmt: skip


def test_operators_work_through_views_subqueries_unions_and_joins(logs: Pair) -> None:
    logs.spark.sql(
        f"CREATE OR REPLACE TEMP VIEW log_errors AS SELECT * FROM {logs.ours} WHERE level = 'ERROR' AND msg INDEXQUERY 'timeout OR refused'"
    )
    assert {
        r.id for r in logs.spark.sql("SELECT id FROM log_errors WHERE msg INDEXQUERY 'timeout'").collect()
    } == TIMEOUT & ERRORS
    for query, expected in QUERIES.items():
        text = query.replace("({t})", "{t}").replace("{p}", logs.plain)
        assert {row[0] for row in logs.rows(text)} == expected, query


def test_operators_count_and_group(logs: Pair) -> None:
    assert logs.rows("SELECT count(*) FROM {t} WHERE msg INDEXQUERY 'timeout'") == [(len(TIMEOUT),)]
    assert logs.rows("SELECT count_if(msg INDEXQUERY 'timeout'), count(*) FROM {t}") == [(len(TIMEOUT), 40)]
    found = logs.rows("SELECT msg INDEXQUERY 'timeout' AS f, count(*) FROM {t} GROUP BY 1")
    assert dict(found) == {True: len(TIMEOUT), False: 40 - len(TIMEOUT)}
    levels = dict(logs.rows("SELECT level, count(*) FROM {t} WHERE msg INDEXQUERY 'timeout' GROUP BY level"))
    assert levels == {
        level: n
        for level in ("ERROR", "INFO", None, "WARN")
        if (n := len([i for i in TIMEOUT if ["ERROR", "INFO", None, "WARN"][i % 4] == level]))
    }
    days = dict(logs.rows("SELECT day, count(*) FROM {t} WHERE msg INDEXQUERY 'timeout' GROUP BY day"))
    assert days == {f"2024-0{d + 1}-01": len([i for i in TIMEOUT if i % 3 == d]) for d in range(3)}


REFUSALS = {
    "SELECT id FROM {t} WHERE msg INDEXQUERY 'time('": "'\\('",
    "SELECT count(*) FROM {t} WHERE msg INDEXQUERY 'time('": "'\\('",
    "SELECT id FROM {t} WHERE msg INDEXQUERY 'timeout' OR msg INDEXQUERY '\"open'": "quote",
    "SELECT max(id) FROM {t} WHERE level = 'x' AND msg INDEXQUERY 'a AND'": "AND",
    "SELECT id, msg INDEXQUERY 'time(' FROM {t}": "'\\('",
    "SELECT count(*) FROM {t} WHERE msg INDEXQUERY 'nowhere:x'": "nowhere.*msg",
    "SELECT id FROM {t} WHERE level TEXTSEARCH 'x'": "TEXTSEARCH.*'level'",
    "SELECT id FROM {t} WHERE msg FIELDMATCH 'x'": "FIELDMATCH.*'msg'",
    "SELECT id FROM {t} WHERE nothing INDEXQUERY 'x'": "nothing",
    "SELECT id FROM {p} WHERE msg INDEXQUERY 'x'": "cannot be answered",
    "SELECT msg INDEXQUERY 'x' FROM {p}": "cannot be answered",
    "SELECT id FROM {t} WHERE upper(msg) INDEXQUERY 'x'": "a column on its left",
    "SELECT id FROM (SELECT id, upper(msg) AS m FROM {t}) WHERE m INDEXQUERY 'x'": "cannot be answered",
    "SELECT id FROM {t} WHERE msg INDEXQUERY level": "in quotes",
    "SELECT id FROM {t} WHERE indexquery(msg, level)": "takes its query as a constant text",
    "SELECT id FROM {t} WHERE indexquery(msg, NULL)": "takes its query as a constant text",
    "SELECT id FROM {t} WHERE indexquery(msg)": "a column and a query",
    "SELECT level, msg INDEXQUERY 'x' FROM {t} GROUP BY level, msg": "grouped",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE * INDEXQUERY 'x'": "several tables",
    "SELECT _score FROM {t}": "needs a search",
    "SELECT highlight(level) FROM {t} WHERE msg INDEXQUERY 'x'": "not indexed as text",
    "SELECT _indexall FROM {t}": "only be searched",
}  # fmt: skip


def test_what_cannot_be_answered_fails_with_a_reason_before_any_task(logs: Pair) -> None:
    for query, reason in REFUSALS.items():
        with pytest.raises((AnalysisException, ParseException), match=f"(?s){reason}"):
            logs.rows(query.replace("{p}", logs.plain))
    assert ids(logs, "msg INDEXQUERY 'timeout'") == TIMEOUT


def test_scores_and_fragments_come_with_a_search(logs: Pair) -> None:
    rows = logs.rows(
        "SELECT id, _score, highlight(msg) FROM {t} WHERE msg INDEXQUERY 'timeout' ORDER BY _score DESC, id"
    )
    assert {row[0] for row in rows} == TIMEOUT
    assert all(score > 0 and "<b>timeout</b>" in fragment for _, score, fragment in rows)
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
    top = logs.rows(
        "SELECT id, score() FROM {t} WHERE msg INDEXQUERY 'timeout' AND level = 'ERROR' ORDER BY score() DESC LIMIT 2"
    )
    assert [row[1] for row in top] == sorted((s for i, s, _ in rows if i in ERRORS), reverse=True)[:2]
    plan = logs.plan("SELECT id FROM {t} WHERE msg INDEXQUERY 'timeout' ORDER BY _score DESC LIMIT 2")
    assert "PushedTopN" in plan
    frame = logs.spark.table(logs.ours).where(indexquery("msg", "timeout"))
    first = frame.orderBy(score().desc(), "id").select("id", highlight("msg").alias("h")).first()
    assert (first.id, "<b>timeout</b>" in first.h) == (rows[0][0], True)


def test_scores_agree_with_plain_python(logs: Pair) -> None:
    table = indextables.open(logs.path)
    plain = table.search("connection OR timeout", field="msg", columns=["id"], scores=True, limit=None)
    expected = dict(zip(plain["id"].to_pylist(), plain["_score"].to_pylist(), strict=True))
    ours: dict[Any, Any] = dict(
        logs.ask("SELECT id, _score FROM {t} WHERE msg INDEXQUERY 'connection OR timeout'").collect()
    )
    assert ours == expected


@pytest.mark.parametrize("inline", [0, 10_000])
def test_tasks_score_rows_by_the_counts_of_all_splits(logs: Pair, inline: int) -> None:
    table = indextables.open(logs.path)
    assert table.files().num_rows > 1
    plain = table.search("connection OR timeout", field="msg", columns=["id"], scores=True, limit=None)
    expected = dict(zip(plain["id"].to_pylist(), plain["_score"].to_pylist(), strict=True))
    frame = logs.spark.read.format("indextables").option("read.inline.maxRows", inline).load(str(logs.path))
    found = frame.where(indexquery("msg", "connection OR timeout")).withColumn("s", score())
    assert dict(found.select("id", "s").collect()) == expected
    best = found.orderBy(score().desc()).limit(5).select("s").collect()
    assert [row.s for row in best] == sorted(expected.values(), reverse=True)[:5]


def test_a_score_is_of_its_own_table_in_a_join(logs: Pair) -> None:
    rows = logs.ask(
        "SELECT a.id, a._score, b._score FROM {t} a JOIN {t} b ON a.id = b.id WHERE a.msg INDEXQUERY 'timeout' AND b.msg INDEXQUERY 'refused'"
    ).collect()
    single: dict[Any, Any] = {
        w: dict(logs.ask(f"SELECT id, _score FROM {{t}} WHERE msg INDEXQUERY '{w}'").collect())
        for w in ("timeout", "refused")
    }
    assert {tuple(r) for r in rows} == {
        (i, single["timeout"][i], single["refused"][i]) for i in TIMEOUT & REFUSED
    }


def test_too_many_fields_for_an_unqualified_search_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    columns = {f"c{i}": ["x"] for i in range(12)}
    indextables.write(tmp_path / "wide", pa.table(columns))
    frame = spark.read.format("indextables").load(str(tmp_path / "wide"))
    with pytest.raises(AnalysisException, match="12 fields"):
        frame.where("* INDEXQUERY 'x'").count()
    assert frame.where("* INDEXQUERY 'c1:x'").count() == 1
    free = (
        spark.read.format("indextables")
        .option("indexquery.indexall.maxUnqualifiedFields", "0")
        .load(str(tmp_path / "wide"))
    )
    assert free.where("* INDEXQUERY 'x'").count() == 1


def test_a_view_in_the_catalog_keeps_its_search(logs: Pair) -> None:
    logs.spark.sql(f"CREATE TABLE log_table USING indextables LOCATION '{logs.path}'")
    try:
        logs.spark.sql("CREATE VIEW log_view AS SELECT id, msg FROM log_table WHERE msg INDEXQUERY 'timeout'")
        try:
            assert {r.id for r in logs.spark.table("log_view").collect()} == TIMEOUT
            assert {
                r.id
                for r in logs.spark.sql("SELECT id FROM log_view WHERE msg INDEXQUERY 'refused'").collect()
            } == TIMEOUT & REFUSED
            best = logs.spark.sql("SELECT id, _score FROM log_view ORDER BY _score DESC, id LIMIT 1").first()
            assert best.id in TIMEOUT
            above = "WITH c AS (SELECT id, msg FROM log_table) SELECT id FROM c WHERE msg INDEXQUERY 'timeout' ORDER BY _score DESC"
            assert {row.id for row in logs.spark.sql(above).collect()} == TIMEOUT
        finally:
            logs.spark.sql("DROP VIEW log_view")
        with pytest.raises(AnalysisException, match="cannot choose the rows"):
            logs.spark.sql("DELETE FROM log_table WHERE msg INDEXQUERY 'timeout'")
        assert logs.spark.table("log_table").count() == 40
    finally:
        logs.spark.sql("DROP TABLE log_table")
