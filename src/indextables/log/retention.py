"""Retention of log files: which ones have expired, and, as a separate step, their deletion.

Retained are: the newest version; every version within log retention, with the base it is read from; the
states within state retention; the one that the pointer names; earlier files with what states of other engines
lack (metadata, batches of streams, skipped splits); every manifest and filter bundle that a retained state
refers to; manifests and bundles so young that they may belong to a running write.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from indextables.errors import CorruptLogError, OptionError, StateExpiredError
from indextables.log.format.checkpoint_files import Pointer, read_pointer
from indextables.log.format.names import Listing, state_folder
from indextables.log.format.state_manifest import StateManifest, decode_header, resolve_manifest_path
from indextables.log.load import Loader
from indextables.log.segment import Base, Stamp, bases, full_listing, stamp_of, versions_after
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options import log as opt
from indextables.options.maintenance import PURGE_LOG_HOURS
from indextables.records import dataclass
from indextables.store import ObjectInfo

HOUR_MS = 3_600_000
# The minimum age at which unreferenced manifests are deleted: a running checkpoint may need younger ones.
MIN_MANIFEST_AGE_HOURS = 1.0
# The minimum age at which probe objects are deleted: the processes that wrote them have ended.
_PROBE_AGE_MS = 24 * HOUR_MS
# A limit on the number of versions does not apply to versions younger than this: operations may use them.
MIN_VERSION_AGE_MS = HOUR_MS
# Of the states above the oldest retained base, the first of each such period stays (see `_lasting_states`).
_PERIOD_MS = 6 * HOUR_MS
# The log is cleaned when at least 1 of this many versions has expired, because cleaning reads all states.
_CLEANING_SHARE = 10


def stream_retention(options: Options) -> Options:
    """The options of a stream's commits: a limit on versions, unless options say what is retained."""
    explicit = (opt.CLEANUP_MAX_VERSIONS, opt.LOG_RETENTION_HOURS, PURGE_LOG_HOURS)
    if any(options.is_set(option) for option in explicit):
        return options
    return Options.parse({opt.CLEANUP_MAX_VERSIONS.key: opt.STREAM_MAX_VERSIONS}).over(options)


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """Files of the log that no retained version needs: by kind, and all of their paths."""

    versions: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = ()
    manifests: tuple[str, ...] = ()
    filter_bundles: tuple[str, ...] = ()
    # Files that refer to others, and the files that they refer to. The former are deleted first.
    leading: tuple[str, ...] = ()
    led_to: tuple[str, ...] = ()
    # Size, time and tag of the files, which distinguish them from later files of the same name.
    stamps: Mapping[str, Stamp] = field(default_factory=dict, compare=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file, in the order of deletion."""
        return (*self.leading, *self.led_to)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind of file is kept."""

    log_ms: int
    state_ms: int
    state_versions: int
    manifest_ms: int
    max_versions: int = 0

    @classmethod
    def of(cls, options: Options, *, log_hours: float | None = None) -> "Retention":
        """The retention of the options; `log_hours` overrides that of version files."""
        hours = options.get(opt.LOG_RETENTION_HOURS) if log_hours is None else log_hours
        age = options.get(opt.MANIFEST_MIN_AGE_HOURS)
        if age < MIN_MANIFEST_AGE_HOURS and options.get(opt.MANIFEST_AGE_CHECK):
            raise OptionError(
                f"state.gc.minManifestAgeHours is {age:g}, below the minimum of {MIN_MANIFEST_AGE_HOURS:g}: "
                "manifests of a running checkpoint could be deleted; set a longer one, or, if "
                "no writer runs now, set spark.indextables.state.gc.minManifestAgeCheckEnabled=false"
            )
        return cls(
            log_ms=int(hours * HOUR_MS),
            state_ms=options.get(opt.STATE_RETENTION_HOURS) * HOUR_MS,
            state_versions=options.get(opt.STATE_RETENTION_VERSIONS),
            manifest_ms=int(age * HOUR_MS),
            max_versions=options.get(opt.CLEANUP_MAX_VERSIONS),
        )

    def with_version_limit(self, listing: Listing, now_ms: int) -> "Retention":
        """The retention, shortened if the log has more versions than the limit on their number."""
        if not 0 < self.max_versions < len(listing.versions):
            return self
        oldest = sorted(listing.versions)[-self.max_versions]
        age_ms = max(now_ms - listing.versions[oldest].modified_ms, MIN_VERSION_AGE_MS)
        return replace(self, log_ms=min(self.log_ms, age_ms), state_ms=min(self.state_ms, age_ms))

    def is_due(self, listing: Listing, now_ms: int) -> bool:
        """Whether enough versions have expired to clean the log."""
        before_ms = now_ms - self.with_version_limit(listing, now_ms).log_ms
        expired = sum(info.modified_ms < before_ms for info in listing.versions.values())
        return expired > 0 and expired * _CLEANING_SHARE >= len(listing.versions)


def expired_files(loader: Loader, listing: Listing, retention: Retention, *, now_ms: int) -> ExpiredFiles:
    """The files that are older than their retention and that no readable version needs."""
    pointer = read_pointer(loader.log)
    retention = retention.with_version_limit(listing, now_ms)
    before_ms = now_ms - retention.manifest_ms
    # These are no versions that could be read, so no retention counts them.
    late = late_states(loader, listing)
    everything = listing
    listing = replace(listing, states={v: info for v, info in listing.states.items() if v not in late})
    lasting = _lasting_states(listing)
    anchor = _anchor(
        loader,
        listing,
        now_ms - retention.log_ms,
        lambda base: _is_confirmed(base, pointer, before_ms) and _stays(base, listing, lasting, now_ms),
    )
    files = ExpiredFiles(states=tuple(sorted(late)))
    if anchor is not None:
        pointer_version = pointer.version if pointer else None
        states = set(_old_states(listing, anchor, retention, pointer_version, lasting, now_ms))
        # The other files of its version may go now, without which nothing can be read from such a state.
        states |= {
            v
            for v in listing.states
            if v < anchor.version and v != pointer_version and _lacks_manifests(loader, listing, v)
        }
        metadata_versions = _metadata_of_the_rest(loader, listing, states)
        versions = (
            v
            for v, info in listing.versions.items()
            if v <= anchor.version and v != listing.latest and info.modified_ms < now_ms - retention.log_ms
        )
        files = ExpiredFiles(
            versions=tuple(sorted(set(versions) - metadata_versions))
            if _is_self_contained(loader, listing, anchor)
            else (),
            states=tuple(sorted((states - metadata_versions) | late)),
            checkpoints=tuple(
                sorted(v for v in listing.checkpoints if v < anchor.version and v != pointer_version)
            ),
        )
    return _with_paths(loader, everything, files, before_ms, now_ms)


def late_states(loader: Loader, listing: Listing) -> set[int]:
    """The versions of states that appeared after their version was cleaned up, without their manifests.

    The request that creates a state may arrive late, when a truncation has deleted the version and the
    manifests. Such a state is all that is left of its version, and the newest version is read from a later
    one. A state that is damaged looks different, unless its version is older than the retention:
    the version's file, or the next version, which follows it or has an even newer state, is still there.
    """
    alone = [v for v in listing.states if v not in listing.versions and v not in listing.checkpoints]
    if not alone:
        return set()
    newest = next((b for b in bases(listing) if _is_whole(loader, listing, b)), None)
    if newest is None or versions_after(listing, newest.version) is None:
        return set()
    return {v for v in alone if v < newest.version and _is_late(loader, listing, v)}


def _is_late(loader: Loader, listing: Listing, version: int) -> bool:
    if version + 1 in listing.versions:
        after = [b for b in bases(listing) if b.version == version + 1]
        if not any(b.stamp[1] <= listing.states[version].modified_ms for b in after):
            return False
    return _lacks_manifests(loader, listing, version)


def _lacks_manifests(loader: Loader, listing: Listing, version: int) -> bool:
    """Whether a manifest of a state of this implementation is missing.

    Versions of other engines may have no files of their own, so that their states are all there is.
    """
    state, path = _readable(loader, listing, version), listing.states[version].path
    if state is None:
        return False
    try:
        header = decode_header(state.extra, f"{loader.log.url}/{path}")
    except CorruptLogError:
        return False
    if header is None or header.own_token is None:
        return False
    manifests = {resolve_manifest_path(m.path, path.rsplit("/", 1)[0]) for m in state.manifests}
    return any(m not in listing.manifests and not loader.log.exists(m) for m in manifests)


def _is_self_contained(loader: Loader, listing: Listing, anchor: Base) -> bool:
    """Whether a base is complete, so that no version before it is needed."""
    if not anchor.is_state:
        return True
    state = _readable(loader, listing, anchor.version)
    return state is not None and loader.header(anchor, state) is not None


def _metadata_of_the_rest(loader: Loader, listing: Listing, deletions: set[int]) -> set[int]:
    """The versions with the metadata of remaining states that have none: an earlier state, or version 0."""
    metadata_versions: set[int] = set()
    for version in sorted(set(listing.states) - deletions):
        state = _readable(loader, listing, version)
        if state is not None and state.metadata is None:
            earlier = sorted((v for v in deletions if v < version), reverse=True)
            having = (v for v in earlier if (s := _readable(loader, listing, v)) and s.metadata is not None)
            metadata_versions |= {next(having, 0), 0}
    return metadata_versions


def _readable(loader: Loader, listing: Listing, version: int) -> StateManifest | None:
    info = listing.states[version]
    try:
        return loader.state(Base(version, info.path, is_state=True, stamp=stamp_of(info)))
    except CorruptLogError:
        return None


def files_before(
    loader: Loader, listing: Listing, version: int, *, manifests_before_ms: int, now_ms: int
) -> ExpiredFiles:
    """The files that only versions before this one need.

    There must be a base at it before they are deleted.
    """
    files = ExpiredFiles(
        versions=tuple(sorted(v for v in listing.versions if v < version)),
        states=tuple(sorted(v for v in listing.states if v < version)),
        checkpoints=tuple(sorted(v for v in listing.checkpoints if v < version)),
    )
    return _with_paths(loader, listing, files, manifests_before_ms, now_ms)


def check_base(loader: Loader, listing: Listing, version: int, snapshot: Snapshot) -> None:
    """Refuse to delete earlier versions unless this version has a complete base, of the same table.

    `snapshot` was the newest version: the base is at it, or at the version right after it.
    """
    at = [b for b in bases(listing) if b.version == version]
    if not any(_is_whole(loader, listing, b) and _contains(loader, b, snapshot) for b in at):
        raise StateExpiredError(f"{loader.log.url}/{state_folder(version)}")


def delete(loader: Loader, files: ExpiredFiles) -> int:
    """Delete expired files; returns their number.

    States go before the manifests that they refer to, so an interruption leaves no dangling reference. A
    state may have been written since the files were selected, so the references are read again in between. If
    a file was replaced by another of the same name, the table was created again: then nothing is deleted.
    """
    there = _stamps(full_listing(loader.log))
    if any(there.get(path, stamp) != stamp for path, stamp in files.stamps.items()):
        return 0
    deleted = loader.log.delete(files.leading)
    remaining = full_listing(loader.log)
    needed = _referenced_paths(loader, remaining, ())
    if needed is None:
        return deleted
    # A JSON checkpoint may have appeared since its parts were taken for those of a writer that died.
    needed |= {part.path for v, part in remaining.checkpoint_parts if v in remaining.checkpoints}
    return deleted + loader.log.delete(path for path in files.led_to if path not in needed)


def _contains(loader: Loader, base: Base, snapshot: Snapshot) -> bool:
    """Whether a base is one of the same table, by its tokens; those of other engines have none."""
    lineage, behind = loader.lineage_of(base), base.version - snapshot.version
    token = lineage[-1 - behind] if 0 <= behind < len(lineage) else None
    return token is None or snapshot.token is None or token == snapshot.token


def _is_whole(loader: Loader, listing: Listing, base: Base) -> bool:
    """Whether a base of this table and all manifests that it refers to exist.

    Only then may earlier files be deleted.
    """
    if not base.is_state:
        try:
            loader.checkpoint_actions(base.version)
        except CorruptLogError:
            return False
        return True
    state = _readable(loader, listing, base.version)
    folder = base.path.rsplit("/", 1)[0]
    if state is None or any(
        resolve_manifest_path(m.path, folder) not in listing.manifests for m in state.manifests
    ):
        return False
    try:
        return loader.is_of_this_table(base, state) is True
    except CorruptLogError:  # its header is damaged
        return False


def _is_confirmed(base: Base, pointer: Pointer | None, before_ms: int) -> bool:
    """Whether a state is final, so that earlier files may be deleted.

    Its writer may delete it shortly after creating it. It is final once the pointer names it, or once it is
    older than the minimum age of manifests.
    """
    is_current = pointer is not None and pointer.version == base.version and pointer.is_state == base.is_state
    return is_current or base.stamp[1] < before_ms


def _anchor(
    loader: Loader, listing: Listing, cutoff_ms: int, is_confirmed: Callable[[Base], bool]
) -> Base | None:
    """The base of the oldest version within log retention; None if that version has none.

    Within log retention are the versions committed since `cutoff_ms`, and the one before them, which was
    the newest at that time.
    """
    commits = {**listing.checkpoints, **listing.states, **listing.versions}
    young = [v for v, info in commits.items() if info.modified_ms >= cutoff_ms]
    oldest = min(young, default=listing.latest)
    if oldest is None:
        return None
    oldest = max((v for v in commits if v < oldest), default=oldest) if young else oldest
    before = (b for b in bases(listing) if b.version <= oldest)
    return next((b for b in before if is_confirmed(b) and _is_whole(loader, listing, b)), None)


def _lasting_states(listing: Listing) -> set[int]:
    """The first state of each period, by its time, which stays until it is before the oldest retained base.

    Two processes may clean the log at the same time, and one of them may be slow. The one that is ahead
    relies on a later base, and deletes what is before it; for the other one that base may be a state which
    version files replace. So each process deletes such states only if they are at least two periods old and
    not the first of a period, and relies only on others: those that are the first, or that are young.
    """
    first: dict[int, int] = {}
    for version in sorted(listing.states):
        first.setdefault(listing.states[version].modified_ms // _PERIOD_MS, version)
    return set(first.values())


def _stays(base: Base, listing: Listing, lasting: set[int], now_ms: int) -> bool:
    """Whether no other process deletes a base that it does not need."""
    return (
        not base.is_state
        or base.version in lasting
        or base.version == max(listing.states)
        or base.stamp[1] >= now_ms - _PERIOD_MS
    )


def _old_states(
    listing: Listing, anchor: Base, retention: Retention, pointed: int | None, lasting: set[int], now_ms: int
) -> tuple[int, ...]:
    """States that are not needed: older than the anchor, or replaced by the version files after it."""
    newest = max(listing.states, default=None)
    old = sorted((v for v in listing.states if v != newest), reverse=True)
    replayable = anchor.version
    while replayable + 1 in listing.versions:
        replayable += 1
    return tuple(
        sorted(
            version
            for version in old[retention.state_versions :]
            if version not in (anchor.version, pointed)
            and listing.states[version].modified_ms < now_ms - retention.state_ms
            and (
                version < anchor.version
                or (
                    version <= replayable
                    and version not in lasting
                    and listing.states[version].modified_ms < now_ms - 2 * _PERIOD_MS
                )
            )
        )
    )


def _with_paths(
    loader: Loader, listing: Listing, files: ExpiredFiles, manifests_before_ms: int, now_ms: int
) -> ExpiredFiles:
    leading = [listing.versions[v].path for v in files.versions]
    leading += [listing.checkpoints[v].path for v in files.checkpoints]
    leading += [listing.states[v].path for v in files.states]
    if listing.misfiled is not None and listing.misfiled.modified_ms < manifests_before_ms:
        leading.append(listing.misfiled.path)
    leading_paths = set(leading)
    needed = _referenced_paths(loader, listing, files.states)
    manifests: tuple[str, ...] = ()
    filter_bundles: tuple[str, ...] = ()
    if needed is not None:
        manifests = _unneeded_paths(listing.manifests, needed, manifests_before_ms)
        filter_bundles = _unneeded_paths(listing.filter_bundles, needed, manifests_before_ms)
    parts = tuple(
        info.path
        for version, info in listing.checkpoint_parts
        if version in files.checkpoints
        or (version not in listing.checkpoints and info.modified_ms < manifests_before_ms)
    )
    probes = (info.path for info in listing.probes if info.modified_ms < now_ms - _PROBE_AGE_MS)
    return ExpiredFiles(
        files.versions,
        files.states,
        files.checkpoints,
        manifests,
        filter_bundles,
        leading=tuple(leading),
        led_to=(*parts, *manifests, *filter_bundles, *probes),
        stamps={path: stamp for path, stamp in _stamps(listing).items() if path in leading_paths},
    )


def _stamps(listing: Listing) -> dict[str, Stamp]:
    infos = (*listing.versions.values(), *listing.checkpoints.values(), *listing.states.values())
    return {info.path: stamp_of(info) for info in infos}


def _unneeded_paths(files: Mapping[str, ObjectInfo], needed: set[str], before_ms: int) -> tuple[str, ...]:
    return tuple(
        path for path, info in sorted(files.items()) if path not in needed and info.modified_ms < before_ms
    )


def _referenced_paths(loader: Loader, listing: Listing, gone_states: Iterable[int]) -> set[str] | None:
    """The manifests and filter bundles that remaining states refer to; None if a state cannot be read."""
    referenced: set[str] = set()
    for version in set(listing.states) - set(gone_states):
        state = _readable(loader, listing, version)
        if state is None:
            return None
        folder = listing.states[version].path.rsplit("/", 1)[0]
        referenced |= {resolve_manifest_path(m.path, folder) for m in state.manifests}
        try:
            header = decode_header(state.extra, f"{loader.log.url}/{listing.states[version].path}")
        except CorruptLogError:
            return None
        referenced |= {bundle.path for bundle in header.filters} if header else set()
    return referenced
