"""The history of a table, from the files of its log.

It gives the commits of the versions, the actions of each file, the changes since a version, the outcome of a
commit, and the splits that any version refers to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, VersionNotFoundError
from indextables.log.format.actions import Action, Add, CommitInfo, Metadata, Remove
from indextables.log.format.checkpoint_files import checkpoint_file, read_checkpoint
from indextables.log.format.files import to_adds
from indextables.log.format.manifest import read_manifest
from indextables.log.format.names import Listing, version_file
from indextables.log.format.state_manifest import (
    StateManifest,
    decode_header,
    decode_state,
    resolve_manifest_path,
)
from indextables.log.load import Loader
from indextables.log.retention import ExpiredFiles, late_states
from indextables.log.segment import (
    Base,
    LogSegment,
    VersionFile,
    bases,
    earliest,
    full_listing,
    reachable,
    segment_at,
    stamp_of,
    version_files,
)
from indextables.log.snapshot import Delta, Snapshot
from indextables.records import dataclass


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The commit of one version: its time, operation, parameters and metrics.

    Versions of other engines have no such record; their time is that of the file, and the operation is
    inferred from the actions.
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
    """The commits of the versions that can still be read, newest first."""
    versions = sorted({*listing.versions, *listing.states, *listing.checkpoints}, reverse=True)[:limit]
    files = [VersionFile(v, stamp_of(listing.versions[v])) for v in versions if v in listing.versions]
    actions = dict(loader.versions(files))
    return [_entry(loader, listing, version, actions.get(version)) for version in versions]


def history_table(entries: Sequence[HistoryEntry]) -> pa.Table:
    """The entries of a history, one per row."""
    texts = pa.map_(pa.string(), pa.string())
    counts = pa.map_(pa.string(), pa.int64())
    return pa.table(
        {
            "version": pa.array([e.version for e in entries], pa.int64()),
            "timestamp": pa.array([e.timestamp for e in entries], pa.timestamp("ms", tz="UTC")),
            "operation": pa.array([e.operation for e in entries], pa.string()),
            "parameters": pa.array([list(e.parameters.items()) for e in entries], texts),
            "metrics": pa.array([list(e.metrics.items()) for e in entries], counts),
            "engine": pa.array([e.engine for e in entries], pa.string()),
            "user_metadata": pa.array([e.user_metadata for e in entries], pa.string()),
            "token": pa.array([e.token for e in entries], pa.string()),
        }
    )


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
            f"the version of {_time_text(timestamp)}",
            earliest(listing),
            listing.latest if listing.latest is not None else -1,
        )
    return versions[low - 1]


def commit_time(loader: Loader, listing: Listing, version: int) -> int:
    """The time of a version: that of its commit, else that of its file."""
    if (info := listing.versions.get(version)) is not None:
        for action in loader.version(VersionFile(version, stamp_of(info))):
            if isinstance(action, CommitInfo):
                return action.timestamp
        return info.modified_ms
    if (info := listing.states.get(version)) is not None:
        base = Base(version, info.path, is_state=True, stamp=stamp_of(info))
        state = loader.state(base)
        header = loader.header(base, state)
        return (header.timestamp if header else None) or state.created_at
    info = listing.checkpoints[version]
    base = Base(version, info.path, is_state=False, stamp=stamp_of(info))
    return loader.load(LogSegment(version, base, ())).timestamp or info.modified_ms


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


def _time_text(timestamp: int) -> str:
    """A time as date and time; as a number if it is outside of the calendar's range."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} milliseconds since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


# How many version files are read at a time, to bound the memory for their actions.
_SLICE = 256


@dataclass(frozen=True, slots=True)
class LogFileActions:
    """The actions of one file of the log; for a state or checkpoint, those that describe its version."""

    version: int
    path: str
    actions: list[Action]
    is_checkpoint: bool


def log_file_actions(loader: Loader, listing: Listing, *, everything: bool) -> Iterator[LogFileActions]:
    """The actions of the newest base and the versions after it; or of every version file."""
    if everything:
        versions = sorted(listing.versions)
    else:
        segment = segment_at(loader.log, listing, None)
        if segment.base is not None:
            start = LogSegment(segment.base.version, segment.base, ())
            yield LogFileActions(
                segment.base.version, segment.base.path, _of_base(loader, start), is_checkpoint=True
            )
        versions = [file.version for file in segment.versions]
    for start_at in range(0, len(versions), _SLICE):
        numbers = versions[start_at : start_at + _SLICE]
        files = [file for v in numbers for file in version_files(listing, range(v, v + 1))]
        for version, actions in loader.versions(files):
            yield LogFileActions(version, version_file(version), actions, is_checkpoint=False)


