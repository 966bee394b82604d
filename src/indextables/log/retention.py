"""Which files of the log may go. Deciding touches nothing; deleting is a separate step.

What stays: everything from the base of the oldest version that is still promised to time travel; states
within their own retention; every manifest that a state that stays refers to; manifests young enough to
belong to a write that is still running.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from indextables.errors import CorruptLogError
from indextables.log.load import Loader
from indextables.log.names import Listing
from indextables.log.segment import Base, bases
from indextables.log.state_manifest import resolve_manifest_path
from indextables.options import Options
from indextables.options import log as opt

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Expired:
    """Files of the log that no retained version needs."""

    versions: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = ()
    manifests: tuple[str, ...] = ()
    paths: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind of file is kept."""

    log_ms: int
    state_ms: int
    state_versions: int
    manifest_ms: int

    @classmethod
    def of(cls, options: Options, *, log_hours: float | None = None) -> "Retention":
        """As the options say; `log_hours` overrides how long version files are kept."""
        hours = options.get(opt.LOG_RETENTION_HOURS) if log_hours is None else log_hours
        return cls(
            log_ms=int(hours * HOUR_MS),
            state_ms=options.get(opt.STATE_RETENTION_HOURS) * HOUR_MS,
            state_versions=options.get(opt.STATE_RETENTION_VERSIONS),
            manifest_ms=int(options.get(opt.MANIFEST_MIN_AGE_HOURS) * HOUR_MS),
        )


def expired(loader: Loader, listing: Listing, retention: Retention, *, now_ms: int) -> Expired:
    """What has outlived its retention."""
    known = bases(listing)
    if not known:
        return Expired()
    anchor = _anchor(listing, known, now_ms - retention.log_ms)
    versions = tuple(
        v
        for v, info in sorted(listing.versions.items())
        if v <= anchor.version and v != listing.latest and info.modified_ms < now_ms - retention.log_ms
    )
    states = _old_states(listing, known, anchor, retention, now_ms)
    checkpoints = tuple(sorted(v for v in listing.checkpoints if v < anchor.version))
    return _with_paths(
        loader, listing, Expired(versions, states, checkpoints), now_ms - retention.manifest_ms
    )


def all_before(loader: Loader, listing: Listing, version: int, *, manifests_before_ms: int) -> Expired:
    """Everything that only versions before this one need; there must be a state at it."""
    found = Expired(
        versions=tuple(sorted(v for v in listing.versions if v < version)),
        states=tuple(sorted(v for v in listing.states if v < version)),
        checkpoints=tuple(sorted(v for v in listing.checkpoints if v < version)),
    )
    return _with_paths(loader, listing, found, manifests_before_ms)


def delete(loader: Loader, found: Expired) -> int:
    """Delete what was decided on, the files that lead readers to others first; how many files."""
    return loader.log.delete(found.paths)


def _old_states(
    listing: Listing, known: list[Base], anchor: Base, retention: Retention, now_ms: int
) -> tuple[int, ...]:
    """States that nobody needs: before the anchor, or told by the version files after it."""
    old = [b.version for b in known if b.is_state and b != known[0] and b != anchor]
    replayable = anchor.version
    while replayable + 1 in listing.versions:
        replayable += 1
    return tuple(
        sorted(
            version
            for version in old[retention.state_versions :]
            if listing.states[version].modified_ms < now_ms - retention.state_ms
            and (version < anchor.version or version <= replayable)
        )
    )


def _anchor(listing: Listing, known: list[Base], kept_from_ms: int) -> Base:
    """The base of the oldest version that is promised to time travel."""
    commits = {**listing.states, **listing.versions}
    young = [v for v, info in commits.items() if info.modified_ms >= kept_from_ms]
    oldest = min(young, default=listing.latest if listing.latest is not None else 0)
    return next((b for b in known if b.version <= oldest), known[-1])


def _with_paths(loader: Loader, listing: Listing, found: Expired, manifests_before_ms: int) -> Expired:
    paths = [listing.versions[v].path for v in found.versions]
    paths += [listing.checkpoints[v].path for v in found.checkpoints]
    gone = set(found.checkpoints)
    paths += [info.path for v, info in listing.checkpoint_parts if v in gone]
    paths += [listing.states[v].path for v in found.states]
    manifests = _unreferenced(loader, listing, set(found.states), manifests_before_ms)
    return Expired(found.versions, found.states, found.checkpoints, manifests, (*paths, *manifests))


def _unreferenced(
    loader: Loader, listing: Listing, gone_states: Iterable[int], before_ms: int
) -> tuple[str, ...]:
    """Old manifests that no remaining state refers to; none if a state cannot be read."""
    gone = set(gone_states)
    remaining = [b for b in bases(listing) if b.is_state and b.version not in gone]
    referenced: set[str] = set()
    try:
        for base in remaining:
            folder = base.path.rsplit("/", 1)[0]
            state = loader.state(base)
            referenced |= {resolve_manifest_path(m.path, folder) for m in state.manifests}
    except CorruptLogError:
        return ()
    return tuple(
        path
        for path, info in sorted(listing.manifests.items())
        if path not in referenced and info.modified_ms < before_ms
    )
