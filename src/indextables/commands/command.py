"""What a command is: its words, its result, and what it does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from indextables.commands.cursor import CommandCursor
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import Store

Arguments = Mapping[str, Any]
Progress = Callable[[int, int], None]


class Wanted(StrEnum):
    """Whether a command names a table."""

    TABLE = "table"
    MAYBE = "maybe"
    PATH = "path"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Place:
    """The table that a command is about, if it is about one, and the options that apply.

    `owner` is the process that long work depends on, if that is not this one. `home` names the executor that
    reads a split, by the split's path, if there are several; `ran` are those that did the tasks, in order.
    """

    options: Options
    table: TransactionLog | None = None
    owner: int | None = None
    home: Callable[[str], str | None] | None = None
    ran: tuple[str, ...] = ()

    @property
    def log(self) -> TransactionLog:
        """The table's log."""
        assert self.table is not None, "the command names a table"
        return self.table

    @property
    def store(self) -> Store:
        """Where the table is."""
        return self.log.store


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to do in many places at once.

    `run` is a function of a module, called with a task and the table's store (None for a command without a
    table), wherever it runs. `state` is given back when the command is finished. Work for `others` asks
    other processes what this one has answered already. `job` is the job whose progress it is. Work with a
    result `at_once` goes on in the background while its command returns that. `preferred` names for each task
    the executor that had best do it.
    """

    run: Callable[[Any, Any], Any]
    tasks: Sequence[Any]
    state: Any = None
    others: bool = False
    job: str | None = None
    at_once: pa.Table | None = None
    preferred: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a command that follows its table, in any order with others.

    `words` begin it, `shown` is what follows them on a page, `read` takes that. What it gives has the name
    `name` among the arguments. A condition is everything up to the next clause. A clause of the original
    that is `refused` is read to say so.
    """

    words: str
    name: str
    read: Callable[[CommandCursor], Any] | None
    shown: str = ""
    required: bool = False
    refused: bool = False

    @property
    def text(self) -> str:
        """Its words and what follows them."""
        return f"{self.words} {self.shown}".strip()

    @property
    def syntax(self) -> str:
        """As it is written on a page."""
        return self.text if self.required else f"[{self.text}]"


def _never(place: Place, arguments: Arguments, state: object, results: Sequence[object]) -> pa.Table | Work:
    raise AssertionError(f"{arguments} at {place} left no work, so {state} and {results} are nobody's")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    `openings` are the ways it may begin; `result` are its columns. `target` says whether a table follows,
    after the word `before_target` if there is one; a path that is no table's is the argument `path`. Of the
    clauses that give `required_argument` there must be one. `plan` does it, or says what work there is;
    `finish` then makes the result of what the work gave, or says what work is left.

    Its doors besides SQL: `in_shell` are the words after `indextables`, `in_python` is what is called, a
    method of `Table` or a function of `indextables`; a test looks behind both.
    """

    openings: tuple[str, ...]
    result: pa.Schema
    plan: Callable[[Place, Arguments], pa.Table | Work]
    help: str
    in_shell: str
    in_python: str
    target: Wanted = Wanted.TABLE
    before_target: str = ""
    clauses: tuple[Clause, ...] = ()
    finish: Callable[[Place, Arguments, Any, Sequence[Any]], pa.Table | Work] = _never
    required_argument: str = ""

    @property
    def syntax(self) -> str:
        """How it is written on a page."""
        verbs = " | ".join(self.openings)
        opening = f"{{{verbs}}}" if len(self.openings) > 1 else verbs
        shown = "'path'" if self.target is Wanted.PATH else "table"
        table = f"{self.before_target} {shown}".strip()
        parts = [opening]
        if self.target is Wanted.MAYBE:
            parts.append(f"[{table}]")
        elif self.target is not Wanted.NOTHING:
            parts.append(table)
        either = [clause.text for clause in self.clauses if clause.name == self.required_argument]
        if either:
            parts.append("{" + " | ".join(either) + "}")
        others = [c.syntax for c in self.clauses if c.name != self.required_argument and not c.refused]
        return " ".join([*parts, *others])


def rows(schema: pa.Schema, *found: Mapping[str, Any]) -> pa.Table:
    """A result; columns that a row does not name are null."""
    return pa.Table.from_pylist([dict(row) for row in found], schema)
