"""Where the disk cache is: in a folder that the options name, in shared space, or in a private folder."""

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from indextables.errors import IndexCacheError
from indextables.options import Options, reading
from indextables.private_folder import NotPrivateError, make_private

_logger = logging.getLogger(__name__)


def own_folder(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder of this user; refuse what someone else put there."""
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
    """The folder that processes of this user share; if it cannot be trusted, one of this process."""
    named = options.get(reading.DISK_CACHE_PATH) or options.get(reading.CACHE_DIRECTORY)
    if named is not None:
        return Path(named).resolve()  # a link that the user names is the user's wish
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
    """Once for a folder: that someone else made it first must not switch searching off."""
    _logger.warning(
        "indexes are cached for this process only: %s cannot be used (%s); set "
        "spark.indextables.cache.disk.path to a folder of your own",
        folder,
        problem,
    )


@lru_cache(maxsize=1)
def private_folder() -> Path:
    """A folder that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="indextables-")
    weakref.finalize(private_folder, _remove_private, folder, os.getpid())
    return Path(folder)


def _remove_private(folder: str, process: int) -> None:
    if process == os.getpid():  # not in a forked child of the process that uses it
        shutil.rmtree(folder, ignore_errors=True)


os.register_at_fork(after_in_child=private_folder.cache_clear)
