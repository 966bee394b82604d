"""Schema evolution: valid columns of a table, and schemas that can be appended to it."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pt

from indextables.errors import SchemaError
from indextables.schema.conversion import is_assignable, storage_schema
from indextables.schema.type_info import info_of, is_collated

# Names of system columns.
RESERVED_NAMES = ("_row", "_score", "_indexall")


def check_names(schema: pa.Schema, reserved: Iterable[str] = RESERVED_NAMES) -> None:
    """Refuse names that are empty, reserved, or equal without case, as Spark compares them."""
    taken = {name.lower() for name in reserved}
    for field in schema:
        if field.name.lower() in taken:
            raise SchemaError(f"the column name {field.name} is reserved; rename the column")
    _check_field_names(list(schema), ())


def check_append(table: pa.Schema, incoming: pa.Schema, *, merge: bool) -> pa.Schema:
    """The table's schema after an append of rows with a schema.

    Columns may be in any order and any case. A missing column becomes null if it is nullable. A narrower
    type is widened (an int becomes a long). New columns need `merge` (the option `mergeSchema`), and are
    nullable.

    Raises:
        SchemaError: A column does not fit; the message names it.
    """
    check_names(incoming)
    return pa.schema(_merge_fields(list(table), list(storage_schema(incoming)), (), merge=merge))


def check_partition_columns(schema: pa.Schema, names: Iterable[str]) -> tuple[str, ...]:
    """The partition columns in the schema's spelling; SchemaError for missing and unsuitable ones."""
    found: list[str] = []
    for name in names:
        field = next((f for f in schema if f.name.lower() == name.lower()), None)
        if field is None:
            raise SchemaError(
                f"the table has no column {name} to partition by; its columns are {', '.join(schema.names)}"
            )
        if field.name in found:
            raise SchemaError(f"the table is to be partitioned by {field.name} twice; name it once")
        if not info_of(field.type).partitionable or is_collated(field):
            raise SchemaError(
                f"column {field.name} is {field.type}, and the table cannot be partitioned by it; "
                "choose a column of numbers, dates, times, booleans or strings without a collation"
            )
        found.append(field.name)
    if found and len(found) == len(schema):
        raise SchemaError("the table is to be partitioned by every column; leave one for the rows")
    return tuple(found)


def _check_field_names(fields: list[pa.Field], path: tuple[str, ...]) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        where = ".".join((*path, field.name))
        if not field.name:
            place = f"in {'.'.join(path)}" if path else "of the table"
            raise SchemaError(f"a column {place} has an empty name; name it")
        if (other := seen.get(field.name.lower())) is not None:
            raise SchemaError(
                f"the columns {'.'.join((*path, other))} and {where} differ at most in case, and Spark "
                "does not distinguish them; rename one"
            )
        seen[field.name.lower()] = field.name
        _check_type(field.type, (*path, field.name))


def _check_type(arrow: pa.DataType, path: tuple[str, ...]) -> None:
    if pt.is_struct(arrow):
        _check_field_names(list(arrow), path)
    elif pt.is_map(arrow):
        _check_type(arrow.key_type, (*path, "key"))
        _check_type(arrow.item_type, (*path, "value"))
    elif pt.is_nested(arrow) and arrow.num_fields == 1:
        _check_type(arrow.value_type, (*path, "element"))


def _merge_fields(
    table: list[pa.Field], incoming: list[pa.Field], path: tuple[str, ...], *, merge: bool
) -> list[pa.Field]:
    incoming_by_name = {field.name.lower(): field for field in incoming}
    result = []
    for field in table:
        where = (*path, field.name)
        new = incoming_by_name.pop(field.name.lower(), None)
        if new is not None:
            result.append(field.with_type(_merge_types(field.type, new.type, where, merge=merge)))
        elif field.nullable:
            result.append(field)
        else:
            raise SchemaError(
                f"column {'.'.join(where)} must not be null, but the rows to append do not have it"
            )
    if incoming_by_name and not merge:
        first = next(iter(incoming_by_name.values()))
        raise SchemaError(
            f"the table has no column {'.'.join((*path, first.name))}; "
            "set mergeSchema to add it, or leave the column out"
        )
    return result + [field.with_nullable(True) for field in incoming_by_name.values()]


def _merge_types(table: pa.DataType, new: pa.DataType, path: tuple[str, ...], *, merge: bool) -> pa.DataType:
    if pt.is_struct(table) and pt.is_struct(new):
        return pa.struct(_merge_fields(list(table), list(new), path, merge=merge))
    if pt.is_list(table) and pt.is_list(new):
        element = _merge_types(table.value_type, new.value_type, (*path, "element"), merge=merge)
        return pa.list_(table.value_field.with_type(element))
    if pt.is_map(table) and pt.is_map(new):
        key = _merge_types(table.key_type, new.key_type, (*path, "key"), merge=False)
        item = _merge_types(table.item_type, new.item_type, (*path, "value"), merge=merge)
        return pa.map_(table.key_field.with_type(key), table.item_field.with_type(item))
    if is_assignable(new, table):
        return table
    if merge and pt.is_null(table):
        return new
    raise SchemaError(
        f"column {'.'.join(path)} is {table} in the table, but {new} in the rows to append; "
        "cast it to the table's type"
    )
