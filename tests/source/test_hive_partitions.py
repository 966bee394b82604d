"""Partition folders and schemas of Parquet folders, compared with Spark reading the same folders."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from indextables.errors import SourceError, UnsupportedSourceError
from indextables.source import SourceReader, open_source
from indextables.source.partition_values import parse_value
from tests.source.lake import rows_of, spark_schema

# Each list is a partition column of a table of its own: values as folder names write them.
VALUES = {
    "integers": ["1", "007", "-5", "+9"],
    "longs": ["1", "3000000000"],
    "decimals": ["12345678901234567890", "7"],
    "long and decimal": ["3000000000", "123456789012345678901"],
    "exponent": ["1e5", "3"],
    "doubles": ["1.5", "2", ".5", "3."],
    "double and long": ["1.5", "3000000000"],
    "nan": ["NaN", "1.5", "Infinity"],
    "suffix": ["1d", "2.5f"],
    "dates": ["2024-01-02", "2024-1-5"],
    "month": ["2024-02", "2024-03"],
    "date with time": ["2024-01-02 10:00", "2024-01-03"],
    "timestamps": ["2024-01-02 03%3A04%3A05", "2024-01-02 03%3A04%3A05.6"],
    "date and timestamp": ["2024-01-02 03%3A04%3A05", "2024-01-03"],
    "date and number": ["2024-01-02", "5"],
    "text": ["a%2Fb", "100%25", "x=y", "%zz", "né", "a b"],
    "boolean": ["true", "false"],
    "nulls": ["__HIVE_DEFAULT_PARTITION__", "4"],
    "only nulls": ["__HIVE_DEFAULT_PARTITION__"],
    "no date": ["2024-13-01", "2024-02-30"],
    "blank": [" 5", "6"],
}


def write(folder: Path, rows: int = 1, **columns: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": pa.array(range(rows), pa.int64())}), folder / "part-0.parquet")


def answer(spark: SparkSession, folder: Path, **options: str) -> tuple[dict[str, Any], list[Any]]:
    """Schema and rows as Spark reads them; rows as text, which is exact for every type used here."""
    frame = spark.read.options(**options).parquet(str(folder))
    schema = json.loads(frame.schema.json())
    rows = frame.selectExpr(*[f"CAST(`{name}` AS STRING)" for name in frame.columns]).collect()
    return schema, sorted([list(row) for row in rows], key=str)


def ours(folder: Path, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    snapshot = open_source("parquet", str(folder), **options)
    return spark_schema(snapshot), rows_of(snapshot)


def as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.removesuffix("Z").replace("T", " ")
    return json.dumps(value)


@pytest.mark.spark
def test_partition_values_are_typed_as_spark_types_them(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    differing = {}
    for name, values in VALUES.items():
        folder = tmp_path / name.replace(" ", "_")
        for value in values:
            write(folder / f"p={value}")
        schema, rows = answer(spark, folder)
        found_schema, found_rows = ours(folder)
        texts = sorted(([str(row[0]), as_text(row[1])] for row in found_rows), key=str)
        if found_schema != schema:
            differing[name] = (found_schema["fields"][-1]["type"], schema["fields"][-1]["type"])
        elif [[_canonical(v) for v in row] for row in texts] != [
            [_canonical(v) for v in row] for row in rows
        ]:
            differing[name] = (texts, rows)
    assert differing == {}


@pytest.mark.parametrize("text", ["12345678901234567890.123456789012345678", "-" + "9" * 20 + "." + "9" * 18])
def test_a_partition_value_of_a_wide_decimal_is_exact(text: str) -> None:
    found = parse_value(text, pa.decimal128(38, 18), "UTC", "the partition value of p")
    assert str(found.as_py()) == text


def test_a_partition_value_beyond_its_decimal_type_is_refused() -> None:
    with pytest.raises(SourceError, match="p is '100', which is no value of the type"):
        parse_value("100", pa.decimal128(2, 0), "UTC", "p")


def _canonical(text: Any) -> Any:
    """Spark writes fractions of seconds without trailing zeros, and numbers in its own way."""
    if text is None:
        return None
    if len(text) > 19 and text[4] == "-" and "." in text:
        text = text.rstrip("0").rstrip(".")
    try:
        return str(float(text))
    except ValueError:
        return text


@pytest.mark.spark
def test_parquet_types_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Files without Spark's own schema: unsigned integers, fixed binaries, times, nested types."""
    rows = pa.table(
        {
            "u8": pa.array([1, None], pa.uint8()),
            "u16": pa.array([65_535, 1], pa.uint16()),
            "u32": pa.array([4_294_967_295, 1], pa.uint32()),
            "u64": pa.array([18_446_744_073_709_551_615, 1], pa.uint64()),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "ms": pa.array([1, None], pa.timestamp("ms", "UTC")),
            "local": pa.array([1, None], pa.timestamp("us")),
            "large": pa.array(["x", None], pa.large_string()),
            "code": pa.array(["x", "y"]).dictionary_encode(),
            "nested": pa.array(
                [[{"a": 1, "b": [2]}], None],
                pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int8()))])),
            ),
            "pairs": pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float32())),
        }
    )
    pq.write_table(rows, tmp_path / "part-0.parquet")
    schema = json.loads(spark.read.parquet(str(tmp_path)).schema.json())
    assert ours(tmp_path)[0] == schema
    snapshot = open_source("parquet", str(tmp_path))
    frame = spark.read.parquet(str(tmp_path)).selectExpr(
        "u8",
        "u16",
        "u32",
        "CAST(u64 AS STRING) u64",
        "base64(fixed) fixed",
        "CAST(ms AS STRING) ms",
        "large",
        "code",
    )
    found = {tuple(row[:4]): row for row in rows_of(snapshot)}
    for row in frame.collect():
        mine = found[row["u8"], row["u16"], row["u32"], row["u64"]]
        assert mine[4] == row["fixed"]
        assert mine[7:9] == [row["large"], row["code"]]


