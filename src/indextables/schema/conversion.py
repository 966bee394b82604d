"""Storage types, conversion of rows to them, and schema evolution.

A conversion preserves every value, or raises an error with the name of the column: values are never rounded,
truncated or wrapped.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import ColumnTypeError, NewColumnError, SchemaError
from indextables.schema.type_info import (
    LOCAL_TIMESTAMP,
    METADATA_KEY,
    NESTED,
    TYPE_KEY,
    UTC_TIMESTAMP,
    VARIANT,
    TypeKind,
    common_kind,
    info_of,
    is_collated,
    is_variant,
    kind_of,
    parse_spark_type,
    storage_kind_of,
)

# The signed or wider types that hold all values of types that Spark does not have.
_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
_STORAGE_TYPES: dict[TypeKind, pa.DataType] = {
    TypeKind.STRING: pa.string(),
    TypeKind.BINARY: pa.binary(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIMESTAMP: UTC_TIMESTAMP,
    TypeKind.TIMESTAMP_NTZ: LOCAL_TIMESTAMP,
    TypeKind.TIME: pa.time64("us"),
    TypeKind.INTERVAL: pa.duration("us"),
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT_IN = {
    pa.float32(): (pa.int8(), pa.int16()),
    pa.float64(): (pa.int8(), pa.int16(), pa.int32(), pa.float32()),
}
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
# Names of system columns.
RESERVED_NAMES = ("_row", "_score", "_indexall")


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The storage schema of an Arrow schema.

    >>> storage_schema(pa.schema([("a", pa.uint8()), ("b", pa.dictionary(pa.int8(), pa.large_string()))]))
    a: int16
    b: string
    """
    return pa.schema([_storage_field(field, field.name) for field in schema])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in a storage schema: columns by name, missing ones null, types widened."""
    names = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    target_names = {field.name.lower() for field in schema}
    if extra := [name for name in batch.schema.names if name.lower() not in target_names]:
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
    """The batches in a storage schema, split to at most `rows` rows and about `size` bytes each."""
    for batch in batches:
        if not batch.num_rows:
            continue
        width = max(1, batch.nbytes // batch.num_rows)
        step = max(1, min(rows, size // width))
        for start in range(0, batch.num_rows, step):
            yield from _split_and_cast(batch.slice(start, step), schema, size)


def _split_and_cast(batch: pa.RecordBatch, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    # Rows differ in size, so a slice with the largest ones may still be too large.
    if batch.num_rows > 1 and batch.nbytes > 4 * size:
        half = batch.num_rows // 2
        yield from _split_and_cast(batch.slice(0, half), schema, size)
        yield from _split_and_cast(batch.slice(half), schema, size)
    else:
        yield cast_batch(batch, schema)


def convert_array(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """An array in the type of a storage field; SchemaError, with the column, if a value does not fit."""
    array = _decode(array)
    target = field.type
    if array.type != target:
        if not is_assignable(_storage_type(array.type, path), target):
            raise SchemaError(f"column {path} is {array.type}, but the table stores {target}; cast it first")
        array = _convert(array, target, path)
    if not field.nullable and array.null_count:
        raise SchemaError(f"column {path} must not be null, but {array.null_count} of {len(array)} rows are")
    if kind_of(target) in NESTED:
        _check_nested_nulls(array, path)
    return array


def is_assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one storage type is a value of the other (an int is a long)."""
    if source == target or kind_of(source) is TypeKind.NULL:
        return True
    if source in _DIGITS and target in _DIGITS:
        return bool(source.bit_width <= target.bit_width)
    if source in _DIGITS and storage_kind_of(target) is TypeKind.DECIMAL:
        return bool(_DIGITS[source] <= target.precision - target.scale)
    match common_kind(source, target):
        case TypeKind.DECIMAL:
            whole = target.precision - target.scale
            return bool(source.scale <= target.scale and source.precision - source.scale <= whole)
        case TypeKind.TIME:
            return True
        case TypeKind.LIST:
            return is_assignable(source.value_type, target.value_type)
        case TypeKind.MAP:
            return is_assignable(source.key_type, target.key_type) and is_assignable(
                source.item_type, target.item_type
            )
        case TypeKind.STRUCT:
            inner = {child.name.lower(): child for child in target}
            return all(
                c.name.lower() in inner and is_assignable(c.type, inner[c.name.lower()].type) for c in source
            )
        case _:
            return source in _EXACT_IN.get(target, ())


