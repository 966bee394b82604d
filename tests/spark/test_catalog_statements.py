"""Statements of Spark's catalog, and of Delta, about tables of indextables."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import indextables


@pytest.fixture
def sql(spark: SparkSession) -> Callable[..., Any]:
    """Run a statement, and return its rows as tuples."""

    def run(statement: Any) -> list[Any]:
        return [tuple(row) for row in spark.sql(statement).collect()]

    return run


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    """A partitioned table with comments and index settings in TBLPROPERTIES."""
    spark.sql(
        "CREATE TABLE statements (id INT COMMENT 'the number', message STRING, client STRING, day DATE) "
        "USING indextables PARTITIONED BY (day) COMMENT 'about requests' TBLPROPERTIES "
        "('indexing.typemap.message' = 'text', 'spark.indextables.indexing.typemap.client' = 'ip', 'team' = 'web')"
    )
    spark.sql(
        "INSERT INTO statements VALUES (1, 'hello big world', '10.0.0.9', DATE '2024-01-01'), "
        "(2, 'hello small world', '10.0.0.200', DATE '2024-01-02'), (3, 'none', '192.168.1.1', NULL)"
    )
    yield "statements"
    spark.sql("DROP TABLE statements")


def test_index_settings_in_table_properties_take_effect(sql: Callable[..., Any], table: str) -> None:
    assert sql(f"SELECT id FROM {table} WHERE message INDEXQUERY 'hello AND small'") == [(2,)]
    assert sql(f"SELECT id FROM {table} WHERE client INDEXQUERY '10.0.0.0/28'") == [(1,)]


def test_index_settings_of_a_writer_with_table_properties_take_effect(
    spark: SparkSession, sql: Callable[..., Any]
) -> None:
    rows = spark.createDataFrame([(1, "hello big world")], "id INT, message STRING")
    rows.writeTo("by_writer").using("indextables").tableProperty("indexing.typemap.message", "text").create()
    try:
        assert sql("SELECT id FROM by_writer WHERE message INDEXQUERY 'big'") == [(1,)]
    finally:
        sql("DROP TABLE by_writer")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("indexing.typemap.nope", "text", "names the column 'nope', but the columns are: id, message"),
        ("indexing.typemap.id", "text", "does not fit the column 'id'"),
        ("indexing.typemap.message", "texte", "a field type"),
        ("spark.indextables.indexing.typmap.message", "text", "did you mean 'indexing.typemap'"),
    ],
)
def test_wrong_index_settings_are_refused_when_a_table_is_created(
    sql: Callable[..., Any], key: str, value: str, says: str
) -> None:
    statement = "CREATE TABLE wrong (id INT, message STRING) USING indextables TBLPROPERTIES"
    with pytest.raises(AnalysisException) as caught:
        sql(f"{statement} ('{key}' = '{value}')")
    assert says in str(caught.value)
    assert sql("SHOW TABLES LIKE 'wrong'") == []


def test_properties_are_set_before_the_first_rows_and_not_against_them(
    spark: SparkSession, sql: Callable[..., Any]
) -> None:
    sql("CREATE TABLE altered (id INT, message STRING) USING indextables")
    try:
        with pytest.raises(AnalysisException, match="names the column 'nope'"):
            sql("ALTER TABLE altered SET TBLPROPERTIES ('indexing.typemap.nope' = 'text')")
        sql("ALTER TABLE altered SET TBLPROPERTIES ('indexing.typemap.message' = 'text', 'team' = 'web')")
        sql("INSERT INTO altered VALUES (1, 'hello world')")
        assert sql("SELECT id FROM altered WHERE message INDEXQUERY 'hello'") == [(1,)]
        with pytest.raises(AnalysisException, match=r"column message .* is indexed as text, not"):
            sql("ALTER TABLE altered SET TBLPROPERTIES ('indexing.typemap.message' = 'string')")
        sql("ALTER TABLE altered SET TBLPROPERTIES ('indexing.typemap.message' = 'text')")
        sql("INSERT INTO altered VALUES (2, 'hello again')")
        assert len(sql("SELECT id FROM altered WHERE message INDEXQUERY 'hello'")) == 2
    finally:
        sql("DROP TABLE altered")


def test_describe_extended_shows_location_comments_and_index_settings(
    sql: Callable[..., Any], table: str
) -> None:
    rows = {name: (kind, comment) for name, kind, comment in sql(f"DESCRIBE EXTENDED {table}")}
    assert rows["id"] == ("int", "the number")
    assert rows["Location"][0].endswith("/statements")
    assert rows["Comment"][0] == "about requests"
    properties = rows["Table Properties"][0]
    assert "indexing.typemap.message=text" in properties
    assert "indexing.typemap.client=ip" in properties
    assert "team=web" in properties
    assert "path=" not in properties


def test_index_settings_of_a_writer_are_shown_though_no_property_has_them(
    spark: SparkSession, sql: Callable[..., Any], tmp_path: Path
) -> None:
    indextables.write(tmp_path / "t", [{"id": 1, "m": "a b"}], options={"indexing.typemap.m": "text"})
    sql(f"CREATE TABLE by_python USING indextables LOCATION '{tmp_path}/t'")
    try:
        assert ("indexing.typemap.m", "text") in sql("SHOW TBLPROPERTIES by_python")
        statement = sql("SHOW CREATE TABLE by_python")[0][0]
        assert f"LOCATION 'file:{tmp_path}/t'" in statement
        assert "'indexing.typemap.m' = 'text'" in statement
    finally:
        sql("DROP TABLE by_python")


def test_show_create_table_makes_a_table_that_is_indexed_alike(sql: Callable[..., Any], table: str) -> None:
    statement = sql(f"SHOW CREATE TABLE {table}")[0][0]
    assert "COMMENT 'about requests'" in statement
    assert "LOCATION" not in statement, "the catalog chooses the folder of a managed table"
    sql(statement.replace("default.statements", "default.copied"))
    try:
        sql(f"INSERT INTO copied SELECT * FROM {table}")
        assert sql("SELECT id FROM copied WHERE message INDEXQUERY 'hello AND small'") == [(2,)]
        shown = sql("SHOW CREATE TABLE copied")[0][0]
        assert shown.replace("copied", "statements") == statement
    finally:
        sql("DROP TABLE copied")


def test_show_create_table_can_be_executed_with_tokenizers_and_lengths(sql: Callable[..., Any]) -> None:
    sql(
        "CREATE TABLE told (id INT, m STRING, c CHAR(5), v VARCHAR(9)) USING indextables TBLPROPERTIES "
        "('indexing.typemap.m' = 'text', 'indexing.tokenizer.m' = 'whitespace')"
    )
    statement = sql("SHOW CREATE TABLE told")[0][0]
    assert "'indexing.tokenizer.m' = 'whitespace'" in statement
    sql("DROP TABLE told")
    sql(statement)
    try:
        sql("INSERT INTO told VALUES (1, 'Hello-There you', 'ab', 'xyz')")
        assert sql("SELECT id, v FROM told WHERE m INDEXQUERY 'you'") == [(1, "xyz")]
        assert sql("SHOW CREATE TABLE told")[0][0] == statement
    finally:
        sql("DROP TABLE told")


def test_a_property_by_which_rows_are_indexed_cannot_be_unset(sql: Callable[..., Any], table: str) -> None:
    with pytest.raises(
        AnalysisException, match=r"'indexing.typemap.message' determines how the rows of the table"
    ):
        sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('indexing.typemap.message')")
    assert ("indexing.typemap.message", "text") in sql(f"SHOW TBLPROPERTIES {table}")


def test_a_table_at_a_location_is_external(sql: Callable[..., Any], tmp_path: Path) -> None:
    for location, kind in ((f"LOCATION '{tmp_path}/t'", "EXTERNAL"), ("", "MANAGED")):
        sql(f"CREATE TABLE kinds (id INT) USING indextables {location}")
        try:
            assert ("Type", kind, "") in sql("DESCRIBE EXTENDED kinds")
        finally:
            sql("DROP TABLE kinds")


def test_comments_of_the_table_and_of_columns_can_be_changed(sql: Callable[..., Any]) -> None:
    sql("CREATE TABLE commented (id INT COMMENT 'old', m STRING) USING indextables COMMENT 'old'")
    try:
        for _ in range(2):
            sql("COMMENT ON TABLE commented IS 'new'")
            sql("ALTER TABLE commented ALTER COLUMN id COMMENT 'newer'")
            rows = {name: (kind, comment) for name, kind, comment in sql("DESCRIBE EXTENDED commented")}
            assert rows["Comment"][0] == "new"
            assert rows["id"] == ("int", "newer")
            sql("INSERT INTO commented VALUES (1, 'a')")
        with pytest.raises(AnalysisException, match="write rows with the option mergeSchema"):
            sql("ALTER TABLE commented ALTER COLUMN id TYPE BIGINT")
    finally:
        sql("DROP TABLE commented")


@pytest.mark.parametrize(
    "statement",
    [
        "SET TBLPROPERTIES ('team' = 'web')",
        "UNSET TBLPROPERTIES ('owner-team')",
        "ALTER COLUMN id COMMENT 'new'",
    ],
)
def test_a_change_of_a_table_keeps_its_comment(sql: Callable[..., Any], statement: str) -> None:
    sql(
        "CREATE TABLE changed (id INT COMMENT 'old', m STRING) USING indextables COMMENT 'about it' "
        "TBLPROPERTIES ('owner-team' = 'db')"
    )
    try:
        for _ in range(2):
            sql(f"ALTER TABLE changed {statement}")
            assert ("Comment", "about it", "") in sql("DESCRIBE EXTENDED changed")
            assert "COMMENT 'about it'" in sql("SHOW CREATE TABLE changed")[0][0]
            assert "comment" not in dict(sql("SHOW TBLPROPERTIES changed"))
    finally:
        sql("DROP TABLE changed")


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="the catalog of Spark 4.0 changes all comments")
def test_comments_of_columns_need_partition_columns_that_come_last(sql: Callable[..., Any]) -> None:
    sql("CREATE TABLE commented (day DATE COMMENT 'kept', id INT) USING indextables PARTITIONED BY (day)")
    try:
        with pytest.raises(
            AnalysisException, match="partition columns come last; this one is partitioned by day"
        ):
            sql("ALTER TABLE commented ALTER COLUMN id COMMENT 'new'")
        assert ("day", "date", "kept") in sql("DESCRIBE commented")
        sql("COMMENT ON TABLE commented IS 'new'")
        assert ("Comment", "new", "") in sql("DESCRIBE EXTENDED commented")
    finally:
        sql("DROP TABLE commented")


def test_show_partitions_and_drop_partition(sql: Callable[..., Any]) -> None:
    sql("CREATE TABLE parted (id INT, day DATE, n INT) USING indextables PARTITIONED BY (day, n)")
    try:
        assert sql("SHOW PARTITIONS parted") == []
        sql("INSERT INTO parted VALUES (1, DATE '2024-01-02', 10), (2, DATE '2024-01-02', 9), (3, NULL, 9)")
        sql("INSERT INTO parted VALUES (4, DATE '2024-01-02', 10)")
        assert sorted(sql("SHOW PARTITIONS parted")) == [
            ("day=2024-01-02/n=10",),
            ("day=2024-01-02/n=9",),
            ("day=null/n=9",),
        ]
        assert sql("SHOW PARTITIONS parted PARTITION (n = 10)") == [("day=2024-01-02/n=10",)]
        sql("ALTER TABLE parted DROP PARTITION (day = DATE '2024-01-02', n = 9)")
        assert sorted(sql("SELECT id FROM parted")) == [(1,), (3,), (4,)]
        with pytest.raises(AnalysisException, match="write rows instead of ADD PARTITION"):
            sql("ALTER TABLE parted ADD PARTITION (day = DATE '2025-01-01', n = 1)")
        with pytest.raises(AnalysisException):
            sql("ALTER TABLE parted DROP PARTITION (day = DATE '2031-01-01', n = 9)")
    finally:
        sql("DROP TABLE parted")


def test_analyze_table_has_nothing_to_do_and_checks_names(sql: Callable[..., Any], table: str) -> None:
    assert sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS") == []
    assert sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS FOR COLUMNS id, day") == []
    assert sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS FOR ALL COLUMNS") == []
    with pytest.raises(AnalysisException, match="no column 'nope'"):
        sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS FOR COLUMNS nope")


def test_statements_of_delta_work_on_tables_of_indextables(sql: Callable[..., Any]) -> None:
    sql("CREATE TABLE like_delta (id INT, day STRING) USING indextables PARTITIONED BY (day)")
    try:
        for number in range(3):
            sql(f"INSERT INTO like_delta VALUES ({number}, 'a')")
        path = sql("DESCRIBE EXTENDED like_delta")
        path = next(row[1] for row in path if row[0] == "Location")
        versions = [row[0] for row in sql("DESCRIBE HISTORY like_delta LIMIT 2")]
        assert versions == [3, 2]
        assert [row[0] for row in sql(f"DESC HISTORY indextables.`{path}`")] == [3, 2, 1, 0]
        assert sql("OPTIMIZE like_delta WHERE day = 'a'")[0][1]["merged_files"] == 3
        assert sql(f"OPTIMIZE '{path}'")[0][1]["status"] == "no_action"
        sql("RESTORE TABLE like_delta TO VERSION AS OF 1")
        assert sql("SELECT id FROM like_delta") == [(0,)]
        sql("RESTORE default.like_delta TO VERSION AS OF 2")
        assert sql("VACUUM like_delta RETAIN 200 HOURS DRY RUN")[0][1]["retention_hours"] == 200
        with pytest.raises(ParseException, match="leave ZORDER BY out"):
            sql("OPTIMIZE like_delta ZORDER BY (id)")
        with pytest.raises(AnalysisException, match="below the minimum"):
            sql("VACUUM like_delta RETAIN 0 HOURS")
    finally:
        sql("DROP TABLE like_delta")


@pytest.mark.parametrize(
    "statement", ["OPTIMIZE other", "VACUUM other", "RESTORE TABLE other TO VERSION AS OF 0"]
)
def test_statements_of_delta_on_other_tables_are_left_to_others(
    sql: Callable[..., Any], statement: str
) -> None:
    sql("CREATE TABLE other (id INT) USING parquet")
    try:
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            sql(statement)
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            sql(statement.replace("other", "'/no/such/path'"))
    finally:
        sql("DROP TABLE other")


def test_a_table_that_cannot_be_read_is_named_instead_of_a_syntax_error(
    sql: Callable[..., Any], tmp_path: Path
) -> None:
    indextables.write(tmp_path / "t", [{"id": 1}])
    for version in (tmp_path / "t" / "_transaction_log").glob("*.json"):
        version.write_bytes(b"no log")
    with pytest.raises(ParseException) as caught:
        sql(f"OPTIMIZE '{tmp_path}/t'")
    assert "_transaction_log" in str(caught.value)
    assert "syntax error" not in str(caught.value).lower()


@pytest.mark.parametrize(
    "layout", ["CLUSTERED BY (a) INTO 2 BUCKETS", "CLUSTER BY (a)", "PARTITIONED BY (bucket(2, a))"]
)
@pytest.mark.parametrize("rows", ["", "AS SELECT 1 AS a, 2 AS b"])
def test_a_layout_that_tables_do_not_have_is_refused_when_a_table_is_created(
    sql: Callable[..., Any], layout: str, rows: str
) -> None:
    columns = "" if rows else "(a INT, b INT)"
    for create in ("CREATE", "CREATE OR REPLACE"):
        with pytest.raises(AnalysisException, match="has neither buckets nor clusters"):
            sql(f"{create} TABLE laid_out {columns} USING indextables {layout} {rows}")
    assert sql("SHOW TABLES LIKE 'laid_out'") == []
