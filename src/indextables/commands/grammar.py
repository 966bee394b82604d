"""The SQL grammar of commands: parses a statement to the command, its table and its arguments."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, assert_never

from indextables.commands.declarations import COMMANDS, Arguments, Clause, Command, TableArgument, ValueKind
from indextables.errors import CommandError, PredicateError
from indextables.predicate.sql_text import Cursor, TokenKind, point_at
from indextables.predicate.tree import suggestion
from indextables.records import dataclass
from indextables.schema.calendar import parse_timestamp_literal
from indextables.sizes import parse_size, size_literal

_FORMAT = "indextables"
# Synonyms: the name of the system, its former name, and singular or plural.
_SYSTEM = ("INDEXTABLES", "INDEXTABLE", "TANTIVY4SPARK")
_SYNONYMS = {
    **dict.fromkeys(_SYSTEM, _SYSTEM),
    "INDEXFILES": ("INDEXFILES", *_SYSTEM),
    "DESCRIBE": ("DESCRIBE", "DESC"),
    "DAYS": ("DAYS", "DAY"),
    "HOURS": ("HOURS", "HOUR"),
    "MINUTES": ("MINUTES", "MINUTE"),
    "SECONDS": ("SECONDS", "SECOND"),
}
# Every command has one of these words among its first ones, except the commands that Delta has, too.
COMMAND_WORDS = (*_SYSTEM, "INDEXFILES", "SPLITS")
# The minimum similarity at which a first word, or a clause, is taken for a misspelling.
_SIMILAR_VERB = 0.8
_SIMILAR_CLAUSE = 0.6
_MAX_DIGITS = 18
_SIZE_UNITS = ("K", "M", "G", "T", "KB", "MB", "GB", "TB")
_HOURS_PER_DAY = 24
# Commands of IndexTables for Scala that have no counterpart.
_PROFILER = ("ENABLE", "DISABLE", "RESET", "DESCRIBE")


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table: by its path, or by a name in a catalog; neither if no table is named."""

    path: str | None = None
    name: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A command with its table and its arguments."""

    command: Command
    target: TableReference
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Condition:
    """The text after WHERE, and its position in the statement."""

    text: str
    statement: str
    start: int

    @contextmanager
    def locate_errors(self) -> Iterator[str]:
        """Yield the text; errors about it are raised with their position in the statement."""
        try:
            yield self.text
        except PredicateError as error:
            position = self.start + (error.position or 0)
            problem = str(error).partition(" (at character ")[0]
            raise CommandError(point_at(self.statement, position, problem), position=position) from None


def _is_shared(opening: str) -> bool:
    return not any(word in COMMAND_WORDS for word in opening.split())


def shared_openings() -> list[str]:
    """The openings of commands that Delta has, too, the longest first.

    A statement with one of them is a command of indextables if its table is.
    """
    openings = [opening for command in COMMANDS for opening in command.openings if _is_shared(opening)]
    spelled = [
        " ".join(words)
        for opening in openings
        for words in product(*(_SYNONYMS.get(word, (word,)) for word in opening.split()))
    ]
    return sorted(spelled, key=lambda opening: (-len(opening.split()), opening))


# Among how many of the first words of a command one of `COMMAND_WORDS` is.
COMMAND_WORD_POSITIONS = max(
    1 + min(opening.split().index(word) for word in COMMAND_WORDS if word in opening.split())
    for command in COMMANDS
    for opening in command.openings
    if not _is_shared(opening)
)


@contextmanager
def condition(arguments: Arguments) -> Iterator[str | None]:
    """Yield the condition of a command, or None; errors about it show their position in the statement."""
    where: Condition | None = arguments.get("where")
    if where is None:
        yield None
        return
    with where.locate_errors() as text:
        yield text


def parse_statement(text: str) -> Statement | None:
    """Parse a statement; None if it is not a command of indextables.

    Raises:
        CommandError: it begins like a command of indextables, but is malformed.
    """
    cursor = _CommandCursor(text)
    openings = sorted(((o, c) for c in COMMANDS for o in c.openings), key=lambda pair: -len(pair[0].split()))
    for opening, command in openings:
        if cursor.accept_words(opening):
            return _statement(cursor, command, opening)
    if any(cursor.next_is(f"{verb} INDEXTABLES PROFILER") for verb in _PROFILER):
        raise cursor.wrong(
            "there is no profiler: Spark's SQL page shows the time of each phase of a scan, and "
            "DESCRIBE INDEXTABLES ENVIRONMENT the metrics of processes",
            0,
        )
    error = _misspelling(cursor, [opening for opening, _ in openings])
    if error is not None:
        raise error
    return None


class _CommandCursor(Cursor):
    """The tokens of a command and a position among them."""

    def __init__(self, text: str) -> None:
        try:
            super().__init__(text)
        except PredicateError as error:
            raise CommandError(str(error), position=error.position) from None

    def accept_words(self, words: str) -> bool:
        """Take these keywords if they are next, in any case: all of them or none."""
        start = self.index
        for word in words.split():
            if not self.accept_word(*_SYNONYMS.get(word, (word,))):
                self.index = start
                return False
        return True

    def next_is(self, words: str) -> bool:
        """Whether these keywords are next."""
        start = self.index
        result = self.accept_words(words)
        self.index = start
        return result

    def expect_number(self, what: str) -> int:
        """Take a whole number, or fail."""
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise self.wrong(f"{what} is missing: a whole number is expected")
        if len(token.text) > _MAX_DIGITS:
            raise self.wrong(
                f"{what} has {len(token.text)} digits; a number of at most {_MAX_DIGITS} is expected"
            )
        self.take()
        return int(token.text)

    def expect_text(self, what: str) -> str:
        """Take a text in quotes, or fail."""
        if self.token.kind is not TokenKind.STRING:
            raise self.wrong(f"{what} is missing: a text in quotes is expected")
        return self.take().value

    def at_end(self) -> bool:
        """Whether the command ends here."""
        return self.has_ended() or self.token.is_symbol(";")

    def wrong(self, problem: str, start: int | None = None) -> CommandError:
        """Return an error with a position, by default the current one."""
        error = self.error(problem, start)
        return CommandError(str(error), position=error.position)

    def unknown(self, problem: str, expected: Iterable[str]) -> CommandError:
        """Return an error about the current word, with the most similar expected one."""
        token = self.token
        if token.kind is TokenKind.END:
            return self.wrong("the command ends too early")
        return self.wrong(f"{token.text!r} is {problem}{suggestion(token.text, expected)}")


# --- the table -------------------------------------------------------------------------------------


def _statement(cursor: _CommandCursor, command: Command, opening: str) -> Statement:
    try:
        values = _clauses(cursor, command, {}, before_table=True) if command.clauses_first else {}
        target = _target(cursor, command)
        arguments = _arguments(cursor, command, values)
        if command.opening_argument:
            arguments = {**arguments, command.opening_argument: opening.rsplit(maxsplit=1)[-1].lower()}
        if command.table is TableArgument.PATH:
            target, arguments = TableReference(), {**arguments, "path": target.path}
    except CommandError as error:
        raise CommandError(f"{error}\nThe command is: {command.syntax}", position=error.position) from None
    return Statement(command, target, arguments)


def _target(cursor: _CommandCursor, command: Command) -> TableReference:
    if command.table is TableArgument.NONE:
        return TableReference()
    optional = command.table is TableArgument.OPTIONAL
    if command.before_table:
        if not cursor.accept_words(command.before_table):
            if optional:
                return TableReference()
            raise cursor.unknown(f"not {command.before_table}", (command.before_table,))
    elif optional and (cursor.at_end() or _next_clause(cursor, command) is not None):
        return TableReference()
    if command.table is TableArgument.PATH:
        return TableReference(path=cursor.expect_text("the path"))
    return _table(cursor, command)


def _table(cursor: _CommandCursor, command: Command) -> TableReference:
    token = cursor.token
    if token.kind is TokenKind.STRING:
        return TableReference(path=cursor.take().value)
    if token.is_symbol("/", "."):
        raise cursor.wrong("a path must be in quotes")
    if token.kind not in (TokenKind.WORD, TokenKind.NAME) or _next_clause(cursor, command) is not None:
        raise cursor.wrong("a table is missing: a path in quotes, or a table's name")
    parts = [cursor.take().value]
    while cursor.accept_symbol("."):
        if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise cursor.wrong("a part of the table's name is missing after '.'")
        parts.append(cursor.take().value)
    if cursor.token.is_symbol(":"):
        raise cursor.wrong("a path must be in quotes", token.start)
    by_path = len(parts) == 2 and parts[0].lower() == _FORMAT and "/" in parts[1]
    if by_path or (len(parts) == 1 and "/" in parts[0]):
        return TableReference(path=parts[-1])
    return TableReference(name=tuple(parts))


# --- clauses ---------------------------------------------------------------------------------------


def _arguments(cursor: _CommandCursor, command: Command, first: dict[str, Any]) -> dict[str, Any]:
    values = _clauses(cursor, command, first)
    while cursor.accept_symbol(";"):
        pass
    if not cursor.has_ended():
        raise cursor.wrong("only one command is allowed: nothing may follow the semicolon")
    for clause in command.clauses:
        if clause.required and clause.name not in values:
            raise cursor.wrong(f"{clause.keywords} is missing")
    if command.one_of and values.keys().isdisjoint(command.one_of):
        choices = [clause.keywords for clause in command.clauses if clause.name in command.one_of]
        raise cursor.wrong(f"{' or '.join(choices)} is missing")
    return values


def _clauses(
    cursor: _CommandCursor, command: Command, values: dict[str, Any], *, before_table: bool = False
) -> dict[str, Any]:
    """Read clauses up to the end, or up to the keyword before the table."""
    while not cursor.at_end() and not (before_table and cursor.next_is(command.before_table)):
        start = cursor.token.start
        clause = _next_clause(cursor, command)
        if clause is None:
            raise cursor.wrong(
                f"{cursor.token.text!r} is not expected here{_similar_clause(cursor, command)}"
            )
        exclusive = clause.name in command.one_of and not values.keys().isdisjoint(command.one_of)
        if clause.name in values or exclusive:
            raise cursor.wrong(f"{clause.keywords} is given twice, or contradicts another clause", start)
        if not cursor.accept_words(clause.keywords):
            cursor.accept_words(clause.synonym)
        if clause.refusal:
            raise cursor.wrong(clause.refusal)
        values[clause.name] = _value(cursor, clause, command)
    return values


def _value(cursor: _CommandCursor, clause: Clause, command: Command) -> object:  # noqa: C901 - one case a kind
    match clause.kind:
        case ValueKind.FLAG:
            return True
        case ValueKind.NUMBER:
            return _number(cursor, clause)
        case ValueKind.SIZE:
            return _size(cursor, clause)
        case ValueKind.HOURS:
            return _hours(cursor, clause)
        case ValueKind.NAMES:
            return _names(cursor, clause)
        case ValueKind.TEXT:
            return cursor.expect_text(f"the text after {clause.keywords}")
        case ValueKind.CONDITION:
            return _condition(cursor, command)
        case ValueKind.VERSION:
            cursor.accept_words("AS OF")
            return cursor.expect_number("the version")
        case ValueKind.TIMESTAMP:
            return _timestamp(cursor)
        case ValueKind.SECONDS:
            return _seconds(cursor, clause)
        case ValueKind.PAIR:
            return _pair(cursor, clause)
        case ValueKind.PAIRS:
            return _pairs(cursor, clause)
        case _:
            assert_never(clause.kind)


def _number(cursor: _CommandCursor, clause: Clause) -> int:
    start = cursor.token.start
    value = cursor.expect_number(f"the number after {clause.keywords}")
    if value < clause.minimum:
        raise cursor.wrong(
            f"{clause.keywords} {value} is too small: at least {clause.minimum} is expected", start
        )
    return value


def _size(cursor: _CommandCursor, clause: Clause) -> int:
    """Read a number of bytes: 500M, 2G, '1 G', 1048576."""
    token = cursor.take()
    text = token.value
    if token.kind is TokenKind.NUMBER and cursor.token.is_word(*_SIZE_UNITS):
        text += cursor.take().text
    try:
        value = parse_size(text)
    except ValueError:
        raise cursor.wrong(f"{text!r} is not a size such as 100M or 5G", token.start) from None
    if value < clause.minimum:
        raise cursor.wrong(
            f"{clause.keywords} {text} is too small: at least {size_literal(clause.minimum)} is expected",
            token.start,
        )
    return value


def _hours(cursor: _CommandCursor, clause: Clause) -> float:
    value = cursor.expect_number(f"the number after {clause.keywords}")
    if cursor.accept_words("DAYS"):
        return float(value * _HOURS_PER_DAY)
    if cursor.accept_words("HOURS"):
        return float(value)
    raise cursor.unknown("no unit: DAYS or HOURS is expected", ("DAYS", "HOURS"))


def _names(cursor: _CommandCursor, clause: Clause) -> tuple[str, ...]:
    """Read names in parentheses, separated by commas; quotes are allowed."""
    if not cursor.accept_symbol("("):
        raise cursor.wrong(f"'(' is missing after {clause.keywords}")
    names = []
    while True:
        if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING):
            raise cursor.wrong(f"a name is missing in {clause.keywords} (...)")
        names.append(cursor.take().value)
        if cursor.accept_symbol(")"):
            return tuple(names)
        if not cursor.accept_symbol(","):
            raise cursor.wrong(f"',' or ')' is missing in {clause.keywords} (...)")


def _pair(cursor: _CommandCursor, clause: Clause) -> tuple[str, str]:
    """Read a name and a value: 'name' = 'value'; a colon is allowed as well."""
    if cursor.token.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING):
        raise cursor.wrong(f"a name is missing after {clause.keywords}")
    name = cursor.take().value
    if not cursor.accept_symbol("=", ":"):
        raise cursor.wrong(f"'=' is missing after the name in {clause.keywords}")
    return name, cursor.expect_text(f"the value of {name!r}")


def _pairs(cursor: _CommandCursor, clause: Clause) -> dict[str, str]:
    """Read names and values in parentheses, separated by commas."""
    if not cursor.accept_symbol("("):
        raise cursor.wrong(f"'(' is missing after {clause.keywords}")
    pairs: dict[str, str] = {}
    while True:
        start = cursor.token.start
        name, value = _pair(cursor, clause)
        if name in pairs:
            raise cursor.wrong(f"{name!r} is given twice in {clause.keywords} (...)", start)
        pairs[name] = value
        if cursor.accept_symbol(")"):
            return pairs
        if not cursor.accept_symbol(","):
            raise cursor.wrong(f"',' or ')' is missing in {clause.keywords} (...)")


def _seconds(cursor: _CommandCursor, clause: Clause) -> float:
    """Read a span of time: 30 SECONDS, 5 MINUTES."""
    start = cursor.token.start
    value = cursor.expect_number(f"the number after {clause.keywords}")
    if value < 1:
        raise cursor.wrong(f"{clause.keywords} {value} is too small: at least 1 is expected", start)
    if cursor.accept_words("MINUTES"):
        return value * 60.0
    if not cursor.accept_words("SECONDS"):
        raise cursor.wrong(f"SECONDS or MINUTES is missing after {clause.keywords} {value}")
    return float(value)


def _timestamp(cursor: _CommandCursor) -> int:
    """Read a time, in milliseconds since 1970."""
    cursor.accept_words("AS OF")
    start = cursor.token.start
    text = cursor.expect_text("the time")
    micros = parse_timestamp_literal(text, "UTC")
    if micros is None:
        raise cursor.wrong(f"{text!r} is not a date and time such as '2024-05-01 12:00:00'", start)
    return micros // 1000


def _condition(cursor: _CommandCursor, command: Command) -> Condition:
    """Read the text up to the next clause or the end; keywords in parentheses belong to it."""
    start, depth = cursor.token.start, 0
    end = start
    while not cursor.has_ended():
        if not depth and (cursor.token.is_symbol(";") or _next_clause(cursor, command) is not None):
            break
        depth += cursor.token.is_symbol("(") - cursor.token.is_symbol(")")
        end = cursor.take().end
    if end == start:
        raise cursor.wrong("the condition after WHERE is missing")
    return Condition(cursor.text[start:end], cursor.text, start)


def _next_clause(cursor: _CommandCursor, command: Command) -> Clause | None:
    matching = [
        clause
        for clause in command.clauses
        if cursor.next_is(clause.keywords) or (clause.synonym and cursor.next_is(clause.synonym))
    ]
    return max(matching, key=lambda clause: len(clause.keywords), default=None)


# --- misspellings ----------------------------------------------------------------------------------


def _similar_clause(cursor: _CommandCursor, command: Command) -> str:
    """Return a hint to the clause that is most similar to the next words."""
    ahead = [token.text.upper() for token in cursor.tokens[cursor.index :]]
    similarity = {
        clause.keywords: difflib.SequenceMatcher(
            None, " ".join(ahead[: len(clause.keywords.split())]), clause.keywords
        ).ratio()
        for clause in command.clauses
        if not clause.refusal
    }
    best = max(similarity, key=lambda keywords: similarity[keywords], default="")
    return f"; did you mean {best}?" if best and similarity[best] >= _SIMILAR_CLAUSE else ""


def _misspelling(cursor: _CommandCursor, openings: Sequence[str]) -> CommandError | None:
    """Return an error if the text is likely a misspelled command; None if it is likely one of Spark."""
    words = [token.text.upper() for token in cursor.tokens if token.kind is TokenKind.WORD]
    following = cursor.tokens[2].kind if len(cursor.tokens) > 2 else TokenKind.END
    if len(words) < 2 or following not in (TokenKind.WORD, TokenKind.STRING, TokenKind.NAME):
        return None
    first = "DESCRIBE" if words[0] == "DESC" else words[0]
    verbs = sorted({opening.split()[0] for opening in openings})
    ours = words[1] in (*_SYSTEM, "INDEXFILES") or words[:2] in (["WAIT", "FOR"], ["MERGE", "SPLIT"])
    if not ours or (first not in verbs and not difflib.get_close_matches(first, verbs, 1, _SIMILAR_VERB)):
        return None
    text = " ".join(words[:5])
    similar = difflib.get_close_matches(text, [_with_system_name(o, words) for o in openings], 1, 0.5)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    choices = ", ".join(o for o in sorted(openings) if o.split()[0] == first) or ", ".join(verbs)
    position = 0 if first not in verbs else cursor.tokens[2].start
    return cursor.wrong(f"this is not a command{hint}\nThere are: {choices}", position)


def _with_system_name(opening: str, words: Sequence[str]) -> str:
    """Return the opening with the name of the system that the statement uses."""
    return " ".join(words[1] if word in _SYSTEM and words[1] in _SYSTEM else word for word in opening.split())
