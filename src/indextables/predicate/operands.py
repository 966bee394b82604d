"""Operands of the condition parser: columns, literals, conditions; and the conditions they form."""

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.compare import compare, membership
from indextables.predicate.evaluate import evaluate
from indextables.predicate.patterns import simplify
from indextables.predicate.traversal import is_false, is_true
from indextables.predicate.tree import (
    VALUE,
    Always,
    And,
    ArrayContains,
    Column,
    Compare,
    Element,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Op,
    Or,
    Predicate,
    Size,
    Step,
    StructField,
    TextMatch,
    TextMatchKind,
    Values,
)
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, is_list, kind_of, sql_name, value_type

_FLIPPED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE, Op.EQ: Op.EQ, Op.NULL_SAFE: Op.NULL_SAFE}
# With at least this many alternatives, equalities of one column become a list of values.
_MANY_ALTERNATIVES = 16
_COLUMN_WITH_VALUE = "a comparison is of a column with a value"


@dataclass(frozen=True, slots=True)
class ColumnOperand:
    """A column and the type of its values."""

    column: Column
    type: pa.DataType
    start: int


@dataclass(frozen=True, slots=True)
class ComputedOperand:
    """A value that is computed from a column: an element, a size, whether an array contains something."""

    column: Column
    steps: tuple[Step, ...]
    type: pa.DataType
    start: int

    @property
    def value(self) -> ColumnOperand:
        """The value as the column of conditions within `NestedCondition`."""
        return ColumnOperand(VALUE, self.type, self.start)

    def condition(self, part: Predicate) -> Predicate:
        """A condition on the value; constants stay constants."""
        return part if isinstance(part, Always) else NestedCondition(self.column, self.steps, part)

    def with_step(self, step: Step, type_: pa.DataType) -> "ComputedOperand":
        """The operand with one more step."""
        return ComputedOperand(self.column, (*self.steps, step), type_, self.start)


@dataclass(frozen=True, slots=True)
class LiteralOperand:
    """A value."""

    scalar: pa.Scalar
    start: int


@dataclass(frozen=True, slots=True)
class ConditionOperand:
    """A condition."""

    predicate: Predicate
    start: int


@dataclass(frozen=True, slots=True)
class AllFields:
    """`*` or `_indexall`: all fields that can be searched."""

    start: int


Operand: TypeAlias = ColumnOperand | ComputedOperand | LiteralOperand | ConditionOperand | AllFields


def condition_of(operand: Operand) -> Predicate:
    """The operand as a condition: a boolean column or literal is one."""
    match operand:
        case ConditionOperand(predicate):
            return predicate
        case ComputedOperand():
            return operand.condition(condition_of(operand.value))
        case ColumnOperand(column, type_):
            if kind_of(type_) is TypeKind.BOOLEAN:
                return Compare(Op.EQ, column, pa.scalar(True, type_))
            raise PredicateError(
                f"{column.name} is {sql_name(type_)} and not a condition; compare it with a value"
            )
        case LiteralOperand(scalar):
            if not scalar.is_valid:
                return Always(None)
            if kind_of(scalar.type) is TypeKind.BOOLEAN:
                return Always(scalar.as_py())
            raise PredicateError(
                f"a value of type {sql_name(scalar.type)} is not a condition; compare a column with it"
            )
        case AllFields():
            raise PredicateError("all fields can only be searched: * INDEXQUERY 'words'")


def comparison(op: Op, left: Operand, right: Operand, zone: str) -> Predicate:
    """`left op right`, the column on either side."""
    match left, right:
        case ComputedOperand(), LiteralOperand():
            return left.condition(comparison(op, left.value, right, zone))
        case LiteralOperand(), ComputedOperand():
            return right.condition(comparison(op, left, right.value, zone))
        case ColumnOperand(column, type_), LiteralOperand(scalar):
            return compare(column, type_, op, scalar, time_zone=zone)
        case LiteralOperand(scalar), ColumnOperand(column, type_):
            return compare(column, type_, _FLIPPED[op], scalar, time_zone=zone)
        case LiteralOperand(first), LiteralOperand(second):
            return _compare_literals(op, first, second, zone)
        case ColumnOperand(column), ColumnOperand(other):
            raise PredicateError(f"{_COLUMN_WITH_VALUE}, not of the columns {column.name} and {other.name}")
        case ConditionOperand(predicate), LiteralOperand(scalar):
            return _compare_with_boolean(op, predicate, scalar)
        case LiteralOperand(scalar), ConditionOperand(predicate):
            return _compare_with_boolean(_FLIPPED[op], predicate, scalar)
        case _:
            pass
    raise PredicateError(_COLUMN_WITH_VALUE)


