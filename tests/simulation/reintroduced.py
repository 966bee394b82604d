"""Bugs that the log once had, put back one at a time to see that the simulator finds them.

Each function changes today's code so that it does what it did before the bug was fixed. `found_at` is the seed
that found it when that was last measured, None if that was before the schedules changed. `make soak` measures
again, and fails beyond 20,000.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from indextables.errors import (
    CommitUnknownError,
    CorruptLogError,
    StoreError,
    UnreadableSplitError,
)
from indextables.ingest import plan
from indextables.log import checkpoint, commit, conflict, load, retention, transaction_log
from indextables.log.commit import _Commit, _Confirmation
from indextables.log.format.actions import CommitInfo
from indextables.log.format.checkpoint_files import read_pointer
from indextables.log.format.names import Listing, state_folder
from indextables.log.load import Loader
from indextables.log.segment import bases, full_listing
from indextables.log.snapshot import Snapshot
from indextables.maintain import figures, merge, purge
from indextables.options import Options

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """A bug, how it is put back, and by which seed it was found when that was last measured, if it was."""

    description: str
    put_back: Callable[[Patch], None]
    found_at: int | None
    # Whether it takes operations with different formats of states (`run.run`).
    formats: bool = False


BUGS: dict[str, Bug] = {}


def _bug(
    name: str, found_at: int | None, *, formats: bool = False
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(put_back: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS[name] = Bug((put_back.__doc__ or "").strip(), put_back, found_at, formats)
        return put_back

    return register


@_bug("C1", 4)
def errors_after_the_create_count_as_failures(patch: Patch) -> None:
    """A storage error after the version was created is taken for a failed commit: its splits are deleted."""
    original = transaction_log.commit  # type: ignore[attr-defined]

    def commit_version(*arguments: Any) -> Snapshot:
        try:
            return original(*arguments)
        except CommitUnknownError as error:
            cause = error.__cause__
            if not isinstance(cause, StoreError):
                raise
            cause.not_committed = True
            raise cause from None

    patch.setattr(transaction_log, "commit", commit_version)


class _AnyIdentity(str):
    """Equal to every identity: versions are told apart by their numbers only."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@_bug("C2", 140)
def bases_are_known_by_number(patch: Patch) -> None:
    """A base is known by its number only: a commit lands in a table that was made anew."""

    def identity_at(_: Loader, listing: Listing, version: int) -> str | None:
        there = version in listing.versions or version in listing.states or version in listing.checkpoints
        return _AnyIdentity("any") if there else None

    patch.setattr(Loader, "identity_at", identity_at)
    patch.setattr(commit, "check_lineage", lambda *_: None)
    patch.setattr(load, "check_lineage", lambda *_: None)


@_bug("C3", 30)
def metadata_changes_do_not_conflict_with_appends(patch: Patch) -> None:
    """A change of schema, partitioning or indexing does not conflict with rows that are added meanwhile."""
    patch.setattr(conflict, "_differs", lambda *_: False)
    patch.setattr(conflict, "_indexing", lambda *_: {})


@_bug("C4", 610)
def file_times_tell_whether_a_version_counts(patch: Patch) -> None:
    """A version is deleted if a state of it or of a later one seems to be older by the files' times."""
    original = _Commit.confirm

    def confirm(self: _Commit, version: int, base: Snapshot | None) -> _Confirmation:
        listing = full_listing(self.loader.log)
        own = listing.versions.get(version)
        later = [state for state in bases(listing) if state.version >= version]
        if own is not None and any(state.stamp[1] < own.modified_ms for state in later):
            return self._delete_version_file(version)
        return original(self, version, base)

    patch.setattr(_Commit, "confirm", confirm)


def _without_fallback(patch: Patch) -> None:
    def reload(self: Loader, version: int, *_: object) -> Snapshot:
        raise CorruptLogError(self.log.url, f"version {version} cannot be read")

    def load_first(self: Loader, segments: Sequence[Any]) -> Snapshot:
        return self.load(segments[0])

    patch.setattr(Loader, "reload", reload)
    patch.setattr(Loader, "load_first", load_first)


