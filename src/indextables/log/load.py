"""Loads snapshots from the files of the log."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from indextables import metrics
from indextables.errors import CorruptLogError, ObjectMissingError
from indextables.log.format import files, version_file
from indextables.log.format.actions import (
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    check_not_companion,
    check_readable,
)
from indextables.log.format.checkpoint_files import checkpoint_file, read_checkpoint
from indextables.log.format.names import Listing
from indextables.log.format.names import version_file as version_path
from indextables.log.format.state_manifest import StateHeader, StateManifest, decode_header, decode_state
from indextables.log.segment import (
    Base,
    LogSegment,
    Stamp,
    VersionFile,
    bases,
    earlier_states,
    full_listing,
    segments_at,
    stamp_of,
    version_files,
)
from indextables.log.snapshot import BaseState, Delta, Fallback, FileLists, Snapshot
from indextables.log.snapshot_cache import METADATA, VERSIONS, cache_limits, most_version_bytes
from indextables.options import Options
from indextables.options import log as opt
from indextables.store import Store

T = TypeVar("T")
R = TypeVar("R")

# How often the log is listed again when what a listing shows was cleaned up meanwhile.
_LISTINGS = 3
# How many damaged files are remembered, so that each is reported once.
_MAX_WARNED = 1000

_logger = logging.getLogger(__name__)


class Loader:
    """Reads versions and states of one log, with the reader's options."""

    def __init__(self, log: Store, options: Options, lists: FileLists | None = None) -> None:
        """`log` is the store rooted at the log folder; `lists` keeps file lists of snapshots."""
        self.log = log
        self.options = options
        self.lists = lists
        self.parallelism = options.get(opt.STATE_READ_PARALLELISM)

    def load(self, segment: LogSegment) -> Snapshot:
        """The snapshot that the files of a segment describe."""
        base, header, metadata, protocol = self._base(segment)
        versions = self.versions(segment.versions)
        check_lineage(self.log.url, header.own_token, versions)
        delta = Delta().then(versions)
        metadata = delta.metadata or metadata
        if metadata is None:
            metadata = self._find_metadata(segment)
        token = delta.token if segment.versions else header.own_token or self._own_token(segment)
        snapshot = Snapshot(
            reader=self,
            version=segment.version,
            protocol=delta.protocol or protocol or Protocol(),
            metadata=metadata,
            base=base,
            delta=delta,
            identity=token or repr(segment.stamp),
            timestamp=_latest(delta.timestamp, header.timestamp, _foreign_time(segment.versions, versions)),
            header=header if header.whole else None,
            fallback=Fallback(segment.version, token, (segment.base_path,)),
        )
        return self.check_snapshot(snapshot)

    def replay(self, versions: Sequence[tuple[int, list[Action]]]) -> Snapshot:
        """The snapshot of a table from all its versions, from version 0 on."""
        delta = Delta().then(versions)
        assert delta.metadata is not None
        snapshot = Snapshot(
            reader=self,
            version=versions[-1][0],
            protocol=delta.protocol or Protocol(),
            metadata=delta.metadata,
            base=BaseState(),
            delta=delta,
            identity=delta.token or "",
            timestamp=delta.timestamp,
        )
        return self.check_snapshot(snapshot)

    def load_first(self, segments: Sequence[LogSegment]) -> Snapshot:
        """The snapshot of the first segment that can be read; all of them describe the same version.

        A damaged or missing state or checkpoint only costs time. If no segment can be read, the error is that
        of the first one.
        """
        problem: CorruptLogError | None = None
        for segment in segments:
            try:
                snapshot = self.load(segment)
            except CorruptLogError as error:
                problem = problem or error
            else:
                if problem is not None:
                    _warn_once(problem)
                return snapshot
        assert problem is not None
        raise problem

    def reload(self, version: int, token: str | None, unusable: tuple[str, ...]) -> Snapshot:
        """Read a version from another base: a manifest of the unusable ones, given by path, cannot be read.

        Raises:
            CorruptLogError: there is no other base, or it describes another commit.
            VersionNotFoundError: the version was cleaned up.
        """
        listing = full_listing(self.log)
        for _ in range(_LISTINGS):
            for segment in segments_at(self.log, listing, version):
                if segment.base_path in unusable:
                    continue
                try:
                    snapshot = self.load(segment)
                except CorruptLogError:
                    continue
                if token is None or snapshot.identity == token:
                    url = f"{self.log.url}/{unusable[0]}"
                    _warn_once(CorruptLogError(url, "a manifest that it refers to is missing or damaged"))
                    unusable = (*unusable, segment.base_path)
                    return replace(snapshot, fallback=Fallback(version, token, unusable))
            # What was listed may have been cleaned up: then there are other bases, or the version is gone.
            before, listing = listing, full_listing(self.log)
            if listing == before:
                break
        raise CorruptLogError(
            self.log.url,
            f"version {version} cannot be read: a manifest of its state is missing or damaged, and no "
            "other state or checkpoint has all versions after it",
        )

    def _own_token(self, segment: LogSegment) -> str | None:
        """The token of a version, from its version file: states of other engines have no token."""
        if not segment.has_file or segment.stamp is None:
            return None
        actions = self.version(VersionFile(segment.version, segment.stamp))
        return next((a.token for a in actions if isinstance(a, CommitInfo)), None)

    def identity_at(self, listing: Listing, version: int) -> str | None:
        """What distinguishes the commit of a version from others of that number; None if it is not listed."""
        if (info := listing.versions.get(version)) is not None:
            actions = self.version(VersionFile(version, stamp_of(info)))
            token = next((a.token for a in actions if isinstance(a, CommitInfo)), None)
            return token or repr(stamp_of(info))
        base = next((b for b in bases(listing) if b.version == version), None)
        return self.load(LogSegment(version, base, (), stamp=base.stamp)).identity if base else None

    def lineage_of(self, base: Base) -> tuple[str | None, ...]:
        """The tokens of the last versions up to a base; empty if another engine wrote the base."""
        if base.is_state:
            header = self.header(base, self.state(base))
            return tuple(header.commits) if header else ()
        infos = (a for a in self.checkpoint_actions(base.version) if isinstance(a, CommitInfo))
        return tuple(next((info.lineage for info in infos), ()))

    def extend(self, snapshot: Snapshot, later: Sequence[VersionFile]) -> Snapshot:
        """The snapshot after the versions that follow it."""
        if not later:
            return snapshot
        versions = self.versions(later)
        check_lineage(self.log.url, snapshot.token, versions)
        after = snapshot.then(versions, repr(later[-1].stamp), _foreign_time(later, versions))
        return self.check_snapshot(after)

    def check_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, if this release may read it."""
        if self.options.get(opt.PROTOCOL_CHECK):
            check_readable(snapshot.protocol, snapshot.url)
        check_not_companion(snapshot.metadata, snapshot.url)
        return snapshot

    def versions(self, files: Sequence[VersionFile]) -> list[tuple[int, list[Action]]]:
        """The actions of some versions, read in parallel."""
        numbers = [one.version for one in files]
        return list(zip(numbers, self._parallel(self.version, files), strict=True))

    def version(self, file: VersionFile) -> list[Action]:
        """The actions of one version."""
        keep = cache_limits(self.options, opt.CACHE_VERSION_TTL_MS, opt.CACHE_VERSION_CAPACITY)
        cached = VERSIONS.get((self.log.cache_scope, file), ttl_ms=keep.ttl_ms) if keep.capacity else None
        if cached is None:
            cached = self._read_sized(file.version)
            if keep.capacity:
                most = most_version_bytes(self.options)
                VERSIONS.put((self.log.cache_scope, file), cached, capacity=keep.capacity, max_weight=most)
        return cached[0]

    def read_version(self, version: int) -> list[Action]:
        """The actions of the file that a version has now."""
        return self._read_sized(version)[0]

    def _read_sized(self, version: int) -> tuple[list[Action], int]:
        path = version_path(version)
        return version_file.decode_sized(self.get(path), f"{self.log.url}/{path}")

    def state(self, base: Base) -> StateManifest:
        """The state in a file; raises if it describes another version."""
        url = f"{self.log.url}/{base.path}"
        state = decode_state(self.get(base.path), url)
        if state.state_version != base.version:
            raise CorruptLogError(
                url, f"it is the state of version {state.state_version}, not {base.version}"
            )
        return state

    def checkpoint_actions(self, version: int) -> list[Action]:
        """The actions of a JSON checkpoint; raises if it is damaged, or of another table.

        A writer may die after it wrote a checkpoint into a table that was created again meanwhile.
        """
        actions = read_checkpoint(self.log, version)
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        own = self.commit_of(version) if info is not None and info.token else None
        if info is not None and not self._is_of_this_table(version, info.token, info.lineage, own):
            raise self._of_another_table(version, checkpoint_file(version))
        return actions

    def is_of_this_table(self, base: Base, state: StateManifest | None = None) -> bool | None:
        """Whether a base belongs to the table of the version files; None if that is unknown.

        `state` is the state, if it has been read.
        """
        if not base.is_state:
            infos = (a for a in read_checkpoint(self.log, base.version) if isinstance(a, CommitInfo))
            info = next(infos, None)
            own = self.commit_of(base.version) if info is not None else None
            return info is None or self._is_of_this_table(base.version, info.token, info.lineage, own)
        header = self.header(base, state or self.state(base))
        token = header.own_token if header else None
        if header is None or token is None:
            return True
        own = self.commit_of(base.version)
        if own is None:
            after = self.commit_of(base.version + 1)
            return after is None or after.base_token in (None, token)
        return self._is_of_this_table(base.version, token, header.commits, own)

    def _is_of_this_table(
        self, version: int, token: str | None, lineage: Sequence[str | None], own: CommitInfo | None
    ) -> bool | None:
        """Whether a state or JSON checkpoint belongs to the table of the version files; None if unknown.

        It has the token and the lineage of its commit; `own` is the commit in the version's own file, which
        may be gone. Or that may be a commit which came too late, after the version was cleaned up: then the
        next version follows the state. If there is no next version, both follow the same one.
        """
        if not token or own is None or own.token in (None, "", token):
            return True
        after = self.commit_of(version + 1)
        if after is not None and after.base_token is not None:
            return after.base_token == token
        before = lineage[-2] if len(lineage) > 1 else None
        return None if before is None or own.base_token is None else before == own.base_token

    def _of_another_table(self, version: int, path: str) -> CorruptLogError:
        return CorruptLogError(
            f"{self.log.url}/{path}",
            f"it is of another commit than version {version}, in a table that was deleted or replaced",
        )

    def commit_of(self, version: int, stamp: Stamp | None = None) -> CommitInfo | None:
        """The record of the commit in the file that a version has now; None if there is none to read.

        With the stamp of the file, it may be answered from the cache.
        """
        with suppress(CorruptLogError):  # there is no such file
            actions = self.version(VersionFile(version, stamp)) if stamp else self.read_version(version)
            return next((a for a in actions if isinstance(a, CommitInfo)), None)
        return None

    def header(self, base: Base, state: StateManifest) -> StateHeader | None:
        """The header of a state; None if another engine wrote the state."""
        return decode_header(state.extra, f"{self.log.url}/{base.path}")

    def get(self, path: str) -> bytes:
        """Read a file of the log; raises if it is missing."""
        try:
            return self.log.get(path)
        except ObjectMissingError:
            raise CorruptLogError(f"{self.log.url}/{path}", "the file is missing") from None

    def _base(self, segment: LogSegment) -> tuple[BaseState, StateHeader, Metadata | None, Protocol | None]:
        base = segment.base
        if base is None:
            return BaseState(), StateHeader(), None, None
        if not base.is_state:
            return self._checkpoint(base)
        state, own = self._state_and_commit(base, segment)
        header = self.header(base, state) or StateHeader(timestamp=state.created_at, whole=False)
        if not self._is_of_this_table(base.version, header.own_token, header.commits, own):
            raise self._of_another_table(base.version, base.path)
        protocol = Protocol(
            min_reader_version=state.protocol_version, min_writer_version=state.protocol_version
        )
        folder = base.path.rsplit("/", 1)[0]
        metrics.record("indextables.state.tombstone_count", len(state.tombstones))
        metrics.record("indextables.state.tombstone_ratio", len(state.tombstones) / max(state.num_files, 1))
        return (
            BaseState(base.version, folder, state),
            header,
            state.metadata,
            header.protocol or protocol,
        )

    def _state_and_commit(self, base: Base, segment: LogSegment) -> tuple[StateManifest, CommitInfo | None]:
        """A state, and the commit of its version if that has a file and no later version shows whose it is.

        A writer may die after it wrote a state into a table that was created again meanwhile.
        """
        if segment.versions or not segment.has_file or segment.stamp is None:
            return self.state(base), None
        if self.log.is_local:
            return self.state(base), self.commit_of(base.version, segment.stamp)
        with ThreadPoolExecutor(1, thread_name_prefix="indextables-commit") as thread:
            own = thread.submit(self.commit_of, base.version, segment.stamp)
            return self.state(base), own.result()

    def _checkpoint(self, base: Base) -> tuple[BaseState, StateHeader, Metadata | None, Protocol | None]:
        actions = self.checkpoint_actions(base.version)
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        # Without the commit's record: its time is that of the version, not that of every split.
        delta = Delta().then([(base.version, [a for a in actions if a is not info])])
        header = StateHeader(
            timestamp=info.timestamp if info else None,
            token=info.token if info else None,
            lineage=info.lineage if info else [],
            mergeskips=list(delta.skips.values()),
            txns=list(delta.txns.values()),
        )
        file_list = delta.files() if delta.added else files.FILES.empty_table()
        if self.options.get(opt.STATE_FORMAT) != "json" and _is_new(self.log.url):
            _logger.warning(
                "%s: version %d is read from a JSON checkpoint of %d splits, which takes longer than an Avro "
                "state; CHECKPOINT INDEXTABLES writes one, and state.format=json says that this is intended",
                self.log.url,
                base.version,
                file_list.num_rows,
            )
        return BaseState(base.version, "", None, file_list), header, delta.metadata, delta.protocol

    def read_missing_header(self, version: int) -> StateHeader:
        """The batches of streams and the skipped splits, which states of other engines do not have.

        They are read from the existing version files up to the state, and from earlier states.
        """
        listing = full_listing(self.log)
        earlier_header, start = StateHeader(), 0
        for earlier in sorted((v for v in listing.states if v < version), reverse=True):
            info = listing.states[earlier]
            base = Base(earlier, info.path, is_state=True, stamp=stamp_of(info))
            header = self.header(base, self.state(base))
            if header is not None:
                earlier_header, start = header, earlier + 1
                break
        present = [v for v in sorted(listing.versions) if start <= v <= version]
        files = [file for v in present for file in version_files(listing, range(v, v + 1))]
        delta = Delta().then(self.versions(files))
        skips = {s.path: s for s in earlier_header.mergeskips if s.path not in delta.removed} | delta.skips
        txns = {t.app_id: t for t in earlier_header.txns} | delta.txns
        return StateHeader(mergeskips=list(skips.values()), txns=list(txns.values()))

    def _find_metadata(self, segment: LogSegment) -> Metadata:
        """The newest metadata before a state without metadata: older writers omitted it."""
        keep = cache_limits(self.options, opt.CACHE_METADATA_TTL_MS, opt.CACHE_SNAPSHOT_CAPACITY)
        metadata = (
            METADATA.get((self.log.cache_scope, segment.base), ttl_ms=keep.ttl_ms) if keep.capacity else None
        )
        if metadata is None:
            metadata = self._search_metadata(segment)
            if keep.capacity:
                METADATA.put((self.log.cache_scope, segment.base), metadata, capacity=keep.capacity)
        return metadata

    def _search_metadata(self, segment: LogSegment) -> Metadata:
        at_once = self.options.get(opt.MAX_CONCURRENT_READS)
        states = earlier_states(self.log, segment.start)
        for start in range(0, len(states), at_once):
            for state in self._parallel(self.state, states[start : start + at_once]):
                if state.metadata is not None:
                    return state.metadata
        for action in self.read_version(0) if self.log.exists(version_path(0)) else ():
            if isinstance(action, Metadata):
                return action
        raise CorruptLogError(self.log.url, "neither its states nor version 0 hold the table's metadata")

    def _parallel(self, read: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2:
            return [read(one) for one in items]
        workers = min(self.options.get(opt.MAX_CONCURRENT_READS), len(items))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(read, items))


def check_lineage(url: str, token: str | None, versions: Sequence[tuple[int, Sequence[Action]]]) -> None:
    """Refuse versions that do not follow each other (PROTOCOL.md, "Lineage").

    `token` is that of the version before the first one. A commit to a table that was deleted may be written
    into the table that replaced it; its writer deletes it, and until then it must be ignored.
    """
    before = token
    for version, actions in versions:
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        if before is not None and info is not None and info.base_token not in (None, before):
            raise CorruptLogError(
                f"{url}/{version_path(version)}",
                f"version {version} does not follow the version {version - 1} in the log: it was "
                "committed to a table that was deleted or replaced meanwhile",
                remedy="read the table again; if the error persists, delete that file",
            )
        before = info.token if info else None


_warned: set[str] = set()


def _warn_once(problem: CorruptLogError) -> None:
    """Log a warning about a damaged file, once per process."""
    if _is_new(problem.url):
        _logger.warning(
            "%s: %s; the version is read from other files of the log; "
            "CHECKPOINT INDEXTABLES writes a new state",
            problem.url,
            problem.problem,
        )


def _is_new(url: str) -> bool:
    """Whether there was no warning about a file or log in this process; there is one from now on."""
    if url in _warned:
        return False
    if len(_warned) >= _MAX_WARNED:
        _warned.clear()
    _warned.add(url)
    return True


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _foreign_time(files: Sequence[VersionFile], read: Sequence[tuple[int, Sequence[Action]]]) -> int | None:
    """The newest modification time of version files whose commits have no time, as those of other engines."""
    times = [
        file.modified_ms
        for file, (_, actions) in zip(files, read, strict=True)
        if not any(isinstance(a, CommitInfo) for a in actions)
    ]
    return max(times, default=None)
