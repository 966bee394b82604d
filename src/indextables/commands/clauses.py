"""What stands in the clauses of commands: sizes, numbers, times, lists, conditions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from indextables.commands.command import Arguments, Clause
from indextables.commands.cursor import CommandCursor
from indextables.errors import CommandError, PredicateError
from indextables.options.parsers import size as size_parser
from indextables.predicate.lexer import TokenKind, point_at

_HOURS_A_DAY = 24
_UNITS = ("K", "M", "G", "T", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Condition:
    """The text after WHERE, and where it stands in its statement."""

    text: str
    statement: str
    start: int

    @contextmanager
    def raising(self) -> Iterator[str]:
        """The text; errors about it are told with their place in the statement."""
        try:
            yield self.text
        except PredicateError as error:
            place = self.start + (error.position or 0)
            problem = str(error).partition(" (at character ")[0]
            raise CommandError(point_at(self.statement, place, problem), position=place) from None


def flag(words: str, name: str) -> Clause:
    """Words that are there or not."""
    return Clause(words, name, lambda _: True)


def number(words: str, name: str, least: int = 0, *, shown: str = "n") -> Clause:
    """A whole number of at least `least`."""

    def read(cursor: CommandCursor) -> int:
        start = cursor.token.start
        found = cursor.expect_number(f"the number after {words}")
        if found < least:
            raise cursor.wrong(f"{words} {found} is too small: at least {least} is expected", start)
        return found

    return Clause(words, name, read, shown)


def size(words: str, name: str, least: int = 1) -> Clause:
    """A number of bytes: 500M, 2G, '1 G', 1048576."""

    def read(cursor: CommandCursor) -> int:
        token = cursor.take()
        text = token.value
        if token.kind is TokenKind.NUMBER and cursor.token.is_word(*_UNITS):
            text += cursor.take().text
        try:
            found = size_parser.parse(text)
        except ValueError:
            raise cursor.wrong(f"{text!r} is not a size such as 100M or 5G", token.start) from None
        if found < least:
            raise cursor.wrong(
                f"{words} {text} is too small: at least {_shown(least)} is expected", token.start
            )
        return found

    return Clause(words, name, read, "n[M|G]")


def hours(words: str, name: str) -> Clause:
    """A number of days or hours, as hours."""

    def read(cursor: CommandCursor) -> float:
        found = cursor.expect_number(f"the number after {words}")
        if cursor.accept_words("DAYS"):
            return float(found * _HOURS_A_DAY)
        if cursor.accept_words("HOURS"):
            return float(found)
        raise cursor.unknown("no unit: DAYS or HOURS is expected", ("DAYS", "HOURS"))

    return Clause(words, name, read, "n {DAYS | HOURS}")


def names(words: str, name: str) -> Clause:
    """Names in parentheses, separated by commas; quotes are allowed."""

    def read(cursor: CommandCursor) -> tuple[str, ...]:
        cursor_open(cursor, words)
        found = []
        while True:
            if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING):
                raise cursor.wrong(f"a name is missing in {words} (...)")
            found.append(cursor.take().value)
            if cursor.accept_symbol(")"):
                return tuple(found)
            if not cursor.accept_symbol(","):
                raise cursor.wrong(f"',' or ')' is missing in {words} (...)")

    return Clause(words, name, read, "(name, ...)")


def cursor_open(cursor: CommandCursor, words: str) -> None:
    """Take an opening parenthesis, or fail."""
    if not cursor.accept_symbol("("):
        raise cursor.wrong(f"'(' is missing after {words}")


def text(words: str, name: str, *, required: bool = False, shown: str = "'text'") -> Clause:
    """A text in quotes."""
    return Clause(words, name, lambda cursor: cursor.expect_text(f"the text after {words}"), shown, required)


def where(*, required: bool = False) -> Clause:
    """A condition: everything up to the next clause."""
    return Clause("WHERE", "where", None, "condition", required)


DRY_RUN = flag("DRY RUN", "dry_run")


@contextmanager
def condition(arguments: Arguments) -> Iterator[str | None]:
    """The condition of a command, or None; errors about it show their place in the statement."""
    found: Condition | None = arguments.get("where")
    if found is None:
        yield None
        return
    with found.raising() as said:
        yield said


def _shown(bytes_: int) -> str:
    return f"{bytes_ >> 20}M" if bytes_ >= 1 << 20 else str(bytes_)
