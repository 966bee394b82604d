"""The operation `estimate`: how much a scan returns, for Spark's choice of joins."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.spark.planner.asked import asked
from indextables.spark.planner.selection import select


def estimate(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """No fewer rows and bytes than are returned, as far as the log tells."""
    del blobs
    question = asked(request)
    if question is None:
        return {"rows": 0, "bytes": 1}, ()
    selection = select(question.snapshot, question.where(request))
    rows = selection.rows
    limit = request.get("limit")
    share = 1.0 if limit is None or not rows else min(1.0, limit / rows)
    width = (len(request["columns"]) + 1) / (len(question.facts.schema) + 1)
    return {
        "rows": rows if limit is None else min(rows, limit),
        "bytes": max(int(selection.bytes * share * min(1.0, width)), 1),
    }, ()
