"""Columns of addresses compare as addresses in Spark, wherever a comparison stands."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import indextables
from tests.read.test_addresses import VALUES


@pytest.fixture(scope="module")
def hosts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("hosts") / "t")
    rows = spark.createDataFrame(list(enumerate(VALUES, start=1)), "id INT, ip STRING")
    rows.write.format("indextables").option("indexing.typemap.ip", "ip").save(path)
    spark.read.format("indextables").load(path).createOrReplaceTempView("hosts")
    return path


def ids(spark: SparkSession, query: str) -> list[Any]:
    return sorted(row[0] for row in spark.sql(query).collect())


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("ip = '10.0.0.0/24'", [1, 2, 3]),
        ("ip <> '10.0.0.0/24'", [4, 5, 7, 8]),
        ("ip BETWEEN '10.0.0.2' AND '10.0.0.30'", [2]),
        ("ip < '10.0.0.30'", [1, 2]),
        ("concat('10.0.0', '.30') > ip", [1, 2]),
        ("ip IN ('10.0.0.0/29', '-')", [1, 7]),
        ("ip NOT IN ('10.0.0.0/29', '-')", [2, 3, 4, 5, 8]),
        ("ip NOT IN ('10.0.0.0/29', NULL)", []),
        ("ip = '2001:db8::1'", [5]),
        ("ip <=> '10.0.0.9'", [2]),
        ("ip = '-' OR length(ip) = 10", [3, 7]),
        # Spark evaluates the other part itself.
        ("ip = '10.0.0.0/24' OR length(ip) = 1", [1, 2, 3, 7]),
        ("(ip = '10.0.0.0/24') IS NULL", [6]),
        ("ip LIKE '10.%'", [1, 2, 3]),
        ("id = 4 AND ip > '10.0.0.200'", [4]),
    ],
)
def test_a_comparison_is_one_of_addresses(
    spark: SparkSession, hosts: str, condition: str, expected: Any
) -> None:
    assert ids(spark, f"SELECT id FROM hosts WHERE {condition}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM (SELECT id, ip AS host FROM hosts) WHERE host = '10.0.0.0/24'", [1, 2, 3]),
        ("WITH h AS (SELECT * FROM hosts WHERE id < 3) SELECT id FROM h WHERE ip > '10.0.0.1'", [2]),
        ("SELECT a.id FROM hosts a JOIN hosts b ON a.id = b.id AND b.ip = '10.0.0.0/28'", [1, 2]),
        ("SELECT id FROM hosts WHERE id IN (SELECT id FROM hosts WHERE ip = '192.168.0.0/16')", [4]),
        ("SELECT count_if(ip = '10.0.0.0/24') FROM hosts", [3]),
        ("SELECT sum(CASE WHEN ip < '10.0.0.30' THEN 1 ELSE 0 END) FROM hosts", [2]),
        (
            "SELECT id FROM (SELECT * FROM hosts UNION ALL SELECT * FROM hosts) WHERE ip = '10.0.0.0/28'",
            [1, 1, 2, 2],
        ),
    ],
)
def test_it_is_one_wherever_it_stands(
    spark: SparkSession, hosts: str, query: str, expected: list[int]
) -> None:
    assert ids(spark, query) == expected


# With an order of texts, each of these has another answer: '10.0.0.200' is before '10.0.0.30', and so on.
FORMS = [
    "WITH h AS (SELECT * FROM hosts) SELECT id FROM h WHERE {}",
    "WITH h AS (SELECT id, ip AS ip FROM hosts), g AS (SELECT * FROM h) SELECT id FROM g WHERE {}",
    "WITH h AS (SELECT * FROM hosts) SELECT a.id FROM h a JOIN h b USING (id) WHERE id IN (SELECT id FROM h WHERE {})",
    "SELECT id FROM hosts o WHERE EXISTS (SELECT 1 FROM range(1) WHERE o.{})",
    "SELECT id FROM hosts o WHERE NOT EXISTS (SELECT 1 FROM range(1) WHERE coalesce(NOT o.{}, true))",
    "SELECT id FROM hosts o, LATERAL (SELECT 1 AS one WHERE o.{})",
    "WITH h AS (SELECT * FROM hosts) SELECT id FROM h o WHERE EXISTS (SELECT 1 FROM range(1) WHERE o.{})",
]
CONDITIONS = {
    "ip = '10.0.0.0/24'": "10.0.0.0/24",
    "ip < '10.0.0.30'": "[* TO 10.0.0.30}",
    "ip BETWEEN '10.0.0.2' AND '10.0.0.210'": "[10.0.0.2 TO 10.0.0.210]",
    "ip IN ('10.0.0.0/28', '192.168.0.0/16')": "IN [10.0.0.0/28 192.168.0.0/16]",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_it_finds_the_rows_of_the_search_in_subqueries_and_common_table_expressions(
    spark: SparkSession, hosts: str, form: str, condition: str
) -> None:
    query = f"SELECT id FROM hosts WHERE ip INDEXQUERY '{CONDITIONS[condition]}'"
    expected = ids(spark, query)
    assert expected
    assert ids(spark, form.format(condition)) == expected


def test_its_negation_finds_all_other_addresses_in_a_common_table_expression(
    spark: SparkSession, hosts: str
) -> None:
    for condition in ("ip <> '10.0.0.0/24'", "NOT ip = '10.0.0.0/24'", "ip NOT IN ('10.0.0.0/24')"):
        query = f"WITH h AS (SELECT * FROM hosts) SELECT id FROM h WHERE {condition}"
        assert ids(spark, query) == [4, 5, 7, 8]


def test_a_list_of_addresses_and_columns(spark: SparkSession, hosts: str) -> None:
    query = "SELECT id FROM hosts WHERE ip IN ('10.0.0.0/28', concat(substr(ip, 1, 4), '168.1.1'))"
    assert ids(spark, query) == [1, 2, 4]


@pytest.mark.parametrize("by", ["name", "path"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("ip = '10.0.0.0/24'", [1, 2, 3]), ("ip < '10.0.0.30'", [1, 2]), ("ip <> '10.0.0.0/24'", [4, 5, 7, 8])],
)
def test_streams_compare_addresses(
    spark: SparkSession, hosts: str, tmp_path: Path, by: str, condition: str, expected: list[int]
) -> None:
    spark.sql(f"CREATE TABLE streamed_hosts USING indextables LOCATION '{hosts}'")
    try:
        reader = spark.readStream
        rows = reader.table("streamed_hosts") if by == "name" else reader.format("indextables").load(hosts)
        writer = rows.where(condition).writeStream.format("memory").queryName("found_hosts")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        assert ids(spark, "SELECT id FROM found_hosts") == expected
    finally:
        spark.sql("DROP TABLE streamed_hosts")


RECURSIVE = """
WITH RECURSIVE r AS (SELECT ip, 1 AS n FROM hosts UNION ALL SELECT ip, n + 1 FROM r WHERE n < 2)
"""


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT ip FROM hosts a FULL JOIN hosts b USING (ip) WHERE ip = '10.0.0.0/24'",
            "ip = '10.0.0.0/24' compares addresses by the index, and cannot be answered here",
        ),
        ("SELECT id FROM hosts WHERE ip = (SELECT '10.0.0.0/24')", "write the address as a constant"),
        ("SELECT id FROM hosts WHERE ip < (SELECT max(ip) FROM hosts)", "write the address as a constant"),
        ("SELECT id FROM hosts WHERE coalesce(ip, '') = '10.0.0.0/24'", "compare the column itself"),
        ("SELECT 1 WHERE (SELECT ip FROM hosts WHERE id = 1) = '10.0.0.0/24'", "compare the column itself"),
        (
            "SELECT * FROM (SELECT '-' AS ip UNION ALL SELECT ip FROM hosts) WHERE ip = '10.0.0.0/24'",
            "cannot be answered here",
        ),
        (f"{RECURSIVE} SELECT * FROM r WHERE ip = '10.0.0.0/24'", "cannot be answered here"),
    ],
)
def test_values_that_are_no_column_are_never_compared_as_texts_in_silence(
    spark: SparkSession, hosts: str, query: str, message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(query).collect()
    assert message in str(caught.value)
    assert "INDEXQUERY" not in str(caught.value)


def test_the_result_of_an_aggregate_is_compared_as_a_text(spark: SparkSession, hosts: str) -> None:
    assert spark.sql("SELECT 1 WHERE (SELECT min_by(ip, id) FROM hosts) = '10.0.0.1'").count() == 1


def test_data_frames_views_and_named_tables(spark: SparkSession, hosts: str) -> None:
    frame = spark.read.format("indextables").load(hosts)
    assert frame.where(F.col("ip").between("10.0.0.2", "10.0.0.30")).count() == 1
    spark.sql(f"CREATE TABLE named_hosts USING indextables LOCATION '{hosts}'")
    spark.sql("CREATE VIEW viewed_hosts AS SELECT id, ip FROM named_hosts")
    try:
        assert ids(spark, "SELECT id FROM viewed_hosts WHERE ip = '10.0.0.0/28'") == [1, 2]
    finally:
        spark.sql("DROP VIEW viewed_hosts")
        spark.sql("DROP TABLE named_hosts")


def test_an_order_without_an_address_is_refused(spark: SparkSession, hosts: str) -> None:
    with pytest.raises(AnalysisException, match="'ip' is a column of addresses, and 'abc' is neither"):
        spark.sql("SELECT id FROM hosts WHERE ip < 'abc'")


def test_a_comparison_that_no_index_can_answer_is_refused(spark: SparkSession, hosts: str) -> None:
    both = "SELECT ip FROM hosts UNION ALL SELECT string(id) FROM range(3)"
    with pytest.raises(AnalysisException, match="cannot be answered here"):
        spark.sql(f"SELECT * FROM ({both}) WHERE ip = '10.0.0.0/24'").collect()


def test_rows_copied_elsewhere_are_compared_as_texts(spark: SparkSession, hosts: str, tmp_path: Path) -> None:
    spark.table("hosts").write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).where("ip = '10.0.0.0/24'").count() == 0


def test_addresses_choose_no_rows_to_delete(spark: SparkSession, hosts: str) -> None:
    with pytest.raises(AnalysisException):
        spark.sql(f"DELETE FROM indextables.`{hosts}` WHERE ip = '10.0.0.0/24'")
    assert spark.read.format("indextables").load(hosts).count() == len(VALUES)


ORIGINAL = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.3/ip"


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not here")
def test_addresses_of_a_table_of_the_original_compare_as_addresses(spark: SparkSession) -> None:
    path = str(ORIGINAL.resolve())
    frame, table = spark.read.format("indextables").load(path), indextables.open(path)
    for condition, expected in (
        ("v4 = '10.0.1.0/24'", 10),
        ("v4 <> '10.0.1.0/24'", 30),
        ("v6 = '2001:db8::/32'", 50),
        ("v4 BETWEEN '10.0.0.0' AND '10.0.1.255'", 20),
    ):
        assert frame.where(condition).count() == table.count(condition) == expected
    with pytest.raises(AnalysisException, match="'banana' is neither an IP address nor a block"):
        frame.where("v4 < 'banana'").count()
