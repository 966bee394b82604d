"""The type table: every kind of column type, and its properties in the engine.

`TypeKind` is the kind of an Arrow type, `TYPE_INFO` has a record for each kind. Code that depends on the
kind looks it up there, or has a `match` over `TypeKind`, which mypy checks to be complete. So a new column
type is a new member of `TypeKind`, its record, and the places that mypy then names.

Every Spark type has one Arrow type in which its values are stored. Where several Spark types share one (a
`varchar(5)` is stored as a string, an interval of months as an integer) the metadata of the Arrow field
names the Spark type under `TYPE_KEY`; without it the field has the Spark type of `_SPARK_TYPES`. The field
metadata of Spark, which includes collations and the lengths of char and varchar, is kept under the key that
PySpark uses for it.

Decimals have up to 38 digits, so they are computed by functions of this module.
"""

import decimal
import functools
import json
import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.records import dataclass

TYPE_KEY = b"indextables.type"
# Spark has a non-nullable void type; Arrow fields of that type are nullable, so it is recorded in metadata.
REQUIRED_VOID = "void"
METADATA_KEY = b"SPARK::metadata::json"
VARIANT_MARK = {b"variant": b"true"}
_COLLATIONS = "__COLLATIONS"

UTC_TIMESTAMP = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata=VARIANT_MARK),
    ]
)
_SPATIAL = pa.struct(
    [pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)]
)
MAX_DECIMAL_DIGITS = 38
# Unscaled decimals of this many digits fit into 64 bits.
_INT64_DIGITS = 18


class TypeKind(StrEnum):
    """The kinds of types. Types of one kind are compared, stored and indexed in the same way."""

    NULL = "void"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TIME = "time"
    INTERVAL = "interval"
    LIST = "array"
    MAP = "map"
    STRUCT = "struct"
    OTHER = "other"


# The types of Tantivy fields that store a value exactly.
IndexType: TypeAlias = Literal["i64", "f64", "bool"]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """The properties of a kind of type.

    Attributes:
        sql_name: The name in SQL; None if it depends on the type's parameters (`sql_name`).
        comparable: Conditions compare values with literals.
        bounds: The log has the minimum and the maximum.
        partitionable: A table can be partitioned by such a column.
        index_type: The Tantivy field type that stores values exactly; `index_type` has the exceptions.
    """

    sql_name: str | None
    comparable: bool = False
    bounds: bool = False
    partitionable: bool = False
    index_type: IndexType | None = None


_VALUE: dict[str, Any] = {"comparable": True, "bounds": True, "partitionable": True}
TYPE_INFO: dict[TypeKind, TypeInfo] = {
    TypeKind.NULL: TypeInfo("VOID", comparable=True),
    TypeKind.BOOLEAN: TypeInfo("BOOLEAN", **_VALUE, index_type="bool"),
    TypeKind.INTEGER: TypeInfo(None, **_VALUE, index_type="i64"),
    TypeKind.FLOAT: TypeInfo(None, **_VALUE, index_type="f64"),
    TypeKind.DECIMAL: TypeInfo(None, **_VALUE, index_type="i64"),
    TypeKind.STRING: TypeInfo("STRING", **_VALUE),
    TypeKind.BINARY: TypeInfo("BINARY", comparable=True),
    TypeKind.DATE: TypeInfo("DATE", **_VALUE, index_type="i64"),
    TypeKind.TIMESTAMP: TypeInfo("TIMESTAMP", **_VALUE, index_type="i64"),
    TypeKind.TIMESTAMP_NTZ: TypeInfo("TIMESTAMP_NTZ", **_VALUE, index_type="i64"),
    TypeKind.TIME: TypeInfo(None, partitionable=True, index_type="i64"),
    TypeKind.INTERVAL: TypeInfo(None, partitionable=True, index_type="i64"),
    TypeKind.LIST: TypeInfo(None),
    TypeKind.MAP: TypeInfo(None),
    TypeKind.STRUCT: TypeInfo(None),
    TypeKind.OTHER: TypeInfo(None),
}

NUMERIC = frozenset({TypeKind.INTEGER, TypeKind.FLOAT, TypeKind.DECIMAL})
DATETIME = frozenset({TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ})
TIMESTAMPS = frozenset({TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ})
NESTED = frozenset({TypeKind.LIST, TypeKind.MAP, TypeKind.STRUCT})

