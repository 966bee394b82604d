"""What a purge writes into the log before it deletes files, and which commits that rules out.

A purge deletes files that no version names and that are older than its retention. The files of a write that
still runs are named by no version either. So a purge first commits a version that says up to which time it
deletes, and reads the log again; whoever commits after that, from a version before it, must not name files of
that age (PROTOCOL.md, "Purge").
"""

from collections.abc import Iterable

from indextables.log.clock import CLOCK_SKEW_MS
from indextables.log.format.actions import Add, CommitInfo

PURGE = "PURGE"
_BEFORE = "before"
_RETENTION = "retentionHours"


def purge_parameters(before_ms: int, retention_hours: float) -> dict[str, str]:
    """What the version of a purge says: files up to this time are deleted."""
    return {_BEFORE: str(before_ms), _RETENTION: f"{retention_hours:g}"}


def purge_problem(adds: Iterable[Add], purge: CommitInfo) -> str | None:
    """Why splits cannot be added after a purge that their write did not know of; None if they can."""
    oldest = min(adds, key=lambda add: add.modification_time, default=None)
    if oldest is None:
        return None
    said = purge.operation_parameters.get(_BEFORE, "")
    if said.isascii() and said.isdigit() and oldest.modification_time - CLOCK_SKEW_MS > int(said[:20]):
        return None
    return f"{oldest.path} is so old that that purge may have deleted it: no version named it then"
