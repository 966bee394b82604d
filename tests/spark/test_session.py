"""Getting into a session."""

import pyarrow as pa

import indextables


def test_a_table_written_without_spark_is_read_by_its_path(spark, tmp_path):
    indextables.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "message": ["a b", "c", None]}))
    rows = spark.read.format("indextables").load(str(tmp_path / "t")).select("message", "id").collect()
    assert sorted(tuple(row) for row in rows if row[0]) == [("a b", 1), ("c", 2)]
    assert len(rows) == 3
