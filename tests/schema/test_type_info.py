"""The type table: every kind has a record, every Arrow type a kind."""

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.schema.conversion import storage_schema
from indextables.schema.type_info import (
    NESTED,
    TYPE_INFO,
    TypeKind,
    average_type,
    common_kind,
    index_type,
    info_of,
    is_int64_ordered,
    kind_of,
    leaf_count,
    replace_children,
    sql_name,
    storage_kind_of,
    sum_type,
)
from indextables.split.index.encode import integer_values

TYPES = {
    pa.null(): TypeKind.NULL,
    pa.bool_(): TypeKind.BOOLEAN,
    pa.int8(): TypeKind.INTEGER,
    pa.uint64(): TypeKind.INTEGER,
    pa.float16(): TypeKind.FLOAT,
    pa.float64(): TypeKind.FLOAT,
    pa.decimal128(5, 2): TypeKind.DECIMAL,
    pa.decimal256(60, 2): TypeKind.DECIMAL,
    pa.string(): TypeKind.STRING,
    pa.large_string(): TypeKind.STRING,
    pa.string_view(): TypeKind.STRING,
    pa.binary(): TypeKind.BINARY,
    pa.binary(3): TypeKind.BINARY,
    pa.date32(): TypeKind.DATE,
    pa.date64(): TypeKind.DATE,
    pa.timestamp("s", "Europe/Berlin"): TypeKind.TIMESTAMP,
    pa.timestamp("us"): TypeKind.TIMESTAMP_NTZ,
    pa.time32("ms"): TypeKind.TIME,
    pa.time64("ns"): TypeKind.TIME,
    pa.duration("us"): TypeKind.INTERVAL,
    pa.list_(pa.int8()): TypeKind.LIST,
    pa.list_(pa.int8(), 2): TypeKind.LIST,
    pa.map_(pa.string(), pa.int8()): TypeKind.MAP,
    pa.struct([("a", pa.int8())]): TypeKind.STRUCT,
    pa.month_day_nano_interval(): TypeKind.OTHER,
    pa.dictionary(pa.int8(), pa.string()): TypeKind.OTHER,
}


def test_every_kind_has_a_record_and_a_type() -> None:
    assert set(TYPE_INFO) == set(TypeKind) == set(TYPES.values())


@pytest.mark.parametrize(("arrow", "kind"), TYPES.items(), ids=str)
def test_every_arrow_type_has_its_kind(arrow: Any, kind: Any) -> None:
    assert kind_of(arrow) is kind
    assert info_of(arrow) is TYPE_INFO[kind]
    assert sql_name(arrow)
    assert (kind in NESTED) == (pa.types.is_nested(arrow))


OTHER_LAYOUTS = [
    *(pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date64(), pa.time32("ms"), pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal256(60, 2)),
    *(pa.large_list(pa.int8()), pa.list_(pa.int8(), 2), pa.list_view(pa.int8())),
]


@pytest.mark.parametrize("arrow", [*TYPES, *OTHER_LAYOUTS], ids=str)
def test_stored_types_are_those_that_a_table_converts_to(arrow: pa.DataType) -> None:
    is_stored = arrow not in OTHER_LAYOUTS
    assert storage_kind_of(arrow) is (kind_of(arrow) if is_stored else TypeKind.OTHER)
    if kind_of(arrow) not in {TypeKind.OTHER, TypeKind.INTEGER, TypeKind.FLOAT, TypeKind.DECIMAL}:
        (field,) = storage_schema(pa.schema([pa.field("a", arrow)]))
        assert storage_kind_of(field.type) is kind_of(arrow)


def test_two_types_have_a_common_kind_if_they_are_stored_in_the_same_way() -> None:
    assert common_kind(pa.int8(), pa.int64()) is TypeKind.INTEGER
    assert common_kind(pa.string(), pa.large_string()) is TypeKind.OTHER
    assert common_kind(pa.date32(), pa.int32()) is TypeKind.OTHER


def test_the_number_of_leaf_columns_is_that_of_parquet(tmp_path: Path) -> None:
    inner = pa.struct(
        [("a", pa.list_(pa.int8())), ("b", pa.map_(pa.string(), pa.struct([("c", pa.date32())])))]
    )
    pq.write_table(pa.table({"x": pa.nulls(1, inner)}), tmp_path / "t.parquet")
    assert leaf_count(inner) == pq.read_metadata(tmp_path / "t.parquet").num_columns == 3


def test_child_fields_are_replaced_in_stored_types_only() -> None:
    def longer(field: pa.Field) -> pa.Field:
        return field.with_type(pa.int64())

    assert replace_children(pa.list_(pa.int8()), longer) == pa.list_(pa.int64())
    assert replace_children(pa.map_(pa.int8(), pa.int8()), longer) == pa.map_(pa.int64(), pa.int64())
    assert replace_children(pa.struct([("a", pa.int8())]), longer) == pa.struct([("a", pa.int64())])
    assert replace_children(pa.large_list(pa.int8()), longer) == pa.large_list(pa.int8())


@pytest.mark.parametrize("arrow", [each for each in TYPES if index_type(each) == "i64"], ids=str)
def test_types_of_integer_fields_have_an_integer_form(arrow: Any) -> None:
    values = pa.array([None, None], arrow)
    assert integer_values(values).type == pa.int64()


@pytest.mark.parametrize("arrow", [each for each in TYPES if is_int64_ordered(each)], ids=str)
def test_int64_order_is_the_order_of_values(arrow: Any) -> None:
    numbers = pa.array([3, 1, 2], pa.int32() if arrow == pa.date32() else pa.int64())
    values = numbers.cast(arrow)
    assert pa.compute.sort_indices(values).equals(pa.compute.sort_indices(numbers))


def test_sums_and_averages_have_the_types_of_spark() -> None:
    assert sum_type(pa.int8()) == pa.int64()
    assert sum_type(pa.float32()) == pa.float64()
    assert sum_type(pa.decimal128(10, 2)) == pa.decimal128(20, 2)
    assert sum_type(pa.decimal128(35, 2)) == pa.decimal128(38, 2)
    assert average_type(pa.int8()) == average_type(pa.float32()) == pa.float64()
    assert average_type(pa.decimal128(10, 2)) == pa.decimal128(14, 6)
    assert sum_type(pa.string()) is average_type(pa.date32()) is None


def test_decimals_beyond_64_bits_have_no_exact_field() -> None:
    assert index_type(pa.decimal128(18, 0)) == "i64"
    assert index_type(pa.decimal128(19, 0)) is None
    widest = pa.array([decimal.Decimal(10**18 - 1)], pa.decimal128(18, 0))
    assert integer_values(widest).to_pylist() == [10**18 - 1]
