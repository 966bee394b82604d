"""Which files of the log describe a version: a base, and the versions after it.

```
state-v10  +  11.json 12.json 13.json   =  version 13
```

The listing starts at the pointer. If the pointer is stale or damaged, or files after it are missing, the
whole folder is listed, and only files missing there are an error. Every file is identified by its name and
its stamp, so that cached content is never used for another file of the same name: a table may be deleted and
created again at the same place.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, takewhile
from typing import TypeAlias

from indextables.cache import Cache
from indextables.errors import (
    CorruptLogError,
    LogError,
    ObjectMissingError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.format.actions import Action, CommitInfo
from indextables.log.format.checkpoint_files import Pointer, read_checkpoint, read_pointer
from indextables.log.format.names import MANIFEST_FOLDER, Listing, state_folder, version_file
from indextables.log.format.state_manifest import decode_header, decode_state
from indextables.log.format.version_file import decode as decode_version
from indextables.records import dataclass
from indextables.store import CacheScope, ObjectInfo, Store

# How many files are listed while the pointer is being read: one page of an object store.
_MAX_FIRST_FILES = 1000
# Size, time and tag of a file, which distinguish it from other files of the same name.
Stamp: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The file of a version."""

    version: int
    stamp: Stamp

    @property
    def modified_ms(self) -> int:
        """When it was written, by the store's clock."""
        return self.stamp[1]


