"""Work that goes on when the program has ended: a process of its own does it.

The program gives that process the statement on its standard input (options may hold secrets, and arguments of
processes are seen by all), and takes the first result from its standard output.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from indextables.commands import COMMANDS, Statement, Target
from indextables.commands.clauses import Condition
from indextables.commands.execute import execute_statement
from indextables.errors import CommandError, IndexTablesError
from indextables.maintain import jobs
from indextables.options import Options


def in_background(statement: Statement, options: Options) -> pa.Table:
    """What the command returns at once; a process that outlives this one does the rest."""
    said = {k: asdict(v) if isinstance(v, Condition) else v for k, v in statement.arguments.items()}
    request = {
        "words": statement.command.in_shell,
        "path": statement.target.path,
        "said": said,
        "options": dict(options.values),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "indextables.cli.background"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin as given, child.stdout as returned:
        given.write(json.dumps(request).encode())
        given.close()
        # It closes its side as soon as the work has begun, or could not begin.
        answer = json.loads(returned.readline() or "{}")
        result = returned.read()
    if "error" in answer or not answer:
        child.wait()
        raise CommandError(answer.get("error", "the process in the background ended before it began"))
    # It is left to itself: nobody waits for it here.
    child.returncode = 0
    return pa.ipc.open_stream(result).read_all()


def main() -> int:
    """Do the statement that is given on standard input; the result goes out before the work is done."""
    request = json.load(sys.stdin)
    try:
        result = execute_statement(_statement(request), Options.parse(request["options"]))
    except IndexTablesError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    sys.stdout.write('{"begun": true}\n')
    sys.stdout.flush()
    with pa.ipc.new_stream(sys.stdout.buffer, result.schema) as writer:
        writer.write_table(result)
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    for job_id in result["job_id"].drop_null().to_pylist():
        jobs.wait(jobs.found(jobs.JobKind.PREWARM, None, job_id), math.inf)
    return 0


def _statement(request: dict[str, Any]) -> Statement:
    command = next(c for c in COMMANDS if c.in_shell == request["words"])
    said = dict(request["said"])
    if "where" in said:
        said["where"] = Condition(**said["where"])
    return Statement(command, Target(path=request["path"]), said)


if __name__ == "__main__":
    sys.exit(main())
