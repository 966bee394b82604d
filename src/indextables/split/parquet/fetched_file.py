"""Column chunks in memory as the file that they are parts of, for Arrow to read from."""

import io
from typing import Any

import pyarrow as pa


class FetchedFile(io.RawIOBase):
    """A file of which only some ranges are there: Arrow reads each column chunk as a whole."""

    def __init__(self, size: int, parts: dict[int, bytes]) -> None:
        self._size = size
        self._parts = parts
        self._position = 0

    @classmethod
    def open(cls, size: int, parts: dict[int, bytes]) -> Any:  # noqa: ANN401 - untyped library
        """As Arrow's file; `parts` by the place where each begins."""
        return pa.PythonFile(cls(size, parts), "r")

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
        """The next bytes; ValueError if they were not fetched."""
        part = self._parts.get(self._position, b"")
        if size is None or not 0 <= size <= len(part):
            raise ValueError(f"{size} bytes at {self._position} are not those of a column chunk")
        self._position += size
        return part if size == len(part) else part[:size]
