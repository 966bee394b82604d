"""Whatever the caller has, as a stream of Arrow batches."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from indextables.errors import SchemaError

_ACCEPTED = (
    "an Arrow table, batch or reader, a pandas or Polars frame, anything else with the Arrow C stream "
    "interface, a list of dicts, or a dict of columns"
)


def as_reader(data: object) -> pa.RecordBatchReader:
    """A reader over the rows; nothing is read yet where the source can stream."""
    if isinstance(data, pa.RecordBatchReader):
        return data  # as it is: an error of its source keeps its own type
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
    # A key that only later rows have is a column too, so all rows are asked.
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
