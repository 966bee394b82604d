"""The type table: every kind of column type, and its properties in the engine.

`TypeKind` is the kind of an Arrow type, `TYPE_INFO` has a record for each kind. Code that depends on the
kind looks it up there, or has a `match` over `TypeKind`, which mypy checks to be complete. So a new column
type is a new member of `TypeKind`, its record, and the places that mypy then names.

Every Spark type has one Arrow type in which its values are stored. Where several Spark types share one (a
`varchar(5)` is stored as a string, an interval of months as an integer) the metadata of the Arrow field
names the Spark type under `TYPE_KEY`; without it the field has the Spark type of `_SPARK_TYPES`. The field
metadata of Spark, which includes collations and the lengths of char and varchar, is kept under the key that
PySpark uses for it.
"""

import functools
import json
import re
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

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
# Unscaled decimals of so many digits fit into 64 bits.
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
NESTED = frozenset({TypeKind.LIST, TypeKind.MAP, TypeKind.STRUCT})

# The kinds of Arrow types by pyarrow's tests; timestamps are distinguished by their zone.
_TESTS = (
    (pt.is_integer, TypeKind.INTEGER),
    (pt.is_floating, TypeKind.FLOAT),
    (pt.is_decimal, TypeKind.DECIMAL),
    (pt.is_boolean, TypeKind.BOOLEAN),
    (pt.is_string, TypeKind.STRING),
    (pt.is_large_string, TypeKind.STRING),
    (pt.is_string_view, TypeKind.STRING),
    (pt.is_binary, TypeKind.BINARY),
    (pt.is_large_binary, TypeKind.BINARY),
    (pt.is_binary_view, TypeKind.BINARY),
    (pt.is_fixed_size_binary, TypeKind.BINARY),
    (pt.is_date, TypeKind.DATE),
    (pt.is_time, TypeKind.TIME),
    (pt.is_duration, TypeKind.INTERVAL),
    (pt.is_null, TypeKind.NULL),
    (pt.is_list, TypeKind.LIST),
    (pt.is_large_list, TypeKind.LIST),
    (pt.is_fixed_size_list, TypeKind.LIST),
    (pt.is_list_view, TypeKind.LIST),
    (pt.is_large_list_view, TypeKind.LIST),
    (pt.is_map, TypeKind.MAP),
    (pt.is_struct, TypeKind.STRUCT),
)


@functools.lru_cache(maxsize=4096)
def kind_of(type_: pa.DataType) -> TypeKind:
    """The kind of an Arrow type.

    >>> kind_of(pa.large_string()), kind_of(pa.timestamp("ms"))
    (<TypeKind.STRING: 'string'>, <TypeKind.TIMESTAMP_NTZ: 'timestamp_ntz'>)
    """
    if pt.is_timestamp(type_):
        return TypeKind.TIMESTAMP_NTZ if type_.tz is None else TypeKind.TIMESTAMP
    return next((kind for test, kind in _TESTS if test(type_)), TypeKind.OTHER)


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


def is_list(type_: pa.DataType) -> bool:
    """Whether the type is an array of SQL, with offsets of its elements."""
    return bool(pt.is_list(type_) or pt.is_large_list(type_))


def is_int64_ordered(type_: pa.DataType) -> bool:
    """Whether values, cast to 64-bit integers, keep their order."""
    match kind_of(type_):
        case TypeKind.INTEGER:
            return bool(pt.is_signed_integer(type_))
        case TypeKind.DATE:
            return bool(pt.is_date32(type_))
        case TypeKind.TIME:
            return bool(pt.is_time64(type_))
        case kind:
            return kind in {TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ}


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
            return type_of_index if pt.is_date32(type_) else None
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
    if not pt.is_struct(arrow) or arrow.num_fields != 2:
        return False
    marks = [(f.metadata or {}).get(b"variant") for f in arrow if f.name == "metadata"]
    return marks == [b"true"] and arrow.get_field_index("value") >= 0


def dotted_name(path: tuple[str, ...]) -> str:
    """A path of names as SQL writes it."""
    return ".".join(path) or "(the schema)"
