"""Conditions that are never unknown, or unknown only for rows without a value."""

from collections.abc import Sequence

import pyarrow as pa

from indextables.predicate.tree import (
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
    Values,
)


def constant_unless_null(column: Column, value: bool) -> Predicate:  # noqa: FBT001
    """True (or false) for every value of the column, unknown where it is null.

    What a comparison becomes when its value lies outside the column's type: `tiny < 300`.
    """
    if value:
        return Or((Not(IsNull(column)), Always(None)))
    return And((IsNull(column), Always(None)))


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
            known = _valid(predicate)
            return And((Not(IsNull(column)), In(column, known))) if known else Always(False)
        case NestedCondition(column, steps, part):
            return NestedCondition(column, steps, is_true(part))
        case _:
            return _where_known(predicate, predicate)


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
        case In(values=values) if len(_valid(predicate)) < len(values):
            return Always(False)
        case NestedCondition(column, steps, part):
            return NestedCondition(column, steps, is_false(part))
        case _:
            return _where_known(predicate, Not(predicate))


def _valid(predicate: In) -> Sequence[pa.Scalar]:
    """The values that are not null."""
    if predicate.array is not None:
        return Values(predicate.array.drop_null())
    return [value for value in predicate.values if value.is_valid]


def _where_known(leaf: Predicate, wanted: Predicate) -> Predicate:
    """The wanted form of a leaf, false where the leaf's column is null and the leaf thus unknown."""
    match leaf:
        case IsNull() | Search() | Compare(op=Op.NULL_SAFE):
            return wanted
        case Compare(value=value) if not value.is_valid:
            return Always(False)
        case Compare(column=column) | In(column=column) | TextMatch(column=column) | Like(column=column):
            return And((Not(IsNull(column)), wanted))
        case _:
            return wanted
