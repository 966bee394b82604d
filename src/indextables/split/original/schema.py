"""What a split of the original says about itself without its log: columns, fields, rows.

Its index knows the kinds of its fields, not the table's types: whole numbers come back as 64 bits, dates as
timestamps, nested values as JSON texts. Partition columns are in its path only.
"""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.errors import SplitError
from indextables.split.original.bundle import read_bundle
from indextables.split.stored_footer import META
from indextables.store import Store

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


@dataclass(frozen=True, slots=True)
class OriginalFacts:
    """The columns of a split, its document mapping as its log would have it, and its number of rows."""

    schema: pa.Schema
    mapping_json: str
    num_records: int


def read_original(store: Store, path: str, size: int | None = None) -> OriginalFacts:
    """Read what a bundle says of itself; SplitError if it is none, or none that can be understood."""
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
    return OriginalFacts(schema, json.dumps([_said(field) for field in fields]), rows)


def _said(field: dict[str, Any]) -> dict[str, Any]:
    kind = str(field["type"])
    indexing = field["options"].get("indexing") or {}
    said = {"name": field["name"], "type": _NAMES.get(kind, kind), "stored": True, "indexed": True}
    return {**said, "tokenizer": indexing.get("tokenizer", "raw")} if kind == "text" else said
