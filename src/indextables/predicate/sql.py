"""A SQL condition as text, parsed into the condition tree."""

import pyarrow as pa

from indextables.predicate.tree import Predicate


def parse_condition(text: str, schema: pa.Schema, *, time_zone: str = "UTC") -> Predicate:
    """Parse a Spark SQL WHERE condition against a schema.

    Every value of a `Compare` or `In` in the result has exactly the type of its column.

    Args:
        text: The condition.
        schema: The columns it may name.
        time_zone: The session's time zone, in which zoneless texts are timestamps.

    Raises:
        PredicateError: The condition is malformed, names an unknown column, or asks for something that
            cannot be answered; the message shows where.
    """
    raise NotImplementedError
