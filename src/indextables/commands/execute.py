"""The code of a command (plan, tasks, finish), and how it runs in this process, without Spark."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from importlib import import_module
from typing import Any

import pyarrow as pa

from indextables.commands.declarations import Arguments, Command
from indextables.commands.grammar import Statement, parse_statement
from indextables.data_files import open_log
from indextables.errors import CommandError
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.maintain.jobs import Progress, TaskSet
from indextables.options import Options, Where
from indextables.records import dataclass
from indextables.store import CredentialsProvider, Store, open_store
from indextables.version import ENGINE


def _no_report(sentence: str) -> None:
    del sentence


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The table and the options of a command.

    Attributes:
        options: the options that apply.
        table: the log of the table; None for a command without a table.
        owner: the id of the process that background jobs depend on, if that is not this one.
        executor_of: returns the executor that reads a split, by the split's path; None without executors.
        executors: the executors that ran the tasks, in the order of the tasks.
        credentials: a callable that returns credentials, for a command that opens stores itself.
        settings: the settings of Spark and of Hadoop, for a command that lists them.
        removed_values: how many values other processes of the driver removed from their caches, for a command
            that empties caches.
        zone: the time zone of Spark's session, if there is one.
        infer_partitions: whether types of partition columns are inferred, as Spark's session says.
        progress: called while a command that does not end works, with the numbers of finished and all tasks.
        report: called with a sentence each time that such a command changed something.
    """

    options: Options
    table: TransactionLog | None = None
    owner: int | None = None
    executor_of: Callable[[str], str | None] | None = None
    executors: tuple[str, ...] = ()
    credentials: CredentialsProvider | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    removed_values: int = 0
    zone: str | None = None
    infer_partitions: bool = True
    progress: Callable[[int, int], None] | None = None
    report: Callable[[str], None] = _no_report

    @property
    def log(self) -> TransactionLog:
        """The log of the table, for a command that requires one."""
        assert self.table is not None, "the command requires a table"
        return self.table

    @property
    def store(self) -> Store:
        """The store of the table."""
        return self.log.store


def _no_finish(
    context: CommandContext, arguments: Arguments, state: object, results: Iterable[object]
) -> pa.Table | TaskSet:
    raise AssertionError(f"the command has no finish step: {context}, {arguments}, {state}, {results}")


@dataclass(frozen=True, slots=True)
class Implementation:
    """The code of a command.

    `plan` returns the result, or the tasks of a long-running command; `finish` turns their results into the
    result of the command, or into further tasks.
    """

    result: pa.Schema
    plan: Callable[[CommandContext, Arguments], pa.Table | TaskSet]
    finish: Callable[[CommandContext, Arguments, Any, Iterable[Any]], pa.Table | TaskSet] = _no_finish


def implementation_of(command: Command) -> Implementation:
    """Import and return the code of a command."""
    module, _, name = command.implementation.partition(".")
    implementation: Implementation = getattr(import_module(f"indextables.commands.{module}"), name)
    return implementation


def table_of(schema: pa.Schema, *rows: Mapping[str, Any]) -> pa.Table:
    """Return rows as a result; columns that a row does not name are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema)


Resolve = Callable[[tuple[str, ...]], str]


def execute(
    text: str,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    resolve: Resolve | None = None,
    progress: Progress | None = None,
    report: Callable[[str], None] = _no_report,
    credentials: CredentialsProvider | None = None,
) -> pa.Table:
    """Run a command, and return its result.

    Args:
        text: the statement.
        options: the options of the command.
        resolve: returns the path of a table by its name; without it, tables are given by their paths.
        progress: called with the number of finished tasks and the number of all.
        report: called with a sentence each time that a command that does not end changed something.
        credentials: a callable that returns credentials (docs/operations/storage.md).

    Raises:
        CommandError: the text is not a command, or malformed.
    """
    statement = parse_statement(text)
    if statement is None:
        raise CommandError(f"this is not a command of indextables: {text[:200]}", position=0)
    return execute_statement(
        statement, options, resolve=resolve, progress=progress, report=report, credentials=credentials
    )


def sql(
    statement: str,
    *,
    options: Mapping[str, object] | None = None,
    credentials: CredentialsProvider | None = None,
) -> pa.Table:
    """Run a command of SQL (docs/commands.md) without Spark, and return its result as Arrow.

    Args:
        statement: such as `MERGE SPLITS '/data/logs' TARGET SIZE 1G`; tables are given by their paths.
        options: `spark.indextables.*` options, with or without the prefix.
        credentials: a callable that returns credentials, as in `open`.
    """
    return execute(statement, Options.parse(options, {Where.COMMAND}), credentials=credentials)


def execute_statement(
    statement: Statement,
    options: Options,
    *,
    resolve: Resolve | None = None,
    progress: Progress | None = None,
    report: Callable[[str], None] = _no_report,
    credentials: CredentialsProvider | None = None,
) -> pa.Table:
    """Run a command that is parsed already, and return its result."""
    context = replace(_context(statement, options, resolve, credentials), progress=progress, report=report)
    implementation = implementation_of(statement.command)
    tasks = implementation.plan(context, statement.arguments)
    store = None if context.table is None else context.store

    def finish(state: object, results: Iterable[object]) -> pa.Table | TaskSet:
        return implementation.finish(context, statement.arguments, state, results)

    if isinstance(tasks, TaskSet) and tasks.immediate_result is not None:
        assert tasks.job is not None, "work in the background is a job"
        jobs.run_in_background(tasks.job, options, lambda: jobs.run_tasks(tasks, finish, store))
        return tasks.immediate_result
    return jobs.run_tasks(tasks, finish, store, progress)


def _context(
    statement: Statement,
    options: Options,
    resolve: Resolve | None,
    credentials: CredentialsProvider | None,
) -> CommandContext:
    target = statement.target
    path = target.path
    if target.name:
        if resolve is None:
            name = ".".join(target.name)
            raise CommandError(
                f"the table '{name}' cannot be resolved without a catalog; give the table's path in quotes"
            )
        path = resolve(target.name)
    if path is None:
        return CommandContext(options, credentials=credentials)
    store = open_store(path, options, credentials=credentials)
    return CommandContext(options, open_log(store, options, engine=ENGINE), credentials=credentials)
