"""The operations `accept`, `order`, `aggregate`, `estimate` and `buckets`, which Spark's optimizer calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.predicate import In, Predicate, to_sql
from indextables.predicate.traversal import longest_list, map_leaves
from indextables.read import DateHistogram
from indextables.schema.spark import from_arrow
from indextables.spark.planner.aggregation import can_order_by, must_be_complete, pushed_spec, spark_schema
from indextables.spark.planner.expressions import conditions
from indextables.spark.planner.inline import can_answer_groups
from indextables.spark.planner.read_context import make_buckets, read_context
from indextables.spark.planner.scan_plan import select_splits

_MAX_SHOWN_VALUES = 100
# The size of a split divided by that of the same rows in Parquet by Spark: 1.03 to 1.5 (docs/benchmarks.md).
_PARQUET_RATIO = 1.2


def accept(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """For each filter the condition as SQL, or null if Spark has to evaluate it.

    Virtual columns are validated too, so that a malformed query fails before anything runs.
    """
    del blobs
    context = read_context(request)
    if context is None:
        return {"accepted": [None] * len(request["filters"])}, ()
    predicates = conditions(request["filters"], context.scope)
    return {"accepted": [None if part is None else _explain_text(part) for part in predicates]}, ()


def _explain_text(condition: Predicate) -> str:
    """The condition for EXPLAIN, with long lists shortened."""
    longest = longest_list(condition)
    if longest <= _MAX_SHOWN_VALUES:
        return to_sql(condition)
    text = to_sql(map_leaves(condition, _shorten))
    return f"{text} [of up to {longest} values the first {_MAX_SHOWN_VALUES}]"


def _shorten(part: Predicate) -> Predicate:
    return In(part.column, part.values[:_MAX_SHOWN_VALUES]) if isinstance(part, In) else part


def order(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Whether each split can return its first rows by these columns, for ORDER BY with LIMIT."""
    del blobs
    context = read_context(request)
    columns = request["columns"]
    return {"accepted": context is not None and all(can_order_by(path, context) for path in columns)}, ()


def aggregate(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The columns of a pushed aggregation's result; empty if Spark has to compute it.

    A complete result has one row for each group; otherwise Spark combines the partial results of tasks.
    """
    del blobs
    context = read_context(request)
    if context is None:
        return {}, ()
    where = context.where(request)
    files = select_splits(context.snapshot, where).files
    spec = pushed_spec(request["aggregate"], context, where, files)
    if spec is None:
        return {}, ()
    cores = request["parallelism"]
    complete = can_answer_groups(context.snapshot, files, spec, context.location.store, cores)
    if not complete and must_be_complete(request["aggregate"], spec):
        return {}, ()
    return {"complete": complete, "schema": from_arrow(spark_schema(spec))}, ()


def estimate(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """For Spark's choice of joins: an upper bound of the rows of a scan, and the size of their Parquet files.

    It is that of files by Spark, with all columns: Spark then plans the joins that it plans for Parquet. Of a
    companion index, whose rows are elsewhere, it is the size of the splits before compression.
    """
    del blobs
    context = read_context(request)
    if context is None:
        return {"rows": 0, "bytes": 1}, ()
    selection = select_splits(context.snapshot, context.where(request))
    rows = selection.rows
    limit = request.get("limit")
    share = 1.0 if limit is None or not rows else min(1.0, limit / rows)
    is_companion = context.table.source is not None
    size = selection.uncompressed_bytes if is_companion else selection.bytes / _PARQUET_RATIO
    return {
        "rows": rows if limit is None else min(rows, limit),
        "bytes": max(int(size * share), 1),
    }, ()


def buckets(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Validate the constants of a bucket function; for times, interval and offset in microseconds."""
    del blobs
    parsed = make_buckets(request["kind"], "column", request["arguments"])
    if isinstance(parsed, DateHistogram):
        return {"interval": parsed.interval_us, "offset": parsed.offset_us}, ()
    return {}, ()
