"""The table's files as Arrow: one row an entry, one column a field of a manifest (PROTOCOL.md, "Entries").

Columns have their names on disk. A null partition value, which has a reserved name on disk, is a null inside
the `partitionValues` map here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogError, SchemaError
from indextables.log.format.actions import Add, Int32, Int64, Remove
from indextables.log.format.avro import NAMESPACE
from indextables.log.format.state_manifest import Bounds
from indextables.schema.conversion import lookup, map_of, map_parts, null_mask
from indextables.schema.type_info import TypeKind, kind_of
from indextables.schema.values import NULL_PARTITION, PARQUET_TAG, parse_values

# The fields of an entry in their order, with their ids in Avro. Names and types are those of `Add`, which is
# the form in JSON; the forms in Arrow and Avro are derived from it.
_FIELD_IDS = {
    "path": 100,
    "partitionValues": 101,
    "size": 102,
    "modificationTime": 103,
    "dataChange": 104,
    "stats": 110,
    "minValues": 111,
    "maxValues": 112,
    "numRecords": 113,
    "footerStartOffset": 120,
    "footerEndOffset": 121,
    "hasFooterOffsets": 124,
    "deleteOpstamp": 123,
    "splitTags": 132,
    "numMergeOps": 134,
    "docMappingJson": 133,
    "docMappingRef": 135,
    "uncompressedSizeBytes": 136,
    "timeRangeStart": 137,
    "timeRangeEnd": 138,
    "addedAtVersion": 140,
    "addedAtTimestamp": 141,
    "companionSourceFiles": 150,
    "companionDeltaVersion": 151,
    "companionFastFieldMode": 152,
}
# The fields of an entry that an `add` does not have.
_ADDED = {"addedAtVersion": pa.int64(), "addedAtTimestamp": pa.int64()}
# The values of required fields that a writer left out; a path has no default.
_DEFAULTS: dict[str, Any] = {
    "partitionValues": [],
    "size": 0,
    "modificationTime": 0,
    "dataChange": True,
    "hasFooterOffsets": False,
    "addedAtVersion": 0,
    "addedAtTimestamp": 0,
}
# The required fields with a default in the Avro schema, too.
_AVRO_DEFAULTS = ("hasFooterOffsets", "addedAtVersion", "addedAtTimestamp")
_AVRO_TYPES: dict[pa.DataType, Any] = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.map_(pa.string(), pa.string()): {"type": "map", "values": "string"},
    pa.list_(pa.string()): {"type": "array", "items": "string"},
}


def _arrow_type(annotation: Any) -> pa.DataType:  # noqa: ANN401 - any type of Python
    """The Arrow type of a field of `Add`. A field with texts or numbers is a text."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    types: dict[Any, pa.DataType] = {
        str: pa.string(),
        bool: pa.bool_(),
        Int64: pa.int64(),
        Int32: pa.int32(),
        dict: pa.map_(pa.string(), pa.string()),
        list: pa.list_(pa.string()),
    }
    return types[annotation] if annotation in types else types[get_origin(annotation)]


def _files_schema() -> pa.Schema:
    types = get_type_hints(Add, include_extras=True)
    own = {name: _arrow_type(types[_attribute(name)]) for name in _FIELD_IDS if name not in _ADDED}
    return pa.schema([(name, (own | _ADDED)[name]) for name in _FIELD_IDS])


def _avro_field(field: pa.Field) -> dict[str, Any]:
    kind, field_id = _AVRO_TYPES[field.type], _FIELD_IDS[field.name]
    if field.name != "path" and field.name not in _DEFAULTS:
        return {"name": field.name, "type": ["null", kind], "default": None, "field-id": field_id}
    default = {"default": _DEFAULTS[field.name]} if field.name in _AVRO_DEFAULTS else {}
    return {"name": field.name, "type": kind, **default, "field-id": field_id}


