"""What a command is: its words, its result, and what it does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from indextables.commands.cursor import CommandCursor
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import Store

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """The table that a command is about."""

    store: Store
    options: Options
    log: TransactionLog


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to do in many places at once.

    `run` is a function of a module, called with a task and the table's store, wherever it runs. `state` is
    given back when the command is finished.
    """

    run: Callable[[Any, Store], Any]
    tasks: Sequence[Any]
    state: Any = None


def _nothing(cursor: CommandCursor) -> Arguments:
    del cursor
    return {}


def _never(place: Place, arguments: Arguments, state: object, results: Sequence[object]) -> pa.Table:
    raise AssertionError(
        f"{arguments} of {place.store.url} left no work, so {state} and {results} are nobody's"
    )


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    `openings` are the ways it may begin, `syntax` is how it is written on a page, `result` its columns.
    `arguments` reads what follows the target. `plan` does it, or says what work there is; `finish` then
    makes the result of what the work gave.
    """

    openings: tuple[str, ...]
    syntax: str
    result: pa.Schema
    plan: Callable[[Place, Arguments], pa.Table | Work]
    arguments: Callable[[CommandCursor], Arguments] = _nothing
    finish: Callable[[Place, Arguments, Any, Sequence[Any]], pa.Table] = _never
    help: str = field(default="")
