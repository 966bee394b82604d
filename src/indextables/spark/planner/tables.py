"""Tables of requests, and snapshots of queries: `options`, `schema`, `companion` and `snapshot`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indextables.cache import Cache
from indextables.data_files import open_log
from indextables.errors import (
    OptionError,
    SchemaError,
    StoreError,
    TableNotFoundError,
    TableReplacedError,
    VersionNotFoundError,
)
from indextables.log.changes import change_metadata
from indextables.log.format.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options, Where, check_scope, cloud, reading
from indextables.options.declare import is_secret, plain_key, resolved_key
from indextables.options.log import STATS_COLUMNS
from indextables.options.maintenance import SOURCE_STORE
from indextables.predicate import Op
from indextables.predicate.addresses import address_comparison
from indextables.read.freshness import read_snapshot
from indextables.read.table_context import partition_columns
from indextables.records import dataclass
from indextables.schema.calendar import parse_timestamp_literal
from indextables.schema.spark import column_difference, to_arrow
from indextables.source.companion import SearchedTable, check_index_of
from indextables.split.mapping import Kind, applicable, check_address_types, mapping_for
from indextables.store import Store, open_store
from indextables.table_properties import check_indexing, indexing_options, indexing_properties
from indextables.version import ENGINE

_PATH = "path"
_VERSION = "versionasof"
_TIMESTAMP = "timestampasof"
# Options that name a table and its version.
LOCATION_OPTIONS = frozenset({_PATH, _VERSION, _TIMESTAMP})

# The scopes of options that a read in Spark accepts.
READ_SCOPES = {
    Where.READ: frozenset({Where.READ, Where.CHANGES}),
    Where.STREAM: frozenset({Where.READ, Where.STREAM}),
}


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table is, the version to read, and the options of the request."""

    store: Store
    options: Options
    version: int | None = None
    timestamp_ms: int | None = None
    zone: str = "UTC"

    @property
    def log(self) -> TransactionLog:
        """The table's log."""
        return open_log(self.store, self.options, engine=ENGINE)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The snapshot that the request reads: a version of the table, or the changes up to one.

        Args:
            version: the version that an earlier call of the same query read; by default the one that the
                request names, or the newest.
        """
        if self.options.get(reading.READ_CHANGES):
            return self._changes(version)
        if version is not None:
            return self.log.snapshot(version=version)
        return read_snapshot(self.log, version=self.version, timestamp=self.timestamp_ms)

    def metadata(self) -> tuple[int, Metadata]:
        """A version and its metadata, with the columns of changes if they are read."""
        if not self.options.get(reading.READ_CHANGES):
            snapshot = self.log.snapshot(version=self.version, timestamp=self.timestamp_ms)
            return snapshot.version, snapshot.metadata
        end = self._last_of_changes()
        return end.version, change_metadata(end.metadata, end.url)

    def check_batch(self) -> None:
        """Refuse options of changes for a read of the table."""
        if self.options.get(reading.READ_CHANGES):
            return
        for option in (
            reading.STARTING_VERSION,
            reading.STARTING_TIMESTAMP,
            reading.ENDING_VERSION,
            reading.ENDING_TIMESTAMP,
        ):
            if self.options.is_set(option):
                raise OptionError(
                    f"option '{option.key}' has no effect on a read of the table; add readChanges=true to "
                    "read changes, or use versionAsOf to read an earlier version"
                )

    def _last_of_changes(self) -> Snapshot:
        """The last version whose changes are read, by the options."""
        last, log = self.options.get(reading.ENDING_VERSION), self.log
        moment = self.options.get(reading.ENDING_TIMESTAMP)
        if moment is None:
            return log.snapshot(version=last)
        if last is not None:
            raise OptionError("give endingVersion or endingTimestamp, not both")
        return log.snapshot(timestamp=timestamp_ms(reading.ENDING_TIMESTAMP.key, moment, self.zone))

    def _changes(self, version: int | None) -> Snapshot:
        log = self.log
        if self.version is not None or self.timestamp_ms is not None:
            raise OptionError(
                "readChanges reads a range of versions; give startingVersion and endingVersion instead of "
                "versionAsOf and timestampAsOf"
            )
        end = self._last_of_changes() if version is None else log.snapshot(version=version)
        first = starting_version(self, end)
        if first is None:
            raise OptionError(
                "readChanges needs a start: give startingVersion (0 for all changes) or startingTimestamp"
            )
        if first > end.version:
            raise OptionError(
                f"the changes of the table at {self.store.url} start at version {first}, after the last one, "
                f"{end.version}; choose an earlier start"
            )
        return log.changes_snapshot(first, end)


def locate_table(request: Mapping[str, Any]) -> TableLocation:
    """The table that the options of a request name by `path`.

    Raises:
        OptionError: There is no path, an option is unknown or malformed, or two versions are given.
    """
    raw = dict(request["options"])
    path = raw.pop(_PATH, None)
    if not path:
        raise OptionError("no path is given; name the table's folder in load(path), save(path) or LOCATION")
    if path.lower().startswith("memory:"):
        raise StoreError(f"{path} is the memory of one process, but Spark has many; use another store")
    version, moment = raw.pop(_VERSION, None), raw.pop(_TIMESTAMP, None)
    if version is not None and moment is not None:
        raise OptionError("give versionAsOf or timestampAsOf, not both")
    options = session_options(raw)
    return TableLocation(
        open_store(path, options),
        options,
        None if version is None else _version(version),
        None if moment is None else timestamp_ms("timestampAsOf", moment, request.get("zone", "UTC")),
        request.get("zone", "UTC"),
    )


def session_options(raw: Mapping[str, str]) -> Options:
    """The options of a request; keys of Hadoop's configuration without a counterpart are dropped.

    Raises:
        OptionError: An option is unknown or malformed.
    """
    return Options.parse(
        {key: value for key, value in raw.items() if not _is_hadoop(key) or cloud.hadoop_key(key)}
    )


def _is_hadoop(key: str) -> bool:
    return key.startswith(("fs.", "dfs."))


def starting_version(table: TableLocation, newest: Snapshot) -> int | None:
    """The first version of changes by the options; None if they do not name one."""
    version = table.options.get(reading.STARTING_VERSION)
    moment = table.options.get(reading.STARTING_TIMESTAMP)
    if version is not None and moment is not None:
        raise OptionError("give startingVersion or startingTimestamp, not both")
    if moment is not None:
        started = timestamp_ms(reading.STARTING_TIMESTAMP.key, moment, table.zone)
        return table.log.version_after(started - 1)
    return newest.version + 1 if version == reading.LATEST else version


def check_options(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Reject options of one read or write that have no effect there; options of the session may."""
    del blobs
    keys = [plain_key(key) for key in request["keys"]]
    if unused := [key for key in keys if _is_hadoop(key) and not cloud.hadoop_key(key)]:
        raise OptionError(
            f"option '{unused[0]}' of Hadoop has no effect here; leave it out, or use an option of "
            "docs/options.md"
        )
    scope = Where(request["scope"])
    check_scope(keys, READ_SCOPES.get(scope, {scope}))
    return {}, ()


def schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The schema (`StructType.json`), the partition columns and the indexing; empty if there is no table.

    The options in a catalog must fit the columns that it declares if there is no table yet, and the table's
    columns if these are about to be changed.
    """
    del blobs
    _check_catalog_options(request.get("catalog_options") or ())
    if "catalog_options" in request and "path" not in request["options"]:
        session_options(request["options"])
        _check_declared(request)
        return {}, ()
    table = locate_table(request)
    if _PATH in (request.get("catalog_options") or ()):
        table.store.check_host()
    try:
        version, metadata = table.metadata()
    except TableNotFoundError:
        _check_declared(request)
        return {"url": table.store.url}, ()
    # Tables of the original have document mappings instead of properties.
    indexing = (
        Options.parse(indexing_properties(metadata))
        if indexing_properties(metadata)
        else indexing_options(table.snapshot())
    )
    if request.get("changed"):
        check_indexing(table.snapshot(), _catalog_options(request))
    mapping = mapping_for(to_arrow(metadata.schema_string), indexing, metadata.partition_columns or ())
    return {
        "url": table.store.url,
        "schema": metadata.schema_string,
        "partitions": metadata.partition_columns or [],
        "version": version,
        "indexing": dict(indexing.values),
        "addresses": [field.column.lower() for field in mapping.fields if field.kind is Kind.IP],
    }, ()


def companion(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Check that the table is the companion index of a source that is searched by its own name."""
    del blobs
    table = locate_table(request)
    table.store.check_host()  # the catalog names the index
    partitions = request.get("partitions")
    searched = SearchedTable(
        name=request["name"],
        location=request["location"],
        format=request.get("format"),
        zone=request.get("zone", "UTC"),
        partitions=None if partitions is None else [(each["path"], each["values"]) for each in partitions],
    )
    check_index_of(table.log.snapshot(), searched, table.store, table.options)
    return {}, ()


