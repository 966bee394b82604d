"""Column types as conditions see them: a few families, and their names in SQL."""

import functools
from enum import StrEnum

import pyarrow as pa


class Family(StrEnum):
    """Types that are compared in the same way."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "timestamp_ntz"
    NULL = "void"
    OTHER = "other"


NUMBERS = frozenset({Family.INTEGER, Family.FLOAT, Family.DECIMAL})
TIMES = frozenset({Family.DATE, Family.TIMESTAMP, Family.LOCAL_TIMESTAMP})

_TESTS = (
    (pa.types.is_integer, Family.INTEGER),
    (pa.types.is_floating, Family.FLOAT),
    (pa.types.is_decimal, Family.DECIMAL),
    (pa.types.is_boolean, Family.BOOLEAN),
    (pa.types.is_date, Family.DATE),
    (pa.types.is_null, Family.NULL),
)
_SQL_INTEGERS = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
_SQL_FAMILIES = {
    Family.STRING: "STRING",
    Family.BINARY: "BINARY",
    Family.BOOLEAN: "BOOLEAN",
    Family.DATE: "DATE",
    Family.TIMESTAMP: "TIMESTAMP",
    Family.LOCAL_TIMESTAMP: "TIMESTAMP_NTZ",
    Family.NULL: "VOID",
}


@functools.lru_cache(maxsize=1024)
def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values: what a dictionary encodes, what an extension is stored as."""
    if isinstance(type_, pa.DictionaryType):
        return value_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return value_type(type_.storage_type)
    return type_


@functools.lru_cache(maxsize=1024)
def family_of(type_: pa.DataType) -> Family:
    """The family of a value type."""
    for test, family in _TESTS:
        if test(type_):
            return family
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return Family.STRING
    if (
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
    ):
        return Family.BINARY
    if pa.types.is_timestamp(type_):
        return Family.LOCAL_TIMESTAMP if type_.tz is None else Family.TIMESTAMP
    return Family.OTHER


def sql_name(type_: pa.DataType) -> str:
    """The type as SQL names it, for messages."""
    family = family_of(type_)
    if family is Family.INTEGER:
        return _SQL_INTEGERS.get(str(type_), str(type_).upper())
    if family is Family.FLOAT:
        return {64: "DOUBLE", 32: "FLOAT"}.get(type_.bit_width, str(type_).upper())
    if family is Family.DECIMAL:
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _SQL_FAMILIES.get(family, str(type_).upper())
