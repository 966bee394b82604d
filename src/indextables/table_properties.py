"""Table properties: the indexing options that a table keeps in its configuration."""

import pyarrow as pa

from indextables.errors import SplitError
from indextables.log.conflict import without_registry
from indextables.log.format.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options.indexing import INDEXING_PREFIX
from indextables.split.mapping import Kind, mapping_for
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.quickwit import bundle_mapping


def indexing_options(snapshot: Snapshot) -> Options:
    """Return the options by which the table's columns are indexed, from its properties.

    A table of IndexTables for Scala has none; they are derived from its document mappings.
    """
    properties = indexing_properties(snapshot.metadata)
    return Options.parse(properties or _from_document_mappings(snapshot))


def address_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the names, in lower case, of the columns that are indexed as IP addresses."""
    mapping = mapping_for(snapshot.schema, indexing_options(snapshot), snapshot.partition_columns)
    return frozenset(field.column.lower() for field in mapping.fields if field.kind is Kind.IP)


def indexing_properties(metadata: Metadata) -> dict[str, str]:
    """Return the indexing options in a table's configuration."""
    properties = without_registry(metadata.configuration)
    return {k: v for k, v in sorted(properties.items()) if k.startswith(INDEXING_PREFIX)}


def _from_document_mappings(snapshot: Snapshot) -> dict[str, str]:
    """Return the indexing options that match the document mappings of the original, if there are any."""
    for text in snapshot.registry.values():
        try:
            FieldMapping.from_json(text)
        except SplitError:
            return options_for_mapping(
                bundle_mapping(text, snapshot.schema, snapshot.partition_columns), snapshot.schema
            )
    return {}


def options_for_mapping(mapping: FieldMapping, schema: pa.Schema) -> dict[str, str]:
    """Return indexing options that produce the fields of a mapping: text, ip and json columns."""
    options = {}
    for field in mapping.fields:
        if field.kind is Kind.TEXT:
            options[f"indexing.typemap.{field.column.lower()}"] = "text"
            options[f"indexing.tokenizer.{field.column.lower()}"] = field.tokenizer
        elif field.kind is Kind.IP:
            options[f"indexing.typemap.{field.column.lower()}"] = "ip"
        elif field.kind is Kind.JSON and pa.types.is_string(schema.field(field.column).type):
            options[f"indexing.typemap.{field.column.lower()}"] = "json"
    return options
