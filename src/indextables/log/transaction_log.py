"""The log of one table: read it at a version, add a version, keep it small."""

import logging

from indextables.errors import CorruptLogError, IndexTablesError, TableNotFoundError
from indextables.log import retention
from indextables.log.actions import Metadata, Protocol
from indextables.log.changes import Changes, changes_since
from indextables.log.checkpoint import Checkpointed, advance_to, checkpoint, needs_compaction
from indextables.log.commit import Chance, commit, create_table
from indextables.log.conflict import Draft
from indextables.log.history import HistoryEntry, history, version_at
from indextables.log.known import FileLists, KnownSnapshots, invalidate
from indextables.log.load import Loader
from indextables.log.names import LOG_FOLDER, Listing
from indextables.log.protocol import CURRENT
from indextables.log.segment import (
    Segment,
    current_segment,
    full_listing,
    progress_since,
    segment_at,
)
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import Store

MERGE = "MERGE SPLITS"

_logger = logging.getLogger(__name__)


class TransactionLog:
    """The history of the table whose root `store` is."""

    def __init__(
        self, store: Store, options: Options | None = None, *, engine: str, chance: Chance | None = None
    ) -> None:
        """`engine` signs commits; `chance` is the clock and the dice, replaceable in tests."""
        self.store = store
        self.options = options or Options()
        self.engine = engine
        self._chance = chance or Chance()
        log = store.at(LOG_FOLDER)
        self._known = KnownSnapshots(log.url, self.options)
        self._loader = Loader(log, self.options, FileLists(log.url, self.options))

    # --- reading ---------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is a table."""
        try:
            current_segment(self._loader.log)
        except TableNotFoundError:
            return False
        return True

    def snapshot(self, *, version: int | None = None, timestamp: int | None = None) -> Snapshot:
        """The newest version, or the one asked for (a time is in milliseconds since 1970)."""
        if timestamp is not None:
            listing = full_listing(self._loader.log)
            version = version_at(self._loader, listing, timestamp)
        if version is not None:
            return self._at(version)
        return self._newest()

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """What was done to the table, newest first."""
        return history(self._loader, self._listing(), limit)

    def changes(self, *, since: int | None = None, since_timestamp: int | None = None) -> Changes:
        """What changed after a version, or after a time."""
        listing = self._listing()
        if since is None:
            assert since_timestamp is not None
            since = version_at(self._loader, listing, since_timestamp)
        return changes_since(self._loader, listing, since, self.snapshot())

    # --- writing ---------------------------------------------------------------------------------

    def check_store(self) -> None:
        """Refuse a store that cannot create an object only if it is absent: commits could be lost there."""
        self._loader.log.check_create_if_absent()

    def create(self, metadata: Metadata, *, operation: str = "CREATE TABLE") -> Snapshot | None:
        """Make a table: version 0. Nothing if somebody else made one first."""
        self.check_store()
        draft = Draft(
            operation=operation,
            metadata=metadata,
            protocol=Protocol(min_reader_version=CURRENT, min_writer_version=CURRENT),
        )
        if full_listing(self._loader.log).latest is not None:
            return None
        made = create_table(self._loader, draft, self._chance, self.engine)
        return self.snapshot() if made else None

    def commit(self, draft: Draft, base: Snapshot) -> Snapshot:
        """Make the draft, which was made from `base`, the next version."""
        after = commit(self._loader, draft, base, self._chance, self.engine)
        self._known.put_newest(after, None)
        self._checkpoint_if_due(draft, after)
        return after

    def checkpoint(self, *, compact: bool = True) -> Checkpointed:
        """Write a state now; by default a compacted one.

        A state is never rewritten. If the newest version has one that is not clean, an empty version is
        committed to carry the clean one.
        """
        snapshot = self._read_newest()
        if snapshot.base.version == snapshot.version and snapshot.base.state is not None:
            if not compact or self._is_clean(snapshot):
                return self._existing(snapshot)
            snapshot = commit(
                self._loader, Draft(operation="CHECKPOINT"), snapshot, self._chance, self.engine
            )
        return checkpoint(self._loader, snapshot, self._chance, compact=compact)

    # --- upkeep ----------------------------------------------------------------------------------

    def expired(self, *, log_hours: float | None = None) -> retention.Expired:
        """Files of the log that have outlived their retention; nothing is deleted."""
        kept = retention.Retention.of(self.options, log_hours=log_hours)
        return retention.expired(self._loader, self._listing(), kept, now_ms=self._chance.now_ms())

    def clean(self, *, log_hours: float | None = None) -> retention.Expired:
        """Delete what has outlived its retention; what was deleted."""
        found = self.expired(log_hours=log_hours)
        retention.delete(self._loader, found)
        return found

    def truncate(self, *, dry_run: bool = False) -> tuple[int, retention.Expired]:
        """Forget all versions before the newest one; the version that stays and what goes.

        A dry run writes nothing, not even the state that the real run would start with.
        """
        snapshot = self._read_newest()
        if not dry_run:
            if snapshot.base.state is not None and snapshot.base.version == snapshot.version:
                advance_to(self._loader, snapshot)
            else:
                checkpoint(self._loader, snapshot, self._chance, compact=True)
        listing = self._listing()
        age = retention.Retention.of(self.options).manifest_ms
        found = retention.all_before(
            self._loader, listing, snapshot.version, manifests_before_ms=self._chance.now_ms() - age
        )
        if not dry_run:
            retention.delete(self._loader, found)
            invalidate(self._loader.log.url)
        return snapshot.version, found

    # --- within ----------------------------------------------------------------------------------

    def _listing(self) -> Listing:
        listing = full_listing(self._loader.log)
        if listing.latest is None:
            raise TableNotFoundError(self.store.url)
        return listing

    def _at(self, version: int) -> Snapshot:
        found = self._known.get(version)
        if found is None:
            listing = full_listing(self._loader.log)
            found = self._loader.load(segment_at(self._loader.log, listing, version))
            self._known.put(found)
        return found

    def _newest(self) -> Snapshot:
        """The newest snapshot: from the newest one known here, by what came after it."""
        known = self._known.newest()
        if known is None:
            return self._known.put_newest(self._read_newest(), None)
        snapshot, stamp = known
        progress = progress_since(self._loader.log, snapshot.version, stamp)
        if progress.segment is None:
            return self._known.put_newest(snapshot, progress.stamp)
        if not progress.follows:
            invalidate(self._loader.log.url)
            return self._known.put_newest(self._read_newest(), None)
        later = self._loader.extend(snapshot, self._loader.versions(progress.segment.versions))
        if progress.newest_state and progress.newest_state.version > snapshot.base.version:
            after = range(progress.newest_state.version + 1, later.version + 1)
            later = self._loader.load(Segment(later.version, progress.newest_state, tuple(after)))
        return self._known.put_newest(later, progress.stamp)

    def _read_newest(self) -> Snapshot:
        """The newest snapshot from scratch; what is cleaned up while it is read leads to another try."""
        segment = current_segment(self._loader.log)
        while True:
            try:
                return self._loader.load(segment)
            except CorruptLogError:
                again = segment_at(self._loader.log, full_listing(self._loader.log), None)
                if again == segment:
                    raise
                segment = again

    def _checkpoint_if_due(self, draft: Draft, after: Snapshot) -> None:
        """A state now and then. That it fails never fails the commit it follows."""
        interval = self.options.get(opt.CHECKPOINT_INTERVAL)
        if not self.options.get(opt.CHECKPOINT_ENABLED) or interval == 0:
            return
        merged = draft.operation == MERGE and self.options.get(opt.COMPACT_AFTER_MERGE)
        if merged or after.version % interval == 0:
            try:
                # From what is on storage now, so that the newest state is the one that is extended.
                checkpoint(self._loader, self._read_newest(), self._chance, compact=merged)
            except IndexTablesError as error:
                _logger.warning("no state written at version %d of %s: %s", after.version, after.url, error)

    def _is_clean(self, snapshot: Snapshot) -> bool:
        state = snapshot.base.state
        if state is None or state.tombstones or needs_compaction(snapshot, self.options):
            return False
        best = -(-state.num_files // self.options.get(opt.STATE_ENTRIES_PER_MANIFEST))
        return len(state.manifests) <= max(best, 1)

    def _existing(self, snapshot: Snapshot) -> Checkpointed:
        state = snapshot.base.state
        assert state is not None
        return Checkpointed(
            snapshot.version,
            "avro-state",
            False,
            state.num_files,
            len(state.manifests),
            len(state.tombstones),
            written=False,
        )
