"""What the versions after a base change, as one value. No storage is touched here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import pyarrow as pa

from indextables.log.format import files
from indextables.log.format.actions import (
    Action,
    Add,
    CommitInfo,
    MergeSkip,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from indextables.log.format.files import with_unescaped_partitions

# How many tokens of the last versions a snapshot and a state keep.
LINEAGE_LENGTH = 100


@dataclass(slots=True)
class Delta:
    """The net effect of some versions, in order: what they added, took away and changed.

    `added` are splits that are still there at the end, with their version and commit time. `removed` are
    paths that were taken away at some point; those in `fresh` were first added by these versions, so the
    base does not know them. A path can be in `added` and `removed`, when it was added again. `foreign` are
    the fresh paths of commits of other engines, which may add a path that is live in the base. `lineage`
    holds the tokens of the last versions, the newest last.
    """

    added: dict[str, tuple[Add, int, int]] = field(default_factory=dict)
    removed: dict[str, Remove] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    skips: dict[str, MergeSkip] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    timestamp: int | None = None
    # What makes the last version's commit unique; nothing if another engine wrote it.
    token: str | None = None
    lineage: tuple[str | None, ...] = ()

    def then(self, versions: Iterable[tuple[int, Sequence[Action]]]) -> "Delta":
        """With further versions; this one stays as it is."""
        longer = Delta(
            dict(self.added),
            dict(self.removed),
            set(self.fresh),
            set(self.foreign),
            self.protocol,
            self.metadata,
            dict(self.skips),
            dict(self.txns),
            self.timestamp,
            self.token,
            self.lineage,
        )
        for version, actions in versions:
            longer._take(version, actions)
        return longer

    def _take(self, version: int, actions: Sequence[Action]) -> None:
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        self.token = info.token if info else None
        self.lineage = (*self.lineage, self.token)[-LINEAGE_LENGTH:]
        if info is not None:
            self.timestamp = info.timestamp
        for action in actions:
            match action:
                case Add():
                    stamp = info.timestamp if info else action.modification_time
                    if action.path not in self.removed and action.path not in self.added:
                        self.fresh.add(action.path)
                        if info is None:
                            self.foreign.add(action.path)
                    self.added[action.path] = (action, version, stamp)
                case Remove():
                    self.added.pop(action.path, None)
                    self.skips.pop(action.path, None)
                    self.removed[action.path] = action
                case MergeSkip():
                    self.skips[action.path] = action
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case Txn():
                    self.txns[action.app_id] = action
                case CommitInfo():
                    pass
                case _:
                    assert_never(action)

    def files(self) -> pa.Table:
        """The added splits as a file list."""
        if not self.added:
            return files.FILES.empty_table()
        adds, versions, stamps = zip(*self.added.values(), strict=True)
        listed = files.from_adds(adds, version=0, timestamp=0)
        for name, values in (("addedAtVersion", versions), ("addedAtTimestamp", stamps)):
            place = listed.schema.get_field_index(name)
            listed = listed.set_column(place, listed.schema.field(place), pa.array(values, pa.int64()))
        return with_unescaped_partitions(listed)
