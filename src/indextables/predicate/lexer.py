"""SQL text cut into tokens: words, quoted names, strings, numbers and symbols.

One lexer for conditions and commands. It knows literals, comments and quoting as Spark does, so that
nothing inside a string or a comment is ever taken for a keyword.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from indextables.errors import PredicateError
from indextables.predicate.caret import lone_surrogate, point_at


class TokenKind(StrEnum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind, its text as written, its value (quotes and escapes resolved), and its place."""

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
        PredicateError: A string, a quoted name or a comment is never closed, or the text is no text.

    >>> [(token.kind.value, token.value) for token in tokenize("a >= 'it''s' -- why")]
    [('word', 'a'), ('symbol', '>='), ('string', "it's"), ('end', '')]
    """
    broken = lone_surrogate(text)
    if broken is not None:
        raise PredicateError(point_at(text, broken, "this is half a character"), position=broken)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith("--", at):
            found = _LINE_COMMENT.match(text, at)
            assert found is not None
            at = found.end()
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
        return _string(text, at, at)
    if head in "rR" and text[at + 1 : at + 2] in {"'", '"'}:
        end = text.find(text[at + 1], at + 2)
        if end < 0:
            raise _never_closed(text, at, "string")
        return Token(TokenKind.STRING, text[at : end + 1], text[at + 2 : end], at, end + 1)
    if head == "`":
        end = _closing(text, at, at, "quoted name", escapes=False)
        return Token(TokenKind.NAME, text[at:end], text[at + 1 : end - 1].replace("``", "`"), at, end)
    if head == "$" and (tag := _TAG.match(text, at)):
        end = text.find(tag[0], tag.end())
        if end < 0:
            raise _never_closed(text, at, "string")
        stop = end + len(tag[0])
        return Token(TokenKind.STRING, text[at:stop], text[tag.end() : end], at, stop)
    for kind, pattern in ((TokenKind.NUMBER, _NUMBER), (TokenKind.WORD, _WORD)):
        if found := pattern.match(text, at):
            return Token(kind, found[0], found[0], at, found.end())
    found = _SYMBOL.match(text, at)
    assert found is not None
    return Token(TokenKind.SYMBOL, found[0], found[0], at, found.end())


def _string(text: str, start: int, quote_at: int) -> Token:
    end = _closing(text, start, quote_at, "string", escapes=True)
    quote = text[quote_at]
    body = text[quote_at + 1 : end - 1].replace(quote * 2, quote) if "\\" not in text[quote_at:end] else None
    if body is None:
        body = _unescape(text[quote_at + 1 : end - 1], quote)
    return Token(TokenKind.STRING, text[start:end], body, start, end)


def _closing(text: str, start: int, quote_at: int, what: str, *, escapes: bool) -> int:
    """Where the quoted part that opens at `quote_at` has ended; a doubled quote stands for itself."""
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
    raise _never_closed(text, start, what)


def _unescape(body: str, quote: str) -> str:
    r"""Escapes resolved as Spark does: `\%` and `\_` keep their backslash, for LIKE."""
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] == quote:
            out.append(quote)
            at += 2
        elif found := _ESCAPE.match(body, at):
            short, long, octal, plain = found.groups()
            if plain is not None:
                out.append(_PLAIN_ESCAPES.get(plain, plain))
            elif octal is not None:
                out.append(chr(int(octal, 8)))
            else:
                code = int(short or long, 16)
                out.append(chr(code) if code < 0x110000 else "\ufffd")
            at = found.end()
        else:
            out.append(body[at])
            at += 1
    # A pair of \\u surrogates is one character, as in Java's strings; a lone one is no text at all.
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
    raise _never_closed(text, start, "comment")


def _never_closed(text: str, start: int, what: str) -> PredicateError:
    return PredicateError(point_at(text, start, f"this {what} is never closed"), position=start)
