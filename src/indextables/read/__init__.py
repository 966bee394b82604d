"""Reads a table: scans, searches, counts and aggregates, over many splits in parallel."""

from indextables.read.execute import aggregate, count, execute, scan
from indextables.read.search import search
from indextables.read.spec import (
    Aggregate,
    AggregateSpec,
    Bucket,
    DateHistogram,
    Function,
    Group,
    Histogram,
    RangeBuckets,
    ScanSpec,
    parse_aggregate,
)

__all__ = [
    "Aggregate",
    "AggregateSpec",
    "Bucket",
    "DateHistogram",
    "Function",
    "Group",
    "Histogram",
    "RangeBuckets",
    "ScanSpec",
    "aggregate",
    "count",
    "execute",
    "parse_aggregate",
    "scan",
    "search",
]
