"""An aggregate as a person writes it: `count(*)`, `max(status)`, `count(distinct user)`."""

import re

from indextables.errors import PredicateError
from indextables.read.aggregates import Aggregate, Function

_SHAPE = re.compile(
    r"\s*(?P<function>\w+)\s*\(\s*(?P<distinct>distinct\s+)?(?P<column>\*|`(?:[^`]|``)+`|[^()]*?)\s*\)\s*",
    re.IGNORECASE,
)


def parse_aggregate(text: str, name: str = "") -> Aggregate:
    """The aggregate that a text means; `name` is its column in the result.

    >>> parse_aggregate("count(distinct user)", "users")
    Aggregate(function=<Function.COUNT_DISTINCT: 'count_distinct'>, column='user', name='users')
    """
    match = _SHAPE.fullmatch(text)
    word = match["function"].lower() if match else ""
    if match is None or word not in ("count", "sum", "min", "max", "avg"):
        raise PredicateError(
            f"the aggregate '{text}' is not understood; give count(*), count(column), "
            "count(distinct column), sum(column), min(column), max(column) or avg(column)"
        )
    column: str | None = match["column"]
    if column == "*":
        column = None
    elif column and column.startswith("`"):
        column = column[1:-1].replace("``", "`")
    if (column is None and word != "count") or column == "":
        raise PredicateError(f"the aggregate '{text}' needs a column")
    if match["distinct"]:
        if word != "count" or column is None:
            raise PredicateError(f"the aggregate '{text}' is not understood; only count takes distinct")
        return Aggregate(Function.COUNT_DISTINCT, column, name)
    return Aggregate(Function(word), column, name)
