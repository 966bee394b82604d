"""The local disk as a store: writes are atomic and durable, and leave no visible temporary files.

Bytes go into a hidden temporary file beside the target, are flushed to the disk, and only then get their
name: by a hard link, which fails if the name is taken (create), or by a rename (put). The folder is flushed
too, and so are the names of the folders above it, so an acknowledged commit survives a power cut. A killed
process leaves at most its temporary file, which listings do not show.

Folders in shared ones such as /tmp are private: another user may have created a folder or a link under a name
that can be guessed, so a folder is accepted only if it is not a link, belongs to this user, and is not
accessible to others.
"""


# Strings, not Path objects: one is built for every file of a listing.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH112, PTH114, PTH116, PTH118, PTH120, PTH123

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from indextables.cache import Cache
from indextables.errors import (
    CredentialsError,
    NotDurableError,
    ObjectMissingError,
    StoreError,
    UnsafeStoreError,
)
from indextables.store.backend import TEMPORARY, AmbiguousCreateError, ObjectInfo, Sink, temporary_name
from indextables.store.location import check_size, join

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
# Errors of link() after which the name certainly was not created; after any other error it may exist.
_NOT_LINKED = {
    errno.EACCES,
    errno.EDQUOT,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EROFS,
    errno.EXDEV,
}
# A folder that may not be opened, or a file system that does not flush folders.
_NO_FLUSH = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP}
_COPY_BYTES = 8 << 20
_MAX_FLUSHED_FOLDERS = 4096


