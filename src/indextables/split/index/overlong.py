"""Rows whose tokens are too long for the index: found here, so that a search can look at the rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.options.indexing import ngram_bounds
from indextables.split.index.json_text import Mask

_SPACES = b" \t\n\r\x0c"
_WORDS = bytes(b for b in range(256) if b >= 128 or chr(b).isalnum())


def _inside(members: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


# Bytes that can stand within a token. Beyond ASCII every byte may: too many rows are better than too few.
_WORD_BYTES = _inside(_WORDS)
_NON_SPACE_BYTES = ~_inside(_SPACES)


def rows_with_long_tokens(strings: pa.Array, tokenizer: str, limit: int) -> Mask | None:
    """Which values may hold a token of more than `limit` bytes; None if none can.

    A value is listed if it holds so many bytes in a row that can belong to one token.

    >>> rows_with_long_tokens(pa.array(["a bc def", "abcd e", None]), "default", 3).tolist()
    [False, True, False]
    """
    grams = ngram_bounds(tokenizer)
    if grams is not None and 4 * grams[1] <= limit:
        return None
    lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
    long: Mask = lengths > limit
    if tokenizer == "raw" or grams is not None or not long.any():
        return long if long.any() else None
    inside = _NON_SPACE_BYTES if tokenizer == "whitespace" else _WORD_BYTES
    candidates = strings.filter(pa.array(long))
    found = _runs_over(candidates, inside, limit)
    result: Mask = np.zeros(len(strings), np.bool_)
    result[np.flatnonzero(long)[found]] = True
    return result if result.any() else None


def _runs_over(strings: pa.Array, inside: np.ndarray[Any, np.dtype[np.bool_]], limit: int) -> Mask:
    """Which of the strings (none is null or empty) have more than `limit` such bytes in a row."""
    offsets = np.frombuffer(strings.buffers()[1], np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    data = np.frombuffer(strings.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    # A run ends before a byte outside, and where a value does; the next one begins after it.
    outside = np.flatnonzero(~inside[data])
    ends = np.sort(np.concatenate((outside, starts[1:], [len(data)])))
    begins = np.sort(np.concatenate((starts, outside + 1)))
    long = begins[ends - begins > limit]
    found: Mask = np.zeros(len(strings), np.bool_)
    found[np.searchsorted(starts, long, side="right") - 1] = True
    return found
