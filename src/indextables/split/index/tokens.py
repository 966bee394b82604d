"""How a query's text is cut: as the field's own text was, but with no token left out."""

from typing import NamedTuple

from indextables.split.index.tokenizers import analyzer
from indextables.split.mapping import Field

# Longer than any token: nothing is dropped.
_NO_LIMIT = (1 << 32) - 2


class Token(NamedTuple):
    """A token and its place among the tokens of its text."""

    position: int
    text: str


def cut(field: Field, text: str) -> list[Token]:
    """The tokens of a text on this field, overlong ones too."""
    return _tokens(field.tokenizer, text)


def plain_cut(field: Field, text: str) -> list[Token]:
    """The tokens without stemming: for words that are only begun, or misspelt."""
    return _tokens("default" if field.tokenizer.endswith("_stem") else field.tokenizer, text)


def begun_cut(field: Field, text: str) -> list[Token]:
    """The tokens of a text whose last word is only begun: that one is not stemmed, the others are."""
    begun = plain_cut(field, text)
    return [*cut(field, text)[:-1], begun[-1]] if begun else []


def _tokens(tokenizer: str, text: str) -> list[Token]:
    found = analyzer(tokenizer, _NO_LIMIT).pre_tokenize(text).tokens
    return [Token(token.position, token.text) for token in found]


def lowered(text: str) -> str:
    """Lower case, letter by letter, as the index does it.

    >>> lowered("ΟΔΟΣ")
    'οδοσ'
    """
    return "".join(c.lower() for c in text)