class LocalBackend:
    """Files below the root of the file system; a key is an absolute path without its first slash."""

    def get(self, key: str) -> bytes:
        """The whole file."""
        with _translate_os_errors(key), _open_file(key) as file:
            check_size(_url(key), os.fstat(file.fileno()).st_size)
            return file.read()

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Parts of a file; truncated at its end."""
        with _translate_os_errors(key), _open_file(key) as file:
            return [_read_exactly(file.fileno(), start, end) for start, end in ranges]

    def head(self, key: str) -> ObjectInfo:
        """Size and time of a file; a folder is not an object."""
        with _translate_os_errors(key):
            status = os.stat(_path(key))
            if not stat.S_ISREG(status.st_mode):
                raise ObjectMissingError(_url(key))
            return _object(key, status)

    def walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        """Every file below a folder, sorted as object stores do; whole folders before `after` are skipped."""
        inside = after[len(folder) + 1 :] if after.startswith(f"{folder}/") else ""
        for name, entry in self._entries(folder, inside.partition("/")[0]):
            key = join(folder, name)
            if name.endswith("/"):
                # its keys begin with `key`: they are greater than `after` if `key` is, or if `after` is
                # inside
                if key > after or after.startswith(key):
                    yield from self.walk(key[:-1], after)
            elif key > after and (info := _info(key, entry)) is not None:
                yield info

    def list_folder(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """Files and folders directly in a folder; a folder without any file below it does not exist."""
        objects, folders = [], []
        for name, entry in self._entries(folder):
            key = join(folder, name)
            if not name.endswith("/"):
                if (info := _info(key, entry)) is not None:
                    objects.append(info)
            elif next(self.walk(key[:-1], ""), None) is not None:
                folders.append(key[:-1])
        return objects, folders

    def put(self, key: str, data: bytes) -> None:
        """Write a file, replacing one that is there."""
        with _translate_os_errors(key):
            _write(key, lambda file: _write_all(file, data), _rename)

    def create(self, key: str, data: bytes) -> None:
        """Write a file if there is none; if the file exists, the caller determines who wrote it."""
        with _translate_os_errors(key):
            _write(key, lambda file: _write_all(file, data), _link)

    def upload(self, key: str, local_file: str) -> int:
        """Copy a local file in, atomically."""
        with _translate_os_errors(key), open(local_file, "rb", buffering=0) as source:
            return _write(key, lambda file: _copy(source, file), _rename)

    def open_upload(self, key: str) -> Sink:
        """Write a file piece by piece."""
        with _translate_os_errors(key):
            return _LocalSink(key, *_open_temporary(_path(key)))

    def delete(self, keys: Sequence[str], root: str) -> int:
        """Delete files, and the folders below `root` that this leaves empty."""
        deleted = 0
        folders = set()
        for key in keys:
            with _translate_os_errors(key):
                try:
                    os.unlink(_path(key))
                except (FileNotFoundError, NotADirectoryError):
                    continue
            deleted += 1
            folders.add(key.rpartition("/")[0])
        for folder in folders:
            _remove_empty(folder, root)
        return deleted

    def remove_abandoned(self, folder: str, before_ms: int, other_tables: str) -> int:
        """Delete temporary files of killed processes; links to folders are not followed."""
        removed = 0
        for path, folders, names in os.walk(_path(folder)):
            if path != _path(folder) and other_tables in folders:
                folders.clear()
                continue
            for name in filter(TEMPORARY.fullmatch, names):
                full = os.path.join(path, name)
                with _translate_os_errors(full[1:]):
                    try:
                        if os.lstat(full).st_mtime_ns // 1_000_000 < before_ms:
                            os.unlink(full)
                            removed += 1
                    except FileNotFoundError:  # its writer finished meanwhile
                        continue
        return removed

    def _entries(self, folder: str, first: str = "") -> list[tuple[str, os.DirEntry[str]]]:
        """The entries of a folder, in the order of whole keys: a folder is compared with its slash.

        Entries before those that begin with `first` are omitted.
        """
        with _translate_os_errors(folder):
            try:
                with os.scandir(_path(folder)) as listing:
                    entries = [
                        (e.name + "/" if e.is_dir(follow_symlinks=False) else e.name, e)
                        for e in listing
                        if (e.name >= first or first.startswith(e.name)) and not _leads_to_folder(e)
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(
            ((name, e) for name, e in entries if TEMPORARY.fullmatch(name) is None), key=lambda pair: pair[0]
        )


class _LocalSink(Sink):
    """A temporary file that gets its name when it is closed."""

    def __init__(self, key: str, temporary: str, file: IO[bytes]) -> None:
        super().__init__()
        self._key = key
        self._temporary, self._file = temporary, file

    def _add(self, data: memoryview) -> None:
        with _translate_os_errors(self._key):
            _write_all(self._file, data)

    def _publish(self) -> None:
        with _translate_os_errors(self._key):
            _finish(self._file, self._temporary, _path(self._key), _rename)

    def _discard(self) -> None:
        _abandon(self._file, self._temporary)


def _path(key: str) -> str:
    return "/" + key


def _url(key: str) -> str:
    return f"file:///{key}"


@contextmanager
def _translate_os_errors(key: str) -> Iterator[None]:
    """Raise errors of the operating system as errors of this package."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        if error.filename not in (None, _path(key)):
            raise StoreError(f"{_url(key)}: {error.strerror}: {error.filename}") from error
        raise ObjectMissingError(_url(key)) from error
    except PermissionError as error:
        raise CredentialsError(
            f"{_url(key)}: permission denied; this user may not read or write there: change the permissions "
            "or the path"
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreError(f"{_url(key)}: the disk is full; make room and repeat the operation") from error
        raise StoreError(f"{_url(key)}: {error.strerror or error}; check the disk and the path") from error


def _open_file(key: str) -> IO[bytes]:
    return open(_path(key), "rb", buffering=0)


def _read_exactly(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end and (part := os.pread(descriptor, end - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _object(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}"
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, etag)


def _info(key: str, entry: "os.DirEntry[str]") -> ObjectInfo | None:
    with _translate_os_errors(key):
        try:
            status = entry.stat()
        except FileNotFoundError:  # deleted since the folder was read
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link that leads to itself
                return None
            raise
        return _object(key, status)


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a link to a folder. These are not listed: they may cause cycles."""
    return entry.is_symlink() and os.path.isdir(entry.path)


Fill = Callable[[IO[bytes]], int]
Publish = Callable[[str, str], None]


def _write(key: str, fill: Fill, publish: Publish) -> int:
    """Write a file and publish it under its name; returns its size."""
    target = _path(key)
    temporary, file = _open_temporary(target)
    try:
        size = fill(file)
    except BaseException:
        _abandon(file, temporary)
        raise
    _finish(file, temporary, target, publish)
    return size


def _open_temporary(target: str) -> tuple[str, IO[bytes]]:
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, temporary_name(secrets.token_hex(16)))
    while True:
        _make_folder(folder)
        try:
            return temporary, open(temporary, "xb", buffering=0)
        except FileNotFoundError:  # a concurrent delete removed the new folder, which was empty
            continue


def _finish(file: IO[bytes], temporary: str, target: str, publish: Publish) -> None:
    try:
        with file:
            os.fsync(file.fileno())
        publish(temporary, target)
    except BaseException:
        _abandon(file, temporary)
        raise


def _abandon(file: IO[bytes], temporary: str) -> None:
    """Close and remove a temporary file; errors are suppressed, so that the first error is raised."""
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        os.unlink(temporary)


def _rename(temporary: str, target: str) -> None:
    with _open_folder(os.path.dirname(target)) as folder:
        os.replace(temporary, target)
        os.fsync(folder)


def _link(temporary: str, target: str) -> None:
    """Give a file its final name unless another file has it.

    An ordinary error means that nothing was created; AmbiguousCreateError, that a file has or may have the
    name. Then the folder was flushed, so that a file with our bytes is durable; NotDurableError means that
    flushing failed.
    """
    # opened before, so that a lack of file handles cannot come between the link and the flush
    with _open_folder(os.path.dirname(target)) as folder:
        reason = _link_error(temporary, target)
        with suppress(OSError):  # a remaining temporary name is harmless
            os.unlink(temporary)
        try:
            os.fsync(folder)
        except OSError as error:
            raise NotDurableError(f"file://{target}", f"its folder could not be flushed: {error}") from error
    if reason is not None:
        raise AmbiguousCreateError(reason)


def _link_error(temporary: str, target: str) -> str | None:
    """Link a file; None on success, else the reason why the outcome is unknown."""
    try:
        os.link(temporary, target)
    except OSError as error:
        try:
            if os.path.samestat(os.stat(temporary), os.stat(target)):
                return None  # the link exists, its answer was lost
        except OSError:
            pass
        if error.errno in _NO_LINKS:
            raise UnsafeStoreError(
                f"file://{target} lies in a file system without hard links: a file cannot be created there "
                "only if it is absent; keep the table on an ordinary local disk or an object store"
            ) from error
        if error.errno in _NOT_LINKED:
            raise
        return "a file is there" if error.errno == errno.EEXIST else str(error)
    return None


def _write_all(file: IO[bytes], data: bytes | memoryview) -> int:
    """Write all bytes, since one call may write fewer; returns their number."""
    view = memoryview(data)
    while view:
        written = file.write(view)
        if not written:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        view = view[written:]
    return len(data)


def _copy(source: IO[bytes], file: IO[bytes]) -> int:
    size = 0
    while part := source.read(_COPY_BYTES):
        size += _write_all(file, part)
    return size


# Folders whose name was flushed to the disk, with the identity of the folder: (device, inode).
_flushed: Cache[str, tuple[int, int]] = Cache(_MAX_FLUSHED_FOLDERS)


def _make_folder(folder: str) -> None:
    """Create a folder and its parents, and flush their names, so that they survive a power cut.

    The name of an existing folder is flushed too, once: its creator may not have flushed it yet.
    """
    parent = os.path.dirname(folder)
    if parent == folder:
        return
    while True:
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            if os.path.islink(folder):
                raise NotADirectoryError(errno.ENOTDIR, "a dangling link", folder) from None
            # A folder may have been deleted by somebody else, and a new one may get its identity.
            _flushed.pop(folder)
            _make_folder(parent)
            # a concurrent delete may remove the empty parent, another writer may create the folder
            with suppress(FileNotFoundError, FileExistsError):
                os.mkdir(folder)
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file has the name of a folder", folder)
        identity = (status.st_dev, status.st_ino)
        if _flushed.get(folder) == identity:
            return
        _make_folder(parent)
        try:
            with _open_folder(parent) as descriptor:
                os.fsync(descriptor)
        except FileNotFoundError:
            continue
        except OSError as error:
            # this user cannot list or flush the parent, so did not create the folder
            if error.errno not in _NO_FLUSH:
                raise
        _flushed.put(folder, identity)
        return


@contextmanager
def _open_folder(folder: str) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        with suppress(OSError):  # nothing was written through it
            os.close(descriptor)


def _remove_empty(folder: str, root: str) -> None:
    while folder.startswith(root + "/"):
        try:
            os.rmdir(_path(folder))
        except OSError:  # not empty, already removed, or not removable by this user
            return
        _flushed.pop(_path(folder))
        folder = folder.rpartition("/")[0]


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