def partitions(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The values of the partition columns of all partitions, as an Arrow stream."""
    del blobs
    table = locate_table(request)
    try:
        snapshot = table.snapshot()
    except TableNotFoundError:
        return {}, [arrow_stream(pa.table({}))]
    values = partition_columns(snapshot.files(), snapshot.schema, snapshot.partition_columns)
    distinct = pa.table(values).group_by(list(values)).aggregate([]) if values else pa.table({})
    return {}, [
        arrow_stream(distinct.sort_by([(name, "ascending") for name in values]) if values else distinct)
    ]


def addresses(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """A comparison of a column of addresses with texts, as a query, and the texts that are not addresses."""
    del blobs
    meaning = address_comparison(request["column"], Op(request["op"]), request["values"])
    return {} if meaning.query is None else {"query": meaning.query, "texts": list(meaning.texts)}, ()


def without_defaults(table: TableLocation, incoming: pa.Schema, own: Collection[str]) -> Options:
    """The options of a write, with indexing defaults of the session for its new columns only.

    Args:
        table: the table, with all options.
        incoming: the columns that are written.
        own: the keys of options of the write or the catalog, which are not changed.
    """
    try:
        columns = {name.lower() for name in table.snapshot().schema.names}
    except TableNotFoundError:
        columns = set()
    own_keys = {key.lower() for key in own}
    new = [name for name in incoming.names if name.lower() not in columns]
    options = applicable(table.options, new, own_keys)
    if STATS_COLUMNS.key.lower() in own_keys:
        return options
    return with_statistics_of(options, {*columns, *(name.lower() for name in incoming.names)})


def with_statistics_of(options: Options, columns: Collection[str]) -> Options:
    """The options, with `dataSkippingStatsColumns` for these columns (in lower case) only."""
    names = options.get(STATS_COLUMNS)
    rest = [name for name in names if name.lower() in columns]
    if len(rest) == len(names):
        return options
    values = {key: text for key, text in options.values.items() if key != STATS_COLUMNS.key.lower()}
    return Options({**values, **({STATS_COLUMNS.key.lower(): ",".join(rest)} if rest else {})})


def _catalog_options(request: Mapping[str, Any]) -> Options:
    options = request["options"]
    return Options.parse(
        {key: options[key] for key in request["catalog_options"] if key in options and key != _PATH}
    )


def _check_declared(request: Mapping[str, Any]) -> None:
    """Reject indexing options of a catalog that do not fit the columns that it declares."""
    if "declared" in request:
        declared, partitions = to_arrow(request["declared"]), request["partitions"]
        mapping_for(declared, _catalog_options(request), partitions)
        check_address_types(declared, _catalog_options(request), partitions)


def arrow_stream(table: pa.Table) -> bytes:
    """A table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# Options of stores determine where credentials come from and where they are sent, but for these.
_STORES = ("aws.", "azure.", "gcp.", "credentials.", "databricks.", "fs.", "dfs.")
_HARMLESS = frozenset(
    option.key.lower()
    for option in (
        cloud.AWS_REGION,
        cloud.AWS_PATH_STYLE,
        cloud.AWS_ENCRYPTION,
        cloud.AWS_REQUESTER_PAYS,
        cloud.AZURE_ACCOUNT,
        cloud.AZURE_TENANT,
        cloud.AZURE_CLIENT,
    )
)


def _is_destination(key: str) -> bool:
    """Whether an option of a table could redirect credentials of its readers, for it or for its source."""
    of_store = resolved_key(key.removeprefix(f"{SOURCE_STORE.key}."))
    return of_store.startswith(_STORES) and of_store not in _HARMLESS


def _check_catalog_options(keys: Iterable[str]) -> None:
    """Reject secrets, which a catalog would show, and options that could redirect the secrets of readers."""
    plain = sorted({plain_key(key) for key in keys})
    if secret := [key for key in plain if is_secret(key)]:
        raise OptionError(
            f"the catalog would store {', '.join(secret)} in clear text; give it as a session conf "
            f"(spark.indextables.{secret[0]}) or as an option of each read and write instead"
        )
    if unsafe := [key for key in plain if _is_destination(key)]:
        raise OptionError(
            f"a table of a catalog has the option {unsafe[0]}, which decides where its readers' credentials "
            f"go; give it as a session conf (spark.indextables.{unsafe[0]}) or as an option of each read and "
            "write instead"
        )


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"versionAsOf is '{text}', but a version is a whole number from 0 on")
    return int(text)


