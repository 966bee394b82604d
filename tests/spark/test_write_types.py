"""Every type of Spark: written through Spark, read through Spark, equal; and in plain Python what is stored."""

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import indextables

_numbers = itertools.count()


def saved(frame: DataFrame, folder: Path, **options: Any) -> str:
    path = str(folder / f"t{next(_numbers)}")
    frame.write.format("indextables").options(**options).save(path)
    return path


def loaded(spark: SparkSession, path: str, *, tasks: bool = True) -> DataFrame:
    options = {"read.inline.maxRows": "0"} if tasks else {}
    return spark.read.format("indextables").options(**options).load(path)


def texts(frame: DataFrame) -> list[Any]:
    """Rows as Spark writes them: PySpark has no values for intervals of months."""
    return sorted(
        row[0] for row in frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
    )


def same(
    spark: SparkSession, frame: DataFrame, folder: Path, by: Callable[..., Any] = texts, **options: Any
) -> str:
    path = saved(frame, folder, **options)
    for tasks in (True, False):
        back = loaded(spark, path, tasks=tasks)
        assert [f.dataType for f in back.schema] == [f.dataType for f in frame.schema]
        assert by(back) == by(frame)
    return path


def shown(frame: Any) -> list[Any]:
    """Each column of each row as text; as JSON Spark writes no TIME, for one."""
    rows = frame.selectExpr(*(f"cast({name} AS string) AS {name}" for name in frame.columns)).collect()
    return sorted((row.asDict() for row in rows), key=str)


TYPES = {
    "tinyint": ["-128", "127"],
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "float": ["'NaN'", "'-Infinity'", "'1.17549435E-38'", "'-0.0'"],
    "double": ["'NaN'", "'Infinity'", "'4.9E-324'", "'-0.0'"],
    "boolean": ["true", "false"],
    "decimal(1,0)": ["9", "-9"],
    "decimal(18,6)": ["'123456789012.654321'"],
    "decimal(38,18)": ["'12345678901234567890.123456789012345678'", "'-0.000000000000000001'"],
    "decimal(38,0)": ["'99999999999999999999999999999999999999'"],
    "string": ["''", "'ä\\u0000\\n'", "repeat('x', 70000)"],
    "binary": ["X''", "X'00FF'"],
    "date": ["'0001-01-01'", "'9999-12-31'", "'1582-10-14'"],
    "timestamp": ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'"],
    "timestamp_ntz": ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'"],
    "interval year to month": ["'-1-11'", "'178956970-7'"],
    "interval year": ["'3'"],
    "interval month": ["'5'"],
    "interval day to second": ["'1 02:03:04.500001'", "'-106751991 04:00:54.775808'"],
    "interval day": ["'3'"],
    "interval hour to minute": ["'7:30'"],
    "interval second": ["'59.999999'"],
    "time(6)": ["'23:59:59.999999'", "'00:00:00'"],
    "time(0)": ["'12:00:00'"],
}