def _attribute(name: str) -> str:
    """`minValues` on disk is `min_values` in Python."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


FILES: pa.Schema = _files_schema()
FILE_ENTRY: dict[str, Any] = {
    "type": "record",
    "name": "FileEntry",
    "namespace": NAMESPACE,
    "fields": [_avro_field(field) for field in FILES],
}


def empty() -> pa.Table:
    """No files."""
    return FILES.empty_table()


# --- converting columns to those of `FILES` -----------------------------------------------------------


def conform(files: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The files with exactly the columns of `FILES`, or with some of them.

    A missing column, or a null in a required one, gets the default; unknown columns are dropped; older types
    are widened.

    Raises:
        LogError: there are no paths, or a column has a type that cannot be converted.
    """
    if columns is None and files.schema == FILES:
        return files
    names = FILES.names if columns is None else list(columns)
    fields = [FILES.field(name) for name in names]
    present = set(files.column_names)
    arrays = [
        _conform_column(files.column(field.name), field)
        if field.name in present
        else _missing(field, files.num_rows)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _conform_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type != field.type:
        try:
            column = _cast(column, field.type)
        except pa.ArrowException as error:
            raise LogError(f"field {field.name} is {column.type}, expected {field.type} ({error})") from error
    if field.name == "partitionValues":
        column = pa.chunked_array([_null_values(chunk) for chunk in column.chunks], field.type)
    if column.null_count and field.name in _DEFAULTS:
        column = _fill_column(column, field)
    if column.null_count and field.name == "path":
        raise LogError("an entry has no path")
    return column


def _missing(field: pa.Field, rows: int) -> pa.Array:
    if field.name == "path":
        raise LogError("the entries have no field path")
    if field.name not in _DEFAULTS:
        return pa.nulls(rows, field.type)
    return pa.repeat(pa.scalar(_DEFAULTS[field.name], field.type), rows)


def _fill_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    default = pa.scalar(_DEFAULTS[field.name], field.type)
    if kind_of(field.type) is not TypeKind.MAP:
        return pc.fill_null(column, default)
    rows = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    offsets, keys, items = map_parts(rows)
    return pa.chunked_array([map_of(offsets, keys, items, None)])


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if kind_of(kind) is TypeKind.MAP and kind_of(column.type) is TypeKind.MAP:
        return pa.chunked_array([_cast_map(chunk) for chunk in column.chunks], kind)
    return column.cast(kind)


def _cast_map(array: pa.MapArray) -> pa.MapArray:
    """The map with nullable strings; without a copy if only the flags differ."""
    offsets, keys, items = map_parts(array)
    return map_of(offsets, keys.cast(pa.string()), items.cast(pa.string()), null_mask(array))


def _null_values(array: pa.MapArray) -> pa.MapArray:
    """The map with nulls in place of the reserved name of a null partition value."""
    offsets, keys, items = map_parts(array)
    is_null = pc.equal(items, NULL_PARTITION)
    if not pc.any(is_null).as_py():
        return array
    items = pc.if_else(is_null, pa.scalar(None, pa.string()), items)
    return map_of(offsets, keys, items, null_mask(array))


# --- from and to actions ---------------------------------------------------------------------------


def from_adds(adds: Sequence[Add], *, version: int, timestamp: int) -> pa.Table:
    """The files that the actions add at a version.

    Args:
        adds: the actions, one row each, in their order.
        version: the version that adds them.
        timestamp: the time of that version, in milliseconds.
    """
    rows = len(adds)
    columns: dict[str, pa.Array] = {}
    for field in FILES:
        if field.name in _ADDED:
            continue
        values = list(map(_GETTERS[field.name], adds))
        columns[field.name] = _column(field, values)
    columns["addedAtVersion"] = pa.repeat(pa.scalar(version, pa.int64()), rows)
    columns["addedAtTimestamp"] = pa.repeat(pa.scalar(timestamp, pa.int64()), rows)
    return conform(pa.table([columns[name] for name in FILES.names], schema=FILES), FILES.names)


def to_adds(files: pa.Table) -> list[Add]:
    """The actions that would add the files, in their order."""
    files = conform(files)
    # Columns without any value get the action's defaults, which are null as well.
    used = [name for name in _ADD_FIELDS if files.column(name).null_count < files.num_rows]
    values = [_python(files.column(name)) for name in used]
    names = [_attribute(name) for name in used]
    return [Add(**dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]


_ADD_FIELDS = tuple(name for name in FILES.names if name not in _ADDED)


def removes_of(files: pa.Table, *, timestamp: int, data_change: bool = True) -> tuple[Remove, ...]:
    """The actions that remove all these files from the table."""
    columns = files.select(["path", "partitionValues", "size"])
    return tuple(
        Remove(
            path=path,
            deletion_timestamp=timestamp,
            data_change=data_change,
            partition_values=values,
            size=size,
        )
        for path, values, size in zip(*(_python(column) for column in columns.columns), strict=True)
    )


def _has_footer(add: Add) -> bool:
    """Whether the entry has the footer's position; some writers omit the flag."""
    if add.has_footer_offsets is not None:
        return add.has_footer_offsets
    return (add.footer_start_offset or 0) > 0 and (add.footer_end_offset or 0) > 0


_GETTERS: dict[str, Callable[[Add], Any]] = {
    **{name: attrgetter(_attribute(name)) for name in _ADD_FIELDS},
    "hasFooterOffsets": _has_footer,
    "dataChange": lambda add: add.data_change is not False,
}


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    if kind_of(field.type) is TypeKind.MAP:
        return _map_column(values)
    if kind_of(field.type) is TypeKind.STRING and field.name.startswith("timeRange"):
        values = [None if value is None else str(value) for value in values]
    return pa.array(values, field.type)


def _map_column(values: list[dict[str, str | None] | None]) -> pa.MapArray:
    filled = [value or {} for value in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, filled), np.int32, len(filled)), out=offsets[1:])
    keys = pa.array(list(chain.from_iterable(filled)), pa.string())
    items = pa.array(list(chain.from_iterable(map(dict.values, filled))), pa.string())
    mask = pa.array([value is None for value in values], pa.bool_()) if None in values else None
    return map_of(offsets, keys, items, mask)


