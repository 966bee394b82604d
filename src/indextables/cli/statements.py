"""Runs declared commands with the parameters of the command line, at once or in the background.

A process in the background outlives the program. It gets the statement on its standard input, because options
may hold secrets and arguments of processes are visible to others. It writes the immediate result to its
standard output.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cli.output import ProgressBar, text_of, write_record, write_tables
from indextables.cli.parameters import OutputFormat, Settings
from indextables.commands import COMMANDS, Command, TableArgument
from indextables.commands.execute import execute, execute_statement
from indextables.commands.grammar import Condition, Statement, TableReference
from indextables.errors import CommandError, IndexTablesError
from indextables.maintain import jobs
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


def run_in_background(statement: Statement, options: Options) -> pa.Table:
    """Start the command in a process that outlives this one, and return its immediate result."""
    arguments = {k: asdict(v) if isinstance(v, Condition) else v for k, v in statement.arguments.items()}
    request = {
        "command": statement.command.program,
        "path": statement.target.path,
        "arguments": arguments,
        "options": dict(options.values),
    }
    child = subprocess.Popen(
        # -P: no module of the current folder is imported, whatever its name is.
        [sys.executable, "-P", "-m", "indextables.cli.statements"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin as requests, child.stdout as replies:
        requests.write(json.dumps(request).encode())
        requests.close()
        # The child closes its side as soon as the command has started, or could not start.
        answer = json.loads(replies.readline() or "{}")
        result = replies.read()
    if "error" in answer or not answer:
        child.wait()
        raise CommandError(answer.get("error", "the background process ended before the command started"))
    # This process does not wait for the child, which outlives it.
    child.returncode = 0
    return pa.ipc.open_stream(result).read_all()


def main() -> int:
    """Run the statement on standard input; the immediate result is written before its tasks are finished."""
    request = json.load(sys.stdin)
    try:
        result = execute_statement(_statement_of(request), Options.parse(request["options"]))
    except IndexTablesError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    sys.stdout.write('{"started": true}\n')
    sys.stdout.flush()
    with pa.ipc.new_stream(sys.stdout.buffer, result.schema) as writer:
        writer.write_table(result)
    sys.stdout.flush()
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(devnull, stream.fileno())
    for job_id in result["job_id"].drop_null().to_pylist():
        jobs.wait(jobs.find_jobs(jobs.JobKind.PREWARM, None, job_id), math.inf)
    return 0


def _statement_of(request: dict[str, Any]) -> Statement:
    command = next(c for c in COMMANDS if c.program == request["command"])
    arguments = dict(request["arguments"])
    if "where" in arguments:
        arguments["where"] = Condition(**arguments["where"])
    return Statement(command, TableReference(path=request["path"]), arguments)


if __name__ == "__main__":
    sys.exit(main())
