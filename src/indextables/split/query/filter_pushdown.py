"""A condition over one index: what it answers exactly, what it narrows, what has to be checked on rows.

Nothing is ever taken for true because the index cannot tell: a part that no field answers leaves every
row in doubt, and rows in doubt are looked at.
"""

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import QuerySyntaxError
from indextables.options import Options, reading
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    Computed,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    TextMatch,
    TextMatchKind,
)
from indextables.predicate.evaluate import evaluate
from indextables.predicate.query_tree import InSet, Term, Wild
from indextables.split.index.encode import float_values, integer_values
from indextables.split.mapping import Field, Kind
from indextables.split.query import patterns
from indextables.split.query.bound_query import FieldRef, Question, json_paths
from indextables.split.query.index_view import IndexView
from indextables.split.query.query_compiler import ask, json_leaf
from indextables.split.query.row_sets import (
    ALL,
    ANYTHING,
    FALSE,
    NOTHING,
    TRUE,
    UNKNOWN,
    Side,
    Verdict,
    all_of,
    any_of,
    either,
    every,
    negate,
    plain,
    without,
)
from indextables.split.query.text_queries import term_pattern, text_leaf, text_range, texts_of
from indextables.split.query.value_queries import (
    MOST_RANGES,
    Value,
    address_block,
    between,
    each_address,
    equal,
    hashed,
    most_terms,
    one_of,
)

# Literals of another type than the column's are converted one by one; of a longer list rows are looked at.
_MOST_CONVERTED = 1024
# Up to here every whole number has a double of its own.
_WHOLE_DOUBLES = 1 << 53
Understand = Callable[[Search], Question]
_VALUES = (Kind.I64, Kind.F64, Kind.BOOL)
# Texts in longer lists are looked for in the rows: each is a phrase, or a term of its own.
_MOST_PHRASES = 64
_MOST_NESTED = 256
# Tokenizers that keep every run of letters and digits together, so that a part of one is found in a term.
_WHOLE_WORDS = ("default", "whitespace", "cjk")


def as_field_value(value: pa.Scalar, column: pa.DataType, field: Field) -> Value | None:
    """What a field holds for rows equal to the literal; None if that cannot be told exactly."""
    kind = value.type
    if field.kind is Kind.BOOL:
        return bool(value.as_py()) if pa.types.is_boolean(kind) else None
    if field.kind is Kind.F64:
        return _as_double(value)
    if pa.types.is_integer(column):
        return int(value.as_py()) if pa.types.is_integer(kind) else None
    if pa.types.is_decimal(column):
        return _unscaled(value, column.scale)
    if pa.types.is_timestamp(column):
        same = pa.types.is_timestamp(kind) and kind.unit == column.unit and bool(kind.tz) == bool(column.tz)
        return int(value.value) if same else None
    return int(integer_values(pa.array([value], kind))[0].as_py()) if kind == column else None


def as_field_values(values: pa.Array, column: pa.DataType, field: Field) -> pa.Array | None:
    """What a field holds for rows equal to one of the literals, each once; None if that cannot be told."""
    if values.type == column and field.kind is Kind.I64:
        return integer_values(values).unique()
    if values.type == column and field.kind is Kind.F64:
        return pa.array(np.unique(float_values(values)))
    if len(values) > _MOST_CONVERTED:
        return None
    known = [as_field_value(value, column, field) for value in values]
    return None if any(value is None for value in known) else _distinct(known)


def _distinct(values: Sequence[Value | None]) -> pa.Array | None:
    """The values, each once; None if they are whole numbers that no field can hold."""
    try:
        return pa.array(list(dict.fromkeys(values)))
    except (pa.ArrowInvalid, OverflowError):
        return None


def as_json_term(value: pa.Scalar) -> str | None:
    """A literal as a search of JSON would write it; None if there is no such text."""
    found = value.as_py()
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int):
        return str(found)
    return found if isinstance(found, str) and found else None


def _as_double(value: pa.Scalar) -> float | None:
    found = value.as_py()
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, int) and abs(found) > _WHOLE_DOUBLES:
        return None
    return 0.0 if found == 0 else float(found)


