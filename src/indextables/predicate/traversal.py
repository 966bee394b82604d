"""Functions over condition trees and query trees: their nodes, and equivalent trees.

Every `match` names all node classes, so that mypy reports each function that lacks a new one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, assert_never

import pyarrow as pa

from indextables.predicate.evaluate import evaluate
from indextables.predicate.tree import (
    AllDocs,
    AllOf,
    Always,
    And,
    AnyOf,
    Boost,
    Column,
    Compare,
    Exists,
    FieldPath,
    Fuzzy,
    In,
    InSet,
    IsNull,
    Like,
    Negation,
    NestedCondition,
    Not,
    Op,
    Or,
    Phrase,
    Predicate,
    Prefix,
    QueryLeaf,
    QueryNode,
    Range,
    Regex,
    Search,
    Term,
    TextMatch,
    Values,
    Wildcard,
)
from indextables.records import dataclass

# --- what a condition contains ------------------------------------------------------------------------


class Visit(NamedTuple):
    """A node of a condition: how many AND, OR and NOT are above it, and whether one of them is a NOT."""

    node: Predicate
    depth: int
    negated: bool


def walk(predicate: Predicate | None) -> Iterator[Visit]:
    """All nodes of a condition from left to right, each before its parts; None has no nodes."""
    visits = [] if predicate is None else [Visit(predicate, 0, negated=False)]
    while visits:
        visit = visits.pop()
        yield visit
        depth = visit.depth + 1
        match visit.node:
            case And(parts) | Or(parts):
                visits += [Visit(part, depth, visit.negated) for part in reversed(parts)]
            case Not(part):
                visits.append(Visit(part, depth, negated=True))
            case Compare() | In() | IsNull() | TextMatch() | Like() | NestedCondition() | Search() | Always():
                pass
            case _:
                assert_never(visit.node)


def depth_of(predicate: Predicate) -> int:
    """The number of nested AND, OR and NOT."""
    return max(visit.depth for visit in walk(predicate))


def columns_of(predicate: Predicate) -> Iterator[Column]:
    """Every column that the condition reads, in order; a repeated one is repeated."""
    for node, _, _ in walk(predicate):
        match node:
            case Search(column=column):
                if column is not None:
                    yield column
            case Compare() | In() | IsNull() | TextMatch() | Like() | NestedCondition():
                yield node.column
            case And() | Or() | Not() | Always():
                pass
            case _:
                assert_never(node)


def searches_of(predicate: Predicate | None, *, negated: bool = True) -> Iterator[Search]:
    """Every search operator in a condition, in order.

    Args:
        predicate: The condition; None has no operators.
        negated: Whether to include operators below a NOT.
    """
    for visit in walk(predicate):
        if isinstance(visit.node, Search) and (negated or not visit.negated):
            yield visit.node


def has_search(predicate: Predicate) -> bool:
    """Whether a search operator is part of the condition."""
    return next(searches_of(predicate), None) is not None


def longest_list(predicate: Predicate) -> int:
    """The number of values in the longest IN list of a condition."""
    return max((len(visit.node.values) for visit in walk(predicate) if isinstance(visit.node, In)), default=0)


def conjuncts(predicate: Predicate | None) -> list[Predicate]:
    """The parts that AND joins at the top; none for no condition."""
    if predicate is None:
        return []
    if isinstance(predicate, And):
        return [inner for part in predicate.parts for inner in conjuncts(part)]
    return [predicate]


def conjunction(parts: Iterable[Predicate]) -> Predicate | None:
    """The parts joined by one AND, the inverse of `conjuncts`; None if there are none."""
    flat = [inner for part in parts for inner in conjuncts(part)]
    if len(flat) > 1:
        return And(tuple(flat))
    return flat[0] if flat else None


# --- equivalent conditions ----------------------------------------------------------------------------


def map_leaves(predicate: Predicate, replace: Callable[[Predicate], Predicate]) -> Predicate:
    """The condition with each part that is not AND, OR or NOT replaced."""
    match predicate:
        case And(parts):
            return And(tuple(map_leaves(part, replace) for part in parts))
        case Or(parts):
            return Or(tuple(map_leaves(part, replace) for part in parts))
        case Not(part):
            return Not(map_leaves(part, replace))
        case Compare() | In() | IsNull() | TextMatch() | Like() | NestedCondition() | Search() | Always():
            return replace(predicate)
        case _:
            assert_never(predicate)


def fold_constants(predicate: Predicate, constants: Mapping[str, pa.Scalar]) -> Predicate:
    """Evaluate the columns of a condition that have one value in all rows.

    Three-valued logic is preserved: an unknown part is retained if it can affect the result.

    Args:
        predicate: The condition.
        constants: The values of constant columns by their names in lower case.
    """
    match predicate:
        case And(parts):
            return _fold_parts(And, [fold_constants(part, constants) for part in parts], decisive=False)
        case Or(parts):
            return _fold_parts(Or, [fold_constants(part, constants) for part in parts], decisive=True)
        case Not(part):
            inner = fold_constants(part, constants)
            if isinstance(inner, Always):
                return Always(None if inner.value is None else not inner.value)
            return Not(inner)
        case Compare() | In() | IsNull() | TextMatch() | Like() | NestedCondition():
            name = predicate.column.path[0]
            value = constants.get(name.lower())
            if value is None:
                return predicate
            row = pa.table([pa.array([value], value.type)], names=[name])
            return Always(evaluate(predicate, row)[0].as_py())
        case Search() | Always():
            return predicate
        case _:
            assert_never(predicate)


def _fold_parts(kind: type[And] | type[Or], parts: list[Predicate], *, decisive: bool) -> Predicate:
    """The parts without constants; `decisive` is the value of a part that determines the result."""
    if any(isinstance(part, Always) and part.value is decisive for part in parts):
        return Always(decisive)
    rest = [p for p in parts if not (isinstance(p, Always) and p.value is (not decisive))]
    if not rest:
        return Always(not decisive)
    if all(isinstance(part, Always) for part in rest):
        return Always(None)
    return rest[0] if len(rest) == 1 else kind(tuple(rest))


def is_true(predicate: Predicate) -> Predicate:
    """A condition that is true where the given one is true, and false everywhere else."""
    match predicate:
        case And(parts):
            return And(tuple(is_true(part) for part in parts))
        case Or(parts):
            return Or(tuple(is_true(part) for part in parts))
        case Not(part):
            return is_false(part)
        case Always(value):
            return Always(value is True)
        case In(column):
            valid = _valid_values(predicate)
            return And((Not(IsNull(column)), In(column, valid))) if valid else Always(False)
        case NestedCondition(column, steps, part):
            return NestedCondition(column, steps, is_true(part))
        case Compare() | IsNull() | TextMatch() | Like() | Search():
            return _unless_unknown(predicate, predicate)
        case _:
            assert_never(predicate)


def is_false(predicate: Predicate) -> Predicate:
    """A condition that is true where the given one is false, and false everywhere else."""
    match predicate:
        case And(parts):
            return Or(tuple(is_false(part) for part in parts))
        case Or(parts):
            return And(tuple(is_false(part) for part in parts))
        case Not(part):
            return is_true(part)
        case Always(value):
            return Always(value is False)
        case In(values=values):
            if len(_valid_values(predicate)) < len(values):
                return Always(False)
            return _unless_unknown(predicate, Not(predicate))
        case NestedCondition(column, steps, part):
            return NestedCondition(column, steps, is_false(part))
        case Compare() | IsNull() | TextMatch() | Like() | Search():
            return _unless_unknown(predicate, Not(predicate))
        case _:
            assert_never(predicate)


def _valid_values(predicate: In) -> Sequence[pa.Scalar]:
    """The values that are not null."""
    if predicate.array is not None:
        return Values(predicate.array.drop_null())
    return [value for value in predicate.values if value.is_valid]


def _unless_unknown(
    leaf: Compare | In | IsNull | TextMatch | Like | Search, condition: Predicate
) -> Predicate:
    """The condition, but false where the leaf is unknown because its column is null."""
    match leaf:
        case IsNull() | Search() | Compare(op=Op.NULL_SAFE):
            return condition
        case Compare(value=value) if not value.is_valid:
            return Always(False)
        case Compare(column=column) | In(column=column) | TextMatch(column=column) | Like(column=column):
            return And((Not(IsNull(column)), condition))
        case _:
            assert_never(leaf)


# --- what a query contains ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldUse:
    """The distinct fields of a query, in order of appearance, and whether a leaf has no field."""

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
        case (
            Term()
            | Phrase()
            | Prefix()
            | Wildcard()
            | Regex()
            | Fuzzy()
            | Range()
            | InSet()
            | Exists()
            | AllDocs()
        ):
            yield query
        case _:
            assert_never(query)


def fields_of(query: QueryNode) -> FieldUse:
    """The fields of a query, and whether it needs a default field (`*` alone needs none)."""
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
