"""Maps the columns of a table to those of its files, by name or field id, and converts them as Spark does.

A table's schema may change without its files: columns are renamed, dropped, added again, or get a wider type.
`Column` has the name or field id of a column in files; `Projection` has, for one file, the leaf columns to
read, and builds the table's columns from them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SourceError, UnsupportedSourceError
from indextables.records import dataclass
from indextables.schema.type_info import (
    DATETIME,
    LOCAL_TIMESTAMP,
    TIMESTAMPS,
    TYPE_KEY,
    UTC_TIMESTAMP,
    TypeKind,
    child_fields,
    common_kind,
    fixed_width,
    is_variant,
    kind_of,
    leaf_count,
    spark_metadata,
    storage_kind_of,
)
from indextables.source.parquet_file import ParquetFile

FIELD_ID = b"PARQUET:field_id"
_CHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\(\s*(\d+)\s*\)")
# The field of a variant in Parquet that has the values of some of its paths as columns.
_SHREDDED = "typed_value"
_SPATIAL = ("geography", "geometry")
_ANY_CHAR = re.compile(r"(?<!var)char\(")
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_LOCAL_SOURCES = frozenset({TypeKind.TIMESTAMP_NTZ, TypeKind.DATE})
_BYTES = frozenset({TypeKind.STRING, TypeKind.BINARY})
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
# Days since 1970 of 1582-10-15; microseconds of 1900-01-01, before which zones had other offsets in it.
_GREGORIAN_DAY, _SAME_MICROS = -141_427, -2_208_988_800_000_000
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19, pa.uint64(): 20}


@dataclass(frozen=True, slots=True)
class Column:
    """A column or nested field of a table, and its key in files.

    `key` is its name in files (a string) or its field id (an integer); elements of lists, keys and values of
    maps have none. `default` is the value in files that lack the column, None for null. `children` are the
    fields of a struct, the element of a list, or key and value of a map.
    """

    field: pa.Field
    key: str | int | None
    default: Any = None
    children: tuple["Column", ...] = ()
    required: bool = False
    uuid: bool = False


def columns_by_name(
    schema: pa.Schema, name_of: Callable[[pa.Field], str | int] = lambda field: str(field.name)
) -> tuple[Column, ...]:
    """The columns of a schema; `name_of` gives the key of a field in files."""

    def column(each: pa.Field, key: str | int | None) -> Column:
        if kind_of(each.type) is TypeKind.STRUCT:
            children = tuple(column(child, name_of(child)) for child in each.type)
        else:
            children = tuple(column(child, None) for child in child_fields(each.type))
        return Column(each, key, None, children)

    return tuple(column(each, name_of(each)) for each in schema)


@dataclass(slots=True)
class _Node:
    """A column in a file: `read` are the leaf columns; the source is None if the file lacks the column."""

    column: Column
    source: pa.DataType | None = None
    index: int = -1
    children: list["_Node"] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)


class Projection:
    """Columns of a table, in one file."""

    def __init__(
        self, file: ParquetFile, columns: Sequence[Column], *, names: Mapping[str, int] | None = None
    ) -> None:
        """`names` are the field ids of columns in files without ids, by dotted name (a name mapping)."""
        self._file = file
        self._ids = None if names is None else names
        ranges = file.leaf_ranges
        fields = [(each, ranges[number], each.name) for number, each in enumerate(file.schema)]
        self._nodes = self._match(columns, fields, "")
        sources = [(node, node.index) for node in self._nodes if node.source is not None]
        self.columns = sorted({index for _, index in sources})
        self.leaves = sorted(leaf for node, _ in sources for leaf in node.leaves)
        self._place = {index: place for place, index in enumerate(self.columns)}

    def build(self, arrays: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """The table's columns, from the arrays of the file's `columns`."""
        return [
            _missing(node.column, rows, self._file.url)
            if node.source is None
            else self._convert(arrays[self._place[node.index]], node)
            for node in self._nodes
        ]

    # --- matching --------------------------------------------------------------------------------------

    def _match(
        self, columns: Sequence[Column], fields: list[tuple[pa.Field, range, str]], path: str
    ) -> list[_Node]:
        nodes = []
        for column in columns:
            index = self._find(column, fields, path)
            if index is None:
                nodes.append(_Node(column))
                continue
            source, leaves, name = fields[index]
            node = self._node(column, source.type, leaves, f"{path}{name}.")
            node.index = index
            nodes.append(node)
        return nodes

    def _find(self, column: Column, fields: list[tuple[pa.Field, range, str]], path: str) -> int | None:
        key = column.key
        if isinstance(key, int):
            places = [
                number for number, (each, _, name) in enumerate(fields) if self._id(each, path + name) == key
            ]
        else:
            places = [number for number, (each, _, _) in enumerate(fields) if each.name == key]
            if not places and key is not None:
                lower = key.lower()
                places = [n for n, (each, _, _) in enumerate(fields) if each.name.lower() == lower]
        if len(places) > 1:
            raise SourceError(
                f"{self._file.url} has several columns {key!r}, which Spark cannot distinguish either: "
                "rename them in the source"
            )
        return places[0] if places else None

    def _id(self, each: pa.Field, path: str) -> int | None:
        if self._ids is not None:
            return self._ids.get(path)
        text = (each.metadata or {}).get(FIELD_ID)
        return None if text is None else int(text)

    def _node(self, column: Column, source: pa.DataType, leaves: range, path: str) -> _Node:
        node = _Node(column, source)
        target = column.field.type
        common = common_kind(target, source)
        if common is TypeKind.STRUCT:
            if is_variant(target) and source.get_field_index(_SHREDDED) >= 0:
                raise UnsupportedSourceError(
                    "a shredded variant",
                    f"{self._file.url}: column {column.field.name} is one",
                    remedy="write the file again with spark.sql.variant.writeShredding.enabled = false",
                )
            children, first = [], leaves.start
            for number in range(source.num_fields):
                child = source.field(number)
                count = leaf_count(child.type)
                children.append((child, range(first, first + count), child.name))
                first += count
            node.children = self._match(column.children, children, path)
            present = sorted(
                (child for child in node.children if child.source is not None), key=lambda c: c.index
            )
            if not present:
                # As in Spark: a struct is null if the file has none of its fields.
                return _Node(column)
            for place, child in enumerate(present):
                child.index = place
        elif common is TypeKind.LIST:
            node.children = [self._node(column.children[0], source.value_type, leaves, f"{path}element.")]
        elif common is TypeKind.MAP:
            keys = leaf_count(source.key_type)
            middle = leaves.start + keys
            node.children = [
                self._node(column.children[0], source.key_type, range(leaves.start, middle), f"{path}key."),
                self._node(column.children[1], source.item_type, range(middle, leaves.stop), f"{path}value."),
            ]
        else:
            node.leaves = list(leaves)
            self._check_leaf(column, source, leaves)
            return node
        if any(child.source is None for child in node.children) and common is not TypeKind.STRUCT:
            # The element of a list is a struct of which the file has no field in the schema.
            raise UnsupportedSourceError(
                "a list or map of structs that share no field with the table's schema",
                f"{self._file.url}: column {column.field.name}",
            )
        node.leaves = sorted(leaf for child in node.children for leaf in child.leaves)
        return node

    def _check_leaf(self, column: Column, source: pa.DataType, leaves: range) -> None:
        target = column.field.type
        declared = (column.field.metadata or {}).get(TYPE_KEY, b"").decode()
        if declared.startswith(_SPATIAL):
            raise UnsupportedSourceError(
                f"the type {declared} in Parquet files",
                f"{self._file.url}: column {column.field.name} has it",
            )
        if not _convertible(source, target, uuid=column.uuid) or (
            target == LOCAL_TIMESTAMP and self._file.is_int96(leaves[0])
        ):
            raise SourceError(
                f"{self._file.url}: column {column.field.name} is stored as {source}, which Spark does not "
                f"read as {target}; rewrite the file, or correct the table's schema"
            )

    # --- converting ------------------------------------------------------------------------------------

    def _convert(self, array: pa.Array, node: _Node) -> pa.Array:
        target = node.column.field.type
        match storage_kind_of(target):
            case TypeKind.STRUCT:
                converted = self._struct(array, node)
            case TypeKind.LIST:
                offsets, start, end = _offsets(array)
                values = self._convert(array.values.slice(start, end - start), node.children[0])
                converted = pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(array))
            case TypeKind.MAP:
                offsets, start, end = _offsets(array)
                keys = self._convert(array.keys.slice(start, end - start), node.children[0])
                items = self._convert(array.items.slice(start, end - start), node.children[1])
                converted = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_mask(array))
            case _:
                converted = _leaf(array, target, uuid=node.column.uuid)
                self._check_calendar(converted, node)
        return _pad(converted, node.column.field)

    def _check_calendar(self, array: pa.Array, node: _Node) -> None:
        """Refuse values in the Julian calendar, which Spark before 3.0 wrote and newer Spark converts."""
        kind = array.type
        if kind_of(kind) not in DATETIME:
            return
        if not self._file.has_julian_dates(int96=self._file.is_int96(node.leaves[0])):
            return
        first = pa.scalar(_GREGORIAN_DAY if kind_of(kind) is TypeKind.DATE else _SAME_MICROS, kind)
        if pc.any(pc.less(array, first)).as_py():
            raise UnsupportedSourceError(
                "a date before 1582 or a time before 1900 in the Julian calendar of old Spark versions",
                f"{self._file.url}: column {node.column.field.name} has one",
                remedy="rewrite the file with Spark 3 or newer",
            )

    def _struct(self, array: pa.Array, node: _Node) -> pa.Array:
        target = node.column.field.type
        mask = _mask(array)
        children = []
        for child in node.children:
            if child.source is None:
                children.append(_missing(child.column, len(array), self._file.url))
            else:
                children.append(self._convert(pc.struct_field(array, [child.index]), child))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _missing(column: Column, rows: int, url: str) -> pa.Array:
    """A column that a file lacks."""
    if column.default is not None:
        return pa.repeat(pa.scalar(column.default, column.field.type), rows)
    if column.required:
        raise SourceError(f"{url} has no column {column.field.name}, which is required and has no default")
    return pa.nulls(rows, column.field.type)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets of lists that begin at zero, and the range of the values that they refer to."""
    offsets = np.asarray(array.offsets)
    if not len(offsets):
        return pa.array([0], pa.int32()), 0, 0
    return pa.array(offsets - offsets[0], pa.int32()), int(offsets[0]), int(offsets[-1])


