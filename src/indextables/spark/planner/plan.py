"""The operation `plan`: the tasks that read what a query wants."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType
from pyspark.worker_util import pickleSer

from indextables.errors import TableNotFoundError
from indextables.read import plan as plan_read
from indextables.spark.planner.tables import addressed
from indextables.spark.read_task import ReadFunction


def plan(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """A function that executors run, and what each task gives to it."""
    del blobs
    table = addressed(request)
    schema = StructType.fromJson(_parsed(request["schema"]))
    try:
        snapshot = table.log.snapshot()
        tasks = plan_read(snapshot, None, request["columns"], table.options, parallelism=2)
    except TableNotFoundError:
        tasks = ()
    function = ReadFunction(table.store.passport())
    return {}, [pickleSer.dumps((function, schema)), *(pickleSer.dumps(task) for task in tasks)]


def _parsed(text: str) -> dict[str, Any]:
    import json

    parsed: dict[str, Any] = json.loads(text)
    return parsed
