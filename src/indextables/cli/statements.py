"""Commands of SQL, done from the arguments of the program."""

import argparse
import sys

import pyarrow as pa

from indextables.cli.background import in_background
from indextables.cli.render import Form, record, rows_of, show
from indextables.cli.terminal import ProgressBar
from indextables.cli.views import seen
from indextables.commands import COMMANDS, Command, Statement, Target, Wanted
from indextables.commands.clauses import Condition
from indextables.commands.execute import execute_statement
from indextables.errors import CommandError
from indextables.options import Options, Where

_BY_WORDS = {command.in_shell: command for command in COMMANDS}
_LISTS = ("history", "jobs merge", "jobs prewarm", "wait", "describe log")
_CLAUSES = {clause.name for command in COMMANDS for clause in command.clauses}


def command_of(arguments: argparse.Namespace) -> Command:
    """The command that the arguments are for."""
    words = f"{arguments.command} {getattr(arguments, 'what', '')}".strip()
    return _BY_WORDS[words]


def statement_of(arguments: argparse.Namespace) -> Statement:
    """The command with its table and what was said."""
    command = command_of(arguments)
    said = {name: value for name in _CLAUSES if (value := getattr(arguments, name, None)) is not None}
    path = getattr(arguments, "path", None)
    wrong = sorted(said.keys() - {clause.name for clause in command.clauses})
    if path is not None and command.target is Wanted.NOTHING:
        wrong = ["path"]
    if wrong:
        raise CommandError(f"'indextables {command.in_shell}' takes no {wrong[0]}; see --help")
    if isinstance(said.get("where"), str):
        said["where"] = Condition(said["where"], said["where"], 0)
    if command.target is Wanted.PATH:
        return Statement(command, Target(), {**said, "path": path})
    return Statement(command, Target(path=path), said)


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments say, and write the result."""
    statement = statement_of(arguments)
    options = Options.parse(dict(arguments.option), {Where.COMMAND})
    if statement.arguments.get("async"):
        result = in_background(statement, options)
    else:
        with ProgressBar(arguments.command, quiet=arguments.quiet) as progress:
            result = execute_statement(statement, options, progress=progress)
    if arguments.form == Form.TABLE:
        result = seen(statement.command.in_shell, result)
    return shown(result, arguments, always_table=command_of(arguments).in_shell in _LISTS)


def shown(result: pa.Table, arguments: argparse.Namespace, *, always_table: bool = False) -> int:
    """Write a result; one row, for people, is a list of names and values, unless it is one of a list."""
    form = Form(arguments.form)
    if form is Form.TABLE and result.num_rows == 1 and not always_table:
        record(rows_of(result)[0], sys.stdout)
    else:
        show([result], form, sys.stdout)
    return 0
