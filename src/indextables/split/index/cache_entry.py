"""An entry of the disk cache: sparse files of full length, a record of the bytes they hold, and file locks.

The record is `entry.json`: the files with their stamps, the pieces with their checksums, the time when these
were last compared, and a checksum of the record itself.
"""

import contextlib
import fcntl
import json
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from isal import isal_zlib

from indextables.records import dataclass

# The device and inode of a file or folder.
Identity: TypeAlias = tuple[int, int]
ENTRY = "entry.json"
_CHUNK = 1 << 20
# Checksums are compared again after this many seconds.
VERIFY_AFTER_S = 24 * 3600.0


def identity(path: Path | str) -> Identity:
    """The device and inode of the file or folder at a path."""
    return _identity(os.stat(path))  # noqa: PTH116 - on every search


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, between threads and processes."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def lock_file(path: Path, kind: int) -> int:
    """Lock the file at `path`; if its previous holder removed the file, lock the new one."""
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


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock file, between threads and processes; it is removed afterwards."""
    handle_ = lock_file(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle_)


def try_lock(path: Path) -> int | None:
    """Take an exclusive lock on the file at `path` if it is free; None otherwise."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(handle, path):
            return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def try_lock_folder(folder: Path) -> int | None:
    """Take an exclusive lock on a folder if it is free; None otherwise."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _same_file(handle: int, path: Path) -> bool:
    try:
        return _identity(os.fstat(handle)) == identity(path)
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class CachedPiece:
    """A piece of an index file in the cache, with the checksum of its uncompressed bytes."""

    file: str
    start: int
    size: int
    crc32: int


# Identifies a piece: its file, and its first byte there.
PieceKey: TypeAlias = tuple[str, int]


def allocated_bytes(folder: str) -> int:
    """The disk space of an entry, whose files are sparse."""
    with os.scandir(folder) as listing:
        files = [item.stat() for item in listing if item.name != ENTRY]
    return sum(min(file.st_size, file.st_blocks * 512) for file in files)


# Inode, size, modification and change time of a file: every write changes them.
Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The record in `entry.json`: the files with their stamps, and the pieces that are present.

    All pieces were compared with their checksums at `verified` (seconds since 1970), during `boot`.
    """

    files: dict[str, Stamp]
    pieces: tuple[CachedPiece, ...]
    boot: str
    verified: float
    # An entry that replaces this one has another id: it has other files at the same path.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def size(self) -> int:
        """The total length of the files."""
        return sum(size for _, size, _, _ in self.files.values())

    @property
    def recent(self) -> bool:
        """Whether the last comparison with the checksums is recent."""
        return self.boot == boot() and abs(time.time() - self.verified) < VERIFY_AFTER_S


def file_stamps(folder: Path, names: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of files in an entry's folder; OSError if one is missing."""
    parent = str(folder)
    statuses = ((name, os.stat(f"{parent}/{name}")) for name in names)  # noqa: PTH116 - on every search
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in statuses}


def are_unchanged(folder: str, files: Mapping[str, Stamp]) -> bool:
    """Whether files in an entry's folder have these stamps; OSError if one is missing."""
    for name, stamp in files.items():
        s = os.stat(f"{folder}/{name}")  # noqa: PTH116 - on every search
        if (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) != stamp:
            return False
    return True


def new_entry(folder: Path, pieces: Sequence[CachedPiece], names: Iterable[str]) -> CacheEntry:
    """The record of a new entry, whose bytes were compared with their checksums just now."""
    return CacheEntry(file_stamps(folder, names), tuple(pieces), boot(), time.time())


def read_entry(folder: Path) -> CacheEntry | None:
    """The record of an entry; None if there is none, or it is damaged."""
    try:
        record: dict[str, Any] = json.loads((folder / ENTRY).read_bytes())
        if record.pop("crc32") != _entry_crc(record):
            return None
        files = {name: _stamp(*stamp) for name, stamp in record["files"].items()}
        pieces = tuple(CachedPiece(*piece) for piece in record["pieces"])
        return CacheEntry(files, pieces, record["boot"], record["verified"], record["id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _stamp(number: int, size: int, modified: int, changed: int) -> Stamp:
    return number, size, modified, changed


def write_entry(folder: Path, entry: CacheEntry) -> None:
    """Write `entry.json` atomically."""
    pieces = [[piece.file, piece.start, piece.size, piece.crc32] for piece in entry.pieces]
    record = {
        "id": entry.id,
        "files": {name: list(stamp) for name, stamp in entry.files.items()},
        "pieces": pieces,
        "boot": entry.boot,
        "verified": entry.verified,
    }
    renewed = folder / f".{uuid.uuid4().hex}"
    renewed.write_text(json.dumps({**record, "crc32": _entry_crc(record)}))
    renewed.rename(folder / ENTRY)


def _entry_crc(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def validate(folder: Path, entry: CacheEntry) -> CacheEntry | None:
    """The record, if the files are unchanged; None if they are damaged.

    Pieces are compared with their checksums when the files changed since the last comparison, after every
    boot, and once a day.
    """
    try:
        if entry.recent and file_stamps(folder, entry.files) == entry.files:
            return entry
        with locked_folder(folder):
            # Another process may have added pieces meanwhile.
            now = read_entry(folder)
            checked = None if now is None or now.id != entry.id else verify_locked(folder, now)
            if checked is not None and checked is not now:
                write_entry(folder, checked)
            return checked
    except OSError:
        return None


def verify_locked(folder: Path, entry: CacheEntry) -> CacheEntry | None:
    """The current record of an entry that the caller has locked; None if the files are damaged."""
    stamps = file_stamps(folder, entry.files)
    if entry.recent and stamps == entry.files:
        return entry
    if any(stamps[name][1] != size for name, (_, size, _, _) in entry.files.items()):
        return None
    if any(_crc(folder / p.file, p.start, p.size) != p.crc32 for p in entry.pieces):
        return None
    return replace(entry, files=stamps, boot=boot(), verified=time.time())


def whole_files(folder: Path) -> list[CachedPiece]:
    """All files in a folder, each as one piece."""
    names = []
    for item in os.scandir(folder):
        size = item.stat().st_size
        names.append(CachedPiece(item.name, 0, size, _crc(Path(item.path), 0, size)))
    return names


def _crc(path: Path, start: int, size: int) -> int:
    crc = 0
    with path.open("rb") as file:
        file.seek(start)
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            size -= len(chunk)
            crc = isal_zlib.crc32(chunk, crc)
    return crc


@lru_cache(maxsize=1)
def boot() -> str:
    """Identifies the boot of the machine; where the system has no such id, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}-{time.time_ns()}"
