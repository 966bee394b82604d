"""The operation `aggregate`: whether an aggregate is answered, and whether completely."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from indextables.read import Function
from indextables.read.request import Request
from indextables.schema.spark import from_arrow
from indextables.spark.planner.aggregation import is_distinct, requested, spark_schema
from indextables.spark.planner.asked import asked
from indextables.spark.planner.inline import inline_groups
from indextables.spark.planner.selection import select


def aggregate(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """What the answer's columns are; nothing if Spark has to compute the aggregate.

    A complete answer has one row for each group; otherwise Spark adds up what tasks return.
    """
    del blobs
    question = asked(request)
    if question is None:
        return {}, ()
    where = question.where(request)
    selection = select(question.snapshot, where)
    found = requested(request["aggregate"], question, where, selection.files)
    if found is None:
        return {}, ()
    answer = inline_groups(
        question.snapshot, selection.files, where, question.facts, found, question.table.store
    )
    if answer is None and (is_distinct(found) or has_average(request) or _sums_decimals(found)):
        return {}, ()
    return {"complete": answer is not None, "schema": from_arrow(spark_schema(found, question))}, ()


def has_average(request: Mapping[str, Any]) -> bool:
    """Whether there is an average, which Spark takes apart into sum and count if it is not complete."""
    return any(each["function"] == "avg" for each in request["aggregate"]["functions"])


def _sums_decimals(found: Request) -> bool:
    """Whether Spark would cast parts of a sum to the type of what is summed, too small for them perhaps."""
    return any(
        each.function is Function.SUM and pa.types.is_decimal(found.results.field(each.name).type)
        for each in found.aggregates
    )
