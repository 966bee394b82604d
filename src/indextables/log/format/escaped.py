"""Partition values as the original's row writer left them in its log: escaped like the names of folders.

It replaced ten characters and left `%` as it was, so an escaped text can be two values. The statistics of a
split hold the value itself, and decide. Its other writer names splits `part-<uuid>.split`, without escapes.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.block_index import Bounds
from indextables.log.format.nested import map_of, map_parts, null_mask
from indextables.schema.statistics import PARQUET_TAG

_CHARACTERS = {f"%{ord(character):02X}": character for character in '/\\:*?"<>| '}
_ESCAPE = re.compile("|".join(_CHARACTERS))
_UNESCAPED_NAME = r"(^|/)part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.split$"


def unescaped(text: str) -> str:
    """The value of which the original made this text.

    >>> unescaped("eu%20west"), unescaped("50%"), unescaped("100%25")
    ('eu west', '50%', '100%25')
    """
    return _ESCAPE.sub(lambda found: _CHARACTERS[found[0]], text)


def with_unescaped_partitions(files: pa.Table) -> pa.Table:
    """A file list whose partition values are those of the rows, whoever wrote the split."""
    if not any(pc.any(_escapes(chunk)).as_py() for chunk in files["partitionValues"].chunks):
        return files
    column = files["partitionValues"].combine_chunks()
    offsets, keys, items = map_parts(column)
    found = _escapes(column)
    places = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    rows = np.searchsorted(offsets, places, side="right") - 1
    affected = files.select(["path", "splitTags", "minValues", "maxValues"]).take(pa.array(np.unique(rows)))
    facts = dict(zip(np.unique(rows).tolist(), affected.to_pylist(), strict=True))
    plain = dict(
        zip(facts, pc.match_substring_regex(affected["path"], _UNESCAPED_NAME).to_pylist(), strict=True)
    )
    values = items.to_pylist()
    for place, row in zip(places.tolist(), rows.tolist(), strict=True):
        if not plain[row]:
            values[place] = _value(values[place], keys[place].as_py(), facts[row])
    mapped = map_of(offsets, keys, pa.array(values, pa.string()), null_mask(column))
    number = files.schema.get_field_index("partitionValues")
    return files.set_column(number, files.schema.field(number), mapped)


def unescaped_bounds(bounds: Mapping[str, Bounds], schema: pa.Schema) -> dict[str, Bounds]:
    """The bounds of a manifest of the original that hold for the values themselves.

    Texts are ordered otherwise once they are escaped, so of their bounds only a single value is of use.
    """
    texts = {f.name.lower() for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)}
    return {
        name: Bounds(_unescaped(bound.min), _unescaped(bound.max))
        for name, bound in bounds.items()
        if name.lower() not in texts or bound.min == bound.max
    }


def _unescaped(text: str | None) -> str | None:
    return None if text is None else unescaped(text)


def _escapes(maps: pa.MapArray) -> pa.Array:
    """Which values of some maps, one after the other, may be escaped."""
    return pc.match_substring_regex(map_parts(maps)[2], _ESCAPE.pattern).fill_null(False)


def _value(text: str, column: str, entry: dict[str, Any]) -> str:
    if PARQUET_TAG in (entry["splitTags"] or ()):
        return text
    low, high = (dict(entry[name] or ()).get(column) for name in ("minValues", "maxValues"))
    return text if low == high == text else unescaped(text)
