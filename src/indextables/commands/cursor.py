"""A reading head over the words of a command."""

from collections.abc import Iterable

from indextables.errors import CommandError, PredicateError
from indextables.predicate.lexer import Cursor, TokenKind
from indextables.predicate.names import suggestion

# One word and its other forms: the original's first name, and both numbers.
FAMILY = ("INDEXTABLES", "INDEXTABLE", "TANTIVY4SPARK")
_ALIASES = {
    **dict.fromkeys(FAMILY, FAMILY),
    "INDEXFILES": ("INDEXFILES", *FAMILY),
    "DESCRIBE": ("DESCRIBE", "DESC"),
    "DAYS": ("DAYS", "DAY"),
    "HOURS": ("HOURS", "HOUR"),
}


# Numbers in commands count files, bytes or hours.
_MOST_DIGITS = 18


class CommandCursor(Cursor):
    """The tokens of a command, taken one after the other."""

    def __init__(self, text: str) -> None:
        try:
            super().__init__(text)
        except PredicateError as error:
            raise CommandError(str(error), position=error.position) from None

    def accept_words(self, words: str) -> bool:
        """Take these words if they are next, in any case: all of them or none."""
        start = self.index
        for word in words.split():
            if not self.accept_word(*_ALIASES.get(word, (word,))):
                self.index = start
                return False
        return True

    def sees(self, words: str) -> bool:
        """Whether these words are next."""
        start = self.index
        found = self.accept_words(words)
        self.index = start
        return found

    def expect_number(self, what: str) -> int:
        """Take a whole number, or fail."""
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise self.wrong(f"{what} is missing: a whole number is expected")
        if len(token.text) > _MOST_DIGITS:
            raise self.wrong(
                f"{what} has {len(token.text)} digits; a number of at most {_MOST_DIGITS} is expected"
            )
        self.take()
        return int(token.text)

    def expect_text(self, what: str) -> str:
        """Take a text in quotes, or fail."""
        if self.token.kind is not TokenKind.STRING:
            raise self.wrong(f"{what} is missing: a text in quotes is expected")
        return self.take().value

    def wrong(self, problem: str, start: int | None = None) -> CommandError:
        """An error that points at a place: the head's, unless another is given."""
        told = self.error(problem, start)
        return CommandError(str(told), position=told.position)

    def unknown(self, what: str, known: Iterable[str]) -> CommandError:
        """An error about the word under the head, with the nearest one that is known."""
        token = self.token
        if token.kind is TokenKind.END:
            return self.wrong("the command ends too early")
        return self.wrong(f"{token.text!r} is {what}{suggestion(token.text, known)}")
