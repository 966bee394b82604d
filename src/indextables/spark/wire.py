"""What goes between Python and Spark: Arrow batches in Spark's types, and exact pickles."""

import io
import pickle
from typing import Any

import pyarrow as pa

from indextables.schema.type_info import TypeKind, kind_of

_TIME = pa.time64("ns")


def wire_type(arrow: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values: times of day in nanoseconds."""
    match kind_of(arrow):
        case TypeKind.TIME:
            return _TIME
        case TypeKind.STRUCT:
            return pa.struct([wire_field(field) for field in arrow])
        case TypeKind.MAP:
            return pa.map_(wire_field(arrow.key_field), wire_field(arrow.item_field))
        case TypeKind.LIST:
            return pa.list_(wire_field(arrow.value_field))
        case _:
            return arrow


def wire_field(field: pa.Field) -> pa.Field:
    """A field in the type in which Spark takes its values."""
    return field.with_type(wire_type(field.type))


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """A schema in the types in which Spark takes values."""
    return pa.schema([wire_field(field) for field in schema])


def to_wire(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to a wire schema."""
    if not batch.num_columns or batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def dumps(given: object) -> bytes:
    """Pickle an object in which there may be Arrow scalars.

    Arrow pickles a scalar as a Python object, and Python has no timestamps beyond the year 9999. Here
    scalars are pickled as arrays.
    """
    sink = io.BytesIO()
    _Pickler(sink, protocol=5).dump(given)
    return sink.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, given: object) -> Any:  # noqa: ANN401 - as pickle declares it
        if isinstance(given, pa.Scalar):
            return _scalar, (pa.repeat(given, 1),)
        return NotImplemented


def _scalar(array: pa.Array) -> pa.Scalar:
    return array[0]
