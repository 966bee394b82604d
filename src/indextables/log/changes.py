"""The changes of versions: the splits whose rows each of them inserted and deleted.

```
add with dataChange     = rows inserted
remove with dataChange  = rows deleted      (the entry of the split is in the version before)
```

A range of changes is read as a snapshot whose splits are the changed ones, with the kind, the version and the
time of the change as partition columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import HistoryExpiredError, ProtocolError, SchemaError, VersionNotFoundError
from indextables.log.format import files as file_lists
from indextables.log.format.actions import (
    COMPANION_FORMAT_KEY,
    REGISTRY_PREFIX,
    Action,
    Add,
    CommitInfo,
    Metadata,
    Remove,
    registry_of,
)
from indextables.log.format.names import Listing
from indextables.log.load import Loader, check_lineage
from indextables.log.segment import reachable, segments_at, version_files
from indextables.log.snapshot import BaseState, Delta, Snapshot
from indextables.records import dataclass
from indextables.schema.spark import column_difference, from_arrow, to_arrow
from indextables.schema.values import format_values

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
INSERT = "insert"
DELETE = "delete"

# The columns that a range of changes has after those of the table.
CHANGE_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
)


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The splits that one version inserted and deleted, in the order of its actions.

    `metadata` is the table's metadata if the version changed it; `timestamp` is in milliseconds since 1970;
    `token` is that of its commit, None for one of another engine.
    """

    version: int
    timestamp: int
    operation: str
    inserted: Sequence[Add]
    deleted: Sequence[Add]
    metadata: Metadata | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The changes of consecutive versions.

    `registry` are the document mappings that their splits refer to; `before` is the metadata of the version
    before them, if one of them changed it.
    """

    versions: list[VersionChanges] = field(default_factory=list)
    registry: Mapping[str, str] = field(default_factory=dict)
    before: Metadata | None = None


def _is_of_companion(action: Action) -> bool:
    match action:
        case Add(companion_source_files=files):
            return files is not None
        case Metadata(configuration=configuration):
            return COMPANION_FORMAT_KEY in (configuration or {})
        case _:
            return False


def companion_changes_error(url: str) -> ProtocolError:
    """The error raised when the changes of a companion index are read, by a query or a stream."""
    return ProtocolError(
        f"{url} is a companion index: its versions replace splits of rows that did not change, so it has no "
        "changes of rows; read the changes of its source"
    )


def read_changes(loader: Loader, listing: Listing, first: int, last: int) -> ChangeRange:
    """The changes of the versions `first` to `last`, which must not be newer than the newest one.

    Raises:
        HistoryExpiredError: the file of a version was deleted, or the version before, which lists a split
            that was removed.
    """
    for version in range(first, last + 1):
        if version not in listing.versions:
            raise _history_error(loader, listing, version)
    versions = loader.versions(version_files(listing, range(first, last + 1)))
    check_lineage(loader.log.url, None, versions)
    if any(_is_of_companion(action) for _, actions in versions for action in actions):
        raise companion_changes_error(loader.log.url.rpartition("/")[0])
    pending = _PendingVersions()
    for version, actions in versions:
        pending.take(version, actions, listing.versions[version].modified_ms)
    return pending.resolve(_Before(loader, listing, first))


def earliest_changes(listing: Listing) -> int | None:
    """The first version from which on the changes of all versions can be read; None if there is none."""
    latest = listing.latest
    if latest is None or latest not in listing.versions:
        return None
    first = latest
    while first - 1 in listing.versions:
        first -= 1
    readable = set(reachable(listing))
    return next((v for v in range(first, latest + 1) if v == 0 or v - 1 in readable), None)


def _history_error(loader: Loader, listing: Listing, version: int) -> HistoryExpiredError:
    latest = listing.latest
    url = loader.log.url.rsplit("/", 1)[0]
    return HistoryExpiredError(url, version, earliest_changes(listing), -1 if latest is None else latest)


class _Before:
    """The version before a range of changes, read when it is needed."""

    def __init__(self, loader: Loader, listing: Listing, first: int) -> None:
        self._loader = loader
        self._listing = listing
        self._first = first
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot | None:
        """The snapshot; None before the first version of a table."""
        if self._first == 0:
            return None
        if self._snapshot is None:
            try:
                segments = segments_at(self._loader.log, self._listing, self._first - 1)
            except VersionNotFoundError:
                raise _history_error(self._loader, self._listing, self._first) from None
            self._snapshot = self._loader.load_first(segments)
        return self._snapshot

    def entries(self, paths: Iterable[str]) -> dict[str, Add]:
        """The live splits of these paths, as actions."""
        snapshot = self.snapshot()
        if snapshot is None:
            return {}
        file_list = snapshot.files()
        entries = file_list.filter(pc.is_in(file_list["path"], value_set=pa.array(list(paths), pa.string())))
        return {add.path: add for add in file_lists.to_adds(entries)}


@dataclass(slots=True)
class _Version:
    """The actions of one version that change rows; the entries of removed splits are looked up later."""

    version: int
    timestamp: int
    operation: str
    added: list[Add]
    removed: list[str]
    foreign: bool
    metadata: Metadata | None
    token: str | None


class _PendingVersions:
    """Versions whose removed splits may have been added before the range."""

    def __init__(self) -> None:
        self._versions: list[_Version] = []
        self._adds: dict[str, Add] = {}

    def take(self, version: int, actions: Sequence[Action], modified_ms: int) -> None:
        """Add the next version."""
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        adds = [a for a in actions if isinstance(a, Add)]
        removes = [a for a in actions if isinstance(a, Remove)]
        both = {a.path for a in adds} & {a.path for a in removes}
        self._versions.append(
            _Version(
                version,
                info.timestamp if info else modified_ms,
                info.operation if info else "",
                [a for a in adds if a.data_change is not False and a.path not in both],
                [a.path for a in removes if a.data_change is not False and a.path not in both],
                info is None,
                next((a for a in actions if isinstance(a, Metadata)), None),
                info.token if info else None,
            )
        )
        self._adds.update({add.path: add for add in adds})

    def resolve(self, before: _Before) -> ChangeRange:
        """The changes, with the entries of removed splits."""
        earlier = {path for v in self._versions for path in v.removed if path not in self._adds}
        earlier |= {add.path for v in self._versions if v.foreign for add in v.added}
        base = before.entries(earlier) if earlier else {}
        live = set(base)
        changes: list[VersionChanges] = []
        registry: dict[str, str] = {}
        metadata = None
        if earlier or any(v.metadata is not None for v in self._versions):
            snapshot = before.snapshot()
            if snapshot is not None:
                registry.update(snapshot.registry)
                metadata = snapshot.metadata
        entries = {**base, **self._adds}
        for each in self._versions:
            registry.update({} if each.metadata is None else registry_of(each.metadata, {}))
            # Another engine may add a split again that is live already.
            added = [a for a in each.added if not (each.foreign and a.path in live)]
            changes.append(
                VersionChanges(
                    each.version,
                    each.timestamp,
                    each.operation,
                    added,
                    [entries[path] for path in each.removed if path in entries],
                    each.metadata,
                    each.token,
                )
            )
            live.update(add.path for add in each.added)
            live.difference_update(each.removed)
        return ChangeRange(changes, registry, metadata)


# --- a range as a snapshot -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedSplits:
    """Splits that one version inserted or deleted: entries of its file, or a file list."""

    kind: str
    version: int
    timestamp: int
    files: Sequence[Add] | pa.Table

    def __len__(self) -> int:
        """The number of splits."""
        return len(self.files)

    @property
    def sizes(self) -> list[int]:
        """The size of each split in bytes."""
        if isinstance(self.files, pa.Table):
            return list(self.files["size"].to_pylist())
        return [add.size for add in self.files]

    def between(self, start: int, end: int) -> "ChangedSplits":
        """Some of the splits, by their positions."""
        if isinstance(self.files, pa.Table):
            return replace(self, files=self.files.slice(start, end - start))
        return replace(self, files=self.files[start:end])


def changed_splits(changes: Iterable[VersionChanges], *, deletes: bool = True) -> list[ChangedSplits]:
    """The changed splits of some versions in order; of one version first those that it deleted."""
    result: list[ChangedSplits] = []
    for each in changes:
        if deletes and each.deleted:
            result.append(ChangedSplits(DELETE, each.version, each.timestamp, each.deleted))
        if each.inserted:
            result.append(ChangedSplits(INSERT, each.version, each.timestamp, each.inserted))
    return result


def are_versions_of(changes: Iterable[VersionChanges], end: Snapshot) -> bool:
    """Whether versions belong to the table of a snapshot, as far as its tokens show."""
    tokens = ((each.token, end.token_at(each.version)) for each in changes)
    return all(token == other for token, other in tokens if token is not None and other is not None)


def check_columns(changes: ChangeRange, end: Snapshot) -> None:
    """Refuse a range in which a column had another type than at its end.

    Raises:
        SchemaError: the message names the column.
    """
    for metadata in (changes.before, *(each.metadata for each in changes.versions)):
        if metadata is None:
            continue
        problem = column_difference(metadata.schema_string, end.metadata.schema_string, dropped=False)
        if problem is not None:
            raise SchemaError(
                f"these changes of the table at {end.url} cannot be read as one table: {problem}; read the "
                "changes before the columns were replaced and those after it one by one"
            )


def snapshot_of_splits(
    end: Snapshot,
    parts: Sequence[ChangedSplits],
    registry: Mapping[str, str],
    *,
    identity: str,
    change_columns: bool,
) -> Snapshot:
    """A snapshot whose splits are the given ones.

    Args:
        end: the version whose columns the rows get.
        parts: the splits.
        registry: the document mappings that the splits refer to, beyond those of `end`.
        identity: what distinguishes it from other snapshots of this kind.
        change_columns: whether it has the columns of `CHANGE_FIELDS`.

    Raises:
        SchemaError: the table has a column of one of these names.
    """
    metadata = _with_registry(end.metadata, {**registry, **end.registry})
    file_list = _file_list(parts)
    if change_columns:
        metadata = change_metadata(metadata, end.url)
        file_list = _with_change_values(file_list, parts)
    base = BaseState(end.version, file_list=file_list)
    return replace(
        end,
        metadata=metadata,
        base=base,
        delta=Delta(),
        identity=f"{end.identity} {identity}",
        fallback=None,
        since=None,
    )


def change_metadata(metadata: Metadata, url: str) -> Metadata:
    """The metadata of a range of changes: the table's columns, and `CHANGE_FIELDS`.

    Raises:
        SchemaError: the table has a column of one of these names.
    """
    schema = to_arrow(metadata.schema_string)
    names = {name.lower() for name in schema.names}
    for own in CHANGE_FIELDS:
        if own.name in names:
            raise SchemaError(
                f"the table at {url} has a column {own.name}, which is the name of a column of its changes; "
                "rename the column to read changes"
            )
        schema = schema.append(own)
    return msgspec.structs.replace(
        metadata,
        schema_string=from_arrow(schema),
        partition_columns=[*(metadata.partition_columns or ()), *(own.name for own in CHANGE_FIELDS)],
    )


def _with_registry(metadata: Metadata, registry: Mapping[str, str]) -> Metadata:
    registered = {REGISTRY_PREFIX + name: text for name, text in registry.items()}
    return msgspec.structs.replace(metadata, configuration={**(metadata.configuration or {}), **registered})


def _file_list(parts: Sequence[ChangedSplits]) -> pa.Table:
    """All splits as one file list; entries of many versions become columns at once."""
    lists = []
    for is_list, group in groupby(parts, key=lambda part: isinstance(part.files, pa.Table)):
        if is_list:
            lists += [part.files for part in group]
            continue
        some = list(group)
        entries = file_lists.from_adds([add for part in some for add in part.files], version=0, timestamp=0)
        for name, values in (
            ("addedAtVersion", _of_each_split(some, [part.version for part in some])),
            ("addedAtTimestamp", _of_each_split(some, [part.timestamp for part in some])),
        ):
            place = entries.schema.get_field_index(name)
            entries = entries.set_column(place, entries.schema.field(place), values)
        lists.append(file_lists.with_unescaped_partitions(entries))
    return pa.concat_tables(lists) if lists else file_lists.empty()


def _of_each_split(parts: Sequence[ChangedSplits], values: Sequence[int]) -> pa.Array:
    """For each split the value of its part."""
    return pa.array(np.repeat(np.array(values, np.int64), [len(part) for part in parts]))


def _with_change_values(files: pa.Table, parts: Sequence[ChangedSplits]) -> pa.Table:
    """A file list with the values of `CHANGE_FIELDS` as partition values."""
    moments = pa.array([part.timestamp * 1000 for part in parts], CHANGE_FIELDS[2].type)
    texts = format_values(moments, partition=True).to_pylist() if parts else []
    changes = [
        {CHANGE_TYPE: part.kind, COMMIT_VERSION: str(part.version), COMMIT_TIMESTAMP: text}
        for part, text in zip(parts, texts, strict=True)
        for _ in range(len(part))
    ]
    column = files["partitionValues"]
    values = [
        list({**dict(entry or ()), **own}.items())
        for entry, own in zip(column.to_pylist(), changes, strict=True)
    ]
    place = files.schema.get_field_index("partitionValues")
    return files.set_column(place, files.schema.field(place), pa.array(values, column.type))
