"""The operations by name, and the reply to one call."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from indextables import diagnostics, metrics
from indextables.errors import IndexTablesError
from indextables.spark.planner.commands import command_finish, command_plan, command_schema, job_progress
from indextables.spark.planner.inline import stop_opening
from indextables.spark.planner.pushdown import accept, aggregate, buckets, estimate, order
from indextables.spark.planner.read_context import stream_latest, stream_start
from indextables.spark.planner.scan_plan import plan
from indextables.spark.planner.tables import (
    addresses,
    check_options,
    companion,
    partitions,
    schema,
    snapshot,
)
from indextables.spark.planner.write import abort, commit, delete, merge_here, write, write_options

Request = Mapping[str, Any]
Answer = tuple[Mapping[str, Any], Sequence[bytes]]
Handler = Callable[[Request, Sequence[bytes]], Answer]


def _ping(request: Request, blobs: Sequence[bytes]) -> Answer:
    """Return the request: for tests, and to start the process before the first query."""
    return request, blobs


class _Caches:
    """The caches and open splits of this process, and how often it emptied them."""

    closings = 0
    invalidations = 0
    last: Mapping[str, int] = {}


def renew(*, closings: int, invalidations: int) -> None:
    """Close open splits and empty cached logs if other processes did so since the last call."""
    if closings > _Caches.closings:
        stop_opening()
    closed = diagnostics.flush_searchers() if closings > _Caches.closings else 0
    dropped = diagnostics.invalidate_log_cache().values if invalidations > _Caches.invalidations else 0
    _Caches.closings, _Caches.invalidations = closings, invalidations
    _Caches.last = {"closed": closed, "dropped": dropped}


def _renew(request: Request, blobs: Sequence[bytes]) -> Answer:
    """Return how often caches were emptied before this call."""
    del request, blobs
    return _Caches.last, ()


OPERATIONS: Mapping[str, Handler] = {
    "abort": abort,
    "accept": accept,
    "addresses": addresses,
    "aggregate": aggregate,
    "buckets": buckets,
    "command_finish": command_finish,
    "command_plan": command_plan,
    "command_schema": command_schema,
    "commit": commit,
    "companion": companion,
    "delete": delete,
    "estimate": estimate,
    "job_progress": job_progress,
    "merge_here": merge_here,
    "options": check_options,
    "order": order,
    "partitions": partitions,
    "ping": _ping,
    "plan": plan,
    "renew": _renew,
    "schema": schema,
    "snapshot": snapshot,
    "stream_latest": stream_latest,
    "stream_start": stream_start,
    "write": write,
    "write_options": write_options,
}


class _Warnings(logging.Handler):
    """Collects warnings, so that the bridge shows each of them once, whichever process it comes from."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Add the message to the reply of the call."""
        self.sentences.append(record.getMessage())


# Their warnings are for the user of the session, not for the log of a planner process.
_LOGGERS = [logging.getLogger(name) for name in ("indextables.options", "indextables.spark.planner")]


def answer(operation: str, request: str, blobs: Sequence[bytes]) -> tuple[bytes, Sequence[bytes]]:
    """The reply to one call; an IndexTablesError is a reply that has only its message."""
    warnings, propagate = _Warnings(), [logger.propagate for logger in _LOGGERS]
    for logger in _LOGGERS:
        logger.addHandler(warnings)
        logger.propagate = False
    try:
        reply, reply_blobs = OPERATIONS[operation](json.loads(request), blobs)
    except IndexTablesError as error:
        reply, reply_blobs = {"error": str(error)}, ()
    finally:
        for logger, before in zip(_LOGGERS, propagate, strict=True):
            logger.removeHandler(warnings)
            logger.propagate = before
    if warnings.sentences:
        reply = {**reply, "warnings": warnings.sentences}
    if figures := metrics.take():
        totals = {name: [each.last, each.total, each.count] for name, each in figures.items()}
        reply = {**reply, "process_metrics": totals}
    return json.dumps(reply).encode(), reply_blobs
