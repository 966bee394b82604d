"""The log of one table: reads versions, commits, checkpoints and cleans up."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from indextables.errors import (
    CommitConflictError,
    CorruptLogError,
    HistoryExpiredError,
    OptionError,
    StateExpiredError,
    TableNotFoundError,
    TableReplacedError,
    VersionNotFoundError,
    is_panic,
)
from indextables.log import retention
from indextables.log.changes import (
    ChangeRange,
    are_versions_of,
    changed_splits,
    check_columns,
    earliest_changes,
    read_changes,
    snapshot_of_splits,
)
from indextables.log.checkpoint import (
    CheckpointResult,
    FilterBundler,
    checkpoint,
    existing_json,
    existing_state,
    is_complete,
    needs_compaction,
)
from indextables.log.commit import commit, create_table
from indextables.log.conflict import Draft
from indextables.log.environment import Environment
from indextables.log.format.actions import CommitInfo, Metadata, Protocol, check_writable, new_table_protocol
from indextables.log.format.checkpoint_files import read_pointer
from indextables.log.format.names import LOG_FOLDER, Listing, state_file
from indextables.log.history import (
    Changes,
    CommitOutcome,
    HistoryEntry,
    LogFileActions,
    changes_since,
    commit_outcome,
    history,
    log_file_actions,
    referenced_splits,
    version_at,
)
from indextables.log.load import Loader
from indextables.log.segment import (
    Stamp,
    current_segment,
    full_listing,
    listing_from,
    progress_since,
    reachable,
    segments_at,
)
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.log.snapshot_cache import FileListCache, SnapshotCache, invalidate
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import Store

MERGE = "MERGE SPLITS"
REPAIR = "REPAIR"

# How often a log is listed again when listed files are cleaned up meanwhile.
_LISTINGS = 20

# How often a truncation starts again when others clean the log at the same time.
_TRUNCATIONS = 5

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class TransactionLog:
    """The history of the table whose root `store` is."""

    def __init__(
        self,
        store: Store,
        options: Options | None = None,
        *,
        engine: str,
        env: Environment | None = None,
        bundler: FilterBundler | None = None,
    ) -> None:
        """Open a log.

        Args:
            store: the table's folder.
            options: options of the log.
            engine: recorded in commits.
            env: supplies time and randomness (injectable in tests).
            bundler: writes filter bundles at checkpoints; see `data_files.open_log`.
        """
        self.store = store
        self.options = options or Options()
        self.engine = engine
        self._env = env or Environment()
        self._bundler = bundler
        log = store.at(LOG_FOLDER)
        self._loader = Loader(log, self.options, FileListCache(log.cache_scope, self.options))
        self._snapshots = SnapshotCache(self._loader, self.options)

    # --- reading ---------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether the table exists."""
        try:
            current_segment(self._loader.log)
        except TableNotFoundError:
            return False
        return True

    def snapshot(self, *, version: int | None = None, timestamp: int | None = None) -> Snapshot:
        """The snapshot of the newest version, or of a version number or a time (milliseconds since 1970)."""
        if version is None and timestamp is None:
            return self._loader.check_snapshot(self._newest())

        def read(listing: Listing) -> Snapshot:
            target = version if timestamp is None else version_at(self._loader, listing, timestamp)
            segments = segments_at(self._loader.log, listing, target)
            first = segments[0]
            cached = self._snapshots.get(first)
            if cached is not None:
                return self._loader.check_snapshot(cached)
            return self._snapshots.put(first, self._loader.load_first(segments))

        return self._retry_if_cleaned(read)

    def snapshot_of(self, key: SnapshotKey) -> Snapshot | None:
        """The snapshot from which an operation was planned, maybe in another process; None if cleaned up.

        Raises:
            CommitConflictError: another commit has this version now: the table was replaced.
        """
        newest = self.snapshot()
        if newest.key == key:
            return newest
        try:
            snapshot = self.snapshot(version=key[0])
        except VersionNotFoundError:
            snapshot = None
        if snapshot is None or snapshot.key == key:
            return snapshot
        raise CommitConflictError(
            "the operation",
            "the table that this operation started from was deleted or replaced meanwhile",
            version=snapshot.version,
            other="of a table that was created again or restored",
        )

    def adopt(self, snapshot: Snapshot) -> Snapshot:
        """Attach this log as the reader of a snapshot that has none, as those in caches."""
        return replace(snapshot, reader=self._loader)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of the table, newest first."""
        self._check_supported()
        return self._retry_if_cleaned(lambda listing: history(self._loader, listing, limit))

    def reachable(self) -> list[int]:
        """Every version that can be read according to the listing, in order."""
        return list(reachable(full_listing(self._loader.log)))

    def file_actions(self, *, everything: bool = False) -> list[LogFileActions]:
        """The actions in files of the log: the newest base and later versions, or all versions."""
        self._check_supported()
        return self._retry_if_cleaned(
            lambda listing: list(log_file_actions(self._loader, listing, everything=everything))
        )

    def changes(self, *, since: int | None = None, since_timestamp: int | None = None) -> Changes:
        """The changes after a version (-1: from the empty table), or after a time; give one of them."""
        if (since is None) == (since_timestamp is None):
            raise OptionError("changes need a version or a time to start from: give one of them")
        now = self.snapshot()

        def read(listing: Listing) -> Changes:
            start = since if since_timestamp is None else version_at(self._loader, listing, since_timestamp)
            assert start is not None
            return changes_since(self._loader, listing, start, now)

        return self._retry_if_cleaned(read)

    def version_changes(self, first: int, last: int) -> ChangeRange:
        """The splits that each of some versions inserted and deleted.

        Raises:
            HistoryExpiredError: the files of a version were deleted.
        """
        return next(self.version_changes_in_parts(first, last, last - first + 1))

    def version_changes_in_parts(self, first: int, last: int, size: int) -> Iterator[ChangeRange]:
        """`version_changes` of at most `size` versions at a time; the log is listed once for all of them."""
        # Recent versions are listed without those before them.
        listing = listing_from(self._loader.log, first)
        for start in range(first, last + 1, size):
            yield self._changes_of(listing, start, min(start + size - 1, last))

    def _changes_of(self, listing: Listing, first: int, last: int) -> ChangeRange:
        if all(version in listing.versions for version in range(first, last + 1)):
            with suppress(CorruptLogError, HistoryExpiredError):
                return read_changes(self._loader, listing, first, last)
        return self._retry_if_cleaned(lambda listing: read_changes(self._loader, listing, first, last))

    def earliest_changes(self) -> int | None:
        """The first version from which on the changes of all versions can be read."""
        return earliest_changes(full_listing(self._loader.log))

    def changes_snapshot(self, first: int, end: Snapshot) -> Snapshot:
        """The changes of the versions from `first` up to a snapshot, as a snapshot (see `log.changes`).

        Raises:
            HistoryExpiredError: the files of a version were deleted.
            SchemaError: a column had another type in between, or has the name of a column of changes.
            TableReplacedError: another table is at the path now.
        """
        changes = self.version_changes(first, end.version) if first <= end.version else ChangeRange()
        if not are_versions_of(changes.versions, end):
            raise TableReplacedError(
                f"the changes of the table at {end.url} cannot be read: the table that was opened at version "
                f"{end.version} was deleted and created again, or restored from a copy; open it again"
            )
        check_columns(changes, end)
        return snapshot_of_splits(
            end,
            changed_splits(changes.versions),
            changes.registry,
            identity=f"changes from {first}",
            change_columns=True,
        )

    def version_after(self, timestamp: int) -> int:
        """The first version that was committed after a time, in milliseconds since 1970."""

        def read(listing: Listing) -> int:
            try:
                return version_at(self._loader, listing, timestamp) + 1
            except VersionNotFoundError:
                return 0  # if version 0 is not readable, reading its changes raises the error

        return self._retry_if_cleaned(read)

    # --- writing ---------------------------------------------------------------------------------

    def check_store(self) -> None:
        """Refuse a store without create-if-absent: commits could be lost there."""
        self._loader.log.check_create_if_absent()

    def create(
        self, metadata: Metadata, *, operation: str = "CREATE TABLE", protocol: Protocol | None = None
    ) -> Snapshot | None:
        """Create a table by its version 0. Returns None if another process created one first."""
        self.check_store()
        draft = Draft(
            operation=operation,
            metadata=metadata,
            protocol=protocol or new_table_protocol(),
        )
        if full_listing(self._loader.log).latest is not None:
            return None
        return create_table(self.store, self._loader, draft, self._env, self.engine)

    def check_writable(self, snapshot: Snapshot) -> None:
        """Refuse a table that this release cannot write, before any work is done."""
        if self.options.get(opt.PROTOCOL_CHECK):
            check_writable(snapshot.protocol, snapshot.url)

    def is_unfinished_repair(self) -> bool:
        """Whether the log has no splits because a repair was interrupted between its two versions."""
        return [(entry.version, entry.operation) for entry in self.history(2)] == [(0, REPAIR)]

    def commit(self, draft: Draft, base: Snapshot) -> Snapshot:
        """Commit the draft, which was computed from `base`, as the next version."""
        after = commit(self.store, self._loader, draft, base, self._env, self.engine)
        if after.token is not None:
            self._snapshots.put_newest(after, None)
        self._checkpoint_if_due(draft, after, upgraded=after.protocol != base.protocol)
        return after

    def checkpoint(self, *, compact: bool = True) -> CheckpointResult:
        """Write a state now; by default a compacted one.

        A state is never rewritten. If that of the newest version is not clean, or cannot be read, an empty
        version is committed, and the new state is written at it.
        """
        json = self.options.get(opt.STATE_FORMAT) == "json"
        while True:
            snapshot, _ = self._read_newest()
            self.check_writable(snapshot)
            state_before = existing_state(snapshot)
            sound = state_before is not None and self._is_complete(snapshot)
            if json and (state_before is None or _is_self_contained(snapshot)):
                try:
                    if (checkpoint_before := existing_json(self._loader, snapshot)) is not None:
                        return checkpoint_before
                except CorruptLogError:
                    snapshot = self._commit_empty(snapshot)
            elif state_before is not None:
                if not json and sound and (not compact or self._is_clean(snapshot)):
                    return state_before
                snapshot = self._commit_empty(snapshot)
            elif self._loader.log.exists(state_file(snapshot.version)):
                # The version is not read from its own state, so that state is damaged.
                snapshot = self._commit_empty(snapshot)
            state = self._write_state(snapshot, compact=compact)
            if state.written or not compact:
                # The newest version is read again, from what was written.
                invalidate(self._loader.log.url)
                return state
            # Another writer created a state of this version first, which may not be clean.

    def _write_state(
        self, snapshot: Snapshot, *, compact: bool, after_commit: bool = False
    ) -> CheckpointResult:
        return checkpoint(
            self._loader,
            snapshot,
            self._env,
            compact=compact,
            bundler=self._bundler,
            after_commit=after_commit,
        )

    def _commit_empty(self, snapshot: Snapshot) -> Snapshot:
        empty = Draft(operation="CHECKPOINT")
        return commit(self.store, self._loader, empty, snapshot, self._env, self.engine)

    def _is_complete(self, snapshot: Snapshot) -> bool:
        """Whether all manifests of the state that a snapshot is read from exist."""
        state = snapshot.base.state
        return state is not None and is_complete(self._loader, state, snapshot.base.folder)

    def commit_outcome(self, token: str, *, version: int | None = None) -> CommitOutcome:
        """Whether a commit whose outcome was unknown is in the table (see `CommitUnknownError`).

        Args:
            token: the commit's token.
            version: the version that it was to become, if it is known.
        """
        return self._retry_if_cleaned(lambda listing: commit_outcome(self._loader, listing, token, version))

    # --- maintenance -----------------------------------------------------------------------------

    def expired_files(self, *, log_hours: float | None = None) -> retention.ExpiredFiles:
        """The files of the log that are older than their retention; nothing is deleted."""
        return self._expired_files(log_hours, self._env.now_ms())

    def _expired_files(self, log_hours: float | None, now_ms: int) -> retention.ExpiredFiles:
        limits = retention.Retention.of(self.options, log_hours=log_hours)
        return self._retry_if_cleaned(
            lambda listing: retention.expired_files(self._loader, listing, limits, now_ms=now_ms)
        )

    def store_time_ms(self) -> int:
        """The time by the clock that stamps the table's files."""
        return self._env.store_time_ms(self._loader.log)

    def clean(self, *, log_hours: float | None = None) -> retention.ExpiredFiles:
        """Delete files that are older than their retention; returns them."""
        self.check_writable(self.snapshot())
        expired_files = self._expired_files(log_hours, self.store_time_ms())
        retention.delete(self._loader, expired_files)
        invalidate(self._loader.log.url)
        return expired_files

    def referenced_splits(self, *, without: retention.ExpiredFiles | None = None) -> pa.Array:
        """The paths of all splits that a version refers to; `without` are files of the log to leave out."""
        deletions = without or retention.ExpiredFiles()
        return self._retry_if_cleaned(lambda listing: referenced_splits(self._loader, listing, deletions))

    def truncate(self, *, dry_run: bool = False) -> tuple[int, retention.ExpiredFiles]:
        """Delete all versions before the newest one; returns the remaining version and the deleted files.

        A state of another engine lacks information of earlier files; then an empty version is committed, and
        a complete state is written at it. A dry run writes nothing, not even that state.
        """
        for _ in range(_TRUNCATIONS - 1):
            try:
                return self._truncate(dry_run=dry_run)
            except StateExpiredError:
                continue  # a concurrent truncation was faster
        return self._truncate(dry_run=dry_run)

    def _truncate(self, *, dry_run: bool) -> tuple[int, retention.ExpiredFiles]:
        snapshot, _ = self._read_newest()
        self.check_writable(snapshot)
        version = snapshot.version
        current_state = existing_state(snapshot)
        if current_state is None:
            version = version if dry_run else self._checkpoint_at_least(snapshot)
        elif not self._is_confirmed(snapshot):
            version = version + 1 if dry_run else self._checkpoint_at_least(self._commit_empty(snapshot))
        now_ms = self._env.now_ms() if dry_run else self.store_time_ms()
        before_ms = now_ms - retention.Retention.of(self.options).manifest_ms

        def read(listing: Listing) -> retention.ExpiredFiles:
            expired_files = retention.files_before(
                self._loader, listing, version, manifests_before_ms=before_ms, now_ms=now_ms
            )
            if expired_files.leading and not dry_run:
                retention.check_base(self._loader, listing, version, snapshot)
            return expired_files

        expired_files = self._retry_if_cleaned(read)
        if not dry_run:
            retention.delete(self._loader, expired_files)
            invalidate(self._loader.log.url)
        return version, expired_files

    def _check_supported(self) -> None:
        """Refuse a table that this release cannot read; damaged files are no error here."""
        with suppress(CorruptLogError):
            self._newest()

    def _is_confirmed(self, snapshot: Snapshot) -> bool:
        """Whether the base at a snapshot is final, so that earlier files may be deleted.

        A writer may delete its state shortly after creating it, and cleaning its manifests, or the parts of
        its JSON checkpoint. What the pointer names was checked after it became visible; a JSON checkpoint of
        the same version that the pointer names is enough for a state, too.
        """
        pointer = read_pointer(self._loader.log)
        if pointer is None or pointer.version != snapshot.version:
            return False
        if not pointer.is_state:
            try:
                self._loader.checkpoint_actions(snapshot.version)
            except CorruptLogError:
                return False
            if snapshot.base.version == snapshot.version and snapshot.base.state is None:
                return True
        return _is_self_contained(snapshot) and self._is_complete(snapshot)

    def _checkpoint_at_least(self, snapshot: Snapshot) -> int:
        """The version of a complete, final state that is not older than a snapshot."""
        state = self._write_state(snapshot, compact=True)
        while not state.written:
            # Another writer created it first, and may not have checked it yet.
            newest, _ = self._read_newest()
            if self._is_confirmed(newest):
                return newest.version
            state = self._write_state(self._commit_empty(newest), compact=True)
        return state.version

    # --- within ----------------------------------------------------------------------------------

    def _retry_if_cleaned(self, read: Callable[[Listing], T]) -> T:
        """Read from a listing; if files are cleaned up meanwhile, try again with a new listing."""
        listing = full_listing(self._loader.log)
        for attempts in range(_LISTINGS, -1, -1):
            if listing.latest is None:
                raise TableNotFoundError(self.store.url)
            try:
                return read(listing)
            except CorruptLogError:
                again = full_listing(self._loader.log)
                if again == listing or not attempts:
                    raise
                listing = again
        raise AssertionError("the last try returns or raises")

    def _newest(self) -> Snapshot:
        """The newest snapshot: the newest cached one, extended by the versions after it."""
        cached = self._snapshots.newest()
        if cached is None:
            return self._snapshots.put_newest(*self._read_newest())
        snapshot, stamp = cached
        progress = progress_since(self._loader.log, snapshot.version, stamp)
        if not progress.follows or (stamp is None and not self._still_there(snapshot)):
            invalidate(self._loader.log.url)
            return self._snapshots.put_newest(*self._read_newest())
        try:
            later = self._loader.extend(snapshot, progress.later)
            newest = progress.newest
            # A state before the cached version would need versions that were not listed.
            if newest is not None and newest.start >= snapshot.version > snapshot.base.version:
                later = replace(self._loader.load(newest), since=later.since)
        except CorruptLogError:
            # Cleaned up since it was listed; or damaged: then reading the whole log raises the error.
            return self._snapshots.put_newest(*self._read_newest())
        return self._snapshots.put_newest(later, progress.stamp)

    def _still_there(self, snapshot: Snapshot) -> bool:
        """Whether the version that this process committed is still the one on storage."""
        try:
            actions = self._loader.read_version(snapshot.version)
        except CorruptLogError:
            return False
        return any(isinstance(a, CommitInfo) and a.token == snapshot.identity for a in actions)

    def _read_newest(self) -> tuple[Snapshot, Stamp | None]:
        """The newest snapshot, read without a cached one, and the stamp of its version.

        Retries if files are cleaned up while they are read.
        """
        try:
            segment = current_segment(self._loader.log)
            return self._loader.load(segment), segment.stamp
        except CorruptLogError:
            pass  # the listing is not atomic, a listed file was deleted, or a file is damaged

        def read(listing: Listing) -> tuple[Snapshot, Stamp | None]:
            segments = segments_at(self._loader.log, listing, None)
            return self._loader.load_first(segments), segments[0].stamp

        return self._retry_if_cleaned(read)

    def _checkpoint_if_due(self, draft: Draft, after: Snapshot, *, upgraded: bool) -> None:
        """Write a checkpoint if one is due; an error is logged and does not fail the commit.

        After a change of the protocol one is always due: some releases of the original read states only.
        """
        interval = (
            self.options.get(opt.CHECKPOINT_INTERVAL) if self.options.get(opt.CHECKPOINT_ENABLED) else 0
        )
        merged = interval > 0 and draft.operation == MERGE and self.options.get(opt.COMPACT_AFTER_MERGE)
        # A merge may have written one just before.
        is_recent = after.base.state is not None and after.version - after.base.version <= interval // 2
        if merged or upgraded or (interval > 0 and after.version % interval == 0 and not is_recent):
            try:
                # Read from storage, so that the newest state is extended.
                newest, _ = self._read_newest()
                if existing_state(newest) is None:
                    self._write_state(newest, compact=merged, after_commit=True)
            except BaseException as error:  # the commit is visible, whatever went wrong after it
                if not isinstance(error, Exception) and not is_panic(error):
                    raise
                _logger.warning("no state written at version %d of %s: %s", after.version, after.url, error)
                return
            self._clean_if_due(after)

    def _clean_if_due(self, after: Snapshot) -> None:
        """Delete expired files of the log after a checkpoint; a failure never fails the commit before it."""
        if not self.options.get(opt.CLEANUP_ENABLED):
            return
        try:
            listing = full_listing(self._loader.log)
            if retention.Retention.of(self.options).is_due(listing, self._env.now_ms()):
                self.clean()
        except BaseException as error:  # the commit is visible, whatever went wrong after it
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            _logger.warning("expired files of the log of %s were not deleted: %s", after.url, error)

    def _is_clean(self, snapshot: Snapshot) -> bool:
        """Whether compacting the state at a snapshot would change nothing."""
        state = snapshot.base.state
        if state is None or state.tombstones or not _is_self_contained(snapshot):
            return False
        if state.num_files == 0:
            return not state.manifests
        best = -(-state.num_files // self.options.get(opt.STATE_ENTRIES_PER_MANIFEST))
        return len(state.manifests) <= best and not needs_compaction(snapshot, self.options)


def _is_self_contained(snapshot: Snapshot) -> bool:
    """Whether the state that a snapshot starts from is complete, without earlier files."""
    state = snapshot.base.state
    return state is not None and state.metadata is not None and snapshot.header is not None
