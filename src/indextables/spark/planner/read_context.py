"""The table of a read request at its version or micro-batch, with its virtual columns and conditions.

The operations `stream_start` and `stream_latest`, too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from indextables.cache import Cache
from indextables.errors import OptionError, PredicateError, SchemaError, TableNotFoundError
from indextables.log.environment import local_time_ms
from indextables.log.snapshot import Snapshot
from indextables.options import Options, reading
from indextables.predicate import Column, In, Predicate, Search, SearchKind, conjunction
from indextables.predicate.tree import resolve
from indextables.read import Bucket, DateHistogram, Histogram, RangeBuckets
from indextables.read.spec import Buckets, Highlight, VirtualColumn, group_type
from indextables.read.stream import Offset, TableStream
from indextables.read.table_context import TableContext, table_context
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, kind_of
from indextables.spark.planner.expressions import Scope, condition, conditions
from indextables.spark.planner.tables import (
    NO_LOG,
    TableLocation,
    check_columns,
    locate_table,
    pinned_snapshot,
    starting_version,
    timestamp_ms,
)

ALL_FIELDS = "_indexall"

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"\s*(-?)\s*([0-9]{1,18})\s*(us|ms|s|m|h|d)\s*")
_LONGEST = 1 << 62


def virtual_columns(definitions: Iterable[Mapping[str, Any]], schema: pa.Schema) -> dict[str, VirtualColumn]:
    """The virtual columns of a request, by name.

    Raises:
        SchemaError: A column does not exist.
        PredicateError: A column has a type that the function does not take.
    """
    return {each["name"]: _virtual(each, schema) for each in definitions}


def searches(virtual: Mapping[str, VirtualColumn]) -> dict[str, Search]:
    """The virtual columns that are searches."""
    return {name: column for name, column in virtual.items() if isinstance(column, Search)}


def _virtual(definition: Mapping[str, Any], schema: pa.Schema) -> VirtualColumn:
    kind: str = definition["kind"]
    path: Sequence[str] | None = definition.get("column")
    if kind in set(SearchKind):
        return Search(SearchKind(kind), _search_column(path, schema), definition["query"])
    column, arrow = resolve(schema, path or ())
    if len(column.path) > 1:
        raise SchemaError(f"{column.name} is a field of a struct; {kind} takes a column of the table")
    arguments: Sequence[Any] = definition.get("arguments", ())
    if kind == "highlight":
        if kind_of(arrow) is not TypeKind.STRING:
            raise PredicateError(f"{column.name} is {arrow}; only a text can be highlighted")
        return Highlight(column.name)
    buckets = make_buckets(kind, column.name, arguments)
    group_type(buckets, arrow)
    return buckets


def _search_column(path: Sequence[str] | None, schema: pa.Schema) -> Column | None:
    if path is None:
        return None
    if len(path) == 1 and path[0].lower() == ALL_FIELDS and ALL_FIELDS not in map(str.lower, schema.names):
        return None
    return Column(tuple(path))


def make_buckets(kind: str, column: str, arguments: Sequence[Any]) -> Buckets:
    """The buckets of a function's constant arguments.

    Raises:
        PredicateError: An interval is not positive, or ranges are empty or overlap.
    """
    match kind:
        case "histogram":
            return Histogram(column, float(arguments[0]), float(arguments[1]))
        case "date_histogram":
            return DateHistogram(column, microseconds(arguments[0]), _offset(arguments[1]))
        case "range":
            return RangeBuckets(column, tuple(Bucket(n, _bound(a), _bound(b)) for n, a, b in arguments))
        case _:
            pass
    raise PredicateError(f"unknown bucket function '{kind}'")


def _offset(text: str) -> int:
    return microseconds(text, offset=True)


def _bound(value: str | None) -> float | None:
    return None if value is None else float(value)


def microseconds(text: str, *, offset: bool = False) -> int:
    """Parse a duration such as `15m`, `1h` or `7d` as microseconds; an offset may be zero or negative.

    >>> microseconds("15m")
    900000000
    """
    match = _DURATION.fullmatch(text)
    if match is None or (match[1] and not offset):
        raise PredicateError(
            f"'{text}' is not a duration; give a whole number and a unit (us, ms, s, m, h or d), as 15m"
        )
    length = int(match[2]) * _UNITS[match[3]]
    if length > _LONGEST or (length == 0 and not offset):
        raise PredicateError(f"'{text}' is not a duration that buckets can have")
    return -length if match[1] else length


Request: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[Mapping[str, Any], Sequence[bytes]]

# Longer lists of a runtime filter cost more than they save: the join checks every row in any case.
_MAX_RUNTIME_VALUES = 1000
_MAX_CACHED = 32
_tables: Cache[tuple[object, ...], TableContext] = Cache(_MAX_CACHED)
# Without their readers, which have open files and credentials; the batches of a few queries.
_MAX_CACHED_BATCHES = 8
_batches: Cache[tuple[object, ...], Snapshot] = Cache(_MAX_CACHED_BATCHES)


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
            predicate = condition(expression, self.scope)
            if isinstance(predicate, In) and len(predicate.values) > _MAX_RUNTIME_VALUES:
                predicate = predicate if predicate.column.path[0].lower() in partitions else None
            parts.append(predicate)
        return conjunction([part for part in parts if part is not None])


def read_context(request: Request) -> ReadContext | None:
    """The context of a read request; None if the table is in a catalog but has no log yet.

    Raises:
        QuerySyntaxError: A search of the request is malformed.
        SchemaError: The columns of the request are no longer those of the table.
    """
    location = locate_table(request)
    snapshot = batch_snapshot(location, request) if "batch" in request else pinned_snapshot(location, request)
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
    if (table := _tables.get(key)) is None:
        table = _tables.put_if_absent(key, table_context(snapshot, options))
    return table


def stream_start(request: Request, blobs: Sequence[bytes]) -> Answer:
    """The offset at which a new stream starts; none if the table is in a catalog but has no log yet."""
    del blobs
    table = _streamed_table(request)
    try:
        return {"offset": start_of(table, started_empty=request.get("started_empty", False)).to_json()}, ()
    except TableNotFoundError:
        if not request.get("in_catalog"):
            raise
        return {}, ()


def _streamed_table(request: Request) -> TableLocation:
    """The table of a stream.

    Raises:
        OptionError: the options name a version, which a stream does not have.
    """
    table = locate_table(request)
    if table.version is not None or table.timestamp_ms is not None:
        raise OptionError(
            "a stream has no version; give startingVersion or startingTimestamp instead of versionAsOf and "
            "timestampAsOf"
        )
    return table


def start_of(table: TableLocation, *, started_empty: bool = False) -> Offset:
    """The offset at which a new stream starts, by its options.

    Args:
        table: the table, with the options.
        started_empty: whether the stream started when the table had no log.

    Raises:
        OptionError: the time at which it starts is in the future, or the table has no such version.
    """
    moment = table.options.get(reading.STARTING_TIMESTAMP)
    now_ms = local_time_ms()
    # Versions that are committed before that time would be read.
    if moment is not None and timestamp_ms(reading.STARTING_TIMESTAMP.key, moment, table.zone) > now_ms:
        raise OptionError(
            f"startingTimestamp is '{moment}', which is in the future; give an earlier time, or "
            "startingVersion=latest to read the versions that are committed from now on"
        )
    is_latest = table.options.get(reading.STARTING_VERSION) == reading.LATEST
    first = 0 if started_empty and is_latest else starting_version(table, table.log.snapshot())
    return TableStream(table.log, table.options).start(first)


def stream_latest(request: Request, blobs: Sequence[bytes]) -> Answer:
    """The end offset of the next micro-batch, the newest offset, and the backlog.

    Without `start` only the newest offset and version are returned; if the table is in a catalog but has no
    log yet, only the version, which is -1.
    """
    del blobs
    table = _streamed_table(request)
    stream = TableStream(table.log, table.options, request.get("table_schema"))
    if "start" not in request:
        try:
            newest = stream.end()
        except TableNotFoundError:
            if not request.get("in_catalog"):
                raise
            return {"version": NO_LOG}, ()
        return {"newest": newest.to_json(), "version": newest.version - 1}, ()
    start = Offset.from_json(request["start"])
    end, newest, backlog = stream.progress(
        start, unlimited=request.get("unlimited", False), until=request.get("until")
    )
    return {
        "offset": end.to_json(),
        "newest": newest.to_json(),
        "metrics": {
            "numFilesOutstanding": str(backlog.splits),
            "numBytesOutstanding": str(backlog.size),
            "numVersionsOutstanding": str(backlog.versions),
        },
    }, ()


def batch_snapshot(table: TableLocation, request: Request) -> Snapshot:
    """The splits of the micro-batch that a read request names: one snapshot for all calls that plan it."""
    batch, log = request["batch"], table.log
    newest = log.snapshot()
    key = (
        table.store.cache_scope,
        newest.key,
        batch["start"],
        batch["end"],
        request.get("table_schema"),
        *sorted(table.options.public().values.items()),
    )
    if (cached := _batches.get(key)) is not None:
        return log.adopt(cached)
    stream = TableStream(log, table.options, request.get("table_schema"))
    snapshot = stream.snapshot(Offset.from_json(batch["start"]), Offset.from_json(batch["end"]), newest)
    _batches.put(key, replace(snapshot, reader=None))
    return snapshot
