"""Which files of the log describe a version: a base, and the versions after it.

```
state-v10  +  11.json 12.json 13.json   =  version 13
```

The pointer says from where to list. Everything that could make it a lie (stale, damaged, naming what is
gone, versions missing after it) leads to a full listing, and only what is missing there is an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from indextables.errors import CorruptLogError, TableNotFoundError, VersionNotFoundError
from indextables.log.names import Listing, version_file
from indextables.log.pointer import Pointer, read_pointer
from indextables.store import Store

# Size and time of a version's file.
Stamp: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Base:
    """A state or a JSON checkpoint to start from."""

    version: int
    path: str
    is_state: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """The base (none: the empty table) and the version files to replay on it, in order."""

    version: int
    base: Base | None
    versions: tuple[int, ...]
    earlier_states: tuple[Base, ...] = ()


def current_segment(log: Store) -> Segment:
    """The files of the newest version."""
    pointer = read_pointer(log)
    if pointer is not None:
        listing = Listing.of(log.list(after=version_file(pointer.version)))
        if listing.pointer is not None and _names_something(pointer, listing):
            found = _segment(listing, listing.latest)
            if found is not None:
                return found
    return segment_at(log, full_listing(log), None)


@dataclass(frozen=True, slots=True)
class Progress:
    """How the log went on from a version that is known already.

    `stamp` identifies the file of the known version; it is compared the next time, so that a table that
    was deleted and made anew under the same name is not mistaken for the old one.
    """

    segment: Segment | None
    follows: bool
    stamp: Stamp | None
    newest_state: Base | None = None


def progress_since(log: Store, version: int, stamp: Stamp | None) -> Progress:
    """What came after a version: nothing, versions that follow it, or a table to be read anew."""
    listing = Listing.of(log.list(after=version_file(version - 1) if version else None))
    latest = listing.latest
    found = _stamp(listing, version)
    if latest is None or latest < version or found is None or stamp not in (None, found):
        return Progress(current_segment(log), follows=False, stamp=None)
    if latest == version:
        return Progress(None, follows=True, stamp=found)
    needed = range(version + 1, latest + 1)
    if any(v not in listing.versions for v in needed):
        return Progress(current_segment(log), follows=False, stamp=None)
    newest = next((b for b in bases(listing) if b.is_state), None)
    return Progress(Segment(latest, None, tuple(needed)), True, _stamp(listing, latest), newest)


def _stamp(listing: Listing, version: int) -> Stamp | None:
    info = listing.versions.get(version) or listing.states.get(version)
    return (info.size, info.modified_ms) if info else None


def full_listing(log: Store) -> Listing:
    """Everything in the log folder."""
    return Listing.of(log.list())


def segment_at(log: Store, listing: Listing, version: int | None) -> Segment:
    """The files of a version (none: the newest), from a full listing."""
    latest = listing.latest
    if latest is None:
        raise TableNotFoundError(_table_url(log))
    target = latest if version is None else version
    if version is not None and not 0 <= version <= latest:
        raise VersionNotFoundError(_table_url(log), f"version {version}", earliest(listing), latest)
    found = _segment(listing, target)
    if found is not None:
        return found
    if version is not None and version < latest:
        raise VersionNotFoundError(_table_url(log), f"version {version}", earliest(listing), latest)
    raise _missing(log, listing, target)


def reachable(listing: Listing) -> Iterator[int]:
    """Every version that can be read, in order."""
    whole = False
    for version in range((listing.latest if listing.latest is not None else -1) + 1):
        if version in listing.states or version in listing.checkpoints:
            whole = True
        elif version == 0:
            whole = 0 in listing.versions
        else:
            whole = whole and version in listing.versions
        if whole:
            yield version


def earliest(listing: Listing) -> int | None:
    """The first version that can be read."""
    return next(reachable(listing), None)


def bases(listing: Listing) -> list[Base]:
    """Every state and JSON checkpoint, newest first; a state before a checkpoint of the same version."""
    found = [Base(v, info.path, is_state=True) for v, info in listing.states.items()]
    found += [Base(v, info.path, is_state=False) for v, info in listing.checkpoints.items()]
    return sorted(found, key=lambda b: (-b.version, not b.is_state))


def _segment(listing: Listing, target: int | None) -> Segment | None:
    if target is None:
        return None
    candidates = [b for b in bases(listing) if b.version <= target]
    for position, base in enumerate(candidates):
        needed = range(base.version + 1, target + 1)
        if all(v in listing.versions for v in needed):
            earlier = tuple(b for b in candidates[position + 1 :] if b.is_state)
            return Segment(target, base, tuple(needed), earlier)
    if all(v in listing.versions for v in range(target + 1)):
        return Segment(target, None, tuple(range(target + 1)))
    return None


def _names_something(pointer: Pointer, listing: Listing) -> bool:
    """Whether a listing from the pointer on shows what it names, or something newer.

    A JSON checkpoint sorts before its own version, so such a listing never shows it.
    """
    least = pointer.version if pointer.is_state else pointer.version + 1
    return any(version >= least for version in listing.states)


def _missing(log: Store, listing: Listing, target: int) -> CorruptLogError:
    known = bases(listing)
    start = known[0].version + 1 if known else 0
    gap = next(v for v in range(start, target + 1) if v not in listing.versions)
    return CorruptLogError(
        f"{log.url}/{version_file(gap)}",
        f"version {gap} is missing, so version {target} cannot be read",
    )


def _table_url(log: Store) -> str:
    return log.url.rsplit("/", 1)[0]
