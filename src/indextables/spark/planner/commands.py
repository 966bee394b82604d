"""The operations `command_schema`, `command_plan`, `command_finish` and `job_progress`."""

import math
import os
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from indextables import metrics
from indextables.commands.declarations import Arguments
from indextables.commands.execute import CommandContext, Implementation, implementation_of
from indextables.commands.grammar import parse_statement
from indextables.commands.maintenance import AFTER_WRITE
from indextables.errors import CommandError, TableNotFoundError
from indextables.maintain import jobs
from indextables.maintain.jobs import TaskSet
from indextables.metrics import Figure
from indextables.options import Options
from indextables.options.log import STATS_COLUMNS
from indextables.options.maintenance import JOBS_AT_ONCE
from indextables.options.writing import INDEXING_PREFIX
from indextables.schema.spark import from_arrow
from indextables.spark.planner.scan_plan import preferred_executor
from indextables.spark.planner.tables import (
    TableLocation,
    arrow_stream,
    locate_table,
    session_options,
    with_statistics_of,
)
from indextables.spark.tasks import ERROR, RESULT, CommandFunction

Answer = tuple[Mapping[str, Any], Sequence[bytes]]

# The columns that a task of a command returns.
COMMAND_RESULT = StructType().add(RESULT, BinaryType()).add(ERROR, StringType())


def command_schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """A command's columns, its table, and the steps of the bridge for it; empty for other statements."""
    del blobs
    statement = parse_statement(request["statement"])
    if statement is None:
        return {}, ()
    command = statement.command
    reply: dict[str, Any] = {
        "schema": from_arrow(implementation_of(command).result),
        "settings": command.lists_settings,
    }
    if statement.target.name:
        reply["name"] = statement.target.name
    if command.empties is not None:
        reply["empties"] = command.empties.value
    return reply, ()


def command_plan(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Run the plan step of a command: its result, or its tasks."""
    del blobs
    # Commands that report metrics report those of all planner processes.
    if (totals := request.get("process_metrics")) is not None:
        metrics.replace_all(
            {name: Figure(last, total, int(count)) for name, (last, total, count) in totals.items()}
        )
    implementation, arguments, context = _read(request)
    return _answer(context, implementation.plan(context, arguments))


def command_finish(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Run the finish step of a command with the results of its tasks: its result, or further tasks."""
    implementation, arguments, context = _read(request)
    (job, state), *results = (pickle.loads(blob) for blob in blobs)  # noqa: S301 - our planner and tasks wrote them
    answer = implementation.finish(context, arguments, state, results)
    if job is not None and not isinstance(answer, TaskSet):
        jobs.end(job)
    return _answer(context, answer)


def job_progress(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Record how many tasks of a job are done, or that it failed."""
    del blobs
    if "error" in request:
        jobs.end(request["job"], request["error"])
    else:
        jobs.progress(request["job"], request["done"], request["tasks"])
    return {}, ()


def _answer(context: CommandContext, planned: pa.Table | TaskSet) -> Answer:
    if not isinstance(planned, TaskSet):
        return {"done": True}, [arrow_stream(planned)]
    function = CommandFunction(context.store.with_credentials() if context.table else None, planned.run)
    tasks = [pickle.dumps(task) for task in planned.tasks]
    reply: dict[str, Any] = {"done": False}
    if planned.job is not None:
        reply["job"] = planned.job
    if any(planned.preferred_executors):
        reply["preferred"] = planned.preferred_executors
    if planned.pause:
        reply["pause"] = math.ceil(planned.pause * 1000)
    first = []
    if planned.immediate_result is not None:
        reply["background"] = context.options.get(JOBS_AT_ONCE)
        first = [arrow_stream(planned.immediate_result)]
    state = pickle.dumps((planned.job, planned.state))
    return reply, [*first, pickle.dumps((function, COMMAND_RESULT)), state, *tasks]


def _read(request: Mapping[str, Any]) -> tuple[Implementation, Arguments, CommandContext]:
    """The code, arguments and context of a statement, or of the maintenance after a write."""
    options = dict(request["options"])
    if (name := request.get("maintenance")) is not None:
        return AFTER_WRITE[name], {"processors": request["parallelism"]}, _context(request, options)
    statement = parse_statement(request["statement"])
    if statement is None:
        raise CommandError(f"this is not a command: {request['statement']}")
    implementation = implementation_of(statement.command)
    if statement.target.path is None and not statement.target.name:
        options.pop("path", None)
        settings = request.get("settings") or {}
        removed_values = request.get("removed_values", 0)
        context = CommandContext(
            session_options(options),
            owner=os.getppid(),
            settings=settings,
            removed_values=removed_values,
            zone=request.get("zone"),
            infer_partitions=request.get("infer_partitions", True),
        )
        return implementation, statement.arguments, context
    if statement.target.path is not None:
        options["path"] = statement.target.path
    return implementation, statement.arguments, _context(request, options)


def _context(request: Mapping[str, Any], options: Mapping[str, Any]) -> CommandContext:
    table = locate_table({"options": options})
    # The owner is the process that starts planners, which lives as long as the driver; a planner may end
    # earlier.
    return CommandContext(
        _table_options(table),
        table.log,
        owner=os.getppid(),
        executor_of=partial(preferred_executor, executors=request.get("executors", ())),
        executors=tuple(request.get("task_executors", ())),
        removed_values=request.get("removed_values", 0),
    )


def _table_options(table: TableLocation) -> Options:
    """The options of a command on a table.

    The indexing of an existing table follows its properties; defaults of the session are for new tables.
    Statistics are limited to columns of the table.
    """
    indexing = [key for key in table.options.values if key.startswith(INDEXING_PREFIX)]
    if not indexing and not table.options.is_set(STATS_COLUMNS):
        return table.options
    try:
        columns = {name.lower() for name in table.snapshot().schema.names}
    except TableNotFoundError:
        return table.options
    rest = {key: text for key, text in table.options.values.items() if key not in indexing}
    return with_statistics_of(Options(rest), columns)
