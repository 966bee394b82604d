"""Reading a table: scans, searches, counts and aggregates, over many splits at once."""

from indextables.read.aggregate import AggregatePlan, AggregateTask, aggregate, plan_aggregate, run_aggregate
from indextables.read.aggregates import (
    Aggregate,
    Bucket,
    DateHistogram,
    Function,
    Group,
    Histogram,
    RangeBuckets,
)
from indextables.read.ranked import search
from indextables.read.scan import count, run, scan
from indextables.read.tasks import ReadTask, plan

__all__ = [
    "Aggregate",
    "AggregatePlan",
    "AggregateTask",
    "Bucket",
    "DateHistogram",
    "Function",
    "Group",
    "Histogram",
    "RangeBuckets",
    "ReadTask",
    "aggregate",
    "count",
    "plan",
    "plan_aggregate",
    "run",
    "run_aggregate",
    "scan",
    "search",
]
