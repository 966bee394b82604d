"""An entry of the disk cache: files of full length, and a note which of their bytes are there.

The note is `entry.json`: the files with their lengths, the pieces with their checksums, and the boot of the
machine since which they are known to be right.
"""

import json
import os
import time
import uuid
import zlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from indextables.split.index.locks import locked_folder

ENTRY = "entry.json"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes that were written to their place in a file, with their checksum."""

    file: str
    start: int
    size: int
    crc32: int


# Where a piece begins: its file, and the first byte in it.
Place: TypeAlias = tuple[str, int]


def bytes_there(entry: Path) -> int:
    """How much of the disk an entry takes: its files have bytes only here and there."""
    with os.scandir(entry) as found:
        files = [item.stat() for item in found if item.name != ENTRY]
    return sum(min(file.st_size, file.st_blocks * 512) for file in files)


@dataclass(frozen=True, slots=True)
class Facts:
    """What `entry.json` says: the files with their lengths, which of their bytes are there, since when."""

    files: dict[str, int]
    pieces: tuple[Copied, ...]
    boot: str
    # Another one for an entry that replaces this: it has other files at the same path.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def size(self) -> int:
        """How long the files are together."""
        return sum(self.files.values())


def read_facts(entry: Path) -> Facts | None:
    """What is known of an entry; None if it is not there."""
    try:
        said: dict[str, Any] = json.loads((entry / ENTRY).read_bytes())
        pieces = tuple(Copied(*piece) for piece in said["pieces"])
        return Facts(said["files"], pieces, said["boot"], said["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tell(entry: Path, facts: Facts) -> None:
    """Write `entry.json`, as a whole or not at all."""
    pieces = [[piece.file, piece.start, piece.size, piece.crc32] for piece in facts.pieces]
    renewed = entry / f".{uuid.uuid4().hex}"
    said = {"id": facts.id, "files": facts.files, "pieces": pieces, "boot": facts.boot}
    renewed.write_text(json.dumps(said))
    renewed.rename(entry / ENTRY)


def sound(entry: Path, facts: Facts) -> bool:
    """Whether the files are as they were written; their bytes are compared once for each boot."""
    try:
        if any((entry / name).stat().st_size != size for name, size in facts.files.items()):
            return False
        if facts.boot == boot():
            return True
        with locked_folder(entry):
            now = read_facts(entry)
            if now is None or any(_crc(entry / p.file, p.start, p.size) != p.crc32 for p in now.pieces):
                return False
            tell(entry, replace(now, boot=boot()))
    except OSError:
        return False
    return True


def whole_files(folder: Path) -> list[Copied]:
    """All files in a folder, each as one piece."""
    found = []
    for item in os.scandir(folder):
        size = item.stat().st_size
        found.append(Copied(item.name, 0, size, _crc(Path(item.path), 0, size)))
    return found


def _crc(path: Path, start: int, size: int) -> int:
    crc = 0
    with path.open("rb") as file:
        file.seek(start)
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            size -= len(chunk)
            crc = zlib.crc32(chunk, crc)
    return crc


@lru_cache(maxsize=1)
def boot() -> str:
    """Names the time since the machine was started; where that is not told, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}-{time.time_ns()}"
