"""SQL text: its tokens, a cursor over them with errors that show the position, and conditions as SQL.

One lexer for conditions and commands. Literals, comments and quoting follow Spark, so that text inside a
string or a comment is never read as a keyword. Parsing the text of a condition gives the same condition.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import assert_never

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.tree import (
    Always,
    And,
    ArrayContains,
    Column,
    Compare,
    Element,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Or,
    Predicate,
    Search,
    SearchKind,
    Size,
    Step,
    StructField,
    TextMatch,
    suggestion,
)
from indextables.records import dataclass
from indextables.schema.calendar import format_date, format_timestamp
from indextables.schema.type_info import TypeKind, kind_of

_SHOWN = 100
SEARCHES = {kind.value.upper(): kind for kind in SearchKind}
OPERATORS = ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ILIKE", "IS", *SEARCHES)
ARITHMETIC = ("+", "-", "*", "/", "%", "||", "&", "|", "^")
_FUNCTION_NAMES = ("STARTSWITH", "ENDSWITH", "CONTAINS")


def lone_surrogate(text: str) -> int | None:
    """The position of a lone surrogate, which cannot be encoded; None if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def point_at(text: str, position: int, problem: str) -> str:
    """The problem, its position (counted from 1), and the text around it with a caret below the position.

    At most 100 characters of the text are shown, so that a condition of a megabyte stays readable.
    """
    position = max(0, min(position, len(text)))
    start = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    end = min(len(text), start + _SHOWN)
    before, after = ("..." if start else ""), ("..." if end < len(text) else "")
    shown = "".join(char if char.isprintable() else " " for char in text[start:end])
    caret = " " * (len(before) + position - start) + "^"
    return f"{problem} (at character {position + 1})\n  {before}{shown}{after}\n  {caret}"


class TokenKind(StrEnum):
    """The kind of a token."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind, its text as written, its value (quotes and escapes resolved), and its position."""

    kind: TokenKind
    text: str
    value: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the words (given in capitals), in any case."""
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Whether it is one of the symbols."""
        return self.kind is TokenKind.SYMBOL and self.text in symbols


