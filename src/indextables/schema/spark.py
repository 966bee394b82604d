"""Spark's schema in JSON, and the same schema in Arrow, exact in both directions."""

import json
from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema.conversion import storage_schema
from indextables.schema.type_info import (
    METADATA_KEY,
    REQUIRED_VOID,
    SPARK_NAMES,
    TYPE_KEY,
    TypeKind,
    dotted_name,
    is_variant,
    kind_of,
    parse_spark_type,
    spark_metadata,
    storage_kind_of,
)


def to_arrow(schema_string: str) -> pa.Schema:
    """The Arrow schema in which rows of this Spark schema (`StructType.json`) are stored.

    >>> to_arrow('{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,"metadata":{}}]}')
    a: int64 not null
    """
    try:
        parsed = json.loads(schema_string)
        if not isinstance(parsed, dict) or parsed.get("type") != "struct":
            raise SchemaError("the schema is not a struct; Spark's StructType.json is expected")
        return pa.schema(_fields(parsed, ()))
    except RecursionError:
        raise SchemaError("the schema is nested too deep") from None
    except ValueError as error:
        raise SchemaError(f"the schema is not JSON ({error}); Spark's StructType.json is expected") from None


def from_arrow(schema: pa.Schema) -> str:
    """The Spark schema (`StructType.json`) of rows with this Arrow schema, once they are stored.

    >>> from_arrow(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,"metadata":{}}]}'
    """
    fields = [_field_json(field, (field.name,)) for field in storage_schema(schema)]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"), ensure_ascii=False)


def _fields(struct: dict[str, Any], path: tuple[str, ...]) -> list[pa.Field]:
    fields = struct.get("fields")
    if not isinstance(fields, list):
        raise SchemaError(
            f"{dotted_name(path)} is a struct without fields; Spark's StructType.json is expected"
        )
    result = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise SchemaError(f"a field of {dotted_name(path)} has no name or no type: {field!r}")
        metadata = field.get("metadata") or {}
        extra = {METADATA_KEY: _compact_json(metadata)} if metadata else {}
        result.append(
            _field(
                field["name"],
                field["type"],
                (*path, field["name"]),
                extra,
                nullable=field.get("nullable", True),
            )
        )
    return result


def _field(
    name: str,
    json_type: str | dict[str, Any],
    path: tuple[str, ...],
    extra: dict[bytes, bytes] | None = None,
    *,
    nullable: bool,
) -> pa.Field:
    arrow, tag = _arrow(json_type, path)
    metadata = dict(extra or {})
    if kind_of(arrow) is TypeKind.NULL and not nullable:
        nullable, tag = True, REQUIRED_VOID
    if tag is not None:
        metadata[TYPE_KEY] = tag.encode()
    return pa.field(name, arrow, nullable=bool(nullable), metadata=metadata or None)


def _arrow(json_type: str | dict[str, Any], path: tuple[str, ...]) -> tuple[pa.DataType, str | None]:
    if isinstance(json_type, str):
        return parse_spark_type(json_type, path)
    match json_type:
        case {"type": "struct"}:
            return pa.struct(_fields(json_type, path)), None
        case {"type": "array", "elementType": element}:
            nulls = json_type.get("containsNull", True)
            return pa.list_(_field("element", element, (*path, "element"), nullable=nulls)), None
        case {"type": "map", "keyType": key, "valueType": value}:
            nulls = json_type.get("valueContainsNull", True)
            if key in ("void", "null"):
                raise SchemaError(
                    f"column {dotted_name(path)} is a map with keys of no type, which cannot be stored"
                )
            return pa.map_(
                _field("key", key, (*path, "key"), nullable=False),
                _field("value", value, (*path, "value"), nullable=nulls),
            ), None
        case {"type": "udt"}:
            kind = json_type.get("class") or json_type.get("pyClass") or "without a class"
            raise SchemaError(
                f"column {dotted_name(path)} has a user-defined type ({kind}), which cannot be stored; "
                "convert it to its SQL type first"
            )
        case _:
            raise SchemaError(f"column {dotted_name(path)} has a type that is not Spark's: {json_type!r}")


