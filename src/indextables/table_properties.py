"""Table properties: the indexing options in a table's configuration."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.errors import SchemaError, SplitError
from indextables.log.conflict import without_registry
from indextables.log.format.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options.writing import INDEXING_PREFIX
from indextables.predicate import Predicate, parse_condition
from indextables.predicate.addresses import compare_addresses
from indextables.schema.type_info import TypeKind, kind_of
from indextables.split.mapping import Field, Kind, check_address_types, mapping_for
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.quickwit import bundle_mapping

# The settings of a field, by the names that an error gives them.
_SETTINGS = {
    "tokenizer": "tokenizer",
    "record": "postings",
    "indexed": "terms",
    "fast": "values in columns",
    "max_token": "longest token",
    "name": "name",
    "root": "key",
    "resolved": "resolved",
}


def indexing_options(snapshot: Snapshot) -> Options:
    """Return the options by which the table's columns are indexed, from its properties.

    A table of IndexTables for Scala has none; they are derived from its document mappings.
    """
    properties = indexing_properties(snapshot.metadata)
    if properties:
        return Options.parse(properties)
    registry = snapshot.registry
    if not registry and snapshot.num_files:
        # Old releases write the document mapping of a split into its entry.
        texts = snapshot.files()["docMappingJson"].unique().drop_null().to_pylist()
        registry = {str(number): text for number, text in enumerate(texts)}
    return Options.parse(_from_document_mappings(registry, snapshot.schema, snapshot.partition_columns))


def address_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the names, in lower case, of the columns that are indexed as IP addresses."""
    mapping = mapping_for(snapshot.schema, indexing_options(snapshot), snapshot.partition_columns)
    return frozenset(field.column.lower() for field in mapping.fields if field.kind is Kind.IP)


def table_condition(where: str, snapshot: Snapshot) -> Predicate:
    """Return a SQL condition on rows of the table, in which columns of addresses compare as addresses.

    Raises:
        PredicateError: the condition cannot be parsed, or has no meaning for the table's columns.
    """
    return compare_addresses(parse_condition(where, snapshot.schema), address_columns(snapshot))


def indexing_properties(metadata: Metadata) -> dict[str, str]:
    """Return the indexing options in a table's configuration."""
    properties = without_registry(metadata.configuration)
    return {k: v for k, v in sorted(properties.items()) if k.startswith(INDEXING_PREFIX)}


def _from_document_mappings(
    registry: Mapping[str, str], schema: pa.Schema, partition_columns: Sequence[str]
) -> dict[str, str]:
    """Return the indexing options that match the document mappings of the original, if there are any."""
    for text in registry.values():
        try:
            FieldMapping.from_json(text)
        except SplitError:
            return options_for_mapping(bundle_mapping(text, schema, tuple(partition_columns)), schema)
    return {}


def check_indexing(snapshot: Snapshot, options: Options) -> None:
    """Refuse options that would index columns in another way than in the existing splits.

    Raises:
        OptionError: an option names an unknown column, or does not fit its type.
        SchemaError: the table has rows that are indexed in another way.
    """
    properties = indexing_options(snapshot)
    check_address_types(snapshot.schema, options, snapshot.partition_columns)
    mapping = mapping_for(snapshot.schema, options.over(properties), snapshot.partition_columns)
    if snapshot.num_files:
        check_same_fields(snapshot, properties, mapping)


def check_same_fields(snapshot: Snapshot, properties: Options, mapping: FieldMapping) -> None:
    """Refuse a mapping with other fields for the columns of a table than its properties give them.

    Raises:
        SchemaError: a column has other fields.
    """
    before = mapping_for(snapshot.schema, properties, snapshot.partition_columns)
    for column in snapshot.schema.names:
        old = [field for field in before.fields if field.column == column]
        new = [field for field in mapping.fields if field.column == column]
        if old != new:
            raise SchemaError(
                f"column {column} of the table at {snapshot.url} is indexed as {_indexed_as(old, new)}, not "
                f"{_indexed_as(new, old)}; leave the option out, or overwrite the table"
            )


def _indexed_as(fields: Sequence[Field], others: Sequence[Field]) -> str:
    """The kinds of fields; of fields of the same kinds also the settings in which they differ."""
    if [field.kind for field in fields] != [field.kind for field in others]:
        return " and ".join(field.kind for field in fields) or "nothing"
    settings = [
        f"{label} {getattr(field, name)}"
        for field, other in zip(fields, others, strict=True)
        for name, label in _SETTINGS.items()
        if getattr(field, name) != getattr(other, name)
    ]
    return f"{' and '.join(field.kind for field in fields)} with {', '.join(settings)}"


def options_for_mapping(mapping: FieldMapping, schema: pa.Schema) -> dict[str, str]:
    """Return indexing options that produce the fields of a mapping: text, ip and json columns."""
    options = {}
    for field in mapping.fields:
        if field.kind is Kind.TEXT:
            options[f"indexing.typemap.{field.column.lower()}"] = "text"
            options[f"indexing.tokenizer.{field.column.lower()}"] = field.tokenizer
        elif field.kind is Kind.IP:
            options[f"indexing.typemap.{field.column.lower()}"] = "ip"
        elif field.kind is Kind.JSON and kind_of(schema.field(field.column).type) is TypeKind.STRING:
            options[f"indexing.typemap.{field.column.lower()}"] = "json"
    return options