def timestamp_ms(option: str, text: str, zone: str) -> int:
    """A timestamp in the session's time zone, in milliseconds."""
    micros = parse_timestamp_literal(text, zone)
    if micros is None:
        raise OptionError(
            f"{option} is '{text}', but a date and time such as 2024-05-01 or 2024-05-01 12:00:00 is expected"
        )
    return micros // 1000


# The version of a table that is in a catalog but has no log yet.
NO_LOG = -1

# Cached snapshots have no readers, so the cache has neither open files nor credentials.
_MAX_CACHED = 16
_snapshots: Cache[tuple[object, ...], Snapshot] = Cache(_MAX_CACHED)


def snapshot(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The version that a query reads: the newest, or the one that its options name."""
    del blobs
    table = locate_table(request)
    table.check_batch()
    try:
        current = table.snapshot()
    except TableNotFoundError:
        if not request.get("in_catalog"):
            raise
        return {"url": table.store.url, "version": NO_LOG}, ()
    _cache(table, current)
    return {"url": table.store.url, "version": current.version, "identity": current.identity}, ()


def pinned_snapshot(table: TableLocation, request: Mapping[str, Any]) -> Snapshot | None:
    """The snapshot that a request names; None if the table had no log when the query was planned."""
    pin = request.get("snapshot")
    if pin is None:
        return table.snapshot()
    version, identity = pin["version"], pin.get("identity")
    if version == NO_LOG:
        return None
    key = _key(table, version, identity)
    if (cached := _snapshots.get(key)) is not None:
        return table.log.adopt(cached)
    result = table.snapshot()
    if (result.version, result.identity) != (version, identity):
        try:
            result = table.snapshot(version)
        except VersionNotFoundError:
            raise _replacement_error(table) from None
    if result.identity != identity:
        raise _replacement_error(table)
    _cache(table, result)
    return result


def check_columns(table: TableLocation, snapshot: Snapshot, expected: str | None) -> None:
    """Reject a query whose columns (`StructType.json`) are no longer those of the table.

    Raises:
        SchemaError: A column was dropped, or has another type.
    """
    if expected is None or expected == snapshot.metadata.schema_string:
        return
    if (problem := column_difference(expected, snapshot.metadata.schema_string)) is not None:
        raise SchemaError(
            f"the columns of the table at {table.store.url} were replaced after this DataFrame or view was "
            f"created: {problem}. Create the DataFrame or the view again"
        )


def _replacement_error(table: TableLocation) -> TableReplacedError:
    return TableReplacedError(
        f"the version of the table at {table.store.url} with which the query was planned was deleted: the "
        "table was replaced or cleaned up since; run the query again"
    )


def _cache(table: TableLocation, snapshot: Snapshot) -> None:
    _snapshots.put(_key(table, snapshot.version, snapshot.identity), replace(snapshot, reader=None))


def _key(table: TableLocation, version: int, identity: str | None) -> tuple[object, ...]:
    """Snapshots are cached for the credentials that they were read with."""
    options = table.options.public()
    return (table.store.cache_scope, version, identity, *sorted(options.values.items()))
