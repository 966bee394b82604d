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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from isal import isal_zlib

# Which file or folder it is, whatever stands at its path later: its device and its number there.
Identity: TypeAlias = tuple[int, int]
ENTRY = "entry.json"
_CHUNK = 1 << 20
# Checksums are compared again when so much time has passed since the last time.
VERIFY_AFTER_S = 24 * 3600.0


def identity(path: Path) -> Identity:
    """Which file or folder stands at a path."""
    return _identity(path.stat())


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Be the only one, of all threads and processes, who changes what is in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def lock_file(path: Path, kind: int) -> int:
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


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Be the only one, of all threads and processes, who holds the lock file, which goes afterwards."""
    held = lock_file(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def try_lock(path: Path) -> int | None:
    """Take an exclusive lock on the file at `path` if nobody has one; None otherwise."""
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
    """Take an exclusive lock on a folder if nobody has one; None otherwise."""
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
    """Bytes that were written to their place in a file, with their checksum."""

    file: str
    start: int
    size: int
    crc32: int


# Where a piece begins: its file, and the first byte in it.
PieceKey: TypeAlias = tuple[str, int]


def allocated_bytes(entry: Path) -> int:
    """How much of the disk an entry takes: its files have bytes only here and there."""
    with os.scandir(entry) as found:
        files = [item.stat() for item in found if item.name != ENTRY]
    return sum(min(file.st_size, file.st_blocks * 512) for file in files)


# What the file system says of a file: its number, length, and times of its last changes. Another write shows.
Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What `entry.json` says: the files with their stamps, and which of their bytes are there.

    All bytes were compared with their checksums at `verified` (seconds since 1970), during `boot`.
    """

    files: dict[str, Stamp]
    pieces: tuple[CachedPiece, ...]
    boot: str
    verified: float
    # Another one for an entry that replaces this: it has other files at the same path.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def size(self) -> int:
        """How long the files are together."""
        return sum(size for _, size, _, _ in self.files.values())

    @property
    def recent(self) -> bool:
        """Whether the bytes were compared with their checksums not long ago."""
        return self.boot == boot() and abs(time.time() - self.verified) < VERIFY_AFTER_S


def file_stamps(entry: Path, names: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of files in an entry's folder; OSError if one is missing."""
    folder = str(entry)
    found = ((name, os.stat(f"{folder}/{name}")) for name in names)  # noqa: PTH116 - on every search
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found}


def new_entry(entry: Path, pieces: Sequence[CachedPiece], names: Iterable[str]) -> CacheEntry:
    """The facts of an entry whose bytes were compared with their checksums just now."""
    return CacheEntry(file_stamps(entry, names), tuple(pieces), boot(), time.time())


def read_entry(entry: Path) -> CacheEntry | None:
    """What is known of an entry; None if it is not there, or damaged."""
    try:
        said: dict[str, Any] = json.loads((entry / ENTRY).read_bytes())
        if said.pop("crc32") != _entry_crc(said):
            return None
        files = {name: _stamp(*stamp) for name, stamp in said["files"].items()}
        pieces = tuple(CachedPiece(*piece) for piece in said["pieces"])
        return CacheEntry(files, pieces, said["boot"], said["verified"], said["id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _stamp(number: int, size: int, modified: int, changed: int) -> Stamp:
    return number, size, modified, changed


def write_entry(entry: Path, facts: CacheEntry) -> None:
    """Write `entry.json`, whole or not at all."""
    pieces = [[piece.file, piece.start, piece.size, piece.crc32] for piece in facts.pieces]
    said = {
        "id": facts.id,
        "files": {name: list(stamp) for name, stamp in facts.files.items()},
        "pieces": pieces,
        "boot": facts.boot,
        "verified": facts.verified,
    }
    renewed = entry / f".{uuid.uuid4().hex}"
    renewed.write_text(json.dumps({**said, "crc32": _entry_crc(said)}))
    renewed.rename(entry / ENTRY)


def _entry_crc(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def validate(entry: Path, facts: CacheEntry) -> CacheEntry | None:
    """The facts, if the files are as they were written; None if they are not.

    Bytes are compared with their checksums when the files changed since that was last done, after every boot,
    and now and then, since disks fail.
    """
    try:
        if facts.recent and file_stamps(entry, facts.files) == facts.files:
            return facts
        with locked_folder(entry):
            # Someone may have added pieces meanwhile.
            now = read_entry(entry)
            checked = None if now is None or now.id != facts.id else verify_locked(entry, now)
            if checked is not None and checked is not now:
                write_entry(entry, checked)
            return checked
    except OSError:
        return None


def verify_locked(entry: Path, facts: CacheEntry) -> CacheEntry | None:
    """The facts as they are now, for who has locked the entry; None if bytes are not what they were."""
    found = file_stamps(entry, facts.files)
    if facts.recent and found == facts.files:
        return facts
    if any(found[name][1] != size for name, (_, size, _, _) in facts.files.items()):
        return None
    if any(_crc(entry / p.file, p.start, p.size) != p.crc32 for p in facts.pieces):
        return None
    return replace(facts, files=found, boot=boot(), verified=time.time())


def whole_files(folder: Path) -> list[CachedPiece]:
    """All files in a folder, each as one piece."""
    found = []
    for item in os.scandir(folder):
        size = item.stat().st_size
        found.append(CachedPiece(item.name, 0, size, _crc(Path(item.path), 0, size)))
    return found


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
    """Names the time since the machine was started; where that is not told, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}-{time.time_ns()}"
