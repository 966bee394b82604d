"""A command done in this process, without Spark."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from indextables.commands import Statement, Work, understand
from indextables.commands.command import Place, Progress
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
    """The result of a command.

    Args:
        text: The statement.
        options: What it is done with.
        resolve: Finds the path of a table by its name; without it, tables are named by their paths only.
        progress: Told how many pieces of work are done, and how many there are.

    Raises:
        CommandError: The text is no command, or a wrong one.
    """
    statement = understand(text)
    if statement is None:
        raise CommandError(f"this is not a command of indextables: {text[:200]}", position=0)
    return execute_statement(statement, options, resolve=resolve, progress=progress)


def sql(statement: str, *, options: Mapping[str, object] | None = None) -> pa.Table:
    """Do a command of SQL (docs/commands.md), without Spark; its result as Arrow.

    Args:
        statement: such as `MERGE SPLITS '/data/logs' TARGET SIZE 1G`; tables are named by their paths.
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
    """The result of a command that was understood already."""
    place = _place(statement, options, resolve)
    planned = statement.command.plan(place, statement.arguments)
    if not isinstance(planned, Work):
        return planned
    if planned.at_once is not None:
        assert planned.job is not None, "what goes on in the background is a job"
        jobs.run_in_background(planned.job, options, lambda: _done(statement, place, planned, None))
        return planned.at_once
    try:
        result = _done(statement, place, planned, progress)
    except BaseException as error:
        if planned.job is not None:
            jobs.end(planned.job, str(error) or type(error).__name__)
        raise
    if planned.job is not None:
        jobs.end(planned.job)
    return result


def _done(statement: Statement, place: Place, planned: Work, progress: Progress | None) -> pa.Table:
    """The result, once all work is done."""
    store = None if place.table is None else place.store
    left: Work | pa.Table = planned
    while isinstance(left, Work):
        results: list[Any] = []
        for task in () if left.others else left.tasks:
            results.append(left.run(task, store))
            if left.job is not None:
                jobs.progress(left.job, len(results), len(left.tasks))
            if progress is not None:
                progress(len(results), len(left.tasks))
        left = statement.command.finish(place, statement.arguments, left.state, results)
    return left


def _place(statement: Statement, options: Options, resolve: Resolve | None) -> Place:
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
        return Place(options)
    return Place(options, TransactionLog(open_store(path, options), options, engine=ENGINE))
