"""The snapshot that a query reads; the operation `snapshot`, which selects it."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from indextables.errors import SchemaError, TableNotFoundError, TableReplacedError, VersionNotFoundError
from indextables.log.snapshot import Snapshot
from indextables.spark.planner.tables import TableLocation, locate_table

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
        found = table.snapshot()
    except TableNotFoundError:
        if not request.get("named"):
            raise
        return {"url": table.store.url, "version": NO_LOG}, ()
    _cache(table, found)
    return {"url": table.store.url, "version": found.version, "identity": found.identity}, ()


def pinned_snapshot(table: TableLocation, request: Mapping[str, Any]) -> Snapshot | None:
    """The snapshot that a request names; None if the table had no log when the query was planned."""
    pin = request.get("snapshot")
    if pin is None:
        return table.snapshot()
    version, identity = pin["version"], pin.get("identity")
    if version == NO_LOG:
        return None
    key = _key(table, version, identity)
    if (known := _snapshots.get(key)) is not None:
        _snapshots.move_to_end(key)
        return table.log.adopt(known)
    found = table.snapshot()
    if (found.version, found.identity) != (version, identity):
        try:
            found = table.log.snapshot(version=version)
        except VersionNotFoundError:
            raise _replaced(table) from None
    if found.identity != identity:
        raise _replaced(table)
    _cache(table, found)
    return found


def check_columns(table: TableLocation, found: Snapshot, expected: str | None) -> None:
    """Reject a query whose columns (`StructType.json`) are no longer those of the table.

    Raises:
        SchemaError: A column was dropped, or has another type.
    """
    if expected is None or expected == found.metadata.schema_string:
        return
    columns = {
        field["name"]: _plain(field["type"]) for field in json.loads(found.metadata.schema_string)["fields"]
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


def _cache(table: TableLocation, found: Snapshot) -> None:
    key = _key(table, found.version, found.identity)
    _snapshots[key] = replace(found, reader=None)
    _snapshots.move_to_end(key)
    while len(_snapshots) > _MAX_CACHED:
        _snapshots.popitem(last=False)


def _key(table: TableLocation, version: int, identity: str | None) -> tuple[object, ...]:
    """Snapshots are cached for the credentials that they were read with."""
    options = table.options.public()
    return (table.store.cache_scope, version, identity, *sorted(options.values.items()))


def _plain(given: Any) -> Any:  # noqa: ANN401 - JSON
    """A type without nullability and comments, which do not change its values."""
    if not isinstance(given, dict):
        return given
    match given.get("type"):
        case "struct":
            return ["struct", *([field["name"], _plain(field["type"])] for field in given["fields"])]
        case "array":
            return ["array", _plain(given["elementType"])]
        case "map":
            return ["map", _plain(given["keyType"]), _plain(given["valueType"])]
        case _:
            pass
    return given


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
