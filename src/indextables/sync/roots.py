"""Table roots: named places at which the files of a companion index's source can be read."""

from collections.abc import Callable, Mapping

from indextables.errors import CommitConflictError, SourceError
from indextables.log.conflict import Draft
from indextables.log.environment import local_time_ms
from indextables.log.transaction_log import TransactionLog
from indextables.options import log as opt
from indextables.source.companion import CompanionProperties, TableRoot
from indextables.store.location import locate


def set_root(log: TransactionLog, name: str, path: str) -> str:
    """Add or change a table root; returns a sentence about the change.

    Raises:
        OptionError: the name has other characters than letters, digits, '_' and '-'.
        SourceError: the table is not a companion index.
    """
    root = TableRoot(locate(path).url, local_time_ms())
    _change(log, "SET TABLE ROOT", lambda old: old.with_root(name, root))
    return f"the table root '{name}' is {root.path}"


def set_roots(log: TransactionLog, roots: Mapping[str, str]) -> None:
    """Set several roots."""
    for name, path in roots.items():
        set_root(log, name, path)


def unset_root(log: TransactionLog, name: str) -> str:
    """Remove a table root; returns a sentence about the change."""
    removed = _change(log, "UNSET TABLE ROOT", lambda old: old.without_root(name))
    return f"the table root '{name}' was removed" if removed else f"there is no table root '{name}'"


def table_roots(log: TransactionLog) -> dict[str, TableRoot]:
    """The table roots, sorted by name."""
    properties = CompanionProperties.of(log.snapshot())
    if properties is None:
        raise _not_a_companion(log)
    return dict(sorted(properties.roots.items()))


def _change(
    log: TransactionLog, operation: str, change: Callable[[CompanionProperties], CompanionProperties]
) -> bool:
    """Commit a change of the properties; after a conflict it is applied to the newest properties."""
    attempts = log.options.get(opt.RETRY_ATTEMPTS)
    for attempt in range(1, attempts + 1):
        snapshot = log.snapshot()
        old = CompanionProperties.of(snapshot)
        if old is None:
            raise _not_a_companion(log)
        log.check_writable(snapshot)
        new = change(old)
        if new == old:
            return False
        try:
            log.commit(Draft(operation=operation, metadata=new.metadata(snapshot.metadata)), snapshot)
        except CommitConflictError:
            if attempt == attempts:
                raise
        else:
            return True
    raise AssertionError("there is at least one attempt")


def _not_a_companion(log: TransactionLog) -> SourceError:
    return SourceError(
        f"the table at {log.store.url} is not a companion index, so it has no table roots; "
        "BUILD INDEXTABLES COMPANION builds one"
    )