@pytest.mark.spark
@pytest.mark.parametrize("merge", [True, False])
def test_a_column_that_is_also_a_partition_has_the_partitions_value(
    spark: SparkSession, tmp_path: Path, merge: bool
) -> None:
    write(tmp_path / "p=5", p=pa.array(["file", "file"]), id=pa.array([1, 2], pa.int64()))
    write(tmp_path / "p=6", more=pa.array([True]), id=pa.array([3], pa.int64()), p=pa.array(["file"]))
    schema, rows = answer(spark, tmp_path, mergeSchema=str(merge).lower())
    found_schema, found_rows = ours(tmp_path, merge_schema=merge)
    assert found_schema == schema
    assert sorted(([as_text(v) for v in row] for row in found_rows), key=str) == rows


@pytest.mark.parametrize(
    ("folders", "problem"),
    [
        (["a=1", "b=2"], "different partition columns"),
        (["a=1", "x/a=2"], "at different depths"),
        (["a="], "has no column or no value"),
        (["A=1", "a=2"], "differ in case"),
    ],
)
def test_conflicting_folders_are_refused(tmp_path: Path, folders: list[str], problem: str) -> None:
    for folder in folders:
        write(tmp_path / folder)
    with pytest.raises(SourceError, match=problem):
        open_source("parquet", str(tmp_path))


def test_files_that_differ_in_a_columns_type_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "p=1", id=pa.array([1], pa.int64()))
    write(tmp_path / "p=2", id=pa.array(["x"]))
    with pytest.raises(SourceError, match="column id is int64 in some files"):
        open_source("parquet", str(tmp_path), merge_schema=True)
    snapshot = open_source("parquet", str(tmp_path))
    with pytest.raises(
        SourceError, match="column id is stored as string, which Spark does not read as int64"
    ):
        rows_of(snapshot)


