"""What was done to a table, version by version, and which version a time means."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from indextables.errors import VersionNotFoundError
from indextables.log.format.actions import Action, Add, CommitInfo, Metadata, Remove
from indextables.log.format.names import Listing
from indextables.log.load import Loader
from indextables.log.segment import Base, Segment, VersionFile, earliest, reachable, stamp_of


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version: when, what, with which parameters and counts.

    Versions of other engines carry no such record; for them the time is that of the file, and the
    operation is what the actions show.
    """

    version: int
    timestamp: int
    operation: str
    parameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    engine: str | None = None
    user_metadata: str | None = None
    token: str | None = None


def history(loader: Loader, listing: Listing, limit: int | None = None) -> list[HistoryEntry]:
    """The versions that are still known, newest first."""
    known = sorted({*listing.versions, *listing.states, *listing.checkpoints}, reverse=True)[:limit]
    files = [VersionFile(v, stamp_of(listing.versions[v])) for v in known if v in listing.versions]
    actions = dict(loader.versions(files))
    return [_entry(loader, listing, version, actions.get(version)) for version in known]


def version_at(loader: Loader, listing: Listing, timestamp: int) -> int:
    """The newest version that was committed at that time or before it (milliseconds since 1970)."""
    versions = list(reachable(listing))
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        if commit_time(loader, listing, versions[middle]) <= timestamp:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        raise VersionNotFoundError(
            loader.log.url.rsplit("/", 1)[0],
            f"the version of {_told(timestamp)}",
            earliest(listing),
            listing.latest if listing.latest is not None else -1,
        )
    return versions[low - 1]


def commit_time(loader: Loader, listing: Listing, version: int) -> int:
    """When a version was committed: as its commit says, else as its file's time says."""
    if (info := listing.versions.get(version)) is not None:
        for action in loader.version(VersionFile(version, stamp_of(info))):
            if isinstance(action, CommitInfo):
                return action.timestamp
        return info.modified_ms
    if (info := listing.states.get(version)) is not None:
        base = Base(version, info.path, is_state=True, stamp=stamp_of(info))
        state = loader.state(base)
        carried = loader.carried(base, state)
        return (carried.timestamp if carried else None) or state.created_at
    info = listing.checkpoints[version]
    base = Base(version, info.path, is_state=False, stamp=stamp_of(info))
    return loader.load(Segment(version, base, ())).timestamp or info.modified_ms


def _entry(loader: Loader, listing: Listing, version: int, actions: Sequence[Action] | None) -> HistoryEntry:
    if actions is None:
        return HistoryEntry(version, commit_time(loader, listing, version), "STATE")
    info = next((a for a in actions if isinstance(a, CommitInfo)), None)
    if info is None:
        return HistoryEntry(version, listing.versions[version].modified_ms, _shown_by(actions))
    return HistoryEntry(
        version,
        info.timestamp,
        info.operation,
        info.operation_parameters,
        info.operation_metrics,
        info.engine,
        info.user_metadata,
        info.token,
    )


def _shown_by(actions: Sequence[Action]) -> str:
    adds = any(isinstance(a, Add) for a in actions)
    removes = [a for a in actions if isinstance(a, Remove)]
    if adds and removes:
        return "OVERWRITE" if all(r.data_change is not False for r in removes) else "MERGE SPLITS"
    if adds:
        return "WRITE"
    if removes:
        return "DELETE"
    return "CREATE TABLE" if any(isinstance(a, Metadata) for a in actions) else "UNKNOWN"


def _told(timestamp: int) -> str:
    """A time as people write it, or its number if no calendar reaches so far."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} milliseconds since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
