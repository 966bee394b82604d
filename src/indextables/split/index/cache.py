"""Indexes on the local disk, as far as they were needed, shared by the processes of a machine.

```
<folder>/entries/<key>/          the index files of one split, and `entry.json` (stamps, pieces, checksums)
<folder>/locks/<key>             shared lock: in use; exclusive lock: being removed
<folder>/arriving/<name>/        an entry on its way; renamed into place when complete
<folder>/arriving/<key>.lock     exclusive lock: on its way, so nobody else need fetch it
```

Whoever uses an entry holds a shared lock on its lock file, so nobody removes it meanwhile, in this
process or another; a process that dies gives its locks back. An entry appears by one rename, so a reader
never sees half of one.

Its files have their full length from the beginning, and bytes only where someone needed them: `entry.json`
tells the pieces that are there, with their checksums. Who needs more locks the entry's folder, writes the
bytes to their place, and then tells so; others have the files open meanwhile, and do not look there. The
time of `entry.json` says when the entry was last used.

What a crash of the machine, a failing disk or another program spoilt is caught by the checksums: they are
compared when an entry is used and its files changed since the last time, after every boot, and now and then.
A damaged entry is replaced from the split.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from indextables import metrics
from indextables.errors import IndexCacheError, SplitError
from indextables.options import Options, reading
from indextables.private_folder import NotPrivateError, make_own, make_private
from indextables.split.index.cache_entry import (
    ENTRY,
    CachedPiece,
    CacheEntry,
    PieceKey,
    allocated_bytes,
    exclusive_lock,
    file_stamps,
    identity,
    lock_file,
    locked_folder,
    new_entry,
    read_entry,
    try_lock,
    try_lock_folder,
    validate,
    verify_locked,
    write_entry,
)

# Other processes fill the cache too: what it holds is counted anew after so many seconds.
_COUNT_AFTER_S = 10.0
_TOUCH_AFTER_S = 10.0
_STALE_ARRIVAL_S = 3600.0
# An entry that is not as it was written, so often in a row, is the fault of the disk.
_ATTEMPTS = 3
# With so many entries, more is evicted at once than needed, since each time all of them are looked at.
_MANY_ENTRIES = 64

_logger = logging.getLogger(__name__)

# Writes files into a folder; tells what it wrote.
Writer = Callable[[Path], Sequence[CachedPiece]]
# Writes the pieces that begin at these places to the files in a folder.
Filler = Callable[[Path, Collection[PieceKey]], Sequence[CachedPiece]]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds (all processes), and what this process asked of it."""

    folder: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    bytes_fetched: int
    evictions: int
    bytes_evicted: int


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """What a flush or an eviction freed."""

    entries: int
    files: int
    bytes: int


@dataclass(slots=True)
class Counters:
    """What this process asked of a cache."""

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0
    bytes_evicted: int = 0


class Usage:
    """How much room a cache has, as far as this process knows without counting what is there.

    Counting takes time for every entry, so it is done when a part of the room was used up; when there is none
    (all entries are in use), after a number of uses that grows with that of the entries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room = 0
        self._grown = 0
        self._uses = 0
        self._entries = 0
        self._time = -_COUNT_AFTER_S
        self._began = 0.0
        self._taken = 0.0

    def grow(self, size: int) -> None:
        """Bytes came into the cache."""
        with self._lock:
            self._grown += size

    def due(self) -> bool:
        """Whether what the cache holds should be counted now."""
        with self._lock:
            now = time.monotonic()
            self._uses += 1
            used_up = 4 * self._grown >= self._room if self._room > 0 else 8 * self._uses >= self._entries
            late = now - self._time > max(_COUNT_AFTER_S, 20 * self._taken)
            if used_up or late:
                self._began = now
            return used_up or late

    def counted(self, room: int, entries: int) -> None:
        """What the cache holds was counted, and evicted from."""
        with self._lock:
            now = time.monotonic()
            self._room, self._grown, self._uses, self._entries = room, 0, 0, entries
            self._taken, self._time = now - self._began, now


def make_cache_folder(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder of this user; refuse what someone else put there."""
    try:
        make(folder)
    except OSError as error:
        raise IndexCacheError(
            f"the cache folder {folder} cannot be used ({error.strerror or error}); set "
            "spark.indextables.cache.disk.path to a folder on a local disk that this process may write"
        ) from error
    except NotPrivateError as error:
        raise IndexCacheError(
            f"the cache folder cannot be used: {error}, so others could change what is read from it; set "
            "spark.indextables.cache.disk.path to a folder of your own"
        ) from error


