"""Commands of SQL, done from the arguments of the program."""

import argparse
import sys
from typing import Any

import pyarrow as pa

from indextables.cli.render import Form, record, rows_of, show
from indextables.cli.terminal import ProgressBar
from indextables.commands import COMMANDS, Statement, Target
from indextables.commands.clauses import Condition
from indextables.commands.execute import execute_statement
from indextables.options import Options


def do(opening: str, arguments: argparse.Namespace, said: dict[str, Any]) -> pa.Table:
    """The result of the command with this opening; what is None among its arguments was not said."""
    command = next(c for c in COMMANDS if opening in c.openings)
    given = {name: value for name, value in said.items() if value is not None}
    if isinstance(given.get("where"), str):
        given["where"] = Condition(given["where"], given["where"], 0)
    target = Target(path=getattr(arguments, "path", None))
    options = Options.parse(dict(arguments.option))
    with ProgressBar(opening.split(maxsplit=1)[0].lower(), quiet=arguments.quiet) as progress:
        return execute_statement(Statement(command, target, given), options, progress=progress)


def shown(result: pa.Table, arguments: argparse.Namespace) -> int:
    """Write a result; one row, for people, is a list of names and values."""
    form = Form(arguments.form)
    if form is Form.TABLE and result.num_rows == 1:
        record(rows_of(result)[0], sys.stdout)
    else:
        show([result], form, sys.stdout)
    return 0
