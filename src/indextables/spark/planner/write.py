"""The operations `write_options`, `write`, `commit`, `abort`, `delete` and `merge_here`."""

import dataclasses
import logging
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from indextables.data_files import delete_uncommitted
from indextables.errors import CommitConflictError, OptionError, PredicateError, TableNotFoundError
from indextables.ingest import (
    Mode,
    Replace,
    WritePlan,
    finish_write,
    has_batch,
    micro_batch_options,
    plan_write,
    removes,
)
from indextables.log.conflict import Draft
from indextables.log.format.actions import Add
from indextables.log.retention import stream_retention
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import on_write
from indextables.options import Options
from indextables.options import log as log_options
from indextables.options import maintenance as after
from indextables.options import writing as opt
from indextables.predicate import Always, Predicate, conjunction, to_sql
from indextables.predicate.addresses import compare_addresses
from indextables.schema.spark import to_arrow
from indextables.schema.type_info import NESTED, kind_of
from indextables.source.companion import refuse_companion
from indextables.spark.planner.expressions import Expression, Scope, condition
from indextables.spark.planner.tables import locate_table, without_defaults
from indextables.spark.tasks import BYTES, ERROR, MESSAGE, ROWS, WriteFunction, adds_of
from indextables.table_properties import address_columns

_logger = logging.getLogger(__name__)

Answer = tuple[Mapping[str, Any], Sequence[bytes]]

# A micro-batch adds few rows: without merges a batch each second would be 3,600 splits an hour.
_STREAM_MERGES = {after.MERGE_ON_WRITE.key: "true", after.MIN_SPLITS.key: "10"}
# A merge after every ten batches writes a state; states between these would only add files.
_STREAM_STATES = {log_options.CHECKPOINT_INTERVAL.key: "20"}

_RESULT = (
    StructType()
    .add(MESSAGE, BinaryType())
    .add(ERROR, StringType())
    .add(ROWS, LongType())
    .add(BYTES, LongType())
)