_WORD = re.compile(r"\w+")
_NUMBER = re.compile(
    r"(?:[0-9]+[LSY]|[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?(?:BD|[FD])?|\.[0-9]+(?:E[+-]?[0-9]+)?(?:BD|[FD])?"
    r"|[0-9]+E[+-]?[0-9]+(?:BD|[FD])?|[0-9]+(?:BD|[FD])|[0-9]+)(?!\w)",
    re.IGNORECASE,
)
_SYMBOL = re.compile(r"<=>|<>|!=|<=|>=|==|!<|!>|\|\||::|->|=>|.", re.DOTALL)
_TAG = re.compile(r"\$[A-Za-z]*\$")
_LINE_COMMENT = re.compile(r"--(?:\\\r?\n|[^\r\n])*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; the last one is of kind END. Blanks and comments are left out.

    Raises:
        PredicateError: A string, a quoted name or a comment is never closed, or the text is not valid
            Unicode.

    >>> [(token.kind.value, token.value) for token in tokenize("a >= 'it''s' -- why")]
    [('word', 'a'), ('symbol', '>='), ('string', "it's"), ('end', '')]
    """
    broken = lone_surrogate(text)
    if broken is not None:
        raise PredicateError(point_at(text, broken, "this is a lone surrogate"), position=broken)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith("--", at):
            comment = _LINE_COMMENT.match(text, at)
            assert comment is not None
            at = comment.end()
        elif text.startswith("/*", at):
            at = _skip_comment(text, at)
        else:
            token = _token(text, at)
            tokens.append(token)
            at = token.end
    tokens.append(Token(TokenKind.END, "", "", len(text), len(text)))
    return tokens


def _token(text: str, at: int) -> Token:
    head = text[at]
    if head in "'\"":
        return _read_string(text, at, at)
    if head in "rR" and text[at + 1 : at + 2] in {"'", '"'}:
        end = text.find(text[at + 1], at + 2)
        if end < 0:
            raise _unclosed_error(text, at, "string")
        return Token(TokenKind.STRING, text[at : end + 1], text[at + 2 : end], at, end + 1)
    if head == "`":
        end = _find_closing_quote(text, at, at, "quoted name", escapes=False)
        return Token(TokenKind.NAME, text[at:end], text[at + 1 : end - 1].replace("``", "`"), at, end)
    if head == "$" and (tag := _TAG.match(text, at)):
        end = text.find(tag[0], tag.end())
        if end < 0:
            raise _unclosed_error(text, at, "string")
        stop = end + len(tag[0])
        return Token(TokenKind.STRING, text[at:stop], text[tag.end() : end], at, stop)
    for kind, pattern in ((TokenKind.NUMBER, _NUMBER), (TokenKind.WORD, _WORD)):
        if match := pattern.match(text, at):
            return Token(kind, match[0], match[0], at, match.end())
    match = _SYMBOL.match(text, at)
    assert match is not None
    return Token(TokenKind.SYMBOL, match[0], match[0], at, match.end())


def _read_string(text: str, start: int, quote_at: int) -> Token:
    end = _find_closing_quote(text, start, quote_at, "string", escapes=True)
    quote = text[quote_at]
    body = text[quote_at + 1 : end - 1].replace(quote * 2, quote) if "\\" not in text[quote_at:end] else None
    if body is None:
        body = _unescape(text[quote_at + 1 : end - 1], quote)
    return Token(TokenKind.STRING, text[start:end], body, start, end)


def _find_closing_quote(text: str, start: int, quote_at: int, what: str, *, escapes: bool) -> int:
    """The position after the quoted part that opens at `quote_at`; a doubled quote is an escaped one."""
    quote = text[quote_at]
    at = quote_at + 1
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote, at + 1):
            at += 2
        else:
            return at + 1
    raise _unclosed_error(text, start, what)


def _unescape(body: str, quote: str) -> str:
    r"""Escapes resolved as Spark does: `\%` and `\_` keep their backslash, for LIKE."""
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] == quote:
            out.append(quote)
            at += 2
        elif escape := _ESCAPE.match(body, at):
            short, long, octal, plain = escape.groups()
            if plain is not None:
                out.append(_PLAIN_ESCAPES.get(plain, plain))
            elif octal is not None:
                out.append(chr(int(octal, 8)))
            else:
                code = int(short or long, 16)
                out.append(chr(code) if code < 0x110000 else "\ufffd")
            at = escape.end()
        else:
            out.append(body[at])
            at += 1
    # A pair of \\u surrogates is one character, as in Java's strings; a lone one is replaced.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _skip_comment(text: str, start: int) -> int:
    depth, at = 0, start
    while at < len(text):
        if text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif text.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if not depth:
                return at
        else:
            at += 1
    raise _unclosed_error(text, start, "comment")


def _unclosed_error(text: str, start: int, what: str) -> PredicateError:
    return PredicateError(point_at(text, start, f"this {what} is never closed"), position=start)


class Cursor:
    """A cursor over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0

    @property
    def token(self) -> Token:
        """The current token."""
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        """The token after it."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def has_ended(self) -> bool:
        """Whether no token is left."""
        return self.token.kind is TokenKind.END

    def take(self) -> Token:
        """The current token; the cursor advances."""
        token = self.token
        self.index += not self.has_ended()
        return token

    def accept_word(self, *words: str) -> Token | None:
        """The token, if it is one of the words (given in capitals)."""
        return self.take() if self.token.is_word(*words) else None

    def accept_symbol(self, *symbols: str) -> Token | None:
        """The token, if it is one of the symbols."""
        return self.take() if self.token.is_symbol(*symbols) else None

    def expect_symbol(self, symbol: str, where: str) -> None:
        """Take the symbol, or fail."""
        if not self.accept_symbol(symbol):
            raise self.error(f"{symbol!r} is missing {where}")

    def error(self, problem: str, start: int | None = None) -> PredicateError:
        """An error at a position: that of the current token by default."""
        place = self.token.start if start is None else start
        return PredicateError(point_at(self.text, place, problem), position=place)

    @contextmanager
    def at(self, start: int) -> Iterator[None]:
        """Add a position to errors of the `with` block that have none."""
        try:
            yield
        except PredicateError as error:
            if error.position is not None:
                raise
            raise self.error(str(error), start) from None

    def unexpected_token(self) -> PredicateError:
        """The error of an unexpected token."""
        token = self.token
        if token.is_symbol(*ARITHMETIC):
            return self.error("arithmetic and concatenation are not supported; compare a column with a value")
        if token.is_symbol("->", "=>"):
            return self.error("lambda functions are not supported in a condition")
        if token.is_symbol(")"):
            return self.error("there is no '(' for this ')'")
        if token.is_word("COLLATE", "DIV"):
            return self.error(f"{token.text.upper()} is not supported in a condition")
        if token.is_word(*_FUNCTION_NAMES):
            return self.error(f"{token.text} is a function: {token.text}(column, 'text')")
        if token.kind is TokenKind.WORD:
            hint = suggestion(token.text, OPERATORS)
            return self.error(
                f"{token.text} is not an operator{hint or '; use =, <, IN, LIKE, AND, INDEXQUERY or others'}"
            )
        return self.error(
            f"an operator is missing before {token.text[:40]!r}"
            if token.text
            else "the condition ends too early"
        )


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    {*OPERATORS, "RLIKE", "REGEXP", "NULL", "TRUE", "FALSE", "CASE", "INTERVAL", "EXISTS", "_INDEXALL"}
)
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def to_sql(predicate: Predicate) -> str:
    """The condition as SQL.

    >>> to_sql(And((Not(IsNull(Column(("a", "b")))), Always(True))))
    'NOT a.b IS NULL AND TRUE'
    """
    return _sql(predicate, _name)


def _sql(predicate: Predicate, name: Callable[[Column], str]) -> str:  # noqa: C901 - one case a kind
    match predicate:
        case And(parts):
            return " AND ".join(_within(part, name, Or, And) for part in parts) or "TRUE"
        case Or(parts):
            return " OR ".join(_within(part, name, Or) for part in parts) or "FALSE"
        case Not(part):
            return f"NOT {_within(part, name, Or, And)}"
        case NestedCondition(column, steps, part):
            value = _nested_value(name(column), steps)
            text = _sql(part, lambda _: value)
            return f"({text})" if isinstance(part, And | Or | Not) else text
        case Always(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case IsNull(column):
            return f"{name(column)} IS NULL"
        case Compare(op, column, value):
            return f"{name(column)} {op.value} {_literal(value)}"
        case In(column, values):
            if not values:
                return f"({name(column)} IS NULL AND NULL)"
            return f"{name(column)} IN ({', '.join(map(_literal, values))})"
        case TextMatch(kind, column, text):
            return f"{kind.value.replace('_', '')}({name(column)}, {_string(text)})"
        case Like(column, pattern, escape, ignore_case):
            operator = "ILIKE" if ignore_case else "LIKE"
            ending = "" if escape == "\\" else f" ESCAPE {_string(escape)}"
            return f"{name(column)} {operator} {_string(pattern)}{ending}"
        case Search(kind, column, query):
            return f"{'*' if column is None else name(column)} {kind.value.upper()} {_string(query)}"


def _nested_value(text: str, steps: Sequence[Step]) -> str:
    """A computed value as SQL writes it."""
    for step in steps:
        match step:
            case StructField(name):
                text = f"{text}.{_part(name)}"
            case Size():
                text = f"size({text})"
            case ArrayContains(item=item):
                text = f"array_contains({text}, {_literal(item)})"
            case Element(position=position, key=key):
                text = f"{text}[{position if key is None else _literal(key)}]"
    return text


def _within(part: Predicate, name: Callable[[Column], str], *looser: type[Predicate]) -> str:
    text = _sql(part, name)
    return f"({text})" if isinstance(part, looser) else text


def _name(column: Column) -> str:
    return ".".join(map(_part, column.path))


def _part(name: str) -> str:
    bare = _BARE.fullmatch(name) and name.upper() not in _RESERVED
    return name if bare else "`" + name.replace("`", "``") + "`"


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _literal(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    match kind_of(value.type):
        case TypeKind.INTEGER:
            return str(value.as_py())
        case TypeKind.FLOAT:
            number = float(value.as_py())
            return f"{number!r}D" if math.isfinite(number) else f"double('{number}')"
        case TypeKind.DECIMAL:
            return f"{value.as_py():f}BD"
        case TypeKind.STRING:
            return _string(value.as_py())
        case TypeKind.BINARY:
            return f"X'{value.as_py().hex()}'"
        case TypeKind.BOOLEAN:
            return str(value.as_py()).upper()
        case TypeKind.DATE:
            days = value.value if value.type == pa.date32() else value.value // 86_400_000
            return f"DATE '{format_date(days)}'"
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            if value.type.unit in _TICKS:
                text = format_timestamp(value.value * _TICKS[value.type.unit], " ")
                return f"TIMESTAMP_NTZ '{text}'" if value.type.tz is None else f"TIMESTAMP '{text}Z'"
        case (
            TypeKind.NULL
            | TypeKind.TIME
            | TypeKind.INTERVAL
            | TypeKind.LIST
            | TypeKind.MAP
            | TypeKind.STRUCT
            | TypeKind.OTHER
        ):
            pass
        case kind:
            assert_never(kind)
    raise PredicateError(f"a value of type {value.type} cannot be written in SQL")
