"""Conditions with the constant columns of a split folded, and facts about conditions."""

from collections.abc import Mapping

import pyarrow as pa

from indextables.predicate import (
    Always,
    And,
    Compare,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Or,
    Predicate,
    Search,
    TextMatch,
)
from indextables.predicate.evaluate import evaluate


def fold(predicate: Predicate, constants: Mapping[str, pa.Scalar]) -> Predicate:
    """Replace constant columns (by their names in lower case) by their values.

    Three-valued logic is kept: a part that is unknown stays, for it may still decide nothing or all.
    """
    match predicate:
        case And(parts):
            return _joined(And, [fold(part, constants) for part in parts], decides=False)
        case Or(parts):
            return _joined(Or, [fold(part, constants) for part in parts], decides=True)
        case Not(part):
            inner = fold(part, constants)
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
        case _:
            return predicate


def _joined(kind: type[And] | type[Or], parts: list[Predicate], *, decides: bool) -> Predicate:
    if any(isinstance(part, Always) and part.value is decides for part in parts):
        return Always(decides)
    left = [p for p in parts if not (isinstance(p, Always) and p.value is (not decides))]
    if not left:
        return Always(not decides)
    if all(isinstance(part, Always) for part in left):
        return Always(None)
    return left[0] if len(left) == 1 else kind(tuple(left))


def has_search(predicate: Predicate) -> bool:
    """Whether a search operator is part of the condition."""
    match predicate:
        case And(parts) | Or(parts):
            return any(has_search(part) for part in parts)
        case Not(part):
            return has_search(part)
        case _:
            return isinstance(predicate, Search)


def longest_list(predicate: Predicate) -> int:
    """The number of values in the longest IN list of a condition."""
    match predicate:
        case And(parts) | Or(parts):
            return max(map(longest_list, parts), default=0)
        case Not(part):
            return longest_list(part)
        case In(values=values):
            return len(values)
        case _:
            return 0
