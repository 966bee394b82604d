"""Limits on the sizes of untrusted input, and on the numbers of open files and of threads.

Tables, splits and logs are untrusted: the sizes that they announce are compared with these limits before
memory is allocated (PROTOCOL.md, "Limits"). The number of open files depends on the limit of the process
(`ulimit -n`): a quarter is for splits, a quarter for indexes, the rest for everything else. `ByteLimit`
bounds the memory of what runs at once.
"""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

MIB = 1 << 20

# An object that is read as a whole: a version file, a state, a manifest, a part of a checkpoint.
MAX_OBJECT = 1024 * MIB
# The maximum size of such an object after decompression; small objects have a lower limit.
MAX_UNPACKED = 512 * MIB
_FREE_UNPACKED = 16 * MIB
_MOST_TIMES = 1000
_FREE_RECORDS = 100_000

# The Parquet footer of a split; the fields, list elements and map entries in it; their nesting depth.
MAX_PARQUET_FOOTER = 128 * MIB
MAX_THRIFT_VALUES = 10_000_000
MAX_THRIFT_DEPTH = 32
# `meta.json` of an index, and the list of files of the original's bundles.
MAX_INDEX_META = 16 * MIB
# All index files of a split together, uncompressed.
MAX_INDEX_BYTES = 1 << 40
# A filter bundle.
MAX_BUNDLE = 256 * MIB
# The nesting depth of the schema of an Avro file, and the number of its fields, nested ones included.
MAX_AVRO_DEPTH = 16
MAX_AVRO_FIELDS = 10_000


def unpacked_limit(packed: int) -> int:
    """Return the maximum size of this many compressed bytes after decompression.

    >>> unpacked_limit(24_000) // 1_000_000, unpacked_limit(1 << 30) == MAX_UNPACKED
    (40, True)
    """
    return min(MAX_UNPACKED, _FREE_UNPACKED + _MOST_TIMES * packed)


def records_limit(packed: int) -> int:
    """Return the maximum number of actions, entries or list elements in this many compressed bytes.

    Each of them takes more than a byte compressed, and hundreds in memory.

    >>> records_limit(24_000)
    124000
    """
    return _FREE_RECORDS + packed


_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_TEXT = "Too many open files"
# The default limit of Linux.
_MAPS = 65530
_LEAST = 4


def cpu_count() -> int:
    """How many processors there are."""
    return os.cpu_count() or 2


def max_open_files(most: int) -> int:
    """The number of files that may stay open for one purpose; at most `most`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(_LEAST, min(most, soft // 4))


@lru_cache(maxsize=1)
def max_mapped_files() -> int:
    """The number of files that may stay mapped into memory: half of what the system allows."""
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):
        most = _MAPS
    return max(_LEAST, most // 2)


def is_resource_exhausted(error: BaseException | None) -> bool:
    """Whether an error, or its cause, means that no more files can be opened or mapped."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return True
        if _TEXT in str(error):
            return True
        error = error.__cause__
    return False


class ByteLimit:
    """Lets work begin while the bytes of all running work are below a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Reset in a forked child: threads of the parent may have reserved bytes."""
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Wait until there is room for this many bytes; more than the limit waits until nothing else runs."""
        size = min(size, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._used + size <= self._limit)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()
