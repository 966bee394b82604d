"""The tree of a search query, independent of fields and tokenizers.

Leaves have the field they are qualified with, as a path (`user.name:ada` gives `("user", "name")`), or None
for the default fields of the search operator. Values are texts, escapes resolved; the type of the field
determines whether a value is a number, a date or an address block. Every node has its position in the query,
which is ignored by equality.
"""

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from indextables.records import dataclass

FieldPath: TypeAlias = tuple[str, ...]


def _position() -> int:
    return field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Term:
    """A bare word. If a tokenizer splits it, it is a phrase of its tokens."""

    text: str
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A quoted text: its words next to each other, or the exact value of an untokenized field.

    `slop` allows so many moves between the words; with `prefix` the last word is a prefix. At most one of the
    two is set. The text may be empty.
    """

    text: str
    slop: int = 0
    prefix: bool = False
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of a word: `time*`. The text is never empty."""

    text: str
    field: FieldPath | None = None
    position: int = _position()


class Wild(Enum):
    """A placeholder in a pattern: any number of characters, or exactly one."""

    MANY = "*"
    ONE = "?"


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A word with placeholders: literal texts and placeholders in order.

    `t?me*` is `("t", ONE, "me", MANY)`. Neighbouring literals are joined and repeated `*` are one. Neither
    a lone `*` (see `Exists` and `AllDocs`) nor a text followed by one `*` (see `Prefix`) is a Wildcard.
    """

    parts: tuple[str | Wild, ...]
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression that a whole term must match: `/tim(e|ing)/`."""

    pattern: str
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A word within one or two edits: `tiemout~2`."""

    text: str
    distance: int
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Range:
    """Values between two bounds; None is an open end. At least one end is bounded."""

    lower: str | None
    upper: str | None
    lower_inclusive: bool = True
    upper_inclusive: bool = True
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class InSet:
    """Any of the values: `status: IN [404 500]`. Never empty; order and repetition as written."""

    values: tuple[str, ...]
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value: `field:*`."""

    field: FieldPath
    position: int = _position()


@dataclass(frozen=True, slots=True)
class AllDocs:
    """Every row: `*` without a field."""

    position: int = _position()


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part matches; two parts or more, none of them an AllOf itself."""

    parts: tuple["QueryNode", ...]
    position: int = _position()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part matches; two parts or more, none of them an AnyOf itself."""

    parts: tuple["QueryNode", ...]
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Negation:
    """Every row that the part does not match."""

    part: "QueryNode"
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Boost:
    """The part, with its score multiplied; rows are the same. The factor is positive."""

    part: "QueryNode"
    factor: float
    position: int = _position()


QueryLeaf: TypeAlias = Term | Phrase | Prefix | Wildcard | Regex | Fuzzy | Range | InSet | Exists | AllDocs
QueryNode: TypeAlias = QueryLeaf | AllOf | AnyOf | Negation | Boost