# The Arrow types of each kind by examples, first the one in which values are stored. Intervals of months are
# stored as integers, decimals with 128 bits, times with 64.
_EXAMPLES: dict[TypeKind, tuple[pa.DataType, ...]] = {
    TypeKind.NULL: (pa.null(),),
    TypeKind.BOOLEAN: (pa.bool_(),),
    TypeKind.DECIMAL: (pa.decimal128(1), pa.decimal32(1), pa.decimal64(1), pa.decimal256(1)),
    TypeKind.STRING: (pa.string(), pa.large_string(), pa.string_view()),
    TypeKind.BINARY: (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
    TypeKind.DATE: (pa.date32(), pa.date64()),
    TypeKind.TIMESTAMP_NTZ: (pa.timestamp("us"),),
    TypeKind.TIME: (pa.time64("us"), pa.time32("ms")),
    TypeKind.INTERVAL: (pa.duration("us"),),
    TypeKind.LIST: (
        pa.list_(pa.null()),
        pa.large_list(pa.null()),
        pa.list_(pa.null(), 1),
        pa.list_view(pa.null()),
        pa.large_list_view(pa.null()),
    ),
    TypeKind.MAP: (pa.map_(pa.string(), pa.null()),),
    TypeKind.STRUCT: (pa.struct([]),),
}
_INTEGERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
# By the id of an Arrow type, which costs less than the hash of the type.
_KINDS = {
    **{each.id: kind for kind, examples in _EXAMPLES.items() for each in examples},
    **{each.id: TypeKind.INTEGER for each in _INTEGERS},
    **{each.id: TypeKind.FLOAT for each in _FLOATS},
}
_OTHER_LAYOUTS = frozenset(each.id for examples in _EXAMPLES.values() for each in examples[1:])
_SIGNED = frozenset(each.id for each in _INTEGERS[:4])
_LISTS_WITH_OFFSETS = frozenset({pa.list_(pa.null()).id, pa.large_list(pa.null()).id})
_TIMESTAMP = LOCAL_TIMESTAMP.id
_FIXED_SIZE_BINARY = pa.binary(1).id
_FIXED_SIZE_LIST = pa.list_(pa.null(), 1).id
_INT64_KINDS = frozenset({TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ, TypeKind.TIME})


def kind_of(type_: pa.DataType) -> TypeKind:
    """The kind of an Arrow type.

    >>> kind_of(pa.large_string()), kind_of(pa.timestamp("ms"))
    (<TypeKind.STRING: 'string'>, <TypeKind.TIMESTAMP_NTZ: 'timestamp_ntz'>)
    """
    id_ = type_.id
    if id_ == _TIMESTAMP and type_.tz is not None:
        return TypeKind.TIMESTAMP
    return _KINDS.get(id_, TypeKind.OTHER)


def storage_kind_of(type_: pa.DataType) -> TypeKind:
    """The kind of an Arrow type whose layout is that of stored values; OTHER for large strings, views, ...

    >>> storage_kind_of(pa.string()), storage_kind_of(pa.large_string())
    (<TypeKind.STRING: 'string'>, <TypeKind.OTHER: 'other'>)
    """
    return TypeKind.OTHER if type_.id in _OTHER_LAYOUTS else kind_of(type_)


def common_kind(one: pa.DataType, other: pa.DataType) -> TypeKind:
    """The kind of two Arrow types that are stored in the same way; OTHER if they are not."""
    kind = storage_kind_of(one)
    return kind if kind is storage_kind_of(other) else TypeKind.OTHER


def info_of(type_: pa.DataType) -> TypeInfo:
    """The record of an Arrow type's kind."""
    return TYPE_INFO[kind_of(type_)]


@functools.lru_cache(maxsize=1024)
def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values: without dictionary encoding, and the storage type of an extension."""
    if isinstance(type_, pa.DictionaryType):
        return value_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return value_type(type_.storage_type)
    return type_


def child_fields(type_: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the element of a list, or key and value of a map; none of other types."""
    match kind_of(type_):
        case TypeKind.STRUCT:
            return list(type_)
        case TypeKind.LIST:
            return [type_.value_field]
        case TypeKind.MAP:
            return [type_.key_field, type_.item_field]
        case _:
            return []


def replace_children(type_: pa.DataType, replace: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """The type with other child fields, if it is stored with child fields; keys of maps stay required."""
    match storage_kind_of(type_):
        case TypeKind.STRUCT:
            return pa.struct([replace(field) for field in type_])
        case TypeKind.LIST:
            return pa.list_(replace(type_.value_field))
        case TypeKind.MAP:
            return pa.map_(replace(type_.key_field).with_nullable(False), replace(type_.item_field))
        case _:
            return type_


def leaf_count(type_: pa.DataType) -> int:
    """How many leaf columns a value of this type has in Parquet.

    >>> leaf_count(pa.int32()), leaf_count(pa.map_(pa.string(), pa.list_(pa.int8())))
    (1, 2)
    """
    if kind_of(type_) not in NESTED:
        return 1
    return sum(leaf_count(field.type) for field in child_fields(type_))


def decode_dictionary(values: pa.Array) -> pa.Array:
    """The values without dictionary encoding."""
    return values.cast(values.type.value_type) if isinstance(values.type, pa.DictionaryType) else values


def is_list(type_: pa.DataType) -> bool:
    """Whether the type is an array of SQL, with offsets of its elements."""
    return type_.id in _LISTS_WITH_OFFSETS


def is_signed_integer(type_: pa.DataType) -> bool:
    """Whether the type is an integer of Spark, which has no unsigned ones."""
    return type_.id in _SIGNED


def fixed_width(type_: pa.DataType) -> int | None:
    """The number of bytes of every value of a binary type; None if their lengths differ.

    >>> fixed_width(pa.binary(16)), fixed_width(pa.binary())
    (16, None)
    """
    return type_.byte_width if type_.id == _FIXED_SIZE_BINARY else None


def fixed_length(type_: pa.DataType) -> int | None:
    """The number of elements of every value of a list type; None if their numbers differ."""
    return type_.list_size if type_.id == _FIXED_SIZE_LIST else None


def is_int64_ordered(type_: pa.DataType) -> bool:
    """Whether values, cast to 64-bit integers, keep their order."""
    match storage_kind_of(type_):
        case TypeKind.INTEGER:
            return is_signed_integer(type_)
        case kind:
            return kind in _INT64_KINDS


def index_type(type_: pa.DataType) -> IndexType | None:
    """The type of the Tantivy field that stores values exactly; None if there is none.

    >>> index_type(pa.decimal128(18, 2)), index_type(pa.decimal128(19, 2)), index_type(pa.string())
    ('i64', None, None)
    """
    type_of_index = info_of(type_).index_type
    match kind_of(type_):
        case TypeKind.DECIMAL:
            return type_of_index if type_.precision <= _INT64_DIGITS else None
        case TypeKind.INTEGER:
            return type_of_index if type_ != pa.uint64() else None
        case TypeKind.FLOAT:
            return type_of_index if type_.bit_width > 16 else None
        case TypeKind.DATE:
            return type_of_index if storage_kind_of(type_) is TypeKind.DATE else None
        case _:
            return type_of_index


def sum_type(type_: pa.DataType) -> pa.DataType | None:
    """The type of Spark's SUM of a column; None if it has no sum.

    >>> sum_type(pa.int8()), sum_type(pa.decimal128(30, 2)), sum_type(pa.string())
    (DataType(int64), Decimal128Type(decimal128(38, 2)), None)
    """
    match kind_of(type_):
        case TypeKind.INTEGER:
            return pa.int64()
        case TypeKind.FLOAT:
            return pa.float64()
        case TypeKind.DECIMAL:
            return _wider_decimal(type_, 10, 0)
        case _:
            return None


def average_type(type_: pa.DataType) -> pa.DataType | None:
    """The type of Spark's AVG of a column; None if it has no average."""
    match kind_of(type_):
        case TypeKind.INTEGER | TypeKind.FLOAT:
            return pa.float64()
        case TypeKind.DECIMAL:
            return _wider_decimal(type_, 4, 4)
        case _:
            return None


def _wider_decimal(type_: pa.DataType, digits: int, fraction: int) -> pa.DataType:
    precision = min(MAX_DECIMAL_DIGITS, type_.precision + digits)
    return pa.decimal128(precision, min(type_.scale + fraction, precision))


_SQL_INTEGERS = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
_SQL_FLOATS = {64: "DOUBLE", 32: "FLOAT"}


def sql_name(type_: pa.DataType) -> str:
    """The name of the type in SQL, for messages."""
    name = info_of(type_).sql_name or str(type_).upper()
    match kind_of(type_):
        case TypeKind.INTEGER:
            return _SQL_INTEGERS.get(str(type_), name)
        case TypeKind.FLOAT:
            return _SQL_FLOATS.get(type_.bit_width, name)
        case TypeKind.DECIMAL:
            return f"DECIMAL({type_.precision},{type_.scale})"
        case _:
            return name


# --- Spark's types ------------------------------------------------------------------------------------

_SPARK_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_TIMESTAMP,
    "timestamp_ntz": LOCAL_TIMESTAMP,
    "time(6)": pa.time64("us"),
    "interval day to second": pa.duration("us"),
    "variant": VARIANT,
    "void": pa.null(),
}
SPARK_NAMES = {arrow: name for name, arrow in _SPARK_TYPES.items() if name != "variant"}
_ALIASES = {"null": "void", "decimal": "decimal(10,0)"}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TIME = re.compile(r"time\(\s*([0-9])\s*\)")
_TYPES_BY_TAG: tuple[tuple[re.Pattern[str], pa.DataType], ...] = (
    (re.compile(r"(?:var)?char\(\s*\d+\s*\)(?:\s+collate\s+\w+)?"), pa.string()),
    (re.compile(r"string\s+collate\s+\w+"), pa.string()),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"), pa.duration("us")),
    (re.compile(r"interval (?:year|month|year to month)"), pa.int32()),
    (re.compile(r"geometry(?:\(.*\))?"), _SPATIAL),
    (re.compile(r"geography(?:\(.*\))?"), _SPATIAL),
)


def parse_spark_type(name: str, path: tuple[str, ...] = ()) -> tuple[pa.DataType, str | None]:
    """The Arrow type that stores a simple Spark type, and its tag if several Spark types share that type.

    Raises:
        SchemaError: The type is unknown, or cannot be stored.
    """
    name = _ALIASES.get(name, name)
    if (simple := _SPARK_TYPES.get(name)) is not None:
        return simple, None
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= MAX_DECIMAL_DIGITS and 0 <= scale <= precision:
            return pa.decimal128(precision, scale), None
    if match := _TIME.fullmatch(name):
        return pa.time64("us" if int(match[1]) <= 6 else "ns"), name
    for pattern, arrow in _TYPES_BY_TAG:
        if pattern.fullmatch(name):
            return arrow, name
    raise SchemaError(
        f"column {dotted_name(path)} has the type {name!r}, which cannot be stored; "
        "cast it to a type that Spark can save, or leave the column out"
    )


def spark_metadata(field: pa.Field) -> dict[str, Any]:
    """The metadata that Spark keeps with the field."""
    text = (field.metadata or {}).get(METADATA_KEY)
    if text is None:
        return {}
    try:
        metadata = json.loads(text)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise SchemaError(
            f"column {field.name} has Spark metadata that is not a JSON object; remove the field "
            f"metadata {METADATA_KEY.decode()}, or write an object there"
        )
    return metadata


def is_collated(field: pa.Field) -> bool:
    """Whether strings of this column compare by a collation, and so not byte by byte."""
    tag = (field.metadata or {}).get(TYPE_KEY, b"").decode()
    if tag.startswith("string") and tag.split()[-1] != "UTF8_BINARY":
        return True
    return bool(spark_metadata(field).get(_COLLATIONS))


def is_variant(arrow: pa.DataType) -> bool:
    """Whether the struct is Spark's form of a variant."""
    if kind_of(arrow) is not TypeKind.STRUCT or arrow.num_fields != 2:
        return False
    marks = [(f.metadata or {}).get(b"variant") for f in arrow if f.name == "metadata"]
    return marks == [b"true"] and arrow.get_field_index("value") >= 0


def dotted_name(path: tuple[str, ...]) -> str:
    """A path of names as SQL writes it."""
    return ".".join(path) or "(the schema)"


# --- decimals: Python's own arithmetic rounds to 28 digits --------------------------------------------

# The product of two decimals of 38 digits, and numbers of texts, are exact in it.
EXACT = decimal.Context(prec=400, Emax=999_999, Emin=-999_999)


def from_unscaled(whole: int, scale: int) -> Decimal:
    """The decimal of an integer that counts units of the last digit.

    >>> from_unscaled(12345678901234567890123456789012345678, 18)
    Decimal('12345678901234567890.123456789012345678')
    """
    return Decimal(whole).scaleb(-scale, EXACT)


def round_half_up(value: Decimal, scale: int) -> Decimal:
    """The decimal with this many digits after the point, rounded as Spark's CAST rounds.

    >>> round_half_up(Decimal("-0.125"), 2)
    Decimal('-0.13')
    """
    return value.quantize(Decimal(1).scaleb(-scale, EXACT), decimal.ROUND_HALF_UP, EXACT)


def has_digits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a decimal with at most `scale` digits after the point has at most `precision` digits.

    >>> has_digits(Decimal("99.9"), 3, 1), has_digits(Decimal("100.0"), 3, 1)
    (True, False)
    """
    return bool(value.copy_abs().scaleb(scale, EXACT) < 10**precision)