def _unscaled(value: pa.Scalar, scale: int) -> int | None:
    found = value.as_py()
    if isinstance(found, bool) or not isinstance(found, (int, decimal.Decimal)):
        return None
    with decimal.localcontext(prec=100):
        scaled = decimal.Decimal(found).scaleb(scale)
        whole = scaled.to_integral_value()
    return int(whole) if whole == scaled else None


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
    """The rows for which a condition may be true; those in doubt are true if `check` is."""

    side: Side
    check: Predicate | None


def narrow(predicate: Predicate, view: IndexView, understand: Understand, options: Options) -> Narrowed:
    """Split a condition into what the index answers and what is left to check."""
    decider = _Decider(view, understand, options)
    parts = _conjuncts(predicate)
    verdicts = [decider.decide(part) for part in parts]
    side = all_of(verdicts).true
    left = tuple(part for part, verdict in zip(parts, verdicts, strict=True) if not verdict.true.exact)
    if side.exact:
        return Narrowed(Side(side.rows), None)
    return Narrowed(side, left[0] if len(left) == 1 else And(left))


def _conjuncts(predicate: Predicate) -> list[Predicate]:
    if isinstance(predicate, And):
        return [inner for part in predicate.parts for inner in _conjuncts(part)]
    return [predicate]


class _Decider:
    def __init__(self, view: IndexView, understand: Understand, options: Options) -> None:
        self.view = view
        self.understand = understand
        self.options = options

    def decide(self, predicate: Predicate) -> Verdict:
        match predicate:
            case And(parts):
                return all_of(self.decide(part) for part in parts)
            case Or(parts):
                return ANYTHING if self._many_ranges(parts) else any_of(self.decide(part) for part in parts)
            case Not(part):
                return negate(self.decide(part))
            case Always(value):
                return UNKNOWN if value is None else TRUE if value else FALSE
            case Search():
                return ask(self.understand(predicate), self.view)
            case Computed():
                return ANYTHING
            case _:
                return self.leaf(predicate)

    def _many_ranges(self, parts: Sequence[Predicate]) -> bool:
        """Whether there are so many ranges of numbers that all rows are looked at sooner."""
        if len(parts) <= MOST_RANGES:
            return False
        leaves = (part.parts[0] if isinstance(part, And) and part.parts else part for part in parts)
        ranges = (
            isinstance(leaf, Compare) and self.view.mapping.find(leaf.column.path[0], *_VALUES) is not None
            for leaf in leaves
        )
        return sum(ranges) > MOST_RANGES

    def leaf(self, leaf: Compare | In | IsNull | TextMatch | Like) -> Verdict:
        name, *inner = leaf.column.path
        column = self.view.column(name)
        constant = self.view.constants.get(name.lower())
        if constant is None and column is None:
            return ANYTHING
        if constant is not None:
            return self._constant(leaf, name, constant)
        if inner:
            return self._nested(leaf)
        match leaf:
            case IsNull():
                return self._is_null(name)
            case Compare():
                return self._compare(leaf, name)
            case In():
                return self._in(leaf, name)
            case TextMatch() | Like():
                return self._pattern(leaf, name)

    def _constant(self, leaf: Predicate, name: str, value: pa.Scalar) -> Verdict:
        row = pa.table([pa.array([value], value.type)], names=[name])
        answer = evaluate(leaf, row)[0].as_py()
        return UNKNOWN if answer is None else TRUE if answer else FALSE

    def _is_null(self, name: str) -> Verdict:
        present = self.view.present(name)
        return Verdict(Side(without(ALL, present.sure), present.doubt), present)

    def _known(self, name: str, rows: tantivy.Query, doubt: tantivy.Query = NOTHING) -> Verdict:
        """True for some rows, false for the others that have a value."""
        present = self.view.present(name)
        fails = every((present.rows, without(ALL, without(rows, doubt))))
        return Verdict(Side(rows, doubt), Side(fails, either((doubt, present.doubt))))

    def _compare(self, leaf: Compare, name: str) -> Verdict:
        if not leaf.value.is_valid:
            return self._is_null(name) if leaf.op is Op.NULL_SAFE else UNKNOWN
        if leaf.op is Op.NULL_SAFE:
            same = self._equal(name, pa.array([leaf.value], leaf.value.type)).true
            return plain(same.rows, same.doubt)
        if leaf.op is Op.EQ:
            return self._equal(name, pa.array([leaf.value], leaf.value.type))
        field = self.view.find(name, *_VALUES, Kind.STRING)
        if field is None:
            return ANYTHING
        return self._ordered(field, leaf.op, leaf.value)

    def _in(self, leaf: In, name: str) -> Verdict:
        if leaf.array is None:
            return ANYTHING
        values = leaf.array.drop_null()
        found = self._equal(name, values) if len(values) else self._known(name, NOTHING)
        # A null in the list leaves every other row unknown.
        return found if len(values) == len(leaf.values) else Verdict(found.true, Side(NOTHING))

    def _equal(self, name: str, values: pa.Array) -> Verdict:
        if (field := self.view.find(name, *_VALUES)) is not None:
            return self._equal_values(field, values)
        field = self.view.find(name, Kind.STRING, Kind.HASH, Kind.IP, Kind.TEXT)
        most = _MOST_PHRASES if field is not None and field.kind is Kind.TEXT else most_terms(self.view)
        if field is None or len(values) > most or not pa.types.is_string(values.type):
            return ANYTHING
        texts = values.unique().to_pylist()
        match field.kind:
            case Kind.STRING:
                found = texts_of(field, self.view, texts)
                return self._known(name, found.rows, found.doubt)
            case Kind.HASH:
                rows = hashed(self.view, field, texts)
            case Kind.IP:
                rows = self._same_address(field, texts)
            case _:
                rows = either(self._same_words(field, text) for text in texts)
        return self._known(name, rows, rows)

    def _equal_values(self, field: Field, values: pa.Array) -> Verdict:
        column = self.view.column(field.column)
        known = None if column is None else as_field_values(values, column.type, field)
        if known is None:
            return ANYTHING
        if field.kind is not Kind.BOOL and len(known) == 1:
            only = known[0].as_py()
            low = between(self.view, field, None, only, upper_inclusive=False)
            high = between(self.view, field, only, None, lower_inclusive=False)
            return Verdict(Side(equal(self.view, field, only)), Side(either((low, high))))
        found = one_of(self.view, field, known)
        return self._known(field.column, found.rows, found.doubt)

    def _same_address(self, field: Field, texts: Sequence[str]) -> tantivy.Query:
        """Rows with the same address, however it is written; or with no address, if a text is none."""
        known: list[int] = []
        for text in texts:
            try:
                low, high = address_block(text)
            except QuerySyntaxError:
                continue
            known += [low] if low == high else []
        others = self.view.partial(field) if len(known) < len(texts) else NOTHING
        return either((each_address(self.view, field, known), others))

    def _same_words(self, field: Field, text: str) -> tantivy.Query:
        """Rows with the words of a text: all that are equal to it are among them."""
        found = text_leaf(Term(text), field, self.view).true
        return either((found.rows, self.view.partial(field))) if found.rows is not NOTHING else ALL

    def _ordered(self, field: Field, op: Op, value: pa.Scalar) -> Verdict:
        upward = op in (Op.GT, Op.GE)
        inclusive = op in (Op.GE, Op.LE)
        if field.kind is Kind.STRING:
            return self._ordered_text(field, value, upward=upward, inclusive=inclusive)
        column = self.view.column(field.column)
        bound = None if column is None else as_field_value(value, column.type, field)
        if bound is None:
            return ANYTHING
        above = between(self.view, field, bound, None, lower_inclusive=inclusive == upward)
        below = between(self.view, field, None, bound, upper_inclusive=inclusive != upward)
        return Verdict(Side(above), Side(below)) if upward else Verdict(Side(below), Side(above))

    def _ordered_text(self, field: Field, value: pa.Scalar, *, upward: bool, inclusive: bool) -> Verdict:
        bound = value.as_py()
        if not isinstance(bound, str):
            return ANYTHING
        low, high = (bound, None) if upward else (None, bound)
        rows, sure = text_range(
            self.view, field, low, high, lower_inclusive=inclusive, upper_inclusive=inclusive
        )
        partial = self.view.partial(field)
        rows = either((rows, partial))
        return self._known(field.column, rows, partial if sure else rows)

    def _pattern(self, leaf: TextMatch | Like, name: str) -> Verdict:
        parts = _parts(leaf)
        if parts is None or not self._wanted(leaf):
            return ANYTHING
        field = self.view.find(name, Kind.STRING)
        if field is None:
            return self._pattern_in_words(parts, name)
        found = term_pattern(self.view, field, patterns.wildcard(parts))
        if found is None:
            return ANYTHING
        partial = self.view.partial(field)
        return self._known(name, either((found, partial)), partial)

    def _pattern_in_words(self, parts: Sequence[str | Wild], name: str) -> Verdict:
        """Rows that have a term with the longest plain part of the pattern in it; to be checked."""
        field = self.view.find(name, Kind.TEXT)
        plain_parts = [p for p in _joined(parts) if not isinstance(p, Wild) and p.isascii() and p.isalnum()]
        if field is None or field.tokenizer not in _WHOLE_WORDS or not plain_parts:
            return ANYTHING
        needle = max(plain_parts, key=len).lower()
        found = term_pattern(self.view, field, patterns.ANY + patterns.literal(needle) + patterns.ANY)
        rows = either((found or ALL, self.view.partial(field)))
        return self._known(name, rows, rows)

    def _wanted(self, leaf: TextMatch | Like) -> bool:
        if not self.options.get(reading.PATTERNS):
            return False
        if isinstance(leaf, Like):
            return not leaf.ignore_case
        allowed = {
            TextMatchKind.STARTS: reading.STARTS_WITH,
            TextMatchKind.ENDS: reading.ENDS_WITH,
            TextMatchKind.CONTAINS: reading.CONTAINS,
        }
        return self.options.get(allowed[leaf.kind])

    def _nested(self, leaf: Predicate) -> Verdict:
        """A field within a struct: equality is narrowed by the index, the rest is looked at."""
        match leaf:
            case Compare(op=Op.EQ | Op.NULL_SAFE, column=column, value=value) if value.is_valid:
                values: tuple[pa.Scalar, ...] = (value,)
            case In(column=column, values=given) if len(given) <= _MOST_NESTED:
                values = tuple(given)
                if not all(value.is_valid for value in values):
                    return ANYTHING
            case _:
                return ANYTHING
        field = self.view.find(column.path[0], Kind.JSON)
        terms = [as_json_term(value) for value in values]
        if field is None or field.tokenizer != "raw" or not all(terms):
            return ANYTHING
        paths = json_paths(field, FieldRef(column.path[0], _path_within(self.view, column)))
        wanted = InSet(tuple(term for term in terms if term is not None))
        rows = json_leaf(wanted, field, paths, self.view).true.rows
        return Verdict(Side(rows, rows), Side(ALL, ALL))