@pytest.fixture(scope="module", autouse=True)
def times(spark: SparkSession) -> Iterator[None]:
    """Spark's type TIME, which is off by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


def test_every_type_comes_back_alone_and_within_others(spark: SparkSession, tmp_path: Path) -> None:
    columns = []
    for number, (name, values) in enumerate(TYPES.items()):
        cast = ", ".join(f"cast({value} AS {name})" for value in values)
        columns.append(f"get(array({cast}), cast(id AS int)) AS v{number}")
    alone = spark.sql(f"SELECT id, {', '.join(columns)} FROM range(0, 5, 1, 1)")
    places = range(len(TYPES))
    within = [f"array(v{n}, NULL) AS a{n}" for n in places]
    within += [f"named_struct('x', v{n}, 'y', array(named_struct('z', v{n}))) AS s{n}" for n in places]
    within += [f"map('k', v{n}) AS m{n}" for n in places]
    same(spark, alone.selectExpr("*", *within), tmp_path, by=shown)


def test_intervals_are_keys_of_maps_and_columns_that_conditions_and_orders_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT id, make_ym_interval(0, cast(id AS int)) AS ym, make_dt_interval(cast(id AS int)) AS dt,"
        " map(make_ym_interval(0, cast(id AS int)), id) AS m FROM range(30)"
    )
    path = same(spark, frame, tmp_path)
    frame.createOrReplaceTempView("intervals_plain")
    loaded(spark, path).createOrReplaceTempView("intervals_ours")
    for question in (
        "SELECT id FROM {t} WHERE ym >= INTERVAL '2-1' YEAR TO MONTH ORDER BY id",
        "SELECT id FROM {t} WHERE ym = INTERVAL '7' MONTH OR ym IN (INTERVAL '1' YEAR) ORDER BY id",
        "SELECT id FROM {t} WHERE dt < INTERVAL '3' DAY AND ym IS NOT NULL ORDER BY id",
        "SELECT string(max(ym)), string(min(ym)), string(max(dt)), string(sum(ym)), count(DISTINCT ym) FROM {t}",
        "SELECT string(ym), count(*) FROM {t} GROUP BY ym ORDER BY ym DESC LIMIT 3",
        "SELECT id FROM {t} ORDER BY ym DESC, id LIMIT 4",
    ):
        ours, plain = (
            spark.sql(question.format(t=t)).collect() for t in ("intervals_ours", "intervals_plain")
        )
        assert ours == plain, question


def test_plain_python_reads_months_as_integers_and_other_intervals_as_durations(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT INTERVAL '1-2' YEAR TO MONTH AS ym, INTERVAL '1 02' DAY TO HOUR AS dt")
    table = indextables.open(saved(frame, tmp_path))
    assert table.scan().to_pylist() == [{"ym": 14, "dt": dt.timedelta(days=1, hours=2)}]
    assert table.schema.field("ym").type == pa.int32()


def test_an_interval_partitions_a_table(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, make_ym_interval(0, cast(id % 3 AS int)) AS ym FROM range(6)")
    path = str(tmp_path / "t")
    frame.write.format("indextables").partitionBy("ym").save(path)
    assert texts(loaded(spark, path).select("id", "ym")) == texts(frame)


def test_what_is_never_null_stays_so_below_what_is(spark: SparkSession, tmp_path: Path) -> None:
    point = StructType([StructField("x", IntegerType(), False), StructField("t", StringType(), False)])
    schema = StructType(
        [
            StructField("id", LongType()),
            StructField("s", point),
            StructField("deep", StructType([StructField("p", point, False)])),
            StructField("many", ArrayType(point)),
            StructField("strict", ArrayType(point, containsNull=False)),
            StructField("numbers", ArrayType(IntegerType(), containsNull=False)),
            StructField("named", MapType(StringType(), point, valueContainsNull=True)),
            StructField("counts", MapType(StringType(), LongType(), valueContainsNull=False)),
        ]
    )
    rows = [
        (
            1,
            (1, "a"),
            ((2, "b"),),
            [(3, "c"), None],
            [(4, "d")],
            [5, 6],
            {"k": (7, "e"), "n": None},
            {"q": 8},
        ),
        (2, None, None, None, None, None, None, None),
        (3, (9, ""), ((10, ""),), [], [], [], {}, {}),
    ]
    frame = spark.createDataFrame(rows, schema)
    path = same(spark, frame, tmp_path)
    for _ in range(2):
        frame.write.format("indextables").mode("append").save(path)
    spark.sql(f"MERGE SPLITS '{path}'").collect()
    assert texts(loaded(spark, path)) == sorted(texts(frame) * 3)
    assert loaded(spark, path).where("s.x = 1").count() == 3
    assert loaded(spark, path).where("s IS NULL").count() == 3


def test_variants_come_back(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        """SELECT parse_json('{"a": [1, "x", null], "b": 1.5}') AS v, array(parse_json('2')) AS a
        UNION ALL SELECT NULL, NULL"""
    )
    same(spark, frame, tmp_path)


def test_char_and_varchar_are_kept_by_a_table(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE padded (c CHAR(3), v VARCHAR(4)) USING indextables LOCATION '{tmp_path}/t'")
    try:
        spark.sql("INSERT INTO padded VALUES ('a', 'bcde'), (NULL, NULL)")
        assert {tuple(row) for row in spark.table("padded").collect()} == {("a  ", "bcde"), (None, None)}
        with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
            spark.sql("INSERT INTO padded VALUES ('abcd', 'x')")
    finally:
        spark.sql("DROP TABLE padded")


def test_a_column_of_nothing_but_nulls_needs_no_type(spark: SparkSession, tmp_path: Path) -> None:
    same(spark, spark.sql("SELECT id, NULL AS n, array() AS a FROM range(3)"), tmp_path)


def test_collated_strings_come_back(spark: SparkSession, tmp_path: Path) -> None:
    same(spark, spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS c, array('b' COLLATE UNICODE_CI) AS a"), tmp_path)
