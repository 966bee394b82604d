"""Fields that are never null, below structs that may be.

Where a struct is null its fields have no value, and Arrow marks them null; Parquet's writer then says that
a field which is never null is. So such marks are taken off: what stands below a null is never looked at.
"""

import functools

import pyarrow as pa
import pyarrow.types as pt


def unmarked(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same column, without marks of nulls on fields that are never null."""
    if not _promises(column.type):
        return column
    return pa.chunked_array([_inside(chunk) for chunk in column.chunks], column.type)


@functools.cache
def _promises(kind: pa.DataType) -> bool:
    """Whether something within it is never null, beside the keys of maps."""
    if pt.is_struct(kind):
        return any(not field.nullable or _promises(field.type) for field in kind)
    if pt.is_map(kind):
        return not kind.item_field.nullable or _promises(kind.item_type) or _promises(kind.key_type)
    if pt.is_list(kind):
        return not kind.value_field.nullable or _promises(kind.value_type)
    return False


def _field(values: pa.Array, field: pa.Field) -> pa.Array:
    values = _inside(values) if _promises(field.type) else values
    return values if field.nullable or not values.null_count else _without_marks(values)


def _inside(array: pa.Array) -> pa.Array:
    kind = array.type
    missing = array.is_null() if array.null_count else None
    if pt.is_struct(kind):
        children = [_field(array.field(i), field) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    shifted = pa.array(offsets.to_numpy() - start, pa.int32())
    if pt.is_map(kind):
        keys = _field(array.keys.slice(start, end - start), kind.key_field)
        items = _field(array.items.slice(start, end - start), kind.item_field)
        return pa.MapArray.from_arrays(shifted, keys, items, type=kind, mask=missing)
    values = _field(array.values.slice(start, end - start), kind.value_field)
    return pa.ListArray.from_arrays(shifted, values, type=kind, mask=missing)


def _without_marks(array: pa.Array) -> pa.Array:
    kind = array.type
    if pt.is_struct(kind):
        children = [array.field(i) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind)) if children else _whole(array)
    if pt.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pt.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
    return _whole(array)


def _whole(array: pa.Array) -> pa.Array:
    _, *values = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [None, *values], 0, array.offset)
