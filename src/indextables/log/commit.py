"""Commits: create the next version, or raise a conflict.

```
draft ─► read the versions since the base, check them for conflicts ◄────────────────────────┐
              │                                                                              │
              ▼                                                                              │
         create <version>.json if absent ─► created by this writer: committed                │
                          ├───────────────► created by another one, or not confirmed: wait ──┘
                          └───────────────► no reply: outcome unknown
```

Versions after the base are read before the first attempt too, and the base is compared by its token. Versions
after an old base may have been committed and cleaned up: creating one of them again would succeed, but
readers would ignore it. As this can also happen between the read and the creation, the version is confirmed
after the creation. From the moment a create was sent, every failure means that the outcome is unknown, unless
it is proven that the version is not ours.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from enum import Enum, auto

import msgspec

from indextables.errors import (
    CommitAttemptsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptLogError,
    IndexTablesError,
    LogError,
    NotDurableError,
    ObjectMissingError,
    OutcomeUnknownError,
    SplitError,
    StoreError,
    TableNotFoundError,
)
from indextables.log.conflict import (
    Draft,
    check_batches,
    check_conflicts,
    check_snapshot,
    without_registry,
)
from indextables.log.environment import Environment
from indextables.log.format import version_file
from indextables.log.format.actions import (
    REGISTRY_PREFIX,
    Action,
    Add,
    CommitInfo,
    Metadata,
    check_writable,
    deduplicate,
    schema_hash,
    upgrade_for,
)
from indextables.log.format.names import MAX_VERSION, Listing
from indextables.log.format.names import version_file as version_path
from indextables.log.load import Loader, check_lineage
from indextables.log.segment import (
    Base,
    VersionFile,
    bases,
    full_listing,
    listing_from,
    segments_at,
    stamp_of,
    token_in,
    versions_after,
)
from indextables.log.snapshot import Snapshot
from indextables.options import log as opt
from indextables.records import dataclass
from indextables.store import Store
from indextables.store.backend import Backoff

# How often the log is listed again if a listing cannot be used: a listing is not atomic.
_LISTINGS = 3
_LOOKUPS = 16


def commit(
    table: Store, loader: Loader, draft: Draft, base: Snapshot, env: Environment, engine: str
) -> Snapshot:
    """Commit the draft as the next version of the table; returns the new snapshot.

    `base` is the snapshot from which the draft was computed. Versions that were committed since then are
    checked for conflicts. `table` is rooted at the table's folder.

    Raises:
        CommitUnknownError: the version may exist, now or later; the draft's files must stay.
        IndexTablesError: every other error has `not_committed` set: nothing refers to the draft's files.
    """
    running = _Commit(table, loader, draft, env, engine, env.token())
    try:
        return running.run(base)
    except CommitUnknownError:
        raise
    except IndexTablesError as error:
        if running.pending is None:
            error.not_committed = True
            raise
        raise running.unknown(str(error)) from error
    except Exception as error:
        if running.pending is None:
            raise
        raise running.unknown(str(error)) from error


def create_table(
    table: Store, loader: Loader, draft: Draft, env: Environment, engine: str
) -> Snapshot | None:
    """Write version 0 of a table. Returns the snapshot at it, or None if the table exists already.

    The snapshot excludes versions that others have committed since, so that they are checked for conflicts
    with the creator's next commit.
    """
    assert draft.metadata is not None
    assert draft.protocol is not None
    running = _Commit(table, loader, draft, env, engine, env.token())
    info = _info(draft, running.token, timestamp=env.now_ms(), engine=engine)
    actions: list[Action] = [info, draft.protocol, draft.metadata]
    try:
        created = running.create(0, actions)
        if running.pending is not None and not created:
            created = running.is_own_version(0)
        if not created or running.confirm(0, None) is not _Confirmation.COMMITTED:
            return None
        return loader.replay([(0, actions)])
    except CommitUnknownError:
        raise
    except IndexTablesError as error:
        if running.pending is None:
            raise
        raise running.unknown(str(error)) from error


def check_uploads(table: Store, adds: Sequence[Add]) -> None:
    """Refuse to add splits that do not exist, if a purge since the base cannot be ruled out.

    A commit after a version of a purge is refused by `log.conflict` if its splits are old; this is for
    commits that start from a newer version than their splits were written for.

    Raises:
        SplitError: a split does not exist.
    """
    paths = [add.path for add in adds]
    with ThreadPoolExecutor(_LOOKUPS) as pool:
        lost = [path for path, exists in zip(paths, pool.map(table.exists, paths), strict=True) if not exists]
    if lost:
        raise SplitError(
            f"{len(lost)} of the {len(paths)} splits that were to be committed to {table.url} are gone (one "
            f"is {lost[0]}): the table's folder was deleted meanwhile, or the write took longer than a purge "
            "keeps files; nothing was changed; write again, in smaller parts or with a longer purge retention"
        )


class _Confirmation(Enum):
    """Whether a version file that holds our commit is a version of the table."""

    COMMITTED = auto()
    SUPERSEDED = auto()


@dataclass(slots=True)
class _Commit:
    """One commit in progress; `pending` is a version whose file may be ours, now or later.

    While a version is pending, every error means that the outcome is unknown. It stops being pending only
    by proof: the version's file is another writer's, or ours was deleted because a state supersedes it.
    """

    table: Store
    loader: Loader
    draft: Draft
    env: Environment
    engine: str
    token: str
    pending: int | None = None
    committed: bool = False
    cause: str = ""
    # Where the table is, for errors.
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = self.loader.log.url.rsplit("/", 1)[0]

    def run(self, base: Snapshot) -> Snapshot:
        """Retry until the draft is committed, conflicts with another commit, or the attempts are used up."""
        options = self.loader.options
        check_batches(self.draft, base)
        backoff = Backoff(options.get(opt.RETRY_BASE_MS), options.get(opt.RETRY_MAX_MS))
        attempts = options.get(opt.RETRY_ATTEMPTS)
        current = base
        for attempt in range(1, attempts + 1):
            current = self.catch_up(current)
            if self.committed:
                return current
            if options.get(opt.PROTOCOL_CHECK):
                check_writable(current.protocol, current.url)
            version = current.version + 1
            now_ms = self.env.now_ms()
            actions = _actions(self.draft, current, token=self.token, now_ms=now_ms, engine=self.engine)
            if self.create(version, actions):
                if self.confirm(version, current) is _Confirmation.COMMITTED:
                    return current.then([(version, actions)], self.token)
                # The table has another version of this number; only its newest snapshot shows conflicts.
                current = self.start_over(current)
            if attempt < attempts:
                self.env.sleep(backoff.seconds(attempt, self.env.jitter()))
        if self.pending is not None:
            current = self.catch_up(current)
            if self.committed:
                return current
        if self.pending is not None:
            raise self.unknown(self.cause)
        raise CommitAttemptsError(base.url, self.draft.operation, attempts)

    def create(self, version: int, actions: list[Action]) -> bool:
        """Whether the version's file is this writer's. If that is unknown, the version is pending."""
        if version > MAX_VERSION:
            raise LogError(
                f"the table at {self.url} has version {version - 1}, and no table has more versions"
            )
        data = version_file.encode(actions, compress=self.loader.options.get(opt.VERSION_COMPRESSION))
        before = self.pending
        self.pending = version
        try:
            created = self.loader.log.create(version_path(version), data)
        except NotDurableError as error:
            # Reading it back proves nothing: it may come from memory, and the disk did not confirm it.
            raise self.unknown(str(error)) from error
        except OutcomeUnknownError as error:
            self.cause = str(error)
            return False
        except StoreError:
            # Storage refused this attempt for certain; an earlier one at this version may still arrive.
            self.pending = before
            raise
        if not created and before is None:
            self.pending = None
        return created

    def catch_up(self, current: Snapshot) -> Snapshot:
        """The newest snapshot, if no version between `current` and it conflicts with the draft.

        If one of the versions in between is our own commit, whose acknowledgement was lost, the snapshot at
        that version is returned.
        """
        loader = self.loader
        for _ in range(_LISTINGS):
            listing = listing_from(loader.log, current.version)
            try:
                identity = loader.identity_at(listing, current.version)
                if identity is None:
                    break  # the versions up to the base were cleaned up, or the table was deleted
                if identity != current.identity:
                    raise self.replacement_error(current.version)
                later = versions_after(listing, current.version)
                if later is None:
                    continue  # a listing that ran while versions were created need not show all of them
                winners = loader.versions(later)
                check_lineage(loader.log.url, current.token, winners)
            except CorruptLogError:
                continue  # cleaned up since it was listed, or damaged: then loading raises the error
            return self._after(current, later, winners)
        return self.start_over(current)

    def _after(
        self, current: Snapshot, later: Sequence[VersionFile], winners: Sequence[tuple[int, Sequence[Action]]]
    ) -> Snapshot:
        for place, (version, actions) in enumerate(winners):
            if _has_token(actions, self.token):
                self.pending = version
                if self.confirm(version, None) is _Confirmation.COMMITTED:
                    return self.loader.extend(current, later[: place + 1])
                return self.start_over(current)
            if version == self.pending:
                self.pending = None  # the version is another writer's commit, so it can never be ours
        check_conflicts(self.draft, current.metadata, winners)
        return self.loader.extend(current, later)

    def start_over(self, current: Snapshot) -> Snapshot:
        """The newest snapshot when the versions in between were cleaned up; checks the draft against it."""
        loader = self.loader
        try:
            latest = loader.load_first(segments_at(loader.log, full_listing(loader.log), None))
        except TableNotFoundError:
            raise self.replacement_error(current.version) from None
        if self.pending is not None:
            if latest.token_at(self.pending) == self.token:
                self._mark_committed()
                return latest
            if latest.token_at(self.pending) is None:
                raise self.unknown(self.cause or "the versions in between were cleaned up")
            self.pending = None
        if latest.version < current.version:
            problem = f"the table is at version {latest.version}, and this operation started from"
            raise self.replacement_error(latest.version, f"{problem} {current.version}")
        if latest.token_at(current.version) not in (None, current.token):
            raise self.replacement_error(latest.version)
        check_snapshot(self.draft, current, latest)
        check_uploads(self.table, self.draft.adds)
        return latest

    def confirm(self, version: int, base: Snapshot | None) -> _Confirmation:
        """Whether the version that was created is one of the table.

        If a truncation has deleted another writer's version of this number, creating it succeeds a second
        time, but readers ignore it. The tokens of the last versions in later states show whose commit counts.
        If the table was deleted and created again, the version before is missing or a different one.
        """
        for _ in range(_LISTINGS - 1):
            try:
                return self._check_created(version, base)
            except CorruptLogError:
                continue  # a listed state no longer exists: cleaned up, or deleted by its writer
        return self._check_created(version, base)

    def _check_created(self, version: int, base: Snapshot | None) -> _Confirmation:
        listing = listing_from(self.loader.log, max(version - 1, 0))
        created = self._by_later_files(listing, version)
        if created is not None:
            return created
        if base is None or self._is_base(listing, base):
            return self._mark_committed()
        # A listing may show the states of one moment and the versions of a later one: if the log was
        # truncated in between, it has neither the base nor the state after it. One that begins now has it.
        again = full_listing(self.loader.log)
        created = self._by_later_files(again, version)
        if created is not None:
            return created
        if self._is_base(again, base) or again.latest != version:
            raise self.unknown("the version before it cannot be found")
        self._delete_version_file(version)
        raise self.replacement_error(base.version)

    def _by_later_files(self, listing: Listing, version: int) -> _Confirmation | None:
        """Decide by the tokens in states and in the next version; None without these files."""
        newer = [b for b in bases(listing) if b.version >= version and not self._is_of_another_table(b)]
        for state in newer:
            token = token_in(self.loader.lineage_of(state), state.version, version)
            if token is not None:
                return self._by_token(version, token)
        if newer:
            return self._by_splits()
        token = self._base_token_after(listing, version)
        return None if token is None else self._by_token(version, token)

    def _is_of_another_table(self, base: Base) -> bool:
        """Whether a base is certainly one of a table that was deleted; readers do not use it."""
        return self.loader.is_of_this_table(base) is False

    def _by_token(self, version: int, token: str) -> _Confirmation:
        return self._mark_committed() if token == self.token else self._delete_version_file(version)

    def is_own_version(self, version: int) -> bool:
        """Whether the file at a pending version is ours; raises if it is absent, since it may yet appear."""
        path = version_path(version)
        try:
            data = self.loader.log.get(path)
        except ObjectMissingError:
            raise self.unknown(self.cause) from None
        if _has_token(version_file.decode(data, f"{self.loader.log.url}/{path}"), self.token):
            return True
        self.pending = None
        return False

    def _is_base(self, listing: Listing, base: Snapshot) -> bool:
        """Whether the version before ours is still the one that the draft was checked against.

        A version of another engine has no token; for it, the existence of a file is enough.
        """
        identity = self.loader.identity_at(listing, base.version)
        return identity is not None and (base.token is None or identity == base.identity)

    def _base_token_after(self, listing: Listing, version: int) -> str | None:
        """The base token of the next version, which is this version's token; None if there is no next one."""
        if (info := listing.versions.get(version + 1)) is None:
            return None
        actions = self.loader.version(VersionFile(version + 1, stamp_of(info)))
        return next((a.base_token for a in actions if isinstance(a, CommitInfo)), None)

    def _by_splits(self) -> _Confirmation:
        """Decide by the live splits, when no state has the token of this version.

        States of other engines have no tokens, and later states only those of the last versions.
        """
        loader = self.loader
        paths = {add.path for add in self.draft.adds}
        latest = loader.load_first(segments_at(loader.log, full_listing(loader.log), None))
        if paths and paths <= set(latest.files()["path"].to_pylist()):
            return self._mark_committed()
        raise self.unknown("the versions after it were cleaned up at that moment")

    def _mark_committed(self) -> _Confirmation:
        # Still pending: an error on the way back must not look like a failed commit.
        self.committed = True
        return _Confirmation.COMMITTED

    def _delete_version_file(self, version: int) -> _Confirmation:
        """Delete our version file: a state supersedes it, or it is in a table that took our table's place.

        That table may have its own version of this number by now, which must stay.
        """
        path = version_path(version)
        with suppress(ObjectMissingError):
            data = self.loader.log.get(path)
            if _has_token(version_file.decode(data, f"{self.loader.log.url}/{path}"), self.token):
                self.loader.log.delete([path])
        self.pending = None
        return _Confirmation.SUPERSEDED

    def replacement_error(self, version: int, problem: str = "") -> CommitConflictError:
        """The error if the table is not the one that the draft was planned for."""
        return CommitConflictError(
            self.draft.operation,
            problem or "the table that this operation started from was deleted or replaced meanwhile",
            version=version,
            other="of a table that was created again or restored",
        )

    def unknown(self, cause: str) -> CommitUnknownError:
        """The error if the outcome of the commit is unknown."""
        assert self.pending is not None
        return CommitUnknownError(self.url, self.pending, cause or self.cause, token=self.token)


