"""The Arrow types that rows are stored in, and how other Arrow types become them.

A conversion keeps every value or is refused with the column's name: nothing is rounded, cut or wrapped.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from indextables.errors import SchemaError
from indextables.schema.types import (
    LOCAL_TIMESTAMP,
    METADATA_KEY,
    TYPE_KEY,
    UTC_TIMESTAMP,
    VARIANT,
    is_variant,
    parse_spark_type,
)

_DIRECT: dict[pa.DataType, pa.DataType] = {
    **{t: t for t in (pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{t: t for t in (pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())},
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT_IN = {
    pa.float32(): (pa.int8(), pa.int16()),
    pa.float64(): (pa.int8(), pa.int16(), pa.int32(), pa.float32()),
}


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which rows of this one are stored.

    >>> storage_schema(pa.schema([("a", pa.uint8()), ("b", pa.dictionary(pa.int8(), pa.large_string()))]))
    a: int16
    b: string
    """
    return pa.schema([_storage_field(field, field.name) for field in schema])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch as the stored schema wants it: columns by name, absent ones null, types widened."""
    names = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    known = {field.name.lower() for field in schema}
    if extra := [name for name in batch.schema.names if name.lower() not in known]:
        raise SchemaError(f"the table has no column {extra[0]}; its columns are {', '.join(schema.names)}")
    columns = []
    for field in schema:
        at = names.get(field.name.lower())
        source = pa.nulls(batch.num_rows, field.type) if at is None else batch.column(at)
        columns.append(convert_array(source, field, field.name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_stream(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, rows: int = 65_536, size: int = 64 << 20
) -> Iterator[pa.RecordBatch]:
    """Batches of at most so many rows and (unless one row is larger) about so many bytes, each cast."""
    for batch in batches:
        if not batch.num_rows:
            continue
        width = max(1, batch.nbytes // batch.num_rows)
        step = max(1, min(rows, size // width))
        for start in range(0, batch.num_rows, step):
            yield from _split_and_cast(batch.slice(start, step), schema, size)


def _split_and_cast(batch: pa.RecordBatch, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    # Rows are of uneven width: a slice with the widest ones may still be far too large.
    if batch.num_rows > 1 and batch.nbytes > 4 * size:
        half = batch.num_rows // 2
        yield from _split_and_cast(batch.slice(0, half), schema, size)
        yield from _split_and_cast(batch.slice(half), schema, size)
    else:
        yield cast_batch(batch, schema)


def convert_array(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """An array as the stored field wants it, or an error that names the column."""
    array = _decode(array)
    target = field.type
    if array.type != target:
        if not is_assignable(_storage_type(array.type, path), target):
            raise SchemaError(f"column {path} is {array.type}, but the table stores {target}; cast it first")
        array = _convert(array, target, path)
    if not field.nullable and array.null_count:
        raise SchemaError(f"column {path} must not be null, but {array.null_count} of {len(array)} rows are")
    if pt.is_nested(target):
        _check_nested_nulls(array, path)
    return array


def is_assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one stored type is also a value of the other (an int fits a long)."""
    if source == target or pt.is_null(source):
        return True
    if source in _DIGITS and target in _DIGITS:
        return bool(source.bit_width <= target.bit_width)
    if pt.is_decimal128(target):
        whole = target.precision - target.scale
        if pt.is_decimal128(source):
            return bool(source.scale <= target.scale and source.precision - source.scale <= whole)
        return bool(_DIGITS.get(source, 99) <= whole)
    if pt.is_time64(source) and pt.is_time64(target):
        return True
    if pt.is_list(source) and pt.is_list(target):
        return is_assignable(source.value_type, target.value_type)
    if pt.is_map(source) and pt.is_map(target):
        return is_assignable(source.key_type, target.key_type) and is_assignable(
            source.item_type, target.item_type
        )
    if pt.is_struct(source) and pt.is_struct(target):
        inner = {child.name.lower(): child for child in target}
        return all(
            c.name.lower() in inner and is_assignable(c.type, inner[c.name.lower()].type) for c in source
        )
    return source in _EXACT_IN.get(target, ())


def _storage_field(field: pa.Field, path: str) -> pa.Field:
    given = field.metadata or {}
    metadata = {key: value for key, value in given.items() if key == METADATA_KEY}
    named = parse_spark_type(given[TYPE_KEY].decode())[0] if TYPE_KEY in given else None
    # A name that does not go with the type was left behind by a cast, and means nothing.
    arrow = named if named == field.type else _storage_type(field.type, path)
    if named == arrow:
        metadata[TYPE_KEY] = given[TYPE_KEY]
    return pa.field(field.name, arrow, nullable=field.nullable, metadata=metadata or None)


