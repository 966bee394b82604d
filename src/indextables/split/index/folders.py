"""Folders of indexes that are being built, merged or taken apart."""

import shutil
import tempfile
from pathlib import Path

from indextables.errors import SplitError
from indextables.options import Options
from indextables.options.indexing import TEMP_DIRECTORY

# A reader of Tantivy's looks at the index once more from a thread of its own soon after it was opened, and
# puts a lock file into a folder that is just being emptied.
_ATTEMPTS = 3


def temporary_folder(options: Options) -> Path:
    """A new folder for an index that is being built."""
    root = options.get(TEMP_DIRECTORY)
    try:
        return Path(tempfile.mkdtemp(prefix="indextables-", dir=root))
    except OSError as error:
        raise SplitError(
            f"no temporary folder can be made in {root or tempfile.gettempdir()} ({error.strerror}); "
            f"set spark.indextables.{TEMP_DIRECTORY.key} to a folder with room"
        ) from error


def remove_folder(folder: Path) -> None:
    """Remove a folder with all it holds; what cannot be removed is left behind silently."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
