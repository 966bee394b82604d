"""Quickwit bundles, the splits of the original (IndexTables for Scala): rows from their document store.

```
files, one after the other | bundle metadata | u32 its length | hotcache | u32 its length
bundle metadata = u32 403881646, u32 1, JSON {"files": {name: {"start", "end"}}}
```

Numbers are little-endian, offsets absolute. The term dictionaries of these files cannot be searched by the
Tantivy of this engine, so rows are read from the document store and indexed again. Byte, short and decimal
columns are stored as text, dates and timestamps as instants, addresses as IPv6, nested values as JSON. A
list as the value of a column is stored as an object: under the key `_values` by one writer, under the
column's name by another.
"""

import datetime as dt
import ipaddress
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, assert_never

import msgspec
import pyarrow as pa
import tantivy

from indextables.errors import SplitError
from indextables.limits import MAX_INDEX_META
from indextables.options import Options
from indextables.options.writing import TOKENIZER_NAMES
from indextables.records import dataclass
from indextables.schema.type_info import NESTED, TypeKind, kind_of, round_half_up
from indextables.split.footer import META
from indextables.split.index.files import remove_folder, temporary_folder
from indextables.split.mapping import Field, Kind, Mapping, field_name, json_root, value_kind
from indextables.store import Store

_LONGEST = 255
_TYPES = {
    "text": pa.string(),
    "i64": pa.int64(),
    "u64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.timestamp("us", "UTC"),
    "ip_addr": pa.string(),
    "json_object": pa.string(),
}
_NAMES = {"ip_addr": "ip", "json_object": "object", "date": "datetime"}
_BUNDLE = (403_881_646).to_bytes(4, "little") + (1).to_bytes(4, "little")
_BATCH_ROWS = 4096
_LIST_KEY = "_values"
_COPY_BYTES = 8 << 20
# The names of files in a bundle; they become files in a folder.
_NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bundle_mapping(text: str, schema: pa.Schema, partition_columns: Sequence[str] = ()) -> Mapping:
    """The mapping of a bundle, from its `docMappingJson`, for the table's columns.

    Partition columns and columns that were not stored have no fields.
    """
    try:
        entry = json.loads(text)
        rows: list[dict[str, Any]] = entry["field_mappings"] if isinstance(entry, dict) else entry
        by_name = {str(row["name"]).lower(): row for row in rows}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SplitError(
            f"a document mapping of IndexTables for Scala cannot be decoded ({error}); rewrite the table"
        ) from error
    partitions = {name.lower() for name in partition_columns}
    columns = (column for column in schema if column.name.lower() not in partitions)
    fields = (_field(column, by_name.get(column.name.lower())) for column in columns)
    return Mapping(tuple(field for field in fields if field is not None))


def _field(column: pa.Field, entry: dict[str, Any] | None) -> Field | None:
    if entry is None or entry.get("stored") is False:
        return None
    name, arrow = column.name, column.type
    if kind_of(arrow) in NESTED or entry.get("type") == "object":
        root = json_root(name, arrow)
        return Field(name, field_name(Kind.JSON, name), Kind.JSON, fast=True, root=root)
    if kind_of(arrow) is TypeKind.STRING:
        return _text_field(name, entry)
    kind = value_kind(arrow)
    if kind is None:
        return None
    return Field(name, field_name(kind, name), kind, indexed=kind is Kind.BOOL, fast=True)


