"""Filter pushdown to one index: candidate rows, and the residual condition to evaluate on rows.

For a part of a filter that no field can answer, every row is a candidate that needs a recheck.
"""

import decimal
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import PredicateError, QuerySyntaxError
from indextables.options import Options, reading
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    TextMatch,
    TextMatchKind,
    patterns,
)
from indextables.predicate.addresses import address_block
from indextables.predicate.evaluate import evaluate
from indextables.predicate.traversal import conjuncts
from indextables.predicate.tree import InSet, Term, Wild
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, kind_of
from indextables.split.index.encode import float_values, integer_values
from indextables.split.mapping import Field, Kind, Mapping
from indextables.split.query.bound_query import BoundQuery, FieldRef, json_paths
from indextables.split.query.index_view import IndexView, ViewDependencies
from indextables.split.query.query_compiler import compile_json, compile_node
from indextables.split.query.row_sets import (
    ALL_ROWS,
    FALSE,
    NO_ROWS,
    TRUE,
    UNDECIDED,
    UNKNOWN,
    IndexAnswer,
    RowSet,
    and_,
    intersect,
    not_,
    or_,
    subtract,
    two_valued,
    union,
)
from indextables.split.query.text_queries import (
    compile_text,
    pattern_query,
    text_range_query,
    values_query,
)
from indextables.split.query.value_queries import (
    MAX_RANGES,
    Value,
    addresses_query,
    equals_query,
    hash_query,
    in_query,
    range_query,
)

# Literals of another type than the column's are converted one by one; longer lists are evaluated on rows.
_MAX_CONVERTED = 1024
# Up to this number every integer has an exact double.
_WHOLE_DOUBLES = 1 << 53
# And a float of 32 bits.
_WHOLE_FLOATS = 1 << 24
Bind = Callable[[Search], BoundQuery]
_VALUES = (Kind.I64, Kind.F64, Kind.BOOL)
# Longer lists of texts are evaluated on rows: each text is a phrase, or a separate term.
_MAX_PHRASES = 64
_MAX_NESTED_VALUES = 256
# Plans of one condition: splits of a table have few different mappings.
_MAX_SHARED = 16


def as_field_value(value: pa.Scalar, column: pa.DataType, field: Field) -> Value | None:
    """The field value of rows that equal the literal; None if there is no exact one."""
    kind = value.type
    if field.kind is Kind.BOOL:
        return bool(value.as_py()) if kind_of(kind) is TypeKind.BOOLEAN else None
    if field.kind is Kind.F64:
        return _as_double(value)
    column_kind = kind_of(column)
    if column_kind is TypeKind.INTEGER:
        return int(value.as_py()) if kind_of(kind) is TypeKind.INTEGER else None
    if column_kind is TypeKind.DECIMAL:
        return _unscaled_decimal(value, column.scale)
    if column_kind in {TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ}:
        same = kind_of(kind) is column_kind and kind.unit == column.unit
        return int(value.value) if same else None
    return int(integer_values(pa.array([value], kind))[0].as_py()) if kind == column else None


def as_field_values(values: pa.Array, column: pa.DataType, field: Field) -> pa.Array | None:
    """The distinct field values of rows that equal one of the literals; None if there are no exact ones."""
    if values.type == column and field.kind is Kind.I64:
        return integer_values(values).unique()
    if values.type == column and field.kind is Kind.F64:
        return pa.array(np.unique(float_values(values)))
    if len(values) > _MAX_CONVERTED:
        return None
    field_values = [as_field_value(value, column, field) for value in values]
    return None if any(value is None for value in field_values) else _distinct(field_values)


def _distinct(values: Sequence[Value | None]) -> pa.Array | None:
    """The distinct values; None if they are integers beyond 64 bits."""
    try:
        return pa.array(list(dict.fromkeys(values)))
    except (pa.ArrowInvalid, OverflowError):
        return None


