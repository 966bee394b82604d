"""An object of a store as a file that Arrow reads from."""

import io
from typing import Any

import pyarrow as pa

from indextables.split.footer import Footer
from indextables.store import Store


class StoreFile(io.RawIOBase):
    """Reads by ranges; knows its size, so nothing is asked before the first read."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    @classmethod
    def open(cls, store: Store, footer: Footer) -> Any:  # noqa: ANN401 - untyped library
        """As Arrow's file."""
        return pa.PythonFile(cls(store, footer.path, footer.size), "r")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The place of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go elsewhere."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        data = self._store.get_range(self._path, self._position, end)
        self._position = end
        return data
