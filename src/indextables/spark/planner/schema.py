"""The operation `schema`: what a table consists of, if there is one."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.errors import TableNotFoundError
from indextables.spark.planner.tables import addressed


def schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The schema, as Spark writes it, and the partition columns; nothing of these where there is no table."""
    del blobs
    table = addressed(request)
    try:
        snapshot = table.log.snapshot()
    except TableNotFoundError:
        return {"url": table.store.url}, ()
    return {
        "url": table.store.url,
        "schema": snapshot.metadata.schema_string,
        "partitions": list(snapshot.partition_columns),
        "version": snapshot.version,
    }, ()
