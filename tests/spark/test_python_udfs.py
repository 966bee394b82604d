"""Python functions of users directly above a scan: every kind, several batches, early stops, no memory left behind."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it
from pyspark.sql.functions import arrow_udf, arrow_udtf, pandas_udf, udf, udtf  # type: ignore[attr-defined]
from pyspark.sql.types import LongType, StringType, StructType

import indextables

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

# Workers do not find the modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 150_000  # three batches of a split


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Views: `many` is read by a task in several batches, `few` is answered by the planner; `plain` has the rows of `many`."""
    folder = tmp_path_factory.mktemp("udfs")
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "word": [f"w{i}" for i in range(ROWS)],
            "group": pa.array([i % 7 for i in range(ROWS)], pa.int32()),
        }
    )
    indextables.write(str(folder / "many"), rows)
    indextables.write(str(folder / "few"), rows.slice(0, 3))
    for name in ("many", "few"):
        spark.read.format("indextables").load(str(folder / name)).createOrReplaceTempView(f"udf_{name}")
    return {"many": spark.table("udf_many"), "few": spark.table("udf_few")}


def _same(value: Any) -> Any:
    return value


def _pandas(values: pd.Series) -> pd.Series:
    return values


def _pandas_iterator(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from batches


def _arrow(values: pa.Array) -> pa.Array:
    return values


def _arrow_iterator(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    yield from batches


def _pandas_total(values: pd.Series) -> float:
    return float(values.sum())


def _arrow_total(values: pa.Array) -> int:
    result: int = pc.sum(values).as_py()
    return result


def _upper(words: pd.Series) -> pd.Series:
    return words.str.upper()


KINDS = ("pickled", "arrow-optimized", "pandas", "pandas-iterator", "arrow", "arrow-iterator")


@pytest.fixture(scope="module")
def scalar(spark: SparkSession) -> dict[Any, Any]:
    """A function of every kind that returns what it gets."""
    del spark  # functions are made in a session
    return {
        "pickled": udf(_same, "long", useArrow=False),
        "arrow-optimized": udf(_same, "long", useArrow=True),
        "pandas": pandas_udf(_pandas, "long"),
        "pandas-iterator": pandas_udf(_pandas_iterator, "long"),
        "arrow": arrow_udf(_arrow, "long"),
        "arrow-iterator": arrow_udf(_arrow_iterator, "long"),
    }


@pytest.fixture(params=KINDS)
def same(request: pytest.FixtureRequest, scalar: dict[Any, Any]) -> Any:
    return scalar[request.param]


def test_a_scalar_udf_over_several_batches_sees_every_row_once(tables: dict[Any, Any], same: Any) -> None:
    found = tables["many"].select(same("id").alias("made"), "id", "word").toArrow()
    assert found.num_rows == ROWS
    assert found["made"].equals(found["id"])
    assert pc.all(
        pc.equal(pc.binary_join_element_wise("w", found["id"].cast("string"), ""), found["word"])
    ).as_py()
    assert pc.count_distinct(found["id"]).as_py() == ROWS


def test_a_condition_with_a_udf_and_a_limit_returns_rows_that_meet_it(
    tables: dict[Any, Any], same: Any
) -> None:
    found = tables["many"].where(same("id") < 30_000).limit(25_000).select("id", "word").toArrow()
    ids = found["id"].to_pylist()
    assert len(set(ids)) == 25_000
    assert max(ids) < 30_000
    assert found["word"].to_pylist() == [f"w{i}" for i in ids]


def test_a_udf_over_an_answer_of_the_planner_sees_its_rows(tables: dict[Any, Any], same: Any) -> None:
    assert sorted(tuple(row) for row in tables["few"].select(same("id"), "word").collect()) == [
        (0, "w0"),
        (1, "w1"),
        (2, "w2"),
    ]


def test_two_udfs_of_different_kinds_above_each_other_keep_their_rows(
    tables: dict[Any, Any], scalar: dict[Any, Any]
) -> None:
    upper = pandas_udf(_upper, "string")
    data = tables["many"].select("id", upper("word").alias("word"))
    found = data.where(scalar["pickled"]("id") % 50_000 == 7).collect()
    assert sorted(tuple(row) for row in found) == [(7, "W7"), (50_007, "W50007"), (100_007, "W100007")]


def test_an_aggregate_udf_over_a_scan_equals_the_function_of_spark(tables: dict[Any, Any]) -> None:
    total = pandas_udf(_pandas_total, "double")
    arrow_total = arrow_udf(_arrow_total, "long")
    groups = tables["many"].groupBy("group")
    found = sorted(tuple(row) for row in groups.agg(total("id")).collect())
    assert found == sorted(tuple(row) for row in groups.agg(F.sum("id").cast("double")).collect())
    assert len(found) == 7
    assert tables["many"].agg(arrow_total("id")).collect()[0][0] == ROWS * (ROWS - 1) // 2


def test_functions_over_whole_batches_see_every_row(tables: dict[Any, Any]) -> None:
    def doubled(batches: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pc.multiply(batch.column("id"), 2)], names=["id"])

    def doubled_pandas(batches: Any) -> Iterator[Any]:
        for batch in batches:
            yield batch[["id"]] * 2

    expected = ROWS * (ROWS - 1)
    data = tables["many"].select("id", "word")
    assert data.mapInArrow(doubled, "id long").agg(F.sum("id")).collect()[0][0] == expected
    assert data.mapInPandas(doubled_pandas, "id long").agg(F.sum("id")).collect()[0][0] == expected


@udtf(returnType=StructType().add("a", LongType()).add("b", StringType()))  # type: ignore[arg-type]
class Twice:
    """Two rows of one."""

    def eval(self, number: int, word: str) -> Iterator[tuple[int, str]]:
        yield number, word
        yield -number, word


@arrow_udtf(returnType=StructType().add("a", LongType()))  # type: ignore[arg-type]
class Lengths:
    """The lengths of the batches of a table."""

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"a": pa.array([batch.num_rows], pa.int64())})


