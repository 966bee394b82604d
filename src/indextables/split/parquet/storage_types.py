"""Arrow types that Parquet cannot store, and the types that store them.

A struct without fields gets one field `_empty`, always null; an interval of months, days and nanoseconds
becomes its 16 bytes. All other types are stored as they are.

Below a null struct, Arrow marks the fields as null even if they are required, and Parquet's writer then
rejects them as nulls of a required field. So the validity of required fields is removed: values below a null
struct are never read.
"""

import functools

import pyarrow as pa

from indextables.schema.type_info import TypeKind, child_fields, kind_of, replace_children, storage_kind_of

_EMPTY = pa.struct([pa.field("_empty", pa.bool_())])
_INTERVAL = pa.month_day_nano_interval()


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type that stores values of this type in Parquet.

    >>> storage_type(pa.struct([]))
    StructType(struct<_empty: bool>)
    """
    if kind == _INTERVAL:
        return pa.binary(16)
    if kind_of(kind) is TypeKind.STRUCT and not kind.num_fields:
        return _EMPTY
    return replace_children(kind, lambda field: field.with_type(storage_type(field.type)))


def to_storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the Parquet part, without `_row`."""
    return pa.schema([f.with_type(storage_type(f.type)) for f in schema], schema.metadata)


def to_storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the type that stores it, without validity bitmaps of required fields."""
    return strip_validity(_convert(column, storage_type(column.type)))


def from_storage(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column that was read, in its own type."""
    return _convert(column, type_)


def _convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type of the same layout."""
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_convert(chunk, kind) for chunk in column.chunks], kind)
    if _INTERVAL in (kind, column.type):
        buffers = column.buffers()
        return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset)
    match storage_kind_of(kind):
        case TypeKind.STRUCT if kind_of(column.type) is TypeKind.STRUCT:
            return _convert_struct(column, kind)
        case TypeKind.MAP | TypeKind.LIST:
            return _convert_lists(column, kind)
        case _:
            return column.cast(kind)


def _convert_struct(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind.num_fields == 0 or column.type.num_fields == 0:
        children = [] if kind.num_fields == 0 else [pa.nulls(len(column), pa.bool_())]
        return _struct(column, children, kind)
    # Fields by position, without the validity of the struct, which is added again below.
    children = [_convert(column.field(i).slice(0, len(column)), field.type) for i, field in enumerate(kind)]
    return _struct(column, children, kind)


def _struct(column: pa.Array, children: list[pa.Array], kind: pa.DataType) -> pa.Array:
    if not children:
        validity = column.is_valid().cast(pa.bool_())
        bits = validity.buffers()[1] if column.null_count else None
        return pa.Array.from_buffers(kind, len(column), [bits], -1, validity.offset)
    missing = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)


def _convert_lists(column: pa.Array, kind: pa.DataType) -> pa.Array:
    missing = column.is_null() if column.null_count else None
    offsets = column.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    shifted = pa.array(offsets.to_numpy() - start, pa.int32())
    if kind_of(kind) is TypeKind.MAP:
        keys = _convert(column.keys.slice(start, end - start), kind.key_type)
        items = _convert(column.items.slice(start, end - start), kind.item_type)
        return pa.MapArray.from_arrays(shifted, keys, items, type=kind, mask=missing)
    values = _convert(column.values.slice(start, end - start), kind.value_type)
    return pa.ListArray.from_arrays(shifted, values, type=kind, mask=missing)


def strip_validity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, without validity bitmaps of required fields."""
    if not _has_required(column.type):
        return column
    return pa.chunked_array([_strip_nested(chunk) for chunk in column.chunks], column.type)


@functools.cache
def _has_required(kind: pa.DataType) -> bool:
    """Whether the type has required fields, besides the keys of maps."""
    match storage_kind_of(kind):
        case TypeKind.STRUCT | TypeKind.LIST:
            return any(not field.nullable or _has_required(field.type) for field in child_fields(kind))
        case TypeKind.MAP:
            item = kind.item_field
            return not item.nullable or _has_required(item.type) or _has_required(kind.key_type)
        case _:
            return False


def _strip_field(values: pa.Array, field: pa.Field) -> pa.Array:
    values = _strip_nested(values) if _has_required(field.type) else values
    return values if field.nullable or not values.null_count else _drop_validity(values)


def _strip_nested(array: pa.Array) -> pa.Array:
    kind = array.type
    missing = array.is_null() if array.null_count else None
    if kind_of(kind) is TypeKind.STRUCT:
        children = [_strip_field(array.field(i), field) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    shifted = pa.array(offsets.to_numpy() - start, pa.int32())
    if kind_of(kind) is TypeKind.MAP:
        keys = _strip_field(array.keys.slice(start, end - start), kind.key_field)
        items = _strip_field(array.items.slice(start, end - start), kind.item_field)
        return pa.MapArray.from_arrays(shifted, keys, items, type=kind, mask=missing)
    values = _strip_field(array.values.slice(start, end - start), kind.value_field)
    return pa.ListArray.from_arrays(shifted, values, type=kind, mask=missing)


def _drop_validity(array: pa.Array) -> pa.Array:
    kind = array.type
    match storage_kind_of(kind):
        case TypeKind.STRUCT if kind.num_fields:
            children = [array.field(i) for i in range(kind.num_fields)]
            return pa.StructArray.from_arrays(children, fields=list(kind))
        case TypeKind.MAP:
            return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
        case TypeKind.LIST:
            return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
        case _:
            return _drop_validity_bitmap(array)


def _drop_validity_bitmap(array: pa.Array) -> pa.Array:
    _, *values = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [None, *values], 0, array.offset)
