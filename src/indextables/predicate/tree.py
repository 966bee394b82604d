"""Conditions as values: what a file or a row is asked.

Literals are Arrow scalars, so that a value keeps its exact type and range (a decimal of 38 digits, a
timestamp of the year 290000). A condition is true, false or unknown for a row, as in SQL; only rows for
which it is true are wanted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field within a struct column (`("user", "id")`)."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path as SQL writes it."""
        return ".".join(self.path)


class Op(StrEnum):
    """A comparison of a column with a value; `NULL_SAFE` is SQL's `<=>`."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    NULL_SAFE = "<=>"


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; the value may be null, and then the result is unknown (but for `<=>`)."""

    op: Op
    column: Column
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`; a null among the values makes every non-match unknown."""

    column: Column
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`; its negation is IS NOT NULL."""

    column: Column


class TextMatchKind(StrEnum):
    """Where a text must stand in the value."""

    STARTS = "starts_with"
    ENDS = "ends_with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class TextMatch:
    """The value starts with, ends with or contains a text, letter by letter."""

    kind: TextMatchKind
    column: Column
    text: str


@dataclass(frozen=True, slots=True)
class Like:
    """SQL's LIKE (or ILIKE), with its escape character."""

    column: Column
    pattern: str
    escape: str = "\\"
    ignore_case: bool = False


class SearchKind(StrEnum):
    """The three search operators."""

    INDEXQUERY = "indexquery"
    TEXTSEARCH = "textsearch"
    FIELDMATCH = "fieldmatch"


@dataclass(frozen=True, slots=True)
class Search:
    """A search operator; no column means all text-like fields (`*`, `_indexall`).

    It is true or false for a row, never unknown: a row without a value is not found.
    """

    kind: SearchKind
    column: Column | None
    query: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts are true."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part is true."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false."""

    part: "Predicate"


@dataclass(frozen=True, slots=True)
class Always:
    """True, false or unknown for every row."""

    value: bool | None


Predicate: TypeAlias = Compare | In | IsNull | TextMatch | Like | Search | And | Or | Not | Always


def columns_of(predicate: Predicate) -> Iterator[Column]:
    """Every column the condition reads, in order, repeated where it is repeated."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from columns_of(part)
        case Not(part):
            yield from columns_of(part)
        case Search(column=column):
            if column is not None:
                yield column
        case Compare() | In() | IsNull() | TextMatch() | Like():
            yield predicate.column
        case Always():
            pass
