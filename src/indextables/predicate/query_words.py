"""Words of the query language: where they end, what is escaped, which marks they carry."""

import re
from dataclasses import dataclass

from indextables.predicate.query_tree import FieldPath, Wild

AND_WORDS = frozenset({"AND", "&&"})
OR_WORDS = frozenset({"OR", "||"})
RESERVED = AND_WORDS | OR_WORDS | {"NOT"}
# Characters that end a word, and those that mean something inside or at the start of one.
ENDING = frozenset('"()[]{}')
MARKS = frozenset("\\:^*?~")
LEADING = frozenset("+-/<>")

_EDITS = re.compile(r"~([0-9]*)(?=[\s)\]}^]|$)")


class WordError(Exception):
    """A word is malformed at a position."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters: literal texts and placeholders, escapes resolved, and its place in the query.

    `edits` is what follows a closing `~` (perhaps nothing), None when there is none.
    """

    parts: tuple[str | Wild, ...]
    start: int
    end: int
    raw: str
    edits: str | None = None

    @property
    def text(self) -> str | None:
        """The word without placeholders, or None if it has any."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], Wild):
            return self.parts[0]
        return None


def read_word(text: str, start: int, *, value: bool) -> Word:
    """The word that starts here; it may be empty.

    As a value (after a field's colon, in a range or a set) it may contain colons. Elsewhere an unescaped
    colon ends it, unless it is the one of `://`, which makes the rest of the word an address.
    """
    parts: list[str | Wild] = []
    literal: list[str] = []
    edits: str | None = None
    at = start

    def flush() -> None:
        if literal:
            parts.append("".join(literal))
            literal.clear()

    while at < len(text):
        char = text[at]
        if char.isspace() or char in ENDING or char == "^":
            break
        if char == "\\":
            at += 1
            if at == len(text):
                raise WordError("a backslash ends the query; write \\\\ to search for one", at - 1)
            literal.append(text[at])
        elif char in {"*", "?"}:
            flush()
            if char == "?" or not parts or parts[-1] is not Wild.MANY:
                parts.append(Wild(char))
        elif char == ":" and not value:
            if not text.startswith("://", at) or at == start:
                break
            value = True
            literal.append(char)
        elif char == "~" and at > start and (found := _EDITS.match(text, at)):
            edits = found[1]
            at = found.end()
            break
        else:
            literal.append(char)
        at += 1
    flush()
    return Word(tuple(parts), start, at, text[start:at], edits)


def split_path(raw: str) -> FieldPath:
    """A field name as written, split at its unescaped dots, escapes resolved."""
    path = [""]
    escaped = False
    for char in raw:
        if escaped:
            path[-1] += char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ".":
            path.append("")
        else:
            path[-1] += char
    return tuple(path)
