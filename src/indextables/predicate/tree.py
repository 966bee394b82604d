"""The trees of a condition on rows, and of a search query.

Literals of a condition are Arrow scalars, so that a value keeps its exact type and range (a decimal of 38
digits, a timestamp of the year 290000). A condition is true, false or unknown for a row, as in SQL; a filter
selects the rows for which it is true.

A search query is independent of fields and tokenizers. Its leaves have the field they are qualified with, as
a path (`user.name:ada` gives `("user", "name")`), or None for the default fields of the search operator.
Values are texts, escapes resolved; the type of the field determines whether a value is a number, a date or an
address block. Every node has its position in the query, which is ignored by equality.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from enum import Enum, StrEnum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, kind_of, sql_name, value_type


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


class Values(Sequence[pa.Scalar]):
    """Literals of one type, in one Arrow array: a list may have hundreds of thousands.

    `lookup` caches a prepared set of the values, for lookups in many batches of rows.
    """

    __slots__ = ("array", "lookup")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self.lookup: object = None

    @classmethod
    def of(cls, scalars: Sequence[pa.Scalar]) -> "Values | tuple[pa.Scalar, ...]":
        """The scalars in one array; unchanged if they have several types."""
        if isinstance(scalars, Values):
            return scalars
        type_ = next((scalar.type for scalar in scalars if scalar.is_valid), None)
        if type_ is None:
            type_ = scalars[0].type if scalars else pa.null()
        try:
            return cls(pa.array(list(scalars), type_))
        except (pa.ArrowException, TypeError, NotImplementedError):
            return tuple(scalars)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a scalar, or some of them
        return Values(self.array[index]) if isinstance(index, slice) else self.array[index]

    def __iter__(self) -> Iterator[pa.Scalar]:
        return iter(self.array)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Values):
            return bool(self.array.type == other.array.type and _bits(self.array).equals(_bits(other.array)))
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash((str(self.array.type), len(self.array)))

    def __repr__(self) -> str:
        return f"Values({self.array.type}, {len(self.array)})"

    def __reduce__(self) -> tuple[type["Values"], tuple[pa.Array]]:
        return Values, (self.array,)


def _bits(array: pa.Array) -> pa.Array:
    """The values, with floats as integers of the same bits, so that any NaN equals any other."""
    if kind_of(array.type) is not TypeKind.FLOAT:
        return array
    whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    nan = pa.scalar(float("nan")).cast(array.type)
    return pc.if_else(pc.is_nan(array), nan, array).view(whole[array.type.bit_width])


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`; a null among the values makes every non-match unknown."""

    column: Column
    values: Sequence[pa.Scalar]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", Values.of(self.values))

    @property
    def array(self) -> pa.Array | None:
        """The values in one array; None if they have several types."""
        return self.values.array if isinstance(self.values, Values) else None


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`; its negation is IS NOT NULL."""

    column: Column


class TextMatchKind(StrEnum):
    """The position of the text in the value."""

    STARTS = "starts_with"
    ENDS = "ends_with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class TextMatch:
    """The value starts with, ends with or contains a text, byte by byte."""

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

    It is true or false for a row, never unknown: it is false for a row without a value.
    """

    kind: SearchKind
    column: Column | None
    query: str


@dataclass(frozen=True, slots=True)
class Element:
    """`value[key]`: an element of an array by its position from 0, or the value of a map under a key.

    Null where there is none. `matches` is a condition on the map's keys; an array has a `position`.
    """

    position: int | None = None
    matches: "Predicate | None" = None
    key: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class StructField:
    """`value.name`: a field of a struct."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """`size(value)`: how many elements an array or a map has; null for null."""


@dataclass(frozen=True, slots=True)
class ArrayContains:
    """`array_contains(value, item)`: unknown if it is not found and the array has a null element.

    `matches` is a condition on the elements that is true for those that equal the item.
    """

    matches: "Predicate"
    item: pa.Scalar


Step: TypeAlias = Element | StructField | Size | ArrayContains

# The column of a condition on a computed value.
VALUE = Column(("the value",))


@dataclass(frozen=True, slots=True)
class NestedCondition:
    """A condition on a value that is computed from an array or a map; `part` names it `VALUE`."""

    column: Column
    steps: tuple[Step, ...]
    part: "Predicate"


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


Predicate: TypeAlias = (
    Compare | In | IsNull | TextMatch | Like | NestedCondition | Search | And | Or | Not | Always
)


def constant_unless_null(column: Column, value: bool) -> Predicate:  # noqa: FBT001
    """True (or false) for every value of the column, unknown where it is null.

    The result of a comparison with a value outside of the column's type: `tiny < 300`.
    """
    if value:
        return Or((Not(IsNull(column)), Always(None)))
    return And((IsNull(column), Always(None)))


_LISTED = 20


def resolve(schema: pa.Schema, path: Sequence[str]) -> tuple[Column, pa.DataType]:
    """The column (in the schema's spelling) and the type of its values.

    Raises:
        PredicateError: There is no such column or field, or more than one.
    """
    fields: list[pa.Field] = list(schema)
    names: list[str] = []
    type_: pa.DataType = pa.null()
    for depth, name in enumerate(path):
        matching = [field for field in fields if field.name.lower() == name.lower()]
        if not matching:
            raise PredicateError(_unknown(path[: depth + 1], names, [field.name for field in fields]))
        if len(matching) > 1:
            raise PredicateError(
                f"{name} is ambiguous: {', '.join(field.name for field in matching)} differ only in case"
            )
        names.append(matching[0].name)
        type_ = value_type(matching[0].type)
        if depth + 1 < len(path):
            fields = _inner(names, type_)
    return Column(tuple(names)), type_


def suggestion(wrong: str, names: Iterable[str]) -> str:
    """`; did you mean x?`, or an empty text if no name is similar."""
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower()[:100], spelled, n=1)
    return f"; did you mean {spelled[near[0]]}?" if near else ""


def _inner(parents: list[str], type_: pa.DataType) -> list[pa.Field]:
    if kind_of(type_) is TypeKind.STRUCT:
        return [type_.field(index) for index in range(type_.num_fields)]
    name = ".".join(parents)
    if kind_of(type_) in {TypeKind.LIST, TypeKind.MAP}:
        raise PredicateError(
            f"{name} is an array or a map, whose elements have no names in a condition; name them as "
            f"{name}[0] or {name}['key'], or search them: {parents[0]} INDEXQUERY '{name}.key:value'"
        )
    raise PredicateError(f"{name} is {sql_name(type_)} and has no fields")


def _unknown(path: Sequence[str], parents: list[str], names: list[str]) -> str:
    shown_names = ", ".join(names[:_LISTED]) + (
        f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )
    what = f"field {path[-1]} in {'.'.join(parents)}" if parents else f"column {path[-1]}"
    hint = suggestion(path[-1], names) or ";"
    return f"there is no {what}{hint} the {'fields' if parents else 'columns'} are {shown_names or 'none'}"


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

    `slop` is the number of moves that are allowed between the words; with `prefix` the last word is a prefix.
    At most one of the two is set. The text may be empty.
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
