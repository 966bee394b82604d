"""A reading head over the tokens of a condition or a command, with errors that show the place."""

from collections.abc import Iterator
from contextlib import contextmanager

from indextables.errors import PredicateError
from indextables.predicate.caret import point_at
from indextables.predicate.lexer import Token, TokenKind, tokenize
from indextables.predicate.names import suggestion
from indextables.predicate.tree import SearchKind

SEARCHES = {kind.value.upper(): kind for kind in SearchKind}
OPERATORS = ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ILIKE", "IS", *SEARCHES)
ARITHMETIC = ("+", "-", "*", "/", "%", "||", "&", "|", "^")
_FUNCTION_NAMES = ("STARTSWITH", "ENDSWITH", "CONTAINS")


class Cursor:
    """The tokens of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0

    @property
    def token(self) -> Token:
        """The token under the head."""
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        """The token after it."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def ended(self) -> bool:
        """Whether no token is left."""
        return self.token.kind is TokenKind.END

    def take(self) -> Token:
        """The token under the head, which moves on."""
        token = self.token
        self.index += not self.ended()
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
        """An error that points at a place: the head's, unless another is given."""
        place = self.token.start if start is None else start
        return PredicateError(point_at(self.text, place, problem), position=place)

    @contextmanager
    def at(self, start: int) -> Iterator[None]:
        """Errors from within that name no place get this one."""
        try:
            yield
        except PredicateError as error:
            if error.position is not None:
                raise
            raise self.error(str(error), start) from None

    def unexpected(self) -> PredicateError:
        """A sentence about a token after which nothing can go on."""
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
                f"{token.text} is no operator{hint or '; expected one as =, <, IN, LIKE, AND, INDEXQUERY'}"
            )
        return self.error(
            f"an operator is missing before {token.text[:40]!r}"
            if token.text
            else "the condition ends too early"
        )
