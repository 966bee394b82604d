"""From the text of a statement to the command it is, its table and its arguments."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indextables.commands.clauses import Condition
from indextables.commands.command import Arguments, Clause, Command, Wanted
from indextables.commands.cursor import FAMILY, CommandCursor
from indextables.errors import CommandError
from indextables.predicate.lexer import TokenKind

_FORMAT = "indextables"
# What a first word must be to be taken for a misspelt one of ours, and not for one of Spark's.
_NEAR = 0.8
_NEAR_CLAUSE = 0.6


@dataclass(frozen=True, slots=True)
class Target:
    """A table: by its path, or by a name that a catalog knows; neither if none is named."""

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
    openings = sorted(((o, c) for c in commands for o in c.openings), key=lambda pair: -len(pair[0].split()))
    for opening, command in openings:
        if cursor.accept_words(opening):
            return _rest(cursor, command)
    problem = _misspelt(cursor, [opening for opening, _ in openings])
    if problem is not None:
        raise problem
    return None


def _rest(cursor: CommandCursor, command: Command) -> Statement:
    try:
        target = _target(cursor, command)
        arguments = _arguments(cursor, command)
        if command.target is Wanted.PATH:
            target, arguments = Target(), {**arguments, "path": target.path}
    except CommandError as error:
        raise CommandError(f"{error}\nThe command is: {command.syntax}", position=error.position) from None
    return Statement(command, target, arguments)


def _target(cursor: CommandCursor, command: Command) -> Target:
    if command.target is Wanted.NOTHING:
        return Target()
    if command.before_target:
        if not cursor.accept_words(command.before_target):
            if command.target is Wanted.MAYBE:
                return Target()
            raise cursor.unknown(f"not {command.before_target}", (command.before_target,))
    elif command.target is Wanted.MAYBE and (_at_end(cursor) or _clause(cursor, command) is not None):
        return Target()
    if command.target is Wanted.PATH:
        return Target(path=cursor.expect_text("the path"))
    return _table(cursor, command)


def _table(cursor: CommandCursor, command: Command) -> Target:
    token = cursor.token
    if token.kind is TokenKind.STRING:
        return Target(path=cursor.take().value)
    if token.is_symbol("/", "."):
        raise cursor.wrong("a path stands in quotes")
    if token.kind not in (TokenKind.WORD, TokenKind.NAME) or _clause(cursor, command) is not None:
        raise cursor.wrong("a table is missing: a path in quotes, or a table's name")
    parts = [cursor.take().value]
    while cursor.accept_symbol("."):
        if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise cursor.wrong("a part of the table's name is missing after '.'")
        parts.append(cursor.take().value)
    if cursor.token.is_symbol(":"):
        raise cursor.wrong("a path stands in quotes", token.start)
    by_path = len(parts) == 2 and parts[0].lower() == _FORMAT and "/" in parts[1]
    if by_path or (len(parts) == 1 and "/" in parts[0]):
        return Target(path=parts[-1])
    return Target(name=tuple(parts))


def _arguments(cursor: CommandCursor, command: Command) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while not _at_end(cursor):
        start = cursor.token.start
        clause = _clause(cursor, command)
        if clause is None:
            raise cursor.wrong(f"{cursor.token.text!r} is not expected here{_nearest(cursor, command)}")
        if clause.name in found:
            raise cursor.wrong(f"{clause.words} is given twice, or against another clause", start)
        cursor.accept_words(clause.words)
        found[clause.name] = _condition(cursor, command) if clause.read is None else clause.read(cursor)
    while cursor.accept_symbol(";"):
        pass
    if not cursor.ended():
        raise cursor.wrong("one command at a time: nothing may follow the semicolon")
    for clause in command.clauses:
        if clause.required and clause.name not in found:
            raise cursor.wrong(f"{clause.words} is missing")
    if command.required_argument and command.required_argument not in found:
        either = [c.words for c in command.clauses if c.name == command.required_argument]
        raise cursor.wrong(f"{' or '.join(either)} is missing")
    return found


def _clause(cursor: CommandCursor, command: Command) -> Clause | None:
    fitting = [clause for clause in command.clauses if cursor.sees(clause.words)]
    return max(fitting, key=lambda clause: len(clause.words), default=None)


def _nearest(cursor: CommandCursor, command: Command) -> str:
    """The clause that the words under the head may have been meant for."""
    ahead = [token.text.upper() for token in cursor.tokens[cursor.index :]]
    near = {
        clause.words: difflib.SequenceMatcher(
            None, " ".join(ahead[: len(clause.words.split())]), clause.words
        ).ratio()
        for clause in command.clauses
        if not clause.refused
    }
    best = max(near, key=lambda words: near[words], default="")
    return f"; did you mean {best}?" if best and near[best] >= _NEAR_CLAUSE else ""


def _condition(cursor: CommandCursor, command: Command) -> Condition:
    """The text up to the next clause, or to the end; what is inside parentheses belongs to it."""
    start, depth = cursor.token.start, 0
    end = start
    while not cursor.ended():
        if not depth and (cursor.token.is_symbol(";") or _clause(cursor, command) is not None):
            break
        depth += cursor.token.is_symbol("(") - cursor.token.is_symbol(")")
        end = cursor.take().end
    if end == start:
        raise cursor.wrong("the condition after WHERE is missing")
    return Condition(cursor.text[start:end], cursor.text, start)


def _at_end(cursor: CommandCursor) -> bool:
    return cursor.ended() or cursor.token.is_symbol(";")


def _misspelt(cursor: CommandCursor, openings: Sequence[str]) -> CommandError | None:
    """An error if the text is nearly a command of ours; None if it is likely somebody else's."""
    words = [token.text.upper() for token in cursor.tokens if token.kind is TokenKind.WORD]
    following = cursor.tokens[2].kind if len(cursor.tokens) > 2 else TokenKind.END
    if len(words) < 2 or following not in (TokenKind.WORD, TokenKind.STRING, TokenKind.NAME):
        return None
    first = "DESCRIBE" if words[0] == "DESC" else words[0]
    verbs = sorted({opening.split()[0] for opening in openings})
    ours = words[1] in (*FAMILY, "INDEXFILES") or words[:2] in (["WAIT", "FOR"], ["MERGE", "SPLIT"])
    if not ours or (first not in verbs and not difflib.get_close_matches(first, verbs, 1, _NEAR)):
        return None
    said = " ".join(words[:5])
    near = difflib.get_close_matches(said, [_as_said(o, words) for o in openings], 1, 0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    listed = ", ".join(o for o in sorted(openings) if o.split()[0] == first) or ", ".join(verbs)
    place = 0 if first not in verbs else cursor.tokens[2].start
    return cursor.wrong(f"this is not a command{hint}\nThere are: {listed}", place)


def _as_said(opening: str, words: Sequence[str]) -> str:
    """The opening, with the name of the system that the statement used."""
    return " ".join(words[1] if word in FAMILY and words[1] in FAMILY else word for word in opening.split())
