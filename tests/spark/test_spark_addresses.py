"""Columns of addresses compare as addresses in Spark, wherever a comparison stands."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import indextables
from tests.read.test_addresses import VALUES


@pytest.fixture(scope="module")
def hosts(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("hosts") / "t")
    rows = spark.createDataFrame(list(enumerate(VALUES, start=1)), "id INT, ip STRING")
    rows.write.format("indextables").option("indexing.typemap.ip", "ip").save(path)
    spark.read.format("indextables").load(path).createOrReplaceTempView("hosts")
    return path


def ids(spark, query):
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
def test_a_comparison_is_one_of_addresses(spark, hosts, condition, expected):
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
def test_it_is_one_wherever_it_stands(spark, hosts, query, expected):
    assert ids(spark, query) == expected


def test_data_frames_views_and_named_tables(spark, hosts):
    frame = spark.read.format("indextables").load(hosts)
    assert frame.where(F.col("ip").between("10.0.0.2", "10.0.0.30")).count() == 1
    spark.sql(f"CREATE TABLE named_hosts USING indextables LOCATION '{hosts}'")
    spark.sql("CREATE VIEW viewed_hosts AS SELECT id, ip FROM named_hosts")
    try:
        assert ids(spark, "SELECT id FROM viewed_hosts WHERE ip = '10.0.0.0/28'") == [1, 2]
    finally:
        spark.sql("DROP VIEW viewed_hosts")
        spark.sql("DROP TABLE named_hosts")


def test_an_order_without_an_address_is_refused(spark, hosts):
    with pytest.raises(AnalysisException, match="'ip' is a column of addresses, and 'abc' is neither"):
        spark.sql("SELECT id FROM hosts WHERE ip < 'abc'")


def test_a_comparison_that_no_index_can_answer_is_refused(spark, hosts):
    both = "SELECT ip FROM hosts UNION ALL SELECT string(id) FROM range(3)"
    with pytest.raises(AnalysisException, match="cannot be answered here"):
        spark.sql(f"SELECT * FROM ({both}) WHERE ip = '10.0.0.0/24'").collect()


def test_rows_copied_elsewhere_are_compared_as_texts(spark, hosts, tmp_path):
    spark.table("hosts").write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).where("ip = '10.0.0.0/24'").count() == 0


def test_addresses_choose_no_rows_to_delete(spark, hosts):
    with pytest.raises(AnalysisException):
        spark.sql(f"DELETE FROM indextables.`{hosts}` WHERE ip = '10.0.0.0/24'")
    assert spark.read.format("indextables").load(hosts).count() == len(VALUES)


ORIGINAL = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.3/ip"


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not here")
def test_addresses_of_a_table_of_the_original_compare_as_addresses(spark):
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
