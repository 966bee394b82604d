"""The code of a command (plan, tasks, finish), and how it runs in this process, without Spark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from indextables.commands.declarations import Arguments, Command
from indextables.commands.grammar import Statement, parse_statement
from indextables.errors import CommandError
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.options import Options, Where
from indextables.store import CredentialsProvider, Store, open_store
from indextables.version import ENGINE

# Called with the number of finished tasks and the number of all tasks.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The table and the options that a command runs with.

    Attributes:
        options: the options that apply.
        table: the log of the table; None for a command without a table.
        owner: the id of the process that background jobs depend on, if that is not this one.
        executor_of: returns the executor that reads a split, by the split's path, if there are several.
        executors: the executors that ran the tasks, in the order of the tasks.
        credentials: a callable that returns credentials, for a command that opens stores itself.
    """

    options: Options
    table: TransactionLog | None = None
    owner: int | None = None
    executor_of: Callable[[str], str | None] | None = None
    executors: tuple[str, ...] = ()
    credentials: CredentialsProvider | None = None

    @property
    def log(self) -> TransactionLog:
        """The log of the table, for a command that requires one."""
        assert self.table is not None, "the command requires a table"
        return self.table

    @property
    def store(self) -> Store:
        """The store of the table."""
        return self.log.store


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks that may run on executors, before the command is finished with their results.

    Attributes:
        run: a function of a module, called with a task and the table's store (None without a table).
        tasks: its first arguments.
        state: given to the finish step.
        other_processes: the tasks collect information from other processes; this one has given its own.
        job: the id of the job whose progress the tasks are.
        immediate_result: returned at once, while the tasks run in the background.
        preferred_executors: for each task the executor that should run it.
    """

    run: Callable[[Any, Any], Any]
    tasks: Sequence[Any]
    state: Any = None
    other_processes: bool = False
    job: str | None = None
    immediate_result: pa.Table | None = None
    preferred_executors: Sequence[str | None] = ()


def _no_finish(
    context: CommandContext, arguments: Arguments, state: object, results: Sequence[object]
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
    finish: Callable[[CommandContext, Arguments, Any, Sequence[Any]], pa.Table | TaskSet] = _no_finish


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
    credentials: CredentialsProvider | None = None,
) -> pa.Table:
    """Run a command, and return its result.

    Args:
        text: the statement.
        options: the options it runs with.
        resolve: returns the path of a table by its name; without it, tables are given by their paths.
        progress: called with the number of finished tasks and the number of all.
        credentials: a callable that returns credentials (docs/operations/storage.md).

    Raises:
        CommandError: the text is not a command, or a wrong one.
    """
    statement = parse_statement(text)
    if statement is None:
        raise CommandError(f"this is not a command of indextables: {text[:200]}", position=0)
    return execute_statement(statement, options, resolve=resolve, progress=progress, credentials=credentials)


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
    credentials: CredentialsProvider | None = None,
) -> pa.Table:
    """Run a command that is parsed already, and return its result."""
    context = _context(statement, options, resolve, credentials)
    implementation = implementation_of(statement.command)
    planned = implementation.plan(context, statement.arguments)
    if not isinstance(planned, TaskSet):
        return planned

    def run(progress: Progress | None) -> pa.Table:
        return _run(implementation, context, statement.arguments, planned, progress)

    if planned.job is None:
        return run(progress)
    if planned.immediate_result is not None:
        jobs.run_in_background(planned.job, options, lambda: run(None))
        return planned.immediate_result
    try:
        result = run(progress)
    except BaseException as error:
        jobs.end(planned.job, str(error) or type(error).__name__)
        raise
    jobs.end(planned.job)
    return result


def _run(
    implementation: Implementation,
    context: CommandContext,
    arguments: Arguments,
    planned: TaskSet,
    progress: Progress | None,
) -> pa.Table:
    """Run all tasks, those that the finish step adds among them, and return the result."""
    store = None if context.table is None else context.store
    remaining: TaskSet | pa.Table = planned
    while isinstance(remaining, TaskSet):
        results: list[Any] = []
        for task in () if remaining.other_processes else remaining.tasks:
            results.append(remaining.run(task, store))
            if remaining.job is not None:
                jobs.progress(remaining.job, len(results), len(remaining.tasks))
            if progress is not None:
                progress(len(results), len(remaining.tasks))
        remaining = implementation.finish(context, arguments, remaining.state, results)
    return remaining


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
                f"there is no catalog here that knows '{name}'; give the table's path in quotes"
            )
        path = resolve(target.name)
    if path is None:
        return CommandContext(options, credentials=credentials)
    store = open_store(path, options, credentials=credentials)
    return CommandContext(options, TransactionLog(store, options, engine=ENGINE), credentials=credentials)
