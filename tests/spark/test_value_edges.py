"""Values at the edge of their types, written and aggregated."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        ("s", "CAST(X'61FF' AS STRING)"),
        ("tags", "array('a', CAST(X'FF' AS STRING))"),
        ("spot", "named_struct('a', CAST(X'EDA080' AS STRING))"),
    ],
)
def test_a_text_that_is_not_utf8_is_refused_with_the_name_of_its_column(
    spark: SparkSession, tmp_path: Path, column: str, expression: str
) -> None:
    data = spark.sql(f"SELECT id, {expression} AS {column} FROM range(3)").coalesce(1)
    path = str(tmp_path / "table")
    with pytest.raises(PySparkException) as caught:
        data.write.format("indextables").save(path)
    said = str(caught.value)
    assert f"column {column} holds a text that is not valid UTF-8" in said
    assert "Traceback" not in said
    valid = data.selectExpr("id", f"CAST(NULL AS {dict(data.dtypes)[column]}) AS {column}")
    valid.write.format("indextables").save(path)
    assert spark.read.format("indextables").load(path).count() == 3


@pytest.mark.parametrize("kind", ["decimal(28,28)", "decimal(28,0)", "decimal(20,10)"])
@pytest.mark.parametrize("inline", ["0", "4096"])
def test_sums_and_averages_of_wide_decimals_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, kind: str, inline: str
) -> None:
    scale = int(kind.split(",")[1].rstrip(")"))
    digits = "0." + "7" * scale if scale else "7" * int(kind[8:10])
    rows = spark.sql(
        f"SELECT id, CAST(IF(id % 3 = 0, NULL, '{digits}') AS {kind}) AS x, id % 2 AS g FROM range(12)"
    ).coalesce(1)
    path = str(tmp_path / "table")
    rows.write.format("indextables").save(path)
    spark.conf.set("spark.indextables.read.inline.maxRows", inline)
    try:
        for aggregate in ("avg(x)", "min(x)", "max(x)", "count(x)", "sum(x)"):
            expected = rows.selectExpr(aggregate).collect()
            assert spark.read.format("indextables").load(path).selectExpr(aggregate).collect() == expected
    finally:
        spark.conf.unset("spark.indextables.read.inline.maxRows")
