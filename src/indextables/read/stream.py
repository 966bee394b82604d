"""A table as a streaming source: offsets, and the splits between two of them.

```
initial snapshot, split by split ─► changes of version n+1, split by split ─► of n+2 ─► ...
```

There is no state between calls. The splits of an offset are determined by the log alone, so a stream that
restarts from a checkpoint reads the same splits.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

import msgspec

from indextables.cache import Cache
from indextables.errors import (
    HistoryExpiredError,
    IndexTablesError,
    OptionError,
    SchemaError,
    VersionNotFoundError,
)
from indextables.log.changes import (
    INSERT,
    ChangedSplits,
    VersionChanges,
    are_versions_of,
    changed_splits,
    companion_changes_error,
    snapshot_of_splits,
)
from indextables.log.format.actions import is_companion
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options, reading
from indextables.records import dataclass
from indextables.schema.spark import column_difference

# How many versions are read at a time.
_WINDOW = 100
# The maximum number of versions for which the backlog is counted.
_MAX_COUNTED_VERSIONS = 1000
# The number and the size of the splits of versions, for the backlogs of a few streams.
_counts: Cache[tuple[object, int], tuple[int, int]] = Cache(10 * _MAX_COUNTED_VERSIONS)


class StreamError(IndexTablesError):
    """A stream from a table cannot continue; the message names options with which it can."""


# A version, or a number of splits.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the stream: all splits before it were read.

    Attributes:
        table: the id of the table, to detect another table at the same place.
        version: the version to read next.
        index: the number of splits of that version that were read already.
        initial: whether all splits of the table at that version are read, not only those that it changed.
        first: the version at which the stream started.
        whole: whether it started with all splits of that version.

    Spark stores the end of each micro-batch, but not the start of the first one: when it repeats that batch,
    it requests the initial offset again, and the table may have changed since. So every offset includes the
    start.
    """

    table: str
    version: Count
    index: Count
    initial: bool
    first: Count
    whole: bool

    @property
    def origin(self) -> "Offset":
        """The offset at which the stream started."""
        return Offset.start(self.table, self.first, whole=self.whole)

    @classmethod
    def start(cls, table: str, version: int, *, whole: bool = False) -> "Offset":
        """The offset at which a stream starts: with all splits of a version, or with its changes."""
        return cls(table, version, 0, whole, version, whole)

    def to_json(self) -> str:
        """The offset as JSON, which Spark stores; equal offsets have equal texts."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Offset":
        """The inverse of `to_json`.

        Raises:
            StreamError: the text is no offset.
        """
        try:
            return msgspec.json.decode(text, type=Offset, strict=True)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise StreamError(
                f"this is no offset of a stream from a table of indextables ({error}): {text[:200]}; the "
                "checkpoint location belongs to another source, or is damaged"
            ) from error


@dataclass(frozen=True, slots=True)
class Backlog:
    """The versions and splits that a stream has not read yet; at most a thousand versions are counted."""

    splits: int = 0
    size: int = 0
    versions: int = 0


@dataclass(frozen=True, slots=True)
class _Unit:
    """The splits of one version in the order of the stream; none of versions whose files were deleted.

    `following` is the version that comes next, if it is not the one after that of `offset`.
    """

    offset: Offset
    parts: Sequence[ChangedSplits]
    following: int | None = None
    is_lost: bool = False

    @property
    def sizes(self) -> list[int]:
        return [size for part in self.parts for size in part.sizes]

    def after(self) -> Offset:
        """The offset after all its splits."""
        version = self.offset.version + 1 if self.following is None else self.following
        return replace(self.offset, version=version, index=0, initial=False)

    def between(self, start: int, end: int | None) -> list[ChangedSplits]:
        """Some of its splits, by their positions."""
        units = []
        place = 0
        for part in self.parts:
            first, last = max(start - place, 0), len(part) if end is None else min(end - place, len(part))
            if first < last:
                units.append(part.between(first, last))
            place += len(part)
        return units


class TableStream:
    """Offsets and splits of one stream."""

    def __init__(self, log: TransactionLog, options: Options, schema: str | None = None) -> None:
        """Describe a stream.

        Args:
            log: the table.
            options: options of the stream: its start, rate limits, and the handling of deleted rows.
            schema: the columns of the stream (`StructType.json`).
        """
        self._log = log
        self._options = options
        self._schema = schema
        self._changes = options.get(reading.READ_CHANGES)
        self._registry: dict[str, str] = {}

    def start(self, first: int | None) -> Offset:
        """The offset at which a new stream starts.

        Args:
            first: the first version whose changes are read; None for all rows of the newest version first.

        Raises:
            OptionError: the version is neither in the table nor the next one.
            ProtocolError: the table is a companion index.
        """
        newest = self._log.snapshot()
        if is_companion(newest.protocol):
            raise companion_changes_error(newest.url)
        if first is None:
            return Offset.start(newest.metadata.id, newest.version, whole=True)
        if first > newest.version + 1:
            raise OptionError(
                f"a stream cannot start at version {first} of the table at {newest.url}, whose newest "
                f"version is {newest.version}; choose an earlier one, or latest"
            )
        return Offset.start(newest.metadata.id, first)

    def end(self, newest: Snapshot | None = None) -> Offset:
        """The offset after the newest version; `newest` is that version, if it was read already."""
        newest = newest or self._log.snapshot()
        return Offset.start(newest.metadata.id, newest.version + 1)

    def progress(
        self, start: Offset, *, unlimited: bool = False, until: int | None = None
    ) -> tuple[Offset, Offset, Backlog]:
        """The results of `latest`, `end` and `backlog` after the latest offset, from one snapshot."""
        newest = self._log.snapshot()
        latest = self.latest(start, unlimited=unlimited, until=until, newest=newest)
        return latest, self.end(newest), self.backlog(latest, newest)

    def latest(
        self,
        start: Offset,
        *,
        unlimited: bool = False,
        until: int | None = None,
        newest: Snapshot | None = None,
    ) -> Offset:
        """The offset at which the next micro-batch ends; `start` itself if there is nothing new.

        Args:
            start: where it begins.
            unlimited: whether the limits of the options are ignored.
            until: the last version to read; by default the newest one.
            newest: the newest version, if it was read already.

        Raises:
            StreamError: a version deleted or replaced rows, or cannot be read any more, or the table is
                another one.
            SchemaError: a version changed the columns.
        """
        files = None if unlimited else self._options.get(reading.MAX_FILES)
        size = None if unlimited else self._options.get(reading.MAX_BYTES)
        versions = None if unlimited else self._options.get(reading.MAX_VERSIONS)
        if start.initial and until is not None:
            # The start is later than `until` if a version was committed after `until` was determined.
            until = max(until, start.version)
        end = start
        count = total_size = 0
        try:
            for number, unit in enumerate(self._units(start, until, newest)):
                if number == versions:
                    break
                sizes = unit.sizes
                for place in range(unit.offset.index, len(sizes)):
                    full = count == files
                    if full or (size is not None and count and total_size + sizes[place] > size):
                        return replace(unit.offset, index=place) if place > unit.offset.index else end
                    count += 1
                    total_size += sizes[place]
                end = unit.after()
        except (StreamError, SchemaError):
            # Versions before the one that stops the stream are read first.
            if end == start:
                raise
        return end

    def backlog(self, offset: Offset, newest: Snapshot | None = None) -> Backlog:
        """The backlog after an offset; includes versions that stop the stream."""
        lenient = TableStream(self._log, _lenient(self._options))
        versions = lenient._sizes_by_version(offset, newest or self._log.snapshot())
        counted = list(islice(versions, _MAX_COUNTED_VERSIONS))
        return Backlog(sum(splits for splits, _ in counted), sum(size for _, size in counted), len(counted))

    def _sizes_by_version(self, position: Offset, newest: Snapshot) -> Iterator[tuple[int, int]]:
        """The number and the size of the splits of each version from an offset on that can be read.

        A stream that is far behind needs those of many versions at every micro-batch: they are cached.
        """
        scope = self._log.store.cache_scope, position.table, self._selection()
        while position.version <= newest.version:
            whole = not (position.index or position.initial)
            if whole and (cached := _counts.get((scope, position.version))) is not None:
                yield cached
                position = replace(position, version=position.version + 1)
                continue
            for unit in self._units(position, min(position.version + _WINDOW - 1, newest.version), newest):
                sizes = unit.sizes[unit.offset.index :]
                counts = len(sizes), sum(sizes)
                position = unit.after()
                if unit.is_lost:
                    continue
                if not (unit.offset.index or unit.offset.initial):
                    _counts.put((scope, unit.offset.version), counts)
                yield counts

    def snapshot(self, start: Offset, end: Offset, newest: Snapshot | None = None) -> Snapshot:
        """The splits between two offsets, as a snapshot; `newest` is the newest version, if it was read.

        If they belong to different streams, Spark computed the initial offset again, and the batch is the
        first one of the stream of `end`.
        """
        newest = newest or self._log.snapshot()
        self._check_table(end, newest)
        start = start if start.origin == end.origin else end.origin
        parts: list[ChangedSplits] = []
        last = end.version if end.index else end.version - 1
        for unit in self._units(start, last, newest):
            if (unit.offset.version, unit.offset.initial) == (end.version, end.initial):
                parts += unit.between(unit.offset.index, end.index)
            elif unit.offset.version <= last:
                parts += unit.between(unit.offset.index, None)
        return snapshot_of_splits(
            newest,
            parts,
            self._registry,
            identity=f"stream {start.to_json()} {end.to_json()} {self._selection()}",
            change_columns=self._changes,
        )

    def _selection(self) -> str:
        """The options by which streams with the same offsets read different splits."""
        options = (
            reading.READ_CHANGES,
            reading.IGNORE_DELETES,
            reading.IGNORE_CHANGES,
            reading.SKIP_CHANGE_COMMITS,
            reading.FAIL_ON_DATA_LOSS,
        )
        return " ".join(each.key for each in options if self._options.get(each))

    # --- versions ------------------------------------------------------------------------------------

    def _units(self, start: Offset, until: int | None, snapshot: Snapshot | None = None) -> Iterator[_Unit]:
        """The versions from an offset on, with the splits that the stream reads of them."""
        newest = snapshot or self._log.snapshot()
        self._check_table(start, newest)
        last = newest.version if until is None else min(until, newest.version)
        position = start
        if position.initial and position.version <= last:
            unit = self._initial(position, newest)
            yield unit
            position = unit.after()
        while position.version <= last:
            try:
                for changes in self._log.version_changes_in_parts(position.version, last, _WINDOW):
                    if not are_versions_of(changes.versions, newest):
                        raise _replacement_error(newest.url)
                    self._registry.update(changes.registry)
                    for each in changes.versions:
                        self._check_schema(each, newest)
                        index = position.index if each.version == position.version else 0
                        offset = replace(position, version=each.version, index=index)
                        yield _Unit(offset, self._splits(each, newest.url))
                    position = replace(position, version=changes.versions[-1].version + 1, index=0)
            except HistoryExpiredError as error:
                lost = self._lost_versions(position, error)
                yield lost
                position = lost.after()

    def _initial(self, offset: Offset, newest: Snapshot) -> _Unit:
        """All splits of a version, the oldest first; the order does not depend on checkpoints.

        Raises:
            StreamError: the files of the version were deleted, and no option allows that.
        """
        same = offset.version == newest.version
        try:
            snapshot = newest if same else self._log.snapshot(version=offset.version)
        except VersionNotFoundError as error:
            if self._options.get(reading.FAIL_ON_DATA_LOSS):
                raise StreamError(
                    f"version {offset.version} of the table at {error.url}, whose rows this stream returns "
                    "first, cannot be read any more: the log was truncated or cleaned up. Start with another "
                    "checkpoint location, to read all rows of the table as it is now, or with another one "
                    f"and startingVersion={error.latest + 1}, to read new rows only; or set "
                    "failOnDataLoss=false, to continue with the changes after that version, without those of "
                    "its rows that were not read yet"
                ) from error
            return _Unit(offset, [], is_lost=True)
        if not newest.is_later_than(snapshot):
            raise _replacement_error(newest.url)
        self._registry.update(snapshot.registry)
        files = snapshot.files().sort_by([("modificationTime", "ascending"), ("path", "ascending")])
        parts = [ChangedSplits(INSERT, snapshot.version, snapshot.timestamp or 0, files)]
        return _Unit(offset, parts if files.num_rows else [])

    def _lost_versions(self, offset: Offset, error: HistoryExpiredError) -> _Unit:
        """The versions from an offset up to the first one whose changes can be read.

        Raises:
            StreamError: no option allows to skip them.
        """
        following = error.latest + 1 if error.earliest is None else error.earliest
        if self._options.get(reading.FAIL_ON_DATA_LOSS) or following <= offset.version:
            raise StreamError(
                f"{error}. To continue this stream without the deleted versions, set "
                f"failOnDataLoss=false; or start with another checkpoint location, with "
                f"startingVersion={following}, or without it to read all rows of the table as it is now"
            ) from error
        return _Unit(offset, [], following, is_lost=True)

    def _splits(self, changes: VersionChanges, url: str) -> list[ChangedSplits]:
        """The splits of a version that the stream reads.

        Raises:
            StreamError: it deleted rows, and no option allows that.
        """
        get = self._options.get
        if self._changes or not changes.deleted:
            return changed_splits([changes])
        if get(reading.SKIP_CHANGE_COMMITS):
            return []
        if get(reading.IGNORE_CHANGES):
            return changed_splits([changes], deletes=False)
        if get(reading.IGNORE_DELETES) and not changes.inserted:
            return []
        what = "replaced" if changes.inserted else "deleted"
        remedy = (
            "ignoreChanges=true (returns all rows that it wrote, also those that existed before)"
            if changes.inserted
            else "ignoreDeletes=true"
        )
        raise StreamError(
            f"version {changes.version} ({changes.operation or 'of another engine'}) of the table at {url} "
            f"{what} rows, which a stream of inserted rows cannot show; set {remedy} or "
            "skipChangeCommits=true (such versions are skipped), read deleted rows too with "
            "readChanges=true, or start with another checkpoint location"
        )

    # --- checks --------------------------------------------------------------------------------------

    def _check_table(self, offset: Offset, newest: Snapshot) -> None:
        last = newest.version if offset.initial else newest.version + 1
        if offset.table != newest.metadata.id or offset.version > last:
            raise _replacement_error(newest.url)

    def _check_schema(self, changes: VersionChanges, newest: Snapshot) -> None:
        """Stop the stream at a version that changes the columns; after a restart the stream has the new ones.

        Raises:
            SchemaError: the version has a column that the stream lacks, or of another type.
        """
        if self._schema is None or changes.metadata is None:
            return
        schema = changes.metadata.schema_string
        retyped = column_difference(schema, self._schema, dropped=False)
        problem = retyped or _added_column(schema, self._schema)
        if problem is None:
            return
        remedy = "start the query again, over a new DataFrame, to continue with the new columns"
        if column_difference(newest.metadata.schema_string, self._schema) is None:
            # The stream has the newest columns; this version has some that were dropped later.
            if retyped is None:
                return
            remedy = "start with another checkpoint location, or after that version"
        raise SchemaError(
            f"the columns of the table at {newest.url} were changed by version {changes.version}: {problem}; "
            f"{remedy}"
        )


def _replacement_error(url: str) -> StreamError:
    return StreamError(
        f"the table at {url} is not the one that this stream read before, or an older state of it: it was "
        "deleted and created again, or restored from a copy; start with another checkpoint location"
    )


def _added_column(schema: str, before: str) -> str | None:
    names = {field["name"] for field in json.loads(before)["fields"]}
    added = [field["name"] for field in json.loads(schema)["fields"] if field["name"] not in names]
    return f"the column {added[0]} was added" if added else None


def _lenient(options: Options) -> Options:
    allowed = {reading.IGNORE_CHANGES.key: True, reading.FAIL_ON_DATA_LOSS.key: False}
    return Options.parse(allowed).over(options)
