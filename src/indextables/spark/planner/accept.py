"""The operation `accept`: which of the conditions that Spark offers are answered exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.predicate import And, In, Not, Or, Predicate, to_sql
from indextables.spark.planner.asked import asked
from indextables.spark.planner.expressions import conditions

_SHOWN_VALUES = 100


def accept(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """For each filter the condition as SQL, or null if Spark has to evaluate it.

    Virtual columns are checked too, so that a malformed query fails before anything runs.
    """
    del blobs
    question = asked(request)
    if question is None:
        return {"accepted": [None] * len(request["filters"])}, ()
    found = conditions(request["filters"], question.scope)
    return {"accepted": [None if part is None else _shown(part) for part in found]}, ()


def _shown(condition: Predicate) -> str:
    """The condition for people: of long lists the first values."""
    longest = _longest(condition)
    if longest <= _SHOWN_VALUES:
        return to_sql(condition)
    return f"{to_sql(_shortened(condition))} [of up to {longest} values the first {_SHOWN_VALUES}]"


def _longest(condition: Predicate) -> int:
    match condition:
        case And(parts) | Or(parts):
            return max(map(_longest, parts), default=0)
        case Not(part):
            return _longest(part)
        case In(values=values):
            return len(values)
    return 0


def _shortened(condition: Predicate) -> Predicate:
    match condition:
        case And(parts):
            return And(tuple(map(_shortened, parts)))
        case Or(parts):
            return Or(tuple(map(_shortened, parts)))
        case Not(part):
            return Not(_shortened(part))
        case In(column, values):
            return In(column, values[:_SHOWN_VALUES])
    return condition
