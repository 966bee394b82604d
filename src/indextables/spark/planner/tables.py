"""The table that a request names; the operations `options` and `schema`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indextables.errors import OptionError, StoreError, TableNotFoundError
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options, Where, check_scope
from indextables.options.declare import is_secret
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
    given = dict(request["options"])
    path = given.pop(_PATH, None)
    if not path:
        raise OptionError("no path is given; name the table's folder in load(path), save(path) or LOCATION")
    if path.lower().startswith("memory:"):
        raise StoreError(f"{path} is the memory of one process, but Spark has many; use another store")
    version, moment = given.pop(_VERSION, None), given.pop(_TIMESTAMP, None)
    if version is not None and moment is not None:
        raise OptionError("give versionAsOf or timestampAsOf, not both")
    options = Options.parse(given)
    return TableLocation(
        open_store(path, options),
        options,
        None if version is None else _version(version),
        None if moment is None else _milliseconds(moment, request.get("zone", "UTC")),
    )


def check_options(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Reject options of one read or write that have no effect there; options of the session may."""
    del blobs
    check_scope(request["keys"], {Where(request["scope"])})
    return {}, ()


def schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The schema (`StructType.json`) and the partition columns; neither where there is no table."""
    del blobs
    _check_catalog_options(request.get("kept") or ())
    if "kept" in request and "path" not in request["options"]:
        Options.parse(request["options"])
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
