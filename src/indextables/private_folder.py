"""A folder in space that others share, such as /tmp, that nobody but its owner can read or change.

Anyone can make a folder or a link of a name that can be guessed before we do. So a folder counts only if it
is one itself, belongs to this user, and is closed to others; what is in it then is ours.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path


class NotPrivateError(Exception):
    """Something else than a private folder of this user stands at the path; the sentence says what."""


def make_private(folder: Path) -> None:
    """Have a folder that is this user's alone; those above it are made if they are missing.

    Raises:
        NotPrivateError: a link, a file, or another user's folder is there.
        OSError: it cannot be made.
    """
    found = _create_folder(folder)
    if stat.S_IMODE(found.st_mode) & 0o077:
        # An earlier release, or a mask; what is changed is what was looked at, whatever stands there now.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            opened = os.fstat(handle)
            if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino):
                raise NotPrivateError(f"{folder} was replaced while it was opened")
            os.fchmod(handle, 0o700)
        finally:
            os.close(handle)


def make_own(folder: Path) -> None:
    """Have a folder that the user has named: it must be the user's, but may be open to others for reading.

    Raises:
        NotPrivateError: a link, a file, or another user's folder is there, or others can write to it.
        OSError: it cannot be made.
    """
    found = _create_folder(folder)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise NotPrivateError(f"everyone can write to {folder}")


def _create_folder(folder: Path) -> os.stat_result:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise NotPrivateError(f"{folder} is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivateError(f"{folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise NotPrivateError(f"{folder} belongs to another user")
    return found
