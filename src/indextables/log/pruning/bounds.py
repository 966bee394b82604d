"""What the bounds of a manifest, or of a block of one, say of its partition columns."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from indextables.log.pruning.columns import Known, Mask, as_mask, find_field
from indextables.log.pruning.literal import to_scale
from indextables.schema.type_info import is_collated
from indextables.schema.values import NULL_PARTITION, parse_values

# Texts of which the order is that of the dates: years of four digits.
_PLAIN_YEAR = r"^[0-9]{4}-"


class ManifestBounds:
    """One manifest, of which only the least and the greatest partition values are known."""

    count = 1

    def __init__(
        self,
        bounds: Mapping[str, tuple[str | None, str | None]],
        schema: pa.Schema,
        partition_columns: Sequence[str],
        *,
        ordered: bool,
    ) -> None:
        self._bounds = bounds
        self._schema = schema
        self._partitions = {name.lower() for name in partition_columns}
        self._ordered = ordered

    def field_of(self, path: tuple[str, ...]) -> pa.Field | None:
        """The column of the table that a condition names."""
        return find_field(self._schema, path)

    def known(self, column: pa.Field) -> Known:
        """The column's bounds, where there are any that can be relied upon."""
        least, greatest = self._bounds.get(column.name, (None, None))
        if (
            column.name.lower() not in self._partitions
            or is_collated(column)
            or least is None
            or greatest is None
        ):
            return Known(1)
        texts = pa.array(
            [None if text == NULL_PARTITION else text for text in (least, greatest)], pa.string()
        )
        if not self._ordered and not _in_order(texts, column.type):
            return Known(1)
        values = to_scale(parse_values(texts, column.type).values)
        if values is None:
            return Known(1)
        low, high = values.slice(0, 1), values.slice(1, 1)
        if as_mask(pc.greater(low, high)).any():
            return Known(1)
        return Known(1, low, high)

    def may_null(self, column: pa.Field) -> Mask:  # noqa: ARG002 - bounds are silent about nulls
        """Bounds leave nulls out, so there may be some."""
        return np.ones(1, dtype=np.bool_)

    def may_value(self, column: pa.Field) -> Mask:  # noqa: ARG002 - absent bounds may just be unknown ones
        """There may be values."""
        return np.ones(1, dtype=np.bool_)


def _in_order(texts: pa.Array, arrow: pa.DataType) -> bool:
    """Whether an order of texts that look like numbers by number, and of others by letter, is the type's own.

    It is not for strings, where both looks may occur and even equal bounds can hide a value, nor for
    decimals, of which doubles tell only so many apart.
    """
    if pt.is_date(arrow) or pt.is_timestamp(arrow):
        return all(as_mask(pc.match_substring_regex(texts, _PLAIN_YEAR)))
    return bool(pt.is_integer(arrow) or pt.is_floating(arrow) or pt.is_boolean(arrow))