def _of_base(loader: Loader, segment: LogSegment) -> list[Action]:
    snapshot = loader.load(segment)
    return [snapshot.protocol, snapshot.metadata, *snapshot.skips.values(), *to_adds(snapshot.files())]


@dataclass(frozen=True, slots=True)
class Changes:
    """The net change between two versions.

    `added` lists the splits that are live now and were not then, as a file list; `removed` lists the paths
    that were live then and are not now. Splits that were both added and removed in between are in neither. A
    merge appears as added and removed splits whose `dataChange` is false.
    """

    since: int
    version: int
    added: pa.Table
    removed: pa.Array


def changes_since(loader: Loader, listing: Listing, since: int, now: Snapshot) -> Changes:
    """The changes after version `since` (-1: from the empty table), up to a snapshot.

    If all version files in between exist, only they are read. Otherwise the two file lists are compared.
    """
    if not -1 <= since <= now.version:
        raise VersionNotFoundError(now.url, f"version {since}", earliest(listing), now.version)
    between = range(since + 1, now.version + 1)
    if all(version in listing.versions for version in between):
        delta = Delta().then(loader.versions(version_files(listing, between)))
        removed = [p for p in delta.removed if p not in delta.fresh and p not in delta.added]
        added = delta.files()
        added = added.filter(pc.is_in(added["path"], value_set=pa.array(list(delta.fresh), pa.string())))
        return Changes(since, now.version, added, pa.array(removed, pa.string()))
    then = loader.load(segment_at(loader.log, listing, since)).files()
    live = now.files()
    added = live.filter(pc.invert(pc.is_in(live["path"], value_set=_paths(then))))
    removals = then.filter(pc.invert(pc.is_in(then["path"], value_set=_paths(live))))
    return Changes(since, now.version, added, _paths(removals))


