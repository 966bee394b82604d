"""Claim the next version, or explain why not.

```
draft ─► read what came between, check that the draft still holds ◄────────────────────┐
                            │                                                          │
                            ▼                                                          │
         actions ─► create <version>.json if absent ──► ours: committed                │
                                       ├──────────────► another's, or forgotten: wait ─┘
                                       └──────────────► cannot be told: outcome unknown
```

What came between is read before the first attempt too. Creating the version after an old base without a
look could succeed where others' versions were committed and cleaned up since, and nobody would ever read it;
that this did not happen between the look and the creation is checked afterwards (`overtaken`).
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from indextables.errors import (
    CommitAttemptsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptLogError,
    ObjectMissingError,
    OutcomeUnknownError,
    StoreError,
)
from indextables.log.conflict import (
    Draft,
    check_batches,
    check_conflicts,
    check_snapshot,
    without_registry,
)
from indextables.log.format import version_file
from indextables.log.format.actions import Action, Add, CommitInfo, Metadata
from indextables.log.format.names import version_file as version_path
from indextables.log.format.protocol import check_writable, upgrade_for
from indextables.log.format.schema_registry import REGISTRY_PREFIX, deduplicate, schema_hash
from indextables.log.load import Loader
from indextables.log.overtaken import is_overtaken
from indextables.log.segment import Progress, current_segment, progress_since
from indextables.log.snapshot import Snapshot
from indextables.options import log as opt


@dataclass(frozen=True, slots=True)
class Chance:
    """Clock, ids and waiting, given from outside so that a race can be replayed."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    token: Callable[[], str] = lambda: random.SystemRandom().randbytes(16).hex()
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before attempt 2, 3, ...: twice as long each time, up to a cap, with jitter."""

    base_ms: int
    max_ms: int

    def seconds(self, attempt: int, jitter: float) -> float:
        """The wait after a failed attempt (the first is 1); jitter is between 0 and 1.

        >>> [Backoff(100, 5000).seconds(n, 1.0) for n in (1, 2, 3, 10)]
        [0.1, 0.2, 0.4, 5.0]
        """
        whole_ms = min(float(self.base_ms) * 2.0 ** (attempt - 1), float(self.max_ms))
        return whole_ms / 1000 * (0.5 + jitter / 2)


def commit(loader: Loader, draft: Draft, base: Snapshot, chance: Chance, engine: str) -> Snapshot:
    """Make the draft the next version of the table; the snapshot it leads to.

    `base` is what the draft was made from. What was committed since then is checked against it.
    """
    options = loader.options
    check_batches(draft, base)
    backoff = Backoff(options.get(opt.RETRY_BASE_MS), options.get(opt.RETRY_MAX_MS))
    attempts = options.get(opt.RETRY_ATTEMPTS)
    token, current = chance.token(), base
    unknown: OutcomeUnknownError | None = None
    for attempt in range(1, attempts + 1):
        current = _catch_up(loader, draft, current, token, unknown)
        if current.identity == token:
            return current
        if options.get(opt.PROTOCOL_CHECK):
            check_writable(current.protocol, current.url)
        actions = _actions(draft, current, token=token, now_ms=chance.now_ms(), engine=engine)
        try:
            ours = _claim(loader, current.version + 1, actions, token)
        except OutcomeUnknownError as error:
            ours, unknown = False, error
        else:
            unknown = None
        if ours and not is_overtaken(loader, current.version + 1, draft, current.url):
            return current.then([(current.version + 1, actions)], token)
        if attempt < attempts:
            chance.sleep(backoff.seconds(attempt, chance.jitter()))
    if unknown is not None:
        raise CommitUnknownError(base.url, current.version + 1, str(unknown)) from unknown
    raise CommitAttemptsError(base.url, draft.operation, attempts)


def create_table(loader: Loader, draft: Draft, chance: Chance, engine: str) -> bool:
    """Write version 0 of a table; false if there is one already."""
    assert draft.metadata is not None
    assert draft.protocol is not None
    token = chance.token()
    info = _info(draft, token=token, timestamp=chance.now_ms(), engine=engine)
    actions: list[Action] = [info, draft.protocol, draft.metadata]
    try:
        return _claim(loader, 0, actions, token)
    except OutcomeUnknownError as error:
        raise CommitUnknownError(_table_url(loader), 0, str(error)) from error


def _claim(loader: Loader, version: int, actions: list[Action], token: str) -> bool:
    """Whether the version is ours now; OutcomeUnknownError if it is absent but might still appear."""
    data = version_file.encode(actions, compress=loader.options.get(opt.VERSION_COMPRESSION))
    try:
        return loader.log.create(version_path(version), data)
    except OutcomeUnknownError as error:
        try:
            written = version_file.decode(loader.log.get(version_path(version)), error.url)
        except ObjectMissingError:
            raise error from None
        except (StoreError, CorruptLogError):
            raise CommitUnknownError(_table_url(loader), version, str(error)) from error
        return _has_token(written, token)


def _catch_up(
    loader: Loader, draft: Draft, current: Snapshot, token: str, unknown: OutcomeUnknownError | None
) -> Snapshot:
    """The newest snapshot, if nothing between `current` and it broke what the draft relies on.

    If one of the versions in between is our own, whose acknowledgement was lost, the snapshot at it. While
    the outcome of an attempt is unknown, failing to see what came of it leaves it unknown.
    """
    progress = Progress(follows=False)
    winners = None
    try:
        progress = progress_since(loader.log, current.version, None)
        winners = loader.versions(progress.later) if progress.follows else None
    except CorruptLogError:
        pass  # cleaned up since they were listed, or really damaged: then loading says so
    except StoreError as error:
        if unknown is None:
            raise
        raise CommitUnknownError(current.url, current.version + 1, str(error)) from unknown
    if winners is None and unknown is not None:
        raise CommitUnknownError(current.url, current.version + 1, str(unknown)) from unknown
    if winners is None:
        return _anew(loader, draft, current)
    later = progress.later
    ours = next((n for n, (_, actions) in enumerate(winners) if _has_token(actions, token)), None)
    if ours is not None:
        return loader.extend(current, later[: ours + 1])
    check_conflicts(draft, current.metadata, winners)
    return loader.extend(current, later)


def _anew(loader: Loader, draft: Draft, current: Snapshot) -> Snapshot:
    """The newest snapshot when the versions in between were cleaned up: it must still allow the draft."""
    latest = loader.load(current_segment(loader.log))
    if latest.version < current.version:
        raise CommitConflictError(
            draft.operation,
            f"the table is at version {latest.version}, and this operation started from {current.version}",
            version=latest.version,
            other="of a table that was made anew or restored",
        )
    check_snapshot(draft, current.metadata, latest)
    return latest


def _has_token(actions: Sequence[Action], token: str) -> bool:
    return any(isinstance(action, CommitInfo) and action.token == token for action in actions)


def _actions(draft: Draft, current: Snapshot, *, token: str, now_ms: int, engine: str) -> list[Action]:
    """The draft as the lines of a version, on top of the newest snapshot."""
    # Times grow with versions even if clocks do not, so that a time finds one version.
    timestamp = max(now_ms, (current.timestamp or 0) + 1)
    adds, new_schemas = deduplicate(_by_their_own_hash(draft.adds, current.registry), current.registry)
    actions: list[Action] = [_info(draft, token=token, timestamp=timestamp, engine=engine)]
    protocol = upgrade_for(draft.adds, draft.protocol or current.protocol) or draft.protocol
    if protocol is not None:
        actions.append(protocol)
    if draft.metadata is not None or new_schemas:
        actions.append(_with_schemas(draft.metadata or current.metadata, current, new_schemas))
    actions += draft.removes
    actions += adds
    actions += draft.skips
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
    known = {**current.registry, **new}
    registered = {REGISTRY_PREFIX + name: text for name, text in sorted(known.items())}
    configuration = {**without_registry(metadata.configuration), **registered}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _info(draft: Draft, *, token: str, timestamp: int, engine: str) -> CommitInfo:
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
    )


def _records(add: Add) -> int:
    return add.num_records or 0


def _table_url(loader: Loader) -> str:
    return loader.log.url.rsplit("/", 1)[0]
