"""Run commands in this process, without Spark."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from indextables.commands.grammar import Statement, parse_statement
from indextables.commands.implementation import (
    Arguments,
    CommandContext,
    Implementation,
    Progress,
    TaskSet,
    implementation_of,
)
from indextables.errors import CommandError
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import jobs
from indextables.options import Options, Where
from indextables.store import open_store
from indextables.version import ENGINE

Resolve = Callable[[tuple[str, ...]], str]


def execute(
    text: str,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    resolve: Resolve | None = None,
    progress: Progress | None = None,
) -> pa.Table:
    """Run a command, and return its result.

    Args:
        text: the statement.
        options: the options it runs with.
        resolve: returns the path of a table by its name; without it, tables are given by their paths.
        progress: called with the number of finished tasks and the number of all.

    Raises:
        CommandError: the text is not a command, or a wrong one.
    """
    statement = parse_statement(text)
    if statement is None:
        raise CommandError(f"this is not a command of indextables: {text[:200]}", position=0)
    return execute_statement(statement, options, resolve=resolve, progress=progress)


def sql(statement: str, *, options: Mapping[str, object] | None = None) -> pa.Table:
    """Run a command of SQL (docs/commands.md) without Spark, and return its result as Arrow.

    Args:
        statement: such as `MERGE SPLITS '/data/logs' TARGET SIZE 1G`; tables are given by their paths.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    return execute(statement, Options.parse(options, {Where.COMMAND}))


def execute_statement(
    statement: Statement,
    options: Options,
    *,
    resolve: Resolve | None = None,
    progress: Progress | None = None,
) -> pa.Table:
    """Run a command that is parsed already, and return its result."""
    context = _context(statement, options, resolve)
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


def _context(statement: Statement, options: Options, resolve: Resolve | None) -> CommandContext:
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
        return CommandContext(options)
    return CommandContext(options, TransactionLog(open_store(path, options), options, engine=ENGINE))
