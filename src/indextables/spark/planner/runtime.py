"""Conditions that Spark finds while a query runs: values of the other side of a join."""

from collections.abc import Mapping
from typing import Any

from indextables.predicate import In, Predicate
from indextables.spark.planner.asked import Asked
from indextables.spark.planner.expressions import condition, conjunction

# The join checks every row anyway: a list that is longer than this costs more than it spares.
_MOST_VALUES = 1000


def runtime_condition(question: Asked, request: Mapping[str, Any]) -> Predicate | None:
    """The pushed condition, narrowed by what is known by now; long lists only where they choose folders."""
    parts = [question.where(request)]
    partitions = {name.lower() for name in question.facts.partition_columns}
    for expression in request.get("runtime") or ():
        found = condition(expression, question.scope)
        if isinstance(found, In) and len(found.values) > _MOST_VALUES:
            found = found if found.column.path[0].lower() in partitions else None
        parts.append(found)
    return conjunction([part for part in parts if part is not None])
