"""The type table: every kind has a record, every Arrow type a kind."""

import decimal

import pyarrow as pa
import pytest

from indextables.schema.type_info import (
    NESTED,
    TYPE_INFO,
    TypeKind,
    average_type,
    index_type,
    info_of,
    is_int64_ordered,
    kind_of,
    sql_name,
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


def test_every_kind_has_a_record_and_a_type():
    assert set(TYPE_INFO) == set(TypeKind) == set(TYPES.values())


@pytest.mark.parametrize(("arrow", "kind"), TYPES.items(), ids=str)
def test_every_arrow_type_has_its_kind(arrow, kind):
    assert kind_of(arrow) is kind
    assert info_of(arrow) is TYPE_INFO[kind]
    assert sql_name(arrow)
    assert (kind in NESTED) == (pa.types.is_nested(arrow))


@pytest.mark.parametrize("arrow", [each for each in TYPES if index_type(each) == "i64"], ids=str)
def test_types_of_integer_fields_have_an_integer_form(arrow):
    values = pa.array([None, None], arrow)
    assert integer_values(values).type == pa.int64()


@pytest.mark.parametrize("arrow", [each for each in TYPES if is_int64_ordered(each)], ids=str)
def test_int64_order_is_the_order_of_values(arrow):
    numbers = pa.array([3, 1, 2], pa.int32() if arrow == pa.date32() else pa.int64())
    values = numbers.cast(arrow)
    assert pa.compute.sort_indices(values).equals(pa.compute.sort_indices(numbers))


def test_sums_and_averages_have_the_types_of_spark():
    assert sum_type(pa.int8()) == pa.int64()
    assert sum_type(pa.float32()) == pa.float64()
    assert sum_type(pa.decimal128(10, 2)) == pa.decimal128(20, 2)
    assert sum_type(pa.decimal128(35, 2)) == pa.decimal128(38, 2)
    assert average_type(pa.int8()) == average_type(pa.float32()) == pa.float64()
    assert average_type(pa.decimal128(10, 2)) == pa.decimal128(14, 6)
    assert sum_type(pa.string()) is average_type(pa.date32()) is None


def test_decimals_beyond_64_bits_have_no_exact_field():
    assert index_type(pa.decimal128(18, 0)) == "i64"
    assert index_type(pa.decimal128(19, 0)) is None
    widest = pa.array([decimal.Decimal(10**18 - 1)], pa.decimal128(18, 0))
    assert integer_values(widest).to_pylist() == [10**18 - 1]
