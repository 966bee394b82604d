"""Resolves column names in a schema without case, with suggestions for unknown names."""

import difflib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.tree import Column
from indextables.schema.type_info import TypeKind, kind_of, sql_name, value_type

_LISTED = 20


def resolve(schema: pa.Schema, path: Sequence[str]) -> tuple[Column, pa.DataType]:
    """The column (in the schema's spelling) and the type of its values.

    Raises:
        PredicateError: There is no such column or field, or more than one.
    """
    fields: list[pa.Field] = list(schema)
    found: list[str] = []
    type_: pa.DataType = pa.null()
    for depth, name in enumerate(path):
        matching = [field for field in fields if field.name.lower() == name.lower()]
        if not matching:
            raise PredicateError(_unknown(path[: depth + 1], found, [field.name for field in fields]))
        if len(matching) > 1:
            raise PredicateError(
                f"{name} is ambiguous: {', '.join(field.name for field in matching)} differ only in case"
            )
        found.append(matching[0].name)
        type_ = value_type(matching[0].type)
        if depth + 1 < len(path):
            fields = _inner(found, type_)
    return Column(tuple(found)), type_


def suggestion(wrong: str, names: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing if no known name is near."""
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower()[:100], spelled, n=1)
    return f"; did you mean {spelled[near[0]]}?" if near else ""


def _inner(found: list[str], type_: pa.DataType) -> list[pa.Field]:
    if kind_of(type_) is TypeKind.STRUCT:
        return [type_.field(index) for index in range(type_.num_fields)]
    name = ".".join(found)
    if kind_of(type_) in {TypeKind.LIST, TypeKind.MAP}:
        raise PredicateError(
            f"{name} is an array or a map, whose elements have no names in a condition; name them as "
            f"{name}[0] or {name}['key'], or search them: {found[0]} INDEXQUERY '{name}.key:value'"
        )
    raise PredicateError(f"{name} is {sql_name(type_)} and has no fields")


def _unknown(path: Sequence[str], parents: list[str], names: list[str]) -> str:
    listed = ", ".join(names[:_LISTED]) + (
        f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )
    what = f"field {path[-1]} in {'.'.join(parents)}" if parents else f"column {path[-1]}"
    hint = suggestion(path[-1], names) or ";"
    return f"there is no {what}{hint} the {'fields' if parents else 'columns'} are {listed or 'none'}"