@dataclass(frozen=True, slots=True)
class Base:
    """A state or a JSON checkpoint from which versions are replayed."""

    version: int
    path: str
    is_state: bool
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The base (None: the empty table) and the version files to replay on it, in order.

    `stamp` is that of the file that created the version, which may be the state. `has_file` is true if it is
    a version file.
    """

    version: int
    base: Base | None
    versions: tuple[VersionFile, ...]
    stamp: Stamp | None = None
    has_file: bool = False

    @property
    def start(self) -> int:
        """The version of the base; -1 if there is none."""
        return self.base.version if self.base else -1

    @property
    def base_path(self) -> str:
        """The path of the base; empty if there is none."""
        return self.base.path if self.base else ""


def current_segment(log: Store) -> LogSegment:
    """The files of the newest version."""
    pointer, files = _pointer_and_files(log)
    if pointer is None:
        return segment_at(log, full_listing(log, files), None)
    listing = listing_from(log, pointer.version, files)
    if listing.pointer is not None and _pointer_is_valid(pointer, listing):
        segment = next(_segments(listing, listing.latest), None)
        if segment is not None:
            return segment
    return segment_at(log, full_listing(log), None)


def _pointer_and_files(log: Store) -> tuple[Pointer | None, list[ObjectInfo] | None]:
    """The pointer and all files of the log folder; no files if they are many or the store has no pages.

    Both are requested at the same time. The listing may be older than the pointer: if it lacks the pointer's
    state, the folder is listed again.
    """
    if not log.lists_in_pages:
        return read_pointer(log), None
    with ThreadPoolExecutor(1, thread_name_prefix="indextables-list") as thread:
        listing = thread.submit(lambda: list(islice(log.list(), _MAX_FIRST_FILES)))
        pointer = read_pointer(log)
        files = listing.result()
    return pointer, files if len(files) < _MAX_FIRST_FILES else None


@dataclass(frozen=True, slots=True)
class Progress:
    """The versions after a version that was read before.

    `later` are the files of versions that follow it. `stamp` identifies the file of the newest version; it
    is compared the next time, to detect a table that was deleted and created again.
    """

    follows: bool
    later: tuple[VersionFile, ...] = ()
    stamp: Stamp | None = None
    # The segment of the newest version that starts at the newest state.
    newest: LogSegment | None = None


def progress_since(log: Store, version: int, stamp: Stamp | None) -> Progress:
    """The versions after a version; `follows` is false if the table has to be read again.

    Without a stamp, any file of the version is accepted: the caller compares its token.
    """
    listing = listing_from(log, version)
    latest = listing.latest
    current = stamp_at(listing, version)
    if latest is None or latest < version or current is None or stamp not in (None, current):
        return Progress(follows=False)
    later = versions_after(listing, version)
    if later is None:
        return Progress(follows=False)
    stamp = stamp_at(listing, latest)
    states = [b for b in bases(listing) if b.is_state]
    newest = None
    if states:
        after = tuple(file for file in later if file.version > states[0].version)
        newest = LogSegment(latest, states[0], after, stamp, latest in listing.versions)
    return Progress(True, later, stamp, newest)


def versions_after(listing: Listing, version: int) -> tuple[VersionFile, ...] | None:
    """The files of all versions after one, in order; None if one of them is not listed."""
    latest = listing.latest
    needed = range(version + 1, (version if latest is None else latest) + 1)
    return version_files(listing, needed) if all(v in listing.versions for v in needed) else None


def listing_from(log: Store, version: int, files: Iterable[ObjectInfo] | None = None) -> Listing:
    """The files of a version and of later ones: version files, checkpoints and states.

    Manifests and earlier states lie between them in the order of names, so a log with many of them is listed
    in parts. `files` are all files of the folder, if they have been listed.
    """
    return _without_strays(log, _list_from(log, version, files))


def _list_from(log: Store, version: int, files: Iterable[ObjectInfo] | None) -> Listing:
    if version == 0:
        return Listing.of(log.list() if files is None else files)
    after = version_file(version - 1)
    if files is not None:
        return Listing.of(info for info in files if info.path > after)
    infos = log.list(after=after)
    if log.lists_in_pages:
        first = list(islice(infos, _MAX_FIRST_FILES))
        if len(first) < _MAX_FIRST_FILES:
            return Listing.of(first)
        infos = chain(first, infos)
    # States first if possible: the version file of a state is created before the state.
    states = list(log.list(after=state_folder(version)))
    versions = takewhile(lambda info: info.path < MANIFEST_FOLDER, infos)
    return Listing.of((*versions, *states))


def earlier_states(log: Store, version: int) -> tuple[Base, ...]:
    """All states before a version, the newest first.

    A state in the folder of another version comes last; it may be the only one with the table's metadata.
    """
    listing = full_listing(log)
    misfiled = listing.misfiled
    last = (Base(0, misfiled.path, is_state=True, stamp=stamp_of(misfiled)),) if misfiled else ()
    return (*(base for base in bases(listing) if base.is_state and base.version < version), *last)


def stamp_of(info: ObjectInfo) -> Stamp:
    """What distinguishes this file from other files of the same name."""
    return info.size, info.modified_ms, info.etag


def stamp_at(listing: Listing, version: int) -> Stamp | None:
    """The stamp of the file that created a version: its version file, or in older tables its state."""
    info = listing.versions.get(version) or listing.states.get(version) or listing.checkpoints.get(version)
    return stamp_of(info) if info else None


def version_files(listing: Listing, versions: range) -> tuple[VersionFile, ...]:
    """The files of versions that are in the listing."""
    return tuple(VersionFile(v, stamp_of(listing.versions[v])) for v in versions)


def full_listing(log: Store, files: Iterable[ObjectInfo] | None = None) -> Listing:
    """All files of the log folder, except a state in the folder of a version that it does not describe.

    Releases of the original could write the newest state into the folder of version 0: they numbered states
    by the version files, which had been deleted. Version 0 never has splits. `files` are all files of the
    folder, if they have been listed.
    """
    listing = Listing.of(log.list() if files is None else files)
    misfiled = listing.states.get(0)
    if misfiled is not None and 0 not in listing.versions and len(listing.states) > 1:
        try:
            state = decode_state(log.get(misfiled.path), f"{log.url}/{misfiled.path}")
        except (CorruptLogError, ObjectMissingError):
            listing.states.pop(0)  # not needed: there are newer states
        else:
            if state.num_files:
                listing.misfiled = listing.states.pop(0)
    return _without_strays(log, listing)


# The lineages of states and JSON checkpoints after the last version file; there are few.
_lineages: Cache[tuple[CacheScope, Base], tuple[str | None, ...]] = Cache(
    256, weigh=lambda lineage: sum(len(token or "") + 1 for token in lineage)
)
_MAX_LINEAGE_BYTES = 1 << 20


def _without_strays(log: Store, listing: Listing) -> Listing:
    """The listing without states and checkpoints that a killed process left in a table with fewer versions.

    The file of a version stays while the version is the newest. So what comes after the last file was left by
    another engine, or in a table that was created again: then its lineage has another token for that file.
    """
    last = max(listing.versions, default=None)
    if last is None or listing.latest == last:
        return listing
    own: str | None = None
    for base in (base for base in bases(listing) if base.version > last):
        expected = token_in(_lineage(log, base), base.version, last)
        if expected is None:
            continue
        own = own or _token_of(log, last)
        if own not in (None, expected):
            (listing.states if base.is_state else listing.checkpoints).pop(base.version)
    return listing


def _lineage(log: Store, base: Base) -> tuple[str | None, ...]:
    """The tokens of the last versions up to a base; empty if they are unknown."""
    key = log.cache_scope, base
    if (cached := _lineages.get(key)) is not None:
        return cached
    url = f"{log.url}/{base.path}"
    try:
        if base.is_state:
            header = decode_header(decode_state(log.get(base.path), url).extra, url)
            lineage = tuple(header.commits) if header else ()
        else:
            info = _commit_in(read_checkpoint(log, base.version))
            lineage = tuple(info.lineage) if info else ()
    except (LogError, ObjectMissingError):
        return ()
    _lineages.put(key, lineage, max_weight=_MAX_LINEAGE_BYTES)
    return lineage


def _token_of(log: Store, version: int) -> str | None:
    """The token in the file of a version; None if it is unknown."""
    path = version_file(version)
    try:
        info = _commit_in(decode_version(log.get(path), f"{log.url}/{path}"))
    except (LogError, ObjectMissingError):
        return None
    return info.token or None if info else None


def _commit_in(actions: Iterable[Action]) -> CommitInfo | None:
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def token_in(lineage: Sequence[str | None], newest: int, version: int) -> str | None:
    """The token of a version in a lineage that ends at `newest`; None if the lineage is too short."""
    steps = newest - version
    return lineage[-1 - steps] if 0 <= steps < len(lineage) else None


def segment_at(log: Store, listing: Listing, version: int | None) -> LogSegment:
    """The files of a version (None: the newest), from a full listing."""
    return segments_at(log, listing, version)[0]


def segments_at(log: Store, listing: Listing, version: int | None) -> list[LogSegment]:
    """All segments of a version (None: the newest), one for each base before it, the newest base first.

    All of them describe the same version. A reader uses the next one when a file of the first is damaged.
    """
    latest = listing.latest
    if latest is None:
        raise TableNotFoundError(_table_url(log))
    target = latest if version is None else version
    if version is not None and not 0 <= version <= latest:
        raise VersionNotFoundError(_table_url(log), f"version {version}", earliest(listing), latest)
    segments = list(_segments(listing, target))
    if segments:
        return segments
    if version is not None and version < latest:
        raise VersionNotFoundError(_table_url(log), f"version {version}", earliest(listing), latest)
    raise _missing(log, listing, target)


def reachable(listing: Listing) -> Iterator[int]:
    """Every version that can be read, in order."""
    # A loop over files, not numbers: a forged version of twelve digits must not cause a long loop.
    previous = -1
    whole = True
    for version in sorted({*listing.versions, *listing.states, *listing.checkpoints}):
        if version in listing.states or version in listing.checkpoints:
            whole = True
        else:
            whole = whole and version == previous + 1
        previous = version
        if whole:
            yield version


def earliest(listing: Listing) -> int | None:
    """The first version from which on all versions can be read."""
    first: int | None = None
    previous = None
    for version in reachable(listing):
        if previous is None or version != previous + 1:
            first = version
        previous = version
    return first


def bases(listing: Listing) -> list[Base]:
    """Every state and JSON checkpoint, newest first; a state before a checkpoint of the same version.

    If version 0 has a file of its own, later versions never start from a state at 0: see `full_listing`.
    """
    skip_zero = 0 in listing.versions and listing.latest != 0
    states_and_checkpoints = [
        Base(v, info.path, is_state=True, stamp=stamp_of(info))
        for v, info in listing.states.items()
        if v or not skip_zero
    ]
    states_and_checkpoints += [
        Base(v, info.path, is_state=False, stamp=stamp_of(info)) for v, info in listing.checkpoints.items()
    ]
    return sorted(states_and_checkpoints, key=lambda b: (-b.version, not b.is_state))


def _segments(listing: Listing, target: int | None) -> Iterator[LogSegment]:
    if target is None:
        return
    candidates = [b for b in bases(listing) if b.version <= target]
    for base in candidates:
        needed = range(base.version + 1, target + 1)
        if all(v in listing.versions for v in needed):
            stamp, has_file = stamp_at(listing, target), target in listing.versions
            yield LogSegment(target, base, version_files(listing, needed), stamp, has_file)
    if all(v in listing.versions for v in range(target + 1)):
        replayed = version_files(listing, range(target + 1))
        yield LogSegment(target, None, replayed, stamp=stamp_at(listing, target), has_file=True)


def _pointer_is_valid(pointer: Pointer, listing: Listing) -> bool:
    """Whether the file that the pointer names, or a newer one, is in the listing."""
    return any(version >= pointer.version for version in (*listing.states, *listing.checkpoints))


def _missing(log: Store, listing: Listing, target: int) -> CorruptLogError:
    all_bases = bases(listing)
    start = all_bases[0].version + 1 if all_bases else 0
    gap = next(v for v in range(start, target + 1) if v not in listing.versions)
    return CorruptLogError(
        f"{log.url}/{version_file(gap)}",
        f"version {gap} is missing, so version {target} cannot be read",
    )


def _table_url(log: Store) -> str:
    return log.url.rsplit("/", 1)[0]