def _compare_literals(op: Op, first: pa.Scalar, second: pa.Scalar, zone: str) -> Predicate:
    """Compare two literals."""
    if not first.is_valid:
        return Always(not second.is_valid if op is Op.NULL_SAFE else None)
    if kind_of(first.type) is TypeKind.STRING and kind_of(second.type) is not TypeKind.STRING:
        first, second, op = second, first, _FLIPPED[op]
        if not first.is_valid:
            return _compare_literals(op, first, second, zone)
    value = Column(("the value",))
    row = pa.table({value.name: pa.repeat(first, 1)})
    return Always(evaluate(compare(value, first.type, op, second, time_zone=zone), row)[0].as_py())


def _compare_with_boolean(op: Op, predicate: Predicate, scalar: pa.Scalar) -> Predicate:
    """A condition compared with TRUE, FALSE or NULL."""
    if not scalar.is_valid:
        return is_unknown(predicate) if op is Op.NULL_SAFE else Always(None)
    if kind_of(scalar.type) is TypeKind.BOOLEAN and op in {Op.EQ, Op.NULL_SAFE}:
        if op is Op.EQ:
            return predicate if scalar.as_py() else negate(predicate)
        return is_true(predicate) if scalar.as_py() else is_false(predicate)
    raise PredicateError("a condition can only be equal to TRUE, FALSE or NULL")


def is_unknown(predicate: Predicate) -> Predicate:
    """Where the condition is neither true nor false."""
    return Not(Or((is_true(predicate), is_false(predicate))))


def is_null(operand: Operand) -> Predicate:
    """`operand IS NULL`."""
    match operand:
        case ComputedOperand():
            return operand.condition(is_null(operand.value))
        case ColumnOperand(column):
            return IsNull(column)
        case LiteralOperand(scalar):
            return Always(not scalar.is_valid)
        case _:
            return is_unknown(condition_of(operand))


def in_list(left: Operand, items: Sequence[Operand], zone: str) -> Predicate:
    """`left IN (items)`."""
    if isinstance(left, ComputedOperand):
        return left.condition(in_list(left.value, items, zone))
    scalars = [item.scalar for item in items if isinstance(item, LiteralOperand)]
    if isinstance(left, ColumnOperand) and len(scalars) == len(items):
        return membership(left.column, left.type, scalars, time_zone=zone)
    return combine(Or, [comparison(Op.EQ, left, item, zone) for item in items])


def like(left: Operand, pattern: str | None, escape: str, *, ignore_case: bool) -> Predicate:
    """`left LIKE pattern`, in its simplest form; an unknown pattern is never matched."""
    if isinstance(left, ComputedOperand):
        return left.condition(like(left.value, pattern, escape, ignore_case=ignore_case))
    column = _text_column(left, "ILIKE" if ignore_case else "LIKE")
    if pattern is None:
        return Always(None)
    return simplify(Like(column.column, pattern, escape, ignore_case), column.type)


def text_match(kind: TextMatchKind, left: Operand, text: str | None) -> Predicate:
    """`startswith(left, text)` and its relatives."""
    if isinstance(left, ComputedOperand):
        return left.condition(text_match(kind, left.value, text))
    column = _text_column(left, kind.value.replace("_", ""))
    return Always(None) if text is None else TextMatch(kind, column.column, text)


def _text_column(operand: Operand, name: str) -> ColumnOperand:
    if not isinstance(operand, ColumnOperand):
        raise PredicateError(f"{name} takes a column on its left")
    if kind_of(operand.type) is not TypeKind.STRING:
        raise PredicateError(
            f"{operand.column.name} is {sql_name(operand.type)}; {name} takes a STRING column"
        )
    return operand


