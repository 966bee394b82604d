"""Arrow maps and lists by their parts: offsets, and the children that they cut."""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Offsets: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]


def map_parts(array: pa.MapArray) -> tuple[Offsets, pa.Array, pa.Array]:
    """Offsets from 0 on, keys and items; slices are cut to size, and nothing hides below a null."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.keys.slice(start, length), array.items.slice(start, length)


def list_parts(array: pa.ListArray) -> tuple[Offsets, pa.Array]:
    """Offsets from 0 on, and values; slices are cut to size, and nothing hides below a null."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.values.slice(start, length)


def map_of(offsets: Offsets, keys: pa.Array, items: pa.Array, mask: pa.Array | None) -> pa.MapArray:
    """The map with these parts; null where the mask says so."""
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which rows are null; None if there are none."""
    return array.is_null() if array.null_count else None


def kept_offsets(offsets: Offsets, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> Offsets:
    """The offsets after only some of the children are kept."""
    counts = np.zeros(len(keep) + 1, np.int32)
    np.cumsum(keep, out=counts[1:])
    return counts[offsets]


def _offsets(array: pa.Array) -> tuple[Offsets, int, int]:
    if len(array) == 0:
        return np.zeros(1, np.int32), 0, 0
    offsets: Offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - np.int32(start), start, end - start


def _plain(array: pa.Array) -> pa.Array:
    """The array, built anew if a null row has children, as Arrow allows it to."""
    if array.null_count and len(array):
        lengths = np.diff(array.offsets.to_numpy())
        if lengths[array.is_null().to_numpy(zero_copy_only=False)].any():
            return pa.array(array.to_pylist(), array.type)
    return array
