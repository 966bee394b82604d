"""Runs declared commands with the parameters of the command line."""

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cli.background import run_in_background
from indextables.cli.output import ProgressBar, text_of, write_record, write_tables
from indextables.cli.parameters import OutputFormat, Settings
from indextables.commands import Command, TableArgument
from indextables.commands.execute import execute, execute_statement
from indextables.commands.grammar import Condition, Statement, TableReference
from indextables.errors import CommandError
from indextables.options import Options, Where
from indextables.sizes import format_size

View = Callable[[pa.Table], pa.Table]

# Commands that return a list: one row of it is still shown as a table.
_LISTS = frozenset({"history", "jobs merge", "jobs prewarm", "wait", "describe log"})


def run_command(command: Command, settings: Settings, path: str | None, values: dict[str, Any]) -> int:
    """Run a declared command and write its result.

    Args:
        command: the command.
        settings: the common parameters.
        path: the table, if one was given.
        values: the values of the flags by argument name; None or False for a flag that was not given.
    """
    arguments = {name: value for name, value in values.items() if value is not None and value is not False}
    statement = _statement(command, path, arguments)
    options = Options.parse(settings.options, {Where.COMMAND})
    if statement.arguments.get("async"):
        result = run_in_background(statement, options)
    else:
        with ProgressBar(command.program, quiet=settings.quiet) as progress:
            result = execute_statement(statement, options, progress=progress, report=progress.report)
    if settings.format is OutputFormat.TABLE and command.program in _VIEWS:
        result = _VIEWS[command.program](result)
    return _write(result, settings, is_list=command.program in _LISTS)


def run_sql(text: str, settings: Settings) -> int:
    """Run a command of SQL and write its result."""
    options = Options.parse(settings.options, {Where.COMMAND})
    with ProgressBar("working", quiet=settings.quiet) as progress:
        result = execute(text, options, progress=progress, report=progress.report)
    return _write(result, settings)


def _statement(command: Command, path: str | None, arguments: dict[str, Any]) -> Statement:
    refused = sorted(arguments.keys() - {clause.name for clause in command.clauses})
    if path is not None and command.table is TableArgument.NONE:
        refused = ["path"]
    if refused:
        raise CommandError(f"'indextables {command.program}' takes no {refused[0]}; see --help")
    if "where" in arguments:
        arguments["where"] = Condition(arguments["where"], arguments["where"], 0)
    if command.table is TableArgument.PATH:
        return Statement(command, TableReference(), {**arguments, "path": path})
    return Statement(command, TableReference(path=path), arguments)


def _write(result: pa.Table, settings: Settings, *, is_list: bool = False) -> int:
    """Write a result; a single row is shown as names and values."""
    if settings.format is OutputFormat.TABLE and result.num_rows == 1 and not is_list:
        write_record(result.to_pylist(maps_as_pydicts="strict")[0], settings.format, sys.stdout)
    else:
        write_tables([result], settings.format, sys.stdout)
    return 0


# --- columns of results on a terminal; JSON and CSV have all columns --------------------------------------


def _only(*names: str) -> View:
    return lambda result: result.select(names)


def _metrics(result: pa.Table) -> pa.Table:
    """Show the fields of the struct `metrics` as columns."""
    flat = result.select(["table_path", "metrics"]).flatten()
    return flat.rename_columns([name.removeprefix("metrics.") for name in flat.column_names])


def _history(result: pa.Table) -> pa.Table:
    """Show the most important metrics as columns."""
    metrics = [dict(entry or ()) for entry in result["metrics"].to_pylist()]
    parameters = [dict(entry or ()) for entry in result["parameters"].to_pylist()]
    return pa.table(
        {
            "version": result["version"],
            "time (UTC)": pc.strftime(
                pc.floor_temporal(result["timestamp"], unit="second").cast(pa.timestamp("s")),
                format="%Y-%m-%d %H:%M:%S",
            ),
            "operation": result["operation"],
            "added": [each.get("numAddedFiles") for each in metrics],
            "removed": [each.get("numRemovedFiles") for each in metrics],
            "rows": [each.get("numAddedRecords") for each in metrics],
            "size": [_size(each.get("numAddedBytes")) for each in metrics],
            "parameters": [
                ", ".join(f"{k}={text_of(v)}" for k, v in each.items() if v) for each in parameters
            ],
        }
    )


def _jobs(done: str, total: str) -> View:
    """Show the progress of jobs in few columns."""

    def view(result: pa.Table) -> pa.Table:
        counts = zip(result[done].to_pylist(), result[total].to_pylist(), strict=True)
        columns = {
            "job": result["job_id"],
            "table": result["table_path"],
            "status": result["status"],
            "done": [f"{finished}/{all_}" for finished, all_ in counts],
            "seconds": [millis / 1000 for millis in result["duration_ms"].to_pylist()],
        }
        if result["error_message"].null_count < result.num_rows:
            columns["error"] = [text or "" for text in result["error_message"].to_pylist()]
        return pa.table(columns)

    return view


def _size(size: int | None) -> str:
    return "" if size is None else format_size(size)


_VIEWS: dict[str, View] = {
    "history": _history,
    "merge": _metrics,
    "purge": _metrics,
    "describe log": _only(
        "version",
        "action_type",
        "path",
        "partition_values",
        "size",
        "num_records",
        "skip_reason",
        "is_checkpoint",
    ),
    "jobs merge": _jobs("completed_groups", "total_groups"),
    "jobs prewarm": _jobs("completed_splits", "total_splits"),
    "wait": _jobs("splits_prewarmed", "total_splits"),
}
