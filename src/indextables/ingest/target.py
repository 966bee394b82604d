"""The schema and metadata of a table after a write, which may create or extend it."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
import pyarrow as pa

from indextables.errors import ColumnTypeError, NewColumnError, OptionError, SchemaError
from indextables.log.format.actions import Format, Metadata
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options import writing as opt
from indextables.options.writing import INDEXING_PREFIX
from indextables.records import dataclass
from indextables.schema.conversion import (
    check_append,
    check_names,
    check_partition_columns,
    storage_schema,
)
from indextables.schema.spark import from_arrow, to_arrow
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.mapping import check_address_types, mapping_for
from indextables.table_properties import check_same_fields, indexing_options, indexing_properties


class Mode(StrEnum):
    """The mode of a write, for a table that exists already."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    ERROR = "error"
    IGNORE = "ignore"

    @classmethod
    def of(cls, word: str) -> "Mode":
        """The mode by its name; Spark's `errorifexists` is accepted for `error`."""
        lowered = word.lower()
        if lowered in ("errorifexists", "default"):
            return cls.ERROR
        try:
            return cls(lowered)
        except ValueError:
            raise OptionError(f"mode '{word}' is unknown; give append, overwrite, error or ignore") from None


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a write: the schema of its rows, their indexing, and the table's new metadata.

    `metadata` is set when the table is new or when the write changes its metadata.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mapping: FieldMapping
    metadata: Metadata | None


def new_table(
    incoming: pa.Schema,
    partition_by: Sequence[str],
    options: Options,
    *,
    now_ms: int,
    new_id: Callable[[], str] | None = None,
    declared: pa.Schema | None = None,
) -> Target:
    """The target of a first write: with the columns of the rows, or with the declared ones."""
    if declared is None:
        schema = pa.schema([field.with_nullable(True) for field in storage_schema(incoming)])
    else:
        schema = check_append(storage_schema(declared), incoming, merge=options.get(opt.MERGE_SCHEMA))
    if not len(schema):
        raise SchemaError("the rows have no columns, so they cannot be written; a table has at least one")
    check_names(schema)
    partition_columns = check_partition_columns(schema, partition_by)
    metadata = Metadata(
        id=(new_id or _new_id)(),
        schema_string=from_arrow(schema),
        partition_columns=list(partition_columns),
        format=Format(),
        configuration=_indexing_of(options),
        created_time=now_ms,
    )
    # The schema as later writes will read it from the metadata: types by their Spark names.
    readable = to_arrow(metadata.schema_string)
    check_address_types(readable, options, partition_columns)
    return Target(readable, partition_columns, mapping_for(readable, options, partition_columns), metadata)


def existing_table(
    snapshot: Snapshot, incoming: pa.Schema, partition_by: Sequence[str], options: Options, mode: Mode
) -> Target:
    """The target of a write to an existing table; an error names a column that does not fit."""
    if mode is Mode.OVERWRITE and options.get(opt.OVERWRITE_SCHEMA):
        return _target_with_new_schema(snapshot, incoming, partition_by, options)
    if partition_by and _lower(partition_by) != _lower(snapshot.partition_columns):
        other = ", or set overwriteSchema to partition the rows in another way"
        raise SchemaError(
            f"the table at {snapshot.url} is partitioned by ({', '.join(snapshot.partition_columns)}), "
            f"not by ({', '.join(partition_by)}); leave the partition columns out or give the same"
            + (other if mode is Mode.OVERWRITE else "")
        )
    try:
        schema = check_append(snapshot.schema, incoming, merge=options.get(opt.MERGE_SCHEMA))
    except NewColumnError as error:
        if mode is not Mode.OVERWRITE:
            raise
        raise SchemaError(
            f"the table has no column {error.column}; set overwriteSchema to replace the columns, or "
            "mergeSchema to add the column"
        ) from None
    except ColumnTypeError as error:
        if mode is not Mode.OVERWRITE:
            raise
        raise SchemaError(
            f"{error.mismatch}; set overwriteSchema to replace the columns, or cast it to the table's type"
        ) from None
    properties = indexing_options(snapshot)
    effective = options.over(properties)
    check_address_types(schema, options, snapshot.partition_columns)
    mapping = mapping_for(schema, effective, snapshot.partition_columns)
    if mode is not Mode.OVERWRITE:
        check_same_fields(snapshot, properties, mapping)
    metadata = _metadata_change(snapshot.metadata, from_arrow(schema), _indexing_of(effective))
    return Target(schema, snapshot.partition_columns, mapping, metadata)


def _target_with_new_schema(
    snapshot: Snapshot, incoming: pa.Schema, partition_by: Sequence[str], options: Options
) -> Target:
    fresh = new_table(incoming, partition_by, options, now_ms=0, new_id=lambda: snapshot.metadata.id)
    assert fresh.metadata is not None
    metadata = msgspec.structs.replace(fresh.metadata, created_time=snapshot.metadata.created_time)
    return Target(fresh.schema, fresh.partition_columns, fresh.mapping, metadata)


def _metadata_change(metadata: Metadata, schema_string: str, indexing: Mapping[str, str]) -> Metadata | None:
    configuration = metadata.configuration or {}
    if metadata.schema_string == schema_string and indexing == indexing_properties(metadata):
        return None
    others = {k: v for k, v in configuration.items() if not k.startswith(INDEXING_PREFIX)}
    return msgspec.structs.replace(
        metadata, schema_string=schema_string, configuration={**others, **indexing}
    )


def _indexing_of(options: Options) -> dict[str, str]:
    return {k: v for k, v in sorted(options.values.items()) if k.startswith(INDEXING_PREFIX)}


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _new_id() -> str:
    return str(uuid.uuid4())


_ACCEPTED = (
    "an Arrow table, batch or reader, a pandas or Polars frame, anything else with the Arrow C stream "
    "interface, a list of dicts, or a dict of columns"
)


def as_reader(data: object) -> pa.RecordBatchReader:
    """A reader over the rows; a source that can stream is not read yet."""
    if isinstance(data, pa.RecordBatchReader):
        return data  # not wrapped, so that errors of its source keep their type
    if type(data).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.table(pa.record_batch(data)).to_reader()
    if isinstance(data, Mapping):
        return _table({str(name): values for name, values in data.items()}).to_reader()
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return _from_items(list(data))
    raise SchemaError(f"rows of type {type(data).__name__} cannot be written; give {_ACCEPTED}")


def _from_items(items: list[object]) -> pa.RecordBatchReader:
    if items and all(isinstance(item, pa.RecordBatch) for item in items):
        return pa.Table.from_batches(items).to_reader()
    rows = [item for item in items if isinstance(item, Mapping)]
    if not rows:
        raise SchemaError(f"a list without dicts has no columns, so it cannot be written; give {_ACCEPTED}")
    if len(rows) != len(items):
        odd = next(item for item in items if not isinstance(item, Mapping))
        raise SchemaError(f"a list of rows holds a {type(odd).__name__}; every row must be a dict")
    # A key that only later rows have is a column too, so all rows are examined.
    names = dict.fromkeys(str(name) for row in rows for name in row)
    return _table({name: [row.get(name) for row in rows] for name in names}).to_reader()


def _table(columns: Mapping[str, Sequence[object]]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(f"the values of column {name} have no common type: {error}") from None
    try:
        return pa.table(arrays)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"the columns do not form a table: {error}") from None
