"""The disk cache: index files of splits on the local disk, shared by the processes of a machine.

```
<folder>/entries/<key>/          the index files of one split, and `entry.json` (stamps, pieces, checksums)
<folder>/locks/<key>             shared lock: in use; exclusive lock: being removed
<folder>/arriving/<name>/        an entry that is being fetched; renamed when it is complete
<folder>/arriving/<key>.lock     exclusive lock: one process fetches the entry, others wait
```

A user of an entry holds a shared lock on its lock file, so that no process removes it; the locks of a dead
process are released. An entry is created by one rename, so a reader never sees a part of it.

The files of an entry are sparse: they have their full length, and bytes only where a search needed them.
`entry.json` lists the pieces that are present, with their checksums. To add pieces, a process locks the
entry's folder, writes the bytes, and then updates `entry.json`. Others may have the files open, and do not
read the new ranges yet. The modification time of `entry.json` is the time of the last use.

Damage by a crash, a failing disk or another program is detected by the checksums. They are compared when the
files of an entry changed since the last comparison, after every boot, and once a day. A damaged entry is
replaced from the split.
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
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from indextables import metrics
from indextables.errors import IndexCacheError, SplitError
from indextables.options import Options, reading
from indextables.records import dataclass
from indextables.split.index.cache_entry import (
    ENTRY,
    CachedPiece,
    CacheEntry,
    PieceKey,
    allocated_bytes,
    are_unchanged,
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
from indextables.store.local import NotPrivateError, make_own, make_private

# Other processes fill the cache too, so its size is measured again after this many seconds.
_COUNT_AFTER_S = 10.0
_TOUCH_AFTER_S = 10.0
_STALE_ARRIVAL_S = 3600.0
# A file system may allocate the space of files some time after they were written.
_ALLOCATION_S = 60.0
# After this many entries in a row that differ from what was written, the disk is at fault.
_ATTEMPTS = 3
# From this many entries on, an eviction frees more than needed, since each one lists all entries.
_MANY_ENTRIES = 64

_logger = logging.getLogger(__name__)

# Writes files into a folder; returns the pieces that it wrote.
Writer = Callable[[Path], Sequence[CachedPiece]]
# Writes the pieces with these keys to the files in a folder.
Filler = Callable[[Path, Collection[PieceKey]], Sequence[CachedPiece]]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The size of a cache (all processes), and the counters of this process."""

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
    """The result of a flush or an eviction."""

    entries: int
    files: int
    bytes: int


@dataclass(slots=True)
class Counters:
    """Counters of this process."""

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0
    bytes_evicted: int = 0


class Usage:
    """Estimates the free room of a cache, to decide when its size must be measured.

    Measuring takes time for every entry. It is due when a quarter of the room is used up, or, without any
    room (all entries are in use), after a number of uses that grows with the number of entries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room = 0
        self._grown = 0
        self._uses = 0
        self._entries = 0
        self._time = -_COUNT_AFTER_S
        self._began = 0.0
        self._elapsed = 0.0

    def grow(self, size: int) -> None:
        """Count bytes that were added to the cache."""
        with self._lock:
            self._grown += size

    def should_measure(self) -> bool:
        """Whether the size of the cache should be measured now."""
        with self._lock:
            now = time.monotonic()
            self._uses += 1
            used_up = 4 * self._grown >= self._room if self._room > 0 else 8 * self._uses >= self._entries
            late = now - self._time > max(_COUNT_AFTER_S, 20 * self._elapsed)
            if used_up or late:
                self._began = now
            return used_up or late

    def update(self, room: int, entries: int) -> None:
        """Set the room and the number of entries after a measurement and an eviction."""
        with self._lock:
            now = time.monotonic()
            self._room, self._grown, self._uses, self._entries = room, 0, 0, entries
            self._elapsed, self._time = now - self._began, now


def make_cache_folder(folder: Path, make: Callable[[Path], None]) -> None:
    """Create a folder of this user; refuse one that another user created."""
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
    """The folder that processes of this user share; if it is not safe, a folder of this process."""
    setting = options.get(reading.DISK_CACHE_PATH) or options.get(reading.CACHE_DIRECTORY)
    if setting is not None:
        return Path(setting).resolve()  # a symbolic link that the user names is followed
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
    """Warn once for a folder. Searches work without it, with a cache of this process."""
    _logger.warning(
        "indexes are cached for this process only: %s cannot be used (%s); set "
        "spark.indextables.cache.disk.path to a folder of your own",
        folder,
        problem,
    )


@lru_cache(maxsize=1)
def private_folder() -> Path:
    """A temporary folder, removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="indextables-")
    weakref.finalize(private_folder, _remove_private, folder, os.getpid())
    return Path(folder)


