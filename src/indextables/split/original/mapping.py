"""The original's document mapping in our words, so that its splits answer the same questions.

Its term dictionaries cannot be read, so its rows are indexed again when they are searched, by this mapping.
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indextables.errors import SplitError
from indextables.options.indexing import TOKENIZERS
from indextables.split.mapping import Field, Kind, Mapping, field_name, value_kind

_LONGEST = 255


def original_mapping(text: str, schema: pa.Schema, partition_columns: Sequence[str] = ()) -> Mapping:
    """The fields of a split of the original (facts of its `docMappingJson`), for the table's columns.

    Partition columns, whose values the log has, and columns that were not stored have none.
    """
    try:
        said = json.loads(text)
        rows: list[dict[str, Any]] = said["field_mappings"] if isinstance(said, dict) else said
        by_name = {str(row["name"]).lower(): row for row in rows}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SplitError(
            f"a document mapping of the original system cannot be understood ({error}); rewrite the table"
        ) from error
    partitions = {name.lower() for name in partition_columns}
    columns = (column for column in schema if column.name.lower() not in partitions)
    fields = (_field(column, by_name.get(column.name.lower())) for column in columns)
    return Mapping(tuple(field for field in fields if field is not None))


def _field(column: pa.Field, said: dict[str, Any] | None) -> Field | None:
    if said is None or said.get("stored") is False:
        return None
    name, arrow = column.name, column.type
    if pa.types.is_nested(arrow) or said.get("type") == "object":
        root = "" if pa.types.is_struct(arrow) or pa.types.is_map(arrow) else name
        return Field(name, field_name(Kind.JSON, name), Kind.JSON, fast=True, root=root)
    if pa.types.is_string(arrow):
        return _text_field(name, said)
    kind = value_kind(arrow)
    if kind is None:
        return None
    return Field(name, field_name(kind, name), kind, indexed=kind is Kind.BOOL, fast=True)


def _text_field(name: str, said: dict[str, Any]) -> Field:
    if said.get("type") == "ip":
        return Field(name, field_name(Kind.IP, name), Kind.IP, fast=True)
    tokenizer = str(said.get("tokenizer", "raw")).partition("_limit_")[0]
    if tokenizer in ("raw", "keyword"):
        return Field(name, field_name(Kind.STRING, name), Kind.STRING, fast=True)
    tokenizer = tokenizer if tokenizer in TOKENIZERS else "default"
    return Field(
        name, field_name(Kind.TEXT, name), Kind.TEXT,
        tokenizer=tokenizer, record="position", max_token=_LONGEST,
    )  # fmt: skip
