"""A table forgets its past: only the newest version stays."""

from dataclasses import dataclass

from indextables.log.transaction_log import TransactionLog


@dataclass(frozen=True, slots=True)
class TruncateResult:
    """The version that stays, and how many versions and states before it went (or would go)."""

    version: int
    versions: int
    states: int
    dry_run: bool


def truncate(log: TransactionLog, *, dry_run: bool = False) -> TruncateResult:
    """Forget all versions before the newest one; a dry run writes nothing."""
    version, gone = log.truncate(dry_run=dry_run)
    return TruncateResult(version, len(gone.versions), len(gone.states) + len(gone.checkpoints), dry_run)
