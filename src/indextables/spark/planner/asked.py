"""What a request to read asks: the table at a version, its virtual columns, its condition."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from indextables.errors import PredicateError
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate, Search
from indextables.read.tasks import TableFacts, facts_of
from indextables.spark.planner.expressions import Scope, conditions, conjunction
from indextables.spark.planner.snapshots import check_columns, pinned
from indextables.spark.planner.tables import Addressed, addressed
from indextables.spark.virtual import Highlight, Virtual, searches, virtual_columns

Request: TypeAlias = Mapping[str, Any]

_KEPT = 32
_facts: OrderedDict[tuple[object, ...], TableFacts] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Asked:
    """A table as a request sees it."""

    table: Addressed
    snapshot: Snapshot
    facts: TableFacts
    virtual: dict[str, Virtual]

    @property
    def options(self) -> Options:
        """The options that came with the request."""
        return self.table.options

    @property
    def scope(self) -> Scope:
        """What names mean."""
        return Scope(self.facts.schema, searches(self.virtual))

    def where(self, request: Request, *names: str) -> Predicate | None:
        """The condition that all filters of a request make; they must have been accepted before."""
        given = [each for name in names or ("filters",) for each in request.get(name) or ()]
        found = conditions(given, self.scope)
        parts = [part for part in found if part is not None]
        if len(parts) < len(given):
            raise PredicateError(
                "a filter was pushed that cannot be answered; this is a defect of indextables"
            )
        return conjunction(parts)


def asked(request: Request) -> Asked | None:
    """The table that a request is about; None if a catalog lists it and nobody has written to it.

    Searches that are malformed are refused, and requests whose columns are no longer the table's.
    """
    table = addressed(request)
    snapshot = pinned(table, request)
    if snapshot is None:
        return None
    check_columns(table, snapshot, request.get("table_schema"))
    facts = _facts_of(snapshot, table.options)
    virtual = virtual_columns(request.get("virtual") or (), facts.schema)
    for each in virtual.values():
        if isinstance(each, Search):
            facts.question(each)
        elif isinstance(each, Highlight):
            facts.check_text(each.column)
    return Asked(table, snapshot, facts, virtual)


def _facts_of(snapshot: Snapshot, options: Options) -> TableFacts:
    key = (snapshot.log.cache_scope, snapshot.key, *sorted(options.public().values.items()))
    if (found := _facts.get(key)) is None:
        found = _facts[key] = facts_of(snapshot, options)
        while len(_facts) > _KEPT:
            _facts.popitem(last=False)
    else:
        _facts.move_to_end(key)
    return found
