"""Locks between threads and processes: on files that may be removed, and on folders."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

# Which file or folder it is, whatever stands at its path later: its device and its number there.
Identity: TypeAlias = tuple[int, int]


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


def take_lock(path: Path, kind: int) -> int:
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
def alone(path: Path) -> Iterator[None]:
    """Be the only one, of all threads and processes, who holds the lock file, which goes afterwards."""
    held = take_lock(path, fcntl.LOCK_EX)
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
