"""How many files a process may keep open and mapped for the next query.

Limits follow those of the process (`ulimit -n`): a quarter is for splits, a quarter for indexes, the rest for
everything else.
"""

import errno
import resource
from functools import lru_cache
from pathlib import Path

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_TEXT = "Too many open files"
# The default limit of Linux.
_MAPS = 65530
_LEAST = 4


def max_open_files(most: int) -> int:
    """The number of files that may stay open for one purpose; at most `most`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(_LEAST, min(most, soft // 4))


@lru_cache(maxsize=1)
def max_mapped_files() -> int:
    """The number of files that may stay mapped into memory."""
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):
        most = _MAPS
    return max(_LEAST, most // 4)


def is_resource_exhausted(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is that no more files can be opened or mapped."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return True
        if _TEXT in str(error):
            return True
        error = error.__cause__
    return False
