"""What the slop of a phrase means: one definition, Lucene's, for indexes and rows alike.

A phrase is a list of words with offsets (0, 1, 2, ..). A text matches with slop `n` if every word of the
phrase can be assigned a position of that word in the text so that

* words of the phrase that are the same have different positions, and
* `position - offset` of any two words of the phrase differ by no more than `n`.

So `"a b"~1` allows one word in between, `"a b"~2` also the words swapped (`b a`), and `"a a"~9` needs two of
them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from indextables.split.index.tokens import Token


def matches_with_slop(phrase: Sequence[Token], positions: Mapping[str, Sequence[int]], slop: int) -> bool:
    """Whether a text matches a phrase; `positions` are those of each word in the text, ascending."""
    if any(not positions.get(word.text) for word in phrase):
        return False
    words = sorted(phrase)
    starts = sorted({place - word.position for word in words for place in positions[word.text]})
    return any(_fits(words, positions, start, start + slop) for start in starts)


def _fits(words: Sequence[Token], positions: Mapping[str, Sequence[int]], low: int, high: int) -> bool:
    """Whether every word has a position of its own whose distance from its offset is between the bounds.

    The words come in the order of their offsets. So the bounds of a repeated word only move up, and taking
    its lowest free position each time leaves the most to those that follow.
    """
    taken: dict[str, int] = {}
    for word in words:
        own = positions[word.text]
        place = max(bisect_left(own, low + word.position), taken.get(word.text, 0))
        if place == len(own) or own[place] > high + word.position:
            return False
        taken[word.text] = place + 1
    return True


def neighbours(phrase: Sequence[Token]) -> list[tuple[Token, Token]]:
    """Pairs of different words that follow each other: a text that matches has each pair within the slop."""
    return [(one, other) for one, other in pairwise(phrase) if one.text != other.text]
