"""The Arrow type that stores each Spark type.

Every Spark type has one Arrow type in which its values are stored. Where several Spark types share one
(a `varchar(5)` is stored like a string, an interval of months like an integer) the Arrow field's metadata
names the Spark type under `TYPE_KEY`; without it the plain one is meant. A field's own Spark metadata,
which is also where Spark keeps collations and the lengths of char and varchar, travels under the key
that PySpark uses for it.
"""

import json
import re
from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError

TYPE_KEY = b"indextables.type"
# Spark knows a void that must not be null; an Arrow field of that type is nullable, so its name says it.
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

_PLAIN: dict[str, pa.DataType] = {
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
PLAIN_NAMES = {arrow: name for name, arrow in _PLAIN.items() if name != "variant"}
_ALIASES = {"null": "void", "decimal": "decimal(10,0)"}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TIME = re.compile(r"time\(\s*([0-9])\s*\)")
_TYPES_BY_TAG: tuple[tuple[re.Pattern[str], pa.DataType], ...] = (
    (re.compile(r"(?:var)?char\(\s*\d+\s*\)"), pa.string()),
    (re.compile(r"string\s+collate\s+\w+"), pa.string()),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"), pa.duration("us")),
    (re.compile(r"interval (?:year|month|year to month)"), pa.int32()),
    (re.compile(r"geometry(?:\(.*\))?"), _SPATIAL),
    (re.compile(r"geography(?:\(.*\))?"), _SPATIAL),
)


def parse_spark_type(name: str, path: tuple[str, ...] = ()) -> tuple[pa.DataType, str | None]:
    """The Arrow type that stores a simple Spark type, and the type's name if it is not the plain one."""
    name = _ALIASES.get(name, name)
    if (plain := _PLAIN.get(name)) is not None:
        return plain, None
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale), None
    if found := _TIME.fullmatch(name):
        return pa.time64("us" if int(found[1]) <= 6 else "ns"), name
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
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise SchemaError(
            f"column {field.name} carries Spark metadata that is not a JSON object; remove the field "
            f"metadata {METADATA_KEY.decode()}, or write an object there"
        )
    return parsed


def is_collated(field: pa.Field) -> bool:
    """Whether strings of this column compare by a collation, and so not byte by byte."""
    tag = (field.metadata or {}).get(TYPE_KEY, b"").decode()
    if tag.startswith("string") and tag.split()[-1] != "UTF8_BINARY":
        return True
    return bool(spark_metadata(field).get(_COLLATIONS))


def is_variant(arrow: pa.DataType) -> bool:
    """Whether the struct is how Spark hands over a variant."""
    if not pa.types.is_struct(arrow) or arrow.num_fields != 2:
        return False
    marks = [(f.metadata or {}).get(b"variant") for f in arrow if f.name == "metadata"]
    return marks == [b"true"] and arrow.get_field_index("value") >= 0


def dotted_name(path: tuple[str, ...]) -> str:
    """A path of names as SQL writes it."""
    return ".".join(path) or "(the schema)"
