"""A folder of Parquet files as a source: listed, partitioned and typed as Spark's Parquet reader does."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from indextables.errors import (
    IndexTablesError,
    ObjectMissingError,
    OptionError,
    PredicateError,
    SourceError,
    SourceNotFoundError,
    UnsupportedSourceError,
)
from indextables.predicate import Compare, IsNull, Op, parse_condition
from indextables.schema.spark import to_arrow
from indextables.schema.type_info import (
    LOCAL_TIMESTAMP,
    UTC_TIMESTAMP,
    TypeKind,
    common_kind,
    fixed_width,
    info_of,
    leaf_count,
    replace_children,
    spark_metadata,
    storage_kind_of,
)
from indextables.source.columns import Column, char_type, columns_by_name
from indextables.source.locations import Locations
from indextables.source.parquet_file import FileBytes, ParquetFile
from indextables.source.partition_values import discover
from indextables.source.snapshot import SourceFile, SourceSnapshot, content_tag
from indextables.store import ObjectInfo

_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_SUMMARIES = ("_common_metadata", "_metadata")
# In a column's metadata: its value in files that were written before it was added.
_DEFAULT = "EXISTS_DEFAULT"
_FOOTER_THREADS = 16
_TYPE_NAMES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_SAME = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)


def open_folder(
    locations: Locations,
    *,
    merge_schema: bool = False,
    schema_file: str | None = None,
    time_zone: str = "UTC",
    partition_types: Mapping[str, str] = MappingProxyType({}),
) -> SourceSnapshot:
    """The Parquet files of a folder as a table.

    Args:
        locations: the folder.
        merge_schema: merge the schemas of all files, as Spark's `mergeSchema`; otherwise use that of one
            file.
        schema_file: a file whose columns are the table's, as a path relative to the folder or a URL.
        time_zone: Spark's session time zone, for times in folder names.
        partition_types: types of partition columns that are not inferred, by column in Spark's names of
            types; that of `*` is the type of all others.
    """
    listing = _listing(locations)
    data = {path: info for path, info in listing.items() if _is_data(path) and info.size}
    if not data:
        raise SourceNotFoundError(f"no Parquet files at {locations.url}; give a folder with some")
    folders = sorted({path.rpartition("/")[0] for path in listing if _is_data(path)})
    types = {name.lower(): _partition_type(name, text) for name, text in partition_types.items()}
    spec = discover(folders, time_zone, locations.url, types)
    if spec is None:
        members = {path: info for path, info in data.items() if "/" not in path}
        summaries = [path for path in listing if "/" not in path]
        if not members:
            raise SourceNotFoundError(
                f"the Parquet files at {locations.url} are in sub-folders that are not partitions, which "
                "Spark does not read; give one of those folders"
            )
    else:
        members = {path: info for path, info in data.items() if path.rpartition("/")[0] in spec.values}
        summaries = list(listing)
    inferred = _infer(
        locations, data if spec else members, summaries, merge=merge_schema, schema_path=schema_file
    )
    partition = spec.fields if spec else []
    schema = _with_partitions(inferred, partition)
    for field in schema:
        char_type(field)
    files = [
        _file(locations, info, spec.values[path.rpartition("/")[0]] if spec else {})
        for path, info in members.items()
    ]
    digest = hashlib.blake2b("\n".join(each.identity for each in files).encode(), digest_size=16).hexdigest()
    return SourceSnapshot(
        "parquet",
        locations.url,
        digest,
        locations.url,
        schema,
        tuple(field.name for field in partition),
        files,
        tuple(_with_default(column, time_zone) for column in columns_by_name(schema)),
        locations,
        max((info.modified_ms for info in members.values()), default=None),
    )


def _with_default(column: Column, time_zone: str) -> Column:
    """The column with its value in files that lack it, which Spark stores with the columns of files."""
    text = spark_metadata(column.field).get(_DEFAULT)
    if text is None:
        return column
    condition = None
    with suppress(PredicateError):
        schema = pa.schema([pa.field("x", column.field.type)])
        condition = parse_condition(f"x <=> {text}", schema, time_zone=time_zone)
    match condition:
        case IsNull():
            return column
        case Compare(Op.NULL_SAFE | Op.EQ, _, value):
            return replace(column, default=value.as_py())
        case _:
            raise UnsupportedSourceError(
                "a default value that is no literal", f"column {column.field.name} has the default {text}"
            )


def _partition_type(column: str, text: str) -> pa.DataType:
    """The type that a partition column has instead of an inferred one."""
    name = _TYPE_NAMES.get(text.strip().lower(), text.strip().lower())
    field = {"name": column, "type": name, "nullable": True, "metadata": {}}
    try:
        kind = to_arrow(json.dumps({"type": "struct", "fields": [field]})).field(0).type
    except IndexTablesError:
        kind = None
    if kind is None or not info_of(kind).partitionable:
        raise OptionError(
            f"{text!r} is not the type of a partition column ({column}); expected string, int, bigint, date, "
            "timestamp, decimal(10,2) or another simple type of Spark"
        )
    return kind


def _file(locations: Locations, info: ObjectInfo, partition: Any) -> SourceFile:  # noqa: ANN401 - values by name
    url = locations.resolve(info.path, encoded=False).url
    tag = content_tag(info)
    identity = f"{url}#{info.size}-{tag}"
    return SourceFile(url, info.size, identity, partition=partition, etag=tag, modified_ms=info.modified_ms)


def _listing(locations: Locations) -> dict[str, ObjectInfo]:
    """The files that Spark reads, by their path below the folder; sorted."""
    store = locations.store
    listing = {
        info.path: info for info in store.list() if not any(_is_hidden(part) for part in info.path.split("/"))
    }
    return dict(sorted(listing.items()))


def _is_hidden(name: str) -> bool:
    """Whether Spark ignores a file or folder of this name."""
    if name.startswith(_SUMMARIES):
        return False
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def _is_data(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not ((name.startswith("_") and "=" not in name) or name.startswith("."))


# --- schemas -------------------------------------------------------------------------------------------


def _infer(
    locations: Locations,
    data: dict[str, ObjectInfo],
    paths: Sequence[str],
    *,
    merge: bool,
    schema_path: str | None,
) -> pa.Schema:
    if schema_path is not None:
        place = locations.resolve(schema_path, encoded=False)
        try:
            info = place.store.head(place.path)
        except ObjectMissingError:
            raise SourceNotFoundError(f"there is no file {place.url} to take the schema from") from None
        return file_schema(ParquetFile(FileBytes(place, info.size)))
    if merge:
        with ThreadPoolExecutor(_FOOTER_THREADS, thread_name_prefix="indextables-footers") as threads:
            schemas = list(threads.map(lambda info: file_schema(_open(locations, info)), data.values()))
        merged = schemas[0]
        for schema in schemas[1:]:
            merged = pa.schema(_merged_fields(list(merged), list(schema), locations.url))
        return merged
    for summary in _SUMMARIES:
        for path in paths:
            if path.rpartition("/")[2] == summary:
                return file_schema(_open(locations, locations.store.head(path)))
    return file_schema(_open(locations, next(iter(data.values()))))


def _open(locations: Locations, info: ObjectInfo) -> ParquetFile:
    return ParquetFile(FileBytes(locations.resolve(info.path, encoded=False), info.size))


def file_schema(file: ParquetFile) -> pa.Schema:
    """The schema that Spark infers for a file: the stored one of Spark, else by the Parquet types."""
    text = file.key_values.get(_SPARK_SCHEMA)
    if text is not None:
        return pa.schema([_nullable(field) for field in to_arrow(text)])
    ranges = file.leaf_ranges
    return pa.schema(
        [
            pa.field(field.name, _spark_type(field.type, file, ranges[number].start, field.name))
            for number, field in enumerate(file.schema)
        ]
    )


def _spark_type(kind: pa.DataType, file: ParquetFile, leaf: int, path: str) -> pa.DataType:
    if kind in _SAME:
        return kind
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if kind == pa.uint64():
        return pa.decimal128(20, 0)
    if fixed_width(kind) is not None:
        return pa.binary()
    match storage_kind_of(kind):
        case TypeKind.STRUCT:
            fields = []
            for number in range(kind.num_fields):
                child = kind.field(number)
                inner = _spark_type(child.type, file, leaf, f"{path}.{child.name}")
                fields.append(pa.field(child.name, inner))
                leaf += leaf_count(child.type)
            return pa.struct(fields)
        case TypeKind.MAP:
            key = _spark_type(kind.key_type, file, leaf, f"{path}.key")
            value = _spark_type(kind.item_type, file, leaf + leaf_count(kind.key_type), f"{path}.value")
            return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
        case TypeKind.LIST:
            return pa.list_(pa.field("element", _spark_type(kind.value_type, file, leaf, f"{path}.element")))
        case TypeKind.NULL:
            # Columns of nulls alone, as pandas writes them, are INT32 in the file.
            return pa.int32()
        case TypeKind.DECIMAL:
            return kind
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ if file.is_int96(leaf) or kind.unit != "ns":
            return LOCAL_TIMESTAMP if kind.tz is None and not file.is_int96(leaf) else UTC_TIMESTAMP
        case _:
            raise UnsupportedSourceError(
                f"the type {kind} of Parquet files", f"{file.url}: column {path} has it"
            )


def _nullable(field: pa.Field) -> pa.Field:
    type_ = replace_children(field.type, _nullable)
    return pa.field(field.name, type_, nullable=True, metadata=field.metadata)


def _merged_fields(one: list[pa.Field], other: list[pa.Field], url: str) -> list[pa.Field]:
    """Merge the fields of structs as Spark: those of the first in order, then new ones of the second."""
    theirs = {field.name.lower(): field for field in other}
    merged = []
    for field in one:
        match = theirs.pop(field.name.lower(), None)
        kind = field.type if match is None else _merged_type(field.type, match.type, field.name, url)
        merged.append(pa.field(field.name, kind, nullable=True, metadata=field.metadata))
    return merged + [field for field in other if field.name.lower() in theirs]


def _merged_type(one: pa.DataType, other: pa.DataType, name: str, url: str) -> pa.DataType:
    match common_kind(one, other):
        case TypeKind.STRUCT:
            return pa.struct(_merged_fields(list(one), list(other), url))
        case TypeKind.LIST:
            element = _merged_type(one.value_type, other.value_type, name, url)
            return pa.list_(one.value_field.with_type(element))
        case TypeKind.MAP:
            return pa.map_(
                one.key_field.with_type(_merged_type(one.key_type, other.key_type, name, url)),
                one.item_field.with_type(_merged_type(one.item_type, other.item_type, name, url)),
            )
        case TypeKind.DECIMAL if one.scale == other.scale:
            return pa.decimal128(max(one.precision, other.precision), one.scale)
        case _ if one == other:
            return one
        case _:
            raise SourceError(
                f"column {name} is {one} in some files of {url} and {other} in others, which Spark does not "
                "merge; rewrite those files"
            )


def _with_partitions(schema: pa.Schema, partition: list[pa.Field]) -> pa.Schema:
    """Columns of files, then partition columns; a column that is both has the partition's type."""
    own = {field.name.lower(): field for field in partition}
    fields = [own.pop(field.name.lower(), field) for field in schema]
    return pa.schema([*fields, *own.values()])
