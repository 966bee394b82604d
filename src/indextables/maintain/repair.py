"""A log is written anew: from one that can still be read, or from the splits alone.

The log that is repaired is never changed. The new one has two versions: the table, and its splits.
"""

from dataclasses import dataclass, replace

import msgspec

from indextables.errors import LogError, OptionError, TableNotFoundError
from indextables.log.conflict import Draft, without_registry
from indextables.log.format.actions import Metadata
from indextables.log.format.files import to_adds
from indextables.log.format.names import LOG_FOLDER
from indextables.log.format.protocol import check_writable
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.presence import missing
from indextables.maintain.rebuild import rebuilt
from indextables.maintain.restore import with_mappings
from indextables.options import Options
from indextables.options.log import CACHE_ENABLED, PROTOCOL_CHECK
from indextables.store import Store, open_store

REPAIR = "REPAIR"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The new log: where it is, from which version, how many splits there were and how many it names.

    `left_out` says of each split that the new log does not name why not. `source_version` is -1 if there
    was no log to read.
    """

    source: str
    target: str
    source_version: int
    total_splits: int
    valid_splits: int
    left_out: tuple[tuple[str, str], ...]

    @property
    def missing_splits(self) -> int:
        """How many splits are missing or cannot be read; those that a merge has replaced are not counted."""
        return sum(reason != REPLACED for _, reason in self.left_out)


REPLACED = "its rows are in a merged split"


def repair(source: str, target: str | None, options: Options, *, engine: str) -> Repaired:
    """Write a log anew.

    Args:
        source: the log folder of the table; without a target, the table's folder will do.
        target: the log folder to write, absent or empty. None rebuilds a log that is lost, in its place.
        options: how to reach both.
        engine: who signs the commits.
    """
    # What this process remembers of a log does not count: it is what is on storage that is repaired.
    options = Options({**options.values, CACHE_ENABLED.key.lower(): "false"})
    if target is None:
        return _from_splits(_table(source, options, strict=False), options, engine)
    return _from_log(
        _table(source, options, strict=True), _table(target, options, strict=True), options, engine
    )


def _from_log(source: Store, target: Store, options: Options, engine: str) -> Repaired:
    _check_empty(target)
    snapshot = _readable(TransactionLog(source, options, engine=engine))
    if options.get(PROTOCOL_CHECK):
        # The new log would not ask for features that this release does not know.
        check_writable(snapshot.protocol, snapshot.url)
    adds = to_adds(snapshot.files())
    lost = set(missing(source, [add.path for add in adds]))
    found = with_mappings([add for add in adds if add.path not in lost], snapshot)
    metadata = msgspec.structs.replace(
        snapshot.metadata, configuration=without_registry(snapshot.metadata.configuration)
    )
    draft = Draft(
        operation=REPAIR,
        adds=tuple(found),
        txns=tuple(snapshot.txns.values()),
        parameters={"source": source.url, "version": str(snapshot.version)},
        reuses_files=True,
    )
    _write(target, metadata, draft, options, engine)
    reasons = tuple((add.path, "the file is missing") for add in adds if add.path in lost)
    return Repaired(_log_url(source), _log_url(target), snapshot.version, len(adds), len(found), reasons)


def _from_splits(store: Store, options: Options, engine: str) -> Repaired:
    log = TransactionLog(store, options, engine=engine)
    if next(store.at(LOG_FOLDER).list(), None) is not None:
        try:
            unfinished = _is_unfinished(log)
        except TableNotFoundError:
            advice = "remove what is left of it"
        except LogError as error:
            advice = (
                f"it cannot be read ({error}); move it away, or read an earlier version of it AT LOCATION"
            )
        else:
            advice = "" if unfinished else "it can be read; to write it anew elsewhere, give AT LOCATION"
        if advice:
            raise OptionError(f"there is a log at {_log_url(store)}, and {advice}")
    found = rebuilt(store)
    draft = Draft(operation=REPAIR, adds=found.adds, parameters={"source": "splits"}, reuses_files=True)
    _write(store, found.metadata, draft, options, engine)
    total = len(found.adds) + len(found.left_out) + len(found.replaced)
    reasons = (*found.left_out, *((path, REPLACED) for path in found.replaced))
    return Repaired(_log_url(store), _log_url(store), -1, total, len(found.adds), reasons)


def _write(store: Store, metadata: Metadata, draft: Draft, options: Options, engine: str) -> None:
    log = TransactionLog(store, options, engine=engine)
    made = log.create(metadata, operation=REPAIR)
    if made is None and _is_unfinished(log):
        made = log.snapshot()
        draft = replace(draft, metadata=msgspec.structs.replace(metadata, id=made.metadata.id))
    if made is None:
        raise OptionError(f"somebody else has just written a log at {_log_url(store)}; look at it first")
    if draft.adds or draft.txns:
        log.commit(draft, made)


def _is_unfinished(log: TransactionLog) -> bool:
    """Whether a log is what a repair leaves that was stopped between its two versions: no split is named."""
    newest = log.history(2)
    return [(entry.version, entry.operation) for entry in newest] == [(0, REPAIR)]


def _readable(log: TransactionLog) -> Snapshot:
    """The newest version that can be read: of a damaged log, an earlier one."""
    try:
        return log.snapshot()
    except TableNotFoundError:
        raise
    except LogError as error:
        damage = error
    for version in reversed(log.reachable()):
        try:
            snapshot = log.snapshot(version=version)
            snapshot.files()
        except LogError:
            continue
        return snapshot
    raise damage


def _check_empty(target: Store) -> None:
    found = next(target.at(LOG_FOLDER).list(), None)
    if found is not None:
        raise OptionError(
            f"there is {found.path} at {_log_url(target)} already; give a folder that is absent or empty"
        )


def _table(path: str, options: Options, *, strict: bool) -> Store:
    """The table to whose log folder a path leads."""
    plain = path.rstrip("/")
    root, _, last = plain.rpartition("/")
    if last == LOG_FOLDER:
        return open_store(root or "/", options)
    if strict:
        raise OptionError(f"'{path}' does not end in {LOG_FOLDER}; name the log folder of the table")
    return open_store(plain, options)


def _log_url(table: Store) -> str:
    return f"{table.url}/{LOG_FOLDER}"