def _storage_field(field: pa.Field, path: str) -> pa.Field:
    metadata_ = field.metadata or {}
    metadata = {key: value for key, value in metadata_.items() if key == METADATA_KEY}
    tag_type = parse_spark_type(metadata_[TYPE_KEY].decode())[0] if TYPE_KEY in metadata_ else None
    # A tag of another type remains from a cast, and is ignored.
    arrow = tag_type if tag_type == field.type else _storage_type(field.type, path)
    if tag_type == arrow:
        metadata[TYPE_KEY] = metadata_[TYPE_KEY]
    return pa.field(field.name, arrow, nullable=field.nullable, metadata=metadata or None)


def _storage_type(arrow: pa.DataType, path: str) -> pa.DataType:  # noqa: C901 - one case for each kind
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == "arrow.json":
        return pa.string()
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return _storage_type(arrow.value_type, path)
    match kind_of(arrow):
        case TypeKind.NULL | TypeKind.BOOLEAN:
            return arrow
        case TypeKind.INTEGER | TypeKind.FLOAT:
            return _WIDER.get(arrow, arrow)
        case TypeKind.STRING | TypeKind.BINARY | TypeKind.DATE | TypeKind.TIME | TypeKind.INTERVAL as kind:
            return _STORAGE_TYPES[kind]
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ as kind:
            return _STORAGE_TYPES[kind]
        case TypeKind.DECIMAL:
            return _storage_decimal(arrow, path)
        case TypeKind.STRUCT:
            if is_variant(arrow):
                return VARIANT
            return pa.struct([_storage_field(child, f"{path}.{child.name}") for child in arrow])
        case TypeKind.MAP:
            return pa.map_(
                _storage_field(arrow.key_field.with_name("key").with_nullable(False), f"{path}.key"),
                _storage_field(arrow.item_field.with_name("value"), f"{path}.value"),
            )
        case TypeKind.LIST:
            return pa.list_(_storage_field(arrow.value_field.with_name("element"), f"{path}.element"))
        case TypeKind.OTHER:
            raise SchemaError(
                f"column {path} has the Arrow type {arrow}, which cannot be stored; "
                "cast it to a type that Spark has"
            )
        case kind:
            assert_never(kind)


def _storage_decimal(arrow: pa.DataType, path: str) -> pa.DataType:
    scale = max(arrow.scale, 0)
    precision = max(arrow.precision - min(arrow.scale, 0), scale)
    if precision > 38:
        raise SchemaError(
            f"column {path} is {arrow}, but Spark's decimals have at most 38 digits; cast it first"
        )
    return pa.decimal128(precision, scale)