def _storage_type(arrow: pa.DataType, path: str) -> pa.DataType:  # noqa: C901, PLR0911 - one line for each kind of type
    if (direct := _DIRECT.get(arrow)) is not None:
        return direct
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == "arrow.json":
        return pa.string()
    if pt.is_dictionary(arrow):
        return _storage_type(arrow.value_type, path)
    if pt.is_run_end_encoded(arrow):
        return _storage_type(arrow.value_type, path)
    if pt.is_fixed_size_binary(arrow):
        return pa.binary()
    if pt.is_timestamp(arrow):
        return LOCAL_TIMESTAMP if arrow.tz is None else UTC_TIMESTAMP
    if pt.is_time(arrow):
        return pa.time64("us")
    if pt.is_duration(arrow):
        return pa.duration("us")
    if pt.is_decimal(arrow):
        return _storage_decimal(arrow, path)
    if is_variant(arrow):
        return VARIANT
    if pt.is_struct(arrow):
        return pa.struct([_storage_field(child, f"{path}.{child.name}") for child in arrow])
    if pt.is_map(arrow):
        return pa.map_(
            _storage_field(arrow.key_field.with_name("key").with_nullable(False), f"{path}.key"),
            _storage_field(arrow.item_field.with_name("value"), f"{path}.value"),
        )
    if _is_list(arrow):
        return pa.list_(_storage_field(arrow.value_field.with_name("element"), f"{path}.element"))
    raise SchemaError(
        f"column {path} has the Arrow type {arrow}, which cannot be stored; cast it to a type that Spark has"
    )


def _is_list(arrow: pa.DataType) -> bool:
    kinds = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(is_kind(arrow) for is_kind in kinds)


def _storage_decimal(arrow: pa.DataType, path: str) -> pa.DataType:
    scale = max(arrow.scale, 0)
    precision = max(arrow.precision - min(arrow.scale, 0), scale)
    if precision > 38:
        raise SchemaError(
            f"column {path} is {arrow}, but Spark's decimals have at most 38 digits; cast it first"
        )
    return pa.decimal128(precision, scale)


def _decode(array: pa.Array) -> pa.Array:
    """Without an encoding around the values."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pt.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if pt.is_null(array.type):
        return pa.nulls(len(array), target)
    if pt.is_struct(target):
        return _convert_struct(array, target, path)
    if pt.is_map(target):
        # A gather packs the entries: those of a slice, and none behind a null.
        packed = array.take(pa.array(np.arange(len(array))))
        keys = convert_array(packed.keys, target.key_field, f"{path}.key")
        items = convert_array(packed.items, target.item_field, f"{path}.value")
        return pa.MapArray.from_arrays(packed.offsets, keys, items, type=target, mask=_nulls(array))
    if pt.is_list(target):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(lengths, dtype=np.int64)
        if len(ends) and ends[-1] > np.iinfo(np.int32).max:
            raise SchemaError(f"column {path} has too many elements in one batch; write smaller batches")
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        values = convert_array(array.flatten(), target.value_field, f"{path}.element")
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_nulls(array))
    try:
        made = array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {path} cannot be stored as {target}: {error}; cast or round it first"
        ) from None
    # Arrow drops the hours of a date in milliseconds without a word.
    if pt.is_date64(array.type) and not made.cast(pa.date64()).view(pa.int64()).equals(
        array.view(pa.int64())
    ):
        raise SchemaError(f"column {path} has dates that are not whole days; cast it to a timestamp first")
    return made


def _convert_struct(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    at = {child.name.lower(): i for i, child in enumerate(array.type)}
    children = []
    for child in target:
        inner = f"{path}.{child.name}"
        if (found := at.get(child.name.lower())) is None:
            children.append(pa.nulls(len(array), child.type))
        else:
            # Nulls below a null struct are no nulls of the child: they are looked at from above.
            children.append(convert_array(array.field(found), child.with_nullable(True), inner))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _check_nested_nulls(array: pa.Array, path: str) -> None:
    arrow = array.type
    if pt.is_struct(arrow):
        inner = list(zip(arrow, array.flatten(), strict=True))
        parents = array.null_count
    elif pt.is_list(arrow):
        inner, parents = [(arrow.value_field, array.flatten())], 0
    elif pt.is_map(arrow):
        entries = array.take(pa.array(np.arange(len(array)))) if array.offset or array.null_count else array
        inner, parents = [(arrow.key_field, entries.keys), (arrow.item_field, entries.items)], 0
    else:
        return
    for field, values in inner:
        if not field.nullable and values.null_count > parents:
            raise SchemaError(f"column {path}.{field.name} must not be null, but some values are")
        _check_nested_nulls(values, f"{path}.{field.name}")
