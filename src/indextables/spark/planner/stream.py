"""The operations `stream_start` and `stream_latest`, and the snapshot of a micro-batch."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.errors import OptionError
from indextables.log.snapshot import Snapshot
from indextables.read.stream import Offset, TableStream
from indextables.spark.planner.tables import TableLocation, locate_table, starting_version

Request = Mapping[str, Any]
Answer = tuple[Mapping[str, Any], Sequence[bytes]]


def stream_start(request: Request, blobs: Sequence[bytes]) -> Answer:
    """The offset at which a new stream starts."""
    del blobs
    return {"offset": start_of(_streamed_table(request)).to_json()}, ()


def _streamed_table(request: Request) -> TableLocation:
    """The table of a stream.

    Raises:
        OptionError: the options name a version, which a stream does not have.
    """
    table = locate_table(request)
    if table.version is not None or table.timestamp_ms is not None:
        raise OptionError(
            "a stream has no version; give startingVersion or startingTimestamp instead of versionAsOf and "
            "timestampAsOf"
        )
    return table


def start_of(table: TableLocation) -> Offset:
    """The offset at which a new stream starts, by its options."""
    return TableStream(table.log, table.options).start(starting_version(table, table.log.snapshot()))


def stream_latest(request: Request, blobs: Sequence[bytes]) -> Answer:
    """The offset at which the next micro-batch ends, the newest one, and what is left behind it.

    Without `start` only the newest offset is returned.
    """
    del blobs
    table = _streamed_table(request)
    stream = TableStream(table.log, table.options, request.get("table_schema"))
    newest = stream.end()
    if "start" not in request:
        return {"newest": newest.to_json(), "version": newest.version - 1}, ()
    start = Offset.from_json(request["start"])
    end = stream.latest(start, unlimited=request.get("unlimited", False), until=request.get("until"))
    backlog = stream.backlog(end)
    return {
        "offset": end.to_json(),
        "newest": newest.to_json(),
        "metrics": {
            "numFilesOutstanding": str(backlog.splits),
            "numBytesOutstanding": str(backlog.size),
            "numVersionsOutstanding": str(backlog.versions),
        },
    }, ()


def batch_snapshot(table: TableLocation, request: Request) -> Snapshot:
    """The splits of the micro-batch that a read request names."""
    batch = request["batch"]
    stream = TableStream(table.log, table.options, request.get("table_schema"))
    return stream.snapshot(Offset.from_json(batch["start"]), Offset.from_json(batch["end"]))
