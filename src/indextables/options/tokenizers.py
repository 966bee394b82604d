"""The tokenizers of text fields: one record for each, looked up by name."""

import functools
from enum import Enum, auto

from indextables.records import dataclass


class TokenBoundary(Enum):
    """Where a tokenizer splits a text.

    `NONE`: the whole text is one token. `WORD`: a token is a run of letters and digits. `SPACE`: a token is
    a run of anything but white space. `CHARACTER`: as `WORD`, but each Chinese, Japanese or Korean character
    is a token. `GRAM`: every part of the text of some lengths is a token; all have the same position.
    """

    NONE = auto()
    WORD = auto()
    SPACE = auto()
    CHARACTER = auto()
    GRAM = auto()


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The conversion of a text to terms of the index.

    Attributes:
        name: The name in options and in the document mapping.
        boundary: Where it splits texts.
        lower_case: Whether terms are in lower case.
        stemmer: The language whose endings are removed from terms; None if terms are not stemmed.
        grams: The shortest and longest gram, in characters, for `GRAM`.
    """

    name: str
    boundary: TokenBoundary
    lower_case: bool = True
    stemmer: str | None = None
    grams: tuple[int, int] | None = None

    @property
    def splits(self) -> bool:
        """Whether a text can become several terms."""
        return self.boundary is not TokenBoundary.NONE

    @property
    def keeps_words(self) -> bool:
        """Whether every run of ASCII letters and digits is part of one term, apart from its case."""
        words = {TokenBoundary.WORD, TokenBoundary.SPACE, TokenBoundary.CHARACTER}
        return self.boundary in words and self.stemmer is None

    @property
    def unstemmed(self) -> "Tokenizer":
        """The tokenizer that splits the same way without stemming: for prefixes and misspelt words."""
        return self if self.stemmer is None else _TOKENIZERS["default"]


_STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
_TOKENIZERS = {
    tokenizer.name: tokenizer
    for tokenizer in (
        Tokenizer("default", TokenBoundary.WORD),
        Tokenizer("raw", TokenBoundary.NONE, lower_case=False),
        Tokenizer("whitespace", TokenBoundary.SPACE),
        Tokenizer("cjk", TokenBoundary.CHARACTER),
        Tokenizer("ngram", TokenBoundary.GRAM, grams=(2, 3)),
        *(
            Tokenizer(f"{code}_stem", TokenBoundary.WORD, stemmer=language)
            for code, language in _STEMMERS.items()
        ),
    )
}
TOKENIZER_NAMES = tuple(_TOKENIZERS)


@functools.lru_cache(maxsize=256)
def find_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a name: one of `TOKENIZER_NAMES`, or `ngram_<min>_<max>`.

    Raises:
        ValueError: There is none.

    >>> find_tokenizer("en_stem").stemmer, find_tokenizer("ngram_3_5").grams
    ('english', (3, 5))
    """
    if (tokenizer := _TOKENIZERS.get(name)) is not None:
        return tokenizer
    parts = name.split("_")
    if parts[0] != "ngram":
        raise ValueError(f"there is no tokenizer {name!r}; the tokenizers are {', '.join(TOKENIZER_NAMES)}")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ValueError("an n-gram tokenizer is ngram or ngram_<min>_<max>")
    low, high = int(parts[1]), int(parts[2])
    if not 1 <= low <= high <= 20:
        raise ValueError("grams are 1 to 20 characters long, the shortest first")
    return Tokenizer(name, TokenBoundary.GRAM, grams=(low, high))
