"""The operation `buckets`: whether the constants of a bucket function make sense."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.read import DateHistogram
from indextables.spark.virtual import make_buckets


def buckets(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Nothing for numbers; interval and offset in microseconds for times."""
    del blobs
    made = make_buckets(request["kind"], "column", request["arguments"])
    if isinstance(made, DateHistogram):
        return {"interval": made.interval_us, "offset": made.offset_us}, ()
    return {}, ()