@_bug("C5", 339)
def states_may_keep_manifests_of_a_base_that_is_gone(patch: Patch) -> None:
    """An incremental state stays if its manifests are there, though its base is gone and they are next."""
    original = checkpoint._check_state

    def check(loader: Loader, snapshot: Snapshot, created: Any, env: Any) -> None:
        here = state_folder(created.state.state_version)
        if not created.compacted and checkpoint.is_complete(loader, created.state, here):
            return
        original(loader, snapshot, created, env)

    patch.setattr(checkpoint, "_check_state", check)
    patch.setattr(checkpoint, "_has_base", lambda *_: True)


@_bug("C6", 770)
def compacted_states_are_not_checked(patch: Patch) -> None:
    """A compacted state is never checked after it became visible: its manifests may be deleted before."""
    original = checkpoint._check_state

    def check(loader: Loader, snapshot: Snapshot, created: Any, env: Any) -> None:
        if not created.compacted:
            original(loader, snapshot, created, env)

    patch.setattr(checkpoint, "_check_state", check)


@_bug("slow-checkpoint", 235)
def states_may_appear_long_after_their_manifests(patch: Patch) -> None:
    """A state appears hours after its manifests were written: a purge may be about to delete them as orphans."""
    patch.setattr(checkpoint, "MAX_CHECKPOINT_MS", 1 << 60)


@_bug("C7", 27)
def folders_with_an_equals_sign_are_partitions(patch: Patch) -> None:
    """A folder with `=` in its name is never asked whether it is a table: a purge deletes its splits."""
    original = figures.TableListing._in_another_table

    def in_another_table(self: Any, path: str) -> bool:
        self._above = [(name, False if "=" in name else held) for name, held in self._above]
        return original(self, path)

    patch.setattr(figures.TableListing, "_in_another_table", in_another_table)


@_bug("H1", 9)
def the_loser_of_version_0_does_not_plan_again(patch: Patch) -> None:
    """A first write that loses version 0 goes on as planned: overwrites double rows, `ignore` writes."""

    def plan_again(planned: plan.WritePlan, *_: object) -> plan.WritePlan:
        return dataclasses.replace(planned, target=dataclasses.replace(planned.target, metadata=None))

    patch.setattr(plan, "_plan_again", plan_again)


@_bug("H6-removes", 108)
def removes_are_not_checked_after_a_truncation(patch: Patch) -> None:
    """A version without added splits counts whatever states there are: nobody may ever see it."""
    original = _Commit.confirm

    def confirm(self: _Commit, version: int, base: Snapshot | None) -> _Confirmation:
        if not self.draft.adds and base is not None:
            return self._mark_committed()
        return original(self, version, base)

    patch.setattr(_Commit, "confirm", confirm)


@_bug("H6-pointer", 487)
def only_the_pointer_tells_of_a_truncation(patch: Patch) -> None:
    """Whether a version counts is asked only if the pointer names a later one, and it may go backwards."""
    original = _Commit.confirm

    def confirm(self: _Commit, version: int, base: Snapshot | None) -> _Confirmation:
        pointer = read_pointer(self.loader.log)
        if base is not None and (pointer is None or pointer.version < version):
            return self._mark_committed()
        return original(self, version, base)

    patch.setattr(_Commit, "confirm", confirm)


@_bug("H7", 360)
def a_refusal_forgets_an_unknown_attempt(patch: Patch) -> None:
    """After an attempt whose outcome is unknown, a refused one counts as a failure: the splits are deleted."""
    original = _Commit.create

    def create(self: _Commit, version: int, actions: Any) -> bool:
        try:
            return original(self, version, actions)
        except StoreError:
            self.pending = None
            raise

    patch.setattr(_Commit, "create", create)


