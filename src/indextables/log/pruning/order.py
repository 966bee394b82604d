"""Which files may hold one of the first rows in the order of a column.

If files with enough rows lie wholly before some value, a file that lies wholly behind it holds none of the
first rows. What is unknown keeps its file, as everywhere (`indextables.log.pruning.judge`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.pruning.columns import Entries, Mask, as_mask, find_field


@dataclass(frozen=True, slots=True)
class First:
    """The first `count` rows by a column; equal rows come in any order, or in that of further columns."""

    column: str
    count: int
    ascending: bool
    nulls_first: bool


def may_hold_first(
    files: pa.Table, first: First, certain: Mask, schema: pa.Schema, partition_columns: Sequence[str]
) -> Mask:
    """For each file: may it hold one of the first rows?

    `certain` says of which files all rows are wanted, whatever else a query asks for.
    """
    keep = np.ones(files.num_rows, dtype=np.bool_)
    column = find_field(schema, (first.column,))
    if column is None or not files.num_rows:
        return keep
    found = [_ends(Entries(batch, schema, partition_columns), column) for batch in files.to_batches()]
    if any(ends is None for ends in found):
        return keep
    ends = _Ends.joined([ends for ends in found if ends is not None])
    # The end that comes first in the order, and the one that comes last.
    near, far = (ends.low, ends.high) if first.ascending else (ends.high, ends.low)
    counts = files["numRecords"].combine_chunks()
    sure = certain & ~ends.may_null & as_mask(far.is_valid()) & as_mask(counts.is_valid())
    if first.ascending:
        sure &= ~ends.open_ended
    places = np.flatnonzero(sure)
    direction = "ascending" if first.ascending else "descending"
    order = places[np.asarray(pc.array_sort_indices(far.take(pa.array(places)), order=direction))]
    rows = np.cumsum(counts.take(pa.array(order)).to_numpy(zero_copy_only=False))
    enough = int(np.searchsorted(rows, first.count))
    if enough == len(rows):
        return keep
    limit = far[order[enough]]
    behind = pc.greater(near, limit) if first.ascending else pc.less(near, limit)
    keep = ~as_mask(behind)
    if not first.ascending:
        keep |= ends.open_ended
    return keep | ends.may_null if first.nulls_first else keep


@dataclass(frozen=True, slots=True)
class _Ends:
    """The bounds of a column in each file, null where they are not known, and what else matters of it."""

    low: pa.Array
    high: pa.Array
    open_ended: Mask
    may_null: Mask

    @classmethod
    def joined(cls, parts: Sequence["_Ends"]) -> "_Ends":
        return cls(
            pa.concat_arrays([part.low for part in parts]),
            pa.concat_arrays([part.high for part in parts]),
            np.concatenate([part.open_ended for part in parts]),
            np.concatenate([part.may_null for part in parts]),
        )


def _ends(entries: Entries, column: pa.Field) -> _Ends | None:
    known = entries.known(column)
    if known.low is None or known.high is None:
        return None
    low, high = known.low, known.high
    if known.codes is not None:
        codes = pa.array(known.codes)
        low, high = low.take(codes), high.take(codes)
    if known.unsure is not None:
        unsure = pa.array(known.unsure)
        low, high = (pc.if_else(unsure, pa.scalar(None, end.type), end) for end in (low, high))
    open_ended = np.zeros(entries.count, dtype=np.bool_)
    if known.open_ended is not None:
        open_ended = known.open_ended if known.codes is None else known.open_ended[known.codes]
    return _Ends(low, high, open_ended, entries.may_null(column))
