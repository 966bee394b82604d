"""Private folders inside shared ones such as /tmp: only their owner can read or change them.

Another user may have created a folder or a link under a name that can be guessed. So a folder is accepted
only if it is not a link, belongs to this user, and is not accessible to others.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path


class NotPrivateError(Exception):
    """The path is not a private folder of this user; the message has the reason."""


def make_private(folder: Path) -> None:
    """Create a folder that only this user can use, or check that it is one; missing parents are created.

    Raises:
        NotPrivateError: there is a link, a file, or another user's folder at the path.
        OSError: it cannot be created.
    """
    status = _create_folder(folder)
    if stat.S_IMODE(status.st_mode) & 0o077:
        # Created by an earlier release, or with another umask. The handle refers to the checked folder.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            opened = os.fstat(handle)
            if (opened.st_dev, opened.st_ino) != (status.st_dev, status.st_ino):
                raise NotPrivateError(f"{folder} was replaced while it was opened")
            os.fchmod(handle, 0o700)
        finally:
            os.close(handle)


def make_own(folder: Path) -> None:
    """Create a folder that the user has named, or check it: others may read it, but not write.

    Raises:
        NotPrivateError: there is a link, a file, or another user's folder at the path, or others can write to
            it.
        OSError: it cannot be created.
    """
    status = _create_folder(folder)
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise NotPrivateError(f"everyone can write to {folder}")


def _create_folder(folder: Path) -> os.stat_result:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise NotPrivateError(f"{folder} is a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise NotPrivateError(f"{folder} is not a folder")
    if status.st_uid != os.geteuid():
        raise NotPrivateError(f"{folder} belongs to another user")
    return status