def as_json_term(value: pa.Scalar, inner: pa.DataType) -> str | None:
    """A literal as a term of values of a type in a JSON field; None if there is no such term."""
    # Python has no objects for all dates and times.
    if kind_of(value.type) not in (TypeKind.BOOLEAN, TypeKind.INTEGER, TypeKind.STRING):
        return None
    python_value = value.as_py()
    if isinstance(python_value, bool):
        return "true" if python_value else "false"
    if isinstance(python_value, int):
        # Doubles equal the whole numbers beyond this that are rounded to them.
        is_same = kind_of(inner) is TypeKind.INTEGER or abs(python_value) <= _WHOLE_FLOATS
        return str(python_value) if is_same else None
    return python_value if isinstance(python_value, str) and python_value else None


def _as_double(value: pa.Scalar) -> float | None:
    number = value.as_py()
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    if isinstance(number, int) and abs(number) > _WHOLE_DOUBLES:
        return None
    return 0.0 if number == 0 else float(number)


def _unscaled_decimal(value: pa.Scalar, scale: int) -> int | None:
    number = value.as_py()
    if isinstance(number, bool) or not isinstance(number, (int, decimal.Decimal)):
        return None
    with decimal.localcontext(prec=100):
        scaled = decimal.Decimal(number).scaleb(scale)
        whole = scaled.to_integral_value()
    return int(whole) if whole == scaled else None


class SharedPlans:
    """Filter plans of one query: splits with the same schemas mostly have the same plan.

    Queries of Tantivy refer to fields by number, so that indexes with the same schema share them.
    """

    def __init__(self) -> None:
        # By the id of a condition, which the list references so that the id is not reused.
        self._plans: dict[int, list[_SharedPlan]] = {}

    def find(self, predicate: Predicate, view: IndexView) -> "FilterPlan | None":
        """The plan of this condition for another split, if it is valid for this one; fetches its fields."""
        for shared in self._plans.get(id(predicate), ()):
            if shared.fits(view):
                return shared.plan
        return None

    def make(self, predicate: Predicate, view: IndexView, bind: Bind, options: Options) -> "FilterPlan":
        """As `plan_filter`; the plan is cached for other splits."""
        plans = self._plans.setdefault(id(predicate), [])
        dependencies = ViewDependencies()
        plan = plan_filter(predicate, replace(view, dependencies=dependencies), bind, options)
        if dependencies.is_shareable and len(plans) < _MAX_SHARED:
            plans.append(
                _SharedPlan(predicate, view.mapping, view.columns, view.index_schema, dependencies, plan)
            )
        return plan


@dataclass(frozen=True, slots=True, eq=False)
class _SharedPlan:
    """A plan with the schemas and properties of the index that it depends on."""

    predicate: Predicate
    mapping: Mapping
    columns: pa.Schema
    index_schema: str
    dependencies: ViewDependencies
    plan: "FilterPlan"

    def fits(self, view: IndexView) -> bool:
        return (
            self.mapping is view.mapping
            and self.columns is view.columns
            and self.index_schema == view.index_schema
            and self.dependencies.hold_for(view)
        )


@dataclass(frozen=True, slots=True, eq=False)
class FilterPlan:
    """The rows for which a condition may be true; those that need a recheck are true if `residual` is."""

    candidates: RowSet
    residual: Predicate | None


def plan_filter(predicate: Predicate, view: IndexView, bind: Bind, options: Options) -> FilterPlan:
    """Split a condition into a query of the index, whose parts are fetched, and a residual condition."""
    compiler = _FilterCompiler(view, bind, options)
    parts = conjuncts(predicate)
    answers = [compiler.compile(part) for part in parts]
    view.load(())
    candidates = and_(answers).true
    rest = tuple(part for part, answer in zip(parts, answers, strict=True) if not answer.true.exact)
    if candidates.exact:
        return FilterPlan(RowSet(candidates.rows), None)
    return FilterPlan(candidates, rest[0] if len(rest) == 1 else And(rest))


