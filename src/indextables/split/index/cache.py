"""Index parts on the local disk, shared by the processes of a machine.

```
<folder>/entries/<key>/          the index files of one split, and `entry.json` (sizes, checksums, boot)
<folder>/locks/<key>             shared lock: in use; exclusive lock: being written or removed
<folder>/arriving/<name>/        an entry on its way; renamed into place when complete
```

Whoever uses an entry holds a shared lock on its lock file, so nobody removes it meanwhile, in this
process or another; a process that dies gives its locks back. An entry appears by one rename, so a reader
never sees half of one. What a crash of the machine may have spoilt is caught by the checksums: they are
checked once for each boot. The time of an entry's `entry.json` says when it was last used.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from indextables import metrics
from indextables.errors import SplitError
from indextables.options import Options, reading

_ENTRY = "entry.json"
_TOUCH_AFTER_S = 10.0
_STALE_ARRIVAL_S = 3600.0
_CHUNK = 1 << 20

# Writes files into a folder; tells the checksums of those that it knows.
Writer = Callable[[Path], Mapping[str, int] | None]


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
class Removed:
    """What a flush or an eviction freed."""

    entries: int
    files: int
    bytes: int


@dataclass(slots=True)
class _Counters:
    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0
    bytes_evicted: int = 0


class Lease:
    """The right to use an entry: it stays on disk until the lease is closed."""

    def __init__(self, folder: Path, size: int, lock: int, released: Callable[[], None]) -> None:
        self.folder = folder
        self.size = size
        self._released = released
        # A lease that is merely dropped gives its lock back, but does not clear up: that takes locks, and
        # the collector may run while they are held.
        self._unlock = weakref.finalize(self, os.close, lock)

    def close(self) -> None:
        """Give the entry back; a second call does nothing."""
        if self._unlock.alive:
            self._unlock()
            self._released()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class IndexCache:
    """A folder of index parts, at most `limit` bytes of them besides those in use."""

    folder: Path
    limit: int | None = None
    loads: int = 8
    _counters: _Counters = field(default_factory=_Counters)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _loading: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._loading = threading.Semaphore(self.loads)
        for part in (self.folder, *(self.folder / name for name in ("entries", "locks", "arriving"))):
            _own_folder(part)

    def lease(self, key: str, size: int | None, write: Writer) -> Lease:
        """The folder of an entry; if it is not there, `write(folder)` makes its files first.

        Args:
            key: Names the content: letters, digits, `-` and `_`.
            size: How many bytes of files the entry has; another size means it is damaged. None if that
                is not known before it is written.
            write: Writes the files into a folder it is given; a file whose checksum it does not tell is read
                again.
        """
        while True:
            if (lease := self._enter(key, size)) is not None:
                self._count(hits=1)
                return lease
            self._load(key, size, write)
            if (lease := self._enter(key, size)) is not None:
                self._count(misses=1, bytes_fetched=lease.size)
                self._evict()
                return lease

    @property
    def misses(self) -> int:
        """How many entries this process had to make because they were not there."""
        return self._counters.misses

    def holds(self, key: str) -> bool:
        """Whether the entry is on disk now."""
        return (self.folder / "entries" / key / _ENTRY).exists()

    def stats(self) -> CacheStats:
        """What the folder holds, and the counters of this process."""
        found = list(self._entries())
        counters = asdict(self._counters)
        return CacheStats(
            str(self.folder), len(found), sum(size for _, size, _ in found), self._limit(found), **counters
        )

    def files(self) -> int:
        """How many index files the folder holds."""
        return sum(1 for path in (self.folder / "entries").glob("*/*") if path.name != _ENTRY)

    def flush(self) -> Removed:
        """Remove every entry that nobody uses."""
        return self._remove(sorted(self._entries()), lambda _: True)

    def _enter(self, key: str, size: int | None) -> Lease | None:
        lock = _lock(self.folder / "locks" / key, fcntl.LOCK_SH)
        entry = self.folder / "entries" / key
        try:
            facts = _read_facts(entry)
            if facts is None or size not in (None, facts["size"]) or not _sound(entry, facts):
                os.close(lock)
                return None
            _touch(entry / _ENTRY)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(lock)
            raise
        return Lease(entry, int(facts["size"]), lock, self._evict)

    def _load(self, key: str, size: int | None, write: Writer) -> None:
        """Put the entry in place, unless someone else does so first."""
        with self._loading:
            lock = _lock(self.folder / "locks" / key, fcntl.LOCK_EX)
            try:
                entry = self.folder / "entries" / key
                facts = _read_facts(entry)
                if facts is not None and size in (None, facts["size"]) and _sound(entry, facts):
                    return
                shutil.rmtree(entry, ignore_errors=True)
                self._arrive(entry, size, write)
            finally:
                os.close(lock)

    def _arrive(self, entry: Path, size: int | None, write: Writer) -> None:
        arriving = self.folder / "arriving" / f"{os.getpid()}-{uuid.uuid4().hex}"
        arriving.mkdir(mode=0o700)
        try:
            facts = _facts(arriving, write(arriving) or {})
            if size not in (None, facts["size"]):
                raise SplitError(
                    f"the index part copied into {self.folder} has {facts['size']} bytes, but {size} were "
                    "expected; the split is damaged or was cut: restore it from a backup"
                )
            (arriving / _ENTRY).write_text(json.dumps(facts))
            arriving.rename(entry)
        except OSError as error:
            raise SplitError(
                f"an index part could not be written to the cache in {self.folder} "
                f"({error.strerror or error}); free some space there, or set "
                "spark.indextables.cache.disk.path to another folder"
            ) from error
        finally:
            shutil.rmtree(arriving, ignore_errors=True)

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """When each entry was last used, its size, and its key."""
        with os.scandir(self.folder / "entries") as found:
            for item in found:
                try:
                    used = (Path(item.path) / _ENTRY).stat().st_mtime
                    size = sum(f.stat().st_size for f in os.scandir(item.path) if f.name != _ENTRY)
                except OSError:
                    continue
                yield used, size, item.name

    def _limit(self, found: list[tuple[float, int, str]]) -> int:
        if self.limit is not None:
            return self.limit
        free = shutil.disk_usage(self.folder).free
        return (free + sum(size for _, size, _ in found)) * 2 // 3

    def _evict(self) -> None:
        """Bring the cache down to its limit, the longest unused first."""
        if not self._mutex.acquire(blocking=False):
            return
        try:
            found = sorted(self._entries())
            excess = sum(size for _, size, _ in found) - self._limit(found)
            if excess <= 0:
                return
            removed = self._remove(found, lambda freed: freed < excess)
            self._counters.evictions += removed.entries
            self._counters.bytes_evicted += removed.bytes
            metrics.record("indextables.cache.disk.evicted_bytes", removed.bytes)
        except FileNotFoundError:
            pass  # the whole folder was taken away: nothing is left to evict
        finally:
            self._mutex.release()

    def _remove(self, found: list[tuple[float, int, str]], more: Callable[[int], bool]) -> Removed:
        entries = files = freed = 0
        for _, size, key in found:
            if not more(freed):
                break
            lock = _try_lock(self.folder / "locks" / key)
            if lock is None:
                continue
            try:
                entry = self.folder / "entries" / key
                files += sum(1 for file in entry.glob("*") if file.name != _ENTRY)
                gone = self.folder / "arriving" / f"gone-{uuid.uuid4().hex}"
                with contextlib.suppress(FileNotFoundError):
                    entry.rename(gone)
                    shutil.rmtree(gone, ignore_errors=True)
                    entries, freed = entries + 1, freed + size
                (self.folder / "locks" / key).unlink(missing_ok=True)
            finally:
                os.close(lock)
        self._sweep()
        return Removed(entries, files, freed)

    def _sweep(self) -> None:
        """Remove what processes that died left on its way."""
        now = time.time()
        for item in list(os.scandir(self.folder / "arriving")):
            with contextlib.suppress(OSError):
                if now - item.stat().st_mtime > _STALE_ARRIVAL_S:
                    shutil.rmtree(item.path, ignore_errors=True)

    def _count(self, *, hits: int = 0, misses: int = 0, bytes_fetched: int = 0) -> None:
        with self._mutex:
            self._counters.hits += hits
            self._counters.misses += misses
            self._counters.bytes_fetched += bytes_fetched
        metrics.record("indextables.cache.disk.hit", hits)
        if bytes_fetched:
            metrics.record("indextables.cache.disk.fetched_bytes", bytes_fetched)


def _own_folder(folder: Path) -> None:
    """Make a folder that only this user can write; refuse one that someone else put there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise SplitError(
            f"the cache folder {folder} cannot be used ({error.strerror or error}); set "
            "spark.indextables.cache.disk.path to a folder on a local disk that this process may write"
        ) from error
    if owner != os.getuid():
        raise SplitError(
            f"the cache folder {folder} belongs to another user, who could change what is read from it; set "
            "spark.indextables.cache.disk.path to a folder of your own"
        )


