"""Runs commands in the background, in a process that outlives the program.

The process gets the statement on its standard input, because options may hold secrets and arguments of
processes are visible to others. It writes the immediate result to its standard output.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from indextables.commands import COMMANDS
from indextables.commands.execute import execute_statement
from indextables.commands.grammar import Condition, Statement, TableReference
from indextables.errors import CommandError, IndexTablesError
from indextables.maintain import jobs
from indextables.options import Options


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
        [sys.executable, "-P", "-m", "indextables.cli.background"],
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
        result = execute_statement(_statement(request), Options.parse(request["options"]))
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


def _statement(request: dict[str, Any]) -> Statement:
    command = next(c for c in COMMANDS if c.program == request["command"])
    arguments = dict(request["arguments"])
    if "where" in arguments:
        arguments["where"] = Condition(**arguments["where"])
    return Statement(command, TableReference(path=request["path"]), arguments)


if __name__ == "__main__":
    sys.exit(main())
