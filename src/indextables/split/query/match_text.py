"""Words, phrases and patterns, looked for in texts themselves: for rows that the index is not sure of."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import QuerySyntaxError
from indextables.predicate.query_tree import (
    Fuzzy,
    InSet,
    Phrase,
    Prefix,
    QueryLeaf,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)
from indextables.split.index.tokens import Token, begun_cut, cut, lowered, plain_cut
from indextables.split.mapping import Field, Kind
from indextables.split.query import patterns
from indextables.split.query.slop import matches_with_slop

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Texts:
    """The tokens of many texts in one array, each with the number of its text and its place there."""

    words: pa.Array
    owners: np.ndarray[Any, np.dtype[np.int64]]
    places: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    @classmethod
    def whole(cls, values: pa.Array) -> "Texts":
        """Texts that are one token each; null has none."""
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        return cls(values.drop_null(), present, np.zeros(len(present), np.int64), len(values))

    @classmethod
    def cut(cls, values: Sequence[str | None], field: Field) -> "Texts":
        """Texts cut by the field's tokenizer."""
        words: list[str] = []
        owners: list[int] = []
        places: list[int] = []
        for owner, text in enumerate(values):
            for token in cut(field, text) if text is not None else ():
                words.append(token.text)
                owners.append(owner)
                places.append(token.position)
        return cls(
            pa.array(words, pa.string()), np.array(owners, np.int64), np.array(places, np.int64), len(values)
        )

    def having(self, words: Mask) -> Mask:
        """The texts that have at least one of the words marked."""
        found: Mask = np.bincount(self.owners[words], minlength=self.count) > 0
        return found

    def equal(self, word: str) -> Mask:
        """Which words are this one."""
        return _mask(pc.equal(self.words, word))


def text_matches(leaf: QueryLeaf, texts: Texts, field: Field) -> Mask:
    """Which texts the leaf matches."""
    finder = _Finder(texts, field)
    match leaf:
        case Term(text=text) | Phrase(text=text, prefix=False, slop=0):
            return finder.words(text)
        case Phrase(text=text, prefix=False, slop=slop):
            return finder.words(text, slop)
        case Phrase(text=text, prefix=True) | Prefix(text=text):
            return finder.beginning(text)
        case Wildcard(parts=parts):
            pieces = [p if isinstance(p, Wild) else finder.folded(p) for p in parts]
            return texts.having(finder.matching(patterns.wildcard(pieces)))
        case Regex(pattern=pattern):
            return texts.having(finder.matching(pattern))
        case Fuzzy(text=text, distance=distance):
            return finder.fuzzy(text, distance)
        case Range(lower=lower, upper=upper):
            return finder.between(leaf, lower, upper)
        case InSet(values=values):
            found: Mask = np.logical_or.reduce([finder.words(value) for value in values])
            return found
        case _:
            raise AssertionError(f"{type(leaf).__name__} is not a leaf of text")


