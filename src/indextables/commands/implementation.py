"""What a command runs: plan, tasks, finish."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from indextables.commands.declarations import Command
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import Store

Arguments = Mapping[str, Any]
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
    """

    options: Options
    table: TransactionLog | None = None
    owner: int | None = None
    executor_of: Callable[[str], str | None] | None = None
    executors: tuple[str, ...] = ()

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
    found: Implementation = getattr(import_module(f"indextables.commands.{module}"), name)
    return found


def table_of(schema: pa.Schema, *rows: Mapping[str, Any]) -> pa.Table:
    """Return rows as a result; columns that a row does not name are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema)