def _convertible(source: pa.DataType, target: pa.DataType, *, uuid: bool) -> bool:
    """Whether every value of a file's type is a value of the table's type, as Spark reads it."""
    if uuid:
        return fixed_width(source) == 16
    if source == target or kind_of(source) is TypeKind.NULL:
        return True
    match storage_kind_of(target):
        case TypeKind.INTEGER | TypeKind.FLOAT | TypeKind.DECIMAL:
            return _widens(source, target)
        case TypeKind.STRING | TypeKind.BINARY:
            return storage_kind_of(source) in _BYTES or fixed_width(source) is not None
        case TypeKind.TIMESTAMP:
            return target == UTC_TIMESTAMP and kind_of(source) in TIMESTAMPS
        case TypeKind.TIMESTAMP_NTZ:
            return target == LOCAL_TIMESTAMP and storage_kind_of(source) in _LOCAL_SOURCES
        case TypeKind.TIME:
            return kind_of(source) is TypeKind.TIME
        case TypeKind.INTERVAL:
            return bool(source == pa.int64())
        case _:
            return False


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a number type holds all values of another."""
    match kind_of(target):
        case TypeKind.INTEGER:
            narrow = _UNSIGNED.get(source, source)
            # Parquet has no smaller physical type than int32; the cast checks whether values fit.
            return narrow == pa.int32() or (
                narrow in _INTEGERS and _INTEGERS.index(narrow) <= _INTEGERS.index(target)
            )
        case TypeKind.FLOAT:
            return target == pa.float64() and (source == pa.float32() or source in _INTEGERS[:3])
        case _:
            digits = target.precision - target.scale
            if kind_of(source) is TypeKind.DECIMAL:
                return bool(digits >= source.precision - source.scale and target.scale >= source.scale)
            return source in _DIGITS and digits >= _DIGITS[source]


def _leaf(array: pa.Array, target: pa.DataType, *, uuid: bool) -> pa.Array:
    source = array.type
    if uuid:
        return _uuid_text(array)
    if kind_of(target) is TypeKind.STRING:
        return _valid_text(array if source == target else array.cast(pa.binary()).view(target))
    if source == target:
        return array
    if kind_of(target) in TIMESTAMPS and kind_of(source) in TIMESTAMPS:
        if source.unit != "us":
            # Nanoseconds are rounded down to microseconds, as in Spark.
            array = pc.floor_temporal(array, unit="microsecond") if source.unit == "ns" else array
            array = array.cast(pa.timestamp("us", source.tz))
        return array.view(target)
    if storage_kind_of(target) is TypeKind.BINARY and storage_kind_of(source) is TypeKind.STRING:
        return array.view(target)
    return array.cast(target)


def _valid_text(array: pa.Array) -> pa.Array:
    """Texts with U+FFFD for bytes that are not UTF-8, which Spark shows so."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="replace")
            for value in array.view(pa.binary()).to_pylist()
        ]
        return pa.array(texts, pa.string())
    return array


