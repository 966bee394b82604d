"""Reading a table: scans, searches, counts and aggregates, over many splits at once."""

from indextables.read.aggregation.run import aggregate
from indextables.read.aggregation.spec import (
    Aggregate,
    AggregateSpec,
    Bucket,
    DateHistogram,
    Function,
    Group,
    Histogram,
    RangeBuckets,
    parse_aggregate,
)
from indextables.read.scan import count, execute, scan
from indextables.read.scan_spec import ScanSpec
from indextables.read.search import search

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