def _decode(array: pa.Array) -> pa.Array:
    """The array without dictionary or run-end encoding; of an extension type the storage array."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if isinstance(array.type, pa.DictionaryType):
        # Arrow cannot select views, in which Polars has the texts of its categories.
        if array.type.value_type in _VIEWS:
            texts = array.dictionary.cast(_VIEWS[array.type.value_type])
            array = pa.DictionaryArray.from_arrays(array.indices, texts)
        array = array.dictionary_decode()
    if isinstance(array.type, pa.RunEndEncodedType):
        array = pc.run_end_decode(array)
    return array


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if kind_of(array.type) is TypeKind.NULL:
        return pa.nulls(len(array), target)
    match storage_kind_of(target):
        case TypeKind.STRUCT:
            return _convert_struct(array, target, path)
        case TypeKind.MAP:
            # `take` copies only the entries of the slice that are not below a null.
            packed = array.take(pa.array(np.arange(len(array))))
            keys = convert_array(packed.keys, target.key_field, f"{path}.key")
            items = convert_array(packed.items, target.item_field, f"{path}.value")
            return pa.MapArray.from_arrays(packed.offsets, keys, items, type=target, mask=_nulls(array))
        case TypeKind.LIST:
            return _convert_list(array, target, path)
        case _:
            return _convert_value(array, target, path)


def _convert_list(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise SchemaError(f"column {path} has too many elements in one batch; write smaller batches")
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    values = convert_array(array.flatten(), target.value_field, f"{path}.element")
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=_nulls(array))


def _convert_value(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        result = array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {path} cannot be stored as {target}: {error}; cast or round it first"
        ) from None
    # Arrow silently drops the time of day of a date in milliseconds.
    is_millis = array.type == pa.date64()
    if is_millis and not result.cast(pa.date64()).view(pa.int64()).equals(array.view(pa.int64())):
        raise SchemaError(f"column {path} has dates that are not whole days; cast it to a timestamp first")
    return result


def _convert_struct(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    at = {child.name.lower(): i for i, child in enumerate(array.type)}
    children = []
    for child in target:
        inner = f"{path}.{child.name}"
        if (position := at.get(child.name.lower())) is None:
            children.append(pa.nulls(len(array), child.type))
        else:
            # Nulls below a null struct are not nulls of the child; they are checked from the struct.
            children.append(convert_array(array.field(position), child.with_nullable(True), inner))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _check_nested_nulls(array: pa.Array, path: str) -> None:
    arrow = array.type
    match storage_kind_of(arrow):
        case TypeKind.STRUCT:
            inner = list(zip(arrow, array.flatten(), strict=True))
            parents = array.null_count
        case TypeKind.LIST:
            inner, parents = [(arrow.value_field, array.flatten())], 0
        case TypeKind.MAP:
            every = pa.array(np.arange(len(array)))
            entries = array.take(every) if array.offset or array.null_count else array
            inner, parents = [(arrow.key_field, entries.keys), (arrow.item_field, entries.items)], 0
        case _:
            return
    for field, values in inner:
        if not field.nullable and values.null_count > parents:
            raise SchemaError(f"column {path}.{field.name} must not be null, but some values are")
        _check_nested_nulls(values, f"{path}.{field.name}")


def check_names(schema: pa.Schema, reserved: Iterable[str] = RESERVED_NAMES) -> None:
    """Refuse names that are empty, reserved, or equal without case, as Spark compares them."""
    reserved_names = {name.lower() for name in reserved}
    for field in schema:
        if field.name.lower() in reserved_names:
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
    columns: list[str] = []
    for name in names:
        field = next((f for f in schema if f.name.lower() == name.lower()), None)
        if field is None:
            raise SchemaError(
                f"the table has no column {name} to partition by; its columns are {', '.join(schema.names)}"
            )
        if field.name in columns:
            raise SchemaError(f"the table is to be partitioned by {field.name} twice; name it once")
        if not info_of(field.type).partitionable or is_collated(field):
            raise SchemaError(
                f"column {field.name} is {field.type}, and the table cannot be partitioned by it; "
                "choose a column of numbers, dates, times, booleans or strings without a collation"
            )
        columns.append(field.name)
    if columns and len(columns) == len(schema):
        raise SchemaError("the table is to be partitioned by every column; leave one for the rows")
    return tuple(columns)


def _check_field_names(fields: list[pa.Field], path: tuple[str, ...]) -> None:
    spellings: dict[str, str] = {}
    for field in fields:
        where = ".".join((*path, field.name))
        if not field.name:
            place = f"in {'.'.join(path)}" if path else "of the table"
            raise SchemaError(f"a column {place} has an empty name; name it")
        if (other := spellings.get(field.name.lower())) is not None:
            raise SchemaError(
                f"the columns {'.'.join((*path, other))} and {where} differ at most in case, and Spark "
                "does not distinguish them; rename one"
            )
        spellings[field.name.lower()] = field.name
        _check_type(field.type, (*path, field.name))


def _check_type(arrow: pa.DataType, path: tuple[str, ...]) -> None:
    match kind_of(arrow):
        case TypeKind.STRUCT:
            _check_field_names(list(arrow), path)
        case TypeKind.MAP:
            _check_type(arrow.key_type, (*path, "key"))
            _check_type(arrow.item_type, (*path, "value"))
        case TypeKind.LIST:
            _check_type(arrow.value_type, (*path, "element"))
        case _:
            pass


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
        raise NewColumnError(".".join((*path, first.name)))
    return result + [field.with_nullable(True) for field in incoming_by_name.values()]


def _merge_types(table: pa.DataType, new: pa.DataType, path: tuple[str, ...], *, merge: bool) -> pa.DataType:
    match common_kind(table, new):
        case TypeKind.STRUCT:
            return pa.struct(_merge_fields(list(table), list(new), path, merge=merge))
        case TypeKind.LIST:
            element = _merge_types(table.value_type, new.value_type, (*path, "element"), merge=merge)
            return pa.list_(table.value_field.with_type(element))
        case TypeKind.MAP:
            key = _merge_types(table.key_type, new.key_type, (*path, "key"), merge=False)
            item = _merge_types(table.item_type, new.item_type, (*path, "value"), merge=merge)
            return pa.map_(table.key_field.with_type(key), table.item_field.with_type(item))
        case _ if is_assignable(new, table):
            return table
        case _ if merge and kind_of(table) is TypeKind.NULL:
            return new
        case _:
            raise ColumnTypeError(".".join(path), str(table), str(new))


Offsets: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def map_parts(array: pa.MapArray) -> tuple[Offsets, pa.Array, pa.Array]:
    """Offsets from 0 on, keys and items, without children outside of the slice or below nulls."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.keys.slice(start, length), array.items.slice(start, length)


