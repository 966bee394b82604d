"""The table of a read request at its version, with the virtual columns and conditions of the request."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from indextables.errors import PredicateError
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import In, Predicate, Search
from indextables.read.scan_spec import Highlight, VirtualColumn
from indextables.read.table_context import TableContext, table_context
from indextables.spark.planner.expressions import Scope, condition, conditions, conjunction
from indextables.spark.planner.snapshots import check_columns, pinned_snapshot
from indextables.spark.planner.tables import TableLocation, locate_table
from indextables.spark.planner.virtual_columns import searches, virtual_columns

Request: TypeAlias = Mapping[str, Any]

# The join checks every row anyway: a longer list of its values costs more than it saves.
_MAX_RUNTIME_VALUES = 1000
_MAX_CACHED = 32
_tables: OrderedDict[tuple[object, ...], TableContext] = OrderedDict()


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The table, snapshot and virtual columns of a read request."""

    location: TableLocation
    snapshot: Snapshot
    table: TableContext
    virtual: dict[str, VirtualColumn]

    @property
    def options(self) -> Options:
        """The options of the request."""
        return self.location.options

    @property
    def scope(self) -> Scope:
        """The columns that names in conditions refer to."""
        return Scope(self.table.schema, searches(self.virtual))

    def where(self, request: Request) -> Predicate | None:
        """The conjunction of the filters of a request, all of which were accepted before."""
        filters = request.get("filters") or ()
        parts = [part for part in conditions(filters, self.scope) if part is not None]
        if len(parts) < len(filters):
            raise PredicateError(
                "a filter was pushed that cannot be evaluated; this is a defect of indextables"
            )
        return conjunction(parts)

    def where_with_runtime_filters(self, request: Request) -> Predicate | None:
        """The filters and the runtime filters of a request; long runtime lists only of partition columns."""
        parts = [self.where(request)]
        partitions = {name.lower() for name in self.table.partition_columns}
        for expression in request.get("runtime") or ():
            found = condition(expression, self.scope)
            if isinstance(found, In) and len(found.values) > _MAX_RUNTIME_VALUES:
                found = found if found.column.path[0].lower() in partitions else None
            parts.append(found)
        return conjunction([part for part in parts if part is not None])


def read_context(request: Request) -> ReadContext | None:
    """The context of a read request; None if the table is in a catalog but has no log yet.

    Raises:
        QuerySyntaxError: A search of the request is malformed.
        SchemaError: The columns of the request are no longer those of the table.
    """
    location = locate_table(request)
    snapshot = pinned_snapshot(location, request)
    if snapshot is None:
        return None
    check_columns(location, snapshot, request.get("table_schema"))
    table = _cached_table(snapshot, location.options)
    virtual = virtual_columns(request.get("virtual") or (), table.schema)
    for each in virtual.values():
        if isinstance(each, Search):
            table.bound_query(each)
        elif isinstance(each, Highlight):
            table.check_text(each.column)
    return ReadContext(location, snapshot, table, virtual)


def _cached_table(snapshot: Snapshot, options: Options) -> TableContext:
    key = (snapshot.log.cache_scope, snapshot.key, *sorted(options.public().values.items()))
    if (found := _tables.get(key)) is None:
        found = _tables[key] = table_context(snapshot, options)
        while len(_tables) > _MAX_CACHED:
            _tables.popitem(last=False)
    else:
        _tables.move_to_end(key)
    return found
