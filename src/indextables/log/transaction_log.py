"""The log of one table: read it at a version, add a version, keep it small."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from indextables.errors import CorruptLogError, OptionError, TableNotFoundError
from indextables.log import retention
from indextables.log.changes import Changes, changes_since
from indextables.log.checkpoint import Checkpointed, advance_to, checkpoint, existing, needs_compaction
from indextables.log.commit import Chance, commit, create_table
from indextables.log.conflict import Draft
from indextables.log.format.actions import CommitInfo, Metadata
from indextables.log.format.names import LOG_FOLDER, Listing
from indextables.log.format.protocol import check_writable, new_table_protocol
from indextables.log.history import HistoryEntry, history, version_at
from indextables.log.known import FileLists, KnownSnapshots, invalidate
from indextables.log.load import Loader
from indextables.log.named import named_splits
from indextables.log.segment import (
    Segment,
    Stamp,
    current_segment,
    full_listing,
    progress_since,
    reachable,
    segment_at,
)
from indextables.log.snapshot import Snapshot
from indextables.log.told import Told, told
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import Store

MERGE = "MERGE SPLITS"

T = TypeVar("T")

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
        if version is None and timestamp is None:
            return self._newest()

        def read(listing: Listing) -> Snapshot:
            wanted = version if timestamp is None else version_at(self._loader, listing, timestamp)
            segment = segment_at(self._loader.log, listing, wanted)
            return self._known.get(segment) or self._known.put(segment, self._loader.load(segment))

        return self._settled(read)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """What was done to the table, newest first."""
        self._check_supported()
        return self._settled(lambda listing: history(self._loader, listing, limit))

    def reachable(self) -> list[int]:
        """Every version that the files there are should allow to read, in order."""
        return list(reachable(full_listing(self._loader.log)))

    def told(self, *, everything: bool = False) -> list[Told]:
        """What the files of the log say: the newest base and later versions, or every version there is."""
        self._check_supported()
        return self._settled(lambda listing: list(told(self._loader, listing, everything=everything)))

    def changes(self, *, since: int | None = None, since_timestamp: int | None = None) -> Changes:
        """What changed after a version (-1: from nothing), or after a time; give one of them."""
        if (since is None) == (since_timestamp is None):
            raise OptionError("changes need a version or a time to start from: give one of them")
        now = self.snapshot()

        def read(listing: Listing) -> Changes:
            start = since if since_timestamp is None else version_at(self._loader, listing, since_timestamp)
            assert start is not None
            return changes_since(self._loader, listing, start, now)

        return self._settled(read)

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
            protocol=new_table_protocol(),
        )
        if full_listing(self._loader.log).latest is not None:
            return None
        made = create_table(self._loader, draft, self._chance, self.engine)
        return self.snapshot() if made else None

    def check_writable(self, snapshot: Snapshot) -> None:
        """Refuse a table that our writes might harm, before work is done for it."""
        if self.options.get(opt.PROTOCOL_CHECK):
            check_writable(snapshot.protocol, snapshot.url)

    def commit(self, draft: Draft, base: Snapshot) -> Snapshot:
        """Make the draft, which was made from `base`, the next version."""
        after = commit(self._loader, draft, base, self._chance, self.engine)
        self._known.put_newest(after, None)
        self._checkpoint_if_due(draft, after, upgraded=after.protocol != base.protocol)
        return after

    def checkpoint(self, *, compact: bool = True) -> Checkpointed:
        """Write a state now; by default a compacted one.

        A state is never rewritten. If the newest version has one that is not clean, an empty version is
        committed to carry the clean one.
        """
        while True:
            snapshot, _ = self._read_newest()
            found = existing(snapshot)
            json = self.options.get(opt.STATE_FORMAT) == "json"
            if found is not None and not (json and _says_all(snapshot)):
                if not json and (not compact or self._is_clean(snapshot)):
                    return found
                empty = Draft(operation="CHECKPOINT")
                snapshot = commit(self._loader, empty, snapshot, self._chance, self.engine)
            made = checkpoint(self._loader, snapshot, self._chance, compact=compact)
            if made.written or not compact:
                return made
            # Another one wrote a state of this version first, and it need not be a clean one.

    # --- upkeep ----------------------------------------------------------------------------------

    def expired(self, *, log_hours: float | None = None) -> retention.Expired:
        """Files of the log that have outlived their retention; nothing is deleted."""
        kept = retention.Retention.of(self.options, log_hours=log_hours)
        return self._settled(
            lambda listing: retention.expired(self._loader, listing, kept, now_ms=self._chance.now_ms())
        )

    def clean(self, *, log_hours: float | None = None) -> retention.Expired:
        """Delete what has outlived its retention; what was deleted."""
        found = self.expired(log_hours=log_hours)
        retention.delete(self._loader, found)
        invalidate(self._loader.log.url)
        return found

    def named_splits(self, *, without: retention.Expired | None = None) -> pa.Array:
        """The paths of all splits that some version names; `without` are files of the log not to ask."""
        gone = without or retention.Expired()
        return self._settled(lambda listing: named_splits(self._loader, listing, gone))

    def truncate(self, *, dry_run: bool = False) -> tuple[int, retention.Expired]:
        """Forget all versions before the newest one; the version that stays and what goes.

        A state of another engine does not say all that earlier files tell, so an empty version is committed
        to carry one that does. A dry run writes nothing, not even the state that the real run starts with.
        """
        snapshot, _ = self._read_newest()
        version = snapshot.version
        if existing(snapshot) is not None and not _says_all(snapshot):
            version = version + 1 if dry_run else self.checkpoint().version
        elif not dry_run and existing(snapshot) is not None:
            advance_to(self._loader, snapshot)
        elif not dry_run:
            checkpoint(self._loader, snapshot, self._chance, compact=True)
        age = retention.Retention.of(self.options).manifest_ms
        found = self._settled(
            lambda listing: retention.all_before(
                self._loader, listing, version, manifests_before_ms=self._chance.now_ms() - age
            )
        )
        if not dry_run:
            retention.delete(self._loader, found)
            invalidate(self._loader.log.url)
        return version, found

    def _check_supported(self) -> None:
        """Refuse a table that this release may not read; what is damaged can still be described."""
        with suppress(CorruptLogError):
            self._newest()

    # --- within ----------------------------------------------------------------------------------

    def _settled(self, read: Callable[[Listing], T]) -> T:
        """What is read by a listing; what is cleaned up meanwhile leads to another try with a new one."""
        listing = full_listing(self._loader.log)
        while True:
            if listing.latest is None:
                raise TableNotFoundError(self.store.url)
            try:
                return read(listing)
            except CorruptLogError:
                again = full_listing(self._loader.log)
                if again == listing:
                    raise
                listing = again

    def _newest(self) -> Snapshot:
        """The newest snapshot: from the newest one known here, by what came after it."""
        known = self._known.newest()
        if known is None:
            return self._known.put_newest(*self._read_newest())
        snapshot, stamp = known
        progress = progress_since(self._loader.log, snapshot.version, stamp)
        if not progress.follows or (stamp is None and not self._still_there(snapshot)):
            invalidate(self._loader.log.url)
            return self._known.put_newest(*self._read_newest())
        try:
            later = self._loader.extend(snapshot, progress.later)
            newest = progress.newest_state
            # A state before the known version would need versions that were not listed.
            if newest is not None and newest.version >= snapshot.version > snapshot.base.version:
                after = tuple(file for file in progress.later if file.version > newest.version)
                shorter = self._loader.load(Segment(later.version, newest, after))
                later = replace(shorter, since=later.since)
        except CorruptLogError:
            # Cleaned up since it was listed; or damaged, and then reading from scratch says so.
            return self._known.put_newest(*self._read_newest())
        return self._known.put_newest(later, progress.stamp)

    def _still_there(self, snapshot: Snapshot) -> bool:
        """Whether the version that was committed here is the one on storage, not one of a newer table."""
        try:
            actions = self._loader.read_version(snapshot.version)
        except CorruptLogError:
            return False
        return any(isinstance(a, CommitInfo) and a.token == snapshot.identity for a in actions)

    def _read_newest(self) -> tuple[Snapshot, Stamp | None]:
        """The newest snapshot from scratch, and the stamp of its version.

        What is cleaned up while it is read leads to another try.
        """
        segment = current_segment(self._loader.log)
        while True:
            try:
                return self._loader.load(segment), segment.stamp
            except CorruptLogError:
                again = segment_at(self._loader.log, full_listing(self._loader.log), None)
                if again == segment:
                    raise
                segment = again

    def _checkpoint_if_due(self, draft: Draft, after: Snapshot, *, upgraded: bool) -> None:
        """A state now and then. That it fails never fails the commit it follows.

        A new protocol is followed by one at once: some releases of the original look at states only.
        """
        interval = self.options.get(opt.CHECKPOINT_INTERVAL)
        if not self.options.get(opt.CHECKPOINT_ENABLED) or interval == 0:
            return
        merged = draft.operation == MERGE and self.options.get(opt.COMPACT_AFTER_MERGE)
        if merged or upgraded or after.version % interval == 0:
            try:
                # From what is on storage now, so that the newest state is the one that is extended.
                newest, _ = self._read_newest()
                if existing(newest) is None:
                    checkpoint(self._loader, newest, self._chance, compact=merged)
            except Exception as error:  # noqa: BLE001 - the commit is visible, whatever went wrong after it
                _logger.warning("no state written at version %d of %s: %s", after.version, after.url, error)

    def _is_clean(self, snapshot: Snapshot) -> bool:
        """Whether compacting the state at a snapshot would change nothing."""
        state = snapshot.base.state
        if state is None or state.tombstones or not _says_all(snapshot):
            return False
        if state.num_files == 0:
            return not state.manifests
        best = -(-state.num_files // self.options.get(opt.STATE_ENTRIES_PER_MANIFEST))
        return len(state.manifests) <= best and not needs_compaction(snapshot, self.options)


def _says_all(snapshot: Snapshot) -> bool:
    """Whether the state that a snapshot starts from leaves nothing out that earlier files tell."""
    state = snapshot.base.state
    return state is not None and state.metadata is not None and not callable(snapshot.carried)
