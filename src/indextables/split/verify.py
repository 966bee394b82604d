"""A sample of rows whose entries in a merged index are compared with what was written."""

from typing import Any

import pyarrow as pa
import tantivy

from indextables.errors import SplitError
from indextables.split.footer import ROW_BITS, Chunk
from indextables.split.index.encode import hash_values, integer_values
from indextables.split.mapping import ROW_FIELD, Field, Kind, Mapping

_ROWS = 24


class Sample:
    """Rows taken while they pass by: the first of each chunk, up to a number."""

    def __init__(self, mapping: Mapping) -> None:
        kinds = (Kind.I64, Kind.HASH, Kind.BOOL)
        self._fields: list[Field] = [f for f in mapping.fields if f.fast and f.kind in kinds][:4]
        self._seen: set[int] = set()
        self._expected: list[tuple[int, dict[str, Any]]] = []

    def take(self, batch: pa.RecordBatch, position: int, chunks: tuple[Chunk, ...], start: int) -> None:
        """Look at a batch whose first row is row `position` of the result; chunks begin at `start`."""
        for chunk in chunks:
            if chunk.source in self._seen or len(self._expected) >= _ROWS or not chunk.rows:
                continue
            row = chunk.start + start + chunk.rows // 2 - position
            if 0 <= row < batch.num_rows:
                self._seen.add(chunk.source)
                self._expected.append(
                    ((chunk.source << ROW_BITS) | (chunk.rows // 2), self._values(batch.slice(row, 1)))
                )

    def check(self, index: tantivy.Index) -> None:
        """Raise SplitError if a row's entry is missing, doubled or another's."""
        searcher, schema = index.searcher(), index.schema
        for row_id, values in self._expected:
            query = tantivy.Query.range_query(schema, ROW_FIELD, tantivy.FieldType.Integer, row_id, row_id)
            hits = [address for _, address in searcher.search(query, 2).hits]
            found = [{name: searcher.fast_field_values(name, [hit])[0] for name in values} for hit in hits]
            if found != [values]:
                raise SplitError(
                    f"after merging, the index says {found} of a row that holds {values}; nothing was merged"
                )

    def _values(self, row: pa.RecordBatch) -> dict[str, Any]:
        return {field.name: _entry(field, row.column(field.column)) for field in self._fields}


def _entry(field: Field, value: pa.Array) -> Any:  # noqa: ANN401 - a number, a truth value or None
    match field.kind:
        case Kind.HASH:
            return hash_values(value)[0].as_py()
        case Kind.I64:
            return integer_values(value)[0].as_py()
        case _:
            return value[0].as_py()