def _text_field(name: str, entry: dict[str, Any]) -> Field:
    if entry.get("type") == "ip":
        return Field(name, field_name(Kind.IP, name), Kind.IP, fast=True)
    tokenizer = str(entry.get("tokenizer", "raw")).partition("_limit_")[0]
    if tokenizer in ("raw", "keyword"):
        return Field(name, field_name(Kind.STRING, name), Kind.STRING, fast=True)
    tokenizer = tokenizer if tokenizer in TOKENIZER_NAMES else "default"
    return Field(
        name, field_name(Kind.TEXT, name), Kind.TEXT,
        tokenizer=tokenizer, record="position", max_token=_LONGEST,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BundleMetadata:
    """The columns of a bundle, its `docMappingJson`, and its number of rows.

    The index has the kinds of its fields, not the table's types: integers become 64 bits, dates timestamps,
    nested values JSON texts. Partition columns are in the path only.
    """

    schema: pa.Schema
    mapping_json: str
    num_records: int


def describe_bundle(store: Store, path: str, size: int | None = None) -> BundleMetadata:
    """Read the metadata of a bundle; SplitError if the file is not a bundle, or malformed."""
    bundle = read_bundle(store, path, size)
    if META not in bundle.files:
        raise SplitError(f"{store.url}/{path}: the bundle has no {META}; it is damaged")
    try:
        meta = json.loads(store.get_range(path, *bundle.files[META]))
        fields = [field for field in meta["schema"] if field["type"] in _TYPES]
        rows = sum(int(segment["max_doc"]) for segment in meta["segments"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SplitError(f"{store.url}/{path}: {META} cannot be understood ({error})") from error
    schema = pa.schema([pa.field(field["name"], _TYPES[field["type"]]) for field in fields])
    return BundleMetadata(schema, json.dumps([_field_mapping(field) for field in fields]), rows)


def _field_mapping(field: dict[str, Any]) -> dict[str, Any]:
    kind = str(field["type"])
    indexing = field["options"].get("indexing") or {}
    entry = {"name": field["name"], "type": _NAMES.get(kind, kind), "stored": True, "indexed": True}
    return {**entry, "tokenizer": indexing.get("tokenizer", "raw")} if kind == "text" else entry


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle: the byte ranges of its files by name."""

    path: str
    size: int
    files: dict[str, tuple[int, int]]


def read_bundle(store: Store, path: str, size: int | None = None) -> Bundle:
    """Read the list of files of a bundle; SplitError if the file is not a bundle."""
    size = store.head(path).size if size is None else size
    try:
        return Bundle(path, size, _files(store, path, size))
    except (ValueError, RecursionError) as error:
        raise SplitError(f"{store.url}/{path}: not a bundle of IndexTables for Scala ({error})") from error


def _files(store: Store, path: str, size: int) -> dict[str, tuple[int, int]]:
    end = size - 4 - _length(store, path, size)
    length = _length(store, path, end)
    if length > MAX_INDEX_META:
        raise ValueError(f"its list of files has {length} bytes")
    start = end - 4 - length
    meta = store.get_range(path, start, end - 4) if 0 <= start < end - 4 else b""
    if meta[:8] != _BUNDLE:
        raise ValueError("no bundle metadata at its offset")
    files = {
        name: (place.start, place.end)
        for name, place in msgspec.json.decode(meta[8:], type=_Metadata).files.items()
    }
    for name, (first, last) in files.items():
        if not 0 <= first <= last <= start:
            raise ValueError("a file lies outside of the bundle")
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of an index file")
    if sum(last - first for first, last in files.values()) > start:
        raise ValueError("its files overlap")
    if files.get("meta.json", (0, 0))[1] - files.get("meta.json", (0, 0))[0] > MAX_INDEX_META:
        raise ValueError(f"meta.json has more than {MAX_INDEX_META} bytes")
    return files


class _Place(msgspec.Struct):
    start: int
    end: int


class _Segment(msgspec.Struct):
    max_doc: int


class _StoredField(msgspec.Struct):
    name: str
    type: str
    options: dict[str, Any] = {}

    @property
    def stored(self) -> bool:
        """Whether documents hold its values."""
        return self.options.get("stored") is not False


class _IndexMeta(msgspec.Struct):
    segments: list[_Segment]
    schema: list[_StoredField]


class _Metadata(msgspec.Struct):
    files: dict[str, _Place]


def _length(store: Store, path: str, end: int) -> int:
    if end < 4:
        raise ValueError("the file is truncated")
    return int.from_bytes(store.get_range(path, end - 4, end), "little")


def bundle_rows(
    store: Store,
    path: str,
    schema: pa.Schema,
    options: Options = Options(),  # noqa: B008 - immutable
    size: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a bundle in the given schema, in the order of its documents.

    Columns that the bundle lacks, such as partition columns, are null. A column that was indexed without
    being stored is an error.
    """
    bundle = read_bundle(store, path, size)
    where = f"{store.url}/{path}"
    with _extract(store, bundle, options) as folder:
        try:
            meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_IndexMeta)
            searcher = tantivy.Index.open(str(folder)).searcher()
        except (ValueError, OSError, RecursionError) as error:
            raise SplitError(f"{where}: the index inside cannot be opened ({error})") from error
        sizes = [segment.max_doc for segment in meta.segments]
        fields = {field.name.lower(): field for field in meta.schema}
        if searcher.num_docs != sum(sizes):
            raise SplitError(
                f"{where}: the index inside has deleted documents, which cannot be distinguished"
            )
        for column in schema:
            _check_stored(fields.get(column.name.lower()), column.name, where)
        addresses = (
            tantivy.DocAddress(number, document)
            for number, size in enumerate(sizes)
            for document in range(size)
        )
        while batch_addresses := list(islice(addresses, _BATCH_ROWS)):
            yield _batch(_documents(searcher, batch_addresses, where), schema, fields, where)


def _check_stored(field: _StoredField | None, column: str, where: str) -> None:
    if field is not None and not field.stored:
        raise SplitError(
            f"{where}: IndexTables for Scala indexed the column {column} without storing it, so "
            "it has no values to read; drop the column, or write the rows again from their source"
        )


def _documents(
    searcher: tantivy.Searcher, addresses: Sequence[tantivy.DocAddress], where: str
) -> list[dict[str, list[Any]]]:
    try:
        return [searcher.doc(address).to_dict() for address in addresses]
    except (ValueError, OSError) as error:
        raise SplitError(f"{where}: its stored documents cannot be read ({error})") from error


@contextmanager
def _extract(store: Store, bundle: Bundle, options: Options) -> Iterator[Path]:
    folder = temporary_folder(options)
    try:
        for name, (start, end) in bundle.files.items():
            if name != "split_fields":
                with (folder / name).open("xb") as sink:
                    for at in range(start, end, _COPY_BYTES):
                        sink.write(store.get_range(bundle.path, at, min(at + _COPY_BYTES, end)))
        yield folder
    finally:
        remove_folder(folder)


def _batch(
    documents: list[dict[str, list[Any]]], schema: pa.Schema, fields: dict[str, _StoredField], where: str
) -> pa.RecordBatch:
    names = {name.lower(): name for document in documents for name in document}
    columns = []
    for field in schema:
        own_name = names.get(field.name.lower(), field.name)
        values = [document[own_name][0] if own_name in document else None for document in documents]
        try:
            if (
                stored_field := fields.get(field.name.lower())
            ) is not None and stored_field.type == "ip_addr":
                values = [_address(value) for value in values]
            columns.append(pa.array([_value(v, field.type, field.name) for v in values], field.type))
        except (pa.ArrowException, ValueError, TypeError, AttributeError, InvalidOperation) as error:
            raise SplitError(
                f"{where}: the column {field.name} does not hold {field.type} ({error})"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _address(value: object) -> str | None:
    """An address in its shortest form; IPv4 addresses are stored as IPv6 addresses."""
    if value is None:
        return None
    address = ipaddress.ip_address(str(value))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _value(value: Any, type_: pa.DataType, column: str) -> Any:  # noqa: ANN401 - as stored
    """A stored value as Arrow accepts it for the type."""
    if value is None:
        return None
    match kind_of(type_):
        case TypeKind.DATE:
            return value.date() if isinstance(value, dt.datetime) else value
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            if not isinstance(value, dt.datetime):
                return value
            instant = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            return (instant - _EPOCH) // dt.timedelta(microseconds=1)
        case TypeKind.DECIMAL:
            return round_half_up(Decimal(str(value)), type_.scale)
        case TypeKind.INTEGER:
            return int(value)
        case TypeKind.FLOAT:
            return float(value)
        case TypeKind.LIST | TypeKind.MAP | TypeKind.STRUCT:
            return _nested_value(json.loads(value) if isinstance(value, str) else value, type_, column)
        case TypeKind.STRING:
            if isinstance(value, str):
                return value
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case (
            TypeKind.NULL
            | TypeKind.BOOLEAN
            | TypeKind.BINARY
            | TypeKind.TIME
            | TypeKind.INTERVAL
            | TypeKind.OTHER
        ):
            return value
        case kind:
            assert_never(kind)


def _nested_value(value: Any, kind: pa.DataType, column: str) -> Any:  # noqa: ANN401
    """A JSON value as Arrow accepts it."""
    if value is None or kind_of(kind) not in NESTED:
        return _value(value, kind, column)
    if kind_of(kind) is TypeKind.STRUCT:
        return {f.name: _nested_value(value.get(f.name), f.type, column) for f in kind}
    if kind_of(kind) is TypeKind.MAP:
        return [
            (_value(key, kind.key_type, column), _nested_value(item, kind.item_type, column))
            for key, item in value.items()
        ]
    items = _items(value, column) if isinstance(value, dict) else value
    return [_nested_value(item, kind.value_type, column) for item in items]


def _items(value: dict[str, Any], column: str) -> Sequence[Any]:
    """The elements of a list that was stored as an object."""
    for key in (_LIST_KEY, column):
        if isinstance(items := value.get(key), list):
            return items
    if value:
        raise ValueError(f"an object with the keys {', '.join(value)} is not a list")
    return ()
