"""The table that a request is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indextables.errors import OptionError, StoreError
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options, Where, check_scope
from indextables.predicate.times import micros_of
from indextables.store import Store, open_store
from indextables.version import ENGINE

_PATH = "path"
_VERSION = "versionasof"
_TIMESTAMP = "timestampasof"
# Keys that say where a table is, and which version of it.
ADDRESS = frozenset({_PATH, _VERSION, _TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Addressed:
    """A table's place, and the options that came with the request."""

    store: Store
    options: Options
    version: int | None = None
    timestamp_ms: int | None = None

    @property
    def log(self) -> TransactionLog:
        """Its log."""
        return TransactionLog(self.store, self.options, engine=ENGINE)

    def snapshot(self) -> Snapshot:
        """The version that is asked for; the newest if none is."""
        return self.log.snapshot(version=self.version, timestamp=self.timestamp_ms)


def addressed(request: Mapping[str, Any]) -> Addressed:
    """The table that the request's options name: `path`, and options of ours."""
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
    return Addressed(
        open_store(path, options),
        options,
        None if version is None else _version(version),
        None if moment is None else _milliseconds(moment, request.get("zone", "UTC")),
    )


def check_options(
    request: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """Refuse options of one read or write that have no effect there; those of a session may be there."""
    del blobs
    check_scope(request["keys"], {Where(request["scope"])})
    return {}, ()


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"versionAsOf is '{text}', but a version is a whole number from 0 on")
    return int(text)


def _milliseconds(text: str, zone: str) -> int:
    """A moment in the session's time zone; no version is later than it."""
    micros = micros_of(text, zone)
    if micros is None:
        raise OptionError(
            f"timestampAsOf is '{text}', but a date and time such as 2024-05-01 or 2024-05-01 12:00:00 "
            "is expected"
        )
    return micros // 1000