class _Finder:
    def __init__(self, texts: Texts, field: Field) -> None:
        self.texts = texts
        self.field = field
        self.tokenized = field.kind in (Kind.TEXT, Kind.JSON) and field.tokenizer != "raw"

    def folded(self, text: str) -> str:
        return lowered(text) if self.tokenized else text

    def words(self, text: str, slop: int = 0) -> Mask:
        tokens = cut(self.field, text) if self.tokenized else [Token(0, text)]
        if not tokens:
            return np.zeros(self.texts.count, np.bool_)
        if len(tokens) == 1:
            return self.texts.having(self.texts.equal(tokens[0].text))
        masks = {token.text: self.texts.equal(token.text) for token in tokens}
        together: Mask = np.logical_and.reduce([self.texts.having(mask) for mask in masks.values()])
        if len({token.position for token in tokens}) == 1:
            return together
        if slop:
            return self._with_slop(together, masks, tokens, slop)
        every = [masks[token.text] for token in tokens]
        return self._in_order(together, every, [token.position for token in tokens])

    def beginning(self, text: str) -> Mask:
        tokens = begun_cut(self.field, text) if self.tokenized else []
        if len(tokens) > 1 and len({token.position for token in tokens}) == 1:
            return self.words(text)
        if len(tokens) < 2:
            start = tokens[0].text if tokens else self.folded(text)
            return self.texts.having(_mask(pc.starts_with(self.texts.words, start)))
        masks = [self.texts.equal(token.text) for token in tokens[:-1]]
        masks.append(_mask(pc.starts_with(self.texts.words, tokens[-1].text)))
        together: Mask = np.logical_and.reduce([self.texts.having(mask) for mask in masks])
        return self._in_order(together, masks, [token.position for token in tokens])

    def matching(self, expression: str) -> Mask:
        try:
            return _mask(pc.match_substring_regex(self.texts.words, rf"\A(?:{expression})\z"))
        except pa.ArrowInvalid as error:
            raise QuerySyntaxError(f"the regular expression /{expression}/ cannot be used: {error}") from None

    def fuzzy(self, text: str, distance: int) -> Mask:
        tokens = plain_cut(self.field, text) if self.tokenized else [Token(0, text)]
        if len(tokens) != 1:
            return np.zeros(self.texts.count, np.bool_)
        near = [within(tokens[0].text, word, distance) for word in self.texts.words.to_pylist()]
        return self.texts.having(np.array(near, np.bool_))

    def between(self, leaf: Range, lower: str | None, upper: str | None) -> Mask:
        inside: Mask = np.ones(len(self.texts.words), np.bool_)
        if lower is not None:
            above = pc.greater_equal if leaf.lower_inclusive else pc.greater
            inside &= _mask(above(self.texts.words, self.folded(lower)))
        if upper is not None:
            below = pc.less_equal if leaf.upper_inclusive else pc.less
            inside &= _mask(below(self.texts.words, self.folded(upper)))
        return self.texts.having(inside)

    def _in_order(self, candidates: Mask, masks: list[Mask], steps: list[int]) -> Mask:
        """The texts, among the candidates, whose words stand at exactly the right distances."""
        places = [
            {owner: {place - step for place in own} for owner, own in self._positions(mask).items()}
            for mask, step in zip(masks, steps, strict=True)
        ]
        found: Mask = np.zeros(self.texts.count, np.bool_)
        for owner in np.flatnonzero(candidates).tolist():
            found[owner] = bool(set.intersection(*(by_text[owner] for by_text in places)))
        return found

    def _with_slop(
        self, candidates: Mask, masks: Mapping[str, Mask], phrase: Sequence[Token], slop: int
    ) -> Mask:
        """The texts, among the candidates, that match the phrase with some slop."""
        places = {word: self._positions(mask) for word, mask in masks.items()}
        found: Mask = np.zeros(self.texts.count, np.bool_)
        for owner in np.flatnonzero(candidates).tolist():
            own = {word: by_text[owner] for word, by_text in places.items()}
            found[owner] = matches_with_slop(phrase, own, slop)
        return found

    def _positions(self, words: Mask) -> dict[int, list[int]]:
        """The positions of the words marked in each text, ascending."""
        by_text: dict[int, list[int]] = defaultdict(list)
        for owner, place in zip(
            self.texts.owners[words].tolist(), self.texts.places[words].tolist(), strict=True
        ):
            by_text[owner].append(place)
        return by_text


def within(one: str, other: str, distance: int) -> bool:
    """Whether so many edits (put in, leave out, replace, swap neighbours) turn one text into the other.

    >>> within("tiemout", "timeout", 1), within("abc", "xyz", 2)
    (True, False)
    """
    if abs(len(one) - len(other)) > distance:
        return False
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1] <= distance


def _mask(answer: pa.Array) -> Mask:
    found: Mask = answer.to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