def test_a_table_function_with_columns_of_a_scan_sees_their_rows(
    spark: SparkSession, tables: dict[Any, Any]
) -> None:
    spark.udtf.register("udf_twice", cast("Any", Twice))
    found = spark.sql(
        "SELECT sum(abs(a)), count(*), count_if(b = concat('w', abs(a))) FROM udf_many, LATERAL udf_twice(id, word)"
    ).collect()[0]
    assert tuple(found) == (ROWS * (ROWS - 1), 2 * ROWS, 2 * ROWS)


def test_a_table_function_over_a_whole_table_sees_every_row(
    spark: SparkSession, tables: dict[Any, Any]
) -> None:
    spark.udtf.register("udf_lengths", cast("Any", Lengths))
    assert spark.sql("SELECT sum(a) FROM udf_lengths(TABLE(udf_many))").collect()[0][0] == ROWS


def test_udfs_and_early_stops_leave_no_arrow_memory_behind(
    spark: SparkSession, tables: dict[Any, Any], scalar: dict[Any, Any]
) -> None:
    memory = spark._jvm.org.apache.spark.sql.execution.python.indextables.ScanMemory.allocator()
    for function in scalar.values():
        tables["many"].where(function("id") >= 0).limit(70_000).count()
        tables["many"].select(function("id")).limit(5).collect()
        tables["few"].select(function("id")).limit(1).collect()
    tables["many"].limit(5).collect()
    tables["many"].where("id >= 5").limit(9_000).collect()
    assert memory.getPeakMemoryAllocation() > 0
    assert memory.getAllocatedMemory() == 0


def test_the_buffer_of_a_query_with_a_limit_is_bounded_in_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads a task with a small limit to its end before it returns rows, but buffers 16 MB at most."""
    rows, size, batch_bytes, buffer_bytes = 1_600, 40_000, 4 << 20, 16 << 20
    text = "x" * size
    for _ in range(2):
        indextables.write(
            str(tmp_path / "wide"), pa.table({"id": range(rows // 2), "text": [text] * (rows // 2)})
        )
    reader = spark.read.format("indextables").option("read.batchBytes", batch_bytes)
    reader = reader.option("read.inline.maxRows", "0").option("read.splitsPerTask", "2")
    found = reader.load(str(tmp_path / "wide")).limit(rows).select("id", "text").toArrow()
    assert found.num_rows == rows
    assert pc.all(pc.equal(found["text"], text)).as_py()
    memory = spark._jvm.org.apache.spark.sql.execution.python.indextables.ScanMemory.allocator()
    # The batch that crosses the bound is buffered too; Arrow rounds the size of a vector up to a power of two.
    assert batch_bytes < memory.getPeakMemoryAllocation() < buffer_bytes + 4 * batch_bytes < rows * size
    assert memory.getAllocatedMemory() == 0


def test_batches_are_freed_where_spark_generates_no_code(
    spark: SparkSession, tables: dict[Any, Any], scalar: dict[Any, Any]
) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        assert (
            tables["many"].selectExpr("sum(id + length(word) * 0)").collect()[0][0] == ROWS * (ROWS - 1) // 2
        )
        assert (
            tables["many"].where(scalar["pandas"]("id") == 140_000).select("word").collect()[0][0]
            == "w140000"
        )
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")
