"""The choice that waits for rows: a string column that nobody named is searched by terms or by hash.

Terms answer every kind of search, and cost little where values recur. In a column of keys (trace ids, UUIDs,
digests) they would take more room than the rows; a hash finds a key just as fast.
"""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from indextables.split.mapping import Field, Kind, Mapping, field_name

_LEAST_ROWS = 1000
_DISTINCT = 0.95
_KEY = r"^[0-9A-Za-z_:+=-]{16,128}$"


def settled(mapping: Mapping, sample: pa.Table) -> Mapping:
    """The plan with its open choices made from a sample of rows."""
    return mapping.with_fields(field if field.settled else _choose(field, sample) for field in mapping.fields)


def _choose(field: Field, sample: pa.Table) -> Field:
    if not are_keys(sample.column(field.column)):
        return replace(field, settled=True)
    name = field_name(Kind.HASH, field.column)
    return replace(field, name=name, kind=Kind.HASH, indexed=False, fast=True, settled=True)


def are_keys(values: pa.ChunkedArray) -> bool:
    """Whether the values look like keys: nearly all distinct, of some length, letters and digits.

    >>> import uuid
    >>> are_keys(pa.chunked_array([[str(uuid.uuid4()) for _ in range(2000)]]))
    True
    >>> are_keys(pa.chunked_array([[f"user {i}" for i in range(2000)]]))
    False
    """
    rows = len(values) - values.null_count
    if rows < _LEAST_ROWS or not pc.all(pc.match_substring_regex(values, _KEY)).as_py():
        return False
    return bool(pc.count_distinct(values).as_py() >= _DISTINCT * rows)
