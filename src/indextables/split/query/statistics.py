"""How rare words and how long texts are in a whole table: what makes scores of its splits comparable.

BM25 scores a word that a text of length `len` has `tf` times as

    idf * (k1 + 1) * tf / (tf + k1 * (1 - b + b * len / average)),  idf = ln(1 + (N - n + 0.5) / (n + 0.5))

where `n` of `N` rows have the word. Tantivy takes `n`, `N` and the average length of one split. Multiplying
by the idf of the table and dividing by that of the split puts in the table's counts exactly. Putting in the
table's average needs the length of each text; it is done as for a text of the split's average length that has
the word once.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Protocol, TypeAlias

# A field of an index, and a word in it.
FieldTerm: TypeAlias = tuple[str, str]

# Tantivy's parameters of BM25.
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """How many rows there are, how many of them have each word, and how long the texts of fields are."""

    rows: int
    frequencies: Mapping[FieldTerm, int]
    lengths: Mapping[str, float] = dataclass_field(default_factory=dict)

    def factor(self, field: str, words: Sequence[str], split: "SplitCounts") -> float:
        """What the score of some words in a split is multiplied by.

        A phrase weighs as its words together. Words that were not counted keep the split's weight.
        """
        keys = [(field, word) for word in words]
        if any(key not in self.frequencies for key in keys):
            return 1.0
        own = sum(idf(split.num_rows, split.frequency(key)) for key in keys)
        whole = sum(idf(self.rows, self.frequencies[key]) for key in keys)
        average, length = self.lengths.get(field), split.average_length(field, words)
        norm = 1.0 if not average or not length else (1 + _K1) / (1 + _K1 * (1 - _B + _B * length / average))
        return whole / own * norm


class SplitCounts(Protocol):
    """What a split counts itself."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""

    def frequency(self, key: FieldTerm) -> int:
        """How many rows have a word in a field."""

    def average_length(self, field: str, words: Sequence[str]) -> float | None:
        """How many tokens a row has in a field on average; unknown if it has none of the words."""


def idf(rows: int, frequency: int) -> float:
    """The weight of a word that so many of the rows have."""
    return math.log1p((max(rows - frequency, 0) + 0.5) / (frequency + 0.5))


def summed(parts: Iterable[TermStatistics], rows: int) -> TermStatistics:
    """Statistics of some splits together, scaled up to so many rows."""
    counted = 0
    frequencies: dict[FieldTerm, int] = {}
    tokens: dict[str, float] = {}
    having: dict[str, int] = {}
    for part in parts:
        counted += part.rows
        for field, length in part.lengths.items():
            tokens[field] = tokens.get(field, 0.0) + length * part.rows
            having[field] = having.get(field, 0) + part.rows
        for key, count in part.frequencies.items():
            frequencies[key] = frequencies.get(key, 0) + count
    if counted < rows and counted:
        frequencies = {key: round(count * rows / counted) for key, count in frequencies.items()}
    lengths = {field: count / having[field] for field, count in tokens.items() if having[field]}
    return TermStatistics(max(rows, counted), frequencies, lengths)