def _uuid_text(array: pa.Array) -> pa.Array:
    """UUIDs of sixteen bytes as their text."""
    mask = np.asarray(array.is_null())
    raw = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    octets = raw[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)
    text = np.full((len(array), 36), ord("-"), np.uint8)
    places = [(0, 4, 0), (4, 6, 9), (6, 8, 14), (8, 10, 19), (10, 16, 24)]
    for start, end, at in places:
        text[:, at : at + 2 * (end - start)] = _HEX[octets[:, start:end]].reshape(len(array), -1)
    offsets = pa.array(np.arange(len(array) + 1, dtype=np.int32) * 36)
    values = pa.StringArray.from_buffers(len(array), offsets.buffers()[1], pa.py_buffer(text.tobytes()))
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), values) if mask.any() else values


def _pad(array: pa.Array, column: pa.Field) -> pa.Array:
    """A `char(n)` column as Spark reads it: padded with blanks."""
    declared = char_type(column)
    if declared is None:
        return array
    return pc.utf8_rpad(array, width=declared, padding=" ")


def char_type(column: pa.Field) -> int | None:
    """The length of a `char(n)` column, None for any other."""
    metadata = column.metadata or {}
    texts = [metadata.get(TYPE_KEY, b"").decode(), str(spark_metadata(column).get(_CHAR_KEY, ""))]
    for text in texts:
        if match := _CHAR.fullmatch(text):
            return int(match[1])
        if _ANY_CHAR.search(text):
            raise UnsupportedSourceError("char(n) inside of a nested type", f"column {column.name} is {text}")
    return None


def walk(columns: Sequence[Column]) -> Iterator[Column]:
    """Columns with all their fields."""
    for column in columns:
        yield column
        yield from walk(column.children)