def negate(predicate: Predicate) -> Predicate:
    """NOT the condition; constants and a double NOT are simplified."""
    if isinstance(predicate, Not):
        return predicate.part
    if isinstance(predicate, Always):
        return Always(None if predicate.value is None else not predicate.value)
    return Not(predicate)


def combine(kind: type[And] | type[Or], parts: Sequence[Predicate]) -> Predicate:
    """The parts under one And or Or; nested ones of the same kind are flattened, a single part stays."""
    if len(parts) == 1:
        return parts[0]
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    if kind is Or and len(flat) > _MANY_ALTERNATIVES:
        flat = _equalities_to_lists(flat)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _equalities_to_lists(parts: Sequence[Predicate]) -> list[Predicate]:
    """Alternatives, with equalities of one column replaced by a list of values."""
    values: dict[tuple[Column, pa.DataType], list[pa.Array]] = {}
    others: list[Predicate] = []
    for part in parts:
        match part:
            case Compare(op=Op.EQ, column=column, value=value):
                values.setdefault((column, value.type), []).append(pa.array([value], value.type))
            case In(column=column, array=array) if array is not None and len(array):
                values.setdefault((column, array.type), []).append(array)
            case _:
                others.append(part)
    lists = [In(column, Values(pa.concat_arrays(arrays))) for (column, _), arrays in values.items()]
    return [*lists, *others]


# --- arrays and maps --------------------------------------------------------------------------------


def element(operand: Operand, key: Operand, zone: str) -> Operand:
    """`operand[key]`: an element of an array by its position, or the value of a map under a key."""
    nested = _as_computed(operand, "[...]")
    if not isinstance(key, LiteralOperand) or not key.scalar.is_valid:
        raise PredicateError("brackets take a number, or the key of a map, as a value")
    if kind_of(nested.type) is TypeKind.MAP:
        matches = compare(VALUE, nested.type.key_type, Op.EQ, key.scalar, time_zone=zone)
        return nested.with_step(Element(matches=matches, key=key.scalar), value_type(nested.type.item_type))
    if not is_list(nested.type):
        raise PredicateError(f"{nested.column.name} is {sql_name(nested.type)}, neither an array nor a map")
    if kind_of(key.scalar.type) is not TypeKind.INTEGER:
        raise PredicateError("the position of an array's element is a whole number, 0 for the first")
    return nested.with_step(Element(position=key.scalar.as_py()), value_type(nested.type.value_type))


def struct_field(operand: ComputedOperand, name: str) -> Operand:
    """`operand.name`, where the operand is a struct."""
    fields = list(operand.type) if kind_of(operand.type) is TypeKind.STRUCT else []
    fields_by_name = [field for field in fields if field.name.lower() == name.lower()]
    if len(fields_by_name) != 1:
        what = "more than one field" if fields_by_name else "no field"
        raise PredicateError(f"an element of {operand.column.name} has {what} {name}")
    return operand.with_step(StructField(fields_by_name[0].name), value_type(fields_by_name[0].type))


def size(operand: Operand) -> Operand:
    """`size(operand)`."""
    nested = _as_computed(operand, "size")
    if not is_list(nested.type) and kind_of(nested.type) is not TypeKind.MAP:
        raise PredicateError(f"{nested.column.name} is {sql_name(nested.type)}; size takes an array or a map")
    return nested.with_step(Size(), pa.int32())


def array_contains(operand: Operand, item: Operand, zone: str) -> Operand:
    """`array_contains(operand, item)`."""
    nested = _as_computed(operand, "array_contains")
    if not is_list(nested.type):
        raise PredicateError(
            f"{nested.column.name} is {sql_name(nested.type)}; array_contains takes an array"
        )
    if not isinstance(item, LiteralOperand) or not item.scalar.is_valid:
        raise PredicateError("array_contains takes an array and a value that is not NULL")
    matches = compare(VALUE, value_type(nested.type.value_type), Op.EQ, item.scalar, time_zone=zone)
    return nested.with_step(ArrayContains(matches, item.scalar), pa.bool_())


def _as_computed(operand: Operand, name: str) -> ComputedOperand:
    match operand:
        case ComputedOperand():
            return operand
        case ColumnOperand(column, type_, start):
            return ComputedOperand(column, (), type_, start)
        case _:
            raise PredicateError(f"{name} takes a column with an array or a map")
