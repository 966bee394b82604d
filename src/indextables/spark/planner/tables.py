"""Tables of requests, and snapshots of queries: the operations `options`, `schema` and `snapshot`."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from indextables.errors import (
    OptionError,
    SchemaError,
    StoreError,
    TableNotFoundError,
    TableReplacedError,
    VersionNotFoundError,
)
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options, Where, check_scope, cloud
from indextables.options.declare import is_secret, plain_key
from indextables.schema.calendar import parse_timestamp_literal
from indextables.store import Store, open_store
from indextables.version import ENGINE

_PATH = "path"
_VERSION = "versionasof"
_TIMESTAMP = "timestampasof"
# Options that name a table and its version.
LOCATION_OPTIONS = frozenset({_PATH, _VERSION, _TIMESTAMP})


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table is, the version to read, and the options of the request."""

    store: Store
    options: Options
    version: int | None = None
    timestamp_ms: int | None = None

    @property
    def log(self) -> TransactionLog:
        """The table's log."""
        return TransactionLog(self.store, self.options, engine=ENGINE)

    def snapshot(self) -> Snapshot:
        """The version of the request; by default the newest."""
        return self.log.snapshot(version=self.version, timestamp=self.timestamp_ms)


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
        None if moment is None else _milliseconds(moment, request.get("zone", "UTC")),
    )


def session_options(raw: Mapping[str, str]) -> Options:
    """The options of a request; keys of Hadoop's configuration that have no counterpart are left out.

    Raises:
        OptionError: An option is unknown or malformed.
    """
    return Options.parse(
        {key: value for key, value in raw.items() if not _is_hadoop(key) or cloud.hadoop_key(key)}
    )


def _is_hadoop(key: str) -> bool:
    return key.startswith("fs.")


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
    check_scope(keys, {Where(request["scope"])})
    return {}, ()


def schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The schema (`StructType.json`) and the partition columns; neither where there is no table."""
    del blobs
    _check_catalog_options(request.get("kept") or ())
    if "kept" in request and "path" not in request["options"]:
        session_options(request["options"])
        return {}, ()
    table = locate_table(request)
    try:
        snapshot = table.snapshot()
    except TableNotFoundError:
        return {"url": table.store.url}, ()
    return {
        "url": table.store.url,
        "schema": snapshot.metadata.schema_string,
        "partitions": list(snapshot.partition_columns),
        "version": snapshot.version,
    }, ()


def _check_catalog_options(keys: Iterable[str]) -> None:
    """Reject secrets, which a catalog would show to everyone."""
    if secret := sorted(key for key in keys if is_secret(key)):
        raise OptionError(
            f"the catalog would keep {', '.join(secret)} in clear text; give it as a session conf "
            f"(spark.indextables.{secret[0]}) or as an option of each read and write instead"
        )


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"versionAsOf is '{text}', but a version is a whole number from 0 on")
    return int(text)


def _milliseconds(text: str, zone: str) -> int:
    """A timestamp in the session's time zone, in milliseconds."""
    micros = parse_timestamp_literal(text, zone)
    if micros is None:
        raise OptionError(
            f"timestampAsOf is '{text}', but a date and time such as 2024-05-01 or 2024-05-01 12:00:00 "
            "is expected"
        )
    return micros // 1000


# The version of a table that is in a catalog but has no log yet.
NO_LOG = -1

# Without their readers: the cache holds neither open files nor credentials.
_MAX_CACHED = 16
_snapshots: OrderedDict[tuple[object, ...], Snapshot] = OrderedDict()


def snapshot(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The version that a query reads: the newest, or the one that its options name."""
    del blobs
    table = locate_table(request)
    try:
        current = table.snapshot()
    except TableNotFoundError:
        if not request.get("named"):
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
        _snapshots.move_to_end(key)
        return table.log.adopt(cached)
    result = table.snapshot()
    if (result.version, result.identity) != (version, identity):
        try:
            result = table.log.snapshot(version=version)
        except VersionNotFoundError:
            raise _replaced(table) from None
    if result.identity != identity:
        raise _replaced(table)
    _cache(table, result)
    return result


def check_columns(table: TableLocation, snapshot: Snapshot, expected: str | None) -> None:
    """Reject a query whose columns (`StructType.json`) are no longer those of the table.

    Raises:
        SchemaError: A column was dropped, or has another type.
    """
    if expected is None or expected == snapshot.metadata.schema_string:
        return
    columns = {
        field["name"]: _plain(field["type"])
        for field in json.loads(snapshot.metadata.schema_string)["fields"]
    }
    for field in json.loads(expected)["fields"]:
        name, before = field["name"], _plain(field["type"])
        if name not in columns:
            problem = f"the column {name} is not in the table any more"
        elif columns[name] != before:
            problem = f"the column {name} was {_name(before)} and is {_name(columns[name])} now"
        else:
            continue
        raise SchemaError(
            f"the columns of the table at {table.store.url} were replaced after this DataFrame or view was "
            f"created: {problem}. Create the DataFrame or the view again"
        )


def _replaced(table: TableLocation) -> TableReplacedError:
    return TableReplacedError(
        f"the version of the table at {table.store.url} that the query was planned with is gone: the "
        "table was replaced or cleaned up since; run the query again"
    )


def _cache(table: TableLocation, snapshot: Snapshot) -> None:
    key = _key(table, snapshot.version, snapshot.identity)
    _snapshots[key] = replace(snapshot, reader=None)
    _snapshots.move_to_end(key)
    while len(_snapshots) > _MAX_CACHED:
        _snapshots.popitem(last=False)


def _key(table: TableLocation, version: int, identity: str | None) -> tuple[object, ...]:
    """Snapshots are cached for the credentials that they were read with."""
    options = table.options.public()
    return (table.store.cache_scope, version, identity, *sorted(options.values.items()))


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A type without nullability and comments, which do not change its values."""
    if not isinstance(value, dict):
        return value
    match value.get("type"):
        case "struct":
            return ["struct", *([field["name"], _plain(field["type"])] for field in value["fields"])]
        case "array":
            return ["array", _plain(value["elementType"])]
        case "map":
            return ["map", _plain(value["keyType"]), _plain(value["valueType"])]
        case _:
            pass
    return value


def _name(plain: Any) -> str:  # noqa: ANN401 - JSON
    match plain:
        case ["struct", *fields]:
            return f"struct<{', '.join(f'{name}: {_name(kind)}' for name, kind in fields)}>"
        case ["array", element]:
            return f"array<{_name(element)}>"
        case ["map", key, value]:
            return f"map<{_name(key)}, {_name(value)}>"
        case _:
            pass
    return str(plain)
