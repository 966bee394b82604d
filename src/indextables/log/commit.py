"""Claim the next version, or explain why not.

```
          ┌─────────────── read what came between, check that the draft still holds ───┐
          ▼                                                                            │
draft ─► actions ─► create <version>.json if absent ──► ours: committed                │
                                       ├──────────────► another's: wait a little ──────┘
                                       └──────────────► cannot be told: outcome unknown
```
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from indextables.errors import CommitAttemptsError, CommitUnknownError, OutcomeUnknownError
from indextables.log import version_file
from indextables.log.actions import Action, Add, CommitInfo, Metadata
from indextables.log.conflict import Draft, check_conflicts, check_snapshot, without_registry
from indextables.log.load import Loader
from indextables.log.names import version_file as version_path
from indextables.log.protocol import check_writable
from indextables.log.schema_registry import REGISTRY_PREFIX, deduplicate
from indextables.log.segment import progress_since
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
    if options.get(opt.PROTOCOL_CHECK):
        check_writable(base.protocol, base.url)
    backoff = Backoff(options.get(opt.RETRY_BASE_MS), options.get(opt.RETRY_MAX_MS))
    attempts = options.get(opt.RETRY_ATTEMPTS)
    token, current = chance.token(), base
    for attempt in range(1, attempts + 1):
        actions = _actions(draft, current, token=token, now_ms=chance.now_ms(), engine=engine)
        if _claim(loader, current, actions):
            return current.then([(current.version + 1, actions)])
        if attempt < attempts:
            chance.sleep(backoff.seconds(attempt, chance.jitter()))
        current = _catch_up(loader, draft, current)
    raise CommitAttemptsError(base.url, draft.operation, attempts)


def create_table(loader: Loader, draft: Draft, chance: Chance, engine: str) -> bool:
    """Write version 0 of a table; false if there is one already."""
    assert draft.metadata is not None
    assert draft.protocol is not None
    info = _info(draft, token=chance.token(), timestamp=chance.now_ms(), engine=engine)
    data = version_file.encode(
        [info, draft.protocol, draft.metadata], compress=loader.options.get(opt.VERSION_COMPRESSION)
    )
    try:
        return loader.log.create(version_path(0), data)
    except OutcomeUnknownError as error:
        raise CommitUnknownError(loader.log.url, 0, str(error)) from error


def _claim(loader: Loader, current: Snapshot, actions: list[Action]) -> bool:
    data = version_file.encode(actions, compress=loader.options.get(opt.VERSION_COMPRESSION))
    version = current.version + 1
    try:
        return loader.log.create(version_path(version), data)
    except OutcomeUnknownError as error:
        raise CommitUnknownError(current.url, version, str(error)) from error


def _catch_up(loader: Loader, draft: Draft, current: Snapshot) -> Snapshot:
    """The newest snapshot, if nothing between `current` and it broke what the draft relies on."""
    progress = progress_since(loader.log, current.version, None)
    if progress.segment is None:
        return current
    if not progress.follows:
        # The versions in between were cleaned up; the table as it is now must still allow the draft.
        latest = loader.load(progress.segment)
        check_snapshot(draft, current.metadata, latest)
        return latest
    winners = loader.versions(progress.segment.versions)
    check_conflicts(draft, current.metadata, winners)
    return loader.extend(current, winners)


def _actions(draft: Draft, current: Snapshot, *, token: str, now_ms: int, engine: str) -> list[Action]:
    """The draft as the lines of a version, on top of the newest snapshot."""
    # Times grow with versions even if clocks do not, so that a time finds one version.
    timestamp = max(now_ms, (current.timestamp or 0) + 1)
    adds, new_schemas = deduplicate(draft.adds, current.registry)
    actions: list[Action] = [_info(draft, token=token, timestamp=timestamp, engine=engine)]
    if draft.protocol is not None:
        actions.append(draft.protocol)
    if draft.metadata is not None or new_schemas:
        actions.append(_with_schemas(draft.metadata or current.metadata, current, new_schemas))
    actions += draft.removes
    actions += adds
    actions += draft.skips
    actions += draft.txns
    return actions


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
