"""Conditions evaluated over rows, as Spark would."""

from collections.abc import Callable

import pyarrow as pa

from indextables.predicate.tree import Predicate, Search


def evaluate(
    predicate: Predicate,
    rows: pa.RecordBatch | pa.Table,
    *,
    search: Callable[[Search], pa.BooleanArray] | None = None,
) -> pa.BooleanArray:
    """Whether the condition is true, false or unknown (null) for each row."""
    raise NotImplementedError