def _python(column: pa.ChunkedArray) -> Iterable[Any]:
    if kind_of(column.type) is not TypeKind.MAP:
        return list(column.to_pylist())
    return list(chain.from_iterable(map(_dicts, column.chunks)))


def _dicts(array: pa.MapArray) -> Iterator[dict[str, str | None] | None]:
    offsets, keys, items = map_parts(array)
    names, values, cuts = keys.to_pylist(), items.to_pylist(), offsets.tolist()
    valid = array.is_valid().to_pylist()
    for row, (start, end) in enumerate(pairwise(cuts)):
        yield dict(zip(names[start:end], values[start:end], strict=True)) if valid[row] else None


_CHARACTERS = {f"%{ord(character):02X}": character for character in '/\\:*?"<>| '}
_ESCAPE = re.compile("|".join(_CHARACTERS))
_UNESCAPED_NAME = r"(^|/)part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.split$"


def unescape(text: str) -> str:
    """The value that the original escaped as this text.

    >>> unescape("eu%20west"), unescape("50%"), unescape("100%25")
    ('eu west', '50%', '100%25')
    """
    return _ESCAPE.sub(lambda escape: _CHARACTERS[escape[0]], text)


def with_unescaped_partitions(files: pa.Table) -> pa.Table:
    """A file list whose partition values are unescaped, as the rows have them."""
    if not any(pc.any(_escapes(chunk)).as_py() for chunk in files["partitionValues"].chunks):
        return files
    column = files["partitionValues"].combine_chunks()
    offsets, keys, items = map_parts(column)
    escapes = _escapes(column)
    places = np.flatnonzero(escapes.to_numpy(zero_copy_only=False))
    rows = np.searchsorted(offsets, places, side="right") - 1
    affected = files.select(["path", "splitTags", "minValues", "maxValues"]).take(pa.array(np.unique(rows)))
    entries = dict(zip(np.unique(rows).tolist(), affected.to_pylist(), strict=True))
    plain = dict(
        zip(entries, pc.match_substring_regex(affected["path"], _UNESCAPED_NAME).to_pylist(), strict=True)
    )
    values = items.to_pylist()
    for place, row in zip(places.tolist(), rows.tolist(), strict=True):
        if not plain[row]:
            values[place] = _value(values[place], keys[place].as_py(), entries[row])
    mapped = map_of(offsets, keys, pa.array(values, pa.string()), null_mask(column))
    number = files.schema.get_field_index("partitionValues")
    return files.set_column(number, files.schema.field(number), mapped)