def write_options(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Whether a write may add columns; the bridge needs it before Spark compares the columns."""
    del blobs
    return {"merge_schema": locate_table(request).options.get(opt.MERGE_SCHEMA)}, ()


def write(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Plan a write: the distribution of rows, the function of its tasks, and the plan for `commit`."""
    del blobs
    table = locate_table(request)
    incoming = to_arrow(request["schema"])
    options = without_defaults(table, incoming, request["own"]) if "own" in request else table.options
    options = _stream_options(options, request)
    on_write.check(options)
    replace, filters = request.get("replace"), request.get("filters")
    declared = request.get("declared")
    write_plan, _ = plan_write(
        table.log,
        incoming,
        mode=Mode.of(request["mode"]),
        partition_by=request.get("partitions") or (),
        options=options,
        declared=None if declared is None else to_arrow(declared),
        replace=None if replace is None else Replace(replace),
        where=None if filters is None else partial(_condition, filters),
    )
    function = WriteFunction(table.store.with_credentials(), write_plan, options.public())
    shuffle = None if write_plan is None else _shuffle(write_plan, options)
    reply = {} if shuffle is None else {"shuffle": shuffle}
    return reply, [pickle.dumps((function, _RESULT)), pickle.dumps(write_plan)]


def commit(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Commit the splits of all tasks as one version; if that certainly failed, the splits are deleted."""
    table = locate_table(request)
    write_plan: WritePlan | None = pickle.loads(blobs[0])  # noqa: S301 - this planner wrote it
    if write_plan is None:
        return {"metrics": _metrics(())}, ()
    adds = adds_of(blobs[1:])
    options = _stream_options(table.options, request, merges=write_plan.mode is Mode.APPEND)
    table = dataclasses.replace(table, options=options)
    if "stream" in request and _is_committed(table.log, options):
        delete_uncommitted(table.store, [add.path for add in adds])
        return {"metrics": _metrics(())}, ()
    try:
        snapshot, committed = finish_write(table.log, write_plan, adds, options)
    except CommitConflictError:
        if "stream" in request and _is_committed(table.log, options):
            return {"metrics": _metrics(())}, ()  # another driver of the same query has committed the batch
        raise
    more = _maintenance(snapshot, options, request) if committed else {}
    return {"version": snapshot.version, "metrics": _metrics(adds if committed else ()), **more}, ()


def _stream_options(options: Options, request: Mapping[str, Any], *, merges: bool = False) -> Options:
    """The options of a write; those of a micro-batch include its number, and merges unless disabled.

    Raises:
        OptionError: the options of a stream number its batches.
    """
    stream = request.get("stream")
    if stream is None:
        return options
    for option in (opt.TXN_APP_ID, opt.TXN_VERSION):
        if options.is_set(option):
            raise OptionError(
                f"option '{option.key}' has no effect on a stream, which numbers its batches itself; leave "
                "it out, or write with foreachBatch"
            )
    added: dict[str, object] = {
        opt.TXN_APP_ID.key: stream["app"],
        opt.TXN_VERSION.key: stream["batch"],
    }
    batch = (
        Options.parse(added)
        .over(micro_batch_options(options))
        .over(Options.parse(_STREAM_MERGES if merges else {}))
    )
    if batch.get(after.MERGE_ON_WRITE):
        batch = batch.over(Options.parse(_STREAM_STATES))
    return stream_retention(batch)


def _merge_options(options: Options) -> Mapping[str, str]:
    """The options of merges that a stream has by default, and how many versions it retains.

    The states of merges may be the only ones: the log is cleaned after them, or never.
    """
    keys = (key.lower() for key in (*_STREAM_MERGES, log_options.CLEANUP_MAX_VERSIONS.key))
    return {key: options.values[key] for key in keys if key in options.values}


def _is_committed(log: TransactionLog, options: Options) -> bool:
    """Whether a micro-batch is in the table already: a driver ended between commit and checkpoint."""
    try:
        return has_batch(log.snapshot(), options)
    except TableNotFoundError:
        return False


def _metrics(adds: Sequence[Add]) -> Mapping[str, int]:
    """The metrics of a write by their names on Spark's SQL page."""
    return {
        "rowsWritten": sum(add.num_records or 0 for add in adds),
        "splitsWritten": len(adds),
        "bytesWritten": sum(add.size for add in adds),
        "partitionsWritten": len({tuple((add.partition_values or {}).items()) for add in adds}),
    }


def abort(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Delete the splits of tasks that finished, because another one failed."""
    table = locate_table(request)
    delete_uncommitted(table.store, [add.path for add in adds_of(blobs)])
    return {}, ()


def delete(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Remove the splits that a condition covers, in one version."""
    del blobs
    table = locate_table(request)
    log = table.log
    try:
        snapshot = log.snapshot()
    except TableNotFoundError:
        return {}, ()  # a table in a catalog may have no log yet
    refuse_companion(snapshot, "a delete")
    where = compare_addresses(_condition(request["filters"], snapshot.schema), address_columns(snapshot))
    removals = removes(snapshot, Replace.WHERE, where, ())
    if removals:
        draft = Draft(operation="DELETE", removes=removals, parameters={"where": to_sql(where)})
        snapshot = log.commit(draft, snapshot)
    return {"version": snapshot.version}, ()


def _condition(filters: Sequence[Expression], schema: pa.Schema) -> Predicate:
    """The condition of rows to replace or delete.

    Raises:
        PredicateError: Only Spark can evaluate a part of it.
    """
    predicates = [condition(expression, Scope(schema)) for expression in filters]
    understood = [part for part in predicates if part is not None]
    if len(understood) < len(predicates):
        raise PredicateError(
            "a part of the condition on the rows to replace or delete cannot be evaluated with the table's "
            "log; compare partition columns with values, joined by AND, OR and NOT"
        )
    return conjunction(understood) or Always(True)


def _shuffle(write_plan: WritePlan, options: Options) -> Mapping[str, Any] | None:
    """How rows are distributed before they are written; None if they are not."""
    distribution = options.get(opt.DISTRIBUTION_MODE)
    if not options.get(opt.OPTIMIZE_WRITE) or distribution == "none":
        return None
    by = write_plan.target.partition_columns
    return {
        # Without partition columns, rows are distributed by all columns that can be compared.
        "columns": list(by) or [f.name for f in write_plan.target.schema if kind_of(f.type) not in NESTED],
        "strict": bool(by) and distribution == "hash",
        "bytes": options.get(opt.TARGET_SPLIT_SIZE),
    }


def _maintenance(snapshot: Snapshot, options: Options, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The maintenance that follows a commit, and whether the write waits for it; may be empty."""
    try:
        merge = on_write.merge_to_start(snapshot, options, request["parallelism"]) is not None
    except Exception as error:  # noqa: BLE001 - the write is committed, and must not look failed
        _logger.warning(
            "whether a merge should follow a write to %s could not be decided: %s; the write was committed, "
            "and a later one may start the merge",
            snapshot.url,
            error,
        )
        merge = False
    purge = on_write.purges_after(request["writes"], options)
    if not merge and not purge:
        return {}
    return {
        "maintenance": {
            "merge": merge,
            "purge": purge,
            "options": _merge_options(options) if "stream" in request else {},
            "background": options.get(after.MERGE_IN_BACKGROUND),
            "shutdown_timeout": options.get(after.SHUTDOWN_TIMEOUT_MS),
        }
    }


def merge_here(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Merge after a write in this process, because Spark has stopped."""
    del blobs
    table = locate_table(request)
    on_write.merge_now(table.log, table.options, processors=request["parallelism"])
    return {}, ()
