"""A search query as values: what the query language says, before any field or tokenizer is known.

Leaves carry the field they were qualified with, as a path (`user.name:ada` gives `("user", "name")`), or
None where the query names no field and the operator's own column (or all fields) is meant. Values are
text as the user wrote it, escapes resolved; what a value means (a number, a date, an address block) is
for the field's type to say. Every node keeps the position where it starts in the query; positions take
no part in equality.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

FieldPath: TypeAlias = tuple[str, ...]


def _position() -> int:
    return field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Term:
    """A bare word. A tokenizer may split it; its tokens then stand next to each other."""

    text: str
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A quoted text: its words next to each other, or the exact value of an untokenized field.

    `slop` allows so many moves between the words; with `prefix` the last word is only the beginning of
    one. At most one of the two is set. The text may be empty.
    """

    text: str
    slop: int = 0
    prefix: bool = False
    field: FieldPath | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Prefix:
    """A word given by its beginning: `time*`. The text is never empty."""

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
    a lone `*` (see `Exists` and `AllDocs`) nor a text followed by one `*` (see `Prefix`) comes as a Wildcard.
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
    """Values between two bounds; None is an open end. At least one end is closed off."""

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
    """The part does not match. Alone it means the complement: every row that the part does not match."""

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


@dataclass(frozen=True, slots=True)
class FieldUse:
    """The fields a query names, each once in order of appearance, and whether some leaf names none."""

    fields: tuple[FieldPath, ...]
    unqualified: bool


def leaves_of(query: QueryNode) -> Iterator[QueryLeaf]:
    """Every leaf, from left to right."""
    match query:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from leaves_of(part)
        case Negation(part) | Boost(part):
            yield from leaves_of(part)
        case _:
            yield query


def fields_of(query: QueryNode) -> FieldUse:
    """Which fields the query names, and whether it needs a default field (`*` alone needs none)."""
    fields: dict[FieldPath, None] = {}
    unqualified = False
    for leaf in leaves_of(query):
        if isinstance(leaf, AllDocs):
            continue
        if leaf.field is None:
            unqualified = True
        else:
            fields[leaf.field] = None
    return FieldUse(tuple(fields), unqualified)
