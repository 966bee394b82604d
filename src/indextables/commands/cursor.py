"""A reading head over the words of a command."""

from indextables.errors import CommandError, PredicateError
from indextables.predicate.lexer import TokenKind
from indextables.predicate.sql_cursor import Cursor

# The original's first name; its users may have it in their scripts.
_ALIASES = {"INDEXTABLES": ("INDEXTABLES", "TANTIVY4SPARK")}


class CommandCursor(Cursor):
    """The tokens of a command, taken one after the other."""

    def __init__(self, text: str) -> None:
        try:
            super().__init__(text)
        except PredicateError as error:
            raise CommandError(str(error)) from None

    def accept_words(self, words: str) -> bool:
        """Take these words if they are next, in any case: all of them or none."""
        start = self.index
        for word in words.split():
            if not self.accept_word(*_ALIASES.get(word, (word,))):
                self.index = start
                return False
        return True

    def expect_number(self, what: str) -> int:
        """Take a whole number, or fail."""
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise self.wrong(f"{what} is missing: a whole number is expected")
        self.take()
        return int(token.text)

    def wrong(self, problem: str) -> CommandError:
        """An error that points at the head's place."""
        return CommandError(str(self.error(problem)))