def _paths(file_list: pa.Table) -> pa.Array:
    return file_list["path"].combine_chunks()


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a commit.

    `committed` is true if the commit is in the table, as `version`. It is false if the commit is
    certainly absent: another commit has its version. It is None while its version does not exist: the request
    may still arrive. After any other commit the outcome is known.
    """

    committed: bool | None
    version: int | None = None


def commit_outcome(loader: Loader, listing: Listing, token: str, version: int | None) -> CommitOutcome:
    """Look for a token in the lineages of states and in version files."""
    occupied = False
    newest = -1
    for base in bases(listing):
        if loader.is_of_this_table(base) is False:
            continue  # a killed process left it in a table that was created again
        newest = max(newest, base.version)
        for steps, commit_token in enumerate(reversed(loader.lineage_of(base))):
            if commit_token == token:
                return CommitOutcome(committed=True, version=base.version - steps)
            occupied = occupied or (commit_token is not None and base.version - steps == version)
    if occupied:
        return CommitOutcome(committed=False)
    # Up to the newest base, only the version in question: lineages do not reach to earlier ones.
    numbers = sorted(v for v in listing.versions if version is None or v > newest or v == version)
    for start in range(0, len(numbers), _SLICE):
        files = [f for v in numbers[start : start + _SLICE] for f in version_files(listing, range(v, v + 1))]
        for number, actions in loader.versions(files):
            if any(isinstance(a, CommitInfo) and a.token == token for a in actions):
                return CommitOutcome(committed=True, version=number)
    is_other_commit = version is not None and version > newest and version in listing.versions
    return CommitOutcome(committed=False if is_other_commit else None)


def referenced_splits(loader: Loader, listing: Listing, deletions: ExpiredFiles) -> pa.Array:
    """The paths of all splits that are live at a version that is readable after `deletions` are deleted.

    A version is read from a state or checkpoint and the version files after it. So these are the splits that
    are live at a state or checkpoint, and those that a version file adds. A file that cannot be read is an
    error: the splits that it refers to are unknown. A state whose manifests are missing, and a checkpoint
    that is damaged, are left out if other files describe their version.
    """
    parts = [*_by_states(loader, listing, deletions), *_by_checkpoints(loader, listing, deletions)]
    rest = sorted(set(listing.versions) - set(deletions.versions))
    for start in range(0, len(rest), _SLICE):
        files = [f for v in rest[start : start + _SLICE] for f in version_files(listing, range(v, v + 1))]
        parts += [_added_paths(actions) for _, actions in loader.versions(files)]
    if not parts:
        return pa.array([], pa.string())
    return pc.unique(pa.chunked_array(parts, pa.string()))


def _by_states(loader: Loader, listing: Listing, deletions: ExpiredFiles) -> Iterable[pa.Array]:
    """The entries of all manifests, except those that every state that refers to them has a tombstone for."""
    infos = [(v, info) for v, info in listing.states.items() if v not in deletions.states]
    if listing.misfiled is not None and listing.misfiled.path not in deletions.leading:
        infos.append((0, listing.misfiled))
    hidden: dict[str, set[str]] = {}
    entries: dict[str, int] = {}
    for version, info in infos:
        if info is listing.misfiled:
            state = decode_state(loader.get(info.path), f"{loader.log.url}/{info.path}")
        else:
            state = loader.state(Base(version, info.path, is_state=True, stamp=stamp_of(info)))
        folder = info.path.rsplit("/", 1)[0]
        manifests = {resolve_manifest_path(m.path, folder): m.num_entries for m in state.manifests}
        if any(path not in listing.manifests and not loader.log.exists(path) for path in manifests):
            yield _by_other_base(loader, Base(version, info.path, is_state=True, stamp=stamp_of(info)), state)
            continue
        tombstones = set(state.tombstones)
        for path, count in manifests.items():
            hidden[path] = hidden[path] & tombstones if path in hidden else tombstones
            entries[path] = count
    for path, count in entries.items():
        paths = read_manifest(loader.log, path, entries=count, columns=["path"])["path"].combine_chunks()
        if hidden[path]:
            hidden_paths = pa.array(list(hidden[path]), pa.string())
            paths = paths.filter(pc.invert(pc.is_in(paths, value_set=hidden_paths)))
        yield paths


def _by_other_base(loader: Loader, base: Base, state: StateManifest) -> pa.Array:
    """The splits that are live at the version of a state whose manifests are gone.

    A checkpoint leaves such a state if the one that it extends was deleted before it appeared; nobody relies
    on it (PROTOCOL.md, "Retention"). Its token shows that other files describe the same version. There are
    none, and no splits, if the version was cleaned up before the state appeared. If it is of another table,
    the other files describe a version of this one.
    """
    version, path = base.version, base.path
    url = f"{loader.log.url}/{path}"
    header = decode_header(state.extra, url)
    token = header.own_token if header else None
    missing = CorruptLogError(url, "a manifest that the state refers to is missing")
    if token is None:
        raise missing
    if loader.is_of_this_table(base, state) is False:
        own = loader.commit_of(version)
        token = own.token if own else None
        if not token:
            raise missing
    try:
        return loader.reload(version, token, (path,)).files()["path"].combine_chunks()
    except VersionNotFoundError:
        raise missing from None  # cleaned up since it was listed: the caller lists again
    except CorruptLogError:
        if version in late_states(loader, full_listing(loader.log)):
            return pa.array([], pa.string())
        raise


def _by_checkpoints(loader: Loader, listing: Listing, deletions: ExpiredFiles) -> Iterable[pa.Array]:
    for version in sorted(set(listing.checkpoints) - set(deletions.checkpoints)):
        try:
            actions = read_checkpoint(loader.log, version)
        except CorruptLogError as problem:
            yield _by_version_file(loader, version, problem)
        else:
            yield _added_paths(actions)


def _by_version_file(loader: Loader, version: int, problem: CorruptLogError) -> pa.Array:
    """The splits that are live at the version of a JSON checkpoint that cannot be read.

    Its writer may have been so slow that a cleaning took its parts for those of a writer that died. The file
    of the version describes the same splits if the next version follows it; otherwise it may be that of a
    commit which came after the version was cleaned up.
    """
    own, after = loader.commit_of(version), loader.commit_of(version + 1)
    if own is None or not own.token or after is None or after.base_token != own.token:
        raise problem
    try:
        return loader.reload(version, own.token, (checkpoint_file(version),)).files()["path"].combine_chunks()
    except VersionNotFoundError:
        raise problem from None  # cleaned up since it was listed: the caller lists again


def _added_paths(actions: Iterable[Action]) -> pa.Array:
    return pa.array([action.path for action in actions if isinstance(action, Add)], pa.string())
