"""From the text of a statement to the command it is, its table and its arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

from indextables.commands.command import Arguments, Command
from indextables.commands.cursor import CommandCursor
from indextables.errors import CommandError
from indextables.predicate.lexer import TokenKind

_FORMAT = "indextables"


@dataclass(frozen=True, slots=True)
class Target:
    """A table: by its path, or by a name that a catalog knows."""

    path: str | None = None
    name: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A command with its table and its arguments."""

    command: Command
    target: Target
    arguments: Arguments


def read(text: str, commands: Sequence[Command]) -> Statement | None:
    """The command that a text is; None if it begins like none of them."""
    cursor = CommandCursor(text)
    for command in commands:
        for opening in command.openings:
            if cursor.accept_words(opening):
                return _rest(cursor, command)
    return None


def _rest(cursor: CommandCursor, command: Command) -> Statement:
    try:
        target = _target(cursor)
        arguments = command.arguments(cursor)
        cursor.accept_symbol(";")
        if not cursor.ended():
            raise cursor.wrong(f"{cursor.token.text!r} is not expected here")
    except CommandError as error:
        raise CommandError(f"{error}\nThe command is: {command.syntax}") from None
    return Statement(command, target, arguments)


def _target(cursor: CommandCursor) -> Target:
    token = cursor.token
    if token.kind is TokenKind.STRING:
        return Target(path=cursor.take().value)
    if token.kind not in (TokenKind.WORD, TokenKind.NAME):
        raise cursor.wrong("a table is missing: a path in quotes, or a table's name")
    parts = [cursor.take().value]
    while cursor.accept_symbol("."):
        if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise cursor.wrong("a part of the table's name is missing after '.'")
        parts.append(cursor.take().value)
    by_path = len(parts) == 2 and parts[0].lower() == _FORMAT and "/" in parts[1]
    if by_path or (len(parts) == 1 and "/" in parts[0]):
        return Target(path=parts[-1])
    return Target(name=tuple(parts))
