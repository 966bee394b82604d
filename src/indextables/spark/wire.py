"""Rows as Spark takes them in Arrow: the same values, each in the one type that Spark knows for its own."""

import pyarrow as pa

_TIME = pa.time64("ns")


def wire_type(arrow: pa.DataType) -> pa.DataType:
    """The type in which values travel: times of day in nanoseconds, as Spark counts them."""
    if pa.types.is_time(arrow):
        return _TIME
    if pa.types.is_struct(arrow):
        return pa.struct([wire_field(field) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(wire_field(arrow.key_field), wire_field(arrow.item_field))
    if pa.types.is_list(arrow):
        return pa.list_(wire_field(arrow.value_field))
    return arrow


def wire_field(field: pa.Field) -> pa.Field:
    """A field in the type in which its values travel."""
    return field.with_type(wire_type(field.type))


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """Columns in the types in which their values travel."""
    return pa.schema([wire_field(field) for field in schema])


def wired(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types of a wire schema, any of which may be null."""
    if not batch.num_columns or batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
