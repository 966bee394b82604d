"""Access to the parts of Arrow maps and lists: offsets, and arrays of children."""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Offsets: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def map_parts(array: pa.MapArray) -> tuple[Offsets, pa.Array, pa.Array]:
    """Offsets from 0 on, keys and items, without children outside of the slice or below nulls."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.keys.slice(start, length), array.items.slice(start, length)


def list_parts(array: pa.ListArray) -> tuple[Offsets, pa.Array]:
    """Offsets from 0 on, and values, without children outside of the slice or below nulls."""
    array = _plain(array)
    offsets, start, length = _offsets(array)
    return offsets, array.values.slice(start, length)


def map_of(offsets: Offsets, keys: pa.Array, items: pa.Array, mask: pa.Array | None) -> pa.MapArray:
    """The map with these parts; null where the mask is true."""
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which rows are null; None if there are none."""
    return array.is_null() if array.null_count else None


def select_offsets(offsets: Offsets, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> Offsets:
    """The offsets after a selection of the children."""
    counts = np.zeros(len(keep) + 1, np.int32)
    np.cumsum(keep, out=counts[1:])
    return counts[offsets]


def lookup(maps: pa.MapArray, key: str) -> tuple[pa.Array, Mask]:
    """For each map of strings the value under a key, and whether the key is there.

    Arrow's own `map_lookup` takes several times as long.
    """
    offsets, keys, items = map_parts(maps)
    keys, items = keys.cast(pa.string()), items.cast(pa.string())
    if (same := _same_places(offsets, keys, key)) is not None:
        return items.take(same), np.ones(len(maps), np.bool_)
    hits = np.flatnonzero(_equal(keys, key))
    owners = owners_of(offsets, hits)
    present = np.zeros(len(maps), np.bool_)
    present[owners] = True
    places = np.zeros(len(maps), np.int64)
    places[owners] = hits
    return items.take(pa.array(places, mask=~present)), present


def owners_of(offsets: Offsets, places: Places) -> Places:
    """Which list or map each of these children belongs to."""
    widths = np.diff(offsets)
    if len(widths) and widths[0] > 0 and (widths == widths[0]).all():
        return places // int(widths[0])
    return np.searchsorted(offsets, places, side="right") - 1


def _same_places(offsets: Offsets, keys: pa.Array, key: str) -> pa.Array | None:
    """The positions of the key, if all maps have the same keys in the same order, as those of one writer."""
    widths = np.diff(offsets)
    width = int(widths[0]) if len(widths) else 0
    if not width or not (widths == width).all():
        return None
    first = pc.index(keys.slice(0, width), key).as_py()
    if first < 0:
        return None
    places = pa.array(np.arange(first, len(keys), width))
    return places if _equal(keys.take(places), key).all() else None


def _equal(texts: pa.Array, text: str) -> Mask:
    return np.asarray(pc.equal(texts, text).to_numpy(zero_copy_only=False), np.bool_)


def _offsets(array: pa.Array) -> tuple[Offsets, int, int]:
    if len(array) == 0:
        return np.zeros(1, np.int32), 0, 0
    offsets: Offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - np.int32(start), start, end - start


def _plain(array: pa.Array) -> pa.Array:
    """The array; rebuilt if a null row has children, which Arrow allows."""
    if array.null_count and len(array):
        lengths = np.diff(array.offsets.to_numpy())
        if lengths[array.is_null().to_numpy(zero_copy_only=False)].any():
            return pa.array(array.to_pylist(), array.type)
    return array