def unescaped_bounds(bounds: Mapping[str, Bounds], schema: pa.Schema) -> dict[str, Bounds]:
    """The bounds of a manifest of the original, for the unescaped values.

    Escaped texts have another order, so bounds of strings are used only if both are equal.
    """
    texts = {f.name.lower() for f in schema if kind_of(f.type) is TypeKind.STRING}
    return {
        name: Bounds(_unescape_text(bound.min), _unescape_text(bound.max))
        for name, bound in bounds.items()
        if name.lower() not in texts or bound.min == bound.max
    }


def _unescape_text(text: str | None) -> str | None:
    return None if text is None else unescape(text)


def _escapes(maps: pa.MapArray) -> pa.Array:
    """Which values of the maps, in their order, may be escaped."""
    return pc.match_substring_regex(map_parts(maps)[2], _ESCAPE.pattern).fill_null(False)


def _value(text: str, column: str, entry: dict[str, Any]) -> str:
    if PARQUET_TAG in (entry["splitTags"] or ()):
        return text
    low, high = (dict(entry[name] or ()).get(column) for name in ("minValues", "maxValues"))
    return text if low == high == text else unescape(text)


def has_tag(entries: pa.Table, tag: str) -> pa.Array:
    """Which entries have a tag."""
    tags = entries["splitTags"].combine_chunks() if entries.num_rows else pa.array([], pa.list_(pa.string()))
    tagged = pc.list_parent_indices(tags).filter(pc.equal(pc.list_flatten(tags), tag))
    mask = np.zeros(entries.num_rows, np.bool_)
    mask[tagged.to_numpy()] = True
    return pa.array(mask)


# --- partition values ------------------------------------------------------------------------------


def partition_texts(files: pa.Table, name: str) -> pa.Array:
    """The partition values of one column as text; null where there is none."""
    chunks = [lookup(chunk, name)[0] for chunk in files["partitionValues"].chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


def partition_values(
    files: pa.Table, schema: pa.Schema, columns: Sequence[str], *, remedy: str
) -> dict[str, pa.Array]:
    """The value of each partition column in each split, typed; each distinct text is parsed once.

    Args:
        files: the splits.
        schema: the table's columns.
        columns: the partition columns.
        remedy: what to do about a value that is not of its column's type, for the error.

    Raises:
        SchemaError: there is such a value; the message names the split.
    """
    arrays: dict[str, pa.Array] = {}
    for name in columns:
        arrow = schema.field(name).type
        texts = partition_texts(files, name).dictionary_encode()
        parsed = parse_values(texts.dictionary, arrow, partition=True)
        if parsed.unreadable.any():
            code = int(parsed.unreadable.argmax())
            path = files["path"][texts.indices.index(code).as_py()]
            raise SchemaError(
                f"the partition value '{texts.dictionary[code]}' of the column '{name}' in {path} is not of "
                f"its type, {arrow}; {remedy}"
            )
        arrays[name] = parsed.values.take(texts.indices)
    return arrays
