"""Spark's schemas survive the way to Arrow and back, and Arrow's become Spark's."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from indextables.errors import SchemaError
from indextables.schema.conversion import storage_schema
from indextables.schema.spark import from_arrow, to_arrow
from indextables.schema.type_info import is_collated

SIMPLE = [
    spark.ByteType(), spark.ShortType(), spark.IntegerType(), spark.LongType(), spark.FloatType(), spark.DoubleType(),
    *(spark.DecimalType(p, s) for p, s in ((1, 0), (9, 9), (18, 2), (38, 0), (38, 18), (38, 38))),
    spark.BooleanType(), spark.StringType(), spark.StringType("UTF8_LCASE"), spark.StringType("UNICODE_CI"),
    spark.BinaryType(), spark.DateType(), spark.TimestampType(), spark.TimestampNTZType(), spark.TimeType(0),
    spark.TimeType(3), spark.TimeType(6), spark.NullType(), spark.VariantType(), spark.CharType(3), spark.VarcharType(9),
    *(spark.DayTimeIntervalType(a, b) for a in range(4) for b in range(a, 4)),
    *(spark.YearMonthIntervalType(a, b) for a in range(2) for b in range(a, 2)),
    spark.GeometryType(4326), spark.GeometryType("ANY"), spark.GeographyType(4326),
]  # fmt: skip

metadata = st.dictionaries(
    st.text('abc é"\\', min_size=1, max_size=4),
    st.one_of(
        st.integers(-(2**60), 2**60),
        st.booleans(),
        st.text(max_size=4),
        st.lists(st.integers(0, 9), max_size=2),
    ),
    max_size=2,
)
names = st.text('abcXYZ é.`"\\%', min_size=1, max_size=5)


def fields(types: Any) -> SearchStrategy[Any]:
    one = st.builds(spark.StructField, names, types, st.booleans(), metadata)
    return st.lists(one, max_size=4, unique_by=lambda field: field.name.lower()).map(spark.StructType)


types = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        st.builds(spark.ArrayType, inner, st.booleans()),
        st.builds(spark.MapType, inner.filter(lambda key: key != spark.NullType()), inner, st.booleans()),
        fields(inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(fields(types))
def test_any_spark_schema_comes_back_from_arrow(schema: Any) -> None:
    arrow = to_arrow(schema.json())
    assert json.loads(from_arrow(arrow)) == json.loads(schema.json())
    assert storage_schema(arrow).equals(arrow, check_metadata=True)


@pytest.mark.parametrize("kind", SIMPLE, ids=lambda kind: kind.simpleString())
def test_pyspark_reads_the_schema_that_comes_back(kind: Any) -> None:
    schema = spark.StructType(
        [spark.StructField("c", kind), spark.StructField("l", spark.ArrayType(kind, False))]
    )
    back = spark.StructType.fromJson(json.loads(from_arrow(to_arrow(schema.json()))))
    assert back == schema


@pytest.mark.parametrize("kind", SIMPLE, ids=lambda kind: kind.simpleString())
def test_every_type_survives_a_parquet_file(kind: Any, tmp_path: Path) -> None:
    arrow = to_arrow(spark.StructType([spark.StructField("c", kind, True, {"k": 1})]).json())
    pq.write_table(arrow.empty_table(), tmp_path / "t.parquet")
    read = pq.read_schema(tmp_path / "t.parquet")
    assert json.loads(from_arrow(read)) == json.loads(from_arrow(arrow))


def test_the_schema_that_pyspark_hands_over_in_arrow_is_understood() -> None:
    schema = spark.StructType(
        [
            spark.StructField(
                "a", spark.ArrayType(spark.StructType([spark.StructField("x", spark.ShortType(), False)]))
            ),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.TimestampType(), False)),
            spark.StructField("v", spark.VariantType()),
            spark.StructField("t", spark.TimeType(6)),
            spark.StructField("i", spark.DayTimeIntervalType()),
            spark.StructField("n", spark.NullType(), True, {"comment": "nothing"}),
        ]
    )
    for large in (False, True):
        handed = to_arrow_schema(schema, timezone="Europe/Berlin", prefers_large_types=large)
        assert json.loads(from_arrow(handed)) == json.loads(schema.json())
        assert from_arrow_schema(handed) == schema


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(7), "binary"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.date64(), "date"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.timestamp("ns", "Asia/Tokyo"), "timestamp"),
        (pa.time32("ms"), "time(6)"),
        (pa.time64("ns"), "time(6)"),
        (pa.duration("ns"), "interval day to second"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal64(15, 2), "decimal(15,2)"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.decimal128(5, -2), "decimal(7,0)"),
        (pa.decimal128(2, 4), "decimal(4,4)"),
        (pa.json_(), "string"),
    ],
    ids=str,
)
def test_other_arrow_types_become_the_next_spark_type(arrow: Any, name: str) -> None:
    assert json.loads(from_arrow(pa.schema([("c", arrow)])))["fields"][0]["type"] == name


@pytest.mark.parametrize(
    "arrow",
    [
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 3),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
    ],
)
def test_every_kind_of_list_becomes_an_array(arrow: Any) -> None:
    made = json.loads(from_arrow(pa.schema([("c", arrow)])))["fields"][0]["type"]
    assert made == {"type": "array", "elementType": "byte", "containsNull": True}


@pytest.mark.parametrize(
    "arrow",
    [
        pa.month_day_nano_interval(),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.decimal256(39, 0),
        pa.decimal128(38, -1),
        pa.uuid(),
        pa.struct([pa.field("inner", pa.month_day_nano_interval())]),
    ],
    ids=str,
)
def test_what_spark_cannot_hold_is_refused_by_name(arrow: Any) -> None:
    with pytest.raises(SchemaError, match="column seen"):
        from_arrow(pa.schema([("seen", arrow)]))


@pytest.mark.parametrize(
    "kind",
    ['"interval"', '"decimal(39,0)"', '"decimal(3,4)"', '"object"', '"INT"', "7", '{"type":"array"}', '"time(12)"',
     '{"type":"udt","class":"org.example.Point","sqlType":"string"}'],
)  # fmt: skip
def test_an_unknown_type_is_refused_with_the_column(kind: str) -> None:
    text = '{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":%s,"containsNull":true}}]}'
    with pytest.raises(SchemaError, match=r"column a\.element"):
        to_arrow(text % kind)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"string"', '{"type":"array"}', '{"type":"struct"}', '{"type":"struct","fields":[{}]}'],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        to_arrow(text)


def test_older_names_of_types_are_read() -> None:
    schema = to_arrow(
        '{"type":"struct","fields":[{"name":"a","type":"null"},{"name":"b","type":"decimal","nullable":false}]}'
    )
    assert schema.types == [pa.null(), pa.decimal128(10, 0)]
    assert [field.nullable for field in schema] == [True, False]


def test_a_collation_is_seen_wherever_it_is_written() -> None:
    schema = to_arrow(
        spark.StructType(
            [
                spark.StructField("plain", spark.StringType()),
                spark.StructField("lower", spark.StringType("UTF8_LCASE")),
            ]
        ).json()
    )
    assert [is_collated(field) for field in schema] == [False, True]
    named = to_arrow('{"type":"struct","fields":[{"name":"a","type":"string collate UNICODE"}]}')
    assert is_collated(named.field("a"))


def test_a_type_name_left_behind_by_a_cast_means_nothing() -> None:
    held = pa.field("a", pa.int64(), metadata={b"indextables.type": b"varchar(5)"})
    assert json.loads(from_arrow(pa.schema([held])))["fields"][0]["type"] == "long"


def test_field_metadata_that_is_no_object_is_refused() -> None:
    held = pa.field("a", pa.int64(), metadata={b"SPARK::metadata::json": b"[1]"})
    with pytest.raises(SchemaError, match="column a"):
        from_arrow(pa.schema([held]))
