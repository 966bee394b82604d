"""The interface of all kinds of stores, below the handle that callers use; and waiting times of retries."""

import io
import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from indextables.records import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times between attempts: twice as long each time, up to a maximum, with jitter."""

    base_ms: int
    max_ms: int

    def seconds(self, attempt: int, jitter: float) -> float:
        """The wait after a failed attempt (the first is 1); jitter is between 0 and 1.

        >>> [Backoff(100, 5000).seconds(n, 1.0) for n in (1, 2, 3, 10)]
        [0.1, 0.2, 0.4, 5.0]
        """
        whole_ms = min(float(self.base_ms) * 2.0 ** (attempt - 1), float(self.max_ms))
        return whole_ms / 1000 * (0.5 + jitter / 2)

    def sleep(self, attempt: int) -> None:
        """Wait after a failed attempt (the first is 1)."""
        time.sleep(self.seconds(attempt, random.random()))  # noqa: S311 - not a secret


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it; `path` is relative to the store's root.

    `etag` differs between objects that had the same path at different times, if the store has ETags.
    """

    path: str
    size: int
    modified_ms: int
    etag: str = ""


# Names of files that get their final name by a rename or a link; listings do not show them.
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.indextables-part")


def temporary_name(token: str) -> str:
    """The name of a temporary file; `token` has 32 hexadecimal digits."""
    return f".{token}.indextables-part"


class AmbiguousCreateError(Exception):
    """A create had no clear answer; the object may be ours, another writer's, or absent."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Sink(io.RawIOBase):
    """A file being written: `close` creates the object, `abort` discards it.

    Leaving a `with` block by an exception aborts it, and so does garbage collection: only `close` publishes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer; Python 3.11 has no name for that
        """Add bytes at the end."""
        if self.closed:
            raise ValueError("the upload is closed")
        view = memoryview(data).cast("B")
        self._add(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._size

    def close(self) -> None:
        """Publish the object. A failure leaves nothing visible."""
        if self.closed:
            return
        try:
            self._publish()
        finally:
            super().close()

    def abort(self) -> None:
        """Discard the bytes; the object does not become visible."""
        if self.closed:
            return
        try:
            self._discard()
        finally:
            super().close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not self.closed:
            self.abort()

    def _add(self, data: memoryview) -> None:
        raise NotImplementedError

    def _publish(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError


class Backend(Protocol):
    """One kind of store. Paths are keys within the bucket, already checked."""

    def get(self, key: str) -> bytes:
        """The whole object."""
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several parts of an object; short where the object ends earlier."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """Size and time of an object."""
        ...

    def walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        """Every object below a folder, sorted; `after` is an optimisation only, callers filter again."""
        ...

    def list_folder(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """Objects directly in a folder, and the keys of its sub-folders."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing one that is there, atomically."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Write an object if there is none; AmbiguousCreateError if the outcome is unknown."""
        ...

    def upload(self, key: str, local_file: str) -> int:
        """Write an object from a local file, atomically; returns its size."""
        ...

    def open_upload(self, key: str) -> Sink:
        """Write an object piece by piece; it is visible once closed."""
        ...

    def delete(self, keys: Sequence[str], root: str) -> int:
        """Delete objects; returns how many, if the store reports it. Nothing above `root` is touched."""
        ...

    def remove_abandoned(self, folder: str, before_ms: int, other_tables: str) -> int:
        """Delete temporary files of killed uploads that are older than a time; returns their number.

        Folders with an entry named `other_tables` are skipped.
        """
        ...
