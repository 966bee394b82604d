"""The first rows of an order, with Spark's meaning of it: nulls first or last, NaN above all numbers."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.read.partials import float_order
from indextables.spark.wanted import SortKey


def can_order(arrow: pa.DataType) -> bool:
    """Whether values of a type are ordered here as Spark orders them."""
    return bool(
        pa.types.is_integer(arrow)
        or pa.types.is_floating(arrow)
        or pa.types.is_decimal(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_binary(arrow)
        or pa.types.is_date32(arrow)
        or pa.types.is_timestamp(arrow)
    )


def first(columns: Mapping[str, pa.Array], order: Sequence[SortKey], count: int) -> np.ndarray:
    """The places of the first `count` rows in an order; equal rows in the order they have."""
    rows = len(next(iter(columns.values())))
    keys: dict[str, pa.Array] = {}
    directions: list[tuple[str, str]] = []
    for number, key in enumerate(order):
        values = columns[key.column]
        # Arrow puts the nulls of all keys on one side, so they get a key of their own.
        missing = values.is_null().cast(pa.int8())
        keys[f"null{number}"] = missing
        directions.append((f"null{number}", "descending" if key.nulls_first else "ascending"))
        keys[f"value{number}"] = float_order(values) if pa.types.is_floating(values.type) else values
        directions.append((f"value{number}", "ascending" if key.ascending else "descending"))
    keys["place"] = pa.array(np.arange(rows))
    directions.append(("place", "ascending"))
    sorted_ = pc.sort_indices(pa.table(keys), sort_keys=directions)
    found: np.ndarray = sorted_.to_numpy()[:count]
    return found


def not_behind(values: pa.Array, worst: pa.Scalar, key: SortKey) -> pa.Array:
    """Which values of a column come before a value in an order, or stand beside it."""
    if not worst.is_valid:
        # Before nulls that come last stands everything, before nulls that come first other nulls.
        return values.is_null() if key.nulls_first else pa.array(np.ones(len(values), dtype=np.bool_))
    if pa.types.is_floating(values.type):
        worst = float_order(pa.array([worst.as_py()], values.type))[0]
        values = float_order(values)
    found = pc.less_equal(values, worst) if key.ascending else pc.greater_equal(values, worst)
    return found.fill_null(key.nulls_first)