def _has_token(actions: Sequence[Action], token: str) -> bool:
    return any(isinstance(action, CommitInfo) and action.token == token for action in actions)


def _actions(draft: Draft, current: Snapshot, *, token: str, now_ms: int, engine: str) -> list[Action]:
    """The draft as the lines of a version, on top of the newest snapshot."""
    # Timestamps increase with versions even if clocks do not, so that a timestamp selects one version.
    timestamp = max(now_ms, (current.timestamp or 0) + 1)
    adds, new_schemas = deduplicate(_by_their_own_hash(draft.adds, current.registry), current.registry)
    info = _info(draft, token, timestamp=timestamp, engine=engine, base_token=current.token)
    actions: list[Action] = [info]
    protocol = upgrade_for(draft.adds, draft.protocol or current.protocol) or draft.protocol
    if protocol is not None:
        actions.append(protocol)
    if draft.metadata is not None or new_schemas:
        actions.append(_with_schemas(draft.metadata or current.metadata, current, new_schemas))
    actions += draft.removes
    actions += adds
    removed = current.delta.removed.keys() - current.delta.added.keys()
    actions += [skip for skip in draft.skips if skip.path not in removed]
    actions += draft.txns
    return actions


def _by_their_own_hash(adds: Sequence[Add], registry: Mapping[str, str]) -> list[Add]:
    """Adds that refer to a document mapping by a name other than its hash, with the mapping itself instead.

    Other engines left such names; a compaction drops them, and must not break what is committed meanwhile.
    """
    referred = {add.doc_mapping_ref or "" for add in adds if add.doc_mapping_json is None}
    odd = {name: registry[name] for name in referred & registry.keys() if schema_hash(registry[name]) != name}
    texts = [None if add.doc_mapping_json is not None else odd.get(add.doc_mapping_ref or "") for add in adds]
    return [
        add if text is None else msgspec.structs.replace(add, doc_mapping_json=text, doc_mapping_ref=None)
        for add, text in zip(adds, texts, strict=True)
    ]


def _with_schemas(metadata: Metadata, current: Snapshot, new: Mapping[str, str]) -> Metadata:
    schemas = {**current.registry, **new}
    registered = {REGISTRY_PREFIX + name: text for name, text in sorted(schemas.items())}
    configuration = {**without_registry(metadata.configuration), **registered}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _info(
    draft: Draft, token: str, *, timestamp: int, engine: str, base_token: str | None = None
) -> CommitInfo:
    figures = {
        "numAddedFiles": len(draft.adds),
        "numAddedBytes": sum(add.size for add in draft.adds),
        "numAddedRecords": sum(_records(add) for add in draft.adds),
        "numRemovedFiles": len(draft.removes),
        "numRemovedBytes": sum(remove.size or 0 for remove in draft.removes),
    }
    return CommitInfo(
        timestamp=timestamp,
        operation=draft.operation,
        token=token,
        operation_parameters=dict(draft.parameters),
        operation_metrics=figures,
        engine=engine,
        user_metadata=draft.user_metadata,
        base_token=base_token,
    )


def _records(add: Add) -> int:
    return add.num_records or 0
