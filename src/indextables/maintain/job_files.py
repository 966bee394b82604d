"""The jobs of a machine in small files, so that its processes know of each other's.

A planner of Spark, a shell and a notebook are processes of their own: what one began another can list and
wait for. The folder belongs to the user alone, and only files whose names are a job's are read or removed.
Where there can be no such folder, a process knows its own jobs only, and says so once.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from indextables.private_folder import NotPrivateError, make_private

_SUFFIX = ".json"
_ID = re.compile(r"[0-9a-f]{12}")
# The file of a job, and one that is being written.
_NAME = re.compile(r"[0-9a-f]{12}\.(json|[0-9a-f]{8})")
_MOST_BYTES = 1 << 20
_MOST_PROCESSES = 1 << 31

_logger = logging.getLogger(__name__)


class JobRecord(msgspec.Struct, frozen=True):
    """What the file of a job says; fields that a newer release adds are passed over."""

    id: str
    kind: str
    table: str
    status: str
    host: str
    owner: int
    total: int = 0
    done: int = 0
    total_batches: int = 0
    done_batches: int = 0
    error: str | None = None
    started: float = 0.0
    ended: float | None = None
    born: str = ""
    before: int = 0


def folder() -> Path | None:
    """Where the files are; None if this user cannot have such a folder."""
    found = Path(tempfile.gettempdir()).absolute() / f"indextables-jobs-{os.geteuid()}"
    try:
        make_private(found)
    except (NotPrivateError, OSError) as error:
        _warn(str(found), str(error))
        return None
    return found


@lru_cache(maxsize=16)
def _warn(path: str, problem: str) -> None:
    """Once for a folder: others do not see this process's jobs."""
    _logger.warning("jobs are listed in their own process only: %s cannot be used (%s)", path, problem)


def save(job_id: str, record: dict[str, Any]) -> None:
    """Write what is known of a job; a reader sees all of it or what was there before."""
    home = folder()
    if home is None or _ID.fullmatch(job_id) is None:
        return
    arriving = home / f"{job_id}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        arriving.write_text(json.dumps(record))
        arriving.replace(home / (job_id + _SUFFIX))


def load(job_id: str) -> JobRecord | None:
    """What is known of a job."""
    home = folder()
    if home is None or _ID.fullmatch(job_id) is None:
        return None
    return _read(home / (job_id + _SUFFIX))


def load_all() -> Iterator[JobRecord]:
    """What is known of all jobs of this machine, in no order."""
    for path in _files():
        if path.suffix == _SUFFIX and (record := _read(path)) is not None:
            yield record


def remove_older(seconds: float) -> None:
    """Remove files that nothing was written to for so long, of jobs that are over."""
    for path in _files():
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime < seconds:
                continue
            record = _read(path)
            if record is None or record.ended is not None or not alive(record.owner, record.born):
                path.unlink()


def _files() -> Iterator[Path]:
    """The files with names of ours; whatever else is in the folder is left alone."""
    home = folder()
    if home is None:
        return
    try:
        names = [path for path in home.iterdir() if _NAME.fullmatch(path.name) is not None]
    except OSError:
        return
    for path in names:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def born(process: int) -> str:
    """When a process was started, as its system counts; empty where that is not told."""
    try:
        # The name of a program, in parentheses, may hold blanks; the fields after it do not.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def alive(process: int, since: str) -> bool:
    """Whether a process still runs, and is the one that was started then."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return born(process) == since


def _read(path: Path) -> JobRecord | None:
    """The record in a file; None if it is no file, or no record of a job."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:  # noqa: PTH123 - it is open already
            data = file.read(_MOST_BYTES)
        record = msgspec.json.decode(data, type=JobRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    ours = record.id + _SUFFIX == path.name and 0 < record.owner < _MOST_PROCESSES
    return record if ours else None