def _path_within(view: IndexView, column: Column) -> tuple[str, ...]:
    """The path within a struct in the spelling of the split."""
    outer = view.column(column.path[0])
    path: list[str] = []
    arrow = outer.type if outer is not None else pa.null()
    for name in column.path[1:]:
        fields = list(arrow) if pa.types.is_struct(arrow) else []
        found = next((f for f in fields if f.name.lower() == name.lower()), None)
        path.append(found.name if found is not None else name)
        arrow = found.type if found is not None else pa.null()
    return tuple(path)


def _parts(leaf: TextMatch | Like) -> tuple[str | Wild, ...] | None:
    match leaf:
        case TextMatch(TextMatchKind.STARTS, text=text):
            return (text, Wild.MANY)
        case TextMatch(TextMatchKind.ENDS, text=text):
            return (Wild.MANY, text)
        case TextMatch(text=text):
            return (Wild.MANY, text, Wild.MANY)
        case Like(pattern=pattern, escape=escape):
            return patterns.like_parts(pattern, escape)


def _joined(parts: Sequence[str | Wild]) -> list[str | Wild]:
    """Neighbouring literals as one."""
    found: list[str | Wild] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Wild) or last is None or isinstance(last, Wild):
            found.append(part)
        else:
            found[-1] = last + part
    return found
