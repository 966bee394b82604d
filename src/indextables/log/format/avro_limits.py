"""Which Avro schemas are read at all (PROTOCOL.md, "Limits").

A schema comes with the file, so it is input like any other. One that refers to itself lets a few bytes nest
without end; one whose records take no bytes lets a count of a few bytes stand for any number of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indextables.limits import MAX_AVRO_DEPTH, MAX_AVRO_FIELDS
from indextables.log.format.avro import AvroError, Schema

_WIDTHS = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


@dataclass(frozen=True, slots=True)
class _Size:
    """The fewest bytes that a value takes, and how many fields it has with all that is in it."""

    width: int
    fields: int


def check_schema(schema: Schema) -> None:
    """Refuse a schema that is malformed, nested too deep, refers to itself, or lists values of no bytes.

    Raises:
        AvroError: it says what is wrong.
    """
    try:
        size = _size(schema, {}, "", 0)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, AvroError):
            raise
        raise AvroError(f"the schema is malformed ({error!r})") from error
    if size.width == 0:
        raise AvroError("the schema describes records that take no bytes")


def _size(schema: Schema, named: dict[str, _Size], namespace: str, depth: int) -> _Size:
    if depth > MAX_AVRO_DEPTH:
        raise AvroError(f"the schema is nested more than {MAX_AVRO_DEPTH} deep")
    if isinstance(schema, str):
        return _named(schema, named, namespace)
    if isinstance(schema, list):
        branches = [_size(branch, named, namespace, depth + 1) for branch in schema]
        return _limited(1, 1 + sum(branch.fields for branch in branches))
    match schema["type"]:
        case "record":
            return _record(schema, named, namespace, depth)
        case "array" | "map" as kind:
            items = _size(schema["items" if kind == "array" else "values"], named, namespace, depth + 1)
            if kind == "array" and items.width == 0:
                raise AvroError("the schema has a list of values that take no bytes")
            return _limited(1, 1 + items.fields)
        case "fixed":
            return _declared(schema, named, namespace, _Size(max(int(schema["size"]), 0), 1))
        case "enum":
            return _declared(schema, named, namespace, _Size(1, 1))
        case inner:
            return _size(inner, named, namespace, depth + 1)


def _record(schema: Mapping[str, Any], named: dict[str, _Size], namespace: str, depth: int) -> _Size:
    # Its name is known only after its fields: what refers to itself refers to nothing.
    inner = full_name(schema, namespace).rpartition(".")[0]
    sizes = [_size(field["type"], named, inner, depth + 1) for field in schema["fields"]]
    size = _limited(sum(size.width for size in sizes), 1 + sum(size.fields for size in sizes))
    return _declared(schema, named, namespace, size)


def _named(name: str, named: Mapping[str, _Size], namespace: str) -> _Size:
    if name in _WIDTHS:
        return _Size(_WIDTHS[name], 1)
    for full in (f"{namespace}.{name}", name):
        if full in named:
            return named[full]
    raise AvroError(f"the schema refers to a type {name!r} that it does not declare before")


def _declared(schema: Mapping[str, Any], named: dict[str, _Size], namespace: str, size: _Size) -> _Size:
    named[full_name(schema, namespace)] = size
    return size


def full_name(schema: Mapping[str, Any], namespace: str) -> str:
    """The name of a declared type, with its namespace."""
    name: str = schema["name"]
    space = schema.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _limited(width: int, fields: int) -> _Size:
    if fields > MAX_AVRO_FIELDS:
        raise AvroError(f"the schema has more than {MAX_AVRO_FIELDS} fields")
    return _Size(width, fields)