def shared_folder(options: Options) -> Path:
    """The folder that processes of this user share; if it cannot be trusted, one of this process."""
    named = options.get(reading.DISK_CACHE_PATH) or options.get(reading.CACHE_DIRECTORY)
    if named is not None:
        return Path(named).resolve()  # a link that the user names is the user's wish
    local_disk = Path("/local_disk0")
    usual = local_disk.is_dir() and os.access(local_disk, os.W_OK)
    root = local_disk if usual else Path(tempfile.gettempdir()).absolute()
    folder = root / f"indextables-cache-{os.geteuid()}"
    try:
        make_private(folder)
    except (NotPrivateError, OSError) as error:
        _warn_private(str(folder), str(error))
        return private_folder()
    return folder


@lru_cache(maxsize=16)
def _warn_private(folder: str, problem: str) -> None:
    """Once for a folder: that someone else made it first must not switch searching off."""
    _logger.warning(
        "indexes are cached for this process only: %s cannot be used (%s); set "
        "spark.indextables.cache.disk.path to a folder of your own",
        folder,
        problem,
    )


@lru_cache(maxsize=1)
def private_folder() -> Path:
    """A folder that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="indextables-")
    weakref.finalize(private_folder, _remove_private, folder, os.getpid())
    return Path(folder)


def _remove_private(folder: str, process: int) -> None:
    if process == os.getpid():  # not in a forked child of the process that uses it
        shutil.rmtree(folder, ignore_errors=True)


os.register_at_fork(after_in_child=private_folder.cache_clear)


class Lease:
    """The right to use an entry: it stays on disk until the lease is closed."""

    def __init__(self, cache: "IndexCache", folder: Path, lock: int, facts: CacheEntry) -> None:
        self.folder = folder
        self._identity = identity(folder)
        self._cache = cache
        self._set_entry(facts)
        # A lease that is merely dropped gives its lock back, but does not clear up: that takes locks, and
        # the collector may run while they are held.
        self._unlock = weakref.finalize(self, os.close, lock)

    def _set_entry(self, facts: CacheEntry) -> None:
        """Know the pieces that are there, and how many bytes they have."""
        self._facts = facts
        sizes = {(piece.file, piece.start): piece.size for piece in facts.pieces}
        self.size = sum(sizes.values())
        self._places = sizes.keys()

    def is_missing(self, place: PieceKey) -> bool:
        """Whether the piece that begins there was missing when this lease last looked."""
        return place not in self._places

    def fill(self, places: Collection[PieceKey], write: Filler) -> None:
        """Have pieces in the entry; `write(folder, places)` puts those that are missing in their place."""
        if any(map(self.is_missing, places)):
            self._set_entry(self._cache.fill(self.folder, self._facts.id, places, write))

    @property
    def files(self) -> int:
        """How many files the entry has."""
        return len(self._facts.files)

    def is_current(self) -> bool:
        """Whether the entry is still where it was and what it was: others may have changed it."""
        try:
            if identity(self.folder) != self._identity:
                return False
            if file_stamps(self.folder, self._facts.files) == self._facts.files:
                return True
        except OSError:
            return False
        found = validate(self.folder, self._facts)
        if found is not None:
            self._set_entry(found)
        return found is not None

    def discard(self) -> None:
        """Give the entry back and remove it, whoever else uses it."""
        self._unlock()
        with contextlib.suppress(FileNotFoundError), locked_folder(self.folder):
            self._cache.remove_entry(self.folder)

    def close(self) -> None:
        """Give the entry back; a second call does nothing."""
        if self._unlock.alive:
            self._unlock()
            self._cache.evict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class IndexCache:
    """A folder of indexes, at most `limit` bytes of them besides those in use."""

    folder: Path
    limit: int | None = None
    loads: int = 8
    _counters: Counters = field(default_factory=Counters)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _loading: threading.Semaphore = field(init=False)
    _usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self._loading = threading.Semaphore(self.loads)
        self._make_folders()

    def _make_folders(self) -> None:
        """Have the folders: someone may have deleted them since."""
        make_cache_folder(self.folder, make_own)
        for name in ("entries", "locks", "arriving"):
            make_cache_folder(self.folder / name, make_private)

    def lease(self, key: str, size: int | None, write: Writer) -> Lease:
        """The folder of an entry; if it is not there, `write(folder)` makes its files first.

        Args:
            key: Names the content: letters, digits, `-` and `_`.
            size: How long the entry's files are together; another size means it is damaged. None if that
                is not known before it is written.
            write: Makes the files in a folder it is given, with the bytes that everyone needs.
        """
        self._make_folders()
        lease = self._enter(key, size)
        made = 0
        while lease is None:
            with self._loading, exclusive_lock(self.folder / "arriving" / f"{key}.lock"):
                # Someone else may have made it meanwhile; or removed what was made here.
                if (lease := self._enter(key, size)) is None:
                    if made == _ATTEMPTS:
                        raise SplitError(
                            f"the cache in {self.folder} does not keep what is written to it; check the "
                            "disk, or set spark.indextables.cache.disk.path to a folder on another one"
                        )
                    self._create_entry(self.folder / "entries" / key, size, write)
                    made += 1
                    lease = self._enter(key, size)
        if made:
            self._count(misses=1, bytes_fetched=lease.size)
            self._usage.grow(lease.size)
            self.evict()
        else:
            self._count(hits=1)
        return lease

    def fill(self, entry: Path, which: str, places: Collection[PieceKey], write: Filler) -> CacheEntry:
        """Put pieces that an entry is_missing in their place, for whoever holds a lease; what it has then."""
        try:
            with self._loading, locked_folder(entry):
                facts = read_entry(entry)
                if facts is None or facts.id != which:
                    # Bytes in other files than those that are open would not be seen.
                    raise FileNotFoundError(0, "someone took files away that are in use")
                if (facts := verify_locked(entry, facts)) is None:
                    raise FileNotFoundError(0, "someone changed files that are in use")
                missing = set(places) - {(piece.file, piece.start) for piece in facts.pieces}
                if not missing:
                    return facts
                more: Sequence[CachedPiece] = ()
                try:
                    more = write(entry, missing)
                finally:
                    # Bytes that were written in vain change the files too.
                    files = file_stamps(entry, facts.files)
                    facts = replace(facts, files=files, pieces=(*facts.pieces, *more))
                    write_entry(entry, facts)
        except OSError as error:
            raise self._cannot_write(error) from error
        fetched = sum(piece.size for piece in more)
        self._count(bytes_fetched=fetched)
        self._usage.grow(fetched)
        self.evict()
        return facts

    @property
    def misses(self) -> int:
        """How many entries this process had to make because they were not there."""
        return self._counters.misses

    def holds(self, key: str) -> bool:
        """Whether the entry is on disk now."""
        return (self.folder / "entries" / key / ENTRY).exists()

    def pieces(self, key: str) -> set[PieceKey] | None:
        """Which pieces of an entry are on disk now; None if it is not there."""
        facts = read_entry(self.folder / "entries" / key)
        return None if facts is None else {(piece.file, piece.start) for piece in facts.pieces}

    def stats(self) -> CacheStats:
        """What the folder holds, and the counters of this process."""
        self._make_folders()
        found = list(self._entries())
        counters = asdict(self._counters)
        return CacheStats(
            str(self.folder), len(found), sum(size for _, size, _ in found), self._limit(found), **counters
        )

    def files(self) -> int:
        """How many index files the folder holds."""
        return sum(1 for path in (self.folder / "entries").glob("*/*") if path.name != ENTRY)

    def flush(self) -> EvictionResult:
        """Remove every entry that nobody uses."""
        self._make_folders()
        return self._remove(sorted(self._entries()), lambda _: True)

    def _enter(self, key: str, size: int | None) -> Lease | None:
        lock = lock_file(self.folder / "locks" / key, fcntl.LOCK_SH)
        entry = self.folder / "entries" / key
        try:
            facts = read_entry(entry)
            if facts is not None and size in (None, facts.size):
                facts = validate(entry, facts)
            if facts is None or size not in (None, facts.size):
                os.close(lock)
                return None
            _touch(entry / ENTRY)
            return Lease(self, entry, lock, facts)
        except FileNotFoundError:
            os.close(lock)  # it went while it was looked at
            return None
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(lock)
            raise

    def _create_entry(self, entry: Path, size: int | None, write: Writer) -> None:
        arriving = self.folder / "arriving" / f"{os.getpid()}-{uuid.uuid4().hex}"
        arriving.mkdir(mode=0o700)
        # Held until it has its place: however long the copy takes, nobody takes it for abandoned.
        held = try_lock_folder(arriving)
        try:
            pieces = write(arriving)
            facts = new_entry(arriving, pieces, [path.name for path in arriving.iterdir()])
            if size not in (None, facts.size):
                raise SplitError(
                    f"the index copied into {self.folder} has {facts.size} bytes, but {size} were "
                    "expected; the split is damaged or was cut: restore it from a backup"
                )
            write_entry(arriving, facts)
            with contextlib.suppress(FileNotFoundError), locked_folder(entry):
                if self.remove_entry(entry):
                    _logger.warning(
                        "the cached index in %s was damaged; it was fetched from its split again", entry
                    )
            arriving.rename(entry)
        except OSError as error:
            raise self._cannot_write(error) from error
        finally:
            shutil.rmtree(arriving, ignore_errors=True)
            if held is not None:
                os.close(held)

    def _cannot_write(self, error: OSError) -> IndexCacheError:
        return IndexCacheError(
            f"an index could not be written to the cache in {self.folder} "
            f"({error.strerror or error}); free some space there, or set "
            "spark.indextables.cache.disk.path to another folder"
        )

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """When each entry was last used, its size, and its key."""
        with os.scandir(self.folder / "entries") as found:
            for item in found:
                try:
                    used = (Path(item.path) / ENTRY).stat().st_mtime
                    size = allocated_bytes(Path(item.path))
                except OSError:
                    continue
                yield used, size, item.name

    def _limit(self, found: list[tuple[float, int, str]]) -> int:
        if self.limit is not None:
            return self.limit
        free = shutil.disk_usage(self.folder).free
        return (free + sum(size for _, size, _ in found)) * 2 // 3

    def evict(self) -> None:
        """Bring the cache down to its limit, the longest unused first; looks only when that may be needed."""
        if not self._usage.due() or not self._mutex.acquire(blocking=False):
            return
        try:
            found = sorted(self._entries())
            size, limit = sum(size for _, size, _ in found), self._limit(found)
            freed = 0
            many = len(found) >= _MANY_ENTRIES
            if size > (limit - limit // 32 if many else limit):
                excess = size - (limit - limit // 8 if many else limit)
                removed = self._remove(found, lambda freed: freed < excess)
                self._counters.evictions += removed.entries
                self._counters.bytes_evicted += removed.bytes
                metrics.record("indextables.cache.disk.evicted_bytes", removed.bytes)
                freed = removed.bytes
            self._usage.counted(limit - size + freed, len(found))
        except FileNotFoundError:
            pass  # the whole folder was taken away: nothing is left to evict
        finally:
            self._mutex.release()

    def _remove(self, found: list[tuple[float, int, str]], more: Callable[[int], bool]) -> EvictionResult:
        entries = files = freed = 0
        for _, size, key in found:
            if not more(freed):
                break
            lock = try_lock(self.folder / "locks" / key)
            if lock is None:
                continue
            try:
                entry = self.folder / "entries" / key
                files += sum(1 for file in entry.glob("*") if file.name != ENTRY)
                if self.remove_entry(entry):
                    entries, freed = entries + 1, freed + size
                (self.folder / "locks" / key).unlink(missing_ok=True)
            finally:
                os.close(lock)
        self._sweep()
        return EvictionResult(entries, files, freed)

    def remove_entry(self, entry: Path) -> bool:
        """Remove an entry, at once for whoever looks for it; whether it was there."""
        gone = self.folder / "arriving" / f"gone-{uuid.uuid4().hex}"
        try:
            entry.rename(gone)
        except FileNotFoundError:
            return False
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _sweep(self) -> None:
        """Remove what processes that died left on its way; those that live hold a lock on it."""
        now = time.time()
        for item in list(os.scandir(self.folder / "arriving")):
            with contextlib.suppress(OSError):
                if now - item.stat(follow_symlinks=False).st_mtime <= _STALE_ARRIVAL_S:
                    continue
                is_folder = item.is_dir(follow_symlinks=False)
                lock = (try_lock_folder if is_folder else try_lock)(Path(item.path))
                if lock is None:
                    continue
                try:
                    if is_folder:
                        shutil.rmtree(item.path, ignore_errors=True)
                    else:
                        Path(item.path).unlink()
                finally:
                    os.close(lock)

    def _count(self, *, hits: int = 0, misses: int = 0, bytes_fetched: int = 0) -> None:
        with self._mutex:
            self._counters.hits += hits
            self._counters.misses += misses
            self._counters.bytes_fetched += bytes_fetched
        metrics.record("indextables.cache.disk.hit", hits)
        if bytes_fetched:
            metrics.record("indextables.cache.disk.fetched_bytes", bytes_fetched)


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
            os.utime(path)


_caches: dict[tuple[Path, int | None, int], IndexCache] = {}
_caches_lock = threading.Lock()


def index_cache(options: Options) -> IndexCache:
    """The cache that the options name; callers with the same options share it."""
    folder = private_folder() if not options.get(reading.DISK_CACHE) else shared_folder(options)
    wanted = (folder, options.get(reading.DISK_CACHE_SIZE), options.get(reading.MAX_LOADS))
    with _caches_lock:
        if (found := _caches.get(wanted)) is None:
            found = _caches[wanted] = IndexCache(*wanted)
        return found


def _after_fork() -> None:
    """A forked child has caches of its own: threads that it does not have may hold the parent's locks."""
    global _caches_lock  # noqa: PLW0603 - the child's own
    _caches_lock = threading.Lock()
    _caches.clear()


os.register_at_fork(after_in_child=_after_fork)