def _remove_private(folder: str, process: int) -> None:
    if process == os.getpid():  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


os.register_at_fork(after_in_child=private_folder.cache_clear)


class Lease:
    """A lease on an entry: the entry stays on disk until the lease is closed."""

    def __init__(self, cache: "IndexCache", folder: Path, lock: int, contents: CacheEntry) -> None:
        self.folder = folder
        self._path = str(folder)
        self._identity = identity(self._path)
        self._cache = cache
        self._set_entry(contents)
        # A lease that is garbage-collected releases its lock but does not evict: eviction takes locks, which
        # the collecting thread may hold already.
        self._unlock = weakref.finalize(self, os.close, lock)

    def _set_entry(self, contents: CacheEntry) -> None:
        """Set the record of the entry, and the keys and total size of its pieces."""
        self._contents = contents
        sizes = {(piece.file, piece.start): piece.size for piece in contents.pieces}
        self.size = sum(sizes.values())
        self._places = sizes.keys()

    def is_missing(self, place: PieceKey) -> bool:
        """Whether a piece was missing when this lease last read the record."""
        return place not in self._places

    def fill(self, places: Collection[PieceKey], write: Filler) -> None:
        """Add pieces to the entry; `write(folder, keys)` writes those that are missing."""
        if any(map(self.is_missing, places)):
            self._set_entry(self._cache.fill(self.folder, self._contents.id, places, write))

    @property
    def files(self) -> int:
        """The number of files of the entry."""
        return len(self._contents.files)

    def is_current(self) -> bool:
        """Whether the entry still exists and is unchanged; another program may have changed it."""
        try:
            if identity(self._path) != self._identity:
                return False
            if are_unchanged(self._path, self._contents.files):
                return True
        except OSError:
            return False
        entry = validate(self.folder, self._contents)
        if entry is not None:
            self._set_entry(entry)
        return entry is not None

    def discard(self) -> None:
        """Release the lease and remove the entry, even if it is in use elsewhere."""
        self._unlock()
        with contextlib.suppress(FileNotFoundError), locked_folder(self.folder):
            self._cache.remove_entry(self.folder)

    def close(self) -> None:
        """Release the lease; a second call does nothing."""
        if self._unlock.alive:
            self._unlock()
            self._cache.evict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class IndexCache:
    """A folder of index files, at most `limit` bytes besides those in use."""

    folder: Path
    limit: int | None = None
    loads: int = 8
    _counters: Counters = field(default_factory=Counters)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _loading: threading.Semaphore = field(init=False)
    _usage: Usage = field(default_factory=Usage)
    # The size of entries that were measured before, with the inode and the time of their records.
    _sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loading = threading.Semaphore(self.loads)
        self._make_folders()

    def _make_folders(self) -> None:
        """Create the folders, which may have been deleted since."""
        make_cache_folder(self.folder, make_own)
        for name in ("entries", "locks", "arriving"):
            make_cache_folder(self.folder / name, make_private)

    def lease(self, key: str, size: int | None, write: Writer) -> Lease:
        """A lease on an entry; if it does not exist, `write(folder)` writes its files first.

        Args:
            key: Identifies the content: letters, digits, `-` and `_`.
            size: The total length of the files; an entry of another size is damaged. None if it is unknown
                before the entry is written.
            write: Creates the files in a folder, with the pieces that every search needs.
        """
        self._make_folders()
        lease = self._enter(key, size)
        attempts = 0
        while lease is None:
            with self._loading, exclusive_lock(self.folder / "arriving" / f"{key}.lock"):
                # Another process may have created it meanwhile, or removed the one that was created here.
                if (lease := self._enter(key, size)) is None:
                    if attempts == _ATTEMPTS:
                        raise SplitError(
                            f"files in the cache in {self.folder} differ from what was written; check the "
                            "disk, or set spark.indextables.cache.disk.path to a folder on another one"
                        )
                    self._create_entry(self.folder / "entries" / key, size, write)
                    attempts += 1
                    lease = self._enter(key, size)
        if attempts:
            self._count(misses=1, bytes_fetched=lease.size)
            self._usage.grow(lease.size)
            self.evict()
        else:
            self._count(hits=1)
        return lease

    def fill(self, entry: Path, which: str, places: Collection[PieceKey], write: Filler) -> CacheEntry:
        """Write the pieces that an entry lacks, for a lease on it; returns its new record."""
        try:
            with self._loading, locked_folder(entry):
                contents = read_entry(entry)
                if contents is None or contents.id != which:
                    # The lease has files of a replaced entry open, which would not get the bytes.
                    raise FileNotFoundError(0, "files that are in use were removed")
                if (contents := verify_locked(entry, contents)) is None:
                    raise FileNotFoundError(0, "files that are in use were changed")
                missing = set(places) - {(piece.file, piece.start) for piece in contents.pieces}
                if not missing:
                    return contents
                more: Sequence[CachedPiece] = ()
                try:
                    more = write(entry, missing)
                finally:
                    # A failed write changes the files too.
                    files = file_stamps(entry, contents.files)
                    contents = replace(contents, files=files, pieces=(*contents.pieces, *more))
                    write_entry(entry, contents)
        except OSError as error:
            raise self._cannot_write(error) from error
        fetched = sum(piece.size for piece in more)
        self._count(bytes_fetched=fetched)
        self._usage.grow(fetched)
        self.evict()
        return contents

    @property
    def misses(self) -> int:
        """The number of entries that this process had to fetch."""
        return self._counters.misses

    def holds(self, key: str) -> bool:
        """Whether the entry is on disk now."""
        return (self.folder / "entries" / key / ENTRY).exists()

    def pieces(self, key: str) -> set[PieceKey] | None:
        """The keys of the pieces of an entry that are on disk now; None without an entry."""
        contents = read_entry(self.folder / "entries" / key)
        return None if contents is None else {(piece.file, piece.start) for piece in contents.pieces}

    def stats(self) -> CacheStats:
        """The size of the cache, and the counters of this process."""
        self._make_folders()
        entries = self._entries()
        counters = asdict(self._counters)
        return CacheStats(
            str(self.folder),
            len(entries),
            sum(size for _, size, _ in entries),
            self._limit(entries),
            **counters,
        )

    def files(self) -> int:
        """How many index files the folder holds."""
        return sum(1 for path in (self.folder / "entries").glob("*/*") if path.name != ENTRY)

    def flush(self) -> EvictionResult:
        """Remove every entry that is not in use."""
        self._make_folders()
        return self._remove(sorted(self._entries()), lambda _: True)

    def _enter(self, key: str, size: int | None) -> Lease | None:
        lock = lock_file(self.folder / "locks" / key, fcntl.LOCK_SH)
        entry = self.folder / "entries" / key
        try:
            contents = read_entry(entry)
            if contents is not None and size in (None, contents.size):
                contents = validate(entry, contents)
            if contents is None or size not in (None, contents.size):
                os.close(lock)
                return None
            _touch(entry / ENTRY)
            return Lease(self, entry, lock, contents)
        except FileNotFoundError:
            os.close(lock)  # it was removed while it was read
            return None
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(lock)
            raise

    def _create_entry(self, entry: Path, size: int | None, write: Writer) -> None:
        arriving = self.folder / "arriving" / f"{os.getpid()}-{uuid.uuid4().hex}"
        arriving.mkdir(mode=0o700)
        # Locked until it is renamed: however long the copy takes, `_sweep` does not remove it.
        folder_lock = try_lock_folder(arriving)
        try:
            pieces = write(arriving)
            contents = new_entry(arriving, pieces, [path.name for path in arriving.iterdir()])
            if size not in (None, contents.size):
                raise SplitError(
                    f"the index copied into {self.folder} has {contents.size} bytes, but {size} were "
                    "expected; the split is damaged or truncated: restore it from a backup"
                )
            write_entry(arriving, contents)
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
            if folder_lock is not None:
                os.close(folder_lock)

    def _cannot_write(self, error: OSError) -> IndexCacheError:
        return IndexCacheError(
            f"an index could not be written to the cache in {self.folder} "
            f"({error.strerror or error}); free some space there, or set "
            "spark.indextables.cache.disk.path to another folder"
        )

    def _entries(self) -> list[tuple[float, int, str]]:
        """When each entry was last used, its size, and its key."""
        entries = []
        sizes: dict[str, tuple[int, int, int]] = {}
        youngest = time.time() - _ALLOCATION_S
        with os.scandir(self.folder / "entries") as folders:
            for item in folders:
                try:
                    record = os.stat(f"{item.path}/{ENTRY}")  # noqa: PTH116 - for each entry
                    inode, changed, size = self._sizes.get(item.name, (0, 0, 0))
                    # Whoever writes to an entry replaces its record.
                    if (inode, changed) != (record.st_ino, record.st_mtime_ns):
                        size = allocated_bytes(item.path)
                except OSError:
                    continue
                if record.st_mtime < youngest:
                    sizes[item.name] = record.st_ino, record.st_mtime_ns, size
                entries.append((record.st_mtime, size, item.name))
        self._sizes = sizes
        return entries

    def _limit(self, entries: list[tuple[float, int, str]]) -> int:
        if self.limit is not None:
            return self.limit
        free = shutil.disk_usage(self.folder).free
        return (free + sum(size for _, size, _ in entries)) * 2 // 3

    def evict(self) -> None:
        """Evict entries down to the limit, least recently used first; measures only when that is due."""
        if not self._usage.should_measure() or not self._mutex.acquire(blocking=False):
            return
        try:
            entries = sorted(self._entries())
            size, limit = sum(size for _, size, _ in entries), self._limit(entries)
            freed = 0
            many = len(entries) >= _MANY_ENTRIES
            if size > (limit - limit // 32 if many else limit):
                excess = size - (limit - limit // 8 if many else limit)
                removed = self._remove(entries, lambda freed: freed < excess)
                self._counters.evictions += removed.entries
                self._counters.bytes_evicted += removed.bytes
                metrics.record("indextables.cache.disk.evicted_bytes", removed.bytes)
                freed = removed.bytes
            self._usage.update(limit - size + freed, len(entries))
        except FileNotFoundError:
            pass  # the cache folder was deleted: nothing is left to evict
        finally:
            self._mutex.release()

    def _remove(
        self, candidates: list[tuple[float, int, str]], more: Callable[[int], bool]
    ) -> EvictionResult:
        entries = files = freed = 0
        for _, size, key in candidates:
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
        """Remove an entry by one rename; returns whether it existed."""
        trash = self.folder / "arriving" / f"gone-{uuid.uuid4().hex}"
        try:
            entry.rename(trash)
        except FileNotFoundError:
            return False
        shutil.rmtree(trash, ignore_errors=True)
        return True

    def _sweep(self) -> None:
        """Remove unfinished entries of dead processes; living processes hold a lock on theirs."""
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
# The options that were used last, by identity.
_recent: deque[tuple[Options, IndexCache]] = deque(maxlen=8)


def index_cache(options: Options) -> IndexCache:
    """The cache that the options name; callers with the same options share it.

    For the same object it is found without looking at the folder: a query uses one object for all splits.
    """
    with _caches_lock:
        for recent_options, recent in _recent:
            if recent_options is options:
                return recent
    folder = private_folder() if not options.get(reading.DISK_CACHE) else shared_folder(options)
    settings = (folder, options.get(reading.DISK_CACHE_SIZE), options.get(reading.MAX_LOADS))
    with _caches_lock:
        if (cache := _caches.get(settings)) is None:
            cache = _caches[settings] = IndexCache(*settings)
        _recent.append((options, cache))
        return cache


def _after_fork() -> None:
    """Reset in a forked child: threads of the parent may have held the locks."""
    global _caches_lock  # noqa: PLW0603 - the child's own
    _caches_lock = threading.Lock()
    _caches.clear()
    _recent.clear()


os.register_at_fork(after_in_child=_after_fork)