def test_a_folder_without_files_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no Parquet files at"):
        open_source("parquet", str(tmp_path))
    write(tmp_path / "sub")
    with pytest.raises(SourceError, match="are in sub-folders that are not partitions"):
        open_source("parquet", str(tmp_path))
    with pytest.raises(SourceError, match="has no versions"):
        open_source("parquet", str(tmp_path / "sub"), version=3)


def test_a_shredded_variant_is_refused(tmp_path: Path) -> None:
    """A part of its values is in columns of their own."""
    spark = {"fields": [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}], "type": "struct"}
    plain = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    shredded = pa.struct(
        [*plain, ("typed_value", pa.struct([("a", pa.struct([("typed_value", pa.int64())]))]))]
    )
    value = {"metadata": b"\1\0\0", "value": b"\0"}
    for kind, folder in ((plain, "plain"), (shredded, "shredded")):
        rows = pa.table({"v": pa.array([value, None], kind)})
        (tmp_path / folder).mkdir()
        text = {"org.apache.spark.sql.parquet.row.metadata": json.dumps(spark)}
        pq.write_table(rows.replace_schema_metadata(text), tmp_path / folder / "a.parquet")
    assert rows_of(open_source("parquet", str(tmp_path / "plain"))) == [
        [None],
        [{"metadata": "AQAA", "value": "AA=="}],
    ]
    with pytest.raises(UnsupportedSourceError, match="column v is one; a shredded variant is not supported"):
        rows_of(open_source("parquet", str(tmp_path / "shredded")))


@pytest.mark.spark
def test_intervals_of_days_are_read_and_geographies_refused(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT make_dt_interval(id, 1, 2, 3.5) i, IF(id = 1, null, make_dt_interval(0, 0, -id)) j FROM range(3)"
    spark.sql(sql).write.parquet(str(tmp_path / "intervals"))
    snapshot = open_source("parquet", str(tmp_path / "intervals"))
    batches = [batch for file in snapshot.files for batch in SourceReader(snapshot).read(file)]
    found = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(found, key=str) == sorted(map(list, spark.sql(sql).collect()), key=str)
    spark.sql("SELECT st_geogfromwkb(X'0101000000000000000000F03F0000000000000040') g").write.parquet(
        str(tmp_path / "places")
    )
    with pytest.raises(UnsupportedSourceError, match=r"the type geography.* in Parquet files"):
        rows_of(open_source("parquet", str(tmp_path / "places")))


@pytest.mark.spark
def test_a_file_without_a_column_has_its_default(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes the default of a column with the columns of the files that have it."""
    path = tmp_path / "rows"
    spark.sql(f"CREATE TABLE defaults (id INT) USING parquet LOCATION '{path}'")
    try:
        spark.sql("INSERT INTO defaults VALUES (1)")
        spark.sql(
            "ALTER TABLE defaults ADD COLUMNS (n INT DEFAULT 5, t STRING DEFAULT 'it\\'s', d DATE DEFAULT DATE '2026-01-02',"
            " b BOOLEAN DEFAULT true, x DECIMAL(5, 2) DEFAULT 1.5, at TIMESTAMP DEFAULT TIMESTAMP '2026-01-02 03:04:05',"
            " nothing INT DEFAULT NULL)"
        )
        spark.sql("INSERT INTO defaults VALUES (2, null, null, null, null, null, null, null)")
        schema, rows = answer(spark, path, mergeSchema="true")
        found_schema, found_rows = ours(path, merge_schema=True)
        assert found_schema == schema
        texts = sorted(([_canonical(as_text(v)) for v in row] for row in found_rows), key=str)
        assert texts == [[_canonical(v) for v in row] for row in rows]
        assert ["1", "5", "it's"] in [row[:3] for row in rows]
        spark.sql("ALTER TABLE defaults ADD COLUMNS (several ARRAY<INT> DEFAULT array(1, 2))")
        spark.sql("INSERT INTO defaults (id) VALUES (3)")
        with pytest.raises(UnsupportedSourceError, match="a default value that is no literal"):
            open_source("parquet", str(path), merge_schema=True)
    finally:
        spark.sql("DROP TABLE defaults")
