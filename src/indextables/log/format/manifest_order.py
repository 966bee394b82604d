"""Entries in the order of their partitions, and the bounds that this order makes tight."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.nested import lookup
from indextables.log.format.state_manifest import Bounds
from indextables.schema.values import parse_values

# What another engine would take for a number when it compares bounds.
_NUMBER_LIKE = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"


def sorted_by_partition(entries: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Entries sorted by their partition values, compared as the columns' types; nulls last."""
    if not columns or entries.num_rows < 2:
        return entries
    keys = pa.table({f"k{i}": _typed(entries, schema, name) for i, name in enumerate(columns)})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return entries.take(order)


def bounds_of(entries: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> dict[str, Bounds]:
    """The smallest and largest value of each partition column; left out where it could mislead.

    Other engines compare bounds as numbers when both look like numbers, whatever the column's type. For
    strings that mix both looks, no bounds are right for them and for us, so none are given.
    """
    found: dict[str, Bounds] = {}
    for name in columns:
        texts = partition_texts(entries, name).unique()
        values, unreadable = parse_values(texts, schema.field(name).type, partition=True)
        if unreadable.any():
            continue  # a value that is not of the column's type: no order to speak of
        if values.null_count == len(values):
            found[name] = Bounds(None, None)
            continue
        order = pc.sort_indices(values)  # nulls last
        low = texts[order[0].as_py()].as_py()
        high = texts[order[len(values) - values.null_count - 1].as_py()].as_py()
        if low == high or not _mistakable(texts, schema.field(name).type):
            found[name] = Bounds(low, high)
    return found


def partition_texts(entries: pa.Table, name: str) -> pa.Array:
    """The partition values of one column, as they are written; null where there is none."""
    chunks = [lookup(chunk, name)[0] for chunk in entries["partitionValues"].chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


def _mistakable(texts: pa.Array, kind: pa.DataType) -> bool:
    if not pa.types.is_string(kind):
        return False
    return bool(pc.any(pc.match_substring_regex(texts, _NUMBER_LIKE)).as_py())


def _typed(entries: pa.Table, schema: pa.Schema, name: str) -> pa.Array:
    """The partition values of one column, each distinct text read once; null where it cannot be read."""
    encoded = partition_texts(entries, name).dictionary_encode()
    distinct = parse_values(encoded.dictionary, schema.field(name).type, partition=True)
    return distinct.values.take(encoded.indices)