def _lock(path: Path, kind: int) -> int:
    """Take a lock on the file at `path`, which may be removed by whoever held it before."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, kind)
            if _same_file(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _try_lock(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(handle, path):
            return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _same_file(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)


def _facts(folder: Path, checksums: Mapping[str, int]) -> dict[str, Any]:
    files = {item.name: [item.stat().st_size, checksums.get(item.name)] for item in os.scandir(folder)}
    for name, (size, crc) in files.items():
        files[name] = [size, _crc(folder / name) if crc is None else crc]
    return {"size": sum(size for size, _ in files.values()), "files": files, "boot": _boot()}


def _read_facts(entry: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads((entry / _ENTRY).read_bytes())
    except (OSError, ValueError):
        return None
    return facts if {"size", "files", "boot"} <= facts.keys() else None


def _sound(entry: Path, facts: Mapping[str, Any]) -> bool:
    """Whether the files are as they were written; their bytes are compared once for each boot."""
    try:
        if any((entry / name).stat().st_size != size for name, (size, _) in facts["files"].items()):
            return False
        if facts["boot"] == _boot():
            return True
        if any(_crc(entry / name) != crc for name, (_, crc) in facts["files"].items()):
            return False
    except OSError:
        return False
    renewed = entry / f".{uuid.uuid4().hex}"
    renewed.write_text(json.dumps({**facts, "boot": _boot()}))
    renewed.rename(entry / _ENTRY)
    return True


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc


@lru_cache(maxsize=1)
def _boot() -> str:
    """Names the time since the machine was started; where that is not told, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}-{time.time_ns()}"


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
            os.utime(path)


_caches: dict[tuple[Path, int | None, int], IndexCache] = {}
_caches_lock = threading.Lock()


def index_cache(options: Options) -> IndexCache:
    """The cache that the options name; callers with the same options share it."""
    folder = _private_folder() if not options.get(reading.DISK_CACHE) else _shared_folder(options)
    wanted = (folder, options.get(reading.DISK_CACHE_SIZE), options.get(reading.MAX_LOADS))
    with _caches_lock:
        if (found := _caches.get(wanted)) is None:
            found = _caches[wanted] = IndexCache(*wanted)
        return found


def _shared_folder(options: Options) -> Path:
    named = options.get(reading.DISK_CACHE_PATH) or options.get(reading.CACHE_DIRECTORY)
    if named is not None:
        return Path(named).absolute()
    local_disk = Path("/local_disk0")
    if local_disk.is_dir() and os.access(local_disk, os.W_OK):
        return local_disk / f"indextables-cache-{os.getuid()}"
    return Path(tempfile.gettempdir()).absolute() / f"indextables-cache-{os.getuid()}"


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    """A folder that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="indextables-")
    weakref.finalize(index_cache, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
