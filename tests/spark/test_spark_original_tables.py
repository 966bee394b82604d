"""Tables that the original wrote, read in Spark: as many rows for every condition as Spark finds in the data."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

ORIGINAL = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.3"
CONDITIONS = json.loads((ORIGINAL / "conditions.json").read_text()) if ORIGINAL.exists() else {}
AT_ONCE = 32

pytestmark = pytest.mark.skipif(not CONDITIONS, reason="the original's tables are not here")


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_conditions_find_as_many_rows_as_in_the_data(spark: SparkSession, name: Any, every: int) -> None:
    """One in five of the conditions; all of them in long runs, since each is a scan of its own."""
    spark.read.format("indextables").load(str((ORIGINAL / name).resolve())).createOrReplaceTempView(
        "original"
    )
    asked = list(CONDITIONS[name])[::every]
    found = {}
    for start in range(0, len(asked), AT_ONCE):
        counts = [
            f"SELECT {start + n} AS n, count(*) AS found FROM original WHERE {where}"
            for n, where in enumerate(asked[start : start + AT_ONCE])
        ]
        found.update({asked[row.n]: row.found for row in spark.sql(" UNION ALL ".join(counts)).collect()})
    assert found == {where: CONDITIONS[name][where] for where in asked}


def test_an_option_of_one_read_or_write_is_refused_where_it_has_no_effect(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "t")
    spark.range(3).write.format("indextables").save(table)
    with pytest.raises(Exception, match="'replacewhere' belongs to writes"):
        spark.read.format("indextables").option("replaceWhere", "id = 1").load(table).collect()
    with pytest.raises(Exception, match=r"'prewarm\.segments' belongs to commands"):
        spark.range(3).write.format("indextables").option("prewarm.segments", "X").mode("append").save(table)
    # What a session sets is for all of its reads and writes.
    spark.conf.set("spark.indextables.checkpoint.interval", "7")
    spark.conf.set("spark.indextables.mergeOnWrite.enabled", "false")
    try:
        assert spark.read.format("indextables").load(table).count() == 3
    finally:
        spark.conf.unset("spark.indextables.checkpoint.interval")
        spark.conf.unset("spark.indextables.mergeOnWrite.enabled")