def _compact_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _field_json(field: pa.Field, path: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type_json(field, path),
        "nullable": _nullable(field),
        "metadata": spark_metadata(field),
    }


def _nullable(field: pa.Field) -> bool:
    return bool(field.nullable) and (field.metadata or {}).get(TYPE_KEY) != REQUIRED_VOID.encode()


def _type_json(field: pa.Field, path: tuple[str, ...]) -> object:
    arrow = field.type
    if (tag := (field.metadata or {}).get(TYPE_KEY)) is not None and parse_spark_type(tag.decode(), path)[
        0
    ] == arrow:
        return tag.decode()
    match storage_kind_of(arrow):
        case TypeKind.DECIMAL if 0 <= arrow.scale <= arrow.precision:
            return f"decimal({arrow.precision},{arrow.scale})"
        case TypeKind.LIST:
            element = _type_json(arrow.value_field, (*path, "element"))
            return {"type": "array", "elementType": element, "containsNull": _nullable(arrow.value_field)}
        case TypeKind.MAP:
            return {
                "type": "map",
                "keyType": _type_json(arrow.key_field, (*path, "key")),
                "valueType": _type_json(arrow.item_field, (*path, "value")),
                "valueContainsNull": _nullable(arrow.item_field),
            }
        case TypeKind.STRUCT if is_variant(arrow):
            return "variant"
        case TypeKind.STRUCT:
            return {"type": "struct", "fields": [_field_json(child, (*path, child.name)) for child in arrow]}
        case _ if (name := SPARK_NAMES.get(arrow)) is not None:
            return name
        case _:
            pass
    raise SchemaError(f"column {dotted_name(path)} has the Arrow type {arrow}, which no Spark type stores")


# --- differences between schemas -------------------------------------------------------------------


def column_difference(before: str, after: str, *, dropped: bool = True) -> str | None:
    """The first column of a schema that is missing in another one, or has another type there; as a sentence.

    Both are `StructType.json`. Nullability, comments and additional columns make no difference.

    Args:
        before: the schema with the columns.
        after: the schema that is compared with it.
        dropped: whether missing columns count, or only those of another type.

    >>> one = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
    >>> column_difference(one, one.replace("long", "string"))
    'the column a was long and is string now'
    """
    if before == after:
        return None
    columns = {field["name"]: _plain_type(field["type"]) for field in json.loads(after)["fields"]}
    for field in json.loads(before)["fields"]:
        name, was = field["name"], _plain_type(field["type"])
        if name not in columns:
            if dropped:
                return f"the column {name} is not in the table any more"
        elif columns[name] != was:
            return f"the column {name} was {_type_name(was)} and is {_type_name(columns[name])} now"
    return None


def _plain_type(type_json: Any) -> Any:  # noqa: ANN401 - JSON
    """A type without nullability and comments, which do not change its values."""
    if not isinstance(type_json, dict):
        return type_json
    match type_json.get("type"):
        case "struct":
            return ["struct", *([field["name"], _plain_type(field["type"])] for field in type_json["fields"])]
        case "array":
            return ["array", _plain_type(type_json["elementType"])]
        case "map":
            return ["map", _plain_type(type_json["keyType"]), _plain_type(type_json["valueType"])]
        case _:
            pass
    return type_json


def _type_name(plain: Any) -> str:  # noqa: ANN401 - JSON
    match plain:
        case ["struct", *fields]:
            return f"struct<{', '.join(f'{name}: {_type_name(kind)}' for name, kind in fields)}>"
        case ["array", element]:
            return f"array<{_type_name(element)}>"
        case ["map", key, value]:
            return f"map<{_type_name(key)}, {_type_name(value)}>"
        case _:
            pass
    return str(plain)