class _FilterCompiler:
    def __init__(self, view: IndexView, bind: Bind, options: Options) -> None:
        self.view = view
        self.bind = bind
        self.options = options

    def compile(self, predicate: Predicate) -> IndexAnswer:
        match predicate:
            case And(parts):
                return and_(self.compile(part) for part in parts)
            case Or(parts):
                return UNDECIDED if self._many_ranges(parts) else or_(self.compile(part) for part in parts)
            case Not(part):
                return not_(self.compile(part))
            case Always(value):
                return UNKNOWN if value is None else TRUE if value else FALSE
            case Search():
                bound = self.bind(predicate)
                return compile_node(bound.query, bound, self.view)
            case NestedCondition():
                return UNDECIDED
            case _:
                return self.leaf(predicate)

    def _many_ranges(self, parts: Sequence[Predicate]) -> bool:
        """Whether there are so many ranges of numbers that evaluating all rows is faster."""
        if len(parts) <= MAX_RANGES:
            return False
        leaves = (part.parts[0] if isinstance(part, And) and part.parts else part for part in parts)
        ranges = (
            isinstance(leaf, Compare) and self.view.mapping.find(leaf.column.path[0], *_VALUES) is not None
            for leaf in leaves
        )
        return sum(ranges) > MAX_RANGES

    def leaf(self, leaf: Compare | In | IsNull | TextMatch | Like) -> IndexAnswer:
        name, *inner = leaf.column.path
        column = self.view.column(name)
        constant = self.view.constant(name)
        if constant is None and column is None:
            return UNDECIDED
        if constant is not None:
            return self._constant(leaf, name, constant)
        if inner:
            return self._nested_answer(leaf)
        match leaf:
            case IsNull():
                return self._is_null(name)
            case Compare():
                return self._compare(leaf, name)
            case In():
                return self._in(leaf, name)
            case TextMatch() | Like():
                return self._pattern(leaf, name)

    def _constant(self, leaf: Predicate, name: str, value: pa.Scalar) -> IndexAnswer:
        row = pa.table([pa.array([value], value.type)], names=[name])
        answer = evaluate(leaf, row)[0].as_py()
        return UNKNOWN if answer is None else TRUE if answer else FALSE

    def _is_null(self, name: str) -> IndexAnswer:
        present = self.view.present(name)
        return IndexAnswer(RowSet(subtract(ALL_ROWS, present.certain), present.recheck), present)

    def _true_for(self, name: str, rows: tantivy.Query, recheck: tantivy.Query = NO_ROWS) -> IndexAnswer:
        """The answer of a condition that is true for some rows, false for others, unknown for nulls."""
        present = self.view.present(name)
        fails = intersect((present.rows, subtract(ALL_ROWS, subtract(rows, recheck))))
        return IndexAnswer(RowSet(rows, recheck), RowSet(fails, union((recheck, present.recheck))))

    def _compare(self, leaf: Compare, name: str) -> IndexAnswer:
        if not leaf.value.is_valid:
            return self._is_null(name) if leaf.op is Op.NULL_SAFE else UNKNOWN
        if leaf.op is Op.NULL_SAFE:
            same = self._equal(name, pa.array([leaf.value], leaf.value.type)).true
            return two_valued(same.rows, same.recheck)
        if leaf.op is Op.EQ:
            return self._equal(name, pa.array([leaf.value], leaf.value.type))
        field = self.view.mapping.find(name, *_VALUES, Kind.STRING)
        if field is None:
            return UNDECIDED
        return self._range_answer(field, leaf.op, leaf.value)

    def _in(self, leaf: In, name: str) -> IndexAnswer:
        if leaf.array is None:
            return UNDECIDED
        values = leaf.array.drop_null()
        plan = self._equal(name, values) if len(values) else self._true_for(name, NO_ROWS)
        # With a null in the list, the condition is unknown for every other row.
        return plan if len(values) == len(leaf.values) else IndexAnswer(plan.true, RowSet(NO_ROWS))

    def _equal(self, name: str, values: pa.Array) -> IndexAnswer:
        if (field := self.view.find(name, *_VALUES)) is not None:
            return self._equal_values(field, values)
        field = self.view.mapping.find(name, Kind.STRING, Kind.HASH, Kind.IP, Kind.TEXT)
        phrases = field is not None and field.kind is Kind.TEXT
        slow = len(values) > _MAX_PHRASES if phrases else self.view.is_slow_lookup(len(values))
        if field is None or slow or kind_of(values.type) is not TypeKind.STRING:
            return UNDECIDED
        texts = values.unique().to_pylist()
        match field.kind:
            case Kind.STRING:
                query = values_query(field, self.view, texts)
                return self._true_for(name, query.rows, query.recheck)
            case Kind.HASH:
                self.view.need(field.name)
                rows = hash_query(self.view, field, texts)
            case Kind.IP:
                self.view.need(field.name)
                rows = self._same_address(field, texts)
            case _:
                rows = union(self._same_words(field, text) for text in texts)
        return self._true_for(name, rows, rows)

    def _equal_values(self, field: Field, values: pa.Array) -> IndexAnswer:
        column = self.view.column(field.column)
        field_values = None if column is None else as_field_values(values, column.type, field)
        if field_values is None:
            return UNDECIDED
        if field.kind is not Kind.BOOL and len(field_values) == 1:
            only = field_values[0].as_py()
            low = range_query(self.view, field, None, only, upper_inclusive=False)
            high = range_query(self.view, field, only, None, lower_inclusive=False)
            return IndexAnswer(RowSet(equals_query(self.view, field, only)), RowSet(union((low, high))))
        query = in_query(self.view, field, field_values)
        return self._true_for(field.column, query.rows, query.recheck)

    def _same_address(self, field: Field, texts: Sequence[str]) -> tantivy.Query:
        """Rows with the same address in any notation; also rows without one if a text is not an address."""
        field_values: list[int] = []
        for text in texts:
            try:
                low, high = address_block(text)
            except QuerySyntaxError:
                continue
            field_values += [low] if low == high else []
        others = self.view.partial(field) if len(field_values) < len(texts) else NO_ROWS
        return union((addresses_query(self.view, field, field_values), others))

    def _same_words(self, field: Field, text: str) -> tantivy.Query:
        """Rows with the words of a text, a superset of the rows that equal it."""
        query = compile_text(Term(text), field, self.view).true
        return union((query.rows, self.view.partial(field))) if query.rows is not NO_ROWS else ALL_ROWS

    def _range_answer(self, field: Field, op: Op, value: pa.Scalar) -> IndexAnswer:
        upward = op in (Op.GT, Op.GE)
        inclusive = op in (Op.GE, Op.LE)
        if field.kind is Kind.STRING:
            return self._ordered_text(field, value, upward=upward, inclusive=inclusive)
        column = self.view.column(field.column)
        bound = None if column is None else as_field_value(value, column.type, field)
        if bound is None:
            return UNDECIDED
        self.view.need(field.name)
        above = range_query(self.view, field, bound, None, lower_inclusive=inclusive == upward)
        below = range_query(self.view, field, None, bound, upper_inclusive=inclusive != upward)
        return (
            IndexAnswer(RowSet(above), RowSet(below)) if upward else IndexAnswer(RowSet(below), RowSet(above))
        )

    def _ordered_text(self, field: Field, value: pa.Scalar, *, upward: bool, inclusive: bool) -> IndexAnswer:
        bound = value.as_py()
        if not isinstance(bound, str):
            return UNDECIDED
        low, high = (bound, None) if upward else (None, bound)
        rows, certain = text_range_query(
            self.view, field, low, high, lower_inclusive=inclusive, upper_inclusive=inclusive
        )
        partial = self.view.partial(field)
        rows = union((rows, partial))
        return self._true_for(field.column, rows, partial if certain else rows)

    def _pattern(self, leaf: TextMatch | Like, name: str) -> IndexAnswer:
        parts = _parts(leaf)
        if parts is None or not self._is_enabled(leaf):
            return UNDECIDED
        field = self.view.mapping.find(name, Kind.STRING)
        if field is None:
            return self._pattern_in_words(parts, name)
        query = pattern_query(self.view, field, parts)
        if query.rows is ALL_ROWS:
            return UNDECIDED
        partial = self.view.partial(field)
        rows = union((query.rows, partial))
        return self._true_for(name, rows, partial if query.exact else rows)

    def _pattern_in_words(self, parts: Sequence[str | Wild], name: str) -> IndexAnswer:
        """Rows with a term that contains the longest literal of the pattern; they need a recheck."""
        field = self.view.find(name, Kind.TEXT)
        plain_parts = [
            p for p in _join_literals(parts) if not isinstance(p, Wild) and p.isascii() and p.isalnum()
        ]
        if field is None or not field.analysis.keeps_words or not plain_parts:
            return UNDECIDED
        needle = max(plain_parts, key=len).lower()
        query = pattern_query(self.view, field, (Wild.MANY, needle, Wild.MANY))
        rows = union((query.rows, self.view.partial(field)))
        return self._true_for(name, rows, rows)

    def _is_enabled(self, leaf: TextMatch | Like) -> bool:
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

    def _nested_answer(self, leaf: Predicate) -> IndexAnswer:
        """A condition on a field within a struct: the index gives candidates for equality only."""
        match leaf:
            case Compare(op=Op.EQ | Op.NULL_SAFE, column=column, value=value) if value.is_valid:
                values: tuple[pa.Scalar, ...] = (value,)
            case In(column=column, values=literals) if len(literals) <= _MAX_NESTED_VALUES:
                values = tuple(literals)
                if not all(value.is_valid for value in values):
                    return UNDECIDED
            case _:
                return UNDECIDED
        field = self.view.find(column.path[0], Kind.JSON)
        path, inner = _path_within(self.view, column)
        terms = [as_json_term(value, inner) for value in values]
        if field is None or field.analysis.splits or not all(terms):
            return UNDECIDED
        paths = json_paths(field, FieldRef(column.path[0], path))
        term_set = InSet(tuple(term for term in terms if term is not None))
        rows = compile_json(term_set, field, paths, self.view).true.rows
        return IndexAnswer(RowSet(rows, rows), RowSet(ALL_ROWS, ALL_ROWS))