@_bug("M1", 89)
def restores_do_not_conflict_with_purges(patch: Patch) -> None:
    """A restore checks that its splits are there, and a purge deletes them before it commits."""
    patch.setattr(conflict, "_purge_problem", lambda *_: None)


@_bug("restore-drop", 11480)
def restores_do_not_rely_on_what_they_keep(patch: Patch) -> None:
    """A restore succeeds though splits of its version were dropped meanwhile, since it does not add these."""
    patch.setattr(conflict, "_removed_paths", lambda *_: set())


@_bug("M2", 83)
def a_path_added_again_counts_as_new(patch: Patch) -> None:
    """A live path that another engine adds again and that is removed then comes back in the next state."""
    original = checkpoint.needs_compaction

    def needs_compaction(snapshot: Snapshot, options: Options) -> bool:
        delta = dataclasses.replace(snapshot.delta, foreign=set())
        return original(dataclasses.replace(snapshot, delta=delta), options)

    def tombstones_of(snapshot: Snapshot) -> list[str]:
        delta = snapshot.delta
        hidden = set(snapshot.base.state.tombstones) if snapshot.base.state else ()
        return [path for path in delta.removed if path not in delta.fresh and path not in hidden]

    patch.setattr(checkpoint, "needs_compaction", needs_compaction)
    patch.setattr(checkpoint, "tombstones_of", tombstones_of)


@_bug("M6", 1111)
def storage_errors_count_as_damage(patch: Patch) -> None:
    """A merge takes a storage error for a damaged split, which then rests for a day."""
    original = merge.open_merge_input

    def open_merge_input(store: Any, ref: Any, *arguments: Any) -> Any:
        try:
            return original(store, ref, *arguments)
        except UnreadableSplitError:
            raise
        except Exception as error:
            raise UnreadableSplitError(ref.path, str(error)) from error

    patch.setattr(merge, "open_merge_input", open_merge_input)


@_bug("H5", 2)
def maintenance_ignores_the_writer_protocol(patch: Patch) -> None:
    """Purge, truncation and checkpoint work on tables that ask for a newer writer."""
    patch.setattr(transaction_log, "check_writable", lambda *_: None)
    patch.setattr(purge, "check_writable", lambda *_: None)


@_bug("late-manifests", 713)
def snapshots_have_no_other_base(patch: Patch) -> None:
    """A snapshot whose manifests are deleted by a truncation before they are read has no other base."""
    _without_fallback(patch)


@_bug("truncate-without-base", 357)
def truncations_delete_without_a_base(patch: Patch) -> None:
    """A truncation deletes what is before a version without a look whether its state is still there."""
    patch.setattr(retention, "check_base", lambda *_, **__: None)


@_bug("hidden-checkpoint", 455, formats=True)
def a_damaged_state_hides_the_checkpoint_of_its_version(patch: Patch) -> None:
    """A state without its manifests hides an intact JSON checkpoint of the same version."""
    original = Loader.reload

    def reload(self: Loader, version: int, token: str | None, unusable: tuple[str, ...]) -> Snapshot:
        listing = full_listing(self.log)
        versions = {base.version for base in bases(listing) if base.path in unusable}
        both = (base.path for base in bases(listing) if base.version in versions)
        return original(self, version, token, (*unusable, *both))

    patch.setattr(Loader, "reload", reload)


@_bug("late-commit", 174, formats=True)
def a_late_commit_belies_the_checkpoint_of_its_version(patch: Patch) -> None:
    """A commit that comes after its version was cleaned up makes the JSON checkpoint one of another table."""

    def is_of_this_table(self: Loader, version: int, info: CommitInfo | None) -> bool:
        own = self.commit_of(version)
        return own is None or info is None or own.token == info.token

    patch.setattr(Loader, "_is_of_this_table", is_of_this_table)


@_bug("states-without-manifests", 536, formats=True)
def states_without_manifests_stay(patch: Patch) -> None:
    """A state whose manifests are gone stays when the other files of its version go, and ends purges."""
    patch.setattr(retention, "_lacks_manifests", lambda *_: False)