def list_parts(array: pa.ListArray) -> tuple[Offsets, pa.Array]:
    """Offsets from 0 on, and values, without children outside of the slice or below nulls."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.values.slice(start, length)


def map_of(offsets: Offsets, keys: pa.Array, items: pa.Array, mask: pa.Array | None) -> pa.MapArray:
    """The map with these parts; null where the mask is true."""
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)


def convert_leaves(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The array with the values within structs, lists and maps converted; of other arrays its own values."""
    match kind_of(array.type):
        case TypeKind.STRUCT if array.type.num_fields:
            children = [
                convert_leaves(pc.struct_field(array, [i]), convert) for i in range(array.type.num_fields)
            ]
            fields = [
                pa.field(field.name, child.type) for field, child in zip(array.type, children, strict=True)
            ]
            return pa.StructArray.from_arrays(children, fields=fields, mask=null_mask(array))
        case TypeKind.LIST:
            if storage_kind_of(array.type) is not TypeKind.LIST:
                array = array.cast(pa.list_(array.type.value_type))
            offsets, values = list_parts(array)
            inner = convert_leaves(values, convert)
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, mask=null_mask(array))
        case TypeKind.MAP:
            offsets, keys, items = map_parts(array)
            keys, items = convert_leaves(keys, convert), convert_leaves(items, convert)
            return map_of(offsets, keys, items, null_mask(array))
        case _:
            return convert(array)


def as_mask(array: pa.Array, *, null: bool = False) -> Mask:
    """Convert a boolean Arrow array to a NumPy array."""
    filled = pc.fill_null(array, null) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which rows are null; None if there are none."""
    return array.is_null() if array.null_count else None


def select_offsets(offsets: Offsets, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> Offsets:
    """The offsets after a selection of the children."""
    counts = np.zeros(len(keep) + 1, np.int32)
    np.cumsum(keep, out=counts[1:])
    return counts[offsets]


def lookup(maps: pa.MapArray, key: str) -> tuple[pa.Array, Mask]:
    """For each map of strings the value under a key, and whether the key is there.

    Arrow's own `map_lookup` takes several times as long.
    """
    offsets, keys, items = map_parts(maps)
    keys, items = keys.cast(pa.string()), items.cast(pa.string())
    if (same := _same_places(offsets, keys, key)) is not None:
        return items.take(same), np.ones(len(maps), np.bool_)
    hits = np.flatnonzero(as_mask(pc.equal(keys, key)))
    owners = owners_of(offsets, hits)
    present = np.zeros(len(maps), np.bool_)
    present[owners] = True
    places = np.zeros(len(maps), np.int64)
    places[owners] = hits
    return items.take(pa.array(places, mask=~present)), present


def owners_of(offsets: Offsets, places: Places) -> Places:
    """Which list or map each of these children belongs to."""
    widths = np.diff(offsets)
    if len(widths) and widths[0] > 0 and (widths == widths[0]).all():
        return places // int(widths[0])
    return np.searchsorted(offsets, places, side="right") - 1


def _same_places(offsets: Offsets, keys: pa.Array, key: str) -> pa.Array | None:
    """The positions of the key, if all maps have the same keys in the same order, as those of one writer."""
    widths = np.diff(offsets)
    width = int(widths[0]) if len(widths) else 0
    if not width or not (widths == width).all():
        return None
    first = pc.index(keys.slice(0, width), key).as_py()
    if first < 0:
        return None
    places = pa.array(np.arange(first, len(keys), width))
    return places if as_mask(pc.equal(keys.take(places), key)).all() else None


def _offsets(array: pa.Array) -> tuple[Offsets, int, int]:
    if len(array) == 0:
        return np.zeros(1, np.int32), 0, 0
    offsets: Offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - np.int32(start), start, end - start


def _plain(array: pa.Array) -> pa.Array:
    """The array; rebuilt if a null row has children, which Arrow allows."""
    if array.null_count and len(array):
        lengths = np.diff(array.offsets.to_numpy())
        if lengths[array.is_null().to_numpy(zero_copy_only=False)].any():
            # `take` copies no children below a null; Python has no objects for all times.
            return array.take(pa.array(np.arange(len(array))))
    return array