def _path_within(view: IndexView, column: Column) -> tuple[tuple[str, ...], pa.DataType]:
    """The path within a struct in the spelling of the split, and the type of the values there."""
    outer = view.column(column.path[0])
    path: list[str] = []
    arrow = outer.type if outer is not None else pa.null()
    for name in column.path[1:]:
        fields = list(arrow) if kind_of(arrow) is TypeKind.STRUCT else []
        field = next((f for f in fields if f.name.lower() == name.lower()), None)
        path.append(field.name if field is not None else name)
        arrow = field.type if field is not None else pa.null()
    return tuple(path), arrow


def _parts(leaf: TextMatch | Like) -> tuple[str | Wild, ...] | None:
    match leaf:
        case TextMatch(TextMatchKind.STARTS, text=text):
            return (text, Wild.MANY)
        case TextMatch(TextMatchKind.ENDS, text=text):
            return (Wild.MANY, text)
        case TextMatch(text=text):
            return (Wild.MANY, text, Wild.MANY)
        case Like(pattern=pattern, escape=escape):
            try:
                return patterns.like_parts(pattern, escape)
            except PredicateError:
                return None  # the error of its evaluation on rows


def _join_literals(parts: Sequence[str | Wild]) -> list[str | Wild]:
    """Adjacent literals joined."""
    parts_joined: list[str | Wild] = []
    for part in parts:
        last = parts_joined[-1] if parts_joined else None
        if isinstance(part, Wild) or last is None or isinstance(last, Wild):
            parts_joined.append(part)
        else:
            parts_joined[-1] = last + part
    return parts_joined
