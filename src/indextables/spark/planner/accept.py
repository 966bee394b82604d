"""The operation `accept`: which of the conditions that Spark offers are answered exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.predicate import to_sql
from indextables.spark.planner.asked import asked
from indextables.spark.planner.expressions import conditions


def accept(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """For each filter the condition as SQL, or null if Spark has to evaluate it.

    Virtual columns are checked too, so that a malformed query fails before anything runs.
    """
    del blobs
    question = asked(request)
    found = conditions(request["filters"], question.scope)
    return {"accepted": [None if part is None else to_sql(part) for part in found]}, ()
